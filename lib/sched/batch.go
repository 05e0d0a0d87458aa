package sched

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// failAtOnce is how many jobs that cannot be started are ended at one decision,
// so that none takes long.
const failAtOnce = 10_000

func (e AddBatch) apply(m *Machine) {
	if m.batches[e.Batch] != nil {
		return
	}
	e.Jobs, e.Spec = max(0, e.Jobs), cmp.Or(e.Spec, &job.Spec{})
	b := &batch{Batch: &policy.Batch{Num: e.Batch, Early: !m.loaded, Owner: m.ownerOf(e.Owner),
		FailedBuilds: map[*policy.Node]struct{}{}, Suspect: map[*policy.Node]struct{}{}, Pace: map[*policy.Node]time.Duration{}, Refusals: map[*policy.Node]policy.Refusal{}},
		id: e.ID, uid: e.Owner, once: e.Once, closed: e.Closed, open: e.Jobs, tries: make([]uint32, e.Jobs),
		of: map[uint32]*attempt{}, losses: map[uint32]int{}, asked: map[request]struct{}{},
		again: e.Again, name: e.Name}
	if b.name == nil {
		b.name = func(i int) string { return fmt.Sprint("number ", i+1) }
	}
	b.Own = part(e.Own, e.Jobs)
	b.Priority, b.Most, b.often = e.Spec.Priority, e.Spec.MaxRunning, e.Spec.Retries
	b.Add(e.Jobs)
	b.gates = newGates(e.Spec.Canary, e.Spec, e.Needs, b.States)
	b.counts[job.Queued] = e.Jobs
	m.batches[e.Batch] = b
	m.lab.AddBatch(b.Batch)
	m.sortIn(b, e.Spec, 0, e.Asks)
	if !e.Replay {
		m.ready(b)
	}
}

func (e AddJobs) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil || e.Jobs <= 0 {
		return
	}
	if b.Ready {
		m.reopen(b)
	}
	from := len(b.States)
	jobs := from + e.Jobs
	b.Add(e.Jobs)
	b.tries = append(b.tries, make([]uint32, e.Jobs)...)
	b.open += e.Jobs
	b.counts[job.Queued] += e.Jobs
	if b.again != nil || e.Again != nil {
		again := slices.Grow(slices.Clone(b.again), jobs-len(b.again))
		for i := len(again); i < jobs; i++ {
			again = append(again, uint8(min(b.often, job.MaxRetries)))
		}
		copy(again[from:], e.Again)
		b.again = again
	}
	if b.Own != nil || e.Own != nil {
		b.Own = append(append(b.Own, make([]int16, from-len(b.Own))...), part(e.Own, e.Jobs)...)
	}
	for _, q := range b.Queues {
		q.Jobs.Resize(jobs)
	}
	m.regate(b, from, e.Needs)
	m.sortIn(b, cmp.Or(e.Spec, &job.Spec{}), from, e.Asks)
	if b.Ready && b.gates != nil {
		b.gates.startSweeps()
	}
}

// part is what is said of the first of some jobs, to which nothing can be appended in place.
func part(own []int16, jobs int) []int16 {
	n := min(len(own), jobs)
	return own[:n:n]
}

// sortIn puts the jobs of a batch that are new, from one on, into queues, one for each
// class. When there are too many, the last queue is for all the rest, to be failed.
func (m *Machine) sortIn(b *batch, spec *job.Spec, from int, asks []Ask) {
	caps, dflt := wants(spec), AskOf(spec.Resources, nil)
	b.Boxed = spec.Kind == job.Apptainer
	jobs := len(b.States)
	at := map[Ask]*policy.Queue{}
	queueFor := func(ask Ask) *policy.Queue {
		if q := at[ask]; q != nil {
			return q
		}
		c := wishOf(caps, ask).class()
		q := b.queueOf(c)
		if q == nil && len(b.Queues) == MaxClasses {
			b.Mixed = true
			q = b.Queues[MaxClasses-1]
		}
		if q == nil {
			q = &policy.Queue{Batch: b.Batch, Class: m.lab.ClassFor(c), Index: len(b.Queues), Jobs: policy.NewLine(b.Batch, jobs), Says: &policy.Declared{}}
			b.Queues = append(b.Queues, q)
		}
		at[ask] = q
		return q
	}
	q := queueFor(dflt)
	if asks != nil || len(b.Queues) > 1 {
		b.class = append(b.class, make([]uint16, jobs-len(b.class))...)
	}
	for i := from; i < jobs; i++ {
		if n := i - from; n < len(asks) {
			q = queueFor(asks[n])
			q.Says.Ask(asks[n].Time, asks[n].Disk)
		} else if n == len(asks) {
			q = queueFor(dflt)
			q.Says.Ask(dflt.Time, dflt.Disk)
		}
		if b.class != nil {
			b.class[i] = uint16(q.Index)
		}
		if b.free(uint32(i)) {
			q.Jobs.Add(uint32(i))
		} else {
			b.gates.shut.Add(uint32(i))
		}
	}
	if len(b.Queues) < 2 {
		b.class = nil
	}
}

