package sched

import (
	"cmp"
	binary "container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
	"distribute/lib/suite"
)

const (
	labDay  = 24 * time.Hour
	labLong = 2 * time.Hour // no job of the lab runs longer
)

// A lab is a hundred desks over a day, on a clock of its own: people sit down at
// them and leave, some are switched off and come back, jobs come in bursts. It
// keeps its own books of what each desk has been given, and of what is used.
type lab struct {
	t     testing.TB
	m     *Machine
	r     *rand.Rand
	now   time.Duration
	due   labQueue
	seq   int
	drawn int

	sessions uint64
	nodes    []*labNode
	at       map[uint64]*labNode
	runs     map[job.Token]*labRun
	batches  map[uint32]*labBatch

	have, used, asked float64 // cpus: of desks that are there and not paused, that work, that are wanted
	bound, work       float64 // cpu-seconds: that could have been used, and that were
	hours             [24]labHour
	open              map[int]int     // jobs of an owner that wait
	works             map[int]float64 // cpus of an owner that work
}

// A labHour is what was used in an hour of the day.
type labHour struct {
	have, used, bound float64
	owners            map[int]float64
	waits             map[int]float64 // seconds in which an owner had jobs that waited
}

type labNode struct {
	name    node.Name
	offer   node.Offer
	session uint64
	up      bool
	paused  bool
	boot    int
	runs    map[job.Token]*labRun
	used    policy.Share
}

type labRun struct {
	start Start
	node  *labNode
	batch *labBatch
	cpus  int
	share policy.Share
	left  time.Duration
	since time.Duration
	goes  bool
	times int // how often it was let go on: older ends are void
}

type labBatch struct {
	owner   int
	cpus    int
	ask     policy.Share
	from    time.Duration
	long    func(*rand.Rand) time.Duration
	first   map[uint32]time.Duration // when a job was started first
	jobs    int
	longest time.Duration // that a job waited
}

type labEvent struct {
	at  time.Duration
	seq int
	do  func()
}

type labQueue []labEvent

