package sched

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
	"distribute/lib/suite"
)

// A fakeNode is a node as dnoded(8) is: it keeps what it is given until it is
// told otherwise, and starts what it has room for.
type fakeNode struct {
	name    string
	cpus    int
	memory  int64
	gpus    int
	first   int    // the index of the first of these
	machine string // of which several nodes are; "": only this one
	counted job.Counts
	pause   *node.Pause // what is taken back
	soon    float64     // seconds until its hours
	disk    int64       // bytes; 0: it does not say
	size    int64       // bytes of its whole disk; likewise
	caps    []string
	boot    int
	state   int
	session uint64
	has     []*fakeAttempt // durable, in the order given
	in      []Action       // from the head, on their way
	out     []Event        // to the head, on their way
	breaks  int            // batches with a number that it divides cannot be built here; 0: all can
}

type fakeAttempt struct {
	ref    Ref
	token  job.Token
	share  policy.Share
	beside map[*fakeNode]policy.Share // what it has of others
	phase  job.Phase
	result *Result
	still  bool
	step   int // how far its job has come
}

// offer is what a node says that it has.
func (n *fakeNode) offer() node.Offer {
	o := node.Offer{CPUs: n.cpus, Memory: n.memory, Disk: n.disk, DiskSize: n.size, Counted: n.counted, Capabilities: n.caps, Pause: n.pause, Soon: n.soon, Machine: n.machine}
	for i := range n.gpus {
		o.GPUs = append(o.GPUs, node.GPU{Index: n.first + i, Memory: []int64{6 << 30, 24564 << 20}[(n.first+i)%2]})
	}
	if n.pause != nil && n.pause.Give != nil {
		o.CPUs, o.Memory = o.CPUs-n.pause.Give.CPUs, o.Memory-n.pause.Give.Memory
	}
	return o
}

// cards is all of its GPUs.
func (n *fakeNode) cards() (all job.Cards) {
	for i := range n.gpus {
		all = all.Plus(job.AllCards([]int{n.first + i}))
	}
	return all
}

func (n *fakeNode) find(t job.Token) *fakeAttempt {
	for _, a := range n.has {
		if a.token == t {
			return a
		}
	}
	return nil
}

func (n *fakeNode) say(ev Event) {
	if n.session != 0 {
		n.out = append(n.out, ev)
	}
}

func (n *fakeNode) end(a *fakeAttempt, r Result) {
	a.phase, a.result = job.PhaseReturning, &r
	n.say(Ended{n.session, a.token, r})
}

// A sim is a rig with nodes and a network around it.
type sim struct {
	claimed int // attempts abroad, ever
	*rig
	rand     *rand.Rand
	nodes    []*fakeNode
	sessions uint64
	batches  uint32
	moving   []Grant
	requests int
	runs     map[job.Token]int
	good     map[job.Token]string // manifests of successful attempts that their node deleted
	odd      int
	steps    map[job.Token]int // how far what attempts have saved is
	kept     map[Ref]int       // of the last that counts
	needs    map[uint32][][]string
	unwanted map[uint32]bool // batches that were to be deleted when all of their jobs were over
}

func newSim(t testing.TB, seed uint64) *sim {
	s := &sim{rig: newRig(t, Config{Lease: 15 * time.Second}), rand: rand.New(rand.NewPCG(seed, 1)),
		runs: map[job.Token]int{}, good: map[job.Token]string{}, steps: map[job.Token]int{}, kept: map[Ref]int{}, needs: map[uint32][][]string{}, unwanted: map[uint32]bool{}}
	s.quick = true
	for i := range 1 + s.rand.IntN(4) {
		n := &fakeNode{name: fmt.Sprintf("ws%d", i+1), cpus: 1 + s.rand.IntN(4), caps: []string{"python3"},
			memory: int64(s.rand.IntN(4)), gpus: s.rand.IntN(3), counted: []job.Counts{"", "tape=1", "lic=1 tape=2"}[s.rand.IntN(3)]}
		if s.rand.IntN(2) == 0 {
			n.caps = append(n.caps, "gpu")
		}
		if s.rand.IntN(4) == 0 {
			n.breaks = 2
		}
		if s.rand.IntN(3) == 0 {
			n.size = 1 + s.rand.Int64N(3)
		}
		if i > 0 && s.rand.IntN(2) == 0 {
			n.machine, s.nodes[i-1].machine = "m", "m"
			n.first = s.nodes[i-1].first + 2 // as many as it has at most
		}
		s.nodes = append(s.nodes, n)
	}
	s.give(Counted{"lic=2 rare=1"})
	s.give(Loaded{})
	return s
}

