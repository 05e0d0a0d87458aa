package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/proc"
	"distribute/lib/sched"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// A head is what the node of this process takes for its head: one batch, decided on
// by the same machine as on a real one, and no spool. Its fields belong to the
// goroutine of run, but for what is guarded.
type head struct {
	*runner
	dir     string // of this run
	machine *sched.Machine
	began   time.Time
	asks    []sched.Ask
	spec    []byte
	specSum string

	in    chan func()
	over  chan struct{}
	hands sync.WaitGroup // who serves streams

	logs    *logs
	session *session
	closed  bool
	paused  bool
	failed  error // of a disk: nothing more is begun
	unsaid  error // of stdout
	running map[job.Token]bool
	told    map[uint32]bool
	bad     int               // jobs that did not end well
	places  map[job.ID]int    // how many attempts have a place
	last    map[uint32]string // the place of what its last attempt has left
	backs   map[uint32]int    // how often an attempt could not be begun
	ill     []uint32          // jobs of which that is to be the end

	mu    sync.Mutex // guards homes
	homes map[job.Token]pack.Manifest
}

const batchNumber = 1

// thisMachine is what the machine that decides calls the node.
const thisMachine = "this machine"

// before is for how long the machine believes to have been running already: what it
// says of nodes that may still come is of no use where there is one.
const before = time.Hour

// newHead makes the machine that decides, with the batch in it.
func newHead(r *runner, offer node.Offer) (*head, error) {
	h := &head{runner: r, began: time.Now(), in: make(chan func()), over: make(chan struct{}), told: map[uint32]bool{}, running: map[job.Token]bool{},
		places: map[job.ID]int{}, last: map[uint32]string{}, backs: map[uint32]int{}, homes: map[job.Token]pack.Manifest{}}
	h.logs = newLogs(h)
	var err error
	if h.spec, err = json.Marshal(&r.b.Spec); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(h.spec)
	h.specSum = hex.EncodeToString(sum[:])
	var names []string
	var needs [][]string
	again := make([]uint8, len(r.b.Jobs))
	for i := range r.b.Jobs {
		j := &r.b.Jobs[i]
		names, needs = append(names, j.Name), append(needs, j.Needs)
		asked, often := r.b.Spec.Resources, r.b.Spec.Retries
		if j.Resources != nil {
			asked = *j.Resources
		}
		if j.Retries != nil {
			often = *j.Retries
		}
		h.asks = append(h.asks, sched.AskOf(asked, j.Capabilities))
		again[i] = uint8(min(max(0, often), job.MaxRetries))
	}
	who, errs := job.ResolveNeeds(names, needs)
	if len(errs) > 0 {
		return nil, cli.Errorf(cli.Input, "%w", job.NeedErrors(errs))
	}
	h.machine = sched.New(sched.Config{})
	h.machine.Apply(sched.AddBatch{Batch: batchNumber, ID: r.b.ID(), Owner: os.Getuid(), Spec: &r.b.Spec, Jobs: len(r.b.Jobs),
		Asks: h.asks, Again: again, Needs: who, Name: func(i int) string { return r.b.Jobs[i].Name }, Once: r.b.Spec.Retry == job.Never}, 0)
	return h, nil
}

// do has the state's goroutine call f, and waits for that, unless the run is over.
func (h *head) do(f func()) {
	done := make(chan struct{})
	select {
	case h.in <- func() { f(); close(done) }:
		<-done
	case <-h.over:
	}
}

// apply tells the machine what has happened and does what it says.
func (h *head) apply(ev sched.Event) {
	now := time.Duration(0)
	if _, first := ev.(sched.Loaded); !first {
		now = before + time.Since(h.began)
	}
	var ended []sched.Log
	actions := slices.Clone(h.machine.Apply(ev, now))
	for _, a := range append(actions, h.machine.Decide(now)...) {
		if l, ok := a.(sched.Log); ok {
			ended = append(ended, l)
		}
		h.act(a)
	}
	for i := range ended {
		h.tell(&ended[i])
	}
	for len(h.ill) > 0 {
		i := h.ill[0]
		h.ill = h.ill[1:]
		h.apply(sched.Cancel{Ref: sched.Ref{Batch: batchNumber, Job: i}, Request: job.NewToken(), Reason: "it cannot be begun here"})
	}
}

// mostBacks is how often an attempt may come back that could not be begun: on a head
// it would wait for another node, or for somebody who mends this one.
const mostBacks = 3

// act does one thing that was decided.
func (h *head) act(a sched.Action) {
	switch a := a.(type) {
	case sched.Start:
		j := &h.b.Jobs[a.Ref.Job]
		h.running[a.Attempt] = true
		h.say(&wire.Start{Attempt: a.Attempt, Job: h.b.ID().Job(j.Name), Try: a.Try, CPUs: a.CPUs, GPUs: a.GPUs, Spec: h.specSum, Saved: a.Saved})
	case sched.Keep:
		h.say(&wire.Keep{Attempt: a.Attempt, Still: a.Still})
	case sched.Stop:
		h.say(&wire.Stop{Attempt: a.Attempt, Why: a.Why})
	case sched.Recall:
		h.say(&wire.Stop{Attempt: a.Attempt, Unstarted: true})
	case sched.Have:
		if h.keep { // the node never hears that it may remove it
			s := a.Session
			go h.do(func() { h.apply(sched.Gone{Session: s, Attempt: a.Attempt}) })
			return
		}
		h.say(&wire.Have{Attempt: a.Attempt})
	case sched.Forget:
		h.say(&wire.Forget{Attempt: a.Attempt})
	case sched.Grant:
		h.say(&wire.Grant{Attempt: a.Attempt, Manifest: true})
	case sched.Publish:
		if err := h.publish(a); err != nil {
			h.fail(err)
		}
	case sched.Closed:
		h.closed = true
	case sched.Refuse:
		h.fail(fmt.Errorf("the node is refused: %s", a.Why))
	}
}

