package noded

import (
	"context"
	"fmt"
	"slices"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/timing"
	"distribute/lib/unit"
)

// LeastRoom is how many bytes must be free above the reserve beside what a start needs.
const LeastRoom = 16 << 20

// roomWithin is how long an attempt waits for room here that others have.
var roomWithin = timing.Wait(30 * time.Second)

// NoRoom begins the reason of an attempt that did not start for want of room on the disk.
const NoRoom = "no room: "

// A noRoomError says that the disk has no room for an attempt.
type noRoomError struct{ why string }

func (e *noRoomError) Error() string { return NoRoom + e.why }

func noRoom(need, has int64) error {
	return &noRoomError{fmt.Sprintf("needs %s, has %s above the reserve", unit.FormatBytes(need), unit.FormatBytes(max(0, has)))}
}

// offer is what the node offers now: what is free of its disk changes.
func (n *daemon) offer() node.Offer {
	o := n.given().Offer
	if n.given().Caps != nil {
		if space, err := n.desk.Space(); err == nil {
			o.Disk, o.Kept = max(0, space.Free-n.given().Caps.Reserve), n.desk.CacheSize()
			o.DiskSize = max(1, space.Size-n.given().Caps.Reserve)
		}
	}
	n.lend(&o)
	o.Soon = n.nextHours()
	return o
}

// A needs is what an attempt needs of the disk, in bytes.
type needs struct {
	fetch  int64 // inputs that are not here
	copies int64 // in its directory before it starts
	build  int64 // in the build's directory, if that is still to be built
	writes int64 // that it says it writes
	files  int64 // so many inodes of inputs, of what was built and of what was saved are in its directory before it starts
}

func (r needs) all() int64 { return r.fetch + r.copies + r.build + r.writes }

// needs looks at what an attempt needs. It costs a look at each input, and the
// first time for a batch at every file of what it built.
func (n *daemon) needs(ctx context.Context, a *attemptRun, b *desk.Build) needs {
	var r needs
	seen := map[string]bool{}
	for i, list := range [][]job.Input{b.Spec.Inputs, a.Work.Inputs} {
		for _, in := range list {
			r.files++
			size := desk.Rounded(in.Size)
			if len(in.Sum) == 64 && !seen[in.Sum] {
				seen[in.Sum] = true
				if _, here := n.desk.Cached(in.Sum); !here {
					r.fetch += size
				}
			}
			if in.Size < desk.SharedFrom { // else it is cloned or linked
				r.copies += size
				r.build += size * int64(1-i)
			}
		}
	}
	for _, in := range b.Image() { // it is linked
		if _, here := n.desk.Cached(in.Sum); !here && len(in.Sum) == 64 && !seen[in.Sum] {
			r.fetch += desk.Rounded(in.Size)
		}
	}
	switch {
	case len(b.Spec.Build) == 0:
		r.build = 0
	case n.desk.Ready(b):
		_, copied, files := n.buildSize(ctx, b)
		r.build, r.copies, r.files = 0, r.copies+copied, r.files+files
	}
	r.copies, r.files = r.copies+a.savedBytes, r.files+a.savedFiles
	r.writes = b.Spec.Resources.Disk
	if a.Work.Resources != nil {
		r.writes = a.Work.Resources.Disk
	}
	return r
}

// based notes what is in the directory of an attempt or a build before it starts, where that
// is more than small inputs and copies: a large input may have been cloned, or copied for
// want of links. It costs a look at each file.
func based(ctx context.Context, s *desk.Started, dir string, lists ...[]job.Input) {
	large := func(in job.Input) bool { return in.Size >= desk.SharedFrom }
	if s.Kind == job.Apptainer || slices.ContainsFunc(lists, func(list []job.Input) bool { return slices.ContainsFunc(list, large) }) {
		s.Base, _ = desk.Use(ctx, dir, s.At...)
	}
}

// copied is how many bytes of disk inputs take that lie in a directory of their
// own; the others are cloned or linked.
func copied(inputs []job.Input) (size int64) {
	for _, in := range inputs {
		if in.Size < desk.SharedFrom {
			size += desk.Rounded(in.Size)
		}
	}
	return size
}

