package noded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// A build is what batches that are known here have built, or will have. Its fields belong to the
// state.
type build struct {
	*desk.Build           // of the batch for which it was begun last
	run         *buildRun // while it is built
	size        int64     // bytes of disk that it left, once that was looked at
	copied      int64     // that a copy of it takes
	inodes      int64     // likewise
	used        time.Time // when an attempt of it was over last
	stale       bool      // it is to be built anew: no further batch takes it
}

// A batch is one that is known here. Its fields belong to the state.
type batch struct {
	*desk.Build
	over bool // the head has said so
}

// A buildRun is one run of a build and those who wait for it.
type buildRun struct {
	waiting int
	cancel  context.CancelCauseFunc
	begun   bool // it is being given to a supervisor, or was
	cpus    int
	group   string            // its cgroup, if it has one
	adopted bool              // it runs under a supervisor of an earlier daemon
	ending  bool              // it is being stopped, since no attempt needs it: none is to wait for it
	base    int64             // bytes of disk that were in its directory before it began
	at      []desk.SharedFile // its shared inputs
	printed *int64            // bytes that it may print; 0: no limit; nil: that is not known
	done    chan struct{}
	why     string // for what reason it is to end
	err     error  // set when done is closed
}

// A buildError says that a build ran and failed.
type buildError struct {
	why    string // in a few words
	output string // the file with what it printed
	later  bool   // it had ended well: the output of an attempt is told, and not that file
}

func (e *buildError) Error() string { return "build failed: " + e.why }

// tell adds why it failed to what it printed, if that cannot tell.
func (e *buildError) tell() {
	if strings.HasPrefix(e.why, "exit ") && lastLine(e.output) != "" {
		return
	}
	appendWhy(e.output, e.why)
}

// appendWhy adds why something failed to a file with what it printed.
func appendWhy(output, why string) {
	f, err := durable.Open(output, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		fmt.Fprintf(f, "\n[%s]\n", clean(why))
		f.Close()
	}
}

// errEarlierBuild is returned for a run of an earlier daemon that nothing is left of: who waited
// for it looks how it ended, and builds anew if need be.
var errEarlierBuild = errors.New("the build of an earlier dnoded is finished")

// built waits until the attempt's batch is built here, and builds it if nobody
// does yet. All who wait for a build that fails fail with it. A build that
// nobody waits for any more is stopped, and waited for before the batch is built again.
func (n *daemon) built(ctx context.Context, a *attemptRun, b *desk.Build) error {
	for !n.desk.Ready(b) {
		var run *buildRun
		ending := false
		n.do(func() {
			known := n.builds[b.Dir]
			if known == nil {
				known = &build{Build: b}
				n.builds[b.Dir] = known
			}
			if known.run == nil {
				known.Build = b
				known.run = n.beginBuild(ctx, known, a)
				n.watchDisk()
			}
			if run, ending = known.run, known.run.ending; !ending {
				run.waiting++
			}
			n.setStage(a.attempt, stageBuilding)
		})
		if run == nil {
			return errStopped
		}
		select {
		case <-run.done:
			if ending || errors.Is(run.err, errEarlierBuild) {
				n.do(func() { n.sendBack(a.attempt) })
				continue
			}
			return run.err
		case <-ctx.Done():
		case <-n.over:
		}
		if !ending {
			n.do(func() {
				if run.waiting--; run.waiting == 0 {
					n.endBuild(b.Dir, run)
				}
			})
		}
		return errStopped
	}
	return nil
}

// endBuild stops a build that no attempt needs.
func (n *daemon) endBuild(dir string, run *buildRun) {
	run.ending = true
	if run.cancel(errStopped); run.adopted {
		n.stopAdopted(dir)
	}
}

