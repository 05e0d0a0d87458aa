package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"distribute/lib/wire"
)

// errSSHAddr is what an address over ssh looks like.
var errSSHAddr = errors.New("an address over ssh is ssh://[user@]host[:port][/spool]")

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
		return sshAddr{}, fmt.Errorf("%w: %w", errSSHAddr, errors.Unwrap(err))
	}
	a := sshAddr{user: u.User.Username(), host: u.Hostname(), port: u.Port(), spool: u.Path}
	_, secret := u.User.Password()
	switch {
	case secret, u.RawQuery != "", u.Fragment != "", a.host == "", a.spool == "/":
		return a, errSSHAddr
	case !hostName(a.host):
		return a, fmt.Errorf("%q is no name of a host (an IPv6 address is in brackets)", a.host)
	case u.User != nil && !plainWord(a.user):
		return a, fmt.Errorf("%q is no name of a user", a.user)
	case a.port != "":
		return a, checkPort(a.port)
	}
	return a, nil
}

// hostName says that s is the name of a host, or an alias of ssh_config(5), or
// an address.
func hostName(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && plainWord("zone"+ip.Zone()) || plainWord(s) && !strings.Contains(s, "@")
}

// plainWord says that s is letters, digits and what names of hosts and users
// have besides, and is no option.
func plainWord(s string) bool {
	return s != "" && s[0] != '-' && strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-+@", r))
	}) < 0
}

// words are the arguments of ssh(1) that say where to.
func (a sshAddr) words() []string {
	var w []string
	if a.port != "" {
		w = append(w, "-p", a.port)
	}
	if a.user != "" {
		w = append(w, "-l", a.user)
	}
	return append(w, "--", a.host)
}

// String is what a person types to get there.
func (a sshAddr) String() string {
	s := "ssh "
	if a.port != "" {
		s += "-p " + a.port + " "
	}
	if a.user != "" {
		s += a.user + "@"
	}
	return s + a.host
}

// known is the host as known_hosts names it, for a shell.
func (a sshAddr) known() string {
	if a.port == "" || a.port == "22" {
		return a.host
	}
	return "'[" + a.host + "]:" + a.port + "'"
}

// dialSSH starts dsched -attach on the head and says which spool is meant. That
// nobody is there is an error of the first read.
func (t Terms) dialSSH(ctx context.Context, addr string) (net.Conn, error) {
	a, err := parseSSH(addr)
	if err != nil {
		return nil, err
	}
	c, err := t.startSSH(ctx, a, "dsched -attach")
	if err != nil {
		return nil, err
	}
	if err := wire.New(c).Send(&wire.Attach{Spool: a.spool, Local: Local(addr)}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// sshOptions are those of every stream, which carries nothing else.
var sshOptions = []string{"-T", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"}

// startSSH runs a command on another host by ssh(1), whose standard input and
// output are the stream. The command meets a shell there: it is a constant. ssh
// asks for passwords and about keys where there is a terminal to ask at.
func (t Terms) startSSH(ctx context.Context, a sshAddr, command string) (net.Conn, error) {
	options := slices.Concat(t.SSH, sshOptions)
	daemon := len(t.SSH) > 0
	asks := !daemon && terminal()
	if !asks {
		options = append(options, "-o", "BatchMode=yes")
	}
	more, connected, err := t.shareSSH(ctx, options, a)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := pair()
	if err != nil {
		connected()
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command("ssh", slices.Concat(options, more, a.words(), []string{command})...)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if t.Control != "" {
		cmd.Dir = filepath.Dir(t.Control)
	}
	c := &sshConn{Conn: ours, to: a, command: command, hosts: hostsFile(t.SSH), cmd: cmd, asks: asks, connected: connected}
	if daemon { // its last words may matter
		c.linger = time.Second
	}
	if err := c.start(); err != nil {
		ours.Close()
		connected()
		if errors.Is(err, exec.ErrNotFound) {
			err = errors.New("ssh is not installed on this machine: the package is called openssh-client, or openssh")
		}
		return nil, err
	}
	return c, nil
}

// sshSettings are what ssh(1) would go by, a line "key value" each, as ssh -G
// prints it.
type sshSettings string

// settings asks ssh for what the user has set, which costs some milliseconds. In batch
// mode Debian's ssh sets ServerAliveInterval to 300 by itself, which would pass for the
// user's setting; ssh takes the first value of an option.
func settings(ctx context.Context, options []string, a sshAddr) sshSettings {
	out, err := exec.CommandContext(ctx, "ssh", slices.Concat([]string{"-G", "-o", "BatchMode=no"}, options, a.words())...).Output()
	if err != nil {
		return "" // ssh itself will say why
	}
	return sshSettings(out)
}

// value is that of a key.
func (s sshSettings) value(key string) (value string, ok bool) {
	_, after, ok := strings.Cut("\n"+string(s), "\n"+key+" ")
	value, _, _ = strings.Cut(after, "\n")
	return value, ok
}

// has says that a key is set, and not to what means that it is not.
func (s sshSettings) has(key, not string) bool {
	value, ok := s.value(key)
	return ok && value != not
}

// patience are the options with which silence ends: after 10 seconds of a host
// that does not answer, and 45 of one that does no longer, unless the user has
// set something else.
func (s sshSettings) patience() (options []string) {
	if !s.has("connecttimeout", "none") {
		options = append(options, "-o", "ConnectTimeout=10")
	}
	if !s.has("serveraliveinterval", "0") {
		options = append(options, "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3")
	}
	return options
}

// Patience returns the options of ssh(1) with which the silence of a host, or user@host, ends a command,
// unless the user has set something else.
func Patience(ctx context.Context, host string) []string {
	return settings(ctx, nil, sshAddr{host: host}).patience()
}

// terminal says whether there is a terminal at which ssh can ask for a password,
// or a program that it starts for that.
func terminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err == nil {
		tty.Close()
	}
	return err == nil || os.Getenv("SSH_ASKPASS") != ""
}
