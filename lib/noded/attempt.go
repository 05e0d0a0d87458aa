package noded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// errStopped says that an attempt was stopped before it had begun.
var errStopped = errors.New("stopped before it began")

// tries is how often an attempt is prepared before the node gives it back.
const tries = 3

// tryAfter is how long the node waits after the first try; after the second it waits twice
// as long.
var tryAfter = 2 * time.Second

// An attemptRun is an attempt as its own goroutine has it, which calls live. No other one
// uses these fields.
type attemptRun struct {
	*attempt
	account    *account.Account // as which it runs; nil: the daemon's user
	pinned     [][]job.Input    // what the cache keeps for it
	saved      pack.Manifest    // the files of an earlier attempt with which it goes on
	savedBytes int64            // that these take of the disk
	savedFiles int64            // and inodes
	secrets    job.Secrets      // values for its environment, which are nowhere on the disk
	status     *proc.Status     // how it ended, if its supervisor told or that was read; nil: not known
}

// pin keeps the inputs of an attempt in the cache until unpin.
func (n *daemon) pin(a *attemptRun, b *desk.Build) {
	n.pinLists(a, b.Spec.Inputs, a.Work.Inputs, b.Image())
}

// pinLists keeps inputs for an attempt instead of those that are kept for it now.
func (n *daemon) pinLists(a *attemptRun, lists ...[]job.Input) {
	was := a.pinned
	n.desk.Pin(lists...)
	n.desk.Unpin(was...)
	a.pinned = lists
}

// unpin takes that back. It comes before it is told that the attempt is over: who waits
// for room then looks what of the cache can go.
func (n *daemon) unpin(a *attemptRun) {
	n.desk.Unpin(a.pinned...)
	a.pinned = nil
}

// live takes an attempt from where it is on disk to its result. It returns
// early, and leaves all as it is, when the daemon is at its end.
func (n *daemon) live(ctx context.Context, a *attemptRun) {
	defer func() {
		n.unpin(a)
		n.do(n.trim)
	}()
	end := func() error { return n.finish(a) }
	if a.began() || !n.desk.ThisBoot(a.Attempt) {
		n.recall(ctx, a)
	} else {
		end = n.fresh(ctx, a)
	}
	n.toEnd(ctx, a, end)
}

