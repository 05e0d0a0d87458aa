package head

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/query"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// A snapshot is the state at one moment, for one answer: how much of the log of
// each open batch is durable, and what the logs do not tell.
type snapshot struct {
	at   time.Time
	open map[job.BatchID]int64
	live map[job.ID]liveJob

	onlyOpen bool // batches that are over are not asked for

	aside  []job.BatchID // that are damaged, and were open as far as is known
	unread []job.BatchID // that were to be read, and are damaged
}

// A liveJob is what is known of a running job besides its log.
type liveJob struct {
	token    job.Token
	state    job.State
	phase    job.Phase
	result   *job.Result // when it is over on its node
	why      string      // it is stranded, or paused, or what becomes of it while its node is away
	began    time.Time   // when it would have begun to run, had there been no pauses; zero: its node did not say
	since    time.Time   // when it was paused
	stopping bool        // the job was cancelled, and is not quite over
	half     float64     // seconds that half of its batch took, if that is known
}

// liveJob is what is known of an attempt that is its job's.
func (h *Head) liveJob(a sched.Attempt) liveJob {
	l := liveJob{token: a.Token, state: a.State, phase: a.Phase, stopping: a.Stopping, result: a.Result, why: h.why(a)}
	if a.State == job.Queued {
		l.phase = ""
	}
	if l.since = a.Since; a.Frozen && a.Since.IsZero() {
		l.since = h.when(a.Said)
	}
	if a.Pause != nil {
		l.since = h.when(a.Said - seconds(a.Pause.Since))
	}
	if a.Ran > 0 {
		said := h.when(a.RanAt)
		if l.began = said.Add(-a.Ran); a.Phase == job.PhasePaused {
			l.since = said
		}
	}
	if b := h.batches[a.Ref.Batch]; b != nil {
		l.half = b.pace.half()
	}
	return l
}

// snapshot must be called by the state's goroutine. It has only what may be
// told: what is on its way to a disk that takes long is not waited for (J33).
func (h *Head) snapshot() *snapshot {
	s := h.emptySnapshot()
	s.aside = slices.Clone(h.unread)
	for id, n := range h.byID {
		s.open[id] = h.batches[n].told
	}
	h.machine.Live(func(a sched.Attempt) {
		if b := h.batches[a.Ref.Batch]; b != nil && (a.Current || a.Stopping) {
			if name, err := b.Name(int(a.Ref.Job)); err == nil {
				s.live[b.ID.Job(name)] = h.liveJob(a)
			}
		}
	})
	return s
}

func (h *Head) emptySnapshot() *snapshot {
	return &snapshot{at: h.wall(), live: map[job.ID]liveJob{}, open: map[job.BatchID]int64{}}
}

// snapshotOf is snapshot of one job alone.
func (h *Head) snapshotOf(id job.ID) *snapshot {
	s := h.emptySnapshot()
	n, open := h.byID[id.Batch()]
	if !open {
		return s
	}
	s.open[id.Batch()] = h.batches[n].told
	if a, ok := h.attemptOf(id); ok {
		s.live[id] = h.liveJob(a)
	}
	return s
}

// over puts what is known besides the log into a row. It says that it tells why the job
// waits.
func (s *snapshot) over(r *job.Row) bool {
	was := r.State
	if l, ok := s.live[r.ID]; ok {
		l.over(r, s.at)
	}
	return was == job.Running && r.State == job.Queued
}

// over puts it into a row, if that is of this attempt.
func (l *liveJob) over(r *job.Row, at time.Time) {
	isStopping := l.stopping && r.State == job.Cancelled
	if r.State != job.Running && !isStopping || l.token != r.Token {
		return
	}
	r.State, r.Phase = l.state, l.phase
	switch {
	case isStopping && l.phase == job.PhaseStuck:
		r.State, r.Ended, r.Reason = job.Running, time.Time{}, "cancelled, but its processes do not die of SIGKILL"
	case isStopping:
		r.State, r.Ended, r.Phase = job.Running, time.Time{}, job.PhaseStopping
	case r.State == job.Queued:
		r.Started, r.Reason = time.Time{}, l.why
		return
	}
	began := r.Started
	switch l.phase {
	case job.PhaseWaiting, job.PhaseSending, job.PhaseBuilding:
		began = at // none of its processes has
	default:
		// Else its node did not say, or said more than can be. A cluster may have run it before
		// the head knew of it.
		if l.began.After(began) || r.OnCluster() && !l.began.IsZero() {
			began = l.began
		}
	}
	if l.since.After(began) && l.since.Before(at) {
		at = l.since // the pause that lasts is no part of it
	}
	ran := at.Sub(began).Round(time.Millisecond).Seconds()
	if l.result != nil {
		ran = l.result.Runtime
	}
	if l.state != job.Queued && !r.Started.IsZero() {
		r.Take(ran)
	}
	if l.state == job.Running && l.phase == job.PhaseRunning && !isStopping {
		if left := takes(l.half, float64(r.Limit), ran) - ran; left > 0 {
			r.Ends = at.Add(seconds(left)).UTC().Truncate(time.Second)
		}
	}
	if l.why != "" && !isStopping {
		r.Reason = l.why
	}
}

