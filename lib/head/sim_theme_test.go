package head

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
	"distribute/spool"
)

// The theme of a history makes few of the things frequent that people and machines can do, so
// that they meet each other in a history that is short. Without a theme people only submit,
// ask, hold, cancel, retry and pull.
const (
	themeAll     = "everything"
	themeNodes   = "nodes"   // an operator drains, removes, accepts and gives up nodes all the time
	themeNames   = "names"   // nodes get other names, while they have jobs
	themeCluster = "cluster" // jobs are taken to a cluster
	themeHolds   = "holds"   // jobs wait for others, which are held, cancelled and tried again
	themeClosed  = "closed"  // batches that are closed are asked about, tried again and deleted
	themeStarts  = "starts"  // jobs are never started twice, and the head dies when it starts them
	themeCopies  = "copies"  // directories of nodes are copied, and put back to older states
	themeLimits  = "limits"  // jobs reach their limits of time, which are changed
	themeFresh   = "fresh"   // batches are changed before they are accepted, on a slow disk
)

var themes = []string{"", "", themeAll, themeNodes, themeNames, themeCluster, themeHolds, themeHolds, themeClosed, themeStarts, themeFresh, themeLimits, themeCopies}

// themed does one of the things about a batch that the theme of the history makes frequent.
func (p *person) themed(h *ask.Head, b *simBatch, id job.ID) (done bool, err error) {
	x := p.r.IntN(8)
	switch {
	case p.r.IntN(3) == 0:
		return false, nil
	case p.w.plan.theme == themeLimits && x < 4:
		return true, p.set(h, b)
	case p.w.plan.theme == themeHolds && x < 2:
		return true, p.holdsBehind(h, b)
	case p.w.plan.theme == themeHolds && x < 3:
		some := p.idsOf(b.id)
		return true, p.hold(h, "hold", some[p.r.IntN(len(some)):])
	case p.w.plan.theme == themeHolds && x < 6:
		return true, p.change(h, "cancel", id, job.Cancelled)
	case p.w.plan.theme == themeHolds, p.w.plan.theme == themeClosed && x < 2:
		return true, p.change(h, "retry", id, job.Queued)
	case p.w.plan.theme == themeClosed && x < 4:
		return true, p.dry(h, b, id)
	case p.w.plan.theme == themeClosed && x < 6:
		if err = p.dry(h, b, id); err == nil {
			err = p.remove(h, b)
		}
		return true, err
	}
	return false, nil
}

// holdsBehind holds a job that needs others, and cancels one of these.
func (p *person) holdsBehind(h *ask.Head, b *simBatch) error {
	jobs := b.all()
	for _, i := range p.r.Perm(len(jobs)) {
		if needs := jobs[i].Needs; len(needs) > 0 {
			if err := p.hold(h, "hold", []job.ID{b.id.Job(jobs[i].Name)}); err != nil {
				return err
			}
			return p.change(h, "cancel", b.id.Job(needs[p.r.IntN(len(needs))]), job.Cancelled)
		}
	}
	return nil
}

// themedHarm does one of the things that the theme of the history makes frequent.
func (w *world) themedHarm(n *simNode, until func(time.Duration, func())) (done bool) {
	x := w.r.IntN(8)
	switch {
	case w.plan.verbs && w.r.IntN(40) == 0:
		w.bare()
	case w.plan.theme == themeNames && x < 2:
		w.rename(n, until)
	case w.plan.theme == themeClosed && x < 2:
		w.pauses(n, until, true)
	case w.plan.theme == themeCopies && x < 3:
		w.copies(n, until)
	case w.plan.theme == themeLimits && x < 2:
		w.pauses(n, until, w.r.IntN(3) == 0)
	case w.plan.theme == themeFresh && x < 4:
		w.slowDisk("head", until)
	case w.plan.theme == themeStarts && x < 2: // a start is in the log, and its node was not told
		w.ambushAt(&trap{"head", "/log.jsonl", true, make(chan struct{})}, n, until)
	default:
		return false
	}
	return true
}

// bare takes the empty directories out of the spool, as a copy of it may lack them.
func (w *world) bare() {
	w.act("the spool loses its empty directories")
	root := w.head.disk.root
	w.set(func() { w.bared = true })
	for _, glob := range []string{"trash", "batches/*/*/staging", "batches/*/*/attempts", "batches/*/*/manifests", "batches/*/*/out"} {
		names, _ := filepath.Glob(filepath.Join(root, glob))
		for _, name := range names {
			os.Remove(name) // that is not empty stays
		}
	}
}

// stepClock sets the clock of the head forwards or back.
func (w *world) stepClock(*simNode, func(time.Duration, func())) {
	off := []time.Duration{0, time.Minute, -time.Hour, 20 * time.Hour, 20000 * time.Hour, -20000 * time.Hour}[w.r.IntN(6)]
	w.act("the clock of the head is off by %v", off)
	w.setClock(off)
}

// setClock sets by how much the clock of the head is off.
func (w *world) setClock(off time.Duration) {
	w.set(func() { w.clock, w.clocks = off, [2]time.Duration{min(w.clocks[0], off), max(w.clocks[1], off)} })
}

// headTime is the time of day as the head has it.
func (w *world) headTime() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.clock)
}

// isBare reports whether the spool was ever a copy without its empty directories.
func (w *world) isBare() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bared
}

