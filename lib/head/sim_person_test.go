package head

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// A person submits batches, asks, cancels, tries again and pulls, with what the
// tools send, and remembers what he was told.
type person struct {
	w       *world
	name    string
	uid     int
	r       *rand.Rand
	own     *owner
	batches []*simBatch
	folder  job.Token // in which he takes jobs to the cluster
}

// A simBatch is a batch as its person has it.
type simBatch struct {
	id       job.BatchID
	ref      job.Token
	mu       sync.Mutex // guards jobs, and adding and perhaps where another than its person reads them
	jobs     []job.Job
	adding   []job.Job // he has asked that these be added, and was not answered
	perhaps  []job.Job // they were not added, unless he asked more than once
	of       *person
	first    int               // how many jobs were not added
	blobs    map[string]string // inputs by their sums
	spec     job.Spec
	accepted atomic.Bool
	offers   int         // how often it was submitted
	left     bool        // in incoming/, and perhaps not yet taken up
	gone     atomic.Bool // he was told that it is deleted
	priority *int        // that he was told it has; nil: it may have another
	unsure   bool        // he asked for one and was not answered, which may happen yet
}

func newPerson(w *world, i int) *person {
	p := &person{w: w, name: "ana", uid: os.Getuid(), r: rand.New(rand.NewPCG(w.r.Uint64(), 1)), own: &owner{host: "ana"}}
	if w.plan.verbs && i > 0 { // the others are no operators
		p.name, p.uid = []string{"ben", "eva"}[i-1], 61000+i
	}
	for b := range 1 + p.r.IntN(2) {
		p.batches = append(p.batches, p.invent(job.NewBatchID("lab", fmt.Sprintf("b%d.%d", i, b))))
	}
	return p
}

// invent makes a batch up.
func (p *person) invent(id job.BatchID) *simBatch {
	b := &simBatch{of: p, id: id, ref: job.NewToken(), blobs: map[string]string{},
		spec: job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: p.r.IntN(3), GPUs: []job.GPUs{0, 0, 400, 1000}[p.r.IntN(4)]}, Priority: p.r.IntN(3) - 1, MaxRunning: p.r.IntN(4)}}
	input := b.input(p.r)
	if p.w.plan.theme == themeLimits {
		b.spec.Resources.Time = simLimits[p.r.IntN(len(simLimits))]
	}
	if p.r.IntN(4) == 0 || p.w.plan.never && p.r.IntN(4) > 0 {
		b.spec.Retry = job.Never
		p.w.set(func() { p.w.never[id] = true })
	} else {
		b.spec.Retries = max(0, p.r.IntN(5)-2)
	}
	if p.r.IntN(4) == 0 {
		b.spec.Build = []string{"sim", strings.Repeat("x", p.r.IntN(20))}
		p.w.set(func() { p.w.built[id] = true })
	}
	if p.r.IntN(3) == 0 {
		b.spec.Inputs = input([]int{5, 5, 4000}[p.r.IntN(3)])
	}
	most := 6
	if p.w.plan.theme == themeFresh {
		most = 2
	}
	for i := range 1 + p.r.IntN(most) {
		b.jobs = append(b.jobs, p.inventJob(b, i, input))
	}
	b.first = len(b.jobs)
	if p.w.plan.gates {
		p.gate(b)
	}
	return b
}

// input makes an input up, some numbers, as often as it is said.
func (b *simBatch) input(r *rand.Rand) func(size int) []job.Input {
	return func(size int) []job.Input {
		text := strings.Repeat(fmt.Sprint(r.Uint64(), " "), size)
		sum := sumOf(text)
		b.mu.Lock()
		b.blobs[sum] = text
		b.mu.Unlock()
		return []job.Input{{Path: "in/data", Size: int64(len(text)), Mode: 0o644, Sum: sum}}
	}
}

// inputs is those of the batch and of these jobs of it.
func (b *simBatch) inputs(jobs []job.Job) []job.Input {
	all := slices.Clone(b.spec.Inputs)
	for _, j := range jobs {
		all = append(all, j.Inputs...)
	}
	return all
}

