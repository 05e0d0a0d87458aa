package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// A build that was asked to leave may have ended well, and is done again all the same.
func TestBuildThatLeft(t *testing.T) {
	h := newFakeHead(t)
	h.spec = `{"kind":"command","build":["true"],"resources":{"cpus":1}}`
	st := h.start("true")
	boot, err := proc.Boot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "node")
	d, err := desk.Open(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.NewBuild(st.Job.Batch(), "", st.Spec, []byte(h.spec))
	if err == nil {
		err = d.SetBuild(b, []byte(h.spec))
	}
	if err != nil {
		t.Fatal(err)
	}
	run, exit := job.NewToken(), 0
	if err := errors.Join(os.Mkdir(b.Tree(), 0o700), b.SetStarted(&desk.Started{Kind: job.Command, Token: run}),
		proc.Append(b.Dir, proc.Line{Ended: &proc.Status{Token: string(run), Boot: boot, Exit: &exit, Evicted: true}}), d.Close()); err != nil {
		t.Fatal(err)
	}
	h.live(dir, nil)
	s, _ := h.session()
	s.say(st)
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
}

// dpause is told of a build that an earlier dnoded began.
func TestOldBuildIsTold(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	b := built(t, n, "lab/old", time.Now())
	if err := b.SetStarted(&desk.Started{Kind: job.Command, Token: job.NewToken()}); err != nil {
		t.Fatal(err)
	}
	if done, err := n.oldBuild(b.Build, &buildRun{}); done || err != nil {
		t.Fatal(done, err)
	}
	select {
	case <-n.nowNews:
	default:
		t.Error("nobody is told")
	}
}

// TestOldBuildWithoutItsInput has a build end well while no dnoded is there, and its shared input
// leave the cache and come again: the build has not changed it, and is done again.
func TestOldBuildWithoutItsInput(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		n := liveDaemon(t, &desk.Caps{})
		b := built(t, n, "lab/old", time.Now())
		in := cachedInput(t, n, "mesh")
		file, _ := n.desk.Cached(in.Sum)
		info, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		at := desk.SharedFile{Size: info.Size(), Time: info.ModTime(), Inode: info.Sys().(*syscall.Stat_t).Ino}
		run, exit := job.NewToken(), 0
		if err := errors.Join(b.SetStarted(&desk.Started{Kind: job.Command, Token: run, Shared: []job.Input{in}, At: []desk.SharedFile{at}}),
			proc.Append(b.Dir, proc.Line{Ended: &proc.Status{Token: string(run), Boot: "boot", Exit: &exit}})); err != nil {
			t.Fatal(err)
		}
		if evicted {
			err := os.Link(file, filepath.Join(b.Tree(), "link")) // so that the new file has another inode
			if _, eerr := n.desk.Evict(0); errors.Join(err, eerr) != nil {
				t.Fatal(err, eerr)
			}
			cachedInput(t, n, "mesh")
		}
		if done, err := n.oldBuild(b.Build, &buildRun{}); done == evicted || err != nil {
			t.Errorf("with the input evicted: %v; done: %v, %v", evicted, done, err)
		}
	}
}

// A build that failed although it ended well is done again for an attempt that comes later.
func TestBuildFailedIsDoneAgain(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	mended := filepath.Join(top, "mended")
	h.spec = fmt.Sprintf(`{"kind":"command","build":["sh","-c","test -e %s || rmdir ../tree"],"resources":{"cpus":1}}`, mended)
	h.live(filepath.Join(top, "node"), nil)
	s, _ := h.session()
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); e.Fate != job.FateBuildFailed {
		t.Fatalf("it says %s, %s", e.Fate, e.Reason)
	}
	create(t, mended)
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
}

