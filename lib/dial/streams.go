package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"distribute/lib/wire"
)

// Streams makes the streams of one session of a node with its head. Over ssh
// they are parts of one, so that a session costs one ssh.
type Streams struct {
	terms Terms
	addr  string

	mu     sync.Mutex // guards shared
	shared *Shared
}

// Streams are streams to addr, of which none is made yet.
func (t Terms) Streams(addr string) *Streams { return &Streams{terms: t, addr: addr} }

// Dial makes the next stream. Where one is just ending it waits for its place, so
// that many which end while others begin take no more of what sshd has a limit for.
func (s *Streams) Dial(ctx context.Context) (net.Conn, error) {
	if !strings.HasPrefix(s.addr, "ssh://") {
		return s.terms.Dial(ctx, s.addr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		shared, err := s.terms.attachParts(ctx, s.addr)
		if err != nil {
			return nil, wrap(s.addr, err)
		}
		s.shared = shared
	}
	for {
		c, again, err := s.shared.begin()
		if again == nil {
			return c, wrap(s.addr, err)
		}
		select {
		case <-again:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close ends what the streams share. It may be called twice.
func (s *Streams) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return nil
	}
	return s.shared.Close()
}

// attachParts starts dsched -attach on the head for a stream of parts.
func (t Terms) attachParts(ctx context.Context, addr string) (*Shared, error) {
	a, err := parseSSH(addr)
	if err != nil {
		return nil, err
	}
	stream, err := t.startSSH(ctx, a, "dsched -attach")
	if err != nil {
		return nil, err
	}
	c := wire.New(stream)
	if err := c.Send(&wire.Attach{Spool: a.spool, Parts: true, Local: Local(addr)}); err != nil {
		c.Close()
		return nil, err
	}
	return Share(c, true), nil
}

// reachWithin is how long a desk may take until its dnoded speaks.
const reachWithin = time.Minute

// Reach starts dnoded -stdio at ssh://[user@]desk[:port] and waits until it says
// which node it is. Its streams are the parts, which it begins.
func (t Terms) Reach(ctx context.Context, addr string) (s *Shared, node string, err error) {
	a, err := parseSSH(addr)
	if err == nil && a.spool != "" {
		err = fmt.Errorf("%q has a path: the address of a desk is ssh://[user@]desk[:port]", addr)
	}
	if err != nil {
		return nil, "", err
	}
	stream, err := t.startSSH(ctx, a, "dnoded -stdio")
	if err != nil {
		return nil, "", err
	}
	end := context.AfterFunc(ctx, func() { stream.Close() })
	defer end()
	c := wire.New(stream)
	c.ReadWithin(reachWithin)
	said, err := wire.Expect[*wire.Attach](c)
	c.ReadWithin(0)
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("its dnoded has ended before it said a word")
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("its dnoded says nothing for %v", reachWithin)
	case err == nil && !said.Parts:
		err = errors.New("its dnoded knows no parts: upgrade it")
	}
	if err != nil {
		c.Close()
		return nil, "", err
	}
	return Share(c, false), said.Node, nil
}

// ownHostsOption is the option before the name of a daemon's own file of hosts.
const ownHostsOption = "UserKnownHostsFile="

// hostsFile is that file, if these options of [OwnSSH] name one.
func hostsFile(options []string) string {
	for _, o := range options {
		if file, ok := strings.CutPrefix(o, ownHostsOption); ok {
			return strings.ReplaceAll(file, "%%", "%")
		}
	}
	return ""
}

// OwnSSH are options of ssh(1) for a daemon, which nobody can answer a question:
// with the key and the hosts of its directory, if they are there. A key that is
// another's, or that others can read, is [ErrBadKey].
func OwnSSH(dir string) ([]string, error) {
	options := []string{"-o", "BatchMode=yes"}
	add := func(path string, set ...string) {
		for _, s := range set {
			options = append(options, "-o", strings.ReplaceAll(s, "FILE", `"`+strings.ReplaceAll(path, "%", "%%")+`"`))
		}
	}
	key, hosts := filepath.Join(dir, "ssh_key"), filepath.Join(dir, "known_hosts")
	info, err := os.Stat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case exposed(key, info) != "":
		return nil, badKey(key, exposed(key, info))
	default:
		add(key, "IdentityFile=FILE", "IdentitiesOnly=yes")
	}
	if _, err := os.Stat(hosts); err == nil {
		add(hosts, ownHostsOption+"FILE", "GlobalKnownHostsFile=none", "StrictHostKeyChecking=yes", "UpdateHostKeys=no")
	}
	return options, nil
}
