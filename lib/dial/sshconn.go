package dial

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"distribute/lib/timing"
)

// endWithin is how long an ssh that was asked to end may take before it is
// killed; one that may have turned off the terminal's echo has endAskingWithin to
// turn that on.
const (
	endWithin = time.Second
	askEvery  = 100 * time.Millisecond
)

var endAskingWithin = timing.Wait(10 * time.Second)

// A sshConn is the stream of an ssh that runs. The last words of ssh, if it
// fails, are the error of the Read that meets its end.
type sshConn struct {
	net.Conn
	to        sshAddr
	command   string
	hosts     string // the daemon's own file of hosts, if it has one
	cmd       *exec.Cmd
	asks      bool          // it may be asking somebody for a password
	linger    time.Duration // how long it may take to pass on what was written before Close
	connected func()        // to be called when the other side has spoken, or ssh has ended

	said   brief
	heard  sync.WaitGroup
	talk   *os.File
	spoken atomic.Bool
	once   sync.Once
	err    error
}

// start starts ssh. What it says is read from a pipe of ours and not of
// os/exec, which would wait for everybody who holds the pipe: an ssh that goes
// on for others may.
func (c *sshConn) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	c.cmd.Stderr = w
	if err := c.cmd.Start(); err != nil {
		r.Close()
		return err
	}
	c.talk = r
	c.heard.Go(func() { io.Copy(&c.said, r) })
	return nil
}

// Read reads the stream. What comes before dsched or dnoded speaks is an error,
// and so is the end of an ssh that failed.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.spoken.Swap(true) {
		c.connected()
		if p[0] != '{' {
			printed, _, spoke := bytes.Cut(p[:n], []byte("\n{"))
			if spoke {
				printed = p[:len(printed)+1]
			}
			return 0, fmt.Errorf("a shell there prints %.200q where %q should speak: what its start-up files print has to be for terminals only, until %q prints nothing",
				printed, c.command, c.to.String()+" true")
		}
	}
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		if why := c.end(endWithin); why != nil {
			err = why
		}
	}
	return n, err
}

// Write writes the stream. To an ssh that has ended it cannot, and the error is
// why that has ended, as for Read.
func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		if why := c.end(endWithin); why != nil {
			err = why
		}
	}
	return n, err
}

// SetReadDeadline is that of the stream, but until the other side has spoken
// somebody may be typing a password, which takes as long as it takes.
func (c *sshConn) SetReadDeadline(t time.Time) error {
	if c.asks && !c.spoken.Load() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// Close ends the stream, and ssh.
func (c *sshConn) Close() error {
	err := c.Conn.Close()
	c.end(c.linger)
	return err
}

// end waits for the end of ssh, which it asks for after a while, and says why it
// failed, if it did.
func (c *sshConn) end(patience time.Duration) error {
	c.once.Do(func() {
		defer c.connected()
		ask := time.AfterFunc(patience, c.ask)
		defer ask.Stop()
		if c.asks && !c.spoken.Load() {
			patience += endAskingWithin - endWithin
		}
		kill := time.AfterFunc(patience+endWithin, func() { c.cmd.Process.Kill() })
		defer kill.Stop()
		err := c.cmd.Wait()
		c.talk.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		c.heard.Wait()
		c.talk.Close()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = c.to.why(exit.ExitCode(), c.said.String(), c.spoken.Load(), c.hosts)
		}
		c.err = err
	})
	return c.err
}

// ask asks ssh to end, again and again: between writing its question and waiting for
// the answer a signal is noted and not acted on, and an ssh that is killed there leaves
// a terminal without echo.
func (c *sshConn) ask() {
	for c.cmd.Process.Signal(syscall.SIGTERM) == nil {
		time.Sleep(askEvery)
	}
}

// pair is both ends of a stream within this machine.
func pair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near := os.NewFile(uintptr(fds[0]), "ssh")
	defer near.Close()
	theirs := os.NewFile(uintptr(fds[1]), "ssh")
	ours, err := net.FileConn(near)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// brief keeps the end of what is written to it.
type brief struct {
	mu  sync.Mutex
	end []byte
}

func (b *brief) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end = append(b.end, p...)
	if over := len(b.end) - 4000; over > 0 {
		b.end = append(b.end[:0], b.end[over:]...)
	}
	return len(p), nil
}

func (b *brief) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.end)
}
