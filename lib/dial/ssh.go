package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"distribute/lib/wire"
)

// A sshAddr is ssh://[user@]host[:port][/spool].
type sshAddr struct {
	user, host, port string
	spool            string // path on that host; empty: its usual one
}

// parseSSH reads an address of an ssh stream. What ssh or a shell could take for
// anything but a name is refused.
func parseSSH(addr string) (sshAddr, error) {
	u, err := url.Parse(addr)
	if err != nil {
		return sshAddr{}, fmt.Errorf("an address over ssh is ssh://[user@]host[:port][/spool]: %w", errors.Unwrap(err))
	}
	a := sshAddr{user: u.User.Username(), host: u.Hostname(), port: u.Port(), spool: u.Path}
	_, secret := u.User.Password()
	switch {
	case secret, u.RawQuery != "", u.Fragment != "", a.host == "", a.spool == "/":
		return a, errors.New("an address over ssh is ssh://[user@]host[:port][/spool]")
	case !plainWord(a.host), a.user != "" && !plainWord(a.user):
		return a, fmt.Errorf("%q is no name of a host, or of a user", addr)
	}
	return a, nil
}

// plainWord says that s is letters, digits and what names of hosts and users
// have besides, and is no option.
func plainWord(s string) bool {
	return s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-:%+", r))
	}) < 0
}

// dialSSH starts dsched -attach on the head and says which spool is meant.
func (t Terms) dialSSH(ctx context.Context, addr string) (net.Conn, error) {
	a, err := parseSSH(addr)
	if err != nil {
		return nil, err
	}
	c, err := t.startSSH(ctx, a, "dsched -attach")
	if err != nil {
		return nil, err
	}
	if err := wire.New(c).Send(&wire.Attach{Spool: a.spool}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// startSSH runs a command on another host by ssh(1), whose streams are the
// stream. The command meets a shell there: it is a constant.
func (t Terms) startSSH(ctx context.Context, a sshAddr, command string) (net.Conn, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	args := []string{"-T", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes"}
	if a.port != "" {
		args = append(args, "-p", a.port)
	}
	if a.user != "" {
		args = append(args, "-l", a.user)
	}
	args = append(args, t.SSH...)
	c := &sshConn{Conn: ours, cmd: exec.Command("ssh", append(args, "--", a.host, command)...)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs, theirs, &c.said
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	return c, nil
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

// A sshConn is the stream of an ssh that runs.
type sshConn struct {
	net.Conn
	cmd  *exec.Cmd
	said brief
	once sync.Once
	err  error
}

// Close ends the stream, and ssh.
func (c *sshConn) Close() error {
	err := c.Conn.Close()
	c.wait()
	return err
}

// Read reads the stream. At its end it says what ssh said, if that failed.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		if why := c.wait(); why != nil {
			err = why
		}
	}
	return n, err
}

// wait ends ssh and says why it failed, if it did.
func (c *sshConn) wait() error {
	c.once.Do(func() {
		late := time.AfterFunc(time.Second, func() { c.cmd.Process.Kill() })
		defer late.Stop()
		if err := c.cmd.Wait(); err != nil {
			c.err = fmt.Errorf("ssh: %s (%w)", c.said.String(), err)
		}
	})
	return c.err
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
	b.end = b.end[max(0, len(b.end)-1000):]
	return len(p), nil
}

func (b *brief) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(string(b.end))
}
