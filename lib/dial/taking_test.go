package dial

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/suite"
	"distribute/lib/wire"

	"golang.org/x/sys/unix"
)

// An accepted stream of a Unix socket, and its other end.
func accepted(t *testing.T) (*Taking, *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	taking := NewTaking(ours)
	t.Cleanup(func() { taking.Forget(); taking.Close(); theirs.Close() })
	return taking, theirs.(*net.UnixConn)
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// fds are the descriptors of files.
func fds(files ...*os.File) (all []int) {
	for _, f := range files {
		conn, _ := f.SyscallConn()
		conn.Control(func(fd uintptr) { all = append(all, int(fd)) })
	}
	return all
}

// descriptorsOpen is how many this process has.
func descriptorsOpen(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func needsNoWait(t *testing.T) {
	t.Helper()
	if err := knowsNoWait(); err != nil {
		suite.Missing(t, err)
	}
}

// What is passed on is read and written, to the last byte, and who has passed it
// on hears when the head has closed it.
func TestPass(t *testing.T) {
	needsNoWait(t)
	taking, socket := accepted(t)
	in, toUs := pipe(t)
	fromUs, out := pipe(t)
	over := make(chan error, 1)
	go func() { over <- Pass(socket, &wire.Pass{Node: "ws1"}, in, out) }()
	c := wire.New(taking)
	if m, err := wire.Expect[*wire.Pass](c); err != nil || m.Node != "ws1" {
		t.Fatal(m, err)
	}
	if err := taking.Take(); err != nil {
		t.Fatal(err)
	}
	if _, err := toUs.WriteString("{\"m\":\"ping\",\"n\":7}\n"); err != nil {
		t.Fatal(err)
	}
	if p, err := wire.Expect[*wire.Ping](c); err != nil || p.N != 7 {
		t.Fatal(p, err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // more than a pipe holds
	sent := make(chan error, 1)
	go func() {
		_, err := taking.Write(big)
		sent <- errors.Join(err, taking.Close())
	}()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(fromUs, got); err != nil || !bytes.Equal(got, big) {
		t.Fatal("what was read is not what was written", err)
	}
	if err := errors.Join(<-sent, <-over); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := toUs.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Error("the pipe is still open:", err)
	}
}

// taken is a stream whose two pipes this process has made, at whose other ends
// nobody reads or writes.
func taken(t *testing.T) (taking *Taking, socket *net.UnixConn, in, out *os.File) {
	t.Helper()
	needsNoWait(t)
	taking, socket = accepted(t)
	in, _ = pipe(t)
	_, out = pipe(t)
	if _, _, err := socket.WriteMsgUnix([]byte("{\"m\":\"pass\"}\n"), unix.UnixRights(fds(in, out)...), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.Expect[*wire.Pass](wire.New(taking)); err != nil {
		t.Fatal(err)
	}
	if err := taking.Take(); err != nil {
		t.Fatal(err)
	}
	return taking, socket, in, out
}

// Who has passed pipes on can say of them that reads and writes wait. They keep
// to their deadlines all the same, and to a close.
func TestT79PassedThatWait(t *testing.T) {
	taking, _, in, out := taken(t)
	for _, fd := range fds(in, out) {
		if err := syscall.SetNonblock(fd, false); err != nil {
			t.Fatal(err)
		}
	}
	soon := time.Now().Add(10 * time.Millisecond)
	if err := taking.SetDeadline(soon); err != nil {
		t.Fatal(err)
	}
	if _, err := taking.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a read:", err)
	}
	if _, err := taking.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a write:", err)
	}
	if err := taking.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { _, err := taking.Read(make([]byte, 1)); ended <- err }()
	go func() { _, err := taking.Write(make([]byte, 4<<20)); ended <- err }() // there may be some room
	taking.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error("when it is closed:", err)
		}
	}
}

// A stream ends when the socket does over which it was passed on.
func TestPassedEndsWithSocket(t *testing.T) {
	taking, socket, _, _ := taken(t)
	socket.Close()
	if _, err := taking.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// Nothing but two ends of pipes is taken, and nothing that came is left open.
func TestT82PassedWrongly(t *testing.T) {
	needsNoWait(t)
	r, w := pipe(t)
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	file, fifo, null := open(filepath.Join(dir, "file")), open(filepath.Join(dir, "fifo")), open("/dev/null")
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	defer syscall.Close(pair[1])
	var hundred []*os.File
	for range 100 {
		hundred = append(hundred, r)
	}
	for name, files := range map[string][]*os.File{
		"none": nil, "one": {r}, "three": {r, w, r}, "a hundred": hundred, "the other ends": {w, r}, "a file": {r, file}, "a named pipe": {fifo, w},
		"a device": {null, null}, "a socket": {socket, w}, "itself": {r, r},
	} {
		t.Run(name, func(t *testing.T) {
			taking, theirs := accepted(t)
			before := descriptorsOpen(t)
			for _, text := range []string{"{\"m\":\"pass\"}\n", "{\"m\":\"ping\",\"n\":1}\n", "{\"m\":\"pass\"}\n"} {
				if _, _, err := theirs.WriteMsgUnix([]byte(text), unix.UnixRights(fds(files...)...), nil); err != nil {
					t.Fatal(err)
				}
			}
			c := wire.New(taking)
			if _, err := wire.Expect[*wire.Pass](c); err != nil {
				t.Fatal(err)
			}
			if err := taking.Take(); err == nil {
				t.Error("it was taken")
			}
			if m, err := wire.Expect[*wire.Ping](c); err != nil || m.N != 1 {
				t.Error("the stream is another:", m, err)
			}
			if _, err := wire.Expect[*wire.Pass](c); err != nil {
				t.Fatal(err)
			}
			if err := taking.Take(); err == nil {
				t.Error("later it was taken")
			}
			if n := descriptorsOpen(t); n > before {
				t.Errorf("%d descriptors are open, and there were %d", n, before)
			}
		})
	}
}

// Descriptors beside another message are closed.
func TestT82PassedBesideWords(t *testing.T) {
	taking, theirs := accepted(t)
	r, w := pipe(t)
	before := descriptorsOpen(t)
	if _, _, err := theirs.WriteMsgUnix([]byte("{\"m\":\"attach\"}\n"), unix.UnixRights(fds(r, w)...), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.Expect[*wire.Attach](wire.New(taking)); err != nil {
		t.Fatal(err)
	}
	taking.Forget()
	if n := descriptorsOpen(t); n > before {
		t.Errorf("%d descriptors are open, and there were %d", n, before)
	}
}

// What is no pipe is not passed on, nor by a head that refuses.
func TestNotPassed(t *testing.T) {
	r, w := pipe(t)
	taking, socket := accepted(t)
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, files := range [][2]any{{null, w}, {r, null}, {strings.NewReader(""), w}, {r, io.Discard}} {
		if err := Pass(socket, &wire.Pass{}, files[0], files[1]); !errors.Is(err, ErrNotPassed) {
			t.Error(files, err)
		}
	}
	over := make(chan error, 1)
	go func() { over <- Pass(socket, &wire.Pass{}, r, w) }()
	c := wire.New(taking)
	if _, err := wire.Expect[*wire.Pass](c); err != nil {
		t.Fatal(err)
	}
	if err := c.Send(&wire.Error{Text: "unknown message"}); err != nil {
		t.Fatal(err)
	}
	if err := <-over; !errors.Is(err, ErrNotPassed) {
		t.Error(err)
	}
}