// adoptBuilds takes up the builds that an earlier daemon began, and whose end is not known.
func (n *daemon) adoptBuilds() {
	for _, b := range n.builds {
		s, err := b.Started()
		switch {
		case err != nil:
			n.Log.Error("cannot read what is known of a build", "batch", b.Batch, "why", err)
		case s == nil || n.desk.Ready(b.Build):
		default:
			if _, err := proc.ReadStatus(b.Dir, string(s.Token)); errors.Is(err, fs.ErrNotExist) {
				n.adoptBuild(b, s)
			}
		}
	}
}

// adoptBuild takes up one of them. It has its cpus until nothing of it lives.
func (n *daemon) adoptBuild(b *build, s *desk.Started) {
	has := &share{cpus: len(s.CPUs), on: s.CPUs, group: s.Cgroup}
	if has.cpus == 0 { // any
		if has.cpus = b.Spec.Resources.CPUs; has.cpus < 1 || has.cpus > n.given().Offer.CPUs {
			has.cpus = n.given().Offer.CPUs
		}
	}
	run := &buildRun{cancel: func(error) {}, adopted: true, cpus: has.cpus, base: copied(b.Spec.Inputs), done: make(chan struct{}), err: errEarlierBuild}
	run.began(s)
	n.retake(has)
	n.desk.Pin(s.Shared)
	b.run = run
	n.watchDisk()
	n.Log.Info("build taken up", "batch", b.Batch)
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		var failed *buildError // what hides it would be there at the next try, too
		for wait := time.Second; ; wait = min(2*wait, time.Minute) {
			_, err := n.awaitBuild(ctx, b.Build, s)
			if ctx.Err() != nil {
				return
			}
			if err == nil || errors.As(err, &failed) {
				break
			}
			n.Log.Error("cannot end what is left of a build; trying again", "batch", b.Batch, "why", err)
			linger(ctx, wait)
		}
		n.do(func() {
			switch {
			case failed != nil:
				run.err = failed
			case run.why != "":
				failed = &buildError{why: "stopped: " + run.why, output: b.Output()}
				failed.tell()
				run.err = failed
			}
			b.run, b.size = nil, 0
			n.desk.Unpin(s.Shared)
			close(run.done)
			n.give(has)
			n.pump()
			n.clear()
		})
		tell(n.nowNews)
	})
}

// stopUnneeded stops the builds of an earlier daemon that no attempt here needs any more.
func (n *daemon) stopUnneeded() {
	for _, b := range n.builds {
		if b.run == nil || !b.run.adopted || b.run.ending || b.run.waiting > 0 {
			continue
		}
		needed := false
		for _, a := range n.attempts {
			needed = needed || n.buildOf(a) == b && a.result == nil && !a.began()
		}
		if !needed {
			n.Log.Info("build of an earlier dnoded stopped, since no job here needs it", "batch", b.Batch)
			n.endBuild(b.Dir, b.run)
		}
	}
}

// beginBuild starts the goroutine of a build that an attempt needs.
func (n *daemon) beginBuild(ctx context.Context, b *build, a *attemptRun) *buildRun {
	order, cpus, acc := a.Order, a.cpus, a.account
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	run := &buildRun{cancel: cancel, cpus: cpus, base: copied(b.Spec.Inputs), done: make(chan struct{})}
	n.work.Go(func() {
		defer cancel(nil)
		err := n.runBuild(ctx, b.Build, run, order, cpus, acc)
		n.do(func() {
			if run.why != "" && errors.Is(err, errStopped) {
				err = &buildError{why: "stopped: " + run.why, output: b.Output()}
			}
		})
		if failed := (*buildError)(nil); errors.As(err, &failed) {
			failed.tell()
		}
		n.do(func() {
			run.err, b.run, b.size = err, nil, 0
			close(run.done)
		})
		tell(n.nowNews)
	})
	return run
}

