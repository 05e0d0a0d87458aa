// Package dial makes streams of bytes between the head, its nodes and its
// tools, and says who is at the other end. It knows unix:PATH, the spool
// directory whose socket that is, ssh://HOST, tls://HOST, and tcp://HOST:PORT: on
// loopback, and where somebody has said that it may be, anywhere.
package dial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/msg"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// MaxPath is how long the path of a socket may be (unix(7)); longer ones are
// reached through the directory's descriptor.
const MaxPath = 100

// dialWithin is how long a host may take to answer at all.
const dialWithin = 10 * time.Second

// An Error is that no stream could be made to an address. The commands end
// with status 69 for it.
type Error struct {
	Addr string
	Err  error
	From string // the file that names the address, if one does
}

func (e *Error) Error() string {
	if e.From != "" {
		return fmt.Sprintf("the head at %q, which %s names, cannot be reached: %v", e.Addr, e.From, e.Err)
	}
	return fmt.Sprintf("the head at %q cannot be reached: %v", e.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// unreached is the status with which a command ends that reaches no head.
const unreached = 69

// ExitStatus is the status with which a command ends for this error.
func (e *Error) ExitStatus() int { return unreached }

// Terms say what a stream may run over, and what proves to each side who the
// other is. The zero value is what is safe without a key: plain TCP, which
// proves nothing of a peer, on loopback only.
type Terms struct {
	Insecure bool             // plain TCP may leave this machine
	Key      Key              // what this side proves itself with over TLS
	HeadKey  node.Fingerprint // of the head that is dialled over TLS
	SSH      []string         // options of ssh(1) for a daemon; see [OwnSSH]
	Control  string           // socket by which the ssh of a daemon's streams share a connection; see [Terms.Afresh]
	Sharing  []string         // the first of these directories that is fit for it is where the user's tools share an ssh

	Connection int // which of several that the user's tools share
}

// Dial makes a stream to the address without a key: to a spool directory,
// unix:PATH, ssh://HOST or tcp://HOST:PORT on loopback.
func Dial(ctx context.Context, addr string) (net.Conn, error) { return Terms{}.Dial(ctx, addr) }

// Dial is the function Dial on these terms.
func (t Terms) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialWithin}
	if hp, ok := strings.CutPrefix(addr, "tcp://"); ok {
		if err := t.plain(hp); err != nil {
			return nil, &Error{Addr: addr, Err: err}
		}
		c, err := d.DialContext(ctx, "tcp", hp)
		return c, wrap(addr, err)
	}
	if strings.HasPrefix(addr, "ssh://") {
		c, err := t.dialSSH(ctx, addr)
		return c, wrap(addr, err)
	}
	if strings.HasPrefix(addr, "tls://") {
		c, err := t.dialTLS(ctx, &d, addr)
		return c, wrap(addr, err)
	}
	path, err := socket(addr)
	if err != nil {
		return nil, &Error{Addr: addr, Err: err}
	}
	var c net.Conn
	err = short(path, func(p string) (err error) {
		c, err = d.DialContext(ctx, "unix", p)
		return err
	})
	if dir, ok := Spool(addr); ok {
		err = silent(dir, err)
	}
	return c, wrap(addr, err)
}

// silent says in words why the socket of a spool does not answer, where the
// spool tells.
func silent(dir string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("it is for its owner and its group, which ls -ld %s shows (%w)", dir, bare(err))
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("it is no directory; name that of the spool, or unix:PATH for a socket (%w)", bare(err))
	}
	if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	if _, serr := os.Stat(filepath.Join(dir, "spool.json")); errors.Is(serr, os.ErrNotExist) {
		if !strings.HasPrefix(dir, "/") && strings.TrimSpace(dir) != "" {
			return fmt.Errorf("there is no spool of that path; a head on another machine is ssh://HOST/SPOOL, or tls://HOST for a node (%w)", bare(err))
		}
		return fmt.Errorf("it is no spool (%w)", bare(err))
	}
	return &Idle{dir, bare(err)}
}

// Idle is that no dsched runs on a spool of this machine.
type Idle struct {
	Spool string
	Err   error
}

func (e *Idle) Error() string {
	if info, err := os.Stat(e.Spool); err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return fmt.Sprintf("no dsched runs on it; its owner, whom %s shows, starts it (%v)", msg.Shell("ls", "-ld", e.Spool), e.Err)
	}
	start := msg.Shell("dsched", "-S", e.Spool)
	if dir, name := filepath.Split(filepath.Clean(e.Spool)); name == "spool" && exists(filepath.Join(dir, "dlocal.lock")) {
		start = msg.Shell("dlocal", "-d", filepath.Clean(dir))
	}
	return fmt.Sprintf("no dsched runs on it; start it: %s (%v)", start, e.Err)
}

// Unwrap returns the cause.
func (e *Idle) Unwrap() error { return e.Err }

// bare is an error of the network without the addresses, which are the reader's.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && dns.IsNotFound {
		return noHost{dns}
	}
	return err
}

// noHost is a [net.DNSError] without the address of who was asked.
type noHost struct{ *net.DNSError }

func (e noHost) Error() string { return fmt.Sprintf("no such host as %q", e.Name) }
func (e noHost) Unwrap() error { return e.DNSError }

func wrap(addr string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Addr: addr, Err: bare(err)}
}

