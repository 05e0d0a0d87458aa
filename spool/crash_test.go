package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/suite"
)

// A crashed program is this test program, run again on a spool with a failpoint
// set. It tells on its stdout what a user, a node or a caller was told; what was
// told must be true afterwards.
const (
	crashScene = "SPOOL_TEST_SCENE"
	crashDir   = "SPOOL_TEST_DIR"
)

func TestMain(m *testing.M) {
	if scene := os.Getenv(crashScene); scene != "" {
		run := scenes[scene].run
		if scene == "hold" {
			run = runHold
		}
		if err := run(os.Getenv(crashDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A scene is a write path. prepare makes a spool for it; run goes down the path
// from wherever an earlier run was stopped.
type scene struct {
	prepare func(t *testing.T, dir string)
	run     func(dir string) error
}

var scenes = map[string]scene{
	"init":    {func(*testing.T, string) {}, runInit},
	"submit":  {prepareEmpty, runSubmit},
	"run":     {prepareBatch, runJobs},
	"evict":   {prepareBatch, runEvicted},
	"small":   {prepareBatch, small(runJobs)},
	"leave":   {prepareBatch, small(runEvicted)},
	"torn":    {prepareTorn, runLoad},
	"drop":    {prepareEmpty, runDrop},
	"take":    {prepareDrop, runTake},
	"delete":  {prepareOver, runDelete},
	"compact": {prepareDeleted, runCompact},
	"collect": {prepareOld, runCollect},
	"upload":  {prepareEmpty, runUpload},
	"add":     {prepareBatch, runAdd},
	"secrets": {prepareEmpty, runSecrets},
}

// small goes down a path with small results.
func small(run func(dir string) error) func(dir string) error {
	return func(dir string) error {
		sealsSmall = true
		return run(dir)
	}
}

const (
	crashSubmission = job.Token("00112233445566778899aabbccddeeff")
	badDrop         = "ffeeddccbbaa99887766554433221100"
)

var crashContents = []string{"small", strings.Repeat("big", job.SmallFile)}

func prepareEmpty(t *testing.T, dir string) {
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
}

func prepareBatch(t *testing.T, dir string) {
	prepareEmpty(t, dir)
	h, _, _ := loadHead(t, dir)
	submit(t, h, "ns/b", []string{"a", "b"}).Close()
	// What clean removes.
	os.Mkdir(h.path("batches", "ns", ".new-x"), 0o750)
	os.Mkdir(h.path("trash", "x"), 0o750)
	h.Close()
}

func prepareTorn(t *testing.T, dir string) {
	prepareBatch(t, dir)
	f, err := os.OpenFile(filepath.Join(dir, "batches/ns/b/log.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":77,"t":"20`); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
}

func prepareDrop(t *testing.T, dir string) {
	prepareEmpty(t, dir)
	runScene(t, "drop", dir, "")
	wrong := filepath.Join(dir, "incoming", badDrop)
	if err := os.WriteFile(wrong, []byte(strings.Repeat("garbage\n", 20)), 0o640); err != nil {
		t.Fatal(err)
	}
}

// prepareOver makes a batch that is closed.
func prepareOver(t *testing.T, dir string) {
	prepareBatch(t, dir)
	runScene(t, "run", dir, "")
}

// prepareDeleted leaves, beside a batch that is over, a long head.jsonl of deleted ones.
func prepareDeleted(t *testing.T, dir string) {
	prepareOver(t, dir)
	listDeleted(t, dir, 5000)
}

// prepareOld leaves, beside a batch, what a collection removes, which is a blob
// of nobody, and what Load would remove before: runCollect makes that.
func prepareOld(t *testing.T, dir string) {
	prepareEmpty(t, dir)
	h, _, _ := loadHead(t, dir)
	submit(t, h, "ns/b", []string{"a", "b"}, crashContents...).Close()
	submit(t, h, "ns/other", []string{"a"}, crashContents[1]+"!").Close()
	if err := os.RemoveAll(h.path("batches", "ns", "other")); err != nil {
		t.Fatal(err)
	}
	h.Close()
}

func tell(format string, a ...any) { fmt.Printf(format+"\n", a...) }

// lockAndLoad starts a head.
func lockAndLoad(dir string) (*Head, []*Batch, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, nil, err
	}
	h, err := s.Lock()
	if err != nil {
		return nil, nil, err
	}
	open, problems, err := h.Load()
	for _, p := range problems {
		if p.Stops {
			err = errors.Join(err, p)
		}
	}
	return h, open, errors.Join(err, h.EmptyTrash(context.Background()))
}

func runInit(dir string) error {
	if err := Init(dir, Private); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func runLoad(dir string) error {
	_, _, err := lockAndLoad(dir)
	return err
}

// runCompact compacts head.jsonl while a node is drained.
func runCompact(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	return compactHead(h, func() error {
		h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws1", By: "ana"})
		return h.Commit()
	})
}

// runSubmit sends one submission twice, as who was not answered does.
func runSubmit(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	for range 2 {
		s, err := h.Begin(crashSubmission, "ns/b", "ana", os.Getuid())
		if err != nil {
			return err
		}
		if err := fillIn(s, plain, []string{"a", "b"}, crashContents...); err != nil {
			return err
		}
		b, err := s.Finish(false)
		if err != nil && !errors.Is(err, ErrSame) {
			return err
		}
		tell("batch %s", b.ID)
	}
	return nil
}

// runAdd adds jobs to the batch, twice, and then one more.
func runAdd(dir string) error {
	h, open, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	for _, names := range [][]string{{"b", "c"}, {"c", "d"}, {"e"}} {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
		if err != nil {
			return err
		}
		contents := []string{names[0] + " small", strings.Repeat(names[0], job.SmallFile)}
		if names[0] != "e" {
			contents = nil
		}
		if err := fillIn(s, plain, names, contents...); err != nil {
			return err
		}
		a, err := s.Add(open[0])
		if err != nil {
			return err
		}
		if a.Jobs > 0 {
			appendAdded(h, a)
		}
		if err := h.Commit(); err != nil {
			return err
		}
		a.End()
		tell("added %s", names[len(names)-1])
	}
	return nil
}

// runSecrets makes a batch with secrets, and replaces their values.
func runSecrets(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	spec := plain
	spec.Secrets = []string{"KEY"}
	for _, value := range []string{"value-1", "value-2"} {
		s, err := h.Begin(crashSubmission, "ns/b", "ana", os.Getuid())
		if err != nil {
			return err
		}
		if err := fillIn(s, spec, []string{"a"}); err != nil {
			return err
		}
		if err := s.Secrets(job.Secrets{"KEY=" + value}); err != nil {
			return err
		}
		_, err = s.Finish(false)
		if errors.Is(err, ErrSame) {
			b, found := h.Jobs("ns/b")
			if err = found; err == nil {
				err = b.RenewSecrets(s)
			}
		}
		if err != nil {
			return err
		}
		tell("secret %s", value)
	}
	return nil
}

// runDelete deletes the batch, and then makes another one of its name, which
// must not be taken for the one that is deleted.
func runDelete(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	if h.Closed("ns/b") {
		first, err := h.firstRecord("ns/b")
		if err != nil {
			return err
		}
		gone, err := h.Delete("ns/b", first.seq, "ana", crashSubmission)
		if err == nil {
			err = h.Commit()
		}
		if err != nil {
			return err
		}
		tell("deleted")
		if err := errors.Join(h.Trash(gone), h.Trash(gone), h.EmptyTrash(context.Background())); err != nil {
			return err
		}
	}
	s, err := h.Begin(crashSubmission, "ns/b", "ana", os.Getuid())
	if err == nil {
		err = fillIn(s, plain, []string{"a", "b"}, crashContents...)
	}
	if err != nil {
		return err
	}
	b, err := s.Finish(false)
	if err != nil && !errors.Is(err, ErrSame) {
		return err
	}
	tell("batch %s", b.ID)
	return nil
}

func runCollect(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	if err := h.mkUploads(h.uploads(7)); err != nil {
		return err
	}
	for _, name := range []string{h.path("blobs", sumOf(crashContents[1])[:2], ".x.tmp~"), h.path("batches", "ns", ".new-x", "y"),
		h.uploads(7, sumOf("x")), h.uploads(7, sumOf("x")+"."+string(crashSubmission))} {
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, nil, 0o600))
		if err != nil {
			return err
		}
	}
	later(h, blobAge+time.Hour)
	if _, err := h.Collect(context.Background(), 0); err != nil {
		return err
	}
	tell("batch ns/b")
	return nil
}

// later lets time pass for a Head.
func later(h *Head, by time.Duration) {
	now, up := h.now, h.uptime
	h.now = func() time.Time { return now().Add(by) }
	h.uptime = func() (time.Duration, error) { n, err := up(); return n + by, err }
}

// runUpload has a large input cut, sends the batch again, and has a second one
// dropped; all of a user who is not the spool's own.
func runUpload(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	whole, other := largeText("whole"), largeText("other")
	for _, c := range []string{whole, other} {
		if err := cutUpload(h, os.Getuid()+1, c, len(c)-7); err != nil {
			return err
		}
	}
	s, err := h.Begin(crashSubmission, "ns/b", "bob", os.Getuid()+1)
	if err == nil {
		err = fillIn(s, plain, []string{"a", "b"}, whole)
	}
	if err != nil {
		return err
	}
	b, err := s.Finish(false)
	if err != nil && !errors.Is(err, ErrSame) {
		return err
	}
	tell("batch %s", b.ID)
	_, err = h.DropUploads(1)
	return err
}

func runDrop(dir string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	jobs := func(yield func(*job.Job) bool) {
		yield(&job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{inputOf("f", crashContents[0]), inputOf("g", crashContents[1])}})
	}
	err = s.Leave(Drop{Submission: crashSubmission, Batch: "ns/b", Jobs: 1}, []byte("command:\n"), &plain, jobs,
		func(sum string) (io.ReadCloser, error) {
			i := slices.IndexFunc(crashContents, func(c string) bool { return sumOf(c) == sum })
			return io.NopCloser(strings.NewReader(crashContents[i])), nil
		})
	if errors.Is(err, fs.ErrExist) {
		// A file half written by a dsubmit that died: the next one draws
		// another id, and this one is removed when it is old.
		return os.Remove(s.path("incoming", "."+string(crashSubmission)+".tmp~"))
	}
	if err == nil {
		tell("left")
	}
	return err
}

func runTake(dir string) error {
	h, _, err := lockAndLoad(dir)
	if err != nil {
		return err
	}
	waiting, err := h.Waiting()
	if err != nil {
		return err
	}
	for _, w := range waiting {
		if w.Why != "" {
			continue
		}
		sub, d, err := h.Take(w.Name, func(int) (string, error) { return "ana", nil }, anyRoom)
		if errors.Is(err, ErrInput) {
			if err := h.Reject(w.Name, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		b, err := sub.Finish(d.Free)
		if err != nil && !errors.Is(err, ErrSame) {
			return err
		}
		tell("batch %s", b.ID)
		if err := h.Taken(w.Name); err != nil {
			return err
		}
	}
	return nil
}

// runJobs is a small dsched: it takes every job of the batch from where its log
// says that it is to its end. Job a is done by its first attempt, b fails.
func runJobs(dir string) error {
	h, open, err := lockAndLoad(dir)
	if err != nil || len(open) == 0 {
		return err
	}
	b := open[0]
	last := make(map[string]job.Record)
	err = b.Replay(func(_ int, rec *job.Record) error { last[rec.Job] = *rec; return nil })
	if err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		rec, ok := last[name]
		if !ok {
			rec = start(name, 1)
			h.Append(b, &rec)
			if err := h.Commit(); err != nil {
				return err
			}
			tell("start %s", name)
		}
		if rec.Kind == job.KindStart {
			if err := endJob(h, b, rec); err != nil {
				return err
			}
		}
		tell("have %s", name)
	}
	h.CloseBatch(b)
	return h.Commit()
}

// runEvicted takes job a from attempt to attempt: the first two have to leave and
// save something, the third one is its result. Job b is cancelled when it has
// saved something.
func runEvicted(dir string) error {
	h, open, err := lockAndLoad(dir)
	if err != nil || len(open) == 0 {
		return err
	}
	b := open[0]
	last, tries := make(map[string]job.Record), map[string]int{}
	err = b.Replay(func(_ int, rec *job.Record) error {
		last[rec.Job] = *rec
		tries[rec.Job] = max(tries[rec.Job], rec.Try)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		for rec := last[name]; rec.Kind != job.KindDone && rec.Kind != job.KindCancelled; {
			if rec, err = nextOf(h, b, name, rec, tries); err != nil {
				return err
			}
		}
		tell("over %s", name)
	}
	h.CloseBatch(b)
	return h.Commit()
}

// printedBy is what an attempt prints that has to leave.
func printedBy(name string, try int) string { return fmt.Sprint("step ", try, " of ", name) }

// nextOf goes one record on from rec, and does what that asks for.
func nextOf(h *Head, b *Batch, name string, rec job.Record, tries map[string]int) (next job.Record, err error) {
	place := func() error { return nil }
	past := tries[name] - 1
	switch {
	case rec.Kind == job.KindBack && name == "b":
		past = 1
		next = job.Record{Kind: job.KindCancelled, Job: name, By: "ana"}
	case rec.Kind != job.KindStart:
		past = 0
		tries[name]++
		next = start(name, tries[name])
	default:
		text := printedBy(name, rec.Try)
		m := resultOf(text)
		prints := m[len(m)-1]
		prints.Path = name + "_output.txt"
		m, err := bringAs(h, b, rec.Attempt, append(pack.Manifest{prints}, m...), text)
		if err != nil {
			return next, err
		}
		next = endOf(job.KindDone, rec, m)
		place = func() error { return h.Publish(b, name, rec.Attempt) }
		if rec.Try < 3 {
			next = endOf(job.KindBack, rec, m)
			next.Fate, next.Saved = job.FateEvicted, true
			place = func() error { return h.Aside(b, name, rec.Try, rec.Attempt) }
		}
	}
	h.Append(b, &next)
	if past > 0 {
		h.Owe(b)
	}
	if err := h.Commit(); err != nil {
		return next, err
	}
	tell("%s %s %d", next.Kind, name, next.Try)
	if err := place(); err != nil {
		return next, err
	}
	if past > 0 {
		if _, err := h.Shed(b, name, past, false); err != nil {
			return next, err
		}
	}
	return next, errors.Join(h.SyncPublished(), h.EmptyTrash(context.Background()))
}

func endJob(h *Head, b *Batch, started job.Record) error {
	m, err := bring(h, b, started.Attempt, "of "+started.Job)
	if err != nil {
		return err
	}
	kind, place := job.KindDone, func() error { return h.Publish(b, "a", started.Attempt) }
	if started.Job == "b" {
		kind, place = job.KindFailed, func() error { return h.Aside(b, "b", 1, started.Attempt) }
	}
	rec := endOf(kind, started, m)
	h.Append(b, &rec)
	if err := h.Commit(); err != nil {
		return err
	}
	tell("over %s", started.Job)
	return errors.Join(place(), h.SyncPublished())
}

// runScene runs a scene in a process of its own. It returns what was told, and
// whether the process came to its end.
func runScene(t *testing.T, name, dir, fail string) (told string, finished bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashScene+"="+name, crashDir+"="+dir, durable.FailVar+"="+fail)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == durable.FailStatus {
		return string(out), false
	}
	if err != nil {
		t.Fatalf("%s with %q: %v: %s", name, fail, err, talk.String())
	}
	return string(out), true
}

// stepsOf runs a scene to its end and lists the steps it passes.
func stepsOf(t *testing.T, name string) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "spool")
	scenes[name].prepare(t, dir)
	list := filepath.Join(t.TempDir(), "steps")
	runScene(t, name, dir, "list="+list)
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// Every write path, stopped at every step at every pass, leaves a row of the
// table in dspool(5), which the next start brings to where nothing that was
// told is lost; and going on from there brings all to its end. Without D_FULL=1
// it is stopped at some of them, from its beginning to its end.
func TestJ28CrashAtEachStep(t *testing.T) {
	for name := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, apart := 1, suite.Size(17, 1)
			for crashAt(t, name, at) {
				at += apart
			}
			if least := len(stepsOf(t, name)); at <= least {
				t.Errorf("it came to its end before step %d, and passes %d", at, least)
			}
		})
	}
}

