package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
	"distribute/lib/suite"
)

// resultOf is the manifest of a tree of one directory and one file.
func resultOf(content string) pack.Manifest {
	when := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return pack.Manifest{
		{Path: "out", Type: pack.Dir, Mode: 0o750, Time: when},
		{Path: "out/x.csv", Type: pack.File, Mode: 0o640, Time: when, Size: int64(len(content)), Sum: sumOf(content)},
	}
}

// bring stages and seals the result of an attempt.
func bring(h *Head, b *Batch, attempt job.Token, content string) (pack.Manifest, error) {
	return bringAs(h, b, attempt, resultOf(content), content)
}

// bringAs is bring of a result whose files all have that content.
func bringAs(h *Head, b *Batch, attempt job.Token, m pack.Manifest, content string) (pack.Manifest, error) {
	root, err := h.Stage(b, attempt)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	want, _, err := pack.Verify(context.Background(), root, m)
	if err != nil {
		return nil, err
	}
	if !want.Empty(m) {
		tree := pack.NewTree(root, pack.Perm{})
		for i, e := range m {
			var r io.Reader
			if e.Type == pack.File {
				r = strings.NewReader(content)
			}
			if err := tree.Put(i, e, 0, r); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, errors.Join(err, tree.Close())
			}
		}
		if err := tree.Close(); err != nil {
			return nil, err
		}
	}
	if sealsSmall {
		return m, h.SealSmall([]Small{{b, attempt}})
	}
	return m, h.Seal(b, attempt, m)
}

// sealsSmall has results be small ones, in a process of their own.
var sealsSmall bool

// endOf is the record of an attempt that left m.
func endOf(kind job.Kind, started job.Record, m pack.Manifest) job.Record {
	exit := 0
	if kind != job.KindDone {
		exit = 1
	}
	rec := job.Record{Kind: kind, Job: started.Job, Attempt: started.Attempt, Try: started.Try, Node: started.Node,
		Outcome: job.Outcome{Exit: &exit, Runtime: 1.5}, Manifest: m.Sum(), Files: 1, Bytes: m.Bytes()}
	if sealsSmall {
		rec.List = m.List()
	}
	return rec
}

// whole checks that what is kept of a job is there and as its manifest says.
func whole(t *testing.T, s *Spool, id job.ID, try int, want string) {
	t.Helper()
	m, root, err := s.Result(id, try)
	if err != nil {
		t.Errorf("%s: %v", id.Try(try), err)
		return
	}
	defer root.Close()
	lacks, bad, err := pack.Verify(context.Background(), root, m)
	if err != nil || !lacks.Empty(m) || len(bad) > 0 || m.Sum() != want {
		t.Errorf("%s: lacks %v, bad %v, %v; its sum is %s, the log says %s", id.Try(try), lacks, bad, err, m.Sum(), want)
	}
}

func TestResults(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"})
	one, two := start("a", 1), start("b", 1)
	commit(t, h, b, one, two)
	_, err := h.Staged(b, one.Attempt)
	wantErr(t, "nothing is staged", err, fs.ErrNotExist)
	m, err := bring(h, b, one.Attempt, "1,2,3\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Staged(b, one.Attempt); err != nil || got.Sum() != m.Sum() {
		t.Errorf("staged %v, %v", got, err)
	}
	failed, err := bring(h, b, two.Attempt, "oh\n")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, endOf(job.KindDone, one, m), endOf(job.KindFailed, two, failed))
	h.CloseBatch(b)
	if h.Pending() {
		t.Error("a batch can be closed before its results are in place")
	}
	for range 2 { // the second time changes nothing
		if err := errors.Join(h.Publish(b, "a", one.Attempt), h.Aside(b, "b", 1, two.Attempt), h.SyncPublished()); err != nil {
			t.Fatal(err)
		}
		whole(t, h.Spool, "ns/b/a", 0, m.Sum())
		whole(t, h.Spool, "ns/b/b", 1, failed.Sum())
	}
	if !h.Pending() {
		t.Error("a batch whose results are in place cannot be closed")
	}
	_, _, err = h.Result("ns/b/b", 0)
	wantErr(t, "a failed job has no result", err, fs.ErrNotExist)
	if left, _ := os.ReadDir(filepath.Join(b.dir, "staging")); len(left) != 0 {
		t.Errorf("left in staging: %v", left)
	}
}