// give applies an event and sends what comes of it on its way.
func (s *sim) give(ev Event) {
	s.t.Helper()
	for _, a := range s.apply(ev) {
		s.perform(a)
	}
}

func (s *sim) perform(a Action) {
	session := uint64(0)
	switch a := a.(type) {
	case Start:
		session = a.Session
	case Keep:
		session = a.Session
	case Stop:
		session = a.Session
	case Recall:
		session = a.Session
	case Have:
		session = a.Session
	case Forget:
		session = a.Session
	case Hold:
		session = a.Session
	case Grant:
		s.moving = append(s.moving, a)
	case Refuse:
		for _, n := range s.nodes {
			if n.session == a.Session {
				s.disconnect(n, false)
			}
		}
	case Log:
		s.keepSaved(a.Ref, &a.Rec)
	case Drop:
		if l := s.m.batches[a.Ref.Batch]; l != nil && l.saved[a.Ref.Job].token == a.Attempt {
			s.t.Fatalf("what attempt %s has saved is dropped, and counts", a.Attempt)
		}
	case Odd:
		s.odd++
	case Closed:
		s.give(BatchGone(a))
	}
	for _, n := range s.nodes {
		if session != 0 && n.session == session {
			n.in = append(n.in, a)
		}
	}
}

// deliver lets a node take one message.
func (s *sim) deliver(n *fakeNode) {
	if len(n.in) == 0 {
		return
	}
	a := n.in[0]
	n.in = n.in[1:]
	switch a := a.(type) {
	case Start:
		if n.find(a.Attempt) == nil {
			c := s.m.queueOf(a.Ref).Class
			had := c.Share
			if c.Cards {
				had.GPUs = job.GPUs(len(a.GPUs)) * job.OneGPU
			}
			beside := map[*fakeNode]policy.Share{}
			for _, o := range a.Also {
				part := policy.Share{CPUs: c.Share.CPUs / c.Ranks * o.Ranks, GPUs: c.Share.GPUs / job.GPUs(c.Ranks) * job.GPUs(o.Ranks), Memory: c.Share.Memory / int64(c.Ranks) * int64(o.Ranks)}
				part.Cards = job.CardsOf(part.GPUs, o.GPUs)
				i := slices.IndexFunc(s.nodes, func(n *fakeNode) bool { return n.name == o.Node })
				beside[s.nodes[i]] = part
				had.CPUs, had.GPUs, had.Memory = had.CPUs-part.CPUs, had.GPUs-part.GPUs, had.Memory-part.Memory
			}
			if had.CPUs != a.CPUs && c.Share.CPUs > 0 {
				s.t.Fatalf("attempt %s has %d cpus of %s, should have %d", a.Attempt, a.CPUs, n.name, had.CPUs)
			}
			had.CPUs, had.Cards = a.CPUs, job.CardsOf(had.GPUs, a.GPUs)
			if slices.ContainsFunc(c.Wants, func(e capability.Expr) bool { return e.String() == largeGPU }) && slices.ContainsFunc(a.GPUs, func(i int) bool { return i%2 == 0 }) {
				s.t.Fatalf("attempt %s has GPUs %v, and wants large ones", a.Attempt, a.GPUs)
			}
			n.has = append(n.has, &fakeAttempt{ref: a.Ref, token: a.Attempt, share: had, beside: beside, phase: job.PhaseWaiting, step: s.steps[a.Saved]})
		}
	case Keep:
		s.keep(n, a)
	case Stop:
		s.stop(n, a.Attempt, false)
	case Recall:
		s.stop(n, a.Attempt, true)
	case Have:
		s.remove(n, a.Attempt)
	case Forget:
		if x := n.find(a.Attempt); x == nil || x.phase == job.PhaseWaiting || x.result != nil && x.result.Fate.Unstarted() {
			s.remove(n, a.Attempt)
		}
	}
}

