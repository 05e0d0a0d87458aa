package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"distribute/lib/desk"
	"distribute/lib/dial"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// A session is one time that the head is there.
type session struct {
	n      *Settings
	of     holder
	c      *wire.Conn // control
	join   job.Token  // by which data streams join it
	watch  *watch
	out    *outbox // to be sent
	in     *outbox // received, to be obeyed
	grants *outbox // results to be sent up
	x      uint64  // of the up stream

	mu        sync.Mutex // guards tails
	tails     map[uint64]context.CancelFunc
	following sync.WaitGroup
}

// write sends what waits, and pings.
func (s *session) write(ctx context.Context) error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		select {
		case <-s.out.news:
			if err := s.c.Send(s.out.take()...); err != nil {
				return err
			}
		case <-tick.C:
			if err := s.c.Send(&wire.Ping{N: n}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// MaxPiled is how many messages may wait to be obeyed or sent. A head that lets
// more pile up loses its session.
const MaxPiled = 1 << 17

var errPiled = fmt.Errorf("%d messages wait, which is the limit: the head says more than is obeyed", MaxPiled)

// read takes the head's messages in.
func (s *session) read(ctx context.Context) error {
	for {
		s.c.ReadWithin(silentAfter)
		m, err := s.c.Recv()
		if err == nil {
			err = s.watch.slept()
		}
		switch {
		case errors.Is(err, wire.ErrUnknown):
			s.out.put(&wire.Error{Status: 64, Text: err.Error()})
			continue
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the head closed the session: %w", err)
		case err != nil:
			return err
		}
		if s.in.len()+s.out.len()+s.grants.len() > MaxPiled {
			return errPiled
		}
		s.n.Log.Debug("received", "message", fmt.Sprintf("%T", m))
		if err := durable.Step("node.session"); err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.Ping:
			s.out.put(&wire.Pong{N: m.N})
		case *wire.Grant:
			s.grants.put(m)
		default:
			if !s.of.now(m) {
				s.in.put(m)
			}
		}
	}
}

// obey does what the head says.
func (s *session) obey(ctx context.Context) error {
	for {
		select {
		case <-s.in.news:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.of.obey(ctx, s, s.in.take())
	}
}

// now takes a message that need not wait for those before it to be obeyed.
func (l *link) now(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Pong:
	case *wire.Error:
		l.n.Log.Error("error message from the head", "text", m.Text)
	default:
		return false
	}
	return true
}

// obey does what the head says, in its order. Starts that have come together
// are noted together.
func (l *link) obey(ctx context.Context, s *session, ms []wire.Message) {
	var starts []*wire.Start
	for _, m := range ms {
		if st, ok := m.(*wire.Start); ok {
			starts = append(starts, st)
			continue
		}
		l.n.startAll(starts)
		starts = nil
		switch m := m.(type) {
		case *wire.Tail:
			s.tail(ctx, l.n, m)
		case *wire.Untail:
			s.untail(m.X)
		default:
			l.n.do(func() { l.n.told(m) })
		}
	}
	l.n.startAll(starts)
}

// startAll notes attempts that the head gives and begins with them.
func (n *daemon) startAll(starts []*wire.Start) {
	if len(starts) == 0 {
		return
	}
	notes := make([]desk.Note, len(starts))
	for i, s := range starts {
		n.noted++
		notes[i] = desk.Note{Order: n.noted, Token: s.Attempt, Job: s.Job, Try: s.Try, CPUs: s.CPUs, GPUs: s.GPUs, Also: s.Also, User: s.User, Spec: s.Spec, Work: s.Work, Time: s.Time, Never: s.Never, Saved: s.Saved, Anew: s.Anew}
	}
	if notes = n.keepOff(notes); len(notes) == 0 {
		return
	}
	as, errs := n.beginAll(notes)
	n.do(func() {
		for i, err := range errs {
			switch known := n.attempts[notes[i].Token]; {
			case known != nil && known.result != nil:
				n.link.tell(&wire.Ended{Attempt: known.Token, Result: *known.result})
			case known != nil:
				n.link.tell(&wire.Phase{Attempt: known.Token, Phase: known.phase, Ran: known.ranFor(n.Uptime())})
			case err == nil && n.letGo.has(as[i].Token):
				n.Log.Debug("a start came again after its attempt was let go", "attempt", as[i].Token)
				if err := n.desk.Discard(as[i]); err != nil {
					n.Log.Error("cannot remove the files of an attempt", "attempt", as[i].Token, "why", err)
				}
			case err == nil:
				n.Log.Debug("attempt given", "job", as[i].Job, "attempt", as[i].Token)
				n.begin(n.add(as[i]))
			default:
				n.Log.Error("cannot write the note of an attempt; it is given back", "attempt", fmt.Sprintf("%.40q", string(notes[i].Token)), "why", err)
				fate := job.FateUnstarted
				if durable.NoRoom(err) {
					fate = job.FateNoRoom
				}
				n.link.tell(&wire.Ended{Attempt: notes[i].Token, Result: job.Result{Fate: fate,
					Outcome: job.Outcome{Reason: "the node cannot keep a note of it: " + reason(err)}}})
			}
		}
	})
}

// beginAll notes attempts. Where the disk is full, it removes what is kept for later and
// notes those again that had no room.
func (n *daemon) beginAll(notes []desk.Note) ([]*desk.Attempt, []error) {
	as, errs := n.desk.Begin(notes)
	var of []int
	var again []desk.Note
	for i, err := range errs {
		if durable.NoRoom(err) {
			of, again = append(of, i), append(again, notes[i])
		}
	}
	ctx, cancel := n.untilOver()
	defer cancel()
	if len(again) == 0 || !n.shrink(ctx, LeastRoom) {
		return as, errs
	}
	more, how := n.desk.Begin(again)
	for k, i := range of {
		as[i], errs[i] = more[k], how[k]
	}
	return as, errs
}

// reason is an error without the paths of this machine.
func reason(err error) string {
	for p := (*fs.PathError)(nil); errors.As(err, &p); {
		err = p.Err
	}
	return err.Error()
}

// told does what one message of the head says.
func (n *daemon) told(m wire.Message) {
	switch m := m.(type) {
	case *wire.Stop:
		n.stop(m)
	case *wire.Keep:
		if a := n.attempts[m.Attempt]; a != nil {
			a.unknown = false
			n.stand(a, m.Still)
			n.lengthen(a, m.Time)
		}
	case *wire.Have:
		n.have(m.Attempt)
	case *wire.Forget:
		if m.Build != "" {
			n.forgetBuild(m.Build)
			return
		}
		n.forget(m.Attempt)
	case *wire.Resume:
		n.endPauses(m.By)
	case *wire.Hold:
		if a := n.attempts[m.Attempt]; a != nil {
			n.Log.Error("attempt unknown to the head: kept until the head lets it go, at the latest when drm deletes its batch, or its directory is deleted while dnoded is stopped",
				"job", a.Job, "attempt", a.Token, "dir", a.Dir)
			a.unknown = true
			n.stand(a, false) // nobody is left who would let it go on
		}
	default:
		n.Log.Warn("unknown message from the head", "message", fmt.Sprintf("%T", m))
	}
}

// stop ends an attempt, or takes it back if nothing of it has started.
func (n *daemon) stop(m *wire.Stop) {
	a := n.attempts[m.Attempt]
	switch {
	case a == nil:
		return
	case a.result != nil:
		n.link.tell(&wire.Ended{Attempt: a.Token, Result: *a.result})
		return
	case m.Unstarted && (a.began() || a.phase == job.PhaseBuilding): // the head was told that it is at work
		return
	}
	n.endAttempt(a, endStopped, clean(m.Why), errStopped)
}

// clean is a peer's text, fit to be kept and shown.
func clean(s string) string {
	b := []rune(s)
	for i, r := range b {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			b[i] = ' '
		}
	}
	return string(b[:min(len(b), 300)])
}

