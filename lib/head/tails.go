package head

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"distribute/lib/job"
	"distribute/lib/wire"
	"distribute/spool"
)

// maxTail is how many frames of a log may wait for one reader. For one that is
// slower than that the rest is asked for again when it has read these.
const maxTail = 64

// A tailing is one log on its way.
type tailing struct {
	uid    int // who reads it; [dschedItself]
	frames chan []byte
	begun  chan struct{} // closed when the node has begun to send it, or it has ended

	// Guarded by the session's mu.
	from    int64  // byte at which the node has begun
	started bool   // it has
	why     error  // it ended before what there is did
	lacks   string // why what the node has lacks its end
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
	errAgain    = errors.New("it was built again meanwhile")
	errYielded  = fmt.Errorf("others follow logs on this node, too, %d are the limit, and you had most", maxTails)
)

// dschedItself reads logs for all.
const dschedItself = -1

// tail asks the node for what an attempt prints. The frames come on a
// channel, which is closed at their end; stop ends them early, and says why they
// had ended before what there is did, if so: errSlow, errNotThere, errAway or errYielded.
// If as many logs as most are followed on the node already, one ends of the user who
// follows most, so that each has a share. It is nil if uid has his.
func (s *session) tail(ask wire.Tail, most, uid int) (l *tailing, stop func() (why error)) {
	l = &tailing{uid: uid, frames: make(chan []byte, maxTail), begun: make(chan struct{})}
	s.mu.Lock()
	select {
	case <-s.gone:
		s.mu.Unlock()
		l.end()
		return l, func() error { return errAway }
	default:
	}
	yields, ok := s.yields(most, uid)
	if !ok {
		s.mu.Unlock()
		return nil, func() error { return nil }
	}
	s.lastX++
	x := s.lastX
	s.tails[x] = l
	ended := s.cutTail(yields, errYielded) // under the same lock: two that come at once end two
	s.mu.Unlock()
	if ended {
		s.tell(&wire.Untail{X: yields})
	}
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

// yields is the log that ends so that uid may follow another one, the newest of the user
// who follows most; 0 if there is room. It is not ok if nobody has two more than uid. It
// needs the session's mu.
func (s *session) yields(most, uid int) (x uint64, ok bool) {
	if len(s.tails) < most {
		return 0, true
	}
	of := map[int]int{}
	for _, l := range s.tails {
		if l.uid != dschedItself {
			of[l.uid]++
		}
	}
	for i, l := range s.tails {
		if n := of[l.uid]; n > of[uid]+1 && (x == 0 || n > of[s.tails[x].uid] || n == of[s.tails[x].uid] && i > x) {
			x = i
		}
	}
	return x, x > 0
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

// cut returns why what a node has sent of a log to its end lacks the end, or "".
func (s *session) cut(l *tailing) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.lacks
}

// endTail ends a log; it says false if it had ended.
func (s *session) endTail(x uint64, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cutTail(x, why)
}

// cutTail is endTail for who has the session's mu.
func (s *session) cutTail(x uint64, why error) bool {
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
		s.mu.Lock()
		if l, ok := s.tails[m.X]; ok {
			l.lacks = job.WhyCut(m.Cut, math.MaxInt64)
		}
		s.mu.Unlock()
		s.endTail(m.X, why)
		return true
	}
	return false
}

// buildNews brings home what the build of an attempt's batch printed, once the build is over.
// It is called with all news of an attempt, before the machine has them; listed are those of
// a node that has just connected. What a node could not send, since it was not connected any
// more, it is asked for when it is.
func (h *Head) buildNews(s *session, t job.Token, phase job.Phase, listed, failed bool) {
	a, known := h.machine.Attempt(t)
	b := h.batches[a.Ref.Batch]
	if !known || a.Node != s.name || b == nil {
		return
	}
	log := buildOf{b.ID, string(s.name)}
	waited := a.Phase == job.PhaseWaiting || a.Phase == job.PhaseSending
	built := a.Phase == job.PhaseBuilding && phase != job.PhaseBuilding || failed
	builds := b.Head.Spec.Build != nil || b.Head.Spec.Image != nil
	if built || phase == job.PhaseBuilding || waited && listed && builds { // it may have been built while the node was away
		b.logged(log.node, logStale)
	}
	copying := h.transfers.copying[log]
	if copying != nil && phase == job.PhaseBuilding {
		copying.again = true
	}
	unbuilt := []job.Phase{job.PhaseWaiting, job.PhaseSending, job.PhaseBuilding}
	if !built && (slices.Contains(unbuilt, phase) || waited && !listed) {
		return
	}
	if b.logs[log.node] != logStale && !builds {
		return
	}
	if copying != nil { // else a node could have it asked for without end
		copying.missed = func() { h.buildNews(s, t, phase, listed, failed) }
		return
	}
	switch b.logs[log.node] {
	case logHere:
		return
	case logUnknown:
		if h.hasBuildLog(log) {
			b.logged(log.node, logHere)
			return
		}
	}
	copying = &logCopy{done: make(chan struct{})}
	h.transfers.copying[log] = copying
	b.logged(log.node, logComing)
	r := s.newTailReader(wire.Tail{Attempt: t, Build: true})
	r.other = func() error {
		other := false
		h.do(func() { other = copying.again })
		if other {
			return errAgain
		}
		return nil
	}
	s.hands.Go(func() {
		err := h.copyLog(b.Batch, log.node, r)
		r.stop()
		_, begun := s.start(r.log)
		if err != nil && (begun || err != errNotThere) {
			s.log.Warn("cannot keep the output of a build", "batch", string(b.ID), "why", err)
		}
		close(copying.done)
		h.do(func() {
			delete(h.transfers.copying, log)
			switch {
			case errors.Is(err, errAway):
				b.logged(log.node, logStale)
				if now := h.nodes.sessions[h.nodes.byName[s.name]]; now != nil && now != s {
					h.buildNews(now, t, phase, true, failed)
				}
			case copying.again: // what has come, in whole or in part, is of an earlier build
				b.logged(log.node, logStale)
				if copying.missed != nil {
					copying.missed()
				}
			case errors.Is(err, errNotThere) && begun: // the node has it, and could not send it now
				b.logged(log.node, logStale)
			case b.logs[log.node] != logComing: // news of the same build came meanwhile
			default:
				b.logged(log.node, logHere)
			}
		})
	})
}