// runBuild builds a batch, or takes over a build that an earlier daemon began.
func (n *daemon) runBuild(ctx context.Context, b *desk.Build, run *buildRun, order, cpus int, acc *account.Account) error {
	if done, err := n.oldBuild(b, run); done || err != nil {
		return err
	}
	n.desk.Pin(b.Spec.Inputs)
	defer n.desk.Unpin(b.Spec.Inputs)
	got, slot, err := n.acquire(ctx, order, share{cpus: cpus})
	if err != nil {
		return err
	}
	defer func() { n.release(nil, got, slot) }()
	if err := n.setMountsAside(b); err != nil {
		return err
	}
	if err := errors.Join(n.desk.BeginBuild(b), b.Unbuild()); err != nil {
		return err
	}
	started, err := n.prepareBuild(ctx, b, ownerOf(acc))
	if err != nil {
		return err
	}
	printed := n.given().printed()
	started.Token, started.Printed = job.NewToken(), &printed
	got.note(started)
	if err := b.SetStarted(started); err != nil {
		return err
	}
	n.do(func() { run.began(started) })
	tell(n.nowNews)
	n.Log.Info("build started", "batch", b.Batch)
	var st *proc.Status
	st, slot, err = n.supervise(ctx, slot, &proc.Order{
		Dir: b.Dir, Token: string(started.Token), Argv: b.Spec.Build, Path: pathIn(b.Spec.Env, n.Path), Cwd: b.Tree(), Output: b.Output(), Keep: printed,
		Cgroup: n.cgroup, Grace: grace, As: identity(started.As), Pause: n.pausing.ask(""),
		Env:    job.Environ(n.jobEnv(acc, got, b.Tree(), desk.ShortTmp(b.Dir)), b.Spec.Env),
		Limits: got.limits(job.Resources{}),
	}, string(b.Batch)+" (build)", func() {})
	if err != nil {
		return err
	}
	if slot == nil { // it died, or the daemon ends
		if _, err := n.oldBuild(b, run); err != nil {
			return err
		}
	}
	return n.judgeBuild(b, st, started)
}

// oldBuild waits for a build that an earlier daemon began and says whether it
// is done with that. What is left of one whose supervisor died is killed. A build is done again if
// a shared input has left the cache meanwhile: nothing tells whether the build has changed it.
func (n *daemon) oldBuild(b *desk.Build, run *buildRun) (done bool, err error) {
	s, err := b.Started()
	if err != nil || s == nil {
		return false, err
	}
	ctx, cancel := n.untilOver()
	defer cancel()
	n.do(func() {
		run.adopted = true
		run.began(s)
	})
	tell(n.nowNews)
	defer n.do(func() { run.adopted, run.begun = false, false })
	st, err := n.awaitBuild(ctx, b, s)
	if err == nil && st != nil && st.Boot == n.boot && st.Stopped == "" && !st.Evicted && st.Exit != nil && *st.Exit == 0 && n.desk.HaveShared(s.Shared, s.At) {
		return true, n.judgeBuild(b, st, s)
	}
	return false, err
}

// awaitBuild waits until nothing is left of a build that was started with s, and returns how it
// ended; nil if nobody knows. What is left of one whose supervisor died is killed.
func (n *daemon) awaitBuild(ctx context.Context, b *desk.Build, s *desk.Started) (*proc.Status, error) {
	if err := n.Machine.AwaitFree(ctx, b.Dir); err != nil {
		return nil, err
	}
	if err := uncoverBuild(b); err != nil {
		return nil, err
	}
	if st, err := proc.ReadStatus(b.Dir, string(s.Token)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return st, err
	}
	release, _, err := n.Machine.Reclaim(ctx, b.Dir, string(s.Token), s.Cgroup)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(proc.Void(b.Dir, string(s.Token)), release())
}

// began takes up how a build was started.
func (run *buildRun) began(s *desk.Started) {
	run.begun, run.group, run.at, run.printed = true, groupOfBuild(s), s.At, s.Printed
	if s.Base > 0 {
		run.base = s.Base
	}
}

