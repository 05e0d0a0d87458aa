package main

import (
	"errors"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// maxTail is how many frames of a log may wait for one reader; one that is
// slower than that is cut off.
const maxTail = 256

// tail asks the node for what an attempt prints. The frames come on the
// channel, which is closed at their end; stop ends them early.
func (s *session) tail(t job.Token, build bool, from int64, follow bool) (frames <-chan []byte, stop func()) {
	ch := make(chan []byte, maxTail)
	s.mu.Lock()
	select {
	case <-s.gone:
		s.mu.Unlock()
		close(ch)
		return ch, func() {}
	default:
	}
	s.lastX++
	x := s.lastX
	s.tails[x] = ch
	s.mu.Unlock()
	s.tell(&wire.Tail{X: x, Attempt: t, Build: build, From: from, Follow: follow})
	return ch, func() {
		if s.endTail(x) {
			s.tell(&wire.Untail{X: x})
		}
	}
}

func (s *session) endTail(x uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, ok := s.tails[x]
	if ok {
		delete(s.tails, x)
		close(ch)
	}
	return ok
}

// takeLog takes the messages of logs on the control stream, and says whether m
// was one.
func (s *session) takeLog(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Send:
		return true
	case *wire.Data:
		s.mu.Lock()
		ch, ok := s.tails[m.X]
		slow := false
		if ok {
			select {
			case ch <- append([]byte(nil), m.Payload...):
			default:
				slow = true
			}
		}
		s.mu.Unlock()
		if slow && s.endTail(m.X) {
			s.tell(&wire.Untail{X: m.X})
		}
		return true
	case *wire.End:
		s.endTail(m.X)
		return true
	}
	return false
}

// buildLog brings home what the build of an attempt's batch printed, once the
// build is over. It is called with every news of an attempt.
func (h *head) buildLog(s *session, t job.Token, building, failed bool) {
	was := s.building[t]
	if building {
		s.building[t] = true
		return
	}
	delete(s.building, t)
	a, known := h.machine.Attempt(t)
	b := h.batches[a.Ref.Batch]
	if !was && !failed || !known || b == nil {
		return
	}
	f, err := h.store.BuildLog(b.Batch, string(s.name))
	if err != nil {
		s.log.Warn("what a build printed cannot be kept", "batch", string(b.ID), "why", err)
		return
	}
	frames, stop := s.tail(t, true, 0, false)
	s.hands.Go(func() {
		defer stop()
		for p := range frames {
			if _, err = f.Write(p); err != nil {
				break
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			s.log.Warn("what a build printed cannot be kept", "batch", string(b.ID), "why", err)
		}
	})
}