// crashAt stops a scene at the nth step that it passes and looks at what is left.
// It reports false if it passes fewer.
func crashAt(t *testing.T, name string, n int) bool {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "spool")
	scenes[name].prepare(t, dir)
	fail := fmt.Sprintf("*:exit:%d", n)
	told, finished := runScene(t, name, dir, fail)
	if finished {
		return false
	}
	c := &census{t: t, dir: dir, when: name + ", stopped at " + fail}
	c.look()
	if name != "init" && name != "drop" {
		c.recover(told)
	}
	more, finished := runScene(t, name, dir, "")
	if !finished {
		t.Errorf("%s: it does not come to its end", c.when)
	}
	if name == "drop" {
		runScene(t, name, dir, "") // after one that cleaned up
	}
	c.when += ", and run again"
	c.look()
	if name != "init" && name != "drop" {
		c.recover(told + more)
	}
	for _, f := range checkSpool(t, dir, false) {
		if name != "init" { // after which no head has run
			c.errorf("dfsck says: %s", f.Text())
		}
	}
	return true
}

// A census looks at a spool from outside.
type census struct {
	t    *testing.T
	dir  string
	when string
}

func (c *census) errorf(format string, a ...any) {
	c.t.Helper()
	c.t.Errorf(c.when+": "+format, a...)
}