// query answers a tool's question.
func (t *tool) query(ctx context.Context, m *wire.Query) error {
	switch m.Of {
	case "nodes":
		return t.queryNodes(m)
	case "able":
		return t.queryAble(m)
	case "jobs", "batches", "causes", "attempts":
	default:
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("nothing is known of %.20q", m.Of)}
	}
	q, err := t.parse(m.Args, m.All)
	if err != nil {
		return err
	}
	if m.Follow {
		return t.follow(ctx, m, q)
	}
	var snap *snapshot
	t.do(func() { snap = t.snapshot() })
	tally, causes := query.NewTally(q), query.NewCauses(q)
	s := t.send(wire.OfRows)
	s.Ref = m.Ref
	return t.transfer(s, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		var text []byte
		why := t.stuck
		if m.Of == "causes" {
			why = t.reasons
		}
		read := t.spool.Read
		if m.Of == "attempts" {
			read = t.spool.ReadAttempts
		}
		err := t.rowsWhy(snap, q, read, why, func(r, _ *job.Row, until time.Time) error {
			switch {
			case m.Of == "batches":
				tally.Add(r)
				return nil
			case m.Of == "causes":
				causes.Add(r, until)
				return nil
			}
			if !q.Match(r) {
				return nil
			}
			text = text[:0]
			if m.Of == "jobs" {
				text = append(job.AppendRow(text, r), '\n')
			} else {
				for _, a := range r.Attempts() {
					text = append(job.AppendRow(text, &a), '\n')
				}
			}
			_, err := w.Write(text)
			return err
		})
		if err != nil {
			return err
		}
		for _, b := range tally.Rows(snap.at) {
			err = errors.Join(err, enc.Encode(b))
		}
		for _, c := range causes.Rows() {
			err = errors.Join(err, enc.Encode(c))
		}
		if note := t.unreadNote(snap.unread); err == nil && m.Notes && note != nil {
			err = enc.Encode(note)
		}
		return err
	})
}

// parse reads the operands of a request, and refuses ids of what is not there.
func (t *tool) parse(args []string, all bool) (*query.Query, error) {
	q, err := query.Parse(args, t.wall())
	if err != nil {
		return nil, &wire.Error{Status: cli.Usage, Text: err.Error()}
	}
	if !all {
		q.For(t.peer.UID)
	}
	infos, problems, err := t.store.Batches(q.Names)
	if err != nil {
		return nil, err
	}
	err = q.Resolve(t.peer.UID, t.peer.User, func(yield func(job.BatchID, int) bool) {
		for _, i := range infos {
			if !yield(i.ID, i.Head.UID) {
				return
			}
		}
	})
	for _, p := range problems {
		read := slices.ContainsFunc(infos, func(i spool.Info) bool { return i.ID == p.Batch })
		if p.Batch != "" && !read && (q.About(p.Batch) || errors.Is(err, query.ErrNone) && q.Names(p.Batch)) && t.seesID(p.Batch) {
			return nil, errDamaged(p.Batch)
		}
	}
	switch {
	case errors.Is(err, query.ErrNone):
		return nil, &wire.Error{Status: cli.NoSuch, Text: err.Error()}
	case err != nil:
		return nil, &wire.Error{Status: cli.Input, Text: err.Error()}
	}
	return q, t.checkIDs(q, infos)
}

// unreadNote tells after the rows which of the batches that the peer may see are not among
// them; nil: none.
func (t *tool) unreadNote(ids []job.BatchID) *wire.Note {
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id job.BatchID) bool { return id == "" || !t.seesID(id) })
	if len(ids) == 0 {
		return nil
	}
	more := ""
	if n := len(ids) - maxMissing; n > 0 {
		ids, more = ids[:maxMissing], fmt.Sprintf("\n%d more", n)
	}
	var lines []string
	for _, id := range ids {
		lines = append(lines, errDamaged(id).Error())
	}
	return &wire.Note{Note: strings.Join(lines, "\n") + more}
}

// errDamaged answers who names a batch that cannot be read.
func errDamaged(id job.BatchID) error {
	return &wire.Error{Status: cli.IO, Text: fmt.Sprintf("the files of %q are damaged: dfsck on the head's machine tells what is whole", id)}
}