// A build in whose tree an input of a job has no place is done again, too: what it left is not
// what it leaves the next time.
func TestBuildWithoutPlaceIsDoneAgain(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	mended := filepath.Join(top, "mended")
	h.spec = fmt.Sprintf(`{"kind":"command","build":["sh","-c","test -e %s || echo x >data"],"resources":{"cpus":1}}`, mended)
	in := h.newDepot().add("data/in", 6)
	h.live(filepath.Join(top, "node"), nil)
	s, _ := h.session()
	for range 2 {
		s.say(with(h.start("true"), in))
		if e := awaited[*wire.Ended](s); e.Fate != job.FateBuildFailed || !strings.Contains(e.Reason, "no place") {
			t.Fatalf("it says %s, %s", e.Fate, e.Reason)
		}
	}
	create(t, mended)
	s.say(with(h.start("test -e data/in"), in))
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
}

// It is not done again while a job has it, whose program may be in its directory.
func TestBuildWithoutPlaceStays(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	runs, goes, builds := filepath.Join(top, "runs"), filepath.Join(top, "goes"), filepath.Join(top, "builds")
	if err := syscall.Mkfifo(goes, 0o600); err != nil {
		t.Fatal(err)
	}
	h.spec = fmt.Sprintf(`{"kind":"command","build":["sh","-c","echo x | tee data >>%s"],"resources":{"cpus":1}}`, builds)
	in := h.newDepot().add("data/in", 6)
	h.liveWith(filepath.Join(top, "node"), 2, nil)
	s, _ := h.session()
	s.say(h.start(fmt.Sprintf("touch %s; cat %s", runs, goes)))
	awaitFile(t, runs)
	ended := func(text string) {
		t.Helper()
		if e := awaited[*wire.Ended](s); !strings.Contains(e.Reason, text) {
			t.Fatalf("it says %s, %s", e.Fate, e.Reason)
		}
		if b, err := os.ReadFile(builds); string(b) != "x\n" {
			t.Fatalf("it was built %d times, %v", len(b)/2, err)
		}
	}
	for range 2 {
		s.say(with(h.start("true"), in))
		ended("no place")
	}
	if err := os.WriteFile(goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended("")
	s.say(with(h.start("true"), in))
	ended("no place")
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
	if b, err := os.ReadFile(builds); string(b) != "x\nx\n" {
		t.Errorf("it was built %d times, %v", len(b)/2, err)
	}
}

// A meantime is a context in which something happens as soon as it is asked for its end.
type meantime struct {
	context.Context
	do func()
}

func (m meantime) Err() error {
	m.do()
	return nil
}

// A copy of a build that is done again meanwhile can lack files.
func TestCopyOfBuildDoneAgain(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(n *daemon, b *build) error
		want error
	}{
		"nothing":    {func(*daemon, *build) error { return nil }, nil},
		"to be done": {func(_ *daemon, b *build) error { return b.Unready() }, nil},
		"begun": {func(n *daemon, b *build) error {
			n.do(func() { b.run = &buildRun{} })
			return nil
		}, errRebuilt},
		"removed": {func(_ *daemon, b *build) error { return os.Rename(b.Tree(), b.Tmp()) }, errRebuilt},
		"over": {func(_ *daemon, b *build) error {
			return errors.Join(os.Rename(b.Tree(), b.Tmp()), os.Mkdir(b.Tree(), 0o700))
		}, errRebuilt},
	} {
		n := liveDaemon(t, &desk.Caps{})
		b := built(t, n, "lab/a", time.Now())
		dst, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer dst.Close()
		err = n.copyTree(meantime{t.Context(), func() {
			if err := c.do(n, b); err != nil {
				t.Error(what, err)
			}
		}}, dst, b.Build, nil)
		if err != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// awaitFile waits until there is a file.
func awaitFile(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", name)
		}
	}
}

// An attempt that comes while a build is being stopped, which nobody needs any more, does not
// end with that build: the batch is built again for it.
func TestBuildIsBeingStopped(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	first, gate := filepath.Join(top, "first"), filepath.Join(top, "gate")
	h.spec = fmt.Sprintf(`{"kind":"command","build":["sh","-c","test ! -e %[1]s || exit 0; trap '' TERM; touch %[1]s; until test -e %[2]s; do sleep 0.02; done; exit 1"],"resources":{"cpus":1}}`, first, gate)
	h.live(filepath.Join(top, "node"), nil)
	s, _ := h.session()
	cancelled := h.start("true")
	s.say(cancelled)
	awaitFile(t, first)
	s.say(&wire.Stop{Attempt: cancelled.Attempt})
	if e := awaited[*wire.Ended](s); e.Attempt != cancelled.Attempt || !e.Fate.Unstarted() {
		t.Fatalf("it says %+v", e)
	}
	again := h.start("true")
	s.say(again)
	s.phase(job.PhaseBuilding)
	create(t, gate)
	if e := awaited[*wire.Ended](s); e.Attempt != again.Attempt || !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
}

