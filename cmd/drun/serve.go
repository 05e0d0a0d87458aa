package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// A session is the node's control stream.
type session struct {
	id   uint64
	conn *wire.Conn

	mu    sync.Mutex // guards the rest
	ready sync.Cond
	list  []wire.Message
	gone  bool
}

func (s *session) put(m wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, m)
	s.ready.Signal()
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.ready.Signal()
}

// write sends what waits, until the session is over.
func (s *session) write() {
	for {
		s.mu.Lock()
		for len(s.list) == 0 && !s.gone {
			s.ready.Wait()
		}
		list := s.list
		s.list = nil
		s.mu.Unlock()
		if len(list) == 0 || s.conn.Send(list...) != nil {
			return
		}
	}
}

// dial is a stream from the node to this head: no byte of it leaves the process.
func (h *head) dial(context.Context, string) (net.Conn, error) {
	mine, its := net.Pipe()
	h.hands.Go(func() {
		c := wire.New(mine)
		defer c.Close()
		if err := h.greet(c); err != nil && h.verbose && !errors.Is(err, io.EOF) {
			h.c.Verbose("a stream of the node ended: %v", err)
		}
	})
	return its, nil
}

// greet says hello to a stream of the node, and serves it.
func (h *head) greet(c *wire.Conn) error {
	hello, err := wire.Expect[*wire.Hello](c)
	if err != nil {
		return err
	}
	join := hello.Join
	if hello.Role == wire.RoleNode {
		join = job.NewToken()
	}
	if err := c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, Join: join, Spool: "none"}); err != nil {
		return err
	}
	switch {
	case hello.Role == wire.RoleNode:
		return h.control(c, hello)
	case hello.State == "up":
		return h.up(c)
	}
	return h.down(c)
}

// control takes what the node says to the machine.
func (h *head) control(c *wire.Conn, hello *wire.Hello) error {
	offer, err := wire.Expect[*wire.Offer](c)
	if err != nil {
		return err
	}
	s := &session{id: 1, conn: c}
	s.ready.L = &s.mu
	h.hands.Go(s.write)
	defer s.close()
	h.do(func() {
		h.session = s
		h.stands(&offer.Offer)
		h.apply(sched.NodeUp{Session: s.id, Node: thisMachine, Boot: hello.Boot, State: hello.State, Offer: offer.Offer.Bounded()})
	})
	for {
		m, err := c.Recv()
		if errors.Is(err, wire.ErrUnknown) {
			continue
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Ping:
			s.put(&wire.Pong{N: m.N})
		case *wire.Data:
			h.logs.take(m)
		case *wire.Send, *wire.End: // around that
		default:
			h.do(func() { h.heard(s, m) })
		}
	}
}

// heard tells the machine what the node said.
func (h *head) heard(s *session, m wire.Message) {
	switch m := m.(type) {
	case *wire.Offer:
		h.stands(&m.Offer)
		h.apply(sched.Offered{Session: s.id, Offer: m.Offer.Bounded()})
	case *wire.ListEnd:
		h.cancelUnfit()
		h.apply(sched.ListEnd{Session: s.id})
	case *wire.Phase:
		if a, known := h.machine.Attempt(m.Attempt); known && !h.quiet {
			h.logs.follow(s, m, h.b.Jobs[a.Ref.Job].Name)
		}
		h.apply(sched.Phase{Session: s.id, Attempt: m.Attempt, Phase: m.Phase})
	case *wire.Ended:
		delete(h.running, m.Attempt)
		h.apply(sched.Ended{Session: s.id, Attempt: m.Attempt, Result: m.Result})
	case *wire.Gone:
		delete(h.running, m.Attempt)
		h.apply(sched.Gone{Session: s.id, Attempt: m.Attempt})
	default:
		h.apply(sched.Heard{Session: s.id})
	}
}