// maxMissing is how many ids that are not there are told of by name.
const maxMissing = 100

// checkIDs refuses ids of batches and jobs that do not exist. Those that the
// peer may not see do not exist for him.
func (t *tool) checkIDs(q *query.Query, infos []spool.Info) error {
	there := t.visible(q, infos)
	var missing []error
	batches, jobs := q.IDs()
	for _, id := range batches {
		if there[id] {
			continue
		}
		meant := ""
		if missing == nil { // one hint is enough
			meant = t.meantJob(id)
		}
		missing = append(missing, fmt.Errorf("no batch %q%s", id, meant))
	}
	for _, id := range jobs {
		if !there[id.Batch()] {
			missing = append(missing, fmt.Errorf("no job %q: there is no such batch", id))
		}
	}
	jobs = slices.DeleteFunc(jobs, func(id job.ID) bool { return !there[id.Batch()] })
	missing = append(missing, t.missingJobs(jobs)...)
	if missing == nil {
		return nil
	}
	if more := len(missing) - maxMissing; more > 0 {
		missing = append(missing[:maxMissing], fmt.Errorf("and %d others that are not there", more))
	}
	return &wire.Error{Status: cli.NoSuch, Text: errors.Join(missing...).Error()}
}

// meantJob is the end of a message that there is no such batch: the job of the peer whose
// batch and name were written as namespace/batch. It is "" if there is none.
func (t *tool) meantJob(id job.BatchID) string {
	infos, _, err := t.store.Batches(func(b job.BatchID) bool { return b.Name() == id.Namespace() })
	if err != nil {
		return ""
	}
	for _, i := range infos {
		if !t.owns(i.Head.UID) {
			continue
		}
		of := i.ID.Job(id.Name())
		if missing := t.missingOf(i.ID, []job.ID{of}); missing != nil && !missing[of] {
			return fmt.Sprintf(" (did you mean %q?)", of)
		}
	}
	return ""
}

// visible is which of the batches that the query names, or jobs of, are there
// for the peer.
func (t *tool) visible(q *query.Query, infos []spool.Info) map[job.BatchID]bool {
	batches, jobs := q.IDs()
	there := make(map[job.BatchID]bool, len(batches))
	for _, id := range batches {
		there[id] = false
	}
	for _, id := range jobs {
		there[id.Batch()] = false
	}
	for _, i := range infos {
		if _, named := there[i.ID]; named {
			there[i.ID] = t.sees(i.ID, &i.Head)
		}
	}
	return there
}

// missingJobs looks for jobs, batch by batch; ids are sorted.
func (t *tool) missingJobs(ids []job.ID) (missing []error) {
	for len(ids) > 0 {
		b, n := ids[0].Batch(), 1
		for n < len(ids) && ids[n].Batch() == b {
			n++
		}
		for id := range t.missingOf(b, ids[:n]) {
			missing = append(missing, fmt.Errorf("no job %q", id))
		}
		ids = ids[n:]
	}
	return missing
}

// missingOf is which of these jobs a batch does not have. A batch that is not
// there, or is damaged, is told of elsewhere.
func (t *tool) missingOf(b job.BatchID, ids []job.ID) map[job.ID]bool {
	missing := make(map[job.ID]bool, len(ids))
	open := false
	t.do(func() {
		var n uint32
		if n, open = t.byID[b]; !open {
			return
		}
		for _, id := range ids {
			if _, ok, err := t.batches[n].Find(id.Name()); !ok && err == nil {
				missing[id] = true
			}
		}
	})
	if open {
		return missing
	}
	jobs, err := t.spool.Jobs(b)
	if err != nil {
		return nil
	}
	defer jobs.Close()
	for _, id := range ids {
		if _, ok, err := jobs.Find(id.Name()); !ok && err == nil {
			missing[id] = true
		}
	}
	return missing
}

// infos lists the batches there are. What is damaged is said in the log.
func (t *tool) infos(match func(job.BatchID) bool) ([]spool.Info, []*spool.Problem, error) {
	infos, problems, err := t.store.Batches(match)
	for _, p := range problems {
		t.log.Error("cannot read a batch", "problem", p.Error())
	}
	return infos, problems, err
}

// rows calls f for each job of each batch that the query may be about and the
// peer may see, as of the snapshot, with its row, and that as the log alone has it. A
// batch that cannot be read is left out, and said in the log;
// when all others are told, it is an error if it was named.
func (t *tool) rows(snap *snapshot, q *query.Query, f func(r, log *job.Row) error) error {
	return t.rowsWhy(snap, q, t.spool.Read, t.stuck, func(r, log *job.Row, _ time.Time) error { return f(r, log) })
}

