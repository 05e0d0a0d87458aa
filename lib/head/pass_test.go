package head

import (
	"io"
	"net"
	"os"
	"testing"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/wire"

	"golang.org/x/sys/unix"
)

// A duct is a stream of two pipes, of which this is the far end.
type duct struct {
	io.Reader
	io.Writer
	files []*os.File
}

func (d duct) Close() error {
	for _, f := range d.files {
		f.Close()
	}
	return nil
}

// duct makes one, and the ends that are to be passed on.
func (s *site) duct() (far duct, in, out *os.File) {
	s.t.Helper()
	in, toIt, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	fromIt, out, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	far = duct{fromIt, toIt, []*os.File{fromIt, toIt}}
	s.t.Cleanup(func() { far.Close(); in.Close(); out.Close() })
	return far, in, out
}

// passed is a stream that was passed to the head, and how that ends.
func (s *site) passed(m *wire.Pass) (*wire.Conn, chan error) {
	s.t.Helper()
	_, c, over := s.passedOn(m)
	return c, over
}

// passedOn is passed, with the stream itself.
func (s *site) passedOn(m *wire.Pass) (duct, *wire.Conn, chan error) {
	s.t.Helper()
	far, in, out := s.duct()
	socket, over := s.raw(s.dir), make(chan error, 1)
	go func() {
		err := dial.Pass(socket, m, in, out)
		in.Close()
		out.Close()
		over <- err
	}()
	return far, wire.New(far), over
}

// A tool whose stream was passed on is who passed it on, is answered, and the
// socket is closed when all is in the pipe.
func TestPassedTool(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	far, c, over := s.passedOn(&wire.Pass{})
	hello, err := wire.Greet(c, wire.Hello{Role: wire.RoleTool})
	if err != nil {
		t.Fatal(err)
	}
	if hello.User == "" {
		t.Error("the head does not say who it is")
	}
	s.send(c, &wire.Query{Ref: job.NewToken(), Of: "jobs", Args: []string{"ns/b"}})
	if text, err := io.ReadAll(c.RecvTransfer(expect[*wire.Send](t, c))); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := far.Write([]byte("this is no message\n")); err != nil { // which ends it, so nothing waits until the tool is idle for too long
		t.Fatal(err)
	}
	refused(t, c, 65, "it is not JSON")
	if m, err := c.Recv(); err != io.EOF {
		t.Errorf("after it comes %v, %v", m, err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

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

// X96: what comes over a stream that was passed on cannot pass it on, or attach it.
func TestX96PassedAgain(t *testing.T) {
	s := newSite(t)
	for _, m := range []wire.Message{&wire.Pass{Node: "ws1"}, &wire.Attach{Node: "ws1"}} {
		c, over := s.passed(&wire.Pass{})
		s.send(c, m)
		refused(t, c, 65, "hello does not come first")
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// X96: whose stream is passed on is no node on the word of another user than
// dsched's own.
func TestX96PassedNode(t *testing.T) {
	s := newSite(t)
	s.stop()
	s.proven = func(net.Conn) (dial.Peer, error) { return dial.Peer{UID: 61000, User: "ana", Proven: true}, nil }
	s.start()
	c, _ := s.passed(&wire.Pass{Node: "ws1"})
	refused(t, c, 77, "authorized_keys")
}

// T82: descriptors without end, beside words or instead of them, cost the head
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
	for _, first := range []string{"{\"m\":\"pass\"}\n", "{\"m\":\"hello\",\"proto\":[1,1],\"role\":\"tool\"}\n"} {
		c := s.raw(s.dir)
		if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte(first), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		w := wire.New(c)
		if first[6] == 'p' {
			refused(t, w, 64, "descriptors came")
			c.Close()
			continue
		}
		expect[*wire.Hello](t, w)
		for n := range uint64(20) {
			if _, _, err := c.(*net.UnixConn).WriteMsgUnix(lines(t, &wire.Ping{N: n}), unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			expect[*wire.Pong](t, w)
		}
		if n := s.descriptors(); n > before+20 { // of 2,100; some files are open for a moment
			t.Errorf("%d descriptors are open, and there were %d", n, before)
		}
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
