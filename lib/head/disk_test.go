package head

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/suite"
	"distribute/lib/wire"
	"distribute/spool"
)

// slowSyncs lets every sync of a path that contains part take until open is
// called. begun has something as soon as one has begun.
func slowSyncs(t *testing.T, part string) (begun <-chan struct{}, open func()) {
	t.Helper()
	gate, seen := make(chan struct{}), make(chan struct{}, 1)
	end := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		if strings.Contains(f.Name(), part) {
			select {
			case seen <- struct{}{}:
			default:
			}
			<-gate
		}
		return f.Sync()
	}})
	t.Cleanup(end)
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return seen, open
}

// free lets the head's disk have so many free bytes, as far as the head sees.
func (s *site) free(n int64) {
	s.h.transfers.room.mu.Lock()
	defer s.h.transfers.room.mu.Unlock()
	s.h.transfers.room.space = func() (spool.Space, error) { return spool.Space{Free: n, Files: -1}, nil }
}

// again is after how long the head asks again for a result that did not come.
const again = 10 * time.Second

// later lets time pass for the head.
func (s *site) later(by time.Duration) {
	s.t.Helper()
	if !s.h.do(func() { s.h.now += by; s.h.apply(sched.Tick{}) }) {
		s.t.Fatal("the head is at its end")
	}
}

// await waits until something is so.
func await(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !so(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("it does not come to be so")
		}
	}
}

// While a sync takes very long, nodes are heard and answered, and questions are,
// by what is durable; what is not, nobody is told.
func TestJ33SyncTakesLong(t *testing.T) {
	s, d, start := runningJob(t)
	begun, open := slowSyncs(t, "log.jsonl")
	tool, ref := s.tool(), job.NewToken()
	s.send(tool, &wire.Change{Ref: ref, Verb: "cancel", Args: []string{"ns/b/j"}})
	<-begun
	for n := range uint64(3) {
		s.send(d.c, &wire.Ping{N: n})
		if p := expect[*wire.Pong](t, d.c); p.N != n {
			t.Errorf("ping %d is answered by %d", n, p.N)
		}
		if row := s.state("ns/b/j"); row.State != job.Running {
			t.Errorf("what is not durable is told: %s", row.State)
		}
	}
	ask := s.tool()
	s.send(ask, &wire.Query{Ref: job.NewToken(), Of: "nodes"})
	if err := wire.Drain(ask.RecvTransfer(expect[*wire.Send](t, ask))); err != nil {
		t.Error(err)
	}
	s.leftNothing(&wire.Pull{ID: "ns/b/j~1"})
	open()
	if err := wire.Drain(tool.RecvTransfer(expect[*wire.Send](t, tool))); err != nil {
		t.Error(err)
	}
	if stop := expect[*wire.Stop](t, d.c); stop.Attempt != start.Attempt {
		t.Errorf("stopped: %+v", stop)
	}
	s.send(d.c, &wire.Ended{Attempt: start.Attempt, Result: job.Result{Outcome: job.Outcome{Signal: "SIGTERM"}}})
	s.becomes("ns/b/j", job.Cancelled)
}

// leftNothing says that who asks for what a job left is told that there is nothing.
func (s *site) leftNothing(ask wire.Message) {
	s.t.Helper()
	c := s.tool()
	s.send(c, ask)
	c.ReadWithin(time.Minute)
	if _, err := wire.Expect[*wire.Send](c); !errors.As(err, new(*wire.Error)) {
		s.t.Errorf("%+v is answered by %v", ask, err)
	}
}