// inventJob makes the job with that number of a batch up.
func (p *person) inventJob(b *simBatch, i int, input func(size int) []job.Input) job.Job {
	seconds := []float64{0, 0.5, 3, 20, 100}[p.r.IntN(5)]
	if p.w.plan.theme == themeLimits && p.r.IntN(3) == 0 {
		seconds = 500 // it runs yet when the faults are over
	}
	exit := 0
	if p.r.IntN(8) == 0 {
		exit = 1
	}
	j := job.Job{Name: "j" + strconv.Itoa(i), Run: []string{"sim", fmt.Sprint(seconds * (1 + p.r.Float64())), strconv.Itoa(exit)}}
	if p.r.IntN(6) == 0 {
		j.Run = append(j.Run, "ws"+strconv.Itoa(p.r.IntN(3))) // where it fails if it does not everywhere
	}
	if i%3 == 1 {
		j.Capabilities = []string{"cpus>=1", "node=*"}
	} else if i%3 == 2 {
		j.Resources = &job.Resources{CPUs: b.spec.Resources.CPUs, Counted: "lic=1", GPUs: []job.GPUs{0, 500, 600, 1000}[p.r.IntN(4)]}
	}
	if times := p.r.IntN(8); times < 3 && b.spec.Retry == "" {
		j.Retries = &times
	}
	if len(b.spec.Inputs) == 0 && p.r.IntN(6) == 0 {
		j.Inputs = input(3)
	}
	return j
}

// gate has jobs of a batch wait for others of it.
func (p *person) gate(b *simBatch) {
	b.spec.Canary, b.spec.StopAfter = p.r.IntN(3), p.r.IntN(3)
	turn := p.r.Perm(len(b.jobs))
	for i := range b.jobs {
		for o := range b.jobs {
			if turn[o] < turn[i] && p.r.IntN(3) == 0 {
				b.jobs[i].Needs = append(b.jobs[i].Needs, b.jobs[o].Name)
			}
		}
	}
}

// before is the jobs that have to be done before a job: those that it needs, and,
// unless one of them needs it, the canaries.
func (b *simBatch) before(name string) (all []string) {
	needs := map[string][]string{}
	jobs := b.all()
	for _, j := range jobs {
		needs[j.Name] = j.Needs
	}
	var early func(name string) bool
	early = func(of string) bool { return of == name || slices.ContainsFunc(needs[of], early) }
	canaries := jobs[:min(b.spec.Canary, b.first)]
	if !slices.ContainsFunc(canaries, func(j job.Job) bool { return early(j.Name) }) {
		for _, j := range canaries {
			all = append(all, j.Name)
		}
	}
	return append(all, needs[name]...)
}

// live is what the person does until the faults are over.
func (p *person) live() {
	for _, b := range p.batches {
		p.wait(20 * time.Second)
		p.submits(b)
		for range 1 + p.r.IntN(8) {
			if p.wait(60 * time.Second); p.calm() {
				break
			}
			p.busy(b)
		}
	}
	for !p.calm() {
		p.wait(60 * time.Second)
		if n := len(p.batches); p.w.plan.verbs && n < 4 && p.r.IntN(8) == 0 || p.w.plan.theme == themeFresh && n < 6 {
			b := p.invent(job.NewBatchID("lab", fmt.Sprintf("%s.%d", p.name, n)))
			p.w.set(func() { p.batches = append(p.batches, b) })
			p.submits(b)
		}
		p.busy(p.batches[p.r.IntN(len(p.batches))])
	}
	for _, b := range p.batches {
		p.letGo(b)
	}
	if p.w.plan.verbs { // what an operator held meanwhile
		p.bringAll()
		p.sleep(4 * time.Minute)
		for _, b := range p.batches {
			p.letGo(b)
		}
		p.bringAll()
	}
}