// adoptable returns a build that an earlier dnoded began on these cpus, and the lock of its
// supervisor, which the test holds.
func adoptable(t *testing.T, n *daemon, cpus ...int) (*build, *proc.Lock) {
	t.Helper()
	b := built(t, n, "lab/old", time.Now())
	if err := errors.Join(b.Unbuild(), b.SetStarted(&desk.Started{Kind: job.Command, Token: job.NewToken(), CPUs: cpus})); err != nil {
		t.Fatal(err)
	}
	supervised, err := proc.TakeLock(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return b, supervised
}

// A build that an earlier dnoded began has its cpus for as long as it runs.
func TestOldBuildHasItsCPUs(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	_, supervised := adoptable(t, n, 0, 1, 2)
	free := func() (cpus int) {
		n.do(func() { cpus = n.free })
		return cpus
	}
	n.do(n.goOn)
	if got := free(); got != 1 {
		t.Errorf("%d of 4 cpus are free beside a build that has 3", got)
	}
	if err := supervised.Release(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); free() != 4; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of 4 cpus are free after the build", free())
		}
	}
}

// A build that stands still when dnoded begins anew stands still for the attempt that needs it,
// and is ended with that: it does not run on after the pause beside other jobs.
func TestOldBuildInPause(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	dir, begun := filepath.Join(top, "node"), filepath.Join(top, "begun")
	h.spec = fmt.Sprintf(`{"kind":"command","build":["sh","-c","touch %s; while :; do sleep 0.02; done"],"resources":{"cpus":1}}`, begun)
	stop := h.live(dir, nil)
	s, _ := h.session()
	st := h.start("true")
	s.say(st)
	awaitFile(t, begun)
	stop()
	p := put(t, dir, time.Hour, nil)
	h.live(dir, nil)
	s, items := h.session()
	if len(items) != 1 || items[0].Result != nil {
		t.Fatalf("the attempt did not stay: %+v", items)
	}
	if items[0].Phase != job.PhaseBuilding {
		s.phase(job.PhaseBuilding)
	}
	s.say(&wire.Stop{Attempt: st.Attempt, Why: "its job is held"})
	if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || !e.Fate.Unstarted() {
		t.Fatalf("it says %+v", e)
	}
	builds, err := filepath.Glob(filepath.Join(dir, "builds", "*", "tree"))
	if err != nil || len(builds) != 1 {
		t.Fatal(builds, err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(time.Millisecond) {
		alive, err := proc.Alive(filepath.Dir(builds[0]))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the build lives on: %v", err)
		}
		if !alive {
			break
		}
	}
	if err := pause.Remove(p); err != nil {
		t.Fatal(err)
	}
	s.offered("it is not paused", notPaused)
}

// A build that stands still when dnoded begins anew, and whose attempt is gone before that can
// wait for it again, is ended too.
func TestOldBuildOfNobody(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	b, supervised := adoptable(t, n, 0)
	defer supervised.Release()
	stopped := func() (is bool) {
		n.do(func() { is = n.builds[b.Dir].run != nil && n.builds[b.Dir].run.ending })
		return is
	}
	a := &attempt{Attempt: &desk.Attempt{Note: desk.Note{Token: job.NewToken(), Job: "lab/old/j", Spec: b.Sum}}, done: make(chan struct{})}
	n.do(func() {
		n.adoptBuilds()
		n.attempts[a.Token] = a
		n.stopUnneeded()
	})
	if stopped() {
		t.Error("a build is stopped that an attempt needs")
	}
	n.do(func() {
		delete(n.attempts, a.Token)
		n.stopUnneeded()
	})
	if !stopped() {
		t.Error("a build goes on that no attempt needs")
	}
}