// Who pulls what is on its way to its place waits for that.
func TestPullOfWhatIsOnItsWay(t *testing.T) {
	s, d, start := runningJob(t)
	if ids, err := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/b/j"}}); err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	m, _ := result("hello\n")
	s.send(d.c, ended(start.Attempt, 1, m))
	g := next[*wire.Grant](d)
	begun, open := slowSyncs(t, "log.jsonl")
	d.give(g, "hello\n")
	<-begun
	c, answer := s.tool(), make(chan error, 1)
	s.send(c, &wire.Pull{ID: "ns/b/j~1"})
	go func() {
		_, err := wire.Expect[*wire.Send](c)
		answer <- err
	}()
	await(t, func() (waits bool) {
		s.h.do(func() { waits = len(s.h.ticks.after) > 0 })
		return waits || len(answer) > 0
	})
	open()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// A release sees a hold that is not durable yet: its answer may have been lost, and who asked
// for it thinks better of it.
func TestReleaseBehindAHold(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	begun, open := slowSyncs(t, "log.jsonl")
	s.send(s.tool(), &wire.Change{Ref: job.NewToken(), Verb: "hold", Args: []string{"ns/b/j"}})
	<-begun
	released := make(chan []string)
	go func() {
		ids, _ := s.ask(s.tool(), &wire.Change{Verb: "release", Args: []string{"ns/b/j"}})
		released <- ids
	}()
	await(t, func() (asked bool) {
		s.h.do(func() { asked = len(s.h.ticks.after) > 0 })
		return asked
	})
	open()
	if ids := <-released; len(ids) != 1 {
		t.Errorf("released are %q", ids)
	}
	s.becomes("ns/b/j", job.Queued)
}

// A node comes again while a stream of its old session still works on what is
// staged of a result. The new session waits until that is over, and uses what it
// left: nothing is sent twice, and two never write into one place.
func TestD88OneOwnerOfWhatIsStaged(t *testing.T) {
	s, d, start := givenJob(t)
	m, _ := result("hello\n")
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended(start.Attempt, 0, m))
	g := expect[*wire.Grant](t, d.c)
	begun, open := slowSyncs(t, filepath.Join("staging", string(start.Attempt)))
	d.give(g, "hello\n")
	<-begun // all of it is here, and is being made durable
	d.c.Close()
	r := ended(start.Attempt, 0, m).Result
	again := s.desk("ws1", "boot1", listed(start, job.PhaseReturning, &r))
	waits := func() (n int) {
		s.h.transfers.staging.mu.Lock()
		defer s.h.transfers.staging.mu.Unlock()
		return len(s.h.transfers.staging.of[start.Attempt])
	}
	await(t, func() bool { return waits() == 1 })
	open()
	expect[*wire.Have](t, again.c) // and no Grant before
	s.resultIs("hello\n")
	await(t, s.nothingPromised)
}

// What is staged was changed on the disk before it is sealed: what is wrong is
// asked for again, and only that.
func TestD89FlippedWhileStaged(t *testing.T) {
	s, _, start := runningJob(t)
	one, _ := result("hello\n")
	m := append(pack.Manifest{one[0]}, one[0])
	m[0].Path = "a.txt"
	d := s.staged(start, m, map[string]string{"a.txt": "hello\n", "out.txt": "hallo\n"})
	g := expect[*wire.Grant](t, d.c)
	if g.Manifest || len(g.Want.Ranges) != 1 || g.Want.Ranges[0] != [2]int{1, 2} {
		t.Fatalf("asked for %+v", g)
	}
	_, open := result("hello\n")
	err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfTree, Attempt: g.Attempt}, func(w io.Writer) error {
		return pack.Send(w, m, pack.Want(g.Want), open)
	})
	if err != nil {
		t.Fatal(err)
	}
	expect[*wire.Have](t, d.c)
	s.resultIs("hello\n")
}

// A disk that fails under a result that comes ends dsched (S05).
func TestS05StagingFails(t *testing.T) {
	h := newState(t)
	ended := h.background(t)
	h.broken(ofDisk(&os.PathError{Op: "write", Path: "x", Err: os.ErrInvalid}))
	h.broken(ofDisk(&os.PathError{Op: "write", Path: "x", Err: syscall.EIO}))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the spool cannot be written, so dsched ends") {
		t.Errorf("it ends with %v", err)
	}
}