// legalPaths are the paths that dspool(5) has, in any legal state.
var legalPaths = regexp.MustCompile(`^(\.|spool\.json|README|head\.yaml|head\.jsonl|ballast|run/lock|\..*\.tmp~|` +
	`(incoming|rejected|blobs|batches|nodes|keys|run|trash)|` +
	`incoming/[0-9a-f]{32}|(incoming|rejected)/\..*\.tmp~|rejected/[0-9a-f]{32}(\.why)?|` +
	`blobs/[0-9a-f]{2}(/[0-9a-f]{64}|/\..*\.tmp~)?|trash/.*|` +
	`uploads(/[0-9]+(/[0-9a-f]{64}(\.[0-9a-f]{32})?)?)?|` +
	`batches/ns|batches/ns/\.new-.*|batches/ns/b|` +
	`batches/ns/b/(batch\.yaml|jobs\.jsonl|files\.tar|log\.jsonl|log\.jsonl\.[0-9]+\.broken|secrets\.json|\.secrets\.json\..*\.tmp~|\.log\.jsonl\..*\.tmp~|staging|out|manifests|attempts|build)|` +
	`batches/ns/b/staging/[0-9a-f]{32}(/tree(/out(/x\.csv)?|/[ab]_output\.txt)?|/manifest\.jsonl)?|` +
	`batches/ns/b/out/a(/.*)?|batches/ns/b/attempts/(b~1|a~[12])(/.*|_output\.txt)?|batches/ns/b/manifests/(a|b~1|a~[12])\.jsonl)$`)