// A why tells why jobs of a batch that wait do, by their numbers, and when that may
// change by itself, if that is known; nil if there is nothing to tell.
type why func(job int) (string, time.Time)

// reads is how a batch is read: [spool.Spool.Read] or its ReadAttempts.
type reads func(id job.BatchID, upto int64, f func(*job.Row) error) error

// rowsWhy is rows, with why those jobs wait of which waits tells.
func (t *tool) rowsWhy(snap *snapshot, q *query.Query, read reads, waits func(job.BatchID) why, f func(r, log *job.Row, until time.Time) error) error {
	if snap == nil {
		return &wire.Error{Status: cli.Later, Text: "dsched is ending"}
	}
	infos, problems, err := t.infos(func(id job.BatchID) bool {
		_, open := snap.open[id]
		return q.Reads(id, open) && (open || !snap.onlyOpen)
	})
	if err != nil {
		return err
	}
	for _, p := range problems {
		snap.unread = append(snap.unread, p.Batch)
	}
	for _, id := range snap.aside {
		if _, open := snap.open[id]; !open && q.Reads(id, true) {
			snap.unread = append(snap.unread, id)
		}
	}
	var damaged error
	for _, i := range infos {
		upto, open := snap.open[i.ID]
		if !open {
			upto = -1
		}
		if !q.MayFit(i.ID, &i.Head) || !t.sees(i.ID, &i.Head) {
			continue
		}
		waits, next := waits(i.ID), 0
		each := func(r *job.Row) error {
			number := next
			next++
			if r.UID != i.Head.UID || !r.Submitted.Equal(i.Submitted) {
				return nil // of another batch, perhaps a private one, which has got the name meanwhile
			}
			log := *r
			until := snap.tell(r, number, waits)
			return f(r, &log, until)
		}
		err := t.whenRoom(t.tools.reading, int64(i.Head.Jobs), func() error { return read(i.ID, upto, each) })
		var p *spool.Problem
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was deleted meanwhile
			continue
		case errors.As(err, &p):
			t.log.Error("cannot read a batch", "problem", p.Error())
			snap.unread = append(snap.unread, i.ID)
			if damaged == nil && q.About(i.ID) {
				damaged = errDamaged(i.ID)
			}
			continue
		case err != nil:
			return err
		}
	}
	return damaged
}

// tell puts what is known besides the log into the row of the job with that number, and why it
// waits. It returns when that may change by itself, if that is known.
func (s *snapshot) tell(r *job.Row, number int, waits why) (until time.Time) {
	told := s.over(r)
	if r.State == job.Queued && waits != nil && !told {
		var reason string
		if reason, until = waits(number); reason != "" {
			r.Reason = strings.TrimPrefix(r.After+"; "+reason, "; ")
		}
	}
	return until
}

// maxReading is how many jobs may be in memory at once for what tools ask: of a
// batch that is read, some 200 bytes for each job that has run.
const maxReading = 4_000_000

// read is [spool.Spool.Read] of a batch of so many jobs, when there is memory for it.
func (t *tool) read(id job.BatchID, jobs int, upto int64, f func(*job.Row) error) error {
	return t.whenRoom(t.tools.reading, int64(jobs), func() error { return t.spool.Read(id, upto, f) })
}

// stuck is why jobs of a batch that wait cannot start now.
func (h *Head) stuck(id job.BatchID) why {
	var reason func(int) string
	h.do(func() {
		if n, open := h.byID[id]; open {
			reason = h.machine.Stuck(n)
		}
	})
	if reason == nil {
		return nil
	}
	return func(job int) (string, time.Time) { return reason(job), time.Time{} }
}

// reasons is why jobs of a batch wait, and all that is in their way.
func (h *Head) reasons(id job.BatchID) why {
	var reason func(int) sched.Wait
	var at time.Time
	var now time.Duration
	h.do(func() {
		if n, open := h.byID[id]; open {
			reason, at, now = h.machine.Reasons(n), h.wall(), h.clock.tell()
		}
	})
	if reason == nil {
		return nil
	}
	return func(job int) (string, time.Time) {
		w := reason(job)
		if w.Until == 0 {
			return w.Why, time.Time{}
		}
		return w.Why, at.Add(w.Until - now).Truncate(time.Second)
	}
}

// queryNodes answers a question about nodes.
func (t *tool) queryNodes(m *wire.Query) error {
	which, err := query.ParseNodes(m.Args, t.wall())
	if err != nil {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: err.Error()}
	}
	rows, ok := t.nodeRows()
	if !ok {
		return errEndingNow
	}
	return sendRows(t, m.Ref, slices.DeleteFunc(rows, func(r node.Row) bool { return !which.Match(&r) }))
}
