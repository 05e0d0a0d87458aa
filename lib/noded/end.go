package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// toEnd makes the end of an attempt durable and known, by do, again until it
// succeeds. It returns early when the daemon is at its end.
func (n *daemon) toEnd(ctx context.Context, a *attemptRun, do func() error) {
	end := func() error {
		if err := desk.Uncover(a.Dir, "work", "tmp"); err != nil {
			return err
		}
		return do()
	}
	err := end()
	for wait, restored := time.Second, 0; err != nil && !n.atEnd(ctx); wait = min(2*wait, time.Minute) {
		switch {
		case n.desk.MakeRoom(err):
			err = end()
			continue
		case errors.Is(err, desk.ErrCovered):
			n.unkept(a, err)
			return
		case ofDisk(err):
		case restored < restores:
			restored++
			n.Log.Warn("directory of an attempt changed; made anew", "job", a.Job, "attempt", a.Token, "why", err)
			if err = a.Restore(); err == nil {
				err = end()
			}
			continue
		case inDir(filepath.Dir(a.Dir), err):
			n.unkept(a, err)
			return
		}
		n.Log.Error("cannot write the end of an attempt; trying again", "job", a.Job, "attempt", a.Token, "why", err)
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
	return durable.NoRoom(err) || passing(err) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
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
func (n *daemon) unkept(a *attemptRun, why error) {
	n.Log.Error("cannot write the end of an attempt", "job", a.Job, "attempt", a.Token, "why", why)
	r := &job.Result{}
	if a.status != nil {
		r.Outcome = n.outcome(a.attempt, a.status)
	}
	r.Reason = clean("nothing of it can be kept on its node: " + reason(why))
	n.unpin(a)
	n.do(func() {
		switch {
		case !a.began():
			r.Fate = job.FateUnstarted
		case a.status == nil:
			r.Fate = job.FateLost
		}
		n.ended(a.attempt, r, &wire.Ended{})
	})
}

// finish waits for an attempt that may have started, unless how it ended is
// known, and packs what it left.
func (n *daemon) finish(a *attemptRun) (err error) {
	// A stop must not end the wait: it is for the supervisor.
	ctx, cancel := n.untilOver()
	defer cancel()
	st := a.status
	if st == nil {
		st, err = n.status(ctx, a.attempt)
		if err != nil && !errors.Is(err, errNotBegun) {
			return err
		}
		a.status = st
		var had share
		n.noteFull(a.attempt)
		n.do(func() {
			if a.stage == stageAdopted {
				n.giveUp(a.attempt, a.has)
				n.pump()
				had = *a.has
			}
		})
		had.leaveBeside()
	}
	if err != nil {
		return n.giveBack(a, err)
	}
	if st == nil {
		return n.keep(a, &job.Result{Fate: job.FateLost, Outcome: job.Outcome{Reason: "its supervisor or its node went down under it"}}, nil, false)
	}
	if st.Wall >= worthFrom {
		n.do(func() { n.setStage(a.attempt, stagePacking) })
	}
	select {
	case n.packing <- struct{}{}:
		defer func() { <-n.packing }()
	case <-n.over:
		return context.Canceled
	}
	r := &job.Result{Outcome: n.outcome(a.attempt, st)}
	lacks, stopped := n.explain(a, r, st), false
	n.do(func() { stopped = a.stopped() })
	switch {
	case stopped:
	case lacks != "":
		return n.noContainer(a, lacks, a.failedOutput(r))
	case st.Stopped == proc.StoppedSignal:
		r.Fate, r.Reason = job.FateLost, "its node was going down"
	case st.Evicted:
		r.Fate, r.Saved = job.FateEvicted, st.Exit != nil && *st.Exit == proc.Checkpointed
	}
	n.do(func() { n.ranOut(a.attempt, st, r) })
	m, err := n.gather(ctx, a.attempt, r)
	if err != nil {
		return err
	}
	n.do(func() { a.blameDisk(st, r) })
	return n.keep(a, r, m, st.Wall >= worthFrom || r.Saved)
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
	st, err := proc.ReadStatus(a.Dir, string(a.Token))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return st, err
	}
	s := a.Started()
	if s == nil {
		return nil, fmt.Errorf("%s does not say how it was started", a.Dir)
	}
	release, left, err := n.Machine.Reclaim(ctx, a.Dir, string(a.Token), s.Cgroup)
	if err != nil {
		return nil, err
	}
	// Under the lock, so that a supervisor that comes late finds it given up.
	defer release()
	if st, err := proc.ReadStatus(a.Dir, string(a.Token)); err == nil {
		return st, nil
	}
	n.Log.Warn("supervisor of an attempt died", "job", a.Job, "attempt", a.Token, "processes_left", left)
	if err := proc.Void(a.Dir, string(a.Token)); err != nil || left != proc.NotBegun {
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
		Runtime: st.Wall.Seconds(), CPUTime: (st.User + st.System).Seconds(), MemoryPeak: st.Memory, MemoryRank: st.OfRank, Cache: st.Cache, Written: st.Written, Paused: st.Paused.Seconds(),
		Signal: st.SignalName()}
	if why := limitReached(st); why != "" {
		o.Reason = why
	}
	if s := a.Started(); failedItself(st) && s != nil {
		o.Rank, o.Reason = st.Rank, rankFailed(*st.Rank, s.Ranks, &o)
	}
	if st.Stopped == proc.StoppedOrder || st.Stopped == proc.StoppedSignal {
		why := ""
		n.do(func() { why = a.why })
		switch {
		case why != "":
			o.Reason = job.ReasonStopped + why
		case st.Printed > 0: // the dnoded that stopped it for that was killed before it noted the end
			o.Reason = job.ReasonStopped + limitReached(st)
		default:
			o.Reason = "stopped"
		}
	}
	return o
}

// giveBack ends an attempt that never ran.
func (n *daemon) giveBack(a *attemptRun, why error) error {
	reason, paused := why.Error(), false
	var its *pausedError
	n.do(func() {
		if errors.Is(why, errPaused) {
			a.setEnding(endPaused, "")
		}
		switch {
		case a.own == ownFrozen:
			reason = "its job is held"
		case !errors.Is(why, errStopped):
		case a.end == endPaused && errors.As(why, &its):
			reason, paused = its.reason, true
		case a.end == endPaused && a.has != nil && len(a.has.beside) > 0 && n.pauseNow() == nil:
			reason, paused = "a node on which it has ranks is paused", true
		case a.end == endPaused:
			reason, paused = n.pausedReason(), true
		case a.why != "":
			reason = job.ReasonStopped + a.why
		}
	})
	n.Log.Info("attempt given back", "job", a.Job, "attempt", a.Token, "why", reason)
	fate := job.FateUnstarted
	var lacks *noRoomError
	var barred *barredError
	switch {
	case paused:
		fate = job.FateNodePaused
	case errors.As(why, &lacks):
		fate = job.FateNoRoom
	case errors.As(why, &barred):
		fate = job.FateBarred
	}
	return n.keep(a, &job.Result{Fate: fate, Outcome: job.Outcome{Reason: reason}}, nil, false)
}

// buildFailed ends an attempt whose batch could not be built here; what the
// build printed goes home with it.
func (n *daemon) buildFailed(a *attemptRun, failed *buildError) error {
	note := ""
	if failed.later {
		note = failed.why
	}
	return n.unable(a, fmt.Sprintf("build failed on %s: %s", n.Name, failed.why), failed.output, note)
}

// unable ends an attempt of a batch whose jobs cannot run here; what was printed goes
// home with it, and the note below it.
func (n *daemon) unable(a *attemptRun, why, output, note string) error {
	if err := os.MkdirAll(a.Extra(), 0o700); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(a.Extra(), job.BuildOutput), output, 0o644); err != nil {
		return err
	}
	if note != "" {
		appendWhy(filepath.Join(a.Extra(), job.BuildOutput), note)
	}
	r := &job.Result{Fate: job.FateBuildFailed, Outcome: job.Outcome{Reason: why}}
	m, err := gatherExtra(a.attempt)
	if err != nil {
		return err
	}
	return n.keep(a, r, m, false)
}

// keep notes that an attempt is over, and tells. The reason may have words of the
// job in it, of any length. What is worth it is made durable at once, beside what
// the head does.
func (n *daemon) keep(a *attemptRun, r *job.Result, m pack.Manifest, worth bool) error {
	r.Reason, r.Skipped = clean(r.Reason), clean(r.Skipped)
	if m != nil {
		noteManifest(r, m)
	}
	a.Spent()
	if err := a.SetResult(r, m, false); err != nil {
		return err
	}
	news := n.smallResult(a.attempt, m)
	n.unpin(a)
	n.do(func() {
		n.ended(a.attempt, r, news)
		if worth {
			n.settleNow(a.attempt)
		} else {
			n.settleLater(a.attempt)
		}
	})
	return nil
}

// noteManifest notes in a result what is in its manifest.
func noteManifest(r *job.Result, m pack.Manifest) {
	r.Manifest, r.Entries, r.Bytes = m.Sum(), len(m), m.Bytes()
	for _, e := range m {
		if e.Type == pack.File {
			r.Files++
		}
	}
}