// keep has an attempt stand still, or go on; one that has not begun is given back.
func (s *sim) keep(n *fakeNode, a Keep) {
	switch x := n.find(a.Attempt); {
	case x == nil || x.result != nil:
	case a.Still && x.phase == job.PhaseWaiting:
		n.end(x, unstarted)
	case a.Still != x.still:
		x.still = a.Still
		n.say(Phase{n.session, x.token, map[bool]job.Phase{true: job.PhasePaused, false: job.PhaseRunning}[x.still], 0})
	}
}

func (s *sim) stop(n *fakeNode, t job.Token, unless bool) {
	x := n.find(t)
	switch {
	case x == nil || x.result != nil:
	case x.phase == job.PhaseWaiting:
		n.end(x, unstarted)
	case !unless:
		n.end(x, Result{Outcome: job.Outcome{Signal: "SIGTERM"}, Manifest: s.manifest(x)})
	}
}

func (s *sim) manifest(x *fakeAttempt) string { return "m" + string(x.token) }

// remove deletes an attempt, which must be safe by now (I3).
func (s *sim) remove(n *fakeNode, t job.Token) {
	if x := n.find(t); x != nil {
		if x.result == nil {
			s.t.Fatalf("%s is told to delete attempt %s, which runs", n.name, t)
		}
		if good(x.result) {
			s.good[t] = x.result.Manifest
			if l := s.last(x.ref, t); s.m.batches[x.ref.Batch] != nil && !s.unwanted[x.ref.Batch] && (l == nil || l.Manifest == "") &&
				s.m.State(x.ref) != job.Done && s.m.State(x.ref) != job.Cancelled {
				s.t.Fatalf("the result of attempt %s is deleted and nowhere else (I3)", t)
			}
		}
		n.has = slices.DeleteFunc(n.has, func(o *fakeAttempt) bool { return o == x })
	}
	n.say(Gone{n.session, t})
}

func (s *sim) connect(n *fakeNode) {
	s.sessions++
	n.session, n.in, n.out = s.sessions, nil, nil
	n.say(NodeUp{Session: n.session, Node: node.Name(n.name), Boot: fmt.Sprint("b", n.boot), State: fmt.Sprint("s", n.state),
		Offer: n.offer()})
	for _, a := range n.has {
		cards, also := a.share.Cards, job.Lodging{}
		for on, part := range a.beside {
			cards = cards.Plus(part.Cards)
			also[on.name] = part.CPUs
		}
		n.say(Item{n.session, a.token, a.phase, a.share.CPUs, cards.Indexes(), also, a.result, 0})
	}
	n.say(ListEnd{n.session})
}

func (s *sim) disconnect(n *fakeNode, tell bool) {
	if n.session != 0 && tell {
		s.give(NodeDown{n.session})
	}
	n.session, n.in, n.out = 0, nil, nil
}

// used is what attempts that run have of a node, also such as were given to others.
func (s *sim) used(n *fakeNode) (used policy.Share) {
	for _, o := range s.nodes {
		for _, a := range o.has {
			switch {
			case a.result != nil || a.phase == job.PhaseWaiting:
			case o == n:
				used = used.Plus(a.share)
			default:
				used = used.Plus(a.beside[n])
			}
		}
	}
	return used
}

// mayRun says that there is room for an attempt on all nodes on which it is.
func (s *sim) mayRun(n *fakeNode, a *fakeAttempt) bool {
	fits := func(n *fakeNode, share policy.Share) bool {
		o, used := n.offer(), s.used(n)
		return used.CPUs+share.CPUs <= o.CPUs && n.cards().Hold(used.Cards.Plus(share.Cards)) && used.Memory+share.Memory <= o.Memory
	}
	for o, share := range a.beside {
		if o.pause.Full() || !fits(o, share) {
			return false
		}
	}
	return fits(n, a.share)
}

