package head

import (
	"net"
	"os"
	"testing"

	"distribute/lib/dial"
	"distribute/lib/wire"

	"golang.org/x/sys/unix"
)

// Who dialled over ssh says whether that was its own machine: only then trees travel as
// they are.
func TestAttachedLocal(t *testing.T) {
	h := &Head{uid: os.Getuid()}
	self := dial.Peer{UID: os.Getuid(), Proven: true, Local: true} // dsched -attach
	for _, a := range []wire.Attach{{}, {Local: true}, {Node: "ws1"}, {Node: "ws1", Local: true}} {
		if p, err := h.attached(self, &a); err != nil || p.Local != a.Local || p.Node != a.Node {
			t.Errorf("%+v: %+v, %v", a, p, err)
		}
	}
}

// X96: who has attached a stream cannot attach it again, and nobody is a node on the
// word of another user than dsched's own.
func TestX96Attached(t *testing.T) {
	s := newSite(t)
	w := wire.New(s.raw(s.dir))
	s.send(w, &wire.Attach{})
	s.send(w, &wire.Attach{Node: "ws1"})
	refused(t, w, 65, "hello does not come first")

	s.stop()
	s.proven = func(net.Conn) (dial.Peer, error) { return dial.Peer{UID: 61000, User: "ana", Proven: true}, nil }
	s.start()
	w = wire.New(s.raw(s.dir))
	s.send(w, &wire.Attach{Node: "ws1"})
	refused(t, w, 77, "authorized_keys")
}

// T82: descriptors without end, beside words, cost the head
// none of its own.
func TestT82EndlessDescriptors(t *testing.T) {
	s := newSite(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fds := make([]int, 100)
	for i := range fds {
		fds[i] = int(null.Fd())
	}
	before := s.descriptors()
	c := s.raw(s.dir).(*net.UnixConn)
	w := wire.New(c)
	say := func(text []byte) {
		t.Helper()
		if _, _, err := c.WriteMsgUnix(text, unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
	}
	say([]byte("{\"m\":\"hello\",\"proto\":[1,1],\"role\":\"tool\"}\n"))
	expect[*wire.Hello](t, w)
	for n := range uint64(20) {
		say(lines(t, &wire.Ping{N: n}))
		expect[*wire.Pong](t, w)
	}
	if n := s.descriptors(); n > before+20 { // of 2,100; some files are open for a moment
		t.Errorf("%d descriptors are open, and there were %d", n, before)
	}
}

// descriptors is how many this process has, which is that of the head.
func (s *site) descriptors() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.t.Fatal(err)
	}
	return len(all)
}
