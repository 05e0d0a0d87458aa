package ask

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/dial"
	"distribute/lib/wire"
)

// bridged names, in the environment of this program, a socket between which and
// its standard streams it copies, as ssh and dsched -attach do.
const bridged = "ASK_BRIDGED"

func TestMain(m *testing.M) {
	at := os.Getenv(bridged)
	if at == "" {
		os.Exit(m.Run())
	}
	c, err := net.Dial("unix", at)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go io.Copy(c, os.Stdin)
	io.Copy(os.Stdout, c)
}

// streams are those that come over ssh from now on, as the head has them.
func streams(t *testing.T) <-chan *dial.Shared {
	t.Helper()
	bin := t.TempDir()
	at := filepath.Join(bin, "socket")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fake := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = -G ] || %s='%s' exec '%s'\n", bridged, at, os.Args[0])
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	come := make(chan *dial.Shared)
	go func() {
		defer close(come)
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			c := wire.New(s)
			if _, err := wire.Expect[*wire.Attach](c); err != nil {
				t.Error(err)
			}
			come <- dial.Share(c, false)
		}
	}()
	return come
}

// greeted answers the hello of the next session on a stream, when that has come.
func greeted(t *testing.T, s *dial.Shared, answer ...wire.Message) {
	t.Helper()
	if s == nil {
		return // the test has failed
	}
	p, err := s.Accept()
	if err != nil {
		t.Error(err)
		return
	}
	c := wire.New(p)
	if _, err := wire.Expect[*wire.Hello](c); err != nil {
		t.Error(err)
	}
	c.Send(answer...)
}

// A session that begins on a stream which the head is ending, since nobody had
// one there, has another stream.
func TestSessionOfAStreamThatEnds(t *testing.T) {
	come := streams(t)
	c, _ := tool("")
	s, err := NewSessions(c, "ssh://desk")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hello := &wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, User: "me"}
	over := make(chan struct{})
	go func() {
		defer close(over)
		first := <-come
		greeted(t, first, hello)
		greeted(t, first)
		first.Close()
		second := <-come
		greeted(t, second, hello)
		greeted(t, second, hello)
	}()
	for i := range 3 {
		h, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(i, err)
		}
		h.Close()
	}
	<-over
	if len(s.streams) != 1 {
		t.Errorf("%d streams are kept", len(s.streams))
	}
}
