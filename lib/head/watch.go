package head

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// maxBehind is how many records all followers together may be behind before one is cut off:
// of the user whose followers are furthest behind, the one that is.
const maxBehind = 4 << 20

// A logged is a record, and the batch whose log it is in; or, without one, a job
// that runs in another way than before, which no log tells; or a batch that is new.
// The start of a job that waits on its node has both, and so has what cancels one whose
// processes are there.
type logged struct {
	batch    *spool.Batch
	priority int // of the batch then
	rec      *job.Record
	ref      sched.Ref
	jobs     []string            // that it changes, if it is about the whole batch
	lives    map[string]*liveJob // of the jobs that run, if it sets something for the whole batch
	job      string
	live     *liveJob
	upto     int64 // of a new batch: how long its log was
	aside    bool  // the batch was set aside, since its files are damaged
}

// A watcher is told of every record once it is durable.
type watcher struct {
	records *queue[logged]
	uid     int
}

// lookAt adds to what starts a job that it waits on its node, to what cancels one that its
// processes are there, and to what sets the time of one how it runs, if that is so when it
// is told.
func (h *Head) lookAt(ls []logged) {
	if len(h.tools.watchers) == 0 {
		return
	}
	for i := range ls {
		l := &ls[i]
		var a sched.Attempt
		shown := false
		switch {
		case l.rec == nil:
		case l.rec.Kind == job.KindSet && l.rec.Job == "":
			l.lives = h.livesOf(l.batch.ID)
		case l.rec.Kind == job.KindStart:
			a, shown = h.machine.Attempt(l.rec.Attempt)
			shown = shown && a.Current && a.State == job.Queued
		case l.rec.Kind == job.KindCancelled:
			a, shown = h.machine.Stopping(l.ref)
		case l.rec.Kind == job.KindSet && l.rec.Job != "":
			a, shown = h.machine.Current(l.ref)
		}
		if shown {
			live := h.liveJob(a)
			l.live = &live
		}
	}
}

// livesOf returns how the jobs of a batch run, by their names.
func (h *Head) livesOf(id job.BatchID) map[string]*liveJob {
	lives := map[string]*liveJob{}
	n := h.byID[id]
	h.machine.Live(func(a sched.Attempt) {
		if b := h.batches[n]; b != nil && a.Ref.Batch == n && (a.Current || a.Stopping) {
			if name, err := b.Name(int(a.Ref.Job)); err == nil {
				live := h.liveJob(a)
				lives[name] = &live
			}
		}
	})
	return lives
}

// tellWatchers hands on records that are durable, and whose results are in
// place.
func (h *Head) tellWatchers(ls []logged) {
	for w := range h.tools.watchers {
		if len(ls) > 0 && !w.records.put(ls...) {
			w.records.close()
			delete(h.tools.watchers, w)
		}
	}
	h.cutOff(maxBehind)
}

// cutOff ends followers until the others are no more than so many records behind.
func (h *Head) cutOff(most int) {
	behind, of, all := map[*watcher]int{}, map[int]int{}, 0
	for w := range h.tools.watchers {
		behind[w] = w.records.len()
		of[w.uid] += behind[w]
		all += behind[w]
	}
	for all > most {
		var last *watcher
		for w, n := range behind {
			if last == nil || of[w.uid] > of[last.uid] || w.uid == last.uid && n > behind[last] {
				last = w
			}
		}
		all, of[last.uid] = all-behind[last], of[last.uid]-behind[last]
		delete(behind, last)
		delete(h.tools.watchers, last)
		last.records.close()
	}
}

// follow sends the rows that fit, those that a filter on seq let through in its order, and
// again each that changes; or, until they are over, each once when it is; or those, and those that come, each when it is over.
func (t *tool) follow(ctx context.Context, m *wire.Query, q *query.Query) error {
	ctx, stop := t.whileThere(ctx)
	defer stop()
	w := &watcher{newQueue[logged](maxBehind), t.peer.UID}
	var snap *snapshot
	t.do(func() {
		t.tools.watchers[w] = true
		snap = t.snapshot()
	})
	defer t.do(func() { delete(t.tools.watchers, w) })
	context.AfterFunc(ctx, w.records.close)
	if snap != nil {
		snap.onlyOpen = m.Until == "ends"
	}
	f := follower{q: q, untilOver: m.Until == "over", ends: m.Until == "ends", rows: map[job.ID]*job.Row{},
		sees: func(b *spool.Batch) bool { return t.sees(b.ID, &b.Head) }, read: t.read}
	s := t.send(wire.OfRows)
	s.Ref = m.Ref
	err := t.transfer(s, func(out io.Writer) error {
		f.enc, f.out = json.NewEncoder(out), out.(*wire.Writer)
		if err := f.what(func(row func(r, log *job.Row) error) error { return t.rows(snap, q, row) }); err != nil {
			return err
		}
		return t.unlessGone(ctx, f.run(w))
	})
	return errors.Join(err, errHungUp)
}