// buildSize returns the bytes that a build left on the disk, and the bytes and the inodes that a
// copy takes, which can be more: its files may be links to each other, or to files elsewhere.
func (n *daemon) buildSize(ctx context.Context, b *desk.Build) (size, copied, inodes int64) {
	n.do(func() {
		if known := n.builds[b.Dir]; known != nil {
			size, copied, inodes = known.size, known.copied, known.inodes
		}
	})
	if size > 0 {
		return size, copied, inodes
	}
	size, copied, inodes = desk.CopyUse(ctx, b.Tree())
	n.do(func() {
		if known := n.builds[b.Dir]; known != nil {
			known.size, known.copied, known.inodes = size, copied, inodes
		}
	})
	return size, copied, inodes
}

// A diskUse is what an attempt or a build takes of the disk, in bytes.
type diskUse struct {
	claim  int64 // of what is free, that an attempt may still take; not counted once it has run
	writes int64 // that it said it writes; 0: it said nothing
	base   int64 // that were in its directory before it started
	files  int64 // inodes that were there
}

// claim is how much of what is free an attempt may still take.
func (a *attempt) claim() int64 {
	if a.stage > stageStuck {
		return 0
	}
	return a.disk.claim
}

// givesRoom says that there will be more room when an attempt is over, or when
// what it left is home.
func (a *attempt) givesRoom() bool {
	if a.result != nil {
		return a.result.Manifest != "" && !a.unknown
	}
	return a.runs() || a.claim() > 0
}

// roomFor claims the room that an attempt needs. What is in the way and can be
// removed is removed. With wait it waits for others that run here, if the room
// is theirs. The error is a *noRoomError if there is no room.
func (n *daemon) roomFor(ctx context.Context, a *attempt, need needs, wait bool) error {
	if n.given().Caps == nil {
		return nil
	}
	var enough <-chan time.Time
	for cleared := false; ; {
		news := n.Beside.next()
		has, others, err := n.promise(ctx, a, need, wait)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case has >= need.all()+LeastRoom:
			return nil
		}
		if !cleared {
			cleared = true
			if n.shrink(ctx, need.all()+LeastRoom-has) {
				continue
			}
		}
		if !others || !wait {
			return noRoom(need.all()+LeastRoom, has)
		}
		if enough == nil {
			enough = time.After(roomWithin)
		}
		select {
		case <-news:
			cleared = false
		case <-enough:
			wait = false
		case <-ctx.Done():
			return ctx.Err()
		case <-n.over:
			return errStopped
		}
	}
}

// promise claims the room that an attempt needs, if it is there: it says how much no
// other attempt of the machine has claimed, and whether others will give room back.
func (n *daemon) promise(ctx context.Context, a *attempt, need needs, wait bool) (has int64, others bool, err error) {
	n.Beside.deciding.Lock()
	defer n.Beside.deciding.Unlock()
	space, err := n.desk.Space()
	if err != nil {
		return 0, false, err
	}
	theirs, others := n.Beside.promised(ctx, n)
	n.do(func() {
		has = space.Free - n.given().Caps.Reserve - theirs
		for _, o := range n.attempts {
			if o != a {
				has -= o.claim()
				others = others || o.givesRoom()
			}
		}
		a.disk.claim = 0
		if has >= need.all()+LeastRoom {
			a.disk = diskUse{need.all(), need.writes, need.copies, need.files}
		} else if others && wait {
			n.setStage(a, stageStalled)
		}
	})
	return has, others, nil
}

// roomChanged tells those who wait for room that there may be more.
func (n *daemon) roomChanged() { n.Beside.changed() }

// shrink removes so many bytes of what is kept for later, as far as nobody
// needs it now, and says whether it removed any: first builds of batches that are
// over, then inputs, which come again from the head, then other builds.
func (n *daemon) shrink(ctx context.Context, by int64) (some bool) {
	idle := n.idleBuilds(ctx)
	drop := func(over bool) {
		for _, b := range idle {
			if by > 0 && b.over == over && n.dropBuild(b.build) {
				by -= b.size
				some = true
			}
		}
	}
	if drop(true); by <= 0 {
		return some
	}
	freed, err := n.desk.Evict(max(0, n.desk.CacheSize()-by))
	if err != nil {
		n.Log.Warn("cannot read the cache", "why", err)
	}
	by, some = by-freed, some || freed > 0
	drop(false)
	return some
}