// submits submits a batch until it is accepted.
func (p *person) submits(b *simBatch) {
	if p.w.plan.theme == themeFresh {
		early := &person{w: p.w, name: p.name, uid: p.uid, r: rand.New(rand.NewPCG(p.r.Uint64(), 1)), own: p.own}
		over := make(chan struct{})
		p.w.hands.Go(func() { defer close(over); early.hurries(b) })
		defer func() { <-over }()
	}
	for !b.accepted.Load() && p.w.ctx.Err() == nil {
		if err := p.once(func(c *ask.Head) error { return p.submit(c, b) }); err != nil {
			if p.refused(b, err); p.r.IntN(2) == 0 && errors.Is(err, syscall.ECONNREFUSED) && p.uid == os.Getuid() {
				p.leave(b)
			}
			p.wait(10 * time.Second)
		}
	}
}

// letGo releases all of a batch, until that is done: at the end nothing is held. One that
// was deleted may have come back with a backup, which may lack jobs that were added: then each
// is released alone.
func (p *person) letGo(b *simBatch) {
	if ids := p.idsOf(b.id); !p.releases(b, ids) && len(ids) > 1 {
		for _, id := range ids {
			p.releases(b, []job.ID{id})
		}
	}
}

// releases releases jobs of a batch, and reports whether the head has them all. It is wrong if
// that cannot be done within hours, as of a batch that a power cut has damaged.
func (p *person) releases(b *simBatch, ids []job.ID) bool {
	for since := time.Now(); b.accepted.Load() && p.w.ctx.Err() == nil; {
		err := p.once(func(h *ask.Head) error { return p.hold(h, "release", ids) })
		var own *wire.Error
		if err == nil || errors.As(err, &own) && own.Status == cli.NoSuch {
			return err == nil
		}
		p.refused(b, err)
		if time.Since(since) > 3*time.Hour {
			p.w.wrong("%s cannot release %s for three hours: %v", p.name, ids, err)
			return true
		}
		p.wait(10 * time.Second)
	}
	return true
}

// hold asks for a hold, or a release, of jobs of a batch.
func (p *person) hold(h *ask.Head, verb string, ids []job.ID) error {
	p.free(verb, ids)
	freeze := verb == "hold" && p.r.IntN(3) > 0
	p.w.act("%s asks to %s %s (what runs: %v)", p.name, verb, ids, freeze)
	args := &ask.Operands{}
	for _, id := range ids {
		args.Args = append(args.Args, string(id))
	}
	return h.Change(p.w.ctx, wire.Change{Verb: verb, Freeze: freeze}, args, func(id string) error {
		p.w.act("%s is told that %s of %s is done", p.name, verb, id)
		p.held(verb, job.ID(id), freeze)
		return nil
	})
}

// free notes that jobs may be released from now on.
func (p *person) free(verb string, ids []job.ID) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, id := range ids {
		f := p.w.fact(id)
		f.freed = f.freed || verb == "release"
	}
}

// held takes in that it was told that a job is held, or stands still.
func (p *person) held(verb string, id job.ID, freeze bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	f := p.w.fact(id)
	f.held = f.held || verb == "hold" && !freeze
	f.still = f.still || verb == "hold"
}

// all is the jobs of the batch, as far as they were accepted.
func (b *simBatch) all() []job.Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.jobs
}

// known is all and the jobs that may have been added, as far as he knows.
func (b *simBatch) known() []job.Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Concat(b.jobs, b.adding, b.perhaps)
}

// peer is the person as the head knows him.
func (p *person) peer() dial.Peer {
	return dial.Peer{UID: p.uid, User: p.name, Proven: true, Local: true}
}

func (p *person) calm() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.calm || p.w.ctx.Err() != nil
}

func (p *person) wait(longest time.Duration) { p.sleep(time.Duration(p.r.Int64N(int64(longest)))) }

func (p *person) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.w.ctx.Done():
	}
}

// once makes a session and does one thing in it.
func (p *person) once(do func(*ask.Head) error) error {
	ctx, cancel := context.WithTimeout(p.w.ctx, 3*time.Minute)
	defer cancel()
	stream, err := p.w.dialer(p.own, p.peer())(ctx, "sim://head")
	if err != nil {
		return err
	}
	c := wire.New(stream)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := wire.Greet(c, wire.Hello{Role: wire.RoleTool}); err != nil {
		return err
	}
	c.ReadWithin(2 * time.Minute)
	return do(&ask.Head{Conn: c, Addr: "sim://head"})
}