// reading is done while its end is read.
type reading func()

func (f reading) Read([]byte) (int, error) { f(); return 0, io.EOF }

// A node that was asked for a result, for which there is room set aside, and
// sends nothing loses its session; one whose result is being made durable, or
// that was asked for nothing, does not.
func TestI17SendsNothing(t *testing.T) {
	s := &session{grants: map[job.Token]*grant{}}
	if s.stalled() {
		t.Error("it was asked for nothing")
	}
	s.grants[job.NewToken()] = &grant{}
	if !s.stalled() {
		t.Error("it sends nothing")
	}
	if s.busy = 1; s.stalled() {
		t.Error("the head's disk is slow")
	}
	io.ReadAll(busyReader{moving{reading(func() {
		if s.moved = (time.Time{}); !s.stalled() {
			t.Error("the head waits for it")
		}
	}), s}})
	if s.moved = (time.Time{}); s.stalled() {
		t.Error("the head is at work with what has come")
	}
	s.busy = 0
	io.ReadAll(moving{strings.NewReader("x"), s})
	if s.stalled() {
		t.Error("it sends")
	}
}

// What an earlier transfer of a large result has left cannot be read: it is removed, and the
// result comes whole.
func TestLargeResultBesideUnreadable(t *testing.T) {
	s, d, start := givenJob(t)
	staged := filepath.Join(s.dir, "batches/ns/b/staging", string(start.Attempt))
	if err := errors.Join(os.Mkdir(staged, 0o750), os.WriteFile(filepath.Join(staged, "tree"), nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	m, _ := result("hello\n")
	said := ended(start.Attempt, 0, m)
	said.Result.Bytes = largeResult
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, said)
	g := expect[*wire.Grant](t, d.c)
	if !g.Manifest {
		t.Errorf("asked for %+v", g)
	}
	d.give(g, "hello\n")
	expect[*wire.Have](t, d.c)
	s.resultIs("hello\n")
	await(t, s.nothingPromised)
}

// A result is not slow while the head reads what an earlier transfer has left of it: the node has
// not been asked for the rest.
func TestNotSlowBeforeAsked(t *testing.T) {
	s, d, start := givenJob(t)
	tree := filepath.Join(s.dir, "batches/ns/b/staging", string(start.Attempt), "tree")
	if err := errors.Join(os.MkdirAll(tree, 0o750), os.WriteFile(filepath.Join(tree, "j_output.txt"), []byte("he"), 0o640)); err != nil {
		t.Fatal(err)
	}
	room := s.h.transfers.room
	yielding := func() int {
		room.mu.Lock()
		defer room.mu.Unlock()
		return len(room.may)
	}
	var read atomic.Int64
	undo := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		if strings.HasPrefix(f.Name(), tree) {
			read.Add(1)
			if n := yielding(); n > 0 {
				t.Errorf("%d transfers may yield while %s is read", n, f.Name())
			}
		}
		return nil
	}})
	m, _ := result("hello\n")
	said := ended(start.Attempt, 0, m)
	said.Result.Bytes = largeResult
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, said)
	g := expect[*wire.Grant](t, d.c)
	undo()
	if n := yielding(); n != 1 || read.Load() == 0 {
		t.Errorf("%d transfers may yield when the node is asked; what was left was read %d times", n, read.Load())
	}
	d.give(g, "hello\n")
	expect[*wire.Have](t, d.c)
	await(t, s.nothingPromised)
}

// While there are no descriptors to look at what is staged of a large result, it is not asked for
// anew: what came before stays, and is looked at later.
func TestLargeResultNoDescriptor(t *testing.T) {
	s, _, start := givenJob(t)
	g := &grant{attempt: start.Attempt, large: true, room: promise{room: s.h.transfers.room}}
	if !s.h.do(func() {
		for _, session := range s.h.nodes.sessions {
			g.session = session
		}
		g.batch = s.h.batches[s.h.byID["ns/b"]].Batch
	}) {
		t.Fatal("the head has ended")
	}
	defer g.room.end()
	if err := os.MkdirAll(filepath.Join(s.dir, "batches/ns/b/staging", string(start.Attempt), "tree"), 0o750); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := g.promised(s.h, largeResult, 1)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("it is asked for: %v", err)
	}
}

