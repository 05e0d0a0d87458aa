package noded

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"distribute/lib/desk"
)

// What a batch builds is for each batch of the same namespace and submitter that builds the
// same, also later ones, and stays where it is: a program that a build has made can contain the
// path of its directory. When no batch has it any more it stays in the cache, under its cap.
// What a build is told must be the same for all, so it is not told its batch.

// share gives a batch the directory of what it builds: that of others that build the same, or one
// of its own. If it is to be built anew, no further batch takes what was built before.
func (n *daemon) share(b *desk.Build, a *attempt) error {
	does := b.Identity(a.User, slices.Sorted(slices.Values(n.given().Offer.Capabilities)), n.Env)
	dir := b.Built(does, a.Anew)
	var stale []*build
	n.do(func() {
		if old := n.builds[b.Note()]; old != nil && old.run == nil {
			delete(n.builds, b.Note()) // of the release before: it goes with the batch
		}
		for _, k := range n.builds {
			switch {
			case k.Does != does || k.stale || k.Dir == dir:
			case k.Again < a.Anew:
				k.stale, n.forgotten = true, true
				stale = append(stale, k)
			default:
				dir = k.Dir
			}
		}
		for i := a.Anew + 1; n.builds[dir] != nil && n.builds[dir].stale; i++ {
			dir = b.Built(does, i)
		}
		a.builds = dir // so that it stays
	})
	b.Share(does, a.Anew, dir)
	for _, k := range stale {
		if err := k.SetStale(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// keepOver keeps a build that no batch has any more for a later one, if it has left anything;
// false if it does not.
func (n *daemon) keepOver(b *build) bool {
	if b.Does == "" || b.stale || n.given().Caps == nil || n.given().Caps.Cache == 0 || !n.desk.Ready(b.Build) {
		return false
	}
	if b.size > 0 {
		return true
	}
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		n.buildSize(ctx, b.Build) // so that it counts
		n.do(n.trim)
	})
	return true
}

// madeAt is when a directory was changed last.
func madeAt(dir string) time.Time {
	info, err := os.Lstat(dir)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
