package main

import (
	"context"
	"errors"
	"fmt"

	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/inventory"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/proc"
	"distribute/lib/sched"
)

// A runner is what the command line asks for.
type runner struct {
	c       *cli.Cmd
	b       *job.Batch // nil: nothing is to be done
	head    *ask.Head  // that knows the batch; nil: a file does
	has     []string   // capabilities that this machine has besides those found
	out     string     // below which results come
	keep    bool
	quiet   bool
	verbose bool
}

// here is what this machine has for jobs, as a node would find it.
func (r *runner) here(ctx context.Context, dir string) (noded.Settings, error) {
	path := r.c.Getenv("PATH")
	source := inventory.Here(path, len(proc.CPUs()))
	in, err := source.Take(ctx, &inventory.File{Capabilities: r.has, Keep: inventory.Keep{NoMemory: true}})
	if err != nil {
		return noded.Settings{}, err
	}
	caps, err := desk.DefaultCaps(dir)
	if err != nil {
		return noded.Settings{}, err
	}
	free, err := desk.SpaceAt(dir)
	if err != nil {
		return noded.Settings{}, err
	}
	in.Offer.Disk = max(0, free.Free-caps.Reserve)
	name := in.Name
	if in.NameErr != nil {
		name = "here"
	}
	name = name[:min(len(name), 80)]
	var env []string
	for _, k := range []string{"PATH", "HOME", "LANG", "USER"} {
		if v := r.c.Getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	log := slog.New(slog.DiscardHandler)
	if r.verbose {
		log = r.c.Log(false)
	}
	return noded.Settings{
		Name:  name + node.Name(".drun-"+strconv.Itoa(os.Getpid())), // its cgroup is no daemon's
		Offer: in.Offer, Most: in.Most, Dir: filepath.Join(dir, "node"), Caps: &caps,
		CardUsers: source.Cards().Users, Env: env, Path: path, Log: log, Addr: dir,
	}, nil
}

// dry says what would be done.
func (r *runner) dry(ctx context.Context) error {
	s, err := r.here(ctx, existing(r.out))
	if err != nil {
		return err
	}
	h, err := newHead(r, s.Offer)
	if err != nil {
		return err
	}
	h.apply(sched.Loaded{})
	h.apply(sched.NodeUp{Session: 1, Node: thisMachine, Boot: "-", State: "-", Offer: s.Offer.Bounded()})
	h.cancelUnfit()
	bad := h.verdict()
	for i := range r.b.Jobs {
		id := r.b.ID().Job(r.b.Jobs[i].Name)
		err := r.free(id)
		bad = errors.Join(bad, err)
		if err != nil || h.machine.State(sched.Ref{Batch: batchNumber, Job: uint32(i)}).Over() {
			continue
		}
		if _, err := fmt.Fprintln(r.c.Stdout, id); err != nil {
			return err
		}
	}
	return bad
}

// existing is dir, or the next above it that is there.
func existing(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for {
		if _, err := os.Stat(abs); err == nil || abs == "/" {
			return abs
		}
		abs = filepath.Dir(abs)
	}
}

// free says why a job's result has no place: there is one already.
func (r *runner) free(id job.ID) error {
	place := filepath.Join(r.out, string(id))
	if _, err := os.Lstat(place); err == nil {
		return cli.Errorf(cli.Input, "%s is there already: remove it, or name another place with -o", place)
	}
	return nil
}

// all runs every job of the batch.
func (r *runner) all(ctx context.Context) (err error) {
	var taken []error
	for i := range r.b.Jobs {
		if err := r.free(r.b.ID().Job(r.b.Jobs[i].Name)); err != nil && len(taken) < 10 {
			taken = append(taken, err)
		}
	}
	if len(taken) > 0 {
		return errors.Join(taken...)
	}
	if err := os.MkdirAll(r.out, 0o777); err != nil {
		return err
	}
	made, err := os.MkdirTemp(r.out, ".drun-")
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(made)
	if err != nil {
		return err
	}
	h, s, err := r.ready(ctx, dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, h.clear(s.Name)) }()
	s.Dial, s.Ordered = h.dial, h.ordered
	return h.run(ctx, s)
}

// ready makes what runs the batch, below dir.
func (r *runner) ready(ctx context.Context, dir string) (*head, noded.Settings, error) {
	if r.head != nil {
		inputs := filepath.Join(dir, "inputs")
		if err := os.Mkdir(inputs, 0o700); err != nil {
			return nil, noded.Settings{}, err
		}
		if err := r.fetch(ctx, inputs); err != nil {
			return nil, noded.Settings{}, err
		}
	}
	s, err := r.here(ctx, dir)
	if err != nil {
		return nil, s, err
	}
	h, err := newHead(r, s.Offer)
	if err != nil {
		return nil, s, err
	}
	h.dir = dir
	return h, s, nil
}

// clear removes what is left of the run but for what is to be kept, and what could not
// be brought to its place.
func (h *head) clear(name node.Name) error {
	if dir, _, err := proc.WouldContain(string(name), filepath.Join(h.dir, "node")); err == nil {
		os.Remove(dir) // it is empty, or somebody else's
	}
	if h.failed != nil {
		return cli.Errorf(cli.IO, "what jobs left that has no place yet lies below %s: take it from there, and remove that", h.dir)
	}
	if h.keep {
		return errors.Join(os.RemoveAll(h.home()), os.RemoveAll(filepath.Join(h.dir, "inputs")))
	}
	return os.RemoveAll(h.dir)
}

// patience is for how long a run that has failed waits for the end of its jobs.
const patience = time.Minute

// run has a node of this process run the batch to its end. A signal cancels what is
// not over; then it returns when nothing of it runs any more.
func (h *head) run(ctx context.Context, s noded.Settings) error {
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- noded.Run(living, s) }()
	h.apply(sched.Loaded{})
	clock := time.NewTicker(time.Second / 2)
	defer clock.Stop()
	interrupted := ctx.Done()
	var late <-chan time.Time // of a run that has failed
	for !h.closed && (h.failed == nil || len(h.running) > 0) {
		if h.failed != nil && late == nil {
			late = time.After(patience)
			h.cancelAll("the run failed")
			continue
		}
		select {
		case f := <-h.in:
			f()
		case <-clock.C:
			h.apply(sched.Tick{})
		case <-interrupted:
			interrupted = nil
			h.cancelAll("interrupted")
		case <-late:
			clear(h.running) // what does not answer
		case err := <-ended:
			close(h.over)
			err = errors.Join(err, errors.New("the node ended before its jobs"))
			if len(h.running) > 0 {
				h.fail(err) // of them nothing is removed
			}
			return err
		}
	}
	close(h.over)
	stop()
	err := <-ended
	h.hands.Wait()
	if err := errors.Join(h.failed, err); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(h.unsaid, h.verdict())
}
