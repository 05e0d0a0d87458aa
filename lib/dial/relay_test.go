package dial

import (
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Who reads the pipe is not held up while the socket says nothing, and what is
// moved is whole.
func TestMovedFromSocket(t *testing.T) {
	here, there := socketPair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	over := make(chan error, 1)
	go func() {
		over <- fromSocket(w, here)
		w.Close()
	}()
	there.Write([]byte("hello"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	raw, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { // as sshd does, which has other things to do
		if _, err := syscall.Read(int(fd), make([]byte, 1)); err != syscall.EAGAIN {
			t.Errorf("of a pipe in which nothing is, %v", err)
		}
	})
	text := strings.Repeat("much ", 1<<19)
	go func() {
		there.Write([]byte(text))
		there.Close()
	}()
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// socketPair is a stream within this process.
func socketPair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}