// A follower folds records into the rows that it has shown.
type follower struct {
	q         *query.Query
	untilOver bool
	ends      bool                    // only what is over is told, and forgotten then
	rows      map[job.ID]*job.Row     // that may change yet
	told      map[job.ID]string       // how these were shown to run last, if each change is told
	sees      func(*spool.Batch) bool // whether the peer may know of a batch
	read      func(b job.BatchID, jobs int, upto int64, row func(*job.Row) error) error
	enc       *json.Encoder
	out       *wire.Writer
}

// what takes the rows that there are. With a filter on seq those that fit come in the order
// of their records: who has one of them has had all that were before it.
func (f *follower) what(rows func(func(r, log *job.Row) error) error) error {
	if !f.q.Filters("seq") {
		return rows(f.first)
	}
	var fit [][2]job.Row
	err := rows(func(r, log *job.Row) error {
		if f.q.Match(r) {
			fit = append(fit, [2]job.Row{*r, *log})
			return nil
		}
		return f.first(r, log)
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(fit, func(a, b [2]job.Row) int { return cmp.Compare(a[0].Seq, b[0].Seq) })
	for i := range fit {
		if err := f.first(&fit[i][0], &fit[i][1]); err != nil {
			return err
		}
	}
	return nil
}

// first takes a row, and that as the files have it.
func (f *follower) first(r, log *job.Row) error {
	fits := f.q.Match(r)
	if f.untilOver && !fits {
		return nil
	}
	if !r.State.Over() || !f.untilOver && !f.ends {
		keep := *log // into which records are folded
		f.rows[r.ID] = &keep
	}
	if fits && (!f.untilOver || r.State.Over()) && !f.ends {
		return f.tell(r)
	}
	return nil
}

// knows takes in how a job was shown to run last.
func (f *follower) knows(r *job.Row) {
	if f.untilOver || f.ends {
		return
	}
	if f.told == nil {
		f.told = map[job.ID]string{}
	}
	f.told[r.ID] = wayOf(r)
}

// errBehind ends an answer whose reader was too slow.
var errBehind = errors.New("the reader is too far behind")

// run takes records until nothing more can come, or there are none any more.
func (f *follower) run(w *watcher) error {
	for !f.untilOver || len(f.rows) > 0 {
		if err := f.out.Flush(); err != nil {
			return err
		}
		logged := w.records.take()
		if logged == nil {
			return errBehind
		}
		for _, l := range logged {
			take := f.change
			switch {
			case l.aside:
				take = f.setAside
			case l.rec == nil && l.live != nil:
				take = f.changeWay
			case l.rec == nil:
				take = f.newBatch
			case l.rec.Job == "":
				take = f.changeBatch
			}
			if err := take(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// wayOf is how a row is shown to run.
func wayOf(r *job.Row) string {
	if r.Phase == job.PhaseStopping {
		return string(job.PhaseStopping)
	}
	return r.State.String()
}

// tell sends a row.
func (f *follower) tell(r *job.Row) error {
	f.knows(r)
	return f.enc.Encode(r)
}

// changeWay takes that a job runs in another way.
func (f *follower) changeWay(l logged) error {
	r, ok := f.rows[l.batch.ID.Job(l.job)]
	if !ok || l.batch.Submitted.After(r.Submitted) {
		return nil
	}
	row := *r
	l.live.over(&row, time.Now())
	if f.untilOver || f.ends {
		if !row.State.Over() {
			return nil
		}
		delete(f.rows, r.ID)
	}
	if l.rec == nil && wayOf(&row) == f.told[r.ID] {
		return nil
	}
	if !f.untilOver && !f.q.Match(&row) {
		f.knows(&row)
		return nil
	}
	return f.tell(&row)
}

// setAside takes that a batch was set aside, of which nothing more is recorded. It ends the answer
// of a query that is about the batch, or waits for its jobs.
func (f *follower) setAside(l logged) error {
	waits := false
	for id, r := range f.rows { // they stay: the end of a job may have been recorded before, and is told later
		waits = waits || id.Batch() == l.batch.ID && !l.batch.Submitted.After(r.Submitted)
	}
	if f.q.About(l.batch.ID) && f.sees(l.batch) || waits && f.untilOver {
		return errDamaged(l.batch.ID)
	}
	return nil
}

// newBatch takes the jobs of a batch that is new.
func (f *follower) newBatch(l logged) error {
	if f.untilOver || f.ends || !f.q.MayFit(l.batch.ID, &l.batch.Head) || !f.sees(l.batch) {
		return nil
	}
	err := f.read(l.batch.ID, l.batch.Head.Jobs, l.upto, func(r *job.Row) error {
		was, there := f.rows[r.ID]
		if r.UID != l.batch.Head.UID || !r.Submitted.Equal(l.batch.Submitted) || there && !r.Submitted.After(was.Submitted) {
			return nil // another's, which has got the name meanwhile; or the file had it already
		}
		return f.first(r, r)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was deleted meanwhile
	}
	return err
}

// changeBatch takes a record about a whole batch, as if each job that it changes had
// one of its own.
func (f *follower) changeBatch(l logged) error {
	if l.rec.Kind == job.KindSet {
		return f.setBatch(l)
	}
	for _, name := range l.jobs {
		rec := *l.rec
		rec.Job = name
		if err := f.change(logged{batch: l.batch, priority: l.priority, rec: &rec}); err != nil {
			return err
		}
	}
	return nil
}

// setBatch takes that something is set for a whole batch, and tells of each job for which
// that is different then.
func (f *follower) setBatch(l logged) error {
	var set []*job.Row
	for id, r := range f.rows {
		if id.Batch() != l.batch.ID || l.batch.Submitted.After(r.Submitted) || r.Seq >= l.rec.Seq {
			continue
		}
		was := *r
		if err := r.Fold(l.rec); err == nil && (r.Seq != was.Seq || r.Priority != was.Priority) {
			set = append(set, r)
		}
	}
	if f.untilOver || f.ends {
		return nil
	}
	slices.SortFunc(set, func(a, b *job.Row) int { return cmp.Compare(a.ID, b.ID) })
	for _, r := range set {
		row := *r
		if live := l.lives[r.Job]; live != nil {
			live.over(&row, time.Now())
		}
		if !f.q.Match(&row) {
			f.knows(&row)
		} else if err := f.tell(&row); err != nil {
			return err
		}
	}
	return nil
}

// change takes one record.
func (f *follower) change(l logged) error {
	r, ok := f.rows[l.batch.ID.Job(l.rec.Job)]
	added := l.rec.Kind == job.KindAdded
	if !ok || l.batch.Submitted.After(r.Submitted) { // that was of one of its name, which was deleted
		if f.untilOver && !added || !f.q.MayFit(l.batch.ID, &l.batch.Head) || !f.sees(l.batch) {
			return nil
		}
		row := job.NewRow(l.batch.ID, l.rec.Job, &l.batch.Head, l.batch.Submitted)
		row.Priority = l.priority
		if i, ok := l.batch.Index(l.rec.Job); ok {
			if j, err := l.batch.Job(i); err == nil {
				row.Prefer(j.Priority)
				row.Param = j.Param
			}
		}
		row.Seq = l.rec.Seq
		r = &row
		if f.untilOver && !f.q.Match(r) {
			return nil
		}
		f.rows[r.ID] = r
	} else if added {
		return nil // the file had it already
	}
	if added {
		if f.untilOver || !f.q.Match(r) {
			return nil
		}
		return f.tell(r)
	}
	if err := r.Fold(l.rec); err != nil || l.rec.Kind == job.KindLate || l.rec.Kind == job.KindFreeze || l.rec.Kind == job.KindThaw {
		return nil // a record that the file had already, of a batch that came after the snapshot; or changeWay tells of it
	}
	if l.live != nil {
		l.job = l.rec.Job
		return f.changeWay(l)
	}
	switch {
	case (f.untilOver || f.ends) && !r.State.Over():
		return nil
	case f.ends && !f.q.Match(r):
		delete(f.rows, r.ID)
		return nil
	case f.untilOver, f.ends:
		delete(f.rows, r.ID)
	case !f.q.Match(r):
		return nil
	}
	return f.tell(r)
}
