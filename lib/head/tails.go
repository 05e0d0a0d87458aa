package head

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"distribute/lib/job"
	"distribute/lib/wire"
	"distribute/spool"
)

// maxTail is how many frames of a log may wait for one reader. For one that is
// slower than that the rest is asked for again when it has read these.
const maxTail = 64

// A tailing is one log on its way.
type tailing struct {
	frames chan []byte
	begun  chan struct{} // closed when the node has begun to send it, or it has ended

	// Guarded by the session's mu.
	from    int64 // byte at which the node has begun
	started bool  // it has
	why     error // it ended before what there is did
}

// begin notes where the node has begun. It needs the session's mu.
func (l *tailing) begin(from int64) {
	if !l.started && from >= 0 {
		l.started, l.from = true, from
		close(l.begun)
	}
}

// Why a log ended before what there is did.
var (
	errSlow     = errors.New("the job prints faster than this is read")
	errNotThere = errors.New("the node does not have it any more")
	errAway     = errors.New("the node is not connected any more")
)

// tail asks the node for what an attempt prints. The frames come on a
// channel, which is closed at their end; stop ends them early, and says why they
// had ended before what there is did, if so: errSlow, errNotThere or errAway. It is
// nil if as many logs as most are followed on the node already.
func (s *session) tail(ask wire.Tail, most int) (l *tailing, stop func() (why error)) {
	l = &tailing{frames: make(chan []byte, maxTail), begun: make(chan struct{})}
	s.mu.Lock()
	select {
	case <-s.gone:
		s.mu.Unlock()
		l.end()
		return l, func() error { return errAway }
	default:
	}
	if len(s.tails) >= most {
		s.mu.Unlock()
		return nil, func() error { return nil }
	}
	s.lastX++
	x := s.lastX
	s.tails[x] = l
	s.mu.Unlock()
	ask.X = x
	s.tell(&ask)
	return l, func() error {
		if s.endTail(x, nil) {
			s.tell(&wire.Untail{X: x})
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return l.why
	}
}

// end has nothing more come. It needs the session's mu.
func (l *tailing) end() {
	close(l.frames)
	if !l.started {
		close(l.begun)
	}
}

// start is where the node has begun to send, once begun is closed; it says false
// if it never did.
func (s *session) start(l *tailing) (from int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.from, l.started
}

// endTail ends a log; it says false if it had ended.
func (s *session) endTail(x uint64, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.tails[x]
	if ok {
		l.why = why
		delete(s.tails, x)
		l.end()
	}
	return ok
}

// takeLog takes the messages of logs on the control stream, and says whether m
// was one.
func (s *session) takeLog(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Send:
		s.mu.Lock()
		if l, ok := s.tails[m.X]; ok {
			l.begin(m.From)
		}
		s.mu.Unlock()
		return true
	case *wire.Data:
		s.mu.Lock()
		l, ok := s.tails[m.X]
		slow := false
		if ok {
			l.begin(0) // where it has not said otherwise
			select {
			case l.frames <- append([]byte(nil), m.Payload...):
			default:
				slow = true
			}
		}
		s.mu.Unlock()
		if slow && s.endTail(m.X, errSlow) {
			s.tell(&wire.Untail{X: m.X})
		}
		return true
	case *wire.End:
		var why error
		if m.Error != "" {
			why = errNotThere
		}
		s.endTail(m.X, why)
		return true
	}
	return false
}

// buildLog brings home what the build of an attempt's batch printed, once the
// build is over. It is called with every news of an attempt.
func (h *Head) buildLog(s *session, t job.Token, building, failed bool) {
	was := s.building[t]
	a, known := h.machine.Attempt(t)
	b := h.batches[a.Ref.Batch]
	if known = known && a.Node == s.name; building {
		if known { // else a node could name attempts without end
			s.building[t] = true
		}
		return
	}
	delete(s.building, t)
	if !was && !failed || !known || b == nil {
		return
	}
	log := buildOf{b.ID, string(s.name)}
	if h.transfers.copying[log] != nil { // else a node could have it asked for without end
		return
	}
	copied := make(chan struct{})
	h.transfers.copying[log] = copied
	l, stop := s.tail(wire.Tail{Attempt: t, Build: true}, math.MaxInt)
	s.hands.Go(func() {
		err := h.copyLog(b.Batch, log.node, l.frames)
		if err = cmp.Or(err, stop()); err != nil {
			s.log.Warn("cannot keep the output of a build", "batch", string(b.ID), "why", err)
		}
		close(copied)
		h.do(func() { delete(h.transfers.copying, log) })
	})
}

// A buildOf names a build: of a batch, on a node.
type buildOf struct {
	batch job.BatchID
	node  string
}

// maxBuildLog is how many bytes are kept of what a build printed on one node.
const maxBuildLog = 64 << 20

// copyLog writes what a build printed into the spool. What is there of an
// earlier time stays until something comes.
func (h *Head) copyLog(b *spool.Batch, node string, frames <-chan []byte) (err error) {
	var f *os.File
	room := promise{room: h.transfers.room}
	defer room.end()
	size := 0
	for p := range frames {
		if err := room.set(int64(len(p)), 1); err != nil {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
			return err
		}
		if f == nil {
			if f, err = h.store.BuildLog(b, node); err != nil {
				return err
			}
		}
		rest := maxBuildLog - size
		size += len(p)
		if _, err := f.Write(p[:min(len(p), rest)]); err != nil {
			return errors.Join(err, f.Close())
		}
		if size > maxBuildLog {
			_, err := fmt.Fprintf(f, "\n(it printed more than %d bytes, which is the limit of what is kept)\n", maxBuildLog)
			return errors.Join(err, f.Close())
		}
	}
	if f == nil {
		return nil
	}
	return f.Close()
}

// awaitLog waits until what a build printed is in the spool, if it is on its
// way.
func (h *Head) awaitLog(ctx context.Context, log buildOf) {
	var copied chan struct{}
	h.do(func() { copied = h.transfers.copying[log] })
	if copied == nil {
		return
	}
	select {
	case <-copied:
	case <-ctx.Done():
	case <-h.over.Done():
	}
}