// groupOfBuild is the cgroup of a build's run, if it has one.
func groupOfBuild(s *desk.Started) string {
	if s.Cgroup == "" {
		return ""
	}
	return filepath.Join(s.Cgroup, string(s.Token))
}

// prepareBuild makes the directory that a build runs in.
func (n *daemon) prepareBuild(ctx context.Context, b *desk.Build, as *desk.Owner) (*desk.Started, error) {
	for _, dir := range []string{b.Tree(), b.Tmp()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	tree, err := durable.OpenRoot(b.Tree())
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	s := &desk.Started{Kind: b.Spec.Kind, Cgroup: n.cgroup, As: as}
	if s.Shared, s.At, err = n.desk.Place(ctx, tree, b.Spec.Inputs, false); err != nil {
		return nil, err
	}
	if b.Spec.Kind == job.Python {
		for _, dir := range []string{"input", saveDir} {
			if err := tree.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // an input may have that name
				return nil, err
			}
		}
		if err := linkInitial(tree); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(as.Give(b.Tree()), b.Record()); err != nil {
		return nil, err
	}
	based(ctx, s, b.Dir, b.Spec.Inputs)
	return s, as.Open(b.Dir, "tree", "tmp")
}

// linkInitial gives input another name in the directory of a python build or job, unless an
// input has that name.
func linkInitial(tree *os.Root) error {
	if _, err := tree.Lstat("initial_files"); err == nil {
		return nil
	}
	return tree.Symlink("input", "initial_files")
}

// judgeBuild looks at how a build ended that was started with s; a nil st is read from
// the disk. What it left is kept if it went well, less the inputs, of which every job gets
// its own.
func (n *daemon) judgeBuild(b *desk.Build, st *proc.Status, s *desk.Started) (err error) {
	mounts, err := desk.Mounts(b.Dir)
	if err != nil {
		return err
	}
	if err := n.setMountsAside(b); err != nil {
		return err
	}
	if err := b.Restore(); err != nil {
		return err
	}
	if st == nil {
		if st, err = proc.ReadStatus(b.Dir, string(s.Token)); err != nil {
			return fmt.Errorf("it is not known how the build of %s ended: %w", b.Batch, err)
		}
	}
	b.Spent()
	switch {
	case st.Stopped != "":
		return errStopped
	case st.Evicted:
		return errPaused
	}
	why := ""
	switch {
	case st.Error != "":
		why = st.Error
	case limitReached(st) != "":
		why = limitReached(st)
	case st.Signal != 0:
		why = st.SignalName()
	case *st.Exit != 0:
		why = fmt.Sprintf("exit %d", *st.Exit)
		if last := lastLine(b.Output()); last != "" {
			why += ": " + last
		}
	case len(mounts) > 0:
		why = fmt.Sprintf("something is mounted at %q in its directory, which no job would have", mounts[0])
	default:
		why = pack.Gone(os.Lstat(b.Tree()))
	}
	if err := identity(s.As).Do(func() error { return unlocked(b.Tree()) }); err != nil && !ofOwner(err) {
		return err
	}
	ctx, cancel := n.untilOver()
	defer cancel()
	changed, err := n.desk.CheckShared(ctx, s.Shared, s.At)
	if err != nil {
		return err
	}
	if why == "" && changed != "" {
		why = fmt.Sprintf("it changed its input %q, which is shared and read-only", changed)
	}
	if filled := n.filledDisk(ctx, b.Dir, cmp.Or(s.Base, copied(b.Spec.Inputs)), s.At); why == "" && filled != "" {
		why = filled
		if err := desk.RemoveAll(b.Tree()); err != nil {
			return err
		}
	}
	if why != "" {
		n.Log.Info("build failed", "batch", b.Batch, "why", why)
		return errors.Join(&buildError{why: why, output: b.Output()}, b.Unstart()) // oldBuild is not to judge it again
	}
	if err := b.Unplace(s.At); ofOwner(err) {
		return errors.Join(&buildError{why: "an input cannot be removed: " + reason(err), output: b.Output()}, b.Unstart())
	} else if err != nil {
		return err
	}
	n.Log.Info("build done", "batch", b.Batch)
	return n.desk.SetReady(b)
}

// setMountsAside moves the directories of a build that has ended out of the way if it has left
// something mounted there. If that hides the node's files and cannot be unmounted, the build
// has failed.
func (n *daemon) setMountsAside(b *desk.Build) error {
	if err := uncoverBuild(b); err != nil {
		return err
	}
	mounts, err := desk.Mounts(b.Dir)
	if err != nil || len(mounts) == 0 {
		return err
	}
	if err := n.desk.SetAside(b); err != nil {
		n.Log.Error("cannot remove what a build left", "batch", b.Batch, "why", err)
	}
	return nil
}

// uncoverBuild unmounts what hides the node's files of a build. It returns a *buildError if that
// cannot be unmounted.
func uncoverBuild(b *desk.Build) error {
	err := desk.Uncover(b.Dir, "tree", "tmp")
	if errors.Is(err, desk.ErrCovered) {
		return &buildError{why: reason(err)}
	}
	return err
}

// blameBuild returns why the directory of a job of that build could not be made: a
// *buildError if what the build left is the cause, so that it would fail again, and else err.
// Such a build is done again for the next attempt, but stays as long as other attempts have it: they
// can be of batches whose jobs it suits.
func (n *daemon) blameBuild(b *desk.Build, err error) error {
	blamed := blamedBuild(b, err)
	if failed := (*buildError)(nil); errors.As(blamed, &failed) {
		n.do(func() {
			if known := n.builds[b.Dir]; known != nil && known.run != nil {
				return // another attempt has it done again already
			}
			for _, a := range n.attempts {
				if n.builtFor(a) == b.Dir && (a.copied || a.began()) && a.stage < stageOver {
					return
				}
			}
			if err := b.Unready(); err != nil {
				n.Log.Error("cannot have a build that failed done again", "batch", b.Batch, "why", err)
			}
		})
	}
	return blamed
}

// blamedBuild is blameBuild, and changes nothing.
func blamedBuild(b *desk.Build, err error) error {
	var copied *pack.CopyError
	var placed *desk.PlaceError
	switch {
	case len(b.Spec.Build) == 0, ofDisk(err):
		return err
	case errors.As(err, &placed):
		return &buildError{fmt.Sprintf("what it left has no place for %q of its jobs: %s", placed.Path, reason(placed.Err)), b.Output(), true}
	case errors.As(err, &copied) && errors.Is(err, syscall.ENAMETOOLONG):
		return &buildError{fmt.Sprintf("its jobs cannot have a directory with a path of %d bytes, which it left", len(copied.Path)), b.Output(), true}
	case errors.As(err, &copied) && errors.Is(err, fs.ErrPermission):
		return &buildError{fmt.Sprintf("its jobs cannot have %q, which it left: %s", copied.Path, reason(copied.Err)), b.Output(), true}
	}
	return err
}

// emptyDir makes an empty directory in the tree of a job, also where something is.
func emptyDir(work *os.Root, name string) error {
	if err := errors.Join(desk.RemoveIn(work, name), work.Mkdir(name, 0o755)); err != nil {
		return &desk.PlaceError{Path: name, Err: err}
	}
	return nil
}

// lastLine is the last line with anything in it of a file, shortened.
func lastLine(name string) string {
	f, err := openPlain(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-4096), 4096))
	b = bytes.TrimRight(b, " \t\r\n")
	line := strings.TrimSpace(string(b[bytes.LastIndexByte(b, '\n')+1:]))
	return strings.ToValidUTF8(line[:min(len(line), 300)], "?")
}

// copyFile copies a small file.
func copyFile(dst, src string, mode fs.FileMode) error {
	in, err := openPlain(src)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(dst, nil, mode)
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
