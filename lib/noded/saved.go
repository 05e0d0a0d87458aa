package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// ownFiles is how what comes of saved files is made: what is read-only would keep
// its owner from moving it. The head holds the modes that it is to have.
var ownFiles = pack.Perm{Set: 0o600}

// checkpointOf is how the jobs of a batch are asked to save what they have.
func checkpointOf(spec *job.Spec) *proc.Checkpoint {
	name, grace := spec.Checkpoint.Asked()
	signal := map[string]syscall.Signal{"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT,
		"SIGTERM": syscall.SIGTERM, "SIGUSR2": syscall.SIGUSR2, "SIGXCPU": syscall.SIGXCPU}[name]
	if signal == 0 {
		signal = proc.CheckpointSignal
	}
	return &proc.Checkpoint{Signal: int(signal), Grace: grace}
}

// fetchSaved brings what an earlier attempt has saved, if this one goes on with
// it, into a directory beside that of the job.
func (n *daemon) fetchSaved(ctx context.Context, a *attemptRun, b *desk.Build) error {
	if a.Saved == "" {
		return nil
	}
	n.do(func() { n.setStage(a.attempt, stageFetching) })
	var m pack.Manifest
	err := n.link.fetch(ctx, &wire.Fetch{Attempt: a.Token, Of: wire.OfManifest}, func(r io.Reader) (err error) {
		m, err = pack.DecodeManifest(r, pack.DefaultLimits())
		return err
	})
	if err != nil {
		return err
	}
	a.saved, a.savedBytes, a.savedFiles = m, 0, int64(len(m))
	for _, e := range m {
		a.savedBytes += desk.Rounded(e.Size)
	}
	if err := n.roomFor(ctx, a.attempt, n.needs(ctx, a, b), true); err != nil {
		return err
	}
	if err := os.Mkdir(a.SavedDir(), 0o700); err != nil {
		return err
	}
	root, err := durable.OpenRoot(a.SavedDir())
	if err != nil {
		return err
	}
	defer root.Close()
	return n.receiveSaved(ctx, a, root)
}

// receiveSaved fetches the files of a.saved, whatever cuts come between.
func (n *daemon) receiveSaved(ctx context.Context, a *attemptRun, root *os.Root) error {
	var want pack.Want
	for {
		err := n.link.ask(ctx, &wire.Fetch{Attempt: a.Token, Of: wire.OfSaved, Want: wire.Want(want)}, a.savedBytes, func(r io.Reader) error {
			tree := pack.NewTree(root, ownFiles)
			return errors.Join(pack.Receive(r, a.saved, want, tree), tree.Close())
		})
		if err == nil || !errors.Is(err, errAway) || ctx.Err() != nil {
			return err
		}
		if want, _, err = pack.Verify(ctx, root, a.saved); err != nil {
			return err
		}
		if want.Empty(a.saved) {
			return pack.Settle(root, a.saved, ownFiles)
		}
	}
}

// lay moves what was saved to its places in the job's directory. What stands there
// already gives way to it. What the node itself had added stays behind.
func (n *daemon) lay(a *attemptRun, spec *job.Spec, as *desk.Owner) error {
	if a.saved == nil {
		return nil
	}
	top, err := durable.OpenRoot(a.Dir)
	if err != nil {
		return err
	}
	defer top.Close()
	into := "work"
	if spec.Kind != job.Command {
		into = path.Join("work", saveDir)
	}
	name, asked := a.Job.Name(), a.resources(spec)
	for i := range a.saved {
		e := &a.saved[i]
		if e.Path == job.OutputName(name) || e.Path == job.SkippedName(name) || job.IsRankOutput(name, asked.Ranks, e.Path) {
			continue
		}
		if err := layOne(top, path.Join(filepath.Base(a.SavedDir()), e.Path), path.Join(into, e.Path), e); err != nil {
			return fmt.Errorf("what was saved: %q: %w", e.Path, err)
		}
		if as != nil {
			if err := top.Lchown(path.Join(into, e.Path), as.UID, as.GID); err != nil {
				return err
			}
		}
	}
	return desk.RemoveAll(a.SavedDir())
}

// layOne moves one entry. Each directory comes before what is in it, so that no
// name on the way is anything else, and nothing is followed.
func layOne(top *os.Root, from, to string, e *pack.Entry) error {
	info, err := top.Lstat(to)
	there := err == nil
	if there && (e.Type != pack.Dir || !info.IsDir()) {
		if err := desk.RemoveIn(top, to); err != nil {
			return err
		}
		there = false
	}
	switch {
	case e.Type != pack.Dir:
		return top.Rename(from, to)
	case !there:
		if err := top.Mkdir(to, 0o700); err != nil {
			return err
		}
	}
	return top.Chmod(to, e.Mode.Perm()|0o700)
}