func (q labQueue) Len() int { return len(q) }
func (q labQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].seq, q[j].seq)) < 0
}
func (q labQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *labQueue) Push(x any)   { *q = append(*q, x.(labEvent)) }
func (q *labQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// labKinds are the desks: so many of each, with so many cpus, bytes of memory for
// each of them, and GPUs.
var labKinds = []struct{ desks, cpus, gpus int }{{60, 8, 0}, {25, 16, 0}, {10, 32, 2}, {5, 64, 0}}

const labMemory = 4 << 30 // bytes a cpu

func newLab(t testing.TB, seed uint64) *lab {
	l := &lab{t: t, r: rand.New(rand.NewPCG(seed, 6)), at: map[uint64]*labNode{}, runs: map[job.Token]*labRun{},
		batches: map[uint32]*labBatch{}, open: map[int]int{}, works: map[int]float64{}}
	for i := range l.hours {
		l.hours[i] = labHour{owners: map[int]float64{}, waits: map[int]float64{}}
	}
	l.m = New(Config{Token: func() job.Token { l.drawn++; return tok(l.drawn) }})
	l.give(Loaded{})
	for _, kind := range labKinds {
		for range kind.desks {
			n := &labNode{name: node.Name(fmt.Sprintf("ws%d", len(l.nodes))), runs: map[job.Token]*labRun{},
				offer: node.Offer{CPUs: kind.cpus, Memory: int64(kind.cpus) * labMemory}}
			for g := range kind.gpus {
				n.offer.GPUs = append(n.offer.GPUs, node.GPU{Index: g})
				n.offer.Capabilities = []string{"gpu"}
			}
			l.nodes = append(l.nodes, n)
			l.arrive(n)
			l.person(n)
		}
	}
	l.in(time.Second, l.tick)
	return l
}

func (l *lab) in(d time.Duration, do func()) {
	l.seq++
	binary.Push(&l.due, labEvent{l.now + d, l.seq, do})
}

// within is a length of time between two, each equally likely.
func (l *lab) within(from, to time.Duration) time.Duration {
	return from + time.Duration(l.r.Int64N(int64(to-from)))
}

// live lets a day pass.
func (l *lab) live() {
	for len(l.due) > 0 && l.due[0].at <= labDay {
		e := binary.Pop(&l.due).(labEvent)
		l.pass(e.at)
		e.do()
	}
	l.pass(labDay)
}

// pass keeps the books of the time until then.
func (l *lab) pass(to time.Duration) {
	for l.now < to {
		h := &l.hours[min(int(l.now/time.Hour), 23)]
		next := min(to, (l.now/time.Hour+1)*time.Hour)
		s := (next - l.now).Seconds()
		bound := s * min(l.have, l.asked)
		h.have, h.used, h.bound = h.have+s*l.have, h.used+s*l.used, h.bound+bound
		l.bound, l.work = l.bound+bound, l.work+s*l.used
		for o, cpus := range l.works {
			h.owners[o] += s * cpus
		}
		for o, n := range l.open {
			if n > 0 {
				h.waits[o] += s
			}
		}
		l.now = next
	}
}

// give gives the machine an event, and does what it says at once.
func (l *lab) give(ev Event) {
	for _, a := range l.m.step(ev, l.now) {
		switch a := a.(type) {
		case Start:
			l.start(a)
		case Recall, Keep:
		case Stop:
			l.lose(l.runs[a.Attempt])
			l.in(0, func() { l.give(Ended{a.Session, a.Attempt, Result{Fate: job.FateUnstarted}}) })
		case Grant:
			l.in(time.Second, func() { l.give(Staged{Attempt: a.Attempt, Manifest: a.Manifest}) })
		case Have:
			l.in(0, func() { l.give(Gone(a)) })
		case Forget:
			l.in(0, func() { l.give(Gone(a)) })
		case Hold:
			l.t.Fatalf("at %v: %s is held: %s", l.now, a.Attempt, a.Why)
		}
	}
}

func (l *lab) tick() {
	for _, n := range l.nodes {
		if n.up {
			l.m.Apply(Heard{n.session}, l.now)
		}
	}
	l.give(Tick{})
	l.in(15*time.Second, l.tick)
}

// start begins an attempt where it was given to.
func (l *lab) start(a Start) {
	n, b := l.at[a.Session], l.batches[a.Ref.Batch]
	cpus := cmp.Or(b.cpus, n.offer.CPUs)
	run := &labRun{start: a, node: n, batch: b, cpus: cpus, share: b.ask, left: b.long(l.r)}
	run.share.CPUs = cpus
	n.used = n.used.Plus(run.share)
	if n.used.CPUs > n.offer.CPUs || n.used.Memory > n.offer.Memory || n.used.GPUs.Cards() > len(n.offer.GPUs) {
		l.t.Fatalf("at %v: %s is given %+v of %d cpus, %d bytes, %d GPUs", l.now, n.name, n.used, n.offer.CPUs, n.offer.Memory, len(n.offer.GPUs))
	}
	if n.paused {
		l.t.Fatalf("at %v: %s is paused, and given a job", l.now, n.name)
	}
	l.runs[a.Attempt], n.runs[a.Attempt] = run, run
	l.open[b.owner]--
	if _, ok := b.first[a.Ref.Job]; !ok {
		b.first[a.Ref.Job] = l.now
		b.longest = max(b.longest, l.now-b.from)
	}
	l.asked -= float64(b.wants())
	l.going(run)
	l.give(Phase{a.Session, a.Attempt, job.PhaseRunning, 0})
}

// wants is how many cpus a job is counted with while it waits.
func (b *labBatch) wants() int { return cmp.Or(b.cpus, 8) }

// going lets a run go on.
func (l *lab) going(run *labRun) {
	run.goes, run.since = true, l.now
	run.times++
	times := run.times
	l.used += float64(run.cpus)
	l.works[run.batch.owner] += float64(run.cpus)
	l.asked += float64(run.cpus)
	l.in(run.left, func() {
		if run.goes && run.times == times {
			l.end(run)
		}
	})
}

// stands has a run stand still.
func (l *lab) stands(run *labRun) {
	if !run.goes {
		return
	}
	run.goes = false
	run.left -= l.now - run.since
	l.used -= float64(run.cpus)
	l.asked -= float64(run.cpus)
	l.works[run.batch.owner] -= float64(run.cpus)
}

func (l *lab) end(run *labRun) {
	l.drop(run)
	if run.node.up {
		l.give(Ended{run.node.session, run.start.Attempt, exited(0, "m")})
	}
}

// drop takes a run from the books.
func (l *lab) drop(run *labRun) {
	l.stands(run)
	delete(l.runs, run.start.Attempt)
	delete(run.node.runs, run.start.Attempt)
	run.node.used = run.node.used.Minus(run.share)
}

// lose takes a run from the books whose job waits again.
func (l *lab) lose(run *labRun) {
	if run == nil {
		return
	}
	l.drop(run)
	l.open[run.batch.owner]++
	l.asked += float64(run.batch.wants())
}

// arrive has a desk connect, with what runs on it.
func (l *lab) arrive(n *labNode) {
	l.sessions++
	n.session, n.up = l.sessions, true
	l.at[n.session] = n
	if !n.paused {
		l.have += float64(n.offer.CPUs)
	}
	l.give(NodeUp{Session: n.session, Node: n.name, Boot: fmt.Sprint("b", n.boot), State: "s", Offer: n.offer})
	for _, run := range l.of(n) {
		l.give(Item{Session: n.session, Attempt: run.start.Attempt, Phase: job.PhaseRunning})
	}
	l.give(ListEnd{n.session})
}

// of is what runs on a desk, in an order.
func (l *lab) of(n *labNode) []*labRun {
	all := []*labRun{}
	for _, run := range n.runs {
		all = append(all, run)
	}
	slices.SortFunc(all, func(a, b *labRun) int { return cmp.Compare(a.start.Attempt, b.start.Attempt) })
	return all
}

// off switches a desk off for some minutes: what ran is lost.
func (l *lab) off(n *labNode) {
	if n.up {
		n.up = false
		if !n.paused {
			l.have -= float64(n.offer.CPUs)
		}
		for _, run := range l.of(n) {
			l.lose(run)
		}
		l.give(NodeDown{n.session})
		n.boot++
		l.in(l.within(2*time.Minute, 30*time.Minute), func() { l.arrive(n) })
	}
}

// person has somebody at some desks of eight cpus in the hours of work, who takes them back
// for a while now and then; and one desk in ten is switched off once.
func (l *lab) person(n *labNode) {
	if l.r.IntN(10) == 0 {
		l.in(l.within(0, labDay), func() { l.off(n) })
	}
	if n.offer.CPUs > 8 || l.r.IntN(2) == 0 {
		return
	}
	l.in(l.within(8*time.Hour, 10*time.Hour), func() { l.sits(n, l.now+l.within(6*time.Hour, 9*time.Hour)) })
}

// sits pauses a desk, and again after a while, until somebody goes home.
func (l *lab) sits(n *labNode, until time.Duration) {
	if l.now > until {
		return
	}
	l.pause(n, &node.Pause{By: []string{"ana"}, Left: 3600})
	l.in(l.within(10*time.Minute, time.Hour), func() {
		l.pause(n, nil)
		l.in(l.within(10*time.Minute, 2*time.Hour), func() { l.sits(n, until) })
	})
}

func (l *lab) pause(n *labNode, p *node.Pause) {
	if full := p.Full(); n.paused != full {
		n.paused = full
		if n.up {
			l.have += float64(n.offer.CPUs) * map[bool]float64{true: -1, false: 1}[full]
		}
		for _, run := range l.of(n) {
			if full {
				l.stands(run)
			} else {
				l.going(run)
			}
		}
	}
	n.offer.Pause = p
	if n.up {
		l.give(Offered{n.session, n.offer})
	}
}

// submit is a batch of an owner.
func (l *lab) submit(owner, jobs, priority int, ask job.Resources, long func(*rand.Rand) time.Duration) *labBatch {
	number := uint32(len(l.batches) + 1)
	b := &labBatch{owner: owner, cpus: ask.CPUs, ask: AskOf(ask, nil).share(), from: l.now, long: long,
		first: map[uint32]time.Duration{}, jobs: jobs}
	l.batches[number] = b
	l.open[owner] += jobs
	l.asked += float64(jobs * b.wants())
	l.give(AddBatch{Batch: number, Owner: owner, Jobs: jobs, Spec: &job.Spec{Kind: job.Command, Resources: ask, Priority: priority}})
	return b
}

// log-normal lengths of time about a median, at most labLong.
func about(median time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		return min(labLong, max(time.Second, time.Duration(float64(median)*math.Exp(0.7*r.NormFloat64()))))
	}
}