// A manifest for which there is no room, although its node had announced less,
// is not followed by a byte of its tree; the result comes when there is room.
func TestD94MoreThanItSaid(t *testing.T) {
	s := newSite(t)
	s.free(1 << 20)
	s.submit("ns/b", "j")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	text := strings.Repeat("hello\n", 1<<20)
	m, _ := result(text)
	said := ended(start.Attempt, 0, m)
	said.Result.Bytes = 10
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, said)
	d.give(expect[*wire.Grant](t, d.c), text)
	row := s.becomes("ns/b/j", job.Stranded)
	if row.Reason != "head's disk: needs 6M, has 1M above its reserve" {
		t.Errorf("the reason is %q", row.Reason)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "batches/ns/b/staging/*/tree/*")); len(left) > 0 || err != nil {
		t.Errorf("staged: %v, %v", left, err)
	}
	s.free(1 << 30)
	s.later(again)
	d.give(expect[*wire.Grant](t, d.c), text)
	expect[*wire.Have](t, d.c)
	if row := s.state("ns/b/j"); row.State != job.Done || row.Reason != "" {
		t.Errorf("the row is %+v", row)
	}
	await(t, s.nothingPromised)
}

// With no room for a log, and the ballast given up, nothing is told or done that
// cannot be written down, and questions are answered; when there is room, all of
// it is.
func TestJ26NothingWithoutRoom(t *testing.T) {
	was := tickEvery
	tickEvery = 100 * time.Millisecond
	t.Cleanup(func() { tickEvery = was })
	s := newSite(t)
	s.submit("ns/c", "x")
	if ids, err := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/c/x"}}); err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	s.submit("ns/b", "j", "k")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	var full atomic.Bool
	var tries atomic.Int32
	full.Store(true)
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "log.write" && full.Load() {
			tries.Add(1)
			return syscall.ENOSPC
		}
		return nil
	}})()
	tool, ref := s.tool(), job.NewToken()
	s.send(tool, &wire.Change{Ref: ref, Verb: "cancel", Args: []string{"ns/b/j"}})
	await(t, func() bool { return tries.Load() > 2 && exists(filepath.Join(s.dir, "ballast")) != nil })
	s.send(d.c, &wire.Ping{N: 1})
	expect[*wire.Pong](t, d.c) // and no Stop before
	s.leftNothing(&wire.Pull{ID: "ns/b/k~1"})
	s.leftNothing(&wire.Log{ID: "ns/c/x"})
	if row := s.state("ns/b/j"); row.State != job.Running {
		t.Errorf("what is not durable is told: %s", row.State)
	}
	full.Store(false)
	if err := wire.Drain(tool.RecvTransfer(expect[*wire.Send](t, tool))); err != nil {
		t.Error(err)
	}
	expect[*wire.Stop](t, d.c)
	await(t, func() bool { return exists(filepath.Join(s.dir, "ballast")) == nil })
}

func exists(name string) error { _, err := os.Lstat(name); return err }