// refused looks at why something was not done: the head says "later", or
// nothing comes. What it was told to be there must not be unknown.
func (p *person) refused(b *simBatch, err error) {
	var own *wire.Error
	if !errors.As(err, &own) || own.Status == cli.Later || p.w.ctx.Err() != nil {
		return
	}
	p.w.mu.Lock()
	rolled, hurt := p.w.rolled || p.w.deleted[b.id] > 0 || b.left, own.Status != cli.NoSuch
	p.w.mu.Unlock()
	if !rolled && !(hurt && own.Status == cli.IO) && !inputsGone(own) {
		p.w.wrong("the head refuses %s (accepted: %v): status %d: %v", b.id, b.accepted.Load(), own.Status, err)
	}
}

// inputsGone reports whether the head refuses a change since the inputs of a closed batch are
// gone, as it may when its clock was in another century.
func inputsGone(err error) bool {
	refusal := (*wire.Error)(nil)
	return errors.As(err, &refusal) && refusal.Status == cli.Input && strings.Contains(refusal.Text, "its batch was over for longer than it keeps them")
}

// submit gives the batch to the head.
func (p *person) submit(h *ask.Head, b *simBatch) error {
	jobs := b.all()[:b.first] // others may have been added since it could be found
	p.w.offered(b)
	m, err := p.offer(h, b, &wire.Submit{Ref: b.ref, Batch: b.id}, jobs)
	if err != nil {
		return err
	}
	more := p.w.plan.theme == themeFresh && m.Jobs <= len(b.known())
	if m.Batch != b.id || m.Jobs != len(jobs) && !more {
		p.w.wrong("I18: %s with %d jobs is accepted as %s with %d", b.id, len(jobs), m.Batch, m.Jobs)
	}
	p.w.act("%s is accepted (the same: %v), %d jobs", b.id, m.Same, m.Jobs)
	b.accepted.Store(true)
	return nil
}

