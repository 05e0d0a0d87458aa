package testscripts

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy passes streams on, and does something to them on the way.
type proxy struct {
	split int           // pieces of at most so many bytes
	delay time.Duration // before each piece
	cut   int64         // after so many bytes of a stream, both ways together, it ends
	flip  int64         // a bit of that byte, of what goes from the target, or with up, to it
	up    bool
	last  int64  // only so many streams suffer that; 0: all
	stand int64  // after so many bytes of a stream, both ways together, it stands still
	until string // as long as there is no such file
	seen  atomic.Int64
}

// mainProxy is the command
//
//	proxy [-split n] [-delay d] [-cut n] [-flip n] [-up] [-last n] [-stand n -until file] LISTEN TARGET
//
// where an address is unix:PATH, or HOST:PORT of TCP. It says where it listens,
// and each cut.
func mainProxy() {
	var p proxy
	flag.IntVar(&p.split, "split", 64<<10, "")
	flag.DurationVar(&p.delay, "delay", 0, "")
	flag.Int64Var(&p.cut, "cut", 1<<62, "")
	flag.Int64Var(&p.flip, "flip", -1, "")
	flag.BoolVar(&p.up, "up", false, "")
	flag.Int64Var(&p.last, "last", 0, "")
	flag.Int64Var(&p.stand, "stand", 1<<62, "")
	flag.StringVar(&p.until, "until", "", "")
	flag.Parse()
	l, err := listen(flag.Arg(0))
	if err == nil {
		fmt.Fprintln(os.Stderr, l.Addr())
	}
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go p.pass(c, flag.Arg(1))
		}
	}
	fmt.Fprintln(os.Stderr, "proxy:", err)
	os.Exit(1)
}

// listen makes the socket of a path elsewhere, and gives it its name when it
// listens: who finds it there can connect.
func listen(s string) (net.Listener, error) {
	network, addr := address(s)
	if network != "unix" {
		return net.Listen(network, addr)
	}
	l, err := net.Listen(network, addr+".new")
	if err != nil {
		return nil, err
	}
	return l, os.Rename(addr+".new", addr)
}

func address(s string) (network, addr string) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return "unix", path
	}
	return "tcp", s
}

// pass connects one stream with the target.
func (p *proxy) pass(c net.Conn, target string) {
	defer c.Close()
	network, addr := address(target)
	d, err := net.Dial(network, addr)
	if err != nil {
		return
	}
	defer d.Close()
	n := p.seen.Add(1)
	s := &passing{proxy: p, left: p.cut, hurt: p.last == 0 || n <= p.last}
	var ways sync.WaitGroup
	for _, way := range []struct {
		from, to net.Conn
		up       bool
	}{{c, d, true}, {d, c, false}} {
		ways.Go(func() {
			s.copy(way.to, way.from, way.up)
			c.Close()
			d.Close()
		})
	}
	ways.Wait()
}

// A passing is one stream that passes.
type passing struct {
	*proxy
	hurt   bool
	passed atomic.Int64
	mu     sync.Mutex // guards left
	left   int64
}

var errCut = errors.New("cut")

func (s *passing) copy(to io.Writer, from io.Reader, up bool) {
	buf := make([]byte, s.split)
	at := int64(0)
	for {
		n, err := from.Read(buf)
		if s.hurt {
			if s.flip >= at && s.flip < at+int64(n) && up == s.up {
				buf[s.flip-at] ^= 4
			}
			if n, err = s.most(n, err); err == errCut {
				fmt.Fprintln(os.Stderr, "cut")
			}
		}
		at += int64(n)
		for s.passed.Add(int64(n)); err == nil && s.passed.Load() > s.stand; <-time.After(10 * time.Millisecond) {
			if _, err := os.Stat(s.until); err == nil {
				break
			}
		}
		if s.delay > 0 {
			<-time.After(s.delay)
		}
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// most is how many of n bytes may pass.
func (s *passing) most(n int, err error) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(n) >= s.left {
		n, err = int(s.left), errCut
	}
	s.left -= int64(n)
	return n, err
}