// TestLab is a day of a lab of a hundred desks and of ten people: three of them
// have more to do than there is room, with jobs of different kinds; others come
// with bursts of small jobs, jobs that want a big desk whole, jobs with GPUs, and
// what may take what nobody wants. No desk is given more than it has, nobody
// starves, the three get the same within 5 % in each hour once the first to come
// has paid for having been alone, and of what could be used 95 % is. With D_LAB=1
// it draws the day.
func TestLab(t *testing.T) {
	if os.Getenv("D_LAB") == "" {
		suite.Long(t, "make lab")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // memory is there, time is not
	l := newLab(t, 1)
	gib := int64(1 << 30)
	l.submit(1, 40_000, 0, job.Resources{CPUs: 1, Memory: 2 * gib}, about(20*time.Minute))
	l.submit(2, 20_000, 0, job.Resources{CPUs: 2, Memory: 4 * gib}, about(30*time.Minute))
	l.submit(3, 10_000, 0, job.Resources{CPUs: 4, Memory: 16 * gib}, about(25*time.Minute))
	l.submit(10, 5000, -10, job.Resources{CPUs: 1}, about(5*time.Minute))
	var bursts, bigs, gpus []*labBatch
	for at := time.Hour; at < 20*time.Hour; at += time.Hour {
		l.in(at+l.within(0, time.Hour), func() {
			bursts = append(bursts, l.submit(4+l.r.IntN(3), 1+l.r.IntN(300), 0, job.Resources{CPUs: 1}, about(3*time.Minute)))
		})
		l.in(at+l.within(0, time.Hour), func() {
			bigs = append(bigs, l.submit(7, 1+l.r.IntN(2), 0, job.Resources{CPUs: 64}, about(40*time.Minute)))
		})
		l.in(at+l.within(0, time.Hour), func() {
			gpus = append(gpus, l.submit(8, 1+l.r.IntN(12), 0, job.Resources{CPUs: 4, GPUs: job.OneGPU}, about(40*time.Minute)))
		})
	}
	l.live()
	if os.Getenv("D_LAB") != "" {
		l.draw(bursts, bigs, gpus)
	}
	for _, kind := range []struct {
		name    string
		batches []*labBatch
	}{{"a burst of small jobs", bursts}, {"a job for a big desk", bigs}, {"a job with a GPU", gpus}} {
		for _, b := range kind.batches {
			if len(b.first) < b.jobs {
				t.Errorf("of %s of owner %d at %v %d of %d were started", kind.name, b.owner, b.from, len(b.first), b.jobs)
			}
			if b.longest > 2*labLong {
				t.Errorf("%s of owner %d waited %v", kind.name, b.owner, b.longest)
			}
		}
	}
	for i, h := range l.hours {
		all := h.owners[1] + h.owners[2] + h.owners[3]
		for o := 1; o <= 3; o++ {
			if i < 3 || h.waits[1] < 3600 || h.waits[2] < 3600 || h.waits[3] < 3600 {
				continue
			}
			if part := 3 * h.owners[o] / all; math.Abs(part-1) > 0.05 {
				t.Errorf("in hour %d owner %d has had %.3f of his part", i, o, part)
			}
		}
	}
	if l.work < 0.95*l.bound {
		t.Errorf("%.3f of what could be used was", l.work/l.bound)
	}
}

// draw is a text chart of the day: a line an hour, a sign for so many cpus.
func (l *lab) draw(bursts, bigs, gpus []*labBatch) {
	const cpus = 28
	signs := map[int]string{1: "a", 2: "b", 3: "c", 4: ".", 5: ".", 6: ".", 7: "#", 8: "g", 10: "-"}
	fmt.Printf("A day of %d desks. a, b, c: three who always have more to do; .: bursts; #: whole big desks; g: GPUs;\n"+
		"-: what may take what nobody wants; |: what there was. A sign is %d cpus.\n", len(l.nodes), cpus)
	for i, h := range l.hours {
		line := strings.Builder{}
		for _, o := range []int{1, 2, 3, 4, 5, 6, 7, 8, 10} {
			line.WriteString(strings.Repeat(signs[o], int(math.Round(h.owners[o]/3600/cpus))))
		}
		have := int(math.Round(h.have / 3600 / cpus))
		fmt.Printf("%02d %-*s| %.3f\n", i, have, line.String(), h.used/h.bound)
	}
	fmt.Printf("%.3f of the cpus that could be used were\n", l.work/l.bound)
	for _, kind := range []struct {
		name    string
		batches []*labBatch
	}{{"bursts", bursts}, {"whole big desks", bigs}, {"GPUs", gpus}} {
		jobs, longest := 0, time.Duration(0)
		for _, b := range kind.batches {
			jobs, longest = jobs+b.jobs, max(longest, b.longest)
		}
		fmt.Printf("%s: %d jobs, the one that waited longest %v\n", kind.name, jobs, longest.Round(time.Second))
	}
}
