package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// errStopped says that an attempt was stopped before it had begun.
var errStopped = errors.New("stopped before it began")

// smallManifest is how many entries a manifest may have that is kept in memory
// until it is sent.
const smallManifest = 64

// tries is how often an attempt is prepared before the node gives it back.
const tries = 3

// tryAfter is how long the node waits after the first try; after the second it waits twice
// as long.
var tryAfter = 2 * time.Second

// live takes an attempt from where it is on disk to its result. It returns
// early, and leaves all as it is, when the daemon is at its end.
func (n *daemon) live(ctx context.Context, a *attempt) {
	defer func() {
		if a.pinned != nil {
			n.desk.Unpin(a.pinned...)
		}
	}()
	end := func() error { return n.finish(a) }
	if a.started || !n.desk.ThisBoot(a.Attempt) {
		n.recall(ctx, a)
	} else {
		end = n.fresh(ctx, a)
	}
	err := end()
	for wait, restored := time.Second, 0; err != nil && !n.atEnd(ctx); wait = min(2*wait, time.Minute) {
		switch {
		case n.desk.MakeRoom(err):
			err = end()
			continue
		case ofDisk(err):
		case restored < restores:
			restored++
			n.Log.Warn("the directory of an attempt is not as it was, and is made anew", "job", a.Job, "attempt", a.Token, "why", err)
			if err = a.Restore(); err == nil {
				err = end()
			}
			continue
		case inDir(a.Dir, err):
			n.unkept(a, err)
			return
		}
		n.Log.Error("the end of an attempt cannot be kept on disk; trying again", "job", a.Job, "attempt", a.Token, "why", err)
		select {
		case <-time.After(wait):
			err = end()
		case <-n.over:
			return
		}
	}
}

// restores is how often the directory of one attempt is made anew.
const restores = 3

// ofDisk says that an error comes of the disk, or of want, and passes.
func ofDisk(err error) bool {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// inDir says that an error is of what is in a directory, or of the directory itself.
func inDir(dir string, err error) bool {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return strings.HasPrefix(e.Path, dir)
	}
	e := (*os.LinkError)(nil)
	return errors.As(err, &e) && strings.HasPrefix(e.New, dir)
}

// unkept ends an attempt whose end cannot be kept here, however often that is tried.
func (n *daemon) unkept(a *attempt, why error) {
	n.Log.Error("the end of an attempt cannot be kept", "job", a.Job, "attempt", a.Token, "why", why)
	r := &job.Result{Lost: a.status == nil}
	if a.status != nil {
		r.Outcome = n.outcome(a, a.status)
	}
	r.Reason = clean("nothing of it can be kept on its node: " + reason(why))
	n.do(func() { n.ended(a, r) })
}

// recall finds what an attempt that an earlier daemon started needs of the
// cache and of the disk.
func (n *daemon) recall(ctx context.Context, a *attempt) {
	b, err := n.desk.Build(a.Job.Batch(), n.builder(a), a.Spec)
	if err != nil || a.Work == nil {
		return
	}
	a.pinned = [][]job.Input{b.Spec.Inputs, a.Work.Inputs, b.Image()}
	n.desk.Pin(a.pinned...)
	if s, err := a.Started(); err == nil {
		a.savedBytes = s.Saved
	}
	need := n.needs(ctx, a, b)
	n.do(func() {
		a.base, a.writes, a.open = need.copies, need.writes, !b.Spec.Private
		if a.has != nil {
			a.has.asked, a.has.never, a.has.saves = a.resources(&b.Spec).Memory > 0, b.Spec.Retry == job.Never, b.Spec.Checkpoint != nil
			n.watchMemory()
		}
	})
	tell(n.nowNews)
}

// atEnd says whether the daemon is at its end. Before the state's goroutine
// says so the context of an attempt does, if it was not cancelled by a stop.
func (n *daemon) atEnd(ctx context.Context) bool {
	select {
	case <-n.over:
		return true
	default:
		return ctx.Err() != nil && !stops(ctx)
	}
}