// progress moves one attempt of a node on.
func (s *sim) progress(n *fakeNode) {
	used := s.used(n)
	if used.CPUs > n.cpus || !n.cards().Hold(used.Cards) || used.Memory > n.memory {
		s.t.Fatalf("%s runs %+v of %d, %v, %d (I9)", n.name, used, n.cpus, n.cards(), n.memory)
	}
	if len(n.has) == 0 {
		return
	}
	a := n.has[s.rand.IntN(len(n.has))]
	if a.result == nil && a.still {
		return
	}
	if a.result == nil && n.pause.Full() {
		s.stay(n, a)
		return
	}
	switch {
	case a.result != nil:
		if s.rand.IntN(4) == 0 {
			n.say(Ended{n.session, a.token, *a.result}) // said again
		}
	case a.phase == job.PhaseWaiting:
		if !s.mayRun(n, a) {
			return
		}
		if s.rand.IntN(20) == 0 {
			n.end(a, unstarted)
			return
		}
		s.run(n, a)
	case s.rand.IntN(3) == 0:
		a.step++
	case s.rand.IntN(30) == 0: // memory ran low
		r := reasoned("no memory")
		r.Fate = job.FateNoMemory
		n.end(a, r)
	case s.rand.IntN(15) == 0:
		n.end(a, Result{Fate: job.FateLost, Manifest: []string{"", s.manifest(a)}[s.rand.IntN(2)]})
	case s.rand.IntN(4) == 0:
		r := exited(1, []string{"", s.manifest(a)}[s.rand.IntN(2)])
		r.Reason = []string{"", "", "", job.ReasonTime, job.ReasonMemory, job.ReasonNodeMemory}[s.rand.IntN(6)]
		r.Runtime = float64(s.rand.IntN(20)) // within seconds, so that nodes are rested, or not
		n.end(a, r)
	default:
		r := exited(0, s.manifest(a))
		r.Runtime = float64(s.rand.IntN(10)) * []float64{0.01, 1, 4, 1000}[s.rand.IntN(4)]
		n.end(a, r)
	}
}

// stay is what becomes of an attempt on a node that is paused: nothing, or it is
// given back, or asked to leave.
func (s *sim) stay(n *fakeNode, a *fakeAttempt) {
	switch {
	case a.phase == job.PhaseWaiting:
		n.end(a, Result{Fate: job.FateNodePaused, Outcome: job.Outcome{Reason: n.name + " is paused"}})
	case !n.pause.Out:
	case s.rand.IntN(3) == 0:
		n.end(a, Result{Fate: job.FateEvicted, Outcome: job.Outcome{Signal: "SIGTERM"}, Manifest: []string{"", s.manifest(a)}[s.rand.IntN(2)]})
	case s.rand.IntN(6) == 0:
		r := exited(0, s.manifest(a))
		r.Fate = job.FateEvicted
		n.end(a, r)
	default:
		r := exited(job.ExitSaved, s.manifest(a))
		r.Fate, r.Saved = job.FateEvicted, true
		s.steps[a.token] = a.step
		n.end(a, r)
	}
}

// rethink pauses a node, or ends its pause.
func (s *sim) rethink(n *fakeNode) {
	n.soon, n.disk = max(0, 7200*s.rand.Float64()-1000), s.rand.Int64N(8)
	switch k := s.rand.IntN(4); {
	case n.pause != nil && !(k == 0 && n.pause.Full()):
		n.pause = nil
	case k == 1:
		n.pause = &node.Pause{By: []string{"ana"}, Give: &node.Give{CPUs: s.rand.IntN(n.cpus + 1), Memory: s.rand.Int64N(n.memory + 1)}}
	default:
		n.pause = &node.Pause{By: []string{"ana"}, Left: 3600, Out: k == 0}
	}
	n.say(Offered{n.session, n.offer()})
}

// keepSaved follows what a record says of what is saved: it must not go back.
func (s *sim) keepSaved(ref Ref, rec *job.Record) {
	switch {
	case rec.Saved && s.steps[rec.Attempt] < s.kept[ref]:
		s.t.Fatalf("job %s goes back from step %d to %d", jobName(ref), s.kept[ref], s.steps[rec.Attempt])
	case rec.Saved:
		s.kept[ref] = s.steps[rec.Attempt]
	case rec.Kind == job.KindDone || rec.Kind == job.KindFailed || rec.Kind == job.KindCancelled:
		delete(s.kept, ref)
	}
}

func (s *sim) run(n *fakeNode, a *fakeAttempt) {
	if n.breaks != 0 && int(a.ref.Batch)%n.breaks == 0 {
		a.phase = job.PhaseBuilding
		n.say(Phase{n.session, a.token, job.PhaseBuilding, 0})
		n.end(a, Result{Fate: job.FateBuildFailed, Manifest: []string{"", s.manifest(a)}[s.rand.IntN(2)]})
		return
	}
	asks := AskOf(s.whole(a.ref.Batch).Spec.Resources, nil).Disk
	if own := s.whole(a.ref.Batch).Asks; own != nil {
		asks = own[a.ref.Job].Disk
	}
	if n.size > 0 && n.size < asks {
		s.give(Asks{a.token, asks})
		n.end(a, noRoom)
		return
	}
	a.phase = job.PhaseRunning
	if s.runs[a.token]++; s.runs[a.token] > 1 {
		s.t.Fatalf("attempt %s runs twice (I5)", a.token)
	}
	n.say(Phase{n.session, a.token, job.PhaseRunning, 0})
}