// look checks that everything there is a row of the table, and whole where the
// table says so.
func (c *census) look() {
	c.t.Helper()
	filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // a crash before the spool was there
		}
		if name, _ := filepath.Rel(c.dir, path); !legalPaths.MatchString(name) {
			c.errorf("%q is in no row of the table", name)
		}
		return nil
	})
	blobs, _ := filepath.Glob(filepath.Join(c.dir, "blobs/*/[0-9a-f]*"))
	for _, name := range blobs {
		if text, _ := os.ReadFile(name); sumOf(string(text)) != filepath.Base(name) {
			c.errorf("a blob is not whole: %s", name)
		}
	}
	s, err := Open(c.dir)
	if err != nil {
		if !errors.Is(err, ErrNoSpool) {
			c.errorf("%v", err)
		}
		return
	}
	infos, problems, err := s.Batches(nil)
	if err != nil || len(problems) > 0 {
		c.errorf("batches: %v, %v", problems, err)
	}
	for _, info := range infos {
		c.inputs(s, info)
		c.results(s, info.ID, false)
	}
	for _, f := range checkSpool(c.t, c.dir, false) {
		torn := f.Kind == check.Torn && strings.HasPrefix(c.when, "torn, ")
		if f.Kind != check.Left && !torn && f.Path != "incoming/"+badDrop {
			c.errorf("dfsck says: %s", f.Text())
		}
	}
}