func TestI01NothingReplacesAResult(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	one, two := job.NewToken(), job.NewToken()
	first, err := bring(h, b, one, "first\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bring(h, b, two, "second\n"); err != nil {
		t.Fatal(err)
	}
	if err := h.Publish(b, "a", one); err != nil {
		t.Fatal(err)
	}
	var problem *Problem
	if err := h.Publish(b, "a", two); !errors.As(err, &problem) {
		t.Errorf("a second result: %v", err)
	}
	whole(t, h.Spool, "ns/b/a", 0, first.Sum())
	if err := h.Publish(b, "b", job.NewToken()); !errors.As(err, &problem) {
		t.Errorf("a result that is nowhere: %v", err)
	}
}

// Sweep removes beginnings, and nothing that the log accepts.
func TestSweepKeepsWhatIsCommitted(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	one, begun := start("a", 1), job.NewToken()
	m, err := bring(h, b, one.Attempt, "x\n")
	if err != nil {
		t.Fatal(err)
	}
	root, err := h.Stage(b, begun)
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	commit(t, h, b, one, endOf(job.KindDone, one, m))
	if _, err := h.Sweep(b); err != nil {
		t.Error(err)
	}
	if err := errors.Join(h.Publish(b, "a", one.Attempt), h.SyncPublished()); err != nil {
		t.Fatal(err)
	}
	whole(t, h.Spool, "ns/b/a", 0, m.Sum())
	if _, err := h.Sweep(b); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(b.dir, "staging")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Resume goes on where a transfer was cut, and forgets what is of no use.
func TestD88ResumeOfAResult(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	token, m := job.NewToken(), resultOf("1,2,3\n")
	if got, _, err := h.Resume(t.Context(), b, token, m.Sum()); got != nil || err != nil {
		t.Errorf("nothing is there: %v, %v", got, err)
	}
	root, err := h.Stage(b, token)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(h.Note(b, token, m), root.Mkdir("out", 0o750), root.WriteFile("out/x.csv", []byte("1,2"), 0o600)); err != nil {
		t.Fatal(err)
	}
	got, want, err := h.Resume(t.Context(), b, token, m.Sum())
	if err != nil || got.Sum() != m.Sum() || want.From != 3 || want.Bytes(m) != 3 {
		t.Errorf("a beginning: %v, %+v, %v", got, want, err)
	}
	if got, _, err := h.Resume(t.Context(), b, token, resultOf("other").Sum()); got != nil || err != nil {
		t.Errorf("of another manifest: %v, %v", got, err)
	}
	if left, _ := os.ReadDir(filepath.Join(b.dir, "staging")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What the log does not know is kept and told of (J31), what it knows and
// nobody finished stays for the rest of it.
func TestStagingAfterARestart(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	known, unknown := start("a", 1), job.NewToken()
	commit(t, h, b, known)
	for _, token := range []job.Token{known.Attempt, unknown} {
		if _, err := bring(h, b, token, "x"); err != nil {
			t.Fatal(err)
		}
	}
	h, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) != 1 || problems[0].Stops || !strings.HasSuffix(problems[0].File, string(unknown)) {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	for _, token := range []job.Token{known.Attempt, unknown} {
		if _, err := h.Staged(open[0], token); err != nil {
			t.Errorf("%s: %v", token, err)
		}
	}
	if err := h.Unstage(open[0], unknown); err != nil {
		t.Error(err)
	}
	if _, _, problems = restart(t, h, open[0]); len(problems) != 0 {
		t.Errorf("problems %v", problems)
	}
}

func TestTokensAreNoPaths(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	for _, token := range []job.Token{"", "..", "../../b", "x"} {
		_, err := h.Stage(b, token)
		wantErr(t, "Stage", err, job.ErrName)
		_, err = h.Staged(b, token)
		wantErr(t, "Staged", err, job.ErrName)
		wantErr(t, "Unstage", h.Unstage(b, token), job.ErrName)
		wantErr(t, "Seal", h.Seal(b, token, nil), job.ErrName)
	}
	for _, name := range []string{"", "..", "a/b"} {
		wantErr(t, "NodeSeen", h.NodeSeen(name, 1), job.ErrName)
		_, _, err := h.BuildLog(b, name)
		wantErr(t, "BuildLog", err, job.ErrName)
	}
	for _, id := range []job.ID{"", "a/b", "../../x", "ns/b/../../x"} {
		if _, _, err := h.Result(id, 0); err == nil {
			t.Errorf("Result(%q) is something", id)
		}
	}
}

func TestNodeSeenAndBuildLog(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	if err := h.NodeSeen("ws1", map[string]int{"cpus": 4}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(h.path("nodes", "ws1.json")); string(text) != "{\n  \"cpus\": 4\n}\n" {
		t.Errorf("nodes/ws1.json: %q", text)
	}
	for _, text := range []string{"cc\n", "gcc\n"} { // the first stays until all of the second is there
		f, whole, err := h.BuildLog(b, "ws1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(text)
		before, _ := os.ReadFile(filepath.Join(b.dir, "build/ws1.log"))
		if err = errors.Join(err, f.Close(), whole()); err != nil || string(before) == text {
			t.Errorf("there was %q, %v", before, err)
		}
		if got, err := os.ReadFile(filepath.Join(b.dir, "build/ws1.log")); string(got) != text {
			t.Errorf("what the build printed is %q, %v", got, err)
		}
	}
}

// Publish, thousands of times: what a tiny result costs the head.
func BenchmarkPublish(b *testing.B) {
	h := newHead(b)
	batch := submit(b, h, "ns/b", []string{"a"})
	for i := 0; b.Loop(); i++ {
		token := job.NewToken()
		if _, err := bring(h, batch, token, "x\n"); err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(h.Aside(batch, "a", i+1, token), h.SyncPublished()); err != nil {
			b.Fatal(err)
		}
	}
}

// Small results have no file with their manifest: their records have it. They are read one
// after another, also those of records that came since the log was read.
func TestSmallResults(t *testing.T) {
	sealsSmall = true
	defer func() { sealsSmall = false }()
	h := newHead(t)
	names := []string{"a", "b", "c", "d", "e"}
	b := submit(t, h, "ns/b", names)
	all := h.Results("ns/b")
	var sums []string
	bringIn := func(some ...string) {
		t.Helper()
		var together []Small
		var ends []job.Record
		for _, name := range some {
			began := start(name, 1)
			commit(t, h, b, began)
			m, err := bring(h, b, began.Attempt, "of "+name)
			if err != nil {
				t.Fatal(err)
			}
			together, ends, sums = append(together, Small{b, began.Attempt}), append(ends, endOf(job.KindDone, began, m)), append(sums, m.Sum())
		}
		if err := h.SealSmall(together); err != nil {
			t.Fatal(err)
		}
		commit(t, h, b, ends...)
		for i, name := range some {
			if err := h.Publish(b, name, together[i].Attempt); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.SyncPublished(); err != nil {
			t.Fatal(err)
		}
	}
	for _, some := range [][]string{names[:3], names[3:]} {
		bringIn(some...)
		for i, name := range names[:len(sums)] {
			m, root, err := all.Open(name, 0)
			if err != nil {
				t.Fatal(err)
			}
			if lacks, bad, err := pack.Verify(t.Context(), root, m); err != nil || !lacks.Empty(m) || len(bad) > 0 || m.Sum() != sums[i] {
				t.Errorf("%s: lacks %v, bad %v, %v", name, lacks, bad, err)
			}
			root.Close()
		}
	}
	if _, _, err := all.Open("f", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no result: %v", err)
	}
	if list, err := os.ReadDir(h.path("batches/ns/b/manifests")); err != nil || len(list) > 0 {
		t.Errorf("manifests: %v, %v", list, err)
	}
	if found := checkSpool(t, h.Dir(), false); len(found) > 0 {
		t.Errorf("dfsck: %s", lines(found))
	}
	overwrite("batches/ns/b/out/d/out/x.csv", "of", "on")(t, func(name string) string { return h.path(name) })
	if got := lines(checkSpool(t, h.Dir(), false)); !strings.Contains(got, "damaged\tbatches/ns/b/out/d/out/x.csv\tit is not what the manifest says") {
		t.Errorf("dfsck: %s", got)
	}
}

// The log of a later batch of the same name is told from the log that was read, also if its file
// has the inode of the other.
func TestSmallResultsOfALaterBatch(t *testing.T) {
	sealsSmall = true
	defer func() { sealsSmall = false }()
	withResults := func(names ...string) (*Head, *Batch) {
		h := newHead(t)
		b := submit(t, h, "ns/b", names)
		for _, name := range names {
			began := start(name, 1)
			commit(t, h, b, began)
			m, err := bring(h, b, began.Attempt, "of "+name)
			if err != nil {
				t.Fatal(err)
			}
			commit(t, h, b, endOf(job.KindDone, began, m))
			if err := h.Publish(b, name, began.Attempt); err != nil {
				t.Fatal(err)
			}
		}
		return h, b
	}
	h, b := withResults("a")
	all := h.Results("ns/b")
	open := func() {
		t.Helper()
		m, root, err := all.Open("a", 0)
		if err != nil {
			t.Fatal(err)
		}
		root.Close()
		if m.Sum() != resultOf("of a").Sum() {
			t.Errorf("it is %v", m)
		}
	}
	open()
	_, later := withResults("before", "a")
	log, old := filepath.Join(later.dir, "log.jsonl"), filepath.Join(b.dir, "log.jsonl")
	text, err := os.ReadFile(log)
	if err := errors.Join(err, os.WriteFile(old, text, 0o640), os.Rename(old, log), os.RemoveAll(b.dir), os.Rename(later.dir, b.dir)); err != nil {
		t.Fatal(err)
	}
	open()
}

// D88: what is wrong in a directory that its owner may not write is asked for again, and
// what is of no use in one is removed.
func TestD88ResumeInAReadOnlyDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can become somebody else")
	}
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	token, m := job.NewToken(), resultOf("1,2,3\n")
	m[0].Mode = 0o555
	root, err := h.Stage(b, token)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(h.Note(b, token, m), root.Mkdir("out", 0o700), root.WriteFile("out/x.csv", []byte("4,5,6\n"), 0o600),
		root.Chmod("out", 0o555), os.Chmod(h.path("../.."), 0o755)); err != nil {
		t.Fatal(err)
	}
	const somebody = 65534
	if err := filepath.WalkDir(h.dir, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, somebody, somebody))
	}); err != nil {
		t.Fatal(err)
	}
	as := proc.Identity{UID: somebody, GID: somebody}
	if err := as.Do(func() error {
		got, want, err := h.Resume(t.Context(), b, token, m.Sum())
		if got.Sum() != m.Sum() || want.Bytes(m) != 6 {
			t.Errorf("a file is wrong: %v, %+v", got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for what, remove := range map[string]func() error{
		"Unstage": func() error { return h.Unstage(b, token) },
		"Sweep":   func() error { _, err := h.Sweep(b); return err },
	} {
		again := filepath.Join(b.dir, "staging", string(token), "tree/again")
		if err := as.Do(func() error {
			return errors.Join(os.MkdirAll(again, 0o700), os.WriteFile(filepath.Join(again, "x"), nil, 0o600), os.Chmod(again, 0o555), remove())
		}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(b.dir, "staging")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// batchDirs is the directories of a batch with what comes of its attempts.
var batchDirs = []string{"staging", "out", "attempts", "manifests"}

// A head starts although a directory of an open batch is missing, and the batch goes on.
func TestStartWithoutADirectory(t *testing.T) {
	for _, dir := range batchDirs {
		for _, small := range []bool{false, true} {
			h := newHead(t)
			b := submit(t, h, "ns/b", []string{"a", "b", "c"})
			for _, name := range []string{"a", "b"} {
				began := start(name, 1)
				m, err := bring(h, b, began.Attempt, name)
				if err != nil {
					t.Fatal(err)
				}
				kind := map[string]job.Kind{"a": job.KindDone, "b": job.KindFailed}[name]
				commit(t, h, b, began, endOf(kind, began, m))
			}
			if err := os.RemoveAll(filepath.Join(b.dir, dir)); err != nil {
				t.Fatal(err)
			}
			h, open, _ := restart(t, h, b)
			if len(open) != 1 {
				t.Fatalf("without %s/ there are open %v", dir, open)
			}
			b = open[0]
			began := start("c", 1)
			if small {
				root, err := h.StageNew(b, began.Attempt)
				if err != nil {
					t.Fatal(err)
				}
				root.Close()
			}
			m, err := bring(h, b, began.Attempt, "c")
			if err != nil {
				t.Fatal(err)
			}
			commit(t, h, b, began, endOf(job.KindDone, began, m))
			if err := errors.Join(h.Publish(b, "c", began.Attempt), h.SyncPublished()); err != nil {
				t.Fatal(err)
			}
			whole(t, h.Spool, "ns/b/c", 0, m.Sum())
		}
	}
}

// A batch without staging/ is closed as others are.
func TestCloseWithoutStaging(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	if err := os.Remove(filepath.Join(b.dir, "staging")); err != nil {
		t.Fatal(err)
	}
	h, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) > 0 {
		t.Fatal(open, problems)
	}
	over(t, h, open[0], job.KindFailed)
	if _, err := h.Sweep(open[0]); err != nil || !h.Closed("ns/b") {
		t.Errorf("it is closed: %v; %v", h.Closed("ns/b"), err)
	}
}

// A result gets its place although the directory of that was removed, and the new one is
// durable before that.
func TestResultsOfMissingDirectories(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"})
	one, two := start("a", 1), start("b", 1)
	m, err := bring(h, b, one.Attempt, "1,2,3\n")
	if err != nil {
		t.Fatal(err)
	}
	failed, err := bring(h, b, two.Attempt, "oh\n")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, one, two, endOf(job.KindDone, one, m), endOf(job.KindFailed, two, failed))
	for _, dir := range batchDirs[1:] {
		if err := os.RemoveAll(filepath.Join(b.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	synced := 0
	end := durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
		if f.Name() == b.dir {
			synced++
		}
		return nil
	}})
	err = errors.Join(h.Publish(b, "a", one.Attempt), h.Aside(b, "b", 1, two.Attempt))
	end()
	if err := errors.Join(err, h.SyncPublished()); err != nil {
		t.Fatal(err)
	}
	if synced < len(batchDirs[1:]) {
		t.Errorf("the directory of the batch was synced %d times", synced)
	}
	whole(t, h.Spool, "ns/b/a", 0, m.Sum())
	whole(t, h.Spool, "ns/b/b", 1, failed.Sum())
}

// What an attempt printed of which no more is kept gets its place, too.
func TestPrintedWithoutAttempts(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	for try := range 2 {
		began := start("a", try+1)
		m := resultOf("x")
		m[1].Path = "a_output.txt"
		m, err := bringAs(h, b, began.Attempt, m[1:], "x")
		if err != nil {
			t.Fatal(err)
		}
		back := endOf(job.KindBack, began, m)
		back.Fate = job.FateEvicted
		commit(t, h, b, began, back)
	}
	if err := os.Remove(filepath.Join(b.dir, "attempts")); err != nil {
		t.Fatal(err)
	}
	h, _, _ = restart(t, h, b)
	f, err := h.Printed("ns/b/a", 1)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// What is left of a result of which more is missing, here and there, than a message can name is
// removed.
func TestResumeOfAResultWithManyGaps(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	token, when := job.NewToken(), time.Unix(1e9, 0).UTC()
	root, err := h.Stage(b, token)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var m pack.Manifest
	for i := range pack.MaxRanges + 1 {
		link := fmt.Sprintf("f%05d", i)
		m = append(m, pack.Entry{Path: link, Type: pack.Link, Link: "x"},
			pack.Entry{Path: link + "a", Type: pack.File, Mode: 0o640, Time: when, Size: 1, Sum: sumOf("1")})
		if err := os.Symlink("x", filepath.Join(root.Name(), link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Note(b, token, m); err != nil {
		t.Fatal(err)
	}
	if got, want, err := h.Resume(t.Context(), b, token, m.Sum()); got != nil || err != nil {
		t.Errorf("%d entries, of which %d ranges are missing, %v", len(got), len(want.Ranges), err)
	}
	if left, _ := os.ReadDir(filepath.Join(b.dir, "staging")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