// hasBuildLog reports whether the spool has all that a build printed, as far as the file says.
func (h *Head) hasBuildLog(log buildOf) bool {
	f, err := h.spool.OpenBuildLog(log.batch, log.node)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	end := make([]byte, min(info.Size(), 4096))
	_, err = f.ReadAt(end, info.Size()-int64(len(end)))
	return err == nil && !spool.IsCutBuildLog(end)
}

// A tailReader reads what a node sends of an attempt's output. When it has come faster than it
// was read the rest is asked for again.
type tailReader struct {
	s    *session
	ask  wire.Tail // for what follows
	log  *tailing
	stop func() (why error)
	rest []byte // of a frame

	other func() error // why what follows may be of another output; nil: it never is
}

// A logCopy copies what a build printed into the spool. Its fields are of the state's goroutine.
type logCopy struct {
	done   chan struct{} // closed when the copy has ended
	again  bool          // another build of the batch has begun on the node
	missed func()        // takes the last news that came meanwhile
}

func (s *session) newTailReader(ask wire.Tail) *tailReader {
	r := &tailReader{s: s, ask: ask}
	r.log, r.stop = s.tail(ask, math.MaxInt, dschedItself)
	return r
}

// Read reads the next bytes; its error may be errNotThere, errAway or errAgain.
func (r *tailReader) Read(p []byte) (n int, err error) {
	for len(r.rest) == 0 {
		var more bool
		if r.rest, more = <-r.log.frames; more {
			continue
		}
		why := r.stop()
		if (why == nil || why == errSlow) && r.other != nil {
			why = cmp.Or(r.other(), why)
		}
		if _, begun := r.s.start(r.log); why == nil && !begun { // there is no output
			why = errNotThere
		}
		if why != errSlow {
			return 0, cmp.Or(why, io.EOF)
		}
		r.log, r.stop = r.s.tail(r.ask, math.MaxInt, dschedItself)
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	r.ask.From += int64(n)
	return n, nil
}

// A logState says where what the last build of a batch on a node printed is.
type logState int8

const (
	logUnknown logState = iota // dsched has not looked since it began
	logStale                   // what is in the spool is not, or not all, of the last build
	logComing                  // on its way into the spool
	logHere                    // in the spool, or nowhere
)

// A buildOf names a build: of a batch, on a node.
type buildOf struct {
	batch job.BatchID
	node  string
}

// maxBuildLog is how many bytes are kept of what a build printed on one node.
const maxBuildLog = 64 << 20

// copyLog writes what a build printed into the spool, also if that is nothing. What is there of
// an earlier build stays until something comes, or all. If only a part comes the file says so in
// its end.
func (h *Head) copyLog(b *spool.Batch, node string, r io.Reader) (err error) {
	part := make([]byte, wire.MaxFrame)
	n, err := r.Read(part)
	if n == 0 && err != io.EOF {
		return err
	}
	room := promise{room: h.transfers.room}
	defer room.end()
	f, whole, err := h.store.BuildLog(b, node)
	if err != nil {
		return err
	}
	size := 0
	for ; err == nil && size <= maxBuildLog; n, err = r.Read(part) {
		if err = room.set(int64(n), 1); err != nil {
			break
		}
		_, err = f.Write(part[:min(n, maxBuildLog-size)])
		if size += n; err != nil {
			break
		}
	}
	switch {
	case err == io.EOF:
		err = nil
	case err != nil:
		spool.CutBuildLog(f, err)
	case size > maxBuildLog:
		_, err = fmt.Fprintf(f, "\n(it printed more than %d bytes, which is the limit of what is kept)\n", maxBuildLog)
	}
	return errors.Join(err, f.Close(), whole())
}

// awaitLog waits until what a build printed is in the spool, if it is on its
// way.
func (h *Head) awaitLog(ctx context.Context, log buildOf) {
	var copying *logCopy
	h.do(func() { copying = h.transfers.copying[log] })
	if copying == nil {
		return
	}
	select {
	case <-copying.done:
	case <-ctx.Done():
	case <-h.over.Done():
	}
}