func (s *sim) reboot(n *fakeNode) {
	s.disconnect(n, s.rand.IntN(2) == 0)
	n.boot++
	for _, a := range n.has {
		if a.result == nil && a.phase != job.PhaseWaiting {
			n.end(a, Result{Fate: job.FateLost})
		}
	}
}

// transfer ends a transfer, well or not.
func (s *sim) transfer() {
	if len(s.moving) == 0 {
		return
	}
	i := s.rand.IntN(len(s.moving))
	g := s.moving[i]
	s.moving = slices.Delete(s.moving, i, i+1)
	from := slices.IndexFunc(s.nodes, func(n *fakeNode) bool { return n.find(g.Attempt) != nil })
	switch {
	case from < 0 || s.rand.IntN(6) == 0:
		s.give(Staged{Attempt: g.Attempt, Err: errors.New("cut"), NoRoom: s.rand.IntN(2) == 0})
	case s.rand.IntN(30) == 0:
		s.give(Staged{Attempt: g.Attempt, Err: errors.New("bad"), Permanent: true})
	default:
		s.give(Staged{Attempt: g.Attempt, Manifest: g.Manifest})
	}
}

// crash ends the head in the middle of writing what an event decided, and
// starts another on what is durable: of each log, keep(n) of n new records.
func (s *sim) crash(ev Event, keep func(n int) int) {
	before := map[uint32]int{}
	for b, log := range s.logs {
		before[b] = len(log)
	}
	s.apply(ev)
	for _, b := range slices.Sorted(maps.Keys(s.logs)) {
		if log, n := s.logs[b], before[b]; n <= len(log) {
			s.logs[b] = log[:n+keep(len(log)-n)]
		}
	}
	m, err := s.replayed()
	if err != nil {
		s.t.Fatalf("replay after a crash: %v", err)
	}
	drained, site := s.m.drained, s.m.lab.Site.Has
	s.m, s.moving = m, nil
	for _, n := range s.nodes {
		n.session, n.in, n.out = 0, nil, nil
	}
	clear(s.kept)
	for b, log := range s.logs {
		for _, e := range log {
			s.keepSaved(Ref{b, e.job}, &e.rec)
		}
	}
	s.begun = map[job.Token]bool{} // a start that was not durable was not told
	clear(s.uses)
	for name, by := range drained {
		s.give(Drain{name, by})
	}
	s.give(Counted{site})
	s.give(Loaded{})
}

func (s *sim) some(n int) int { return s.rand.IntN(n + 1) }

// largeGPU is what a job wants that is given the GPUs of odd indexes only; see offer.
const largeGPU = "gpu.memory>=24G"

// someGPUs is none, one, or a part of one.
func (s *sim) someGPUs() uint32 { return []uint32{0, 0, 0, 1000, 500, 600, 250}[s.rand.IntN(7)] }

// someOwn is priorities of their own of some jobs, mostly none.
func (s *sim) someOwn(jobs int) (own []int16) {
	if s.rand.IntN(3) > 0 {
		return nil
	}
	for range jobs {
		own = append(own, int16(s.rand.IntN(4)-1))
	}
	return own
}