// queueOf is the queue of the batch for jobs that ask for what a class does, or nil.
func (b *batch) queueOf(c *policy.Class) *policy.Queue {
	for _, q := range b.Queues {
		if q.Class.Name == c.Name {
			return q
		}
	}
	return nil
}

func (e Ready) apply(m *Machine) {
	if b := m.batches[e.Batch]; b != nil {
		m.ready(b)
	}
}

func (m *Machine) ready(b *batch) {
	if b.Ready {
		return
	}
	b.Ready = true
	for _, i := range slices.Sorted(maps.Keys(b.frozen)) {
		m.holdFrozen(Ref{b.Num, i}) // which a crash has cut off
	}
	if b.gates != nil {
		b.gates.startSweeps()
	}
	if b.closed {
		m.letGoOf(b)
	}
	for _, p := range m.abroad {
		if p.Session == 0 {
			m.letGoAll(p)
		}
	}
	for p := range m.everyone() {
		if p.Session != 0 && (p.hasOf(b) || p.hosts(b)) { // it must send its list again, with these
			m.do(Refuse{Session: p.Session, Why: "a batch of which it may have attempts was read in"})
			m.down(p)
		}
	}
}

func (p *peer) hasOf(b *batch) bool {
	for a := p.first; a != nil; a = a.after {
		if a.ref.Batch == b.Num {
			return true
		}
	}
	return false
}

// letGoOf forgets the settled attempts of a batch on all nodes.
func (m *Machine) letGoOf(b *batch) {
	for p := range m.everyone() {
		for k, note := range p.gone {
			if note.ref.Batch == b.Num {
				delete(p.gone, k)
			}
		}
	}
	b.unacked = 0
}

func (e Loaded) apply(m *Machine) {
	if m.loaded {
		return
	}
	m.loaded, m.lab.Loaded = true, m.lab.Now
	for b := range m.every() {
		m.ready(b)
	}
	for p := range m.everyone() {
		p.Heard = m.lab.Now
		m.markAll(p)
	}
}

// every is all batches, in the order in which they became known.
func (m *Machine) every() iter.Seq[*batch] {
	return func(yield func(*batch) bool) {
		for _, b := range m.lab.Batches {
			if !yield(m.batches[b.Num]) {
				return
			}
		}
	}
}

func (e BatchGone) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil {
		return
	}
	for _, a := range b.attempts(func(*attempt) bool { return true }) {
		m.drop(a)
	}
	m.letGoOf(b)
	delete(m.refusing, b)
	delete(m.batches, e.Batch)
	m.lab.DropBatch(b.Batch)
}

// endUntried ends jobs that can or shall not be started any more, failAtOnce at most.
func (m *Machine) endUntried() {
	for left, ended := failAtOnce, 1; left > 0 && ended > 0; left -= ended {
		ended = 0
		for b := range m.every() {
			if !b.Ready {
				continue
			}
			ended += m.endSome(b, left-ended)
			for q := range b.All() {
				ended += m.failSome(q, left-ended)
			}
		}
	}
}

// failSome fails the jobs of a queue if they are doomed, so many at most, and says how
// many.
func (m *Machine) failSome(q *policy.Queue, most int) (n int) {
	if q.Jobs.N == 0 {
		return 0
	}
	doomed, _ := m.lab.Doomed(q)
	if !doomed {
		return 0
	}
	for why := m.tell.Doomed(q); q.Jobs.N > 0 && n < most; n++ {
		m.log(Ref{q.Batch.Num, q.Jobs.First()}, job.Record{Kind: job.KindFailed, Outcome: job.Outcome{Reason: why}})
	}
	return n
}

// close says Closed of the batches of which nothing is left to do anywhere.
func (m *Machine) close() {
	for b := range m.every() {
		if b.Ready && !b.closed && b.open == 0 && len(b.of) == 0 && b.unacked == 0 {
			b.closed = true
			m.do(Closed{b.Num})
		}
	}
}

func (e Cancel) apply(m *Machine) {
	b, ok := m.wanted(e.Ref, e.Request)
	if !ok || b.States[e.Ref.Job].Over() {
		return
	}
	m.log(e.Ref, job.Record{Kind: job.KindCancelled, Outcome: job.Outcome{Reason: e.Reason}, By: e.By, Request: e.Request})
}

func (e Unwanted) apply(m *Machine) {
	kept := m.remains(e.Batch)
	for _, a := range m.unwanted(e.Batch) {
		m.abandon(a)
	}
	for _, r := range kept {
		m.release(r)
	}
}