// stands says when this machine is paused, and when it is no more.
func (h *head) stands(o *node.Offer) {
	paused := o.Pause != nil && o.Pause.Give == nil
	if paused != h.paused {
		if h.paused = paused; paused {
			h.c.Talk("this machine is paused, and nothing runs until that ends (dpause)")
		} else {
			h.c.Talk("this machine is paused no more")
		}
	}
}

// up takes results in.
func (h *head) up(c *wire.Conn) error {
	for {
		send, err := wire.Expect[*wire.Send](c)
		if err != nil {
			return err
		}
		m, err := pack.DecodeManifest(c.RecvTransfer(send), pack.DefaultLimits())
		if err != nil {
			return err
		}
		if send, err = wire.Expect[*wire.Send](c); err != nil {
			return err
		}
		in := c.RecvTransfer(send)
		err = h.stage(send.Attempt, in, m)
		if rest := wire.Drain(in); err == nil {
			err = rest
		}
		if errors.Is(err, wire.ErrCut) {
			return err
		}
		h.do(func() {
			a, known := h.machine.Attempt(send.Attempt)
			if known && a.Result != nil {
				h.apply(sched.Staged{Attempt: send.Attempt, Manifest: a.Result.Manifest, Err: err})
			}
			if err != nil {
				h.fail(err)
			}
		})
	}
}

// stage puts a result where it waits for its place.
func (h *head) stage(t job.Token, r io.Reader, m pack.Manifest) error {
	dir := filepath.Join(h.home(), string(t))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tree := pack.NewTree(root, pack.Perm{})
	if err := errors.Join(pack.Receive(r, m, pack.Want{}, tree), tree.Close()); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.homes[t] = m
	return nil
}

// down answers what the node fetches.
func (h *head) down(c *wire.Conn) error {
	for x := uint64(1); ; x++ {
		f, err := wire.Expect[*wire.Fetch](c)
		if err != nil {
			return err
		}
		err = h.answer(c, &wire.Send{X: x, Of: f.Of, Attempt: f.Attempt}, f)
		var refusal *wire.Error
		if errors.As(err, &refusal) {
			err = c.Send(refusal)
		}
		if err != nil {
			return err
		}
	}
}

// answer answers one fetch.
func (h *head) answer(c *wire.Conn, s *wire.Send, f *wire.Fetch) error {
	j := (*job.Job)(nil)
	h.do(func() {
		if a, known := h.machine.Attempt(f.Attempt); known {
			j = &h.b.Jobs[a.Ref.Job]
		}
	})
	switch {
	case j == nil:
	case f.Of == wire.OfSpec:
		return c.SendTransfer(s, func(w io.Writer) error {
			_, err := w.Write(h.spec)
			return err
		})
	case f.Of == wire.OfJob:
		return c.SendTransfer(s, func(w io.Writer) error { return json.NewEncoder(w).Encode(j) })
	case f.Of == wire.OfInputs:
		return h.sendInputs(c, s, f, j)
	}
	return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("drun has no %q for that attempt", f.Of)}
}

// sendInputs sends the inputs of a job that the node asks for.
func (h *head) sendInputs(c *wire.Conn, s *wire.Send, f *wire.Fetch, j *job.Job) error {
	all, sizes := map[string]job.Input{}, map[string]int64{}
	for _, list := range [][]job.Input{h.b.Spec.Inputs, j.Inputs} {
		for _, in := range list {
			all[in.Sum] = in
		}
	}
	if in := h.b.Spec.Image; in != nil {
		all[in.Sum] = *in
	}
	for _, sum := range f.Sums {
		in, ok := all[sum]
		if !ok {
			return &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf("%.70q is no input of that attempt", sum)}
		}
		sizes[sum] = in.Size
	}
	var why error
	err := c.SendTransfer(s, func(w io.Writer) error {
		return pack.Sender(true)(w, pack.Blobs(sizes), pack.Want{From: f.From}, func(_ int, e pack.Entry) (io.ReadCloser, error) {
			in, err := h.openInput(all[e.Sum])
			why = err
			return in, err
		})
	})
	if why != nil {
		h.do(func() { h.fail(why) })
	}
	return err
}