// have deletes an attempt whose result is safe on the head.
func (n *daemon) have(t job.Token) {
	a := n.attempts[t]
	switch {
	case a == nil:
		n.isGone(t)
	case a.result != nil && n.Keep:
		n.link.tell(&wire.Gone{Attempt: t})
	case a.result != nil:
		n.remove(a)
	}
}

// isGone says that an attempt is not here, unless that is said soon.
func (n *daemon) isGone(t job.Token) {
	if i := slices.Index(n.unreadable, t); i >= 0 {
		n.unreadable = slices.Delete(n.unreadable, i, i+1)
		n.setAside(t)
	}
	if !n.leaving.on[t] {
		n.link.tell(&wire.Gone{Attempt: t})
	}
}

// setAside moves the directory of an attempt with a damaged note away, of which the head has
// heard, so that the next daemon does not tell of it again. It stays on the disk, as there may
// be results in it.
func (n *daemon) setAside(t job.Token) {
	n.work.Go(func() {
		path, err := n.desk.SetUnreadableAside(t)
		switch {
		case err == nil:
			n.Log.Warn("damaged attempt moved; delete it if nothing in it is needed", "attempt", t, "to", filepath.Join(n.desk.Dir(), path))
		case !errors.Is(err, fs.ErrNotExist): // else it was removed
			n.Log.Error("cannot move a damaged attempt", "attempt", t, "why", err)
		}
	})
}

