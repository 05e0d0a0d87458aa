package sched

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"distribute/lib/job"
)

// failAtOnce is how many jobs that cannot be started are ended at one event, so
// that no event takes long.
const failAtOnce = 10_000

// settleTime is how long after its start the head waits for nodes before it
// says that a batch could be built by none of them.
const settleTime = time.Minute

func (e AddBatch) apply(m *Machine) {
	if m.batches[e.Batch] != nil {
		return
	}
	e.Jobs = max(0, e.Jobs)
	b := &batch{num: e.Batch, id: e.ID, never: e.Never, closed: e.Closed, early: !m.loaded, open: e.Jobs,
		tries: make([]uint32, e.Jobs),
		of:    map[uint32]*attempt{}, losses: map[uint32]int{}, asked: map[request]struct{}{},
		avoid: map[*peer]struct{}{}, suspect: map[*peer]struct{}{}, pace: map[*peer]time.Duration{},
		again: e.Again, gates: newGates(&e), name: e.Name}
	if b.name == nil {
		b.name = func(i int) string { return fmt.Sprint("number ", i+1) }
	}
	if e.Spec != nil {
		b.priority, b.most, b.often = e.Spec.Priority, e.Spec.MaxRunning, e.Spec.Retries
	}
	b.Add(e.Jobs)
	b.owner = m.ownerOf(e.Owner)
	b.owner.batches++
	b.counts[job.Queued] = e.Jobs
	m.batches[e.Batch] = b
	at, _ := slices.BinarySearchFunc(m.order, b, byAge)
	m.order = slices.Insert(m.order, at, b)
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
	if b.ready {
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
	for _, q := range b.queues {
		q.jobs = q.jobs.sized(jobs)
	}
	m.regate(b, from, e.Needs)
	m.sortIn(b, e.Spec, from, e.Asks)
	if b.ready && b.gates != nil {
		b.gates.look()
	}
}

const tooMixed = "the jobs of its batch ask for too many different amounts of resources or capabilities"

// sortIn puts the jobs of a batch that are new, from one on, into queues, one for each
// class. When there are too many, the last queue is for all the rest, to be failed.
func (m *Machine) sortIn(b *batch, spec *job.Spec, from int, asks []Ask) {
	caps, dflt := wants(spec), Ask{}
	if spec != nil {
		b.boxed = spec.Kind == job.Apptainer
		dflt = AskOf(spec.Resources, nil)
	}
	jobs := len(b.States)
	at := map[Ask]*queue{}
	queueFor := func(ask Ask) *queue {
		if q := at[ask]; q != nil {
			return q
		}
		c := wishOf(caps, ask).class()
		q := b.queueOf(c)
		if q == nil && len(b.queues) == MaxClasses {
			b.mixed = true
			return b.queues[MaxClasses-1]
		}
		if q == nil {
			q = &queue{b: b, c: m.classFor(c), index: len(b.queues), jobs: newSet(jobs), says: &declared{}}
			b.queues = append(b.queues, q)
		}
		at[ask] = q
		return q
	}
	q := queueFor(dflt)
	if asks != nil || len(b.queues) > 1 {
		b.class = append(b.class, make([]uint8, jobs-len(b.class))...)
	}
	for i := from; i < jobs; i++ {
		if n := i - from; n < len(asks) {
			q = queueFor(asks[n])
			q.says.ask(asks[n])
		} else if n == len(asks) {
			q = queueFor(dflt)
			q.says.ask(dflt)
		}
		if b.class != nil {
			b.class[i] = uint8(q.index)
		}
		if b.free(uint32(i)) {
			q.jobs.add(uint32(i))
		} else {
			b.gates.keep(uint32(i))
		}
	}
	if len(b.queues) < 2 {
		b.class = nil
	}
}

// queueOf is the queue of the batch for jobs that ask for what a class does, or nil.
func (b *batch) queueOf(c *class) *queue {
	for _, q := range b.queues {
		if q.c.name == c.name {
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
	if b.ready {
		return
	}
	b.ready = true
	for _, i := range slices.Sorted(maps.Keys(b.frozen)) {
		m.holdFrozen(Ref{b.num, i}) // which a crash has cut off
	}
	if b.gates != nil {
		b.gates.look()
	}
	if b.closed {
		m.letGoOf(b)
	}
	for p := range m.everyone() {
		if p.session != 0 && p.hasOf(b) { // it must send its list again, with these
			m.do(Refuse{Session: p.session, Why: "a batch of which it may have attempts was read in"})
			m.down(p)
		}
	}
}

func (p *peer) hasOf(b *batch) bool {
	for a := p.first; a != nil; a = a.after {
		if a.ref.Batch == b.num {
			return true
		}
	}
	return false
}

// letGoOf forgets the settled attempts of a batch on all nodes.
func (m *Machine) letGoOf(b *batch) {
	for p := range m.everyone() {
		for k, note := range p.gone {
			if note.ref.Batch == b.num {
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
	m.loaded, m.since = true, m.now
	for _, b := range m.order {
		m.ready(b)
	}
	for p := range m.everyone() {
		p.heard = m.now
		m.markAll(p)
	}
}

func byAge(a, b *batch) int { return int(int64(a.num) - int64(b.num)) }

func (e BatchGone) apply(m *Machine) {
	b := m.batches[e.Batch]
	if b == nil {
		return
	}
	for _, first := range b.of {
		for a := first; a != nil; a = a.next {
			m.drop(a)
		}
	}
	m.letGoOf(b)
	for _, q := range b.queues {
		m.dropClass(q.c)
	}
	m.avoiding = slices.DeleteFunc(m.avoiding, func(q *queue) bool { return q.b == b })
	b.owner.batches--
	delete(m.refusing, b)
	delete(m.batches, e.Batch)
	m.order = slices.DeleteFunc(m.order, func(o *batch) bool { return o == b })
}

// unable is what nodes do with the batch on which none of its jobs can run: there is
// nothing to build for a container, so it is what the container comes to.
// on says where.
func (b *batch) unable(on string) string {
	why := ReasonBuild + on
	if b.boxed {
		why = "no container could be started" + on
	}
	if b.said == "" {
		return why
	}
	said := b.said
	if in := strings.TrimSuffix(strings.TrimPrefix(said, "["), "]"); len(in) == len(said)-2 && !strings.ContainsAny(in, "[]") {
		said = in // it is the node that says so
	}
	return why + ": " + said + " (dlog -B shows all)"
}

// doomed is why no job of a queue can ever be started, as far as is known; "" if one
// may: the build of its batch failed on every connected node that could run it.
func (m *Machine) doomed(q *queue) string {
	if q.b.mixed && q.index == MaxClasses-1 {
		return tooMixed
	}
	if len(q.b.avoid)+len(q.b.suspect) == 0 || m.awaits(q) {
		return ""
	}
	var on []string
	for _, p := range m.peers {
		if !p.listed || p.drained != "" || !q.suits(p) {
			continue
		}
		if !q.b.shuns(p) {
			return ""
		}
		on = append(on, string(p.name))
	}
	if len(on) == 0 {
		return ""
	}
	slices.Sort(on)
	if more := len(on) - 5; more > 0 {
		on = append(on[:5], fmt.Sprintf("and %d more", more))
	}
	return q.b.unable(" on " + strings.Join(on, ", "))
}

// endUntried ends jobs that can or shall not be started any more, failAtOnce at most.
func (m *Machine) endUntried() {
	for left, ended := failAtOnce, 1; left > 0 && ended > 0; left -= ended {
		ended = 0
		for _, b := range m.order {
			if !b.ready {
				continue
			}
			ended += m.endSome(b, left-ended)
			for q := range b.all() {
				ended += m.failSome(q, left-ended)
			}
		}
	}
}

// failSome fails the jobs of a queue if they are doomed, so many at most, and says how
// many.
func (m *Machine) failSome(q *queue, most int) (n int) {
	if q.jobs.n == 0 {
		return 0
	}
	why := m.doomed(q)
	for ; why != "" && q.jobs.n > 0 && n < most; n++ {
		m.log(Ref{q.b.num, q.jobs.first()}, job.Record{Kind: job.KindFailed, Outcome: job.Outcome{Reason: why}})
	}
	return n
}

// close says Closed of the batches of which nothing is left to do anywhere.
func (m *Machine) close() {
	for _, b := range m.order {
		if b.ready && !b.closed && b.open == 0 && len(b.of) == 0 && b.unacked == 0 {
			b.closed = true
			m.do(Closed{b.num})
		}
	}
}

func (e Cancel) apply(m *Machine) {
	b, ok := m.wanted(e.Ref, e.Request)
	if !ok || b.States[e.Ref.Job].Over() {
		return
	}
	m.log(e.Ref, job.Record{Kind: job.KindCancelled, Outcome: job.Outcome{Reason: e.Reason}, By: e.By, Request: e.Request})
	m.stopVoid(b, e.Ref.Job, "cancelled")
}

func (e Unwanted) apply(m *Machine) {
	kept := m.remains(e.Batch)
	for _, a := range m.unwanted(e.Batch) {
		r := *a.result
		r.Manifest, r.Entries, r.Files, r.Bytes = "", 0, 0, 0
		a.result = &r
		m.finish(a, "")
		if n := a.peer.gone[a.key]; n != nil {
			n.kept = true
		}
	}
	for _, r := range kept {
		r.note.kept = true // it need not be
		m.do(Have{r.peer.session, job.Token(hex.EncodeToString(r.key[:]))})
	}
}

// A remain is a settled attempt whose node keeps what it left, because the head
// has taken it for lost.
type remain struct {
	peer *peer
	key  key
	note *settledNote
}

// remains is what nodes that are connected so keep of a batch whose jobs are all
// over.
func (m *Machine) remains(batch uint32) (rs []remain) {
	if b := m.batches[batch]; b == nil || b.open > 0 || b.unacked == 0 {
		return nil
	}
	for p := range m.everyone() {
		for k, n := range p.gone {
			if n.ref.Batch == batch && !n.kept && p.listed && n.listed == p.session {
				rs = append(rs, remain{p, k, n})
			}
		}
	}
	slices.SortFunc(rs, func(a, b remain) int { return bytes.Compare(a.key[:], b.key[:]) })
	return rs
}

// unwanted is the attempts of a batch whose jobs are all over that have ended on
// nodes that are connected, and of which nothing is on its way.
func (m *Machine) unwanted(batch uint32) (as []*attempt) {
	b := m.batches[batch]
	if b == nil || b.open > 0 {
		return nil
	}
	for _, a := range b.of {
		for ; a != nil; a = a.next {
			if a.result != nil && !a.moving && a.peer.session != 0 {
				as = append(as, a)
			}
		}
	}
	slices.SortFunc(as, func(a, b *attempt) int { return cmp.Compare(a.order, b.order) })
	return as
}

func (e Retry) apply(m *Machine) {
	b, ok := m.wanted(e.Ref, e.Request)
	if !ok {
		return
	}
	if !spoils(b.States[e.Ref.Job]) || b.vain(e.Ref.Job) {
		return
	}
	m.log(e.Ref, job.Record{Kind: job.KindRetry, By: e.By, Request: e.Request})
}

// wanted says that a request is about a job we have, and new.
func (m *Machine) wanted(ref Ref, id job.Token) (*batch, bool) {
	b := m.batches[ref.Batch]
	if b == nil || int(ref.Job) >= len(b.States) || !b.ready {
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