// gatesHold checks that no job of a batch is held for ever: one that needs a job which was
// cancelled is cancelled too.
func (w *world) gatesHold(b *simBatch, states map[string]job.State) {
	for _, j := range b.known() {
		for _, need := range j.Needs {
			if states[j.Name] == job.Held && states[need] == job.Cancelled {
				w.wrong("%s of %s is held, and needs %s, which was cancelled", j.Name, b.id, need)
			}
		}
	}
}

// startsAtRest checks that no job that is never started twice was given up for an attempt
// that never began, and that its node could tell so.
func (w *world) startsAtRest(s *spool.Spool, b *simBatch) {
	if b.spec.Retry != job.Never || b.spec.Build != nil {
		return
	}
	_, err := s.Events(b.id, 0, -1, func(rec *job.Record) error {
		w.mu.Lock()
		r := w.runs[rec.Attempt]
		w.mu.Unlock()
		if slices.ContainsFunc(w.nodes, func(n *simNode) bool { return n.wiped }) {
			return nil // its directory may have been there when dsched ended, and not when it came back
		}
		if rec.Kind == job.KindFailed && rec.Fate == job.FateLost && r == nil && strings.Contains(rec.Reason, " came back without it") {
			w.wrong("%s of %s has failed, and attempt %s never began: %s", rec.Job, b.id, rec.Attempt, rec.Reason)
		}
		return nil
	})
	if err != nil {
		w.wrong("the log of %s: %v", b.id, err)
	}
}

// askedAgain asks of every batch what a retry would be, which opens those that are closed: all
// of them are closed again.
func (w *world) askedAgain() {
	p := w.operator()
	for _, b := range w.allBatches() {
		if err := p.once(func(h *ask.Head) error { return p.would(h, "retry", string(b.id)) }); err != nil && !w.isDeleted(b.id) {
			w.wrong("%s cannot be asked about at the end: %v", b.id, err)
		}
	}
	w.sleep(5 * time.Minute)
	if !w.allOver() {
		w.stuckJobs()
		return
	}
	w.openedAgain(p)
}

// openedAgain has jobs added and tried again while no node takes any, and cancels them: their batches
// are closed again, though no result ever comes.
func (w *world) openedAgain(p *person) {
	all := func(verb string) {
		for _, n := range w.nodes {
			if err := p.say(verb, node.Name(n.name)); err != nil {
				w.wrong("%s of %s at the end: %v", verb, n.name, err)
			}
		}
	}
	all("drain")
	for _, b := range w.allBatches() {
		if w.isDeleted(b.id) {
			continue
		}
		b.of.once(func(h *ask.Head) error { // one that has stopped is refused
			_, err := b.of.offer(h, b, &wire.Submit{Ref: job.NewToken(), Batch: b.id, Add: true}, []job.Job{{Name: "late", Run: []string{"sim", "0", "0"}}})
			return err
		})
		for _, verb := range []string{"retry", "cancel"} {
			if err := p.once(func(h *ask.Head) error {
				return h.Change(w.ctx, wire.Change{Verb: verb}, &ask.Operands{Args: []string{string(b.id)}}, func(string) error { return nil })
			}); err != nil && !inputsGone(err) {
				w.wrong("%s of %s at the end: %v", verb, b.id, err)
			}
		}
	}
	w.sleep(5 * time.Minute)
	if !w.allOver() {
		w.stuckJobs()
	}
	all("resume")
}

// would asks of which jobs a change would be.
func (p *person) would(h *ask.Head, verb, arg string) error {
	err := h.Change(p.w.ctx, wire.Change{Verb: verb, Dry: true}, &ask.Operands{Args: []string{arg}}, func(string) error { return nil })
	if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && (refusal.Status == cli.NoSuch || refusal.Status == cli.Input) {
		return nil
	}
	return err
}

// lastBatch checks that a batch comes to its end after all others were deleted.
func (w *world) lastBatch() {
	p := w.operator()
	b := &simBatch{of: p, id: job.NewBatchID("lab", "last"), ref: job.NewToken(), first: 1, jobs: []job.Job{{Name: "j", Run: []string{"sim", "1", "0"}}}, spec: job.Spec{Kind: job.Command}}
	for tries := 0; !b.accepted.Load(); tries++ {
		if err := p.once(func(h *ask.Head) error { return p.submit(h, b) }); err != nil && tries == 20 {
			w.wrong("no batch can be submitted at the end: %v", err)
			return
		}
		w.sleep(10 * time.Second)
	}
	var state job.State
	for range 20 {
		w.sleep(time.Minute)
		p.once(func(h *ask.Head) error {
			return ask.Rows(w.ctx, h, wire.Query{Of: "jobs", All: true}, &ask.Operands{Args: []string{string(b.id)}}, func(r *job.Row) error {
				state = r.State
				return nil
			})
		})
		if state.Over() {
			break
		}
	}
	if state != job.Done {
		w.wrong("the last batch is %s", state)
	}
	if err := p.once(func(h *ask.Head) error { return p.remove(h, b) }); err != nil || !b.gone.Load() {
		w.wrong("the last batch is not deleted (%v)", err)
	}
}

// operator is somebody who may do everything.
func (w *world) operator() *person {
	return &person{w: w, name: "ana", uid: os.Getuid(), r: rand.New(rand.NewPCG(w.r.Uint64(), 1)), own: &owner{host: "ana"}}
}
