package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/noded"
	"distribute/lib/proc"
	"distribute/lib/query"
	"distribute/lib/sched"
	"distribute/lib/timing"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// A running is a batch in a lab.
type running struct {
	*runner
	dir       string               // of this run, below that of the results
	pull      ask.Puller           // to the directory home of this run
	left      int                  // jobs that are not over
	bad       int                  // jobs that are over and not done
	late      []job.Row            // jobs that were cancelled when they ran
	build     ask.Lines            // of the build
	prints    map[string]*printing // of attempts that run
	place     string               // of the last result that was put
	failed    error                // a result has no place, or the lab has ended
	unprinted error                // a place could not be printed
	given     map[job.ID]bool      // jobs that are on the node
	idle      atomic.Bool          // no job is on the node
	fruitless int                  // how often jobs came back for want of room since one began to run or ended
	full      error                // the disk has no room for any job
}

// maxFruitless is how often jobs are tried for which the disk has no room, while none of the
// others gives any back.
const maxFruitless = 2

// errOver ends the head's answer.
var errOver = errors.New("all jobs are over")

// run runs the batch in a lab below the directory for results.
func (r *runner) run(ctx context.Context) (err error) {
	if err = desk.CheckPath(r.out); err != nil {
		return cli.Errorf(cli.Input, "-o: %w", err)
	}
	err = os.MkdirAll(r.out, 0o777)
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(r.out, ".drun-")
	}
	if err != nil {
		return fmt.Errorf("nothing can be written in the directory of -o, %q: %w", r.out, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	f := &running{runner: r, dir: dir, left: len(r.b.Jobs), prints: map[string]*printing{}, given: map[job.ID]bool{}}
	var kept func(*proc.Order)
	if r.keep {
		kept = func(o *proc.Order) { fmt.Fprintln(r.Stderr, o.Shell()) }
	}
	if err = f.Start(ctx, dir, kept); err == nil {
		err = f.submit(ctx)
	}
	if err == nil {
		err = f.follow(ctx)
	}
	unclosed := f.Close(r.keep || f.failed != nil)
	err = errors.Join(err, unclosed)
	switch {
	case f.failed != nil:
		where := dir
		if !strings.HasPrefix(f.Spool, dir) {
			where += " and " + f.Spool
		}
		return errors.Join(f.failed, cli.Errorf(cli.IO, "what jobs left that has no place yet lies below %s: take it from there, and remove that", where))
	case r.keep:
		fmt.Fprintf(r.Stderr, "%s # kept, as is %s\n", msg.Shell("dquery", "-H", f.Spool, string(r.b.ID())), f.Node)
		return err
	}
	if unclosed != nil { // something stays, as what a job has mounted
		return errors.Join(err, cli.Errorf(cli.IO, "%s stays with it: remove it afterwards", dir))
	}
	return errors.Join(err, desk.RemoveAll(dir))
}

// submit gives the batch to the head of the lab.
func (f *running) submit(ctx context.Context) error {
	if f.from != nil {
		inputs := filepath.Join(f.dir, "inputs")
		if err := os.Mkdir(inputs, 0o700); err != nil {
			return err
		}
		if err := errors.Join(f.from.Inputs(ctx, f.Cmd, f.b, inputs), f.from.Close()); err != nil {
			return err
		}
	}
	h, err := ask.Dial(ctx, f.Cmd, f.Spool)
	if err != nil {
		return err
	}
	defer h.Close()
	_, _, err = h.Submit(ctx, f.Cmd, f.b, wire.Submit{Ref: job.NewToken()})
	return err
}

// follow waits until all jobs are over, prints what they print and brings their results.
// When ctx ends it cancels them.
func (f *running) follow(ctx context.Context) error {
	home := filepath.Join(f.dir, "home")
	if err := os.Mkdir(home, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	f.build = ask.Lines{Cmd: f.Cmd, Head: f.Spool, Name: "build", Over: len(f.b.Spec.Build) == 0}
	f.pull = ask.Puller{Cmd: f.Cmd, Head: f.Spool, Root: root, Brought: f.put}
	h, err := ask.Dial(f.Over, f.Cmd, f.Spool)
	if err != nil {
		return err
	}
	defer h.Close()
	defer context.AfterFunc(ctx, func() { f.cancel("interrupted") })()
	f.idle.Store(true)
	defer f.tellWaiting()()
	err = ask.Rows(f.Over, h, wire.Query{Of: "jobs", All: true, Follow: true}, &ask.Operands{Args: []string{string(f.b.ID())}}, f.row)
	if len(f.late) > 0 && f.failed == nil {
		select {
		case <-f.Done:
		case <-f.Over.Done():
		}
	}
	for i := range f.late {
		f.ended(&f.late[i])
	}
	switch {
	case err != errOver:
		f.failed = cmp.Or(f.failed, context.Cause(f.Over), err)
	case ctx.Err() != nil:
		return ctx.Err()
	case f.full != nil:
		return f.full
	case f.bad > 0 && f.failed == nil:
		return errors.Join(f.unprinted, cli.Errorf(cli.No, "%s of %d not done", unit.Count(f.bad, "job"), len(f.b.Jobs)))
	}
	return f.unprinted
}

// waitingEvery is how often is asked why no job begins.
var waitingEvery = timing.Wait(10 * time.Second)

// tellWaiting prints why no job begins, as when others use the GPUs, whenever that changes, until
// the function that it returns is called.
func (f *running) tellWaiting() (end func()) {
	ctx, cancel := context.WithCancel(f.Over)
	done := make(chan struct{})
	go func() {
		defer close(done)
		told := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(waitingEvery):
			}
			if why := f.waiting(ctx); why != "" && why != told && f.idle.Load() {
				f.Talk("no job begins: %s", why)
				told = why
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// waiting returns why a job waits; "" if none does, or that is not known.
func (f *running) waiting(ctx context.Context) (why string) {
	if !f.idle.Load() {
		return ""
	}
	h, err := ask.Dial(ctx, f.Cmd, f.Spool)
	if err != nil {
		return "" // the batch is followed, which tells of it
	}
	defer h.Close()
	ask.Rows(ctx, h, wire.Query{Of: "causes", All: true, Notes: true}, &ask.Operands{Args: []string{string(f.b.ID())}}, func(c *query.Cause) error {
		if c.State == job.Queued {
			why = cmp.Or(why, c.Reason)
		}
		return nil
	})
	return why
}

// cancel gives all jobs up.
func (f *running) cancel(why string) {
	h, err := ask.Dial(f.Over, f.Cmd, f.Spool)
	if err == nil {
		err = h.Change(f.Over, wire.Change{Verb: "cancel", Reason: why}, &ask.Operands{Args: []string{string(f.b.ID())}}, func(string) error { return nil })
		h.Close()
	}
	if err != nil {
		f.End(err)
	}
}

// fail gives all jobs up since a result has no place.
func (f *running) fail(err error) {
	if f.failed == nil {
		f.failed = err
		f.cancel("the run failed")
	}
}

// row takes what has become of a job.
func (f *running) row(r *job.Row) error {
	defer func() { f.idle.Store(len(f.given) == 0) }()
	attempt := r.ID.Try(r.Attempt)
	switch {
	case r.State == job.Running:
		f.given[r.ID] = true
		if r.Phase == job.PhaseRunning {
			f.fruitless = 0
		}
		f.show(r, attempt)
	case r.State == job.Paused:
		f.Talk("%s: paused: %s", r.ID, r.Reason)
	case r.State == job.Stranded:
		f.fail(cli.Errorf(cli.IO, "%s: %s", r.ID, r.Reason))
	case r.State == job.Queued && r.Attempt > 0:
		f.shown(attempt)
		came := f.given[r.ID]
		delete(f.given, r.ID)
		switch {
		case r.Reason == sched.ReasonBuild, r.Reason == sched.ReasonAhead: // it fails, or has not begun yet
		case strings.Contains(r.Reason, noded.NoRoom):
			if came {
				f.noRoom(r)
			}
		default:
			f.Talk("%s: tried again: %s", r.ID, r.Reason)
		}
	case r.State.Over():
		f.fruitless = 0
		delete(f.given, r.ID)
		f.shown(attempt)
		if r.State == job.Cancelled && r.Attempt > 0 { // what it has left comes later
			f.late = append(f.late, *r)
		} else {
			f.ended(r)
		}
		if f.left--; f.left == 0 {
			return errOver
		}
	}
	return nil
}

// noRoom takes in that a job came back since the disk has no room for it. It cancels all jobs
// if that happens again and again while no other job is on the node.
func (f *running) noRoom(r *job.Row) {
	f.fruitless++
	switch why := r.Reason[strings.Index(r.Reason, noded.NoRoom)+len(noded.NoRoom):]; {
	case f.full != nil || len(f.given) > 0:
	case f.fruitless >= maxFruitless:
		f.full = f.NoRoom(fmt.Sprintf("%s %s", r.ID, why))
		f.cancel("the disk has no room")
	case f.fruitless == 1:
		f.Talk("%s: no room on the disk: %s; tried again", r.ID, why)
	}
}

// A printing is what an attempt prints.
type printing struct {
	ask.Lines
	cut  context.CancelFunc // ends the following of it
	done chan struct{}      // is closed then
}

// show follows what an attempt prints.
func (f *running) show(r *job.Row, attempt string) {
	if f.prints[attempt] != nil || f.Given("q") {
		return
	}
	ctx, cut := context.WithCancel(f.Over)
	p := &printing{ask.Lines{Cmd: f.Cmd, Head: f.Spool, Name: r.ID.Name()}, cut, make(chan struct{})}
	f.prints[attempt] = p
	go func() {
		defer close(p.done)
		p.Follow(ctx, &f.build, attempt)
	}()
}

// shown shows what is left of what an attempt printed that is over.
func (f *running) shown(attempt string) {
	if p := f.prints[attempt]; p != nil {
		delete(f.prints, attempt)
		p.cut()
		<-p.done
		p.Rest(f.Over, &f.build, attempt)
	}
}

// ended brings what a job has left that is over, and tells of it.
func (f *running) ended(r *job.Row) {
	f.place = ""
	if f.failed == nil {
		f.pull.Another()
		f.pull.Progress = f.Progress("pulling", 0, unit.FormatBytes)
		err := f.pull.Pull(f.Over, &ask.Operands{Args: []string{string(r.ID)}}, func() {})
		f.pull.Progress.Done()
		if err := errors.Join(append(f.pull.Problems, err)...); err != nil {
			f.fail(err)
		}
	}
	if r.State != job.Done {
		f.bad++
		text := cmp.Or(r.Reason, r.Signal)
		if text == "" && r.Exit != nil {
			text = fmt.Sprintf("exit %d", *r.Exit)
		}
		if !strings.HasPrefix(text, r.State.String()+" ") {
			text = strings.TrimSuffix(r.State.String()+": "+text, ": ")
		}
		if f.place != "" {
			text += "; see " + filepath.Join(f.out, f.place)
		}
		f.Talk("%s: %s", r.ID, text)
	}
	if f.place != "" {
		if _, err := fmt.Fprintln(f.Stdout, f.place); err != nil {
			f.unprinted = fmt.Errorf("results are in their places, and these cannot be printed: %w", err)
		}
	}
}

// put puts a result that was brought in its place. What an attempt of a job that is not
// done has left gets the next number that is free.
func (f *running) put(id string) error {
	batch, name, try, err := job.ParseID(id)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(f.out, string(batch)), 0o777); err != nil {
		return err
	}
	for place := id; ; place = batch.Job(name).Try(try) {
		err := durable.Publish(filepath.Join(f.dir, "home", id), filepath.Join(f.out, place))
		if err == nil {
			f.place = place
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
		if try++; try == 1 {
			return cli.Errorf(cli.Input, "%s is there already", filepath.Join(f.out, place))
		}
	}
}