// inputs checks that a batch that is there has every input of every job.
func (c *census) inputs(s *Spool, info Info) {
	c.t.Helper()
	b, err := s.Jobs(info.ID)
	if err == nil {
		_, err = b.Secrets()
	}
	if err != nil {
		c.errorf("%v", err)
		return
	}
	defer b.Close()
	for i := range b.Jobs() {
		j, err := b.Job(i)
		if err != nil {
			c.errorf("job %d: %v", i, err)
		}
		for _, in := range j.Inputs {
			if got := readInput(c.t, b, in); sumOf(got) != in.Sum {
				c.errorf("input %q of %q is not whole", in.Path, j.Name)
			}
		}
	}
}

// results checks that what the log accepts is there: in place, or, before a
// start has put it in place, staged.
func (c *census) results(s *Spool, id job.BatchID, placed bool) {
	c.t.Helper()
	err := s.Read(id, -1, func(row *job.Row) error {
		name, try, to := row.Job, 0, "out/"+row.Job
		saved := row.State == job.Queued && row.Manifest != ""
		if row.State == job.Failed || saved {
			try = row.Attempt
			name = fmt.Sprintf("%s~%d", row.Job, try)
			to = "attempts/" + name
		}
		dir := s.batchDir(id)
		if row.State != job.Done && row.State != job.Failed && !saved {
			if exists(filepath.Join(dir, to)) == nil {
				c.errorf("%s is there, and its job is %s", to, row.State)
			}
			return nil
		}
		if placed {
			whole(c.t, s, row.ID, try, row.Manifest)
			return nil
		}
		staged := filepath.Join(dir, "staging", string(row.Token))
		tree := either(filepath.Join(staged, "tree"), filepath.Join(dir, to))
		m, err := readManifest(filepath.Join(staged, "manifest.jsonl"))
		if errors.Is(err, fs.ErrNotExist) {
			m, err = s.Results(id).manifest(name)
		}
		if err != nil {
			c.errorf("%v", err)
		}
		c.staged(tree, m, row.Manifest)
		return nil
	})
	if err != nil {
		c.errorf("%v", err)
	}
}