// An idleBuild is a build that no attempt here needs.
type idleBuild struct {
	*build
	size int64
	used time.Time
	over bool
}

// idleBuilds is what was built and is not needed now, that used longest ago
// first.
func (n *daemon) idleBuilds(ctx context.Context) []idleBuild {
	var idle []idleBuild
	n.do(func() {
		needed, named := n.neededBuilds(), n.namedBuilds()
		for _, b := range n.builds {
			if b.run == nil && !needed[b.Dir] {
				idle = append(idle, idleBuild{build: b, used: b.used, over: !named[b.Dir]})
			}
		}
	})
	for i, b := range idle {
		idle[i].size, _, _ = n.buildSize(ctx, b.Build)
	}
	slices.SortFunc(idle, func(a, b idleBuild) int { return a.used.Compare(b.used) })
	return idle
}

// dropBuild removes a build, if it is still not needed.
func (n *daemon) dropBuild(b *build) bool {
	var rest func() error
	n.do(func() {
		if n.builds[b.Dir] != b || b.run != nil || n.neededBuilds()[b.Dir] {
			return
		}
		delete(n.builds, b.Dir)
		var err error
		if rest, err = n.desk.DiscardBuild(b.Build); err != nil {
			n.Log.Error("cannot remove a build", "batch", b.Batch, "why", err)
			rest = nil
		}
	})
	return rest != nil && rest() == nil
}

// batchOf is the batch of an attempt; nil if its spec has not come.
func (n *daemon) batchOf(a *attempt) *batch {
	return n.batches[n.desk.BatchDir(a.Job.Batch(), n.builder(a.User), a.Spec)]
}

// builtFor is the directory of what the batch of an attempt has built, or will have; empty if that
// is not known. One that is being prepared or was started stays with what there was then.
func (n *daemon) builtFor(a *attempt) string {
	if a.builds != "" {
		return a.builds
	}
	if s := a.Started(); s != nil && s.Build != "" {
		return n.desk.BuildDir(s.Build)
	}
	if b := n.batchOf(a); b != nil {
		return b.Dir
	}
	return ""
}

// buildOf is that which has this directory; nil if there is none.
func (n *daemon) buildOf(a *attempt) *build { return n.builds[n.builtFor(a)] }

// neededBuilds is the directories of builds of which there is an attempt here.
func (n *daemon) neededBuilds() map[string]bool {
	needed := map[string]bool{}
	for _, a := range n.attempts {
		needed[n.builtFor(a)] = true
	}
	return needed
}

// namedBuilds is the directories of builds that batches have which are not over.
func (n *daemon) namedBuilds() map[string]bool {
	named := map[string]bool{}
	for _, b := range n.batches {
		if !b.over {
			named[b.Dir] = true
		}
	}
	return named
}

// trimEvery is how often the cache is looked through, at most.
var trimEvery = timing.Wait(10 * time.Second)

// trim brings what is kept for later back under its cap, in the background.
func (n *daemon) trim() {
	if n.given().Caps == nil || n.kept() <= n.given().Caps.Cache {
		return
	}
	if n.trimAgain = true; n.trimming {
		return
	}
	n.trimming = true
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		for again := true; again && ctx.Err() == nil; {
			over := int64(0)
			n.do(func() { n.trimAgain, over = false, n.kept()-n.given().Caps.Cache })
			if over > 0 {
				n.shrink(ctx, over+n.given().Caps.Cache/10)
				linger(ctx, trimEvery)
			}
			n.do(func() {
				if again = n.trimAgain; !again {
					n.trimming = false
				}
			})
		}
	})
}

// kept is how many bytes of inputs and builds are kept, as far as is known.
func (n *daemon) kept() int64 {
	size := n.desk.CacheSize()
	for _, b := range n.builds {
		size += b.size
	}
	return size
}