// offer submits jobs, and returns how they are accepted.
func (p *person) offer(h *ask.Head, b *simBatch, ask *wire.Submit, jobs []job.Job) (*wire.Accepted, error) {
	ask.Jobs = len(jobs)
	if err := h.Send(ask); err != nil {
		return nil, err
	}
	var lines []byte
	for i := range jobs {
		lines = append(job.AppendJob(lines, &jobs[i]), '\n')
	}
	spec, err := json.Marshal(b.spec)
	if err != nil {
		return nil, err
	}
	for i, part := range []struct{ of, text string }{{wire.OfBatch, "simulated\n"}, {wire.OfSpec, string(spec)}, {wire.OfJobs, string(lines)}} {
		err := h.SendTransfer(&wire.Send{X: uint64(i + 1), Of: part.of, Ref: ask.Ref}, func(w io.Writer) error {
			_, err := io.WriteString(w, part.text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	m, err := h.Recv()
	if err != nil {
		return nil, err
	}
	for lack, ok := m.(*wire.Lack); ok; lack, ok = m.(*wire.Lack) {
		if !lack.None {
			err = h.SendTransfer(&wire.Send{X: 4, Of: wire.OfInputs, Ref: ask.Ref}, func(w io.Writer) error {
				sizes := map[string]int64{}
				for _, in := range b.inputs(jobs) {
					sizes[in.Sum] = in.Size
				}
				return pack.Send(w, pack.Blobs(sizes), pack.Want(lack.Want), func(_ int, e pack.Entry) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader(b.blobs[e.Sum])), nil
				})
			})
			if err != nil {
				return nil, err
			}
		}
		if m, err = h.Recv(); err != nil {
			return nil, err
		}
	}
	switch m := m.(type) {
	case *wire.Accepted:
		return m, nil
	case *wire.Error:
		return nil, m
	}
	return nil, fmt.Errorf("%T is no answer", m)
}

// leave leaves the batch in incoming/, since no head answers. What was left is as
// good as accepted, if the machine was up all the time.
func (p *person) leave(b *simBatch) {
	p.w.mu.Lock()
	disk := p.w.head.disk
	p.w.mu.Unlock()
	s, err := spool.Open(disk.root)
	if err != nil {
		return
	}
	p.w.offered(b)
	err = s.Leave(spool.Drop{Submission: b.ref, Batch: b.id, Jobs: len(b.jobs)}, []byte("simulated\n"), &b.spec,
		func(yield func(*job.Job) bool) {
			for i := range b.jobs {
				j := b.jobs[i]
				if !yield(&j) {
					return
				}
			}
		}, func(sum string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(b.blobs[sum])), nil })
	p.w.mu.Lock()
	same := p.w.head.disk == disk
	p.w.mu.Unlock()
	if (err == nil || errors.Is(err, spool.ErrSame)) && same {
		p.w.act("%s is left in incoming/ (%v)", b.id, err)
		p.w.set(func() { b.left = true })
		b.accepted.Store(true)
	}
}

// busy does one thing about a batch.
func (p *person) busy(b *simBatch) {
	if p.folder != "" && p.r.IntN(6) == 0 {
		p.bring(false)
		return
	}
	err := p.once(func(h *ask.Head) error {
		jobs := b.all()
		id := b.id.Job(jobs[p.r.IntN(len(jobs))].Name)
		if done, err := p.themed(h, b, id); done {
			return err
		}
		if p.w.plan.verbs && p.r.IntN(2) == 0 {
			return p.verb(h, b)
		}
		switch x := p.r.IntN(16); {
		case x < 5:
			return p.query(h, b)
		case x == 15:
			return p.set(h, b)
		case x > 12:
			return p.hold(h, []string{"hold", "hold", "release"}[p.r.IntN(3)], []job.ID{id})
		case x > 9:
			return p.hold(h, []string{"hold", "hold", "release"}[p.r.IntN(3)], p.idsOf(b.id))
		case x < 6:
			return p.change(h, "cancel", id, job.Cancelled)
		case x < 7:
			return p.change(h, "retry", id, job.Queued)
		case x < 8 && p.r.IntN(10) == 0:
			return p.remove(h, b)
		default:
			return p.pull(h, id)
		}
	})
	if err != nil {
		p.refused(b, err)
	}
}

func (p *person) query(h *ask.Head, b *simBatch) error {
	gone, was := b.gone.Load(), map[job.ID]fact{} // what others are told meanwhile may be newer
	ids := p.idsOf(b.id)
	p.w.set(func() {
		for _, id := range ids {
			was[id] = *p.w.fact(id)
		}
	})
	return ask.Rows(p.w.ctx, h, wire.Query{Of: "jobs", All: true}, &ask.Operands{Args: []string{string(b.id)}}, func(r *job.Row) error {
		if gone && !p.w.isRolled() {
			p.w.wrong("I4: %s was said to be deleted, and there is %s", b.id, r.ID)
		}
		var clocks [2]time.Duration
		p.w.set(func() { clocks = p.w.clocks })
		for _, at := range []time.Time{r.Started, r.Ended, r.Submitted} {
			if !at.IsZero() && (at.Before(p.w.began.Add(clocks[0]-time.Minute)) || at.After(time.Now().Add(clocks[1]))) {
				p.w.wrong("times of %s are not of the head's clock: submitted %v, started %v, ended %v", r.ID, r.Submitted, r.Started, r.Ended)
			}
		}
		state := r.State
		if r.Phase == job.PhaseStopping || r.Phase == job.PhaseStuck && strings.HasPrefix(r.Reason, "cancelled") {
			state = job.Cancelled // but that its processes are there
		}
		p.w.toldSince(was[r.ID], r.ID, state)
		p.w.mu.Lock()
		another := b.priority != nil && r.Priority != *b.priority && !p.w.rolled && p.w.deleted[b.id] == 0
		p.w.mu.Unlock()
		if another {
			p.w.wrong("I4: the priority of %s was said to be %d, and is said to be %d", r.ID, *b.priority, r.Priority)
		}
		return nil
	})
}

// set asks for another priority and another bound of a batch.
func (p *person) set(h *ask.Head, b *simBatch) error {
	priority, most, limit := p.r.IntN(5)-2, p.r.IntN(4), []int64{0, 3600, 7200}[p.r.IntN(3)]
	if p.w.plan.theme == themeLimits {
		limit = simLimits[p.r.IntN(len(simLimits))]
	}
	b.priority = nil
	p.w.act("%s asks to set the priority of %s to %d, and its bound to %d", p.name, b.id, priority, most)
	change := wire.Change{Verb: "set", Set: &job.Set{Priority: &priority, MaxRunning: &most, Time: &limit}}
	err := h.Change(p.w.ctx, change, &ask.Operands{Args: []string{string(b.id)}}, func(string) error {
		b.priority = &priority
		return nil
	})
	if b.unsure = b.unsure || err != nil; b.unsure {
		b.priority = nil
	}
	return err
}

// change asks for a change of a job. That it is told to be made is one of the
// things that stay true.
func (p *person) change(h *ask.Head, verb string, id job.ID, to job.State) error {
	with := []job.ID{id}
	if p.w.plan.gates { // and perhaps of those that it needs
		with = p.idsOf(id.Batch())
	}
	p.w.mu.Lock()
	for _, one := range with {
		if f := p.w.fact(one); verb == "retry" {
			f.retried = true
			f.retries++
		} else {
			f.cancels = true
		}
	}
	p.w.mu.Unlock()
	p.w.act("%s asks to %s %s", p.name, verb, id)
	return h.Change(p.w.ctx, wire.Change{Verb: verb}, &ask.Operands{Args: []string{string(id)}}, func(s string) error {
		p.w.act("%s is told that %s of %s is done", p.name, verb, s)
		if !slices.Contains(with, job.ID(s)) || verb != "retry" && job.ID(s) != id {
			p.w.wrong("a change of %s changed %s", id, s)
		}
		if to.Over() {
			p.w.told(id, to)
		}
		return nil
	})
}

// idsOf is the ids of the jobs of a batch of the person's.
func (p *person) idsOf(id job.BatchID) (all []job.ID) {
	for _, b := range p.w.allBatches() {
		if b.id != id {
			continue
		}
		for _, j := range b.all() {
			all = append(all, b.id.Job(j.Name))
		}
	}
	return all
}

// remove deletes the batch if it is over.
func (p *person) remove(h *ask.Head, b *simBatch) error {
	p.w.act("%s asks to delete %s", p.name, b.id)
	var early bool // its submission is under way
	p.w.set(func() {
		p.w.doomed[b.id] = true
		p.w.deleted[b.id]++
		if early = !b.accepted.Load() || b.left; early {
			p.w.madeAgain(b)
		}
	})
	r, err := h.Answer(p.w.ctx, &wire.Change{Ref: job.NewToken(), Verb: "delete", Args: []string{string(b.id)}})
	if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status != cli.Later && refusal.Status != cli.IO {
		p.w.set(func() { p.w.deleted[b.id]-- })
	}
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var d wire.Deletion
	switch {
	case len(text) == 0 || json.Unmarshal(text, &d) != nil:
	case strings.Contains(d.Why, " not over (dcancel"):
		p.w.set(func() { p.w.deleted[b.id]-- })
	case d.Why == "":
		p.w.act("%s is told that %s is deleted", p.name, b.id)
		p.w.set(func() { b.gone.Store(!early || !p.w.madeAgain(b)) })
	}
	return nil
}

// fact is what is known of a job; it needs mu.
func (w *world) fact(id job.ID) *fact {
	f := w.facts[id]
	if f == nil {
		f = &fact{}
		w.facts[id] = f
	}
	return f
}

// told takes in that somebody was told the state of a job. What was told before
// must still be true (I4, I7), and what is held is never started.
func (w *world) told(id job.ID, s job.State) {
	w.mu.Lock()
	f := *w.fact(id)
	w.mu.Unlock()
	w.toldSince(f, id, s)
}

// toldSince is told of who asked when so much was known.
func (w *world) toldSince(before fact, id job.ID, s job.State) {
	w.mu.Lock()
	f := w.fact(id)
	was, retried, asked := before.state, f.retried, f.cancels || w.plan.gates || w.rolled
	started := before.held && s.Logged() == job.Running || (before.held || before.still) && s == job.Queued
	started = started && !f.freed && !f.retried
	if s.Over() {
		f.state = s
	}
	w.mu.Unlock()
	if s == job.Cancelled && !asked {
		w.wrong("I4: %s is said to be cancelled, and nobody has asked for that", id)
	}
	if started {
		w.wrong("I4: %s was said to be held, nobody released it, and it is said to be %s", id, s)
	}
	if was == job.Done && s != job.Done || was.Over() && was != s && !retried {
		w.wrong("I4: %s was said to be %s, and is said to be %s", id, was, s)
	}
}

// pulled is a result as it comes.
type pulled struct {
	m     pack.Manifest
	files map[string]string
}

// Put takes one entry.
func (p *pulled) Put(_ int, e pack.Entry, _ int64, r io.Reader) error {
	if e.Type != pack.File {
		return nil
	}
	b, err := io.ReadAll(r)
	p.files[e.Path] = string(b)
	return err
}

// sees reports whether the person may see a batch for certain: of others' the modes of the
// spool decide.
func (p *person) sees(id job.BatchID) bool {
	return p.mayAll() || slices.ContainsFunc(p.batches, func(b *simBatch) bool { return b.id == id })
}

// pull brings a result home and looks at it.
func (p *person) pull(h *ask.Head, id job.ID) error {
	if err := h.Send(&wire.Pull{Ref: job.NewToken(), ID: string(id)}); err != nil {
		return err
	}
	s, err := wire.Expect[*wire.Send](h.Conn)
	if own := (*wire.Error)(nil); errors.As(err, &own) && own.Status == cli.NoSuch {
		p.w.mu.Lock()
		done := p.w.fact(id).state == job.Done && p.w.deleted[id.Batch()] == 0 && p.sees(id.Batch())
		p.w.mu.Unlock()
		if done {
			p.w.wrong("I2: %s was said to be done, and there is no result: %v", id, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	got := &pulled{files: map[string]string{}}
	if got.m, err = pack.DecodeManifest(h.RecvTransfer(s), pack.DefaultLimits()); err != nil {
		return err
	}
	if err := h.Send(&wire.Pick{}); err != nil {
		return err
	}
	if s, err = wire.Expect[*wire.Send](h.Conn); err != nil {
		return err
	}
	in := h.RecvTransfer(s)
	if err := errors.Join(pack.Receive(in, got.m, pack.Want{}, got), wire.Drain(in)); err != nil {
		return err
	}
	p.w.result(id, got.files)
	return nil
}

// result takes in the result of a job: it is what one of its attempts left,
// whole, and it never changes (I1, I2).
func (w *world) result(id job.ID, files map[string]string) {
	text := files["result.txt"]
	word := strings.Fields(text)
	w.mu.Lock()
	var r *simRun
	if len(word) == 3 {
		r = w.runs[job.Token(word[1])]
	}
	f := w.fact(id)
	before := f.token
	if r != nil {
		f.token = r.token
	}
	w.mu.Unlock()
	switch {
	case r == nil || r.job != id:
		w.wrong("I2: the result of %s is %q", id, text)
	case !r.ok:
		w.wrong("I2: the result of %s is of attempt %s, which did not end well", id, r.token)
	case text != r.text || files[r.at] != r.more || files[id.Name()+"_output.txt"] != r.text || len(files) != 3:
		w.wrong("I2: the result of %s is not what attempt %s left: %q", id, r.token, files)
	case before != "" && before != r.token:
		w.wrong("I1: the result of %s was of attempt %s and is of %s", id, before, r.token)
	}
}