func linger(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// fresh prepares an attempt and runs it. What keeps it from being started is
// tried again a few times; then the attempt is given back. It returns what makes
// its end durable and known, to be called until it succeeds.
func (n *daemon) fresh(ctx context.Context, a *attempt) (end func() error) {
	back := func(why error) func() error { return func() error { return n.giveBack(a, why) } }
	for try := 1; ; try++ {
		begun, st, err := n.tryOnce(ctx, a)
		var failed *buildError
		var refusal *wire.Error
		var tooMuch *tooMuchError
		var cannot *cannotError
		var lacks *noRoomError
		var barred *barredError
		switch {
		case begun:
			a.status = st
			return func() error { return n.finish(a) }
		case n.atEnd(ctx):
			return func() error { return err }
		case ctx.Err() == nil && errors.Is(err, errPaused):
			return back(errPaused)
		case ctx.Err() != nil || errors.Is(err, errStopped):
			return back(errStopped)
		case errors.As(err, &failed):
			return func() error { return n.buildFailed(a, failed) }
		case errors.As(err, &cannot):
			return func() error {
				return n.keep(a, &job.Result{Outcome: job.Outcome{Reason: cannot.why}}, nil, false)
			}
		case errors.As(err, &lacks), errors.As(err, &barred):
			return back(err)
		case full(err):
			return back(&noRoomError{why: reason(err)})
		case errors.As(err, &tooMuch), errors.As(err, &refusal) || try == tries:
			return back(err)
		}
		n.Log.Warn("an attempt cannot be prepared; trying again", "job", a.Job, "attempt", a.Token, "why", err)
		n.do(func() { n.letPass(a, true) })
		linger(ctx, time.Duration(try)*tryAfter)
		if err := a.Sweep(); err != nil {
			return back(err)
		}
	}
}

// tryOnce prepares an attempt and runs it; begun says that it may have run, and
// st how it ended, if the supervisor has told.
func (n *daemon) tryOnce(ctx context.Context, a *attempt) (begun bool, st *proc.Status, err error) {
	n.warden.lookFirst(ctx)
	if err := n.whose(ctx, a); err != nil {
		return false, nil, err
	}
	b, err := n.fetchAll(ctx, a)
	if err != nil {
		return false, nil, err
	}
	if err := n.fetchSaved(ctx, a, b); err != nil {
		return false, nil, err
	}
	if len(b.Spec.Build) > 0 {
		if err := n.built(ctx, a, b); err != nil {
			return false, nil, err
		}
		// What it left is known only now.
		if err := n.roomFor(ctx, a, n.needs(ctx, a, b), false); err != nil {
			return false, nil, err
		}
	}
	n.do(func() {
		a.open = !b.Spec.Private
		n.letPass(a, false)
	})
	started, err := n.prepare(ctx, a, b)
	if err != nil {
		return false, nil, err
	}
	asked := a.resources(&b.Spec)
	if asked.GPUs > 0 {
		n.lookAtCards(ctx)
	}
	want, err := n.shareOf(a.cpus, asked, a.GPUs...)
	if err != nil {
		return false, nil, err
	}
	want.batch, want.never, want.saves = a.Job.Batch(), b.Spec.Retry == job.Never, b.Spec.Checkpoint != nil
	n.measureFirst()
	got, slot, err := n.acquire(ctx, a.seq, want)
	if err != nil {
		return false, nil, err
	}
	defer func() { n.release(a, got, slot) }()
	n.do(func() { a.has, a.pid = got, slot.Pid() })
	n.warden.lookFirst(ctx)
	got.note(started)
	started.Time = asked.Time
	o := n.order(a, b, got)
	o.Limits = got.limits(asked)
	if begun, st, slot, err = n.start(ctx, a, o, started, slot); begun && st == nil {
		// The cpus are free again only when nothing of the tree is left.
		err = n.settle(a)
	}
	return begun, st, err
}

// settle waits until nothing of an attempt's tree is left.
func (n *daemon) settle(a *attempt) error {
	ctx, cancel := n.untilOver()
	defer cancel()
	_, err := n.status(ctx, a)
	return err
}

// prepare makes the directory that the job runs in.
func (n *daemon) prepare(ctx context.Context, a *attempt, b *desk.Build) (*desk.Started, error) {
	for _, dir := range []string{a.WorkDir(), a.Tmp()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	work, err := os.OpenRoot(a.WorkDir())
	if err != nil {
		return nil, err
	}
	defer work.Close()
	if len(b.Spec.Build) > 0 {
		if err := copyTree(ctx, work, b.Tree(), identity(ownerOf(a.account))); err != nil {
			return nil, err
		}
	}
	s := &desk.Started{Kind: b.Spec.Kind, Cgroup: n.cgroup, As: ownerOf(a.account), Saved: a.savedBytes}
	for _, part := range []struct {
		inputs []job.Input
		keep   bool
	}{{b.Spec.Inputs, true}, {a.Work.Inputs, false}} {
		shared, at, err := n.desk.Place(work, part.inputs, part.keep)
		if err != nil {
			return nil, err
		}
		s.Shared, s.At = append(s.Shared, shared...), append(s.At, at...)
	}
	if b.Spec.Kind != job.Command {
		if err := work.MkdirAll("input", 0o755); err != nil {
			return nil, err
		}
		if err := errors.Join(work.RemoveAll(saveDir), work.Mkdir(saveDir, 0o755)); err != nil {
			return nil, err
		}
	}
	if b.Spec.Kind == job.Apptainer {
		at, err := n.desk.PlaceImage(a.Attempt, *b.Spec.Image)
		if err != nil {
			return nil, err
		}
		if err := makeMounts(work, &b.Spec); err != nil {
			return nil, err
		}
		s.Shared, s.At = append(s.Shared, *b.Spec.Image), append(s.At, at)
	}
	if err := s.As.Give(a.WorkDir()); err != nil {
		return nil, err
	}
	if b.Spec.Kind == job.Command {
		if err := a.Record(); err != nil {
			return nil, err
		}
	}
	// What was saved is none of what was there before: all of it comes home again.
	if err := n.lay(a, b.Spec.Kind, s.As); err != nil {
		return nil, err
	}
	return s, s.As.Open(a.Dir, "work", "tmp")
}

// copyTree copies what a build left into a job's directory, as far as who built
// it may read that.
func copyTree(ctx context.Context, dst *os.Root, tree string, as *proc.Identity) error {
	src, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = pack.Copy(ctx, dst, src, as.Do)
	return err
}

// start gives the attempt to a supervisor and waits until that is done with it.
// It returns the supervisor if it can be used again.
func (n *daemon) start(ctx context.Context, a *attempt, o *proc.Order, s *desk.Started, slot Slot) (bool, *proc.Status, Slot, error) {
	if err := a.SetStarted(s); err != nil {
		return false, nil, slot, err
	}
	stopped := true
	n.do(func() {
		if a.back = a.back || n.pause.frozen; a.back {
			return
		}
		if stopped = a.stopped || a.held; !stopped {
			a.started, a.running, a.room = true, true, 0
			n.meter.begun++
			a.begun = n.meter.begun
			n.watchMemory()
			if a.limit = s.Time; a.asked != nil {
				n.lengthen(a, *a.asked)
			}
			n.setPhase(a, n.runPhase(a))
			tell(n.nowNews)
			n.watchDisk()
			n.watchCards()
			n.warden.stir()
			n.pump()
		}
	})
	if stopped {
		return false, nil, slot, errStopped
	}
	st, slot, err := n.supervise(ctx, slot, o, string(a.Job), func() { n.setPhase(a, wire.Stuck) })
	if err != nil {
		// In this order: nobody is to believe that it runs.
		err = errors.Join(err, a.Unstart())
		n.do(func() { a.started, a.running, a.back = false, false, a.back || errors.Is(err, errPaused) })
		return false, nil, slot, err
	}
	return true, st, slot, nil
}

// order is how a job is run.
func (n *daemon) order(a *attempt, b *desk.Build, s *share) *proc.Order {
	argv := a.Work.Run
	if b.Spec.Kind == job.Python {
		argv = append([]string{"python3"}, append(argv[:len(argv):len(argv)], strconv.Itoa(a.cpus))...)
	}
	id := a.Job
	env := append(n.jobEnv(a.account, s, a.WorkDir(), a.Tmp()),
		"DISTRIBUTE_NAMESPACE="+id.Batch().Namespace(), "DISTRIBUTE_BATCH="+id.Batch().Name(), "DISTRIBUTE_ID="+string(id), "DISTRIBUTE_JOB="+id.Name())
	set, path := job.Environ(b.Spec.Env, a.Work.Env), n.Path
	if b.Spec.Kind == job.Apptainer {
		c := n.container()
		argv, env = n.containerArgv(c, a, &b.Spec, s), c.env(env, set, a)
	} else {
		env, path = withSet(env, set, path)
	}
	return &proc.Order{
		Dir: a.Dir, Token: string(a.Token), Argv: argv, Path: path, Cwd: a.WorkDir(), Output: a.Output(),
		Cgroup: n.cgroup, Grace: grace, As: identity(ownerOf(a.account)),
		Pause: n.pausing.ask(a.Token), Checkpoint: checkpointOf(&b.Spec),
		Env: env,
	}
}

// withSet is an environment with what a batch sets in it, and where programs are looked
// for then.
func withSet(env, set []string, path string) ([]string, string) {
	if own, ok := job.ParamOf(set, "PATH"); ok {
		path = own
	}
	return job.Environ(env, set), path
}

// jobEnv is the environment that builds and jobs have in common; the
// supervisor adds the attempt.
func (n *daemon) jobEnv(acc *account.Account, s *share, work, tmp string) []string {
	return append(append(n.env(acc), s.env()...),
		"DISTRIBUTE_NODE="+string(n.Name), "DISTRIBUTE_CPUS="+strconv.Itoa(s.cpus),
		"DISTRIBUTE_MEMORY="+strconv.FormatInt(s.memory, 10),
		"DISTRIBUTE_INPUT="+filepath.Join(work, "input"), "DISTRIBUTE_SAVE="+filepath.Join(work, saveDir),
		"OMP_NUM_THREADS="+strconv.Itoa(s.cpus), "TMPDIR="+tmp)
}

// finish waits for an attempt that may have started, unless how it ended is
// known, and packs what it left.
func (n *daemon) finish(a *attempt) (err error) {
	// A stop must not end the wait: it is for the supervisor.
	ctx, cancel := n.untilOver()
	defer cancel()
	st := a.status
	if st == nil {
		st, err = n.status(ctx, a)
		if err != nil && !errors.Is(err, errNotBegun) {
			return err
		}
		a.status = st
		n.do(func() {
			if a.running = false; a.adopted {
				a.adopted = false
				n.giveUp(a, a.share)
				n.pump()
			}
		})
	}
	if err != nil {
		return n.giveBack(a, err)
	}
	if st == nil {
		return n.keep(a, &job.Result{Lost: true, Outcome: job.Outcome{Reason: "its supervisor or its node went down under it"}}, nil, false)
	}
	if st.Wall >= worthFrom {
		n.do(func() { n.setPhase(a, wire.Returning) })
	}
	select {
	case n.packing <- struct{}{}:
		defer func() { <-n.packing }()
	case <-n.over:
		return context.Canceled
	}
	r := &job.Result{Outcome: n.outcome(a, st)}
	if lacks := n.explain(a, r, st); lacks != "" && !n.wasStopped(a) {
		return n.noContainer(a, lacks)
	}
	if st.Stopped == proc.StoppedSignal && !n.wasStopped(a) {
		r.Lost, r.Reason = true, "its node was going down"
	}
	if st.Evicted && !n.wasStopped(a) {
		r.Evicted, r.Saved = true, st.Exit != nil && *st.Exit == proc.Checkpointed
	}
	n.do(func() { n.ranOut(a, st, r) })
	m, err := n.gather(ctx, a, r)
	if err != nil {
		return err
	}
	return n.keep(a, r, m, st.Wall >= worthFrom || r.Saved)
}

func (n *daemon) wasStopped(a *attempt) (stopped bool) {
	n.do(func() { stopped = a.stopped })
	return stopped
}

// status is how the attempt's processes ended, nil if nobody knows. It returns
// only when none of them lives.
func (n *daemon) status(ctx context.Context, a *attempt) (*proc.Status, error) {
	if err := n.Machine.AwaitFree(ctx, a.Dir); err != nil {
		return nil, err
	}
	if !n.desk.ThisBoot(a.Attempt) {
		return nil, nil
	}
	st, err := proc.ReadStatus(a.Dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return st, err
	}
	s, err := a.Started()
	if err != nil {
		return nil, err
	}
	release, left, err := n.Machine.Reclaim(ctx, a.Dir, string(a.Token), s.Cgroup)
	if err != nil {
		return nil, err
	}
	// Under the lock, so that a supervisor that comes late finds it given up.
	defer release()
	if st, err := proc.ReadStatus(a.Dir); err == nil {
		return st, nil
	}
	n.Log.Warn("the supervisor of an attempt died", "job", a.Job, "attempt", a.Token, "processes_left", left)
	if err := proc.Void(a.Dir); err != nil || left != proc.NotBegun {
		return nil, err
	}
	return nil, errNotBegun
}

// errNotBegun says that a supervisor died with an order of which nothing ran.
var errNotBegun = errors.New("its supervisor died before it had begun")

// untilOver is a context that lives as long as the daemon.
func (n *daemon) untilOver() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-n.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// outcome is what the head is told of a status.
func (n *daemon) outcome(a *attempt, st *proc.Status) job.Outcome {
	o := job.Outcome{Exit: st.Exit, Reason: st.Error, Started: st.Started, Ended: st.Ended,
		Runtime: st.Wall.Seconds(), CPUTime: (st.User + st.System).Seconds(), MemoryPeak: st.Memory, Cache: st.Cache, Written: st.Written, Paused: st.Paused.Seconds(),
		Signal: st.SignalName()}
	if why := limitReached(st); why != "" {
		o.Reason = why
	}
	if st.Stopped == proc.StoppedOrder || st.Stopped == proc.StoppedSignal {
		why := ""
		n.do(func() { why = a.why })
		if o.Reason = "stopped"; why != "" {
			o.Reason = job.ReasonStopped + why
		}
	}
	return o
}

// giveBack ends an attempt that never ran.
func (n *daemon) giveBack(a *attempt, why error) error {
	reason := why.Error()
	if errors.Is(why, errStopped) {
		n.do(func() {
			if a.why != "" {
				reason = "stopped: " + a.why
			}
		})
	}
	paused := false
	n.do(func() {
		if paused = (a.back && errors.Is(why, errStopped) || errors.Is(why, errPaused)) && !a.stopped && !a.still; paused {
			reason = n.pausedReason()
		} else if a.still {
			reason = "its job is held"
		}
	})
	n.Log.Info("attempt given back", "job", a.Job, "attempt", a.Token, "why", reason)
	var lacks *noRoomError
	var barred *barredError
	return n.keep(a, &job.Result{Unstarted: true, NodePaused: paused, NoRoom: errors.As(why, &lacks), Barred: errors.As(why, &barred), Outcome: job.Outcome{Reason: reason}}, nil, false)
}

// buildFailed ends an attempt whose batch could not be built here; what the
// build printed goes home with it.
func (n *daemon) buildFailed(a *attempt, failed *buildError) error {
	return n.unable(a, fmt.Sprintf("build failed on %s: %s", n.Name, failed.why), failed.output)
}

// unable ends an attempt of a batch whose jobs cannot run here; what was printed goes
// home with it.
func (n *daemon) unable(a *attempt, why, output string) error {
	if err := os.MkdirAll(a.Extra(), 0o700); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(a.Extra(), job.BuildOutput), output); err != nil {
		return err
	}
	r := &job.Result{BuildFailed: true, Outcome: job.Outcome{Reason: why}}
	m, err := n.gatherExtra(a, r)
	if err != nil {
		return err
	}
	return n.keep(a, r, m, false)
}

// keep notes that an attempt is over, and tells. The reason may have words of the
// job in it, of any length. What is worth it is made durable at once, beside what
// the head does.
func (n *daemon) keep(a *attempt, r *job.Result, m pack.Manifest, worth bool) error {
	r.Reason, r.Skipped = clean(r.Reason), clean(r.Skipped)
	if m != nil {
		r.Manifest, r.Entries, r.Bytes = m.Sum(), len(m), m.Bytes()
		for _, e := range m {
			if e.Type == pack.File {
				r.Files++
			}
		}
	}
	a.Spent()
	if err := a.SetResult(r, m, false); err != nil {
		return err
	}
	if len(m) <= smallManifest {
		a.small = m
	}
	n.do(func() {
		n.ended(a, r)
		if worth {
			n.settleNow(a)
		} else {
			n.settleLater(a)
		}
	})
	return nil
}