// recall finds what an attempt that an earlier daemon started needs of the
// cache and of the disk.
func (n *daemon) recall(ctx context.Context, a *attemptRun) {
	b, err := n.desk.Build(a.Job.Batch(), n.builder(a.User), a.Spec)
	if err != nil || a.Work == nil {
		return
	}
	n.pin(a, b)
	if s := a.Started(); s != nil {
		a.savedBytes, a.savedFiles = s.Saved, s.SavedFiles
	}
	need := n.needs(ctx, a, b)
	n.do(func() {
		a.disk = diskUse{need.writes, need.writes, need.copies, need.files}
		if s := a.Started(); s != nil && s.Base > 0 {
			a.disk.base = s.Base
		}
		if a.has != nil {
			a.has.setBatch(a.Job.Batch(), &b.Spec)
			n.watchMemory()
		}
	})
	if a.has != nil {
		for _, p := range a.has.beside {
			p.on.do(func() {
				p.share.setBatch(a.Job.Batch(), &b.Spec)
				tell(p.on.nowNews)
			})
		}
	}
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
func (n *daemon) fresh(ctx context.Context, a *attemptRun) (end func() error) {
	back := func(why error) func() error { return func() error { return n.giveBack(a, why) } }
	shrunk := false
	for try := 1; ; try++ {
		begun, err := n.tryOnce(ctx, a)
		var failed *buildError
		var refusal *wire.Error
		var tooMuch *tooMuchError
		var cannot *cannotError
		var rotten *rottenError
		var lacks *noRoomError
		var barred *barredError
		switch {
		case begun:
			return func() error { return n.finish(a) }
		case n.atEnd(ctx), errors.Is(err, errOver):
			return func() error { return err }
		case errors.Is(err, errPaused):
			return back(err)
		case ctx.Err() != nil || errors.Is(err, errStopped):
			return back(errStopped)
		case errors.As(err, &failed):
			return func() error { return n.buildFailed(a, failed) }
		case errors.As(err, &rotten) && try == tries: // each time from the first byte on: so it lies on the head
			cannot = &cannotError{fmt.Sprintf(job.ReasonRotten+"%q says: see dfsck(8)", rotten.path)}
			fallthrough
		case errors.As(err, &cannot):
			return func() error {
				return n.keep(a, &job.Result{Outcome: job.Outcome{Reason: cannot.why}}, nil, false)
			}
		case errors.As(err, &lacks), errors.As(err, &barred):
			return back(err)
		case durable.NoRoom(err) && !shrunk && n.shrink(ctx, LeastRoom):
			shrunk = true
			n.do(func() { n.setStage(a.attempt, stageStalled) })
			if err := a.Sweep(); err != nil {
				return back(err)
			}
			continue
		case durable.NoRoom(err):
			return back(&noRoomError{why: reason(err)})
		case errors.As(err, &tooMuch), errors.As(err, &refusal) || try == tries:
			return back(err)
		}
		n.Log.Warn("cannot prepare an attempt; trying again", "job", a.Job, "attempt", a.Token, "why", err)
		n.do(func() { n.setStage(a.attempt, stageStalled) })
		linger(ctx, time.Duration(try)*tryAfter)
		if err := a.Sweep(); err != nil {
			return back(err)
		}
	}
}

// tryOnce prepares an attempt and runs it; begun says that it may have run.
func (n *daemon) tryOnce(ctx context.Context, a *attemptRun) (begun bool, err error) {
	if a.account, err = n.whose(ctx, a.User); err != nil {
		return false, err
	}
	b, err := n.fetchAll(ctx, a)
	if err != nil {
		return false, err
	}
	if err := n.fetchSaved(ctx, a, b); err != nil {
		return false, err
	}
	if len(b.Spec.Build) > 0 {
		if err := n.built(ctx, a, b); err != nil {
			return false, err
		}
		// The size of the build is known only after it ran, so check the disk again.
		if err := n.roomFor(ctx, a.attempt, n.needs(ctx, a, b), false); err != nil {
			return false, err
		}
	}
	if err := n.fetchSecrets(ctx, a, b); err != nil {
		return false, err
	}
	n.do(func() { n.setStage(a.attempt, stageReady) })
	started, err := n.prepare(ctx, a, b)
	if err != nil {
		return false, n.blameBuild(b, err)
	}
	n.do(func() { a.copied = len(b.Spec.Build) > 0 })
	asked := a.resources(&b.Spec)
	want, err := n.wantOf(ctx, a.attempt, asked)
	if err != nil {
		return false, err
	}
	for _, p := range want.portions(n) {
		p.share.setBatch(a.Job.Batch(), &b.Spec)
	}
	n.measureFirst()
	got, slot, err := n.acquireAll(ctx, a.attempt, want)
	if err != nil {
		return false, err
	}
	defer func() { n.release(a.attempt, got, slot) }()
	n.do(func() { a.has, got.pid = got, slot.Pid() })
	if asked.Ranks > 0 {
		if got.port, err = n.reservePort(); err != nil {
			return false, err
		}
	}
	got.note(started)
	printed := n.given().printed()
	started.Time, started.Printed = asked.Time, &printed
	if asked.MPI { // mpirun is one process, which prints all
		started.MPI = asked.Ranks
	} else {
		started.Ranks = asked.Ranks
	}
	o := n.order(a, b, got, asked)
	o.Keep = printed
	if begun, a.status, slot, err = n.start(ctx, a.attempt, o, started, slot); begun && a.status == nil {
		// The cpus are free again only when nothing of the tree is left.
		ctx, cancel := n.untilOver()
		defer cancel()
		_, err = n.status(ctx, a.attempt)
	}
	return begun, err
}

// prepare makes the directory that the job runs in.
func (n *daemon) prepare(ctx context.Context, a *attemptRun, b *desk.Build) (*desk.Started, error) {
	for _, dir := range []string{a.WorkDir(), a.Tmp()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	work, err := durable.OpenRoot(a.WorkDir())
	if err != nil {
		return nil, err
	}
	defer work.Close()
	if len(b.Spec.Build) > 0 {
		if err := n.copyTree(ctx, work, b, identity(ownerOf(a.account))); err != nil {
			return nil, err
		}
	}
	s := &desk.Started{Kind: b.Spec.Kind, Cgroup: n.cgroup, As: ownerOf(a.account), Saved: a.savedBytes, SavedFiles: a.savedFiles, Outputs: job.OutputsOf(&b.Spec, a.Work)}
	if len(b.Spec.Build) > 0 {
		s.Build = b.Name()
	}
	for _, part := range []struct {
		inputs []job.Input
		keep   bool
	}{{b.Spec.Inputs, true}, {a.Work.Inputs, false}} {
		shared, at, err := n.desk.Place(ctx, work, part.inputs, part.keep)
		if err != nil {
			return nil, err
		}
		s.Shared, s.At = append(s.Shared, shared...), append(s.At, at...)
	}
	if b.Spec.Kind != job.Command {
		if err := work.MkdirAll("input", 0o755); err != nil {
			return nil, &desk.PlaceError{Path: "input", Err: err}
		}
		if err := emptyDir(work, saveDir); err != nil {
			return nil, err
		}
	}
	if b.Spec.Kind == job.Python {
		if err := linkInitial(work); err != nil {
			return nil, err
		}
	}
	opened := []string{"work", "tmp"}
	if b.Spec.Kind == job.Apptainer {
		opened = append(opened, "image")
		at, err := n.desk.PlaceImage(ctx, a.Attempt, *b.Spec.Image)
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
	if err := n.lay(a, &b.Spec, s.As); err != nil {
		return nil, err
	}
	if based(ctx, s, a.Dir, b.Spec.Inputs, a.Work.Inputs); s.Base > 0 {
		n.do(func() { a.disk.base = s.Base })
	}
	return s, s.As.Open(a.Dir, opened...)
}

// copyTree copies what a build left into a job's directory, as far as who built
// it may read that. It fails if the build is done again meanwhile: something can be missing.
func (n *daemon) copyTree(ctx context.Context, dst *os.Root, b *desk.Build, as *proc.Identity) error {
	src, err := durable.OpenRoot(b.Tree())
	if err != nil {
		return err
	}
	defer src.Close()
	if _, err := pack.Copy(ctx, dst, src, as.Do); err != nil {
		return err
	}
	again := false
	n.do(func() {
		known := n.builds[b.Dir]
		again = known != nil && known.run != nil
	})
	was, err := src.Stat(".")
	if err != nil {
		return err
	}
	if is, err := os.Lstat(b.Tree()); again || err != nil || !os.SameFile(was, is) {
		return errRebuilt
	}
	return nil
}

// errRebuilt is returned for a copy of a build that is done again.
var errRebuilt = errors.New("the build is done again")

// start gives the attempt to a supervisor and waits until that is done with it.
// It returns the supervisor if it can be used again.
func (n *daemon) start(ctx context.Context, a *attempt, o *proc.Order, s *desk.Started, slot Slot) (bool, *proc.Status, Slot, error) {
	if err := a.SetStarted(s); err != nil {
		return false, nil, slot, err
	}
	stopped := true
	n.do(func() {
		if n.pause.frozen {
			a.setEnding(endPaused, "")
		}
		if stopped = a.end != endNot || a.unknown; !stopped {
			n.setStage(a, stageRunning)
			a.disk.claim = a.disk.writes
			n.meter.begun++
			a.has.begun = n.meter.begun
			n.watchMemory()
			if asked := a.longer; asked != nil {
				a.longer = nil
				n.lengthen(a, *asked)
			}
			tell(n.nowNews)
			n.watchDisk()
			n.watchCards()
		}
	})
	if stopped {
		return false, nil, slot, errStopped
	}
	st, slot, err := n.supervise(ctx, slot, o, string(a.Job), func() { n.setStage(a, stageStuck) })
	if err != nil {
		// In this order: nobody is to believe that it runs.
		err = errors.Join(err, a.Unstart())
		n.do(func() {
			n.setStage(a, stageReady)
			a.disk.claim = 0
		})
		return false, nil, slot, err
	}
	n.noteFull(a)
	return true, st, slot, nil
}

// order is how a job is run that asks for that.
func (n *daemon) order(a *attemptRun, b *desk.Build, s *share, asked job.Resources) *proc.Order {
	cpus := strconv.Itoa(s.cpus / max(1, s.ranks))
	argv, set, path := a.Work.Run, job.Environ(job.Environ(b.Spec.Env, a.Work.Env), a.secrets), n.Path
	env := func(on *daemon, s *share, own []string) []string {
		return job.Environ(slices.Concat(on.ownEnv(a, s), own), set)
	}
	switch b.Spec.Kind {
	case job.Python:
		argv = append([]string{"python3"}, append(argv[:len(argv):len(argv)], cpus)...)
	case job.Apptainer:
		c := n.container()
		argv = n.containerArgv(c, a, &b.Spec, s, cpus)
		env = func(on *daemon, s *share, own []string) []string {
			return c.env(slices.Concat(on.ownEnv(a, s), own), set, a.attempt)
		}
	}
	if b.Spec.Kind != job.Apptainer {
		path = pathIn(set, path)
	}
	o := &proc.Order{
		Dir: a.Dir, Token: string(a.Token), Argv: argv, Path: path, Cwd: a.WorkDir(), Output: a.Output(),
		Cgroup: cmp.Or(s.group, n.cgroup), Grace: grace, As: identity(ownerOf(a.account)),
		Pause: n.pausing.ask(a.Token, s.beside...), Checkpoint: checkpointOf(&b.Spec), Secrets: b.Spec.Secrets,
		Limits: n.limits(s, asked), Ranks: n.ranksOf(s, asked, a.RankOutput, env),
	}
	switch {
	case len(o.Ranks) == 0:
		o.Env = env(n, s, nil)
	case asked.MPI:
		byMPI(o)
	}
	return o
}

// ownEnv is the environment of a job before what its batch sets.
func (n *daemon) ownEnv(a *attemptRun, s *share) []string {
	id := a.Job
	return append(n.jobEnv(a.account, s, a.WorkDir(), desk.ShortTmp(a.Dir)),
		"DISTRIBUTE_NAMESPACE="+id.Batch().Namespace(), "DISTRIBUTE_BATCH="+id.Batch().Name(), "DISTRIBUTE_ID="+string(id), "DISTRIBUTE_JOB="+id.Name())
}

// pathIn is where programs are looked for with what a batch sets, or else the path.
func pathIn(set []string, path string) string {
	if own, ok := job.ParamOf(set, "PATH"); ok {
		return own
	}
	return path
}

// jobEnv is the environment that builds and jobs have in common; the
// supervisor adds the attempt.
func (n *daemon) jobEnv(acc *account.Account, s *share, work, tmp string) []string {
	return append(append(n.env(acc), s.env()...),
		"DISTRIBUTE_NODE="+string(n.Name), "DISTRIBUTE_CPUS="+strconv.Itoa(s.cpus),
		"DISTRIBUTE_MEMORY="+strconv.FormatInt(cmp.Or(s.memory, n.memoryOf(s.cpus)), 10),
		"DISTRIBUTE_INPUT="+filepath.Join(work, "input"), "DISTRIBUTE_SAVE="+filepath.Join(work, saveDir),
		"OMP_NUM_THREADS="+strconv.Itoa(s.cpus), "TMPDIR="+tmp)
}