// fail ends the run for what went wrong first: its jobs are ended, too, and nothing is
// removed.
func (h *head) fail(err error) {
	if h.failed == nil {
		h.failed = err
	}
}

func (h *head) say(m wire.Message) {
	if h.session != nil {
		h.session.put(m)
	}
}

// home is where results are until they have their places.
func (h *head) home() string { return filepath.Join(h.dir, "home") }

// publish gives a result its place: that of the job, or if it is none of a job that
// is done the next one with a number that is free. What stands there stays.
func (h *head) publish(p sched.Publish) error {
	id := h.b.ID().Job(h.b.Jobs[p.Ref.Job].Name)
	from, to := filepath.Join(h.home(), string(p.Attempt)), string(id)
	if !h.quiet {
		h.logs.ended(p.Attempt, id.Name(), from)
	}
	if err := os.MkdirAll(filepath.Join(h.out, string(h.b.ID())), 0o777); err != nil {
		return err
	}
	if !p.Out {
		for h.places[id]++; ; h.places[id]++ {
			to = id.Try(h.places[id])
			if _, err := os.Lstat(filepath.Join(h.out, to)); errors.Is(err, os.ErrNotExist) {
				break
			}
		}
	}
	h.last[p.Ref.Job] = to
	if err := h.free(job.ID(to)); err != nil {
		return err
	}
	return os.Rename(from, filepath.Join(h.out, to))
}

// cancelAll gives up what is not over.
func (h *head) cancelAll(why string) {
	request := job.NewToken()
	for i := range h.b.Jobs {
		h.apply(sched.Cancel{Ref: sched.Ref{Batch: batchNumber, Job: uint32(i)}, Request: request, Reason: why})
	}
}

// cancelUnfit gives up what could never run here, of which the machine knows when
// the node has said what it offers.
func (h *head) cancelUnfit() {
	request := job.NewToken()
	for i := range h.b.Jobs {
		if why := h.machine.Impossible(&h.b.Spec, h.asks[i]); why != "" {
			h.apply(sched.Cancel{Ref: sched.Ref{Batch: batchNumber, Job: uint32(i)}, Request: request, Reason: "it cannot run here: " + why})
		}
	}
}

// tell says what a record means to who waits.
func (h *head) tell(l *sched.Log) {
	if l.Ref.Job >= uint32(len(h.b.Jobs)) {
		return
	}
	rec, id := &l.Rec, h.b.ID().Job(h.b.Jobs[l.Ref.Job].Name)
	switch rec.Kind {
	case job.KindBack:
		h.back(l.Ref.Job, id, rec)
		return
	case job.KindDone, job.KindFailed, job.KindCancelled:
	default:
		return
	}
	if h.told[l.Ref.Job] {
		return
	}
	h.told[l.Ref.Job] = true
	place := h.last[l.Ref.Job]
	if rec.Kind != job.KindDone {
		h.bad++
		text := why(rec)
		if !strings.HasPrefix(text, string(rec.Kind)+" ") {
			text = string(rec.Kind) + ": " + text
		}
		text = string(id) + ": " + text
		if place != "" {
			text += "; see " + h.printed(place, h.b.Jobs[l.Ref.Job].Name)
		}
		h.c.Talk("%s", text)
	}
	if place != "" {
		if _, err := fmt.Fprintln(h.c.Stdout, place); err != nil && h.unsaid == nil {
			h.unsaid = err
		}
	}
}

// printed is the file with what was printed by an attempt, or by its build if that
// failed.
func (h *head) printed(place, name string) string {
	file := filepath.Join(h.out, place, job.OutputName(name))
	if _, err := os.Stat(file); err != nil {
		return filepath.Join(h.out, place, job.BuildOutput)
	}
	return file
}

// back says that an attempt came to nothing and its job waits again.
func (h *head) back(i uint32, id job.ID, rec *job.Record) {
	if !rec.Fate.Unstarted() && rec.Fate != job.FateBuildFailed {
		h.c.Talk("%s: %s; it is tried again", id, why(rec))
		return
	}
	h.backs[i]++
	switch {
	case rec.Reason == "" || h.paused:
	case h.backs[i] < mostBacks:
		h.c.Talk("%s: %s; it is tried again", id, why(rec))
	case h.backs[i] == mostBacks:
		h.c.Talk("%s: %s", id, why(rec))
		h.ill = append(h.ill, i)
	}
}

// why is how an attempt ended, in words.
func why(rec *job.Record) string {
	switch {
	case rec.Reason != "":
		return rec.Reason
	case rec.Signal != "":
		return rec.Signal
	case rec.Exit != nil:
		return fmt.Sprintf("exit %d", *rec.Exit)
	}
	return "nothing is known of why"
}

// verdict is what it comes to.
func (h *head) verdict() error {
	if h.bad > 0 {
		return cli.Errorf(cli.No, "%s of %d not done", unit.Count(h.bad, "job"), len(h.b.Jobs))
	}
	return nil
}

// ordered prints the command of each run, for who keeps its directory.
func (h *head) ordered(o *proc.Order) {
	if h.keep {
		fmt.Fprintln(h.c.Stderr, shell(o))
	}
}