func (s *sim) addBatch() AddBatch {
	s.batches++
	b := AddBatch{Batch: s.batches, Owner: s.rand.IntN(3), Jobs: 1 + s.rand.IntN(12), Once: s.rand.IntN(5) == 0, Spec: &job.Spec{Kind: job.Command}}
	b.Spec.Priority = max(0, s.rand.IntN(6)-3)
	b.Spec.MaxRunning = max(0, s.rand.IntN(6)-2)
	b.Own = s.someOwn(b.Jobs)
	switch s.rand.IntN(5) {
	case 0:
		b.Spec.Resources.CPUs = 1
	case 1:
		b.Spec.Kind = job.Python
	case 2:
		for range b.Jobs {
			b.Asks = append(b.Asks, Ask{CPUs: uint16(s.rand.IntN(5)), GPUs: s.someGPUs(), Memory: int64(s.rand.IntN(3)),
				Wants:  []string{"", "gpu", "gpu\x00python3", largeGPU, "gpu\x00" + largeGPU}[s.rand.IntN(5)],
				Counts: []job.Counts{"", "", "lic=1", "lic=2", "lic=1 tape=1", "tape=2", "rare=1"}[s.rand.IntN(7)]})
		}
	case 3:
		b.Spec.Resources = job.Resources{CPUs: 1, GPUs: job.GPUs(s.someGPUs()), Memory: s.rand.Int64N(3),
			Counted: []job.Counts{"", "lic=1", "lic=2", "tape=1"}[s.rand.IntN(4)]}
	}
	if s.rand.IntN(4) == 0 {
		b.Spec.Capabilities = []string{"gpu"}
	}
	if s.rand.IntN(4) == 0 {
		b.Asks = nil
		b.Spec.Resources = job.Resources{Ranks: 1 + s.rand.IntN(4), CPUs: 1, Counted: []job.Counts{"", "", "lic=1", "tape=1"}[s.rand.IntN(4)]}
		if r := &b.Spec.Resources; r.Ranks < 3 { // so that heal has enough
			r.CPUs, r.Memory, r.GPUs = 1+s.rand.IntN(2), s.rand.Int64N(2), job.GPUs(s.rand.IntN(4)/3)*job.OneGPU
		}
	}
	b.Spec.Resources.Time, b.Spec.Resources.Disk = max(0, s.rand.Int64N(60)-20), max(0, s.rand.Int64N(9)-5)
	if s.rand.IntN(2) == 0 {
		for i := range b.Asks {
			b.Asks[i].Time, b.Asks[i].Disk = max(0, s.rand.Int64N(60)-20), max(0, s.rand.Int64N(9)-5)
		}
	}
	if !b.Once && s.rand.IntN(2) == 0 {
		b.Spec.Retries = s.rand.IntN(4)
	}
	if !b.Once && s.rand.IntN(4) == 0 {
		for range b.Jobs {
			b.Again = append(b.Again, uint8(s.rand.IntN(4)))
		}
	}
	s.addGates(&b)
	return b
}

// addGates has some jobs of a batch wait for others.
func (s *sim) addGates(b *AddBatch) {
	if s.rand.IntN(3) == 0 {
		b.Spec.Canary = s.rand.IntN(4)
	}
	if s.rand.IntN(3) == 0 {
		b.Spec.StopAfter = s.rand.IntN(4)
		if s.rand.IntN(3) == 0 {
			b.Spec.StopShare = s.rand.IntN(101)
		}
	}
	if s.rand.IntN(2) > 0 {
		return
	}
	needs, turn := make([][]string, b.Jobs), s.rand.Perm(b.Jobs)
	for i := range needs {
		for range s.rand.IntN(3) {
			if o := s.rand.IntN(b.Jobs); turn[o] < turn[i] {
				needs[i] = append(needs[i], fmt.Sprint("j", o))
			}
		}
	}
	b.Needs = needing(s.t, needs)
	s.needs[b.Batch] = needs
}

// addJobs has a batch have more jobs, some of which wait for others of it.
func (s *sim) addJobs() (AddJobs, bool) {
	if len(s.adds) == 0 {
		return AddJobs{}, false
	}
	b := s.whole(s.adds[s.rand.IntN(len(s.adds))].Batch)
	if b.Jobs > 20 {
		return AddJobs{}, false
	}
	e := AddJobs{Batch: b.Batch, Spec: b.Spec, Jobs: 1 + s.rand.IntN(5)}
	e.Own = s.someOwn(e.Jobs)
	if s.rand.IntN(3) == 0 {
		for range e.Jobs {
			e.Asks = append(e.Asks, Ask{CPUs: uint16(s.rand.IntN(3)), Memory: int64(s.rand.IntN(3)), Wants: []string{"", "gpu"}[s.rand.IntN(2)]})
		}
	}
	if !b.Once && s.rand.IntN(4) == 0 {
		for range e.Jobs {
			e.Again = append(e.Again, uint8(s.rand.IntN(4)))
		}
	}
	needs, more := s.needs[b.Batch], make([][]string, e.Jobs)
	if needs == nil {
		needs = make([][]string, b.Jobs)
	}
	needs = slices.Clone(needs)
	switch k := s.rand.IntN(3); {
	case k == 0:
		for i := range more {
			more[i] = []string{fmt.Sprint("j", s.rand.IntN(b.Jobs+i))}
		}
	case k == 1 && b.Jobs > 0: // as a glob would
		k := s.rand.IntN(b.Jobs)
		needs[k] = append(slices.Clip(needs[k]), fmt.Sprint("j", b.Jobs+s.rand.IntN(e.Jobs)))
	}
	needs = slices.Concat(needs, more)
	e.Needs = needing(s.t, needs)
	s.needs[b.Batch] = needs
	return e, true
}