// forget deletes an attempt that never started. One that has says how it ended
// in its time.
func (n *daemon) forget(t job.Token) {
	a := n.attempts[t]
	switch {
	case a == nil:
		n.isGone(t)
	case a.result != nil && !a.result.Fate.Unstarted(), a.began():
	case a.result != nil:
		n.remove(a)
	default:
		n.endAttempt(a, endStopped, "nobody wants it", errStopped)
		n.work.Go(func() {
			select {
			case <-a.done:
				n.do(func() { n.forget(t) })
			case <-n.over:
			}
		})
	}
}

// forgetBuild deletes what is known of a batch, when no attempt here needs it.
func (n *daemon) forgetBuild(batch job.BatchID) {
	for _, b := range n.batches {
		if b.Batch == batch {
			b.over, n.forgotten = true, true
		}
	}
	n.clear()
}

// clear deletes the batches that are over and not needed, and the builds that nobody has any more
// and that are not kept for later.
func (n *daemon) clear() {
	if !n.forgotten {
		return
	}
	n.forgotten = false
	needed := map[*batch]bool{}
	for _, a := range n.attempts {
		needed[n.batchOf(a)] = true
	}
	used, named := n.neededBuilds(), map[string]bool{}
	for name, b := range n.batches {
		if b.over && !needed[b] {
			delete(n.batches, name)
			n.discard(b.Batch, func() (func() error, error) { return n.desk.ForgetBatch(b.Build) })
			continue
		}
		used[b.Dir], named[b.Dir] = true, true
		n.forgotten = n.forgotten || b.over
	}
	for dir, b := range n.builds {
		if used[dir] || b.run != nil {
			n.forgotten = n.forgotten || !named[dir]
			continue
		}
		if n.keepOver(b) {
			continue
		}
		delete(n.builds, dir)
		n.discard(b.Batch, func() (func() error, error) { return n.desk.DiscardBuild(b.Build) })
	}
}

// discard takes what is left of a batch out of sight by what out does, and removes it.
func (n *daemon) discard(batch job.BatchID, out func() (rest func() error, err error)) {
	rest, err := out()
	n.work.Go(func() {
		if err == nil {
			err = rest()
		}
		if err != nil {
			n.Log.Error("cannot remove the files of a build", "batch", batch, "why", err)
		}
	})
}

// up sends results as the head grants them.
func (s *session) up(ctx context.Context, c *wire.Conn) error {
	for {
		select {
		case <-s.grants.news:
		case <-ctx.Done():
			return ctx.Err()
		}
		for _, m := range s.grants.take() {
			if err := s.of.deliver(c, &s.x, m.(*wire.Grant)); err != nil {
				return err
			}
		}
	}
}

func (l *link) deliver(c *wire.Conn, x *uint64, g *wire.Grant) error { return l.n.deliver(c, x, g) }