// Somebody else fills the disk while a result comes. What has come stays, the
// job is shown as stranded, and when there is room the rest is asked for.
func TestD94FullWhileReceiving(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		suite.Missing(t, fmt.Sprintf("a small file system cannot be mounted here: %v", err))
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := newSiteIn(t, filepath.Join(dir, "s"))
	s.free(1 << 40) // as it was when the result was asked for
	s.submit("ns/b", "j")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	text := strings.Repeat("hello\n", 5<<20)
	m, _ := result(text)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended(start.Attempt, 0, m))
	d.give(expect[*wire.Grant](t, d.c), text)
	row := s.becomes("ns/b/j", job.Stranded)
	if !strings.HasPrefix(row.Reason, "head's disk: ") || !strings.HasSuffix(row.Reason, "no space left on device") {
		t.Errorf("the reason is %q", row.Reason)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=100m"); err != nil {
		t.Fatal(err)
	}
	s.later(again)
	g := expect[*wire.Grant](t, d.c)
	if g.Manifest || g.Want.From == 0 {
		t.Errorf("asked for %+v", g)
	}
	d.give(g, text)
	expect[*wire.Have](t, d.c)
	if s.file("ns/b/out/j/out.txt") != text {
		t.Error("the result is another")
	}
	await(t, s.nothingPromised)
}

// A list of jobs for which there is no room is refused while it comes, and
// nothing is left of it.
func TestS04JobsWithoutRoom(t *testing.T) {
	s := newSite(t)
	s.free(60_000)
	c := s.tool()
	s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command"}`)
	var jobs []byte
	for i := range 3 {
		jobs = append(job.AppendJob(jobs, &job.Job{Name: string(rune('a' + i)), Run: []string{strings.Repeat("x", 1<<19)}}), '\n')
	}
	s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, string(jobs))
	refusal := expect[*wire.Error](t, c)
	if refusal.Status != 75 || !strings.HasPrefix(refusal.Text, "the head's disk has ") || !strings.HasSuffix(refusal.Text, "; delete what is over with drm, or wait") {
		t.Errorf("refused with %+v", refusal)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "batches/ns/*")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	s.free(1 << 30)
	s.submit("ns/b", "j")
}

// Of the large results of a node two are asked for, and the next when one of
// them is home.
func TestLargeResultsTakeTurns(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k", "l")
	d := s.desk("ws1", "boot1")
	m := pack.Manifest{{Path: "out.txt", Type: pack.File, Size: largeResult, Mode: 0o644,
		Time: time.Unix(1, 0).UTC(), Sum: "3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351"}}
	open := func(int, pack.Entry) (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, largeResult)), nil
	}
	var asked []*wire.Grant
	for started := 0; started < 3 || len(asked) < 2; {
		d.c.ReadWithin(2 * time.Minute)
		switch in, err := d.c.Recv(); in := in.(type) {
		case *wire.Start:
			started++
			s.send(d.c, &wire.Phase{Attempt: in.Attempt, Phase: job.PhaseRunning}, ended(in.Attempt, 0, m))
		case *wire.Grant:
			asked = append(asked, in)
		default:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, func() bool {
		s.h.transfers.room.mu.Lock()
		defer s.h.transfers.room.mu.Unlock()
		return len(s.h.transfers.room.parked) == 1
	})
	for i := 0; i < len(asked); i++ {
		g := asked[i]
		if err := d.up.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, m.Encode); err != nil {
			t.Fatal(err)
		}
		err := d.up.SendTransfer(&wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt}, func(w io.Writer) error {
			return pack.Send(w, m, pack.Want(g.Want), open)
		})
		if err != nil {
			t.Fatal(err)
		}
		for have, next := false, i > 0; !have || !next; {
			d.c.ReadWithin(2 * time.Minute)
			switch m, err := d.c.Recv(); m := m.(type) {
			case *wire.Have:
				have = true
			case *wire.Grant:
				asked, next = append(asked, m), true
			default:
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if len(asked) != 3 {
		t.Errorf("%d were asked for", len(asked))
	}
	await(t, s.nothingPromised)
}

// nothingPromised says that no transfer has anything of the disk any more.
func (s *site) nothingPromised() bool {
	r, x := s.h.transfers.room, &s.h.transfers.staging
	r.mu.Lock()
	defer r.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	return r.bytes == 0 && r.files == 0 && r.enough == 0 && len(r.parked) == 0 && len(x.of) == 0
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