// needing is the needs of jobs j0, j1, and so on.
func needing(t testing.TB, needs [][]string) *job.Needs {
	t.Helper()
	names := make([]string, len(needs))
	for i := range names {
		names[i] = fmt.Sprint("j", i)
	}
	n, wrong := job.ResolveNeeds(names, needs)
	if len(wrong) > 0 {
		t.Fatal(job.NeedErrors(wrong))
	}
	return n
}

func (s *sim) someJob() (Ref, bool) {
	if len(s.adds) == 0 {
		return Ref{}, false
	}
	b := s.whole(s.adds[s.rand.IntN(len(s.adds))].Batch)
	if b.Jobs == 0 {
		return Ref{}, false
	}
	return Ref{b.Batch, uint32(s.rand.IntN(b.Jobs))}, true
}

// step does something at random.
func (s *sim) step() {
	n := s.nodes[s.rand.IntN(len(s.nodes))]
	switch k := s.rand.IntN(100); {
	case k < 3 && len(s.adds) < 6:
		s.give(s.addBatch())
	case k < 4:
		if e, ok := s.addJobs(); ok {
			s.give(e)
		}
	case k < 33:
		s.deliver(n)
	case k < 60:
		s.hear(n)
	case k < 80:
		s.progress(n)
	case k < 88:
		s.transfer()
	case k < 91:
		if n.session == 0 {
			s.connect(n)
		}
	case k < 92:
		s.disconnect(n, true)
	case k < 93 && s.rand.IntN(2) == 0:
		s.rethink(n)
	case k < 93 && s.rand.IntN(3) == 0:
		s.disconnect(n, true)
		s.reboot(n)
	case k < 93 && s.rand.IntN(2) == 0:
		s.give(Drain{node.Name(n.name), []string{"", "", "ana"}[s.rand.IntN(3)]})
	case k < 94 && s.rand.IntN(4) == 0:
		s.give(Counted{[]job.Counts{"", "lic=1", "lic=2 rare=1", "lic=3 tape=1"}[s.rand.IntN(4)]})
		s.give(Preferred{s.rand.IntN(4) == 0})
	case k < 94 && s.rand.IntN(10) == 0:
		s.disconnect(n, true)
		n.state++
		n.has = nil
	case k < 95:
		s.request()
	case k < 96 && s.rand.IntN(5) == 0:
		s.crash([]Event{Tick{}, s.addBatch()}[s.rand.IntN(2)], s.some)
	case k < 97 && len(n.out) > 0 && s.rand.IntN(5) == 0:
		s.crash(n.out[0], s.some)
	default:
		s.now += time.Duration(s.rand.IntN(8000)) * time.Millisecond
		s.give(Tick{})
	}
}

func (s *sim) hear(n *fakeNode) {
	if len(n.out) > 0 {
		ev := n.out[0]
		n.out = n.out[1:]
		s.give(ev)
	}
}

func (s *sim) request() {
	ref, ok := s.someJob()
	if !ok {
		return
	}
	if s.rand.IntN(8) == 0 {
		s.unwanted[ref.Batch] = s.unwanted[ref.Batch] || s.m.Open(ref.Batch) == 0
		s.give(Unwanted{Batch: ref.Batch})
		return
	}
	if s.rand.IntN(12) == 0 {
		s.takeAbroad(ref.Batch, s.someOf(ref))
		return
	}
	if s.rand.IntN(6) == 0 {
		s.comeHome(false)
		return
	}
	if s.rand.IntN(4) > 0 {
		s.requests++
	}
	id := job.Token(fmt.Sprint("q", s.requests))
	switch s.rand.IntN(6) {
	case 5:
		s.give(SetBatch{Batch: ref.Batch, Set: s.someSet(), Timed: s.someOf(ref), By: "u", Request: id})
	case 0, 1:
		s.give(Cancel{Ref: ref, By: "u", Request: id})
	case 2, 3:
		s.give(Retry{Ref: ref, By: "u", Request: id})
	default:
		s.give(HoldJobs{Batch: ref.Batch, Jobs: s.someOf(ref), By: "u", Request: id, Release: s.rand.IntN(3) == 0, Freeze: s.rand.IntN(2) == 0})
	}
}

