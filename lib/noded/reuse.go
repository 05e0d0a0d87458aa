package noded

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/durable"
)

// A build of which the batch is over stays in the cache, under its cap, for a batch
// that builds the same: the same program with the same words and variables from inputs of
// the same content and time at the same places, for the same user and in the same namespace,
// which is one person's. What a build is told must be the same for both, so it is not told
// its batch.

// sameBuild says whether two builds do the same.
func sameBuild(a, b *desk.Build) bool {
	if a.User != b.User || a.Batch.Namespace() != b.Batch.Namespace() || a.Spec.Kind != b.Spec.Kind ||
		!slices.Equal(a.Spec.Build, b.Spec.Build) || !slices.Equal(a.Spec.Env, b.Spec.Env) || len(a.Spec.Inputs) != len(b.Spec.Inputs) {
		return false
	}
	for i, in := range a.Spec.Inputs {
		if o := b.Spec.Inputs[i]; in.Path != o.Path || in.Sum != o.Sum || in.Mode != o.Mode || !in.ModTime().Equal(o.ModTime()) {
			return false
		}
	}
	return true
}

// reuse has a build done by copying what the same one left here, if there is one. An
// error is no reason not to build.
func (n *daemon) reuse(ctx context.Context, b *desk.Build, acc *account.Account) (done bool) {
	var like []*build
	n.do(func() {
		for _, k := range n.builds {
			if k.Dir != b.Dir && k.run == nil && !n.forgotten[k.Dir] && sameBuild(k.Build, b) {
				k.lent++
				like = append(like, k)
			}
		}
	})
	for _, k := range like {
		if done || !n.desk.Ready(k.Build) {
			continue
		}
		err := n.copyBuild(ctx, b, k.Build, ownerOf(acc))
		if done = err == nil; done {
			n.Log.Info("build reused from another batch", "batch", b.Batch, "from", k.Batch)
		} else if ctx.Err() == nil {
			n.Log.Warn("cannot copy the build of another batch; building", "batch", b.Batch, "from", k.Batch, "why", err)
		}
	}
	n.do(func() {
		for _, k := range like {
			k.lent--
			if done {
				k.used = time.Now()
			}
		}
	})
	return done
}

// copyBuild makes one build of another.
func (n *daemon) copyBuild(ctx context.Context, b, from *desk.Build, as *desk.Owner) error {
	if err := b.Unbuild(); err != nil {
		return err
	}
	if err := os.Mkdir(b.Tree(), 0o700); err != nil {
		return err
	}
	tree, err := durable.OpenRoot(b.Tree())
	if err != nil {
		return err
	}
	err = n.copyTree(ctx, tree, from, identity(as))
	if err = errors.Join(err, tree.Close()); err != nil {
		return err
	}
	if err := errors.Join(as.Give(b.Tree()), as.Open(b.Dir, "tree"), copyFile(b.Output(), from.Output(), 0o600)); err != nil {
		return err
	}
	return n.desk.SetReady(b)
}

// keepOver keeps a build of a batch that is over, for others, if it has left
// anything; false if it does not.
func (n *daemon) keepOver(b *build) bool {
	if len(b.Spec.Build) == 0 || b.run != nil || n.given().Caps == nil || n.given().Caps.Cache == 0 || !n.desk.Ready(b.Build) {
		return false
	}
	if b.over {
		return true
	}
	b.over = true
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