// deliver sends one result. Its error is that of the stream. Files that are no
// longer what the manifest says make the attempt lost: its node went down before
// they were on the disk, or somebody has been at them. Where the head finds that
// out, since they look as they did when they were hashed, they are hashed when it
// asks again.
func (n *daemon) deliver(c *wire.Conn, x *uint64, g *wire.Grant) error {
	var a *attempt
	var r *job.Result
	n.do(func() {
		if a = n.attempts[g.Attempt]; a != nil {
			r = a.result
		}
	})
	if r == nil || r.Manifest == "" {
		return nil
	}
	m, err := a.Manifest()
	if err == nil {
		err = pack.Want(g.Want).Check(m)
	}
	if err != nil {
		n.Log.Log(context.Background(), n.damageLevel(a.Attempt), "cannot send a result", "job", a.Job, "attempt", a.Token, "why", err)
		return n.spoiled(a, err)
	}
	seen := a.seen
	a.seen = nil // if the head asks again, all is hashed
	var own error
	err = sendResult(c, x, g, m, func(w io.Writer) error {
		own = n.writeTree(w, a, m, pack.Want(g.Want), seen)
		return own
	})
	if !damaged(own) {
		return err
	}
	n.Log.Log(context.Background(), n.damageLevel(a.Attempt), "the files of an attempt changed after their manifest was made", "job", a.Job, "attempt", a.Token, "why", own)
	return n.spoiled(a, own)
}

// sendResult sends what the head wants of a result, whose tree write writes.
func sendResult(c *wire.Conn, x *uint64, g *wire.Grant, m pack.Manifest, write func(io.Writer) error) error {
	if g.Manifest {
		*x++
		if err := c.SendTransfer(&wire.Send{X: *x, Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode); err != nil {
			return err
		}
	}
	*x++
	return c.SendTransfer(&wire.Send{X: *x, Of: wire.OfTree, Attempt: g.Attempt}, write)
}

// writeTree writes what is wanted of a result as a stream of package pack. A file that is
// as it was seen is not hashed again.
func (n *daemon) writeTree(w io.Writer, a *attempt, m pack.Manifest, want pack.Want, seen seen) error {
	root, err := durable.OpenRoot(a.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	as, printed := identity(a.owner()), a.printedFiles()
	return pack.Sender(dial.Local(n.Addr))(w, m, want, func(_ int, e pack.Entry) (io.ReadCloser, error) {
		f, err := openHome(root, printed, e, as)
		if err == nil && seen.same(f) {
			return trusted{f}, nil
		}
		return f, err
	})
}

// smallResult is the message that tells how an attempt ended, with its result if that is
// small. What cannot be read now is left to the head to ask for.
func (n *daemon) smallResult(a *attempt, m pack.Manifest) *wire.Ended {
	if len(m) == 0 || !m.Small() {
		return &wire.Ended{}
	}
	var data bytes.Buffer
	if err := n.writeTree(&data, a, m, pack.Want{}, nil); err != nil {
		n.Log.Debug("a small result is not sent along", "attempt", a.Token, "why", err)
		return &wire.Ended{}
	}
	return &wire.Ended{List: m.List(), Data: data.Bytes()}
}

// damaged says that a result cannot be sent for what it is, now or later.
func damaged(err error) bool {
	var p *fs.PathError
	return !passing(err) && (errors.Is(err, pack.ErrChanged) || errors.As(err, &p))
}

// spoiled makes an attempt lost whose files cannot be sent, and tells the head,
// which has taken in how it ended.
func (n *daemon) spoiled(a *attempt, why error) error {
	if passing(why) {
		return why
	}
	r := &job.Result{Fate: job.FateLost, Outcome: job.Outcome{Reason: "its files on the node are damaged: " + reason(why)}}
	if err := a.SetResult(r, nil, true); err != nil {
		n.Log.Error("cannot write the end of an attempt", "attempt", a.Token, "why", err)
	}
	n.do(func() {
		a.result = r
		n.link.tell(&wire.Ended{Attempt: a.Token, Result: *r})
	})
	return nil
}

// passing says that an error is of this moment and not of the files.
func passing(err error) bool {
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EINTR} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