// Local says that an address is on this machine, where bytes cost less than
// squeezing them.
func Local(addr string) bool {
	scheme, hp, ok := strings.Cut(addr, "://")
	switch {
	case !ok:
		return true
	case scheme == "tls":
		hp, err := parseTLS(addr)
		return err == nil && loopback(hp) == nil
	case scheme == "ssh":
		a, err := parseSSH(addr)
		return err == nil && loopback(net.JoinHostPort(a.host, a.port)) == nil
	}
	return scheme == "tcp" && loopback(hp) == nil
}

// Exposed says that an address is of plain TCP beyond this machine, where
// anybody can be the peer.
func Exposed(addr string) bool { return strings.HasPrefix(addr, "tcp://") && !Local(addr) }

// Check reports an address at which there can never be a head, on these terms.
func (t Terms) Check(addr string) error {
	if hp, ok := strings.CutPrefix(addr, "tcp://"); ok {
		return t.plain(hp)
	}
	if strings.HasPrefix(addr, "ssh://") {
		_, err := parseSSH(addr)
		return err
	}
	if strings.HasPrefix(addr, "tls://") {
		return t.checkTLS(addr)
	}
	_, err := socket(addr)
	return err
}

// socket is the path of the socket that an address names.
func socket(addr string) (string, error) {
	if p, ok := strings.CutPrefix(addr, "unix:"); ok {
		return p, nil
	}
	if scheme, _, ok := strings.Cut(addr, "://"); ok {
		return "", fmt.Errorf("%q streams are not known; an address is a spool directory, unix:PATH, ssh://HOST, tls://HOST or tcp://127.0.0.1:PORT", scheme)
	}
	return Socket(addr), nil
}

// Socket is the path of the socket of the dsched that serves a spool.
func Socket(spool string) string { return filepath.Join(spool, "run", "socket") }

// short calls f with a path of the same socket that is short enough.
func short(path string, f func(string) error) error {
	if len(path) <= MaxPath {
		return f(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path))
}

// loopback reports why host:port is not an address of this machine only. Plain
// TCP proves nothing about a peer, so it is for one machine.
func loopback(hostport string) error {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return err
	}
	if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
		return fmt.Errorf("plain TCP to %q would let anybody on the network in; it is for 127.0.0.1, ::1 and localhost only, unless -insecure is given", host)
	}
	return nil
}

// plain reports why plain TCP may not be used with host:port on these terms.
func (t Terms) plain(hostport string) error {
	if !t.Insecure {
		return loopback(hostport)
	}
	_, _, err := net.SplitHostPort(hostport)
	return err
}

// Listen listens on unix:PATH, whose socket gets mode 0666 (the kernel says who
// asks, and the head decides), on tls://[HOST][:PORT], or on tcp://HOST:PORT,
// loopback only. A socket that is left of a process that died is replaced: call
// it under a lock.
func Listen(addr string) (net.Listener, error) { return Terms{}.Listen(addr) }

// Listen is the function Listen on these terms.
func (t Terms) Listen(addr string) (net.Listener, error) {
	l, err := t.listen(addr)
	if err != nil {
		return nil, bare(err)
	}
	return l, nil
}

func (t Terms) listen(addr string) (net.Listener, error) {
	if hp, ok := strings.CutPrefix(addr, "tcp://"); ok {
		if err := t.plain(hp); err != nil {
			return nil, err
		}
		l, err := listenTCP(hp)
		if err != nil {
			return nil, err
		}
		return plainListener{l}, nil
	}
	if strings.HasPrefix(addr, "tls://") {
		return t.listenTLS(addr)
	}
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		return nil, errors.New("an address to listen on is tls://, tls://HOST:PORT or tcp://127.0.0.1:PORT")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var l net.Listener
	err := short(path, func(p string) (err error) {
		l, err = net.Listen("unix", p)
		if err == nil {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			err = os.Chmod(p, SocketMode(path))
		}
		return err
	})
	return l, err
}

// SocketMode is the mode of a socket on which a head listens: all may connect who get to it, but
// where nobody else than its owner does, one of the two directories above being his alone.
func SocketMode(path string) os.FileMode {
	for dir := filepath.Dir(path); dir != filepath.Dir(filepath.Dir(filepath.Dir(path))); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o077 == 0 {
			return 0o600
		}
	}
	return 0o666
}

// Greet makes a session with the head at addr: a stream, and both hellos. The
// caller closes the Conn; it is closed when ctx ends, too.
func Greet(ctx context.Context, addr string, h wire.Hello) (*wire.Conn, *wire.Hello, error) {
	return Terms{}.Greet(ctx, addr, h)
}

// Greet is the function Greet on these terms.
func (t Terms) Greet(ctx context.Context, addr string, h wire.Hello) (*wire.Conn, *wire.Hello, error) {
	stream, err := t.Dial(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	return Over(ctx, stream, addr, h)
}

// Over is Greet on a stream that was made to addr.
func Over(ctx context.Context, stream net.Conn, addr string, h wire.Hello) (*wire.Conn, *wire.Hello, error) {
	c := wire.New(stream)
	context.AfterFunc(ctx, func() { c.Close() })
	head, err := wire.Greet(c, h)
	if err != nil {
		c.Close()
		if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status != unreached {
			return nil, nil, err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it does not answer: its log, and ps -C dsched -o pid,stat,wchan there, show whether it was stopped (T) or its disk hangs (D) (%w)", bare(err))
		}
		return nil, nil, &Error{Addr: addr, Err: err}
	}
	return c, head, nil
}