// either is the one of two paths that is there, or nothing if not exactly one is.
func either(a, b string) string {
	switch {
	case exists(a) == nil && exists(b) != nil:
		return a
	case exists(a) != nil && exists(b) == nil:
		return b
	}
	return ""
}

func (c *census) staged(tree string, m pack.Manifest, sum string) {
	c.t.Helper()
	root, err := os.OpenRoot(tree)
	if err != nil {
		c.errorf("%v", err)
		return
	}
	defer root.Close()
	if want, bad, err := pack.Verify(context.Background(), root, m); err != nil || !want.Empty(m) || len(bad) > 0 || m.Sum() != sum {
		c.errorf("%s is not what the log accepts", tree)
	}
}

// recover starts a head and checks that it mends all, that what was told is
// true, and that a second start finds nothing more to do.
func (c *census) recover(told string) {
	c.t.Helper()
	var before []string
	for pass := range 2 {
		h, open, problems := loadHead(c.t, c.dir)
		for _, p := range problems {
			if p.Stops || pass > 0 {
				c.errorf("start %d: %v", pass+1, p)
			}
		}
		for _, b := range open {
			records(c.t, b)
			b.Close()
		}
		if err := h.EmptyTrash(context.Background()); err != nil {
			c.errorf("%v", err)
		}
		h.Close()
		c.clean()
		now := c.told(h.Spool, told)
		if pass > 0 && !slices.Equal(before, now) {
			c.errorf("a second start changes %v to %v", before, now)
		}
		before = now
	}
}

// printedOf is what is kept of what an attempt printed that had to leave.
func printedOf(s *Spool, id job.ID, try int) string {
	_, name, _, _ := job.ParseID(string(id))
	f, err := s.Printed(id, try)
	if errors.Is(err, fs.ErrNotExist) {
		var root *os.Root
		if _, root, err = s.Result(id, try); err == nil {
			defer root.Close()
			f, err = root.Open(name + "_output.txt")
		}
	}
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err == nil {
		return string(text)
	}
	return "what cannot be read"
}

func (c *census) clean() {
	c.t.Helper()
	for _, glob := range []string{"batches/*/.new-*", "trash/*", "blobs/*/.*", ".*", "nodes/.*", "rejected/.*", "batches/*/*/.*"} {
		if left, _ := filepath.Glob(filepath.Join(c.dir, glob)); len(left) > 0 {
			c.errorf("left: %v", left)
		}
	}
}

