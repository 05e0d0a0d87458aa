package dial

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// What is relayed comes whole, both ways, and the relay ends with the stream. It
// goes on after the limit of what was written before it.
func TestRelay(t *testing.T) {
	here, there := socketPair(t)
	here.SetDeadline(time.Unix(1, 0))
	in, typed := io.Pipe()
	var out bytes.Buffer
	over := make(chan error, 1)
	go func() {
		err := Relay(context.Background(), here, in, &out)
		here.Close()
		over <- err
	}()
	text := strings.Repeat("much ", 1<<19)
	go io.WriteString(typed, text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(there, got); err != nil || string(got) != text {
		t.Fatalf("of %d bytes came %q..., %v", len(text), got[:5], err)
	}
	io.WriteString(there, text)
	there.Close()
	if err := <-over; err != nil || out.String() != text {
		t.Errorf("%d bytes of %d, %v", out.Len(), len(text), err)
	}
}

// A relay that is to end does, while both sides are silent.
func TestRelayEnds(t *testing.T) {
	here, _ := socketPair(t)
	in, _ := io.Pipe()
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- Relay(ctx, here, in, io.Discard) }()
	end()
	<-over
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
