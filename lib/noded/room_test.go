package noded

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// liveDaemon is a daemon whose state's goroutine runs, with a directory of its
// own.
func liveDaemon(t *testing.T, caps *desk.Caps) *daemon { return liveDaemonOn(t, caps, nil) }

// liveDaemonOn is one that shares a disk with others.
func liveDaemonOn(t *testing.T, caps *desk.Caps, disk *Beside) *daemon {
	t.Helper()
	d, err := desk.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	n := newDaemon(&Settings{Offer: node.Offer{CPUs: 4}, Caps: caps, Beside: disk, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
	done := make(chan struct{})
	n.Beside.join(n)
	go func() {
		defer close(done)
		for {
			select {
			case act := <-n.acts:
				act()
			case <-n.over:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(n.over)
		<-done
		n.work.Wait()
		d.Close()
	})
	return n
}

// built is a batch that left a build of some size.
func built(t *testing.T, n *daemon, id job.BatchID, used time.Time) *build {
	t.Helper()
	spec, err := json.Marshal(job.Spec{Kind: job.Command, Build: []string{"make"}})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(spec)
	b, err := n.desk.NewBuild(id, "", hex.EncodeToString(sum[:]), spec)
	if err == nil {
		b.Share(string(id), 0, b.Built(string(id), 0)) // else all would have the same
		err = errors.Join(n.desk.SetBuild(b, spec), n.desk.BeginBuild(b))
	}
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Mkdir(b.Tree(), 0o700), os.WriteFile(filepath.Join(b.Tree(), "big"), make([]byte, 100000), 0o600), n.desk.SetReady(b))
	if err != nil {
		t.Fatal(err)
	}
	known := &build{Build: b, used: used}
	n.do(func() { n.batches[b.Note()], n.builds[b.Dir] = &batch{Build: b}, known })
	return known
}

// Builds go that nobody needs, that used longest ago first.
func TestShrinkBuilds(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	now := time.Now()
	late, old := built(t, n, "lab/late", now), built(t, n, "lab/old", now.Add(-time.Hour))
	needed := built(t, n, "lab/needed", now.Add(-2*time.Hour))
	n.do(func() {
		n.add(&desk.Attempt{Note: desk.Note{Token: job.NewToken(), Job: "lab/needed/j", CPUs: 1, Spec: needed.Sum}})
	})
	there := func(b *build) bool {
		_, err := os.Stat(b.Dir)
		return err == nil
	}
	if !n.shrink(t.Context(), 1) || there(old) || !there(late) || !there(needed) {
		t.Error("not the one that was used longest ago")
	}
	if !n.shrink(t.Context(), 1<<40) || there(late) || !there(needed) {
		t.Error("not all that nobody needs, or more")
	}
	if n.shrink(t.Context(), 1<<40) {
		t.Error("something was left to remove")
	}
}

// What a build has linked, as programs that install packages do, is in each job's directory a file
// of its own, and counts as there before the job began. The build counts as what it has itself.
func TestNeedsOfLinkedBuild(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	b, copied := built(t, n, "lab/linked", time.Now()), t.TempDir()
	big := filepath.Join(b.Tree(), "big")
	if err := errors.Join(os.Link(big, big+"2"), os.Link(big, filepath.Join(t.TempDir(), "elsewhere"))); err != nil {
		t.Fatal(err)
	}
	src, err := os.OpenRoot(b.Tree())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenRoot(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if _, err := pack.Copy(t.Context(), dst, src, nil); err != nil {
		t.Fatal(err)
	}
	has, files := desk.Use(t.Context(), copied)
	need := n.needs(t.Context(), &attemptRun{attempt: &attempt{Attempt: &desk.Attempt{Note: desk.Note{Work: &job.Job{}}}}}, b.Build)
	if need.copies != has || need.files != files {
		t.Errorf("a copy has %d bytes and %d files, and counts as %d and %d", has, files, need.copies, need.files)
	}
	left, _ := desk.Use(t.Context(), b.Tree())
	if n.do(func() { left -= n.kept() }); left != 0 {
		t.Errorf("the build itself has %d bytes more than are counted as kept", left)
	}
}

// What one node of a machine has promised another does not promise again, and it waits
// for it as for its own.
func TestRoomOfOtherNodes(t *testing.T) {
	disk := &Beside{}
	nodes := []*daemon{liveDaemonOn(t, &desk.Caps{}, disk), liveDaemonOn(t, &desk.Caps{}, disk)}
	space, err := nodes[0].desk.Space()
	if err != nil {
		t.Fatal(err)
	}
	var of [2]*attempt
	for i, n := range nodes {
		n.do(func() { of[i] = n.add(&desk.Attempt{Note: desk.Note{Token: job.NewToken(), CPUs: 1}}) })
	}
	most := needs{writes: space.Free / 3 * 2}
	// Of two who come at once one gets it.
	errs := make(chan error)
	for i, n := range nodes {
		go func() { errs <- n.roomFor(t.Context(), of[i], most, false) }()
	}
	if a, b := <-errs, <-errs; (a == nil) == (b == nil) {
		t.Fatalf("two ask for two thirds of the disk each: %v, %v", a, b)
	}
	first, second := 0, 1
	var promised int64
	nodes[first].do(func() { promised = of[first].claim() })
	if promised == 0 {
		first, second = 1, 0
	}
	got := make(chan error)
	go func() { got <- nodes[second].roomFor(t.Context(), of[second], most, true) }()
	for waited := false; !waited; {
		select {
		case err := <-got:
			t.Fatalf("it does not wait for room that another node has: %v", err)
		default:
		}
		nodes[second].do(func() { waited = of[second].stage == stageStalled })
	}
	nodes[first].do(func() {
		of[first].stage, of[first].result = stageOver, &job.Result{}
		nodes[first].roomChanged()
	})
	if err := <-got; err != nil {
		t.Error(err)
	}
	// One that is at its end promises nothing any more, and is not asked.
	disk.leave(nodes[second])
	if bytes, more := disk.promised(t.Context(), nodes[first]); bytes != 0 || more {
		t.Errorf("of nodes that are gone %d bytes are promised", bytes)
	}
}

// Room that others have is waited for; room that nobody has is not.
func TestRoomOfOthers(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	space, err := n.desk.Space()
	if err != nil {
		t.Fatal(err)
	}
	var first, second *attempt
	n.do(func() {
		first = n.add(&desk.Attempt{Note: desk.Note{Token: job.NewToken(), CPUs: 1}})
		second = n.add(&desk.Attempt{Note: desk.Note{Token: job.NewToken(), CPUs: 1}})
	})
	var lacks *noRoomError
	if err := n.roomFor(t.Context(), first, needs{writes: 2 * space.Free}, true); !errors.As(err, &lacks) || !strings.Contains(err.Error(), "no room: needs ") {
		t.Errorf("more than there is: %v", err)
	}
	if err := n.roomFor(t.Context(), first, needs{writes: space.Free / 3 * 2}, true); err != nil {
		t.Fatal(err)
	}
	if err := n.roomFor(t.Context(), second, needs{writes: space.Free / 3 * 2}, false); !errors.As(err, &lacks) {
		t.Errorf("without patience: %v", err)
	}
	got := make(chan error)
	go func() { got <- n.roomFor(t.Context(), second, needs{writes: space.Free / 3 * 2}, true) }()
	waited := false
	for !waited { // it lets others pass while it waits
		n.do(func() { waited = second.stage == stageStalled })
	}
	n.do(func() {
		first.stage, first.result = stageOver, &job.Result{}
		n.roomChanged()
	})
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A refusingSlot is a supervisor that cannot begin with its order.
type refusingSlot struct {
	ordered func()
	reports chan proc.Report
}

func (s *refusingSlot) Run(*proc.Order) error {
	s.ordered()
	s.reports <- proc.Report{Passing: true, Refused: "not now"}
	return nil
}
func (s *refusingSlot) Stop(string) error           { return nil }
func (s *refusingSlot) Reports() <-chan proc.Report { return s.reports }
func (s *refusingSlot) Pid() int                    { return 1 }
func (s *refusingSlot) Close() error                { return nil }

// What an attempt may still take of the disk is all that it needs until it starts, then
// what it said it writes, less what it has written, and nothing if it could not start.
func TestClaim(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	as, errs := n.desk.Begin([]desk.Note{{Order: 1, Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var a *attempt
	n.do(func() {
		a = n.add(as[0])
		a.has = &share{}
		n.setStage(a, stageReady)
	})
	claims := func(when string, least, most int64) {
		t.Helper()
		n.do(func() {
			if got := a.claim(); got < least || got > most {
				t.Errorf("%s it claims %d bytes", when, got)
			}
		})
	}
	const mib = 1 << 20
	if err := n.roomFor(t.Context(), a, needs{fetch: mib, copies: mib, writes: 8 * mib}, false); err != nil {
		t.Fatal(err)
	}
	claims("before it starts", 10*mib, 10*mib)
	s := &refusingSlot{reports: make(chan proc.Report, 1), ordered: func() {
		claims("when it starts", 8*mib, 8*mib)
		if err := os.WriteFile(filepath.Join(a.Dir, "output"), make([]byte, 4*mib), 0o600); err != nil {
			t.Error(err)
		}
		var all []*watched
		n.do(func() { all = n.allRunning() })
		(&diskWatch{n: n}).measured(t.Context(), all)
		claims("when it has written", 4*mib, 5*mib)
	}}
	if begun, _, _, err := n.start(t.Context(), a, &proc.Order{}, &desk.Started{}, s); begun || !errors.Is(err, errRefused) {
		t.Errorf("begun: %v, %v", begun, err)
	}
	claims("when it could not start", 0, 0)
}

// TestTakenOverInputsStay has the cache trimmed at once after a start: the shared inputs of an
// attempt and of a build that an earlier dnoded began stay while these run. The attempt has no
// record of its batch.
func TestTakenOverInputsStay(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	ins := []job.Input{cachedInput(t, n, "of the attempt"), cachedInput(t, n, "of the build"), cachedInput(t, n, "of nobody")}
	as, errs := n.desk.Begin([]desk.Note{{Order: 1, Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := as[0].SetStarted(&desk.Started{Kind: job.Command, Shared: ins[:1]}); err != nil {
		t.Fatal(err)
	}
	b, build := adoptable(t, n, 0)
	s, err := b.Started()
	if err != nil {
		t.Fatal(err)
	}
	s.Shared = ins[1:2]
	attempt, err := proc.TakeLock(as[0].Dir)
	if err := errors.Join(err, b.SetStarted(s)); err != nil {
		t.Fatal(err)
	}
	n.do(func() {
		if err := n.takeOver(t.Context()); err != nil {
			t.Error(err)
		}
		n.goOn()
		_, err = n.desk.Evict(0)
	})
	for i, want := range []bool{true, true, false} {
		if _, here := n.desk.Cached(ins[i].Sum); here != want || err != nil {
			t.Errorf("the input %s is here: %v, %v", ins[i].Path, here, err)
		}
	}
	if err := errors.Join(attempt.Release(), build.Release()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); n.desk.CacheSize() > 0; <-time.After(time.Millisecond) {
		if _, err := n.desk.Evict(0); err != nil || time.Now().After(deadline) {
			t.Fatalf("the cache keeps %d bytes, %v", n.desk.CacheSize(), err)
		}
	}
}

// cachedInput puts an input into the cache.
func cachedInput(t *testing.T, n *daemon, content string) job.Input {
	t.Helper()
	h := sha256.Sum256([]byte(content))
	in := job.Input{Path: content, Sum: hex.EncodeToString(h[:]), Size: int64(len(content))}
	if err := n.desk.Cacher().Put(0, pack.Blobs(map[string]int64{in.Sum: in.Size})[0], 0, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	return in
}