// someSet is what may be set, any part of it.
func (s *sim) someSet() (set job.Set) {
	priority, most, seconds := s.rand.IntN(4)-1, s.rand.IntN(4), int64(s.rand.IntN(3))*10
	if s.rand.IntN(2) == 0 {
		set.Priority, set.ForAll = &priority, s.rand.IntN(3) == 0
	}
	if s.rand.IntN(2) == 0 {
		set.MaxRunning = &most
	}
	if s.rand.IntN(2) == 0 {
		set.Time = &seconds
	}
	return set
}

// someOf is a job, or some of its batch, or all.
func (s *sim) someOf(ref Ref) (jobs []uint32) {
	every := s.rand.IntN(3)
	for i := range s.m.batches[ref.Batch].States {
		if uint32(i) == ref.Job || every == 1 || every == 2 && s.rand.IntN(2) == 0 {
			jobs = append(jobs, uint32(i))
		}
	}
	return jobs
}

// heal stops all faults and lets everything end: every job must be over then,
// every batch closed, and nothing left on any node (I6 and liveness).
func (s *sim) heal() {
	for i, n := range s.nodes {
		n.caps, n.breaks, n.cpus, n.gpus, n.memory, n.pause, n.counted = []string{"gpu", "python3"}, 0, 4, 2, int64(max(2, 4-i)), nil, "tape=2"
		n.disk, n.size = int64(4+i), 0
		s.disconnect(n, true)
		s.give(Drain{Node: node.Name(n.name)})
	}
	s.give(Counted{"lic=2 rare=1"})
	for range 1000 {
		s.now += 5 * time.Second
		s.give(Tick{})
		for _, n := range s.nodes {
			if n.session == 0 {
				s.connect(n)
			}
			for len(n.in)+len(n.out) > 0 {
				s.deliver(n)
				s.hear(n)
			}
			s.progress(n)
			s.give(Heard{n.session})
		}
		for len(s.moving) > 0 {
			s.transfer()
		}
		if len(s.m.batches) == 0 && !slices.ContainsFunc(s.nodes, func(n *fakeNode) bool { return len(n.has) > 0 }) {
			return
		}
		if len(s.m.batches) == 0 {
			for _, n := range s.nodes { // what is unknown to the head is held for an operator, who deletes it
				n.has = slices.DeleteFunc(n.has, func(a *fakeAttempt) bool { return s.m.live[must(a.token)] == nil })
			}
		}
		s.operate()
		s.comeHome(true)
		for n, b := range s.m.batches {
			s.give(HoldJobs{Batch: n, Jobs: all(b), Release: true})
		}
	}
	for n, b := range s.m.batches {
		for i := range b.States {
			if why := s.m.Why(Ref{n, uint32(i)}); why != "" {
				s.t.Logf("job %d/%d: %s", n, i, why)
			}
		}
	}
	s.t.Fatalf("it does not end:\n%s", s.m.Snapshot())
}

// all is the jobs of a batch.
func all(b *batch) []uint32 {
	jobs := make([]uint32, len(b.States))
	for i := range jobs {
		jobs[i] = uint32(i)
	}
	return jobs
}

// operate is an operator who deletes on the nodes what the head cannot take.
func (s *sim) operate() {
	for _, n := range s.nodes {
		for _, a := range slices.Clone(n.has) {
			if x := s.m.live[must(a.token)]; a.result != nil && x != nil && x.void && !x.moving && s.now-x.retryAt > time.Minute {
				n.has = slices.DeleteFunc(n.has, func(o *fakeAttempt) bool { return o == a })
				s.disconnect(n, true)
			}
		}
	}
}

func TestRandom(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is there, time is not
	seeds, steps := suite.Size[uint64](3, 300), 600
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := newSim(t, seed)
			for i := range steps {
				s.step()
				if i%25 == 0 {
					if err := s.checkReplay(); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.heal()
			if s.odd > 0 {
				t.Errorf("%d times a node of ours was said to say what none says", s.odd)
			}
		})
	}
}