// abandon settles an attempt that has ended, without its result, and lets its node delete that.
func (m *Machine) abandon(a *attempt) {
	r := *a.result
	r.Manifest, r.Entries, r.Files, r.Bytes = "", 0, 0, 0
	a.result = &r
	m.finish(a, "")
	if n := a.peer.gone[a.key]; n != nil {
		n.kept = true
	}
}

// keep tells a node to keep the result of a settled attempt, until the job is done or cancelled,
// or its batch is deleted.
func (m *Machine) keep(r remain, why string) {
	if b := m.batches[r.note.ref.Batch]; !slices.Contains(b.remains[r.note.ref.Job], r) {
		if b.remains == nil {
			b.remains = map[uint32][]remain{}
		}
		b.remains[r.note.ref.Job] = append(b.remains[r.note.ref.Job], r)
	}
	m.do(Hold{r.peer.Session, r.token(), why})
}

// release lets a node delete the result of a settled attempt.
func (m *Machine) release(r remain) {
	r.note.kept = true // it need not be
	m.do(Have{r.peer.Session, r.token()})
}

// releaseKept lets the nodes delete the results of a job that they were told to keep: it is done
// by another attempt, or cancelled. A node that is not connected is told when it comes back.
func (m *Machine) releaseKept(b *batch, i uint32) {
	for _, r := range b.remains[i] {
		if r.peer.gone[r.key] == r.note && r.peer.Session != 0 && r.note.listed == r.peer.Session {
			m.release(r)
		}
	}
	delete(b.remains, i)
	for a := b.of[i]; a != nil; {
		next := a.next
		if a.refused {
			m.abandon(a)
		}
		a = next
	}
}

// A remain is a settled attempt whose node keeps what it left, because the head
// has taken it for lost.
type remain struct {
	peer *peer
	key  key
	note *settledNote
}

// token returns the token of the attempt.
func (r remain) token() job.Token { return job.Token(hex.EncodeToString(r.key[:])) }

// remains is what nodes that are connected so keep of a batch whose jobs are all
// over.
func (m *Machine) remains(batch uint32) (rs []remain) {
	if b := m.batches[batch]; b == nil || b.open > 0 || b.unacked == 0 {
		return nil
	}
	for p := range m.everyone() {
		for k, n := range p.gone {
			if n.ref.Batch == batch && !n.kept && p.Listed && n.listed == p.Session {
				rs = append(rs, remain{p, k, n})
			}
		}
	}
	slices.SortFunc(rs, func(a, b remain) int { return bytes.Compare(a.key[:], b.key[:]) })
	return rs
}

// unwanted is the attempts of a batch whose jobs are all over that have ended on
// nodes that are connected, and of which nothing is on its way.
func (m *Machine) unwanted(batch uint32) []*attempt {
	b := m.batches[batch]
	if b == nil || b.open > 0 {
		return nil
	}
	return b.attempts(func(a *attempt) bool { return a.result != nil && !a.moving && a.peer.Session != 0 })
}

// attempts is some of the live attempts of a batch, in the order in which they were started.
func (b *batch) attempts(ok func(*attempt) bool) (some []*attempt) {
	for _, a := range b.of {
		for ; a != nil; a = a.next {
			if ok(a) {
				some = append(some, a)
			}
		}
	}
	slices.SortFunc(some, func(a, b *attempt) int { return cmp.Compare(a.order, b.order) })
	return some
}

func (e Retry) apply(m *Machine) {
	b, ok := m.wanted(e.Ref, e.Request)
	if !ok {
		return
	}
	if !spoils(b.States[e.Ref.Job]) || b.vain(e.Ref.Job) {
		return
	}
	rec := job.Record{Kind: job.KindRetry, By: e.By, Request: e.Request}
	if e.Anew > 0 {
		if rec.Anew = b.anew; b.anewBy != e.Request {
			rec.Anew = max(rec.Anew+1, e.Anew)
		}
	}
	was := b.anew
	m.log(e.Ref, rec)
	if b.anew > was {
		for _, a := range b.attempts(m.outdated) {
			m.recall(a, whyOutdated)
		}
	}
}

// whyOutdated is why such attempts are asked for.
const whyOutdated = "its batch is built anew"

// outdated says that an attempt has not begun, and was given to its node before its batch was to be
// built anew: it would begin with the earlier build.
func (m *Machine) outdated(a *attempt) bool {
	return a.anew < m.batches[a.ref.Batch].anew && a.unbegun()
}

// wanted says that a request is about a job we have, and new.
func (m *Machine) wanted(ref Ref, id job.Token) (*batch, bool) {
	b := m.batches[ref.Batch]
	if b == nil || int(ref.Job) >= len(b.States) || !b.Ready {
		return nil, false
	}
	return b, !b.took(ref.Job, id)
}

// took says that a request was taken for a job.
func (b *batch) took(i uint32, id job.Token) bool {
	_, one := b.asked[request{i, id}]
	_, all := b.asked[request{AllJobs, id}]
	return id != "" && (one || all)
}