// told checks each thing told, and returns the states of all jobs.
func (c *census) told(s *Spool, told string) (states []string) {
	c.t.Helper()
	state := make(map[string]job.State)
	infos, problems, err := s.Batches(nil)
	if err != nil || len(problems) > 0 {
		c.errorf("%v, %v", problems, err)
	}
	for _, info := range infos {
		c.results(s, info.ID, true)
		err := s.Read(info.ID, -1, func(row *job.Row) error {
			state[row.Job] = row.State
			states = append(states, fmt.Sprint(row.ID, row.State, row.Token, row.Manifest))
			return nil
		})
		if err != nil {
			c.errorf("%v", err)
		}
	}
	for line := range strings.Lines(told) {
		what, of, _ := strings.Cut(strings.TrimSpace(line), " ")
		ok := len(infos) == 1
		switch what {
		case "start":
			name, try, _ := strings.Cut(of, " ")
			ok = state[name] != job.Queued || try != "" // it was evicted
		case "back":
			var name string
			var try int
			fmt.Sscan(of, &name, &try)
			if got := printedOf(s, "ns/b/"+job.ID(name), try); got != printedBy(name, try) {
				c.errorf("attempt %d of %s has printed %q", try, name, got)
			}
		case "done", "cancelled":
			of, _, _ = strings.Cut(of, " ")
			ok = ok && state[of].Over()
		case "over", "have":
			ok = state[of].Over()
		case "secret":
			b, err := s.Jobs("ns/b")
			if err != nil {
				c.errorf("%v", err)
				continue
			}
			values, err := b.Secrets()
			ok = ok && err == nil && values[0] >= "KEY="+of
		case "added":
			_, there := state[of]
			ok = ok && there
		case "deleted":
			ok = len(infos) == 0 || infos[0].Head.Submission == crashSubmission
		}
		if !ok {
			c.errorf("%q was told, and the jobs are %v of %v", strings.TrimSpace(line), state, infos)
		}
	}
	return states
}

// An fsync that fails ends the head, which has told nothing of what it was to
// make durable. The next start goes by what the disk has.
func TestJ25FailedSync(t *testing.T) {
	for _, fail := range []string{"log.sync:io:1", "log.sync:io:2", "log.write:io:2", "publish.sync:io", "commit.staging:io"} {
		dir := filepath.Join(t.TempDir(), "spool")
		prepareBatch(t, dir)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashScene+"=run", crashDir+"="+dir, durable.FailVar+"="+fail)
		var talk bytes.Buffer
		cmd.Stderr = &talk
		told, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(talk.String(), "input/output error") {
			t.Errorf("%s: %v: %s", fail, err, talk.String())
		}
		c := &census{t: t, dir: dir, when: fail}
		c.look()
		c.recover(string(told))
	}
}

// The steps that the code has are the steps that the scenes pass.
func TestEveryStepIsTested(t *testing.T) {
	prefixes := regexp.MustCompile(`^"((init|torn|add|clean|commit|stage|seal|publish|submit|upload|drop|taken|reject|delete|collect|compact|shed)\.[a-z.]+)"$`)
	code := make(map[string]bool)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
			t.Fatal(err)
		}
		for _, lit := range regexp.MustCompile(`"[a-z.]+"`).FindAllString(string(text), -1) {
			if m := prefixes.FindStringSubmatch(lit); m != nil {
				code[m[1]] = true
			}
		}
		if n := strings.Count(string(text), "durable.Step("); n > 0 && len(code) == 0 {
			t.Errorf("%s has steps of names that are not known here", name)
		}
	}
	passed := make(map[string]bool)
	for name := range scenes {
		for _, step := range stepsOf(t, name) {
			passed[step] = true
		}
	}
	for step := range code {
		if !passed[step] {
			t.Errorf("no scene passes the step %q", step)
		}
	}
	for step := range passed {
		if !code[step] && !strings.HasPrefix(step, "file.") && !strings.HasPrefix(step, "log.") {
			t.Errorf("the scenes pass the step %q, which the code does not name plainly", step)
		}
	}
}
