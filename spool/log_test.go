package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/suite"
)

// commit appends records and makes them durable.
func commit(t testing.TB, h *Head, b *Batch, recs ...job.Record) {
	t.Helper()
	for i := range recs {
		h.Append(b, &recs[i])
	}
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
}

func start(name string, try int) job.Record {
	return job.Record{Kind: job.KindStart, Job: name, Attempt: job.NewToken(), Try: try, Node: "ws1", CPUs: 1}
}

// records are what Replay gives.
func records(t testing.TB, b *Batch) (recs []job.Record) {
	t.Helper()
	err := b.Replay(func(i int, rec *job.Record) error {
		if i < 0 && rec.Job == "" && rec.Kind.Whole() {
			recs = append(recs, *rec)
			return nil
		}
		if name, err := b.Name(i); err != nil || name != rec.Job {
			t.Errorf("record %d is of job %q, and its number that of %q, %v", rec.Seq, rec.Job, name, err)
		}
		recs = append(recs, *rec)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// Any run of appends and commits is read back as it was in memory, and folds
// into the rows that memory had.
func TestI08ReplayEqualsMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	h := newHead(t)
	names := []string{"a", "b", "c", "d"}
	b := submit(t, h, "ns/b", names)
	var memory []job.Record
	rows := make(map[string]*job.Row)
	for _, n := range names {
		row := job.NewRow(b.ID, n, &b.Head, b.Submitted)
		rows[n] = &row
	}
	kinds := []job.Kind{job.KindStart, job.KindAdopt, job.KindDone, job.KindFailed, job.KindBack, job.KindCancelled,
		job.KindRetry, job.KindHold, job.KindRelease, job.KindFreeze, job.KindThaw, job.KindSet, job.KindLate}
	for range 40 {
		for range r.IntN(20) {
			rec := randomRecord(r)
			rec.Kind, rec.Job, rec.Batch, rec.Head = kinds[r.IntN(len(kinds))], names[r.IntN(len(names))], "", nil
			if rec.CheckFate() != nil {
				rec.Fate, rec.Saved, rec.Disk = job.FateEnded, false, 0
			}
			about := []string{rec.Job}
			if rec.Kind.Whole() && r.IntN(3) == 0 {
				rec.Job, about = "", names
			} else if _, ok := rows[rec.Job].State.Next(rec.Kind); !ok {
				continue
			}
			h.Append(b, rec)
			for _, name := range about {
				if err := rows[name].Fold(rec); err != nil {
					t.Fatal(err)
				}
			}
			memory = append(memory, *rec)
		}
		if err := h.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if h.Pending() {
		t.Error("something is pending after Commit")
	}
	if got := records(t, b); !reflect.DeepEqual(got, memory) {
		t.Errorf("in the log:\n%+v\nin memory:\n%+v", got, memory)
	}
	compareRows(t, h.Spool, b, names, rows)
	h2, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) > 0 {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	if got := records(t, open[0]); !reflect.DeepEqual(got, memory) {
		t.Error("after a restart the log is another")
	}
	if last := memory[len(memory)-1].Seq; h2.seq.Load() < last {
		t.Errorf("the next seq is %d, and %d was given out", h2.seq.Load()+1, last)
	}
}

// A release of a whole batch is no record of the jobs in it that are not held.
func TestReleasePassesOver(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b", "c"})
	commit(t, h, b, job.Record{Kind: job.KindHold, Job: "a", By: "ana"}, job.Record{Kind: job.KindHold, Job: "b", By: "ana"},
		job.Record{Kind: job.KindRelease, By: "ana"})
	var seqs []uint64
	if err := h.Read(b.ID, -1, func(r *job.Row) error { seqs = append(seqs, r.Seq); return nil }); err != nil {
		t.Fatal(err)
	}
	last := records(t, b)[2].Seq
	if want := []uint64{last, last, b.seq}; !slices.Equal(seqs, want) {
		t.Errorf("the jobs have seq %d; want %d", seqs, want)
	}
}

func compareRows(t *testing.T, s *Spool, b *Batch, names []string, rows map[string]*job.Row) {
	t.Helper()
	i := 0
	err := s.Read(b.ID, -1, func(row *job.Row) error {
		if !reflect.DeepEqual(row, rows[names[i]]) {
			t.Errorf("read\n%+v\nin memory\n%+v", *row, *rows[names[i]])
		}
		i++
		return nil
	})
	if err != nil || i != len(names) {
		t.Errorf("%d rows, %v", i, err)
	}
}

// withLog is a spool with one batch whose log is text, closed.
func withLog(t *testing.T) (dir, name string, text []byte) {
	t.Helper()
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"})
	commit(t, h, b, start("a", 1))
	commit(t, h, b, start("b", 1), job.Record{Kind: job.KindBack, Job: "a", Try: 1, Fate: job.FateLost})
	commit(t, h, b, start("a", 2))
	text, err := os.ReadFile(b.log.Path())
	if err := errors.Join(err, b.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	return h.Dir(), b.log.Path(), text
}

// tryLog starts a head on a log and returns what it says.
func tryLog(t *testing.T, dir, name string, text []byte) (recs []job.Record, stopped bool, problems []*Problem) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o640); err != nil {
		t.Fatal(err)
	}
	h, open, problems := loadHead(t, dir)
	defer h.Close()
	if len(open) == 0 {
		return nil, true, problems
	}
	defer open[0].Close()
	return records(t, open[0]), false, problems
}

func TestJ21CutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir, name, text := withLog(t)
	first := bytes.IndexByte(text, '\n')
	apart := suite.Size(23, 1)
	for n := range len(text) {
		switch {
		case n < first && n%50 != 0:
			continue // of the first line, some
		case n%apart != 0 && text[n-1] != '\n' && text[n] != '\n':
			continue // of the others, the places beside their ends all the same
		}
		recs, stopped, problems := tryLog(t, dir, name, text[:n])
		lines := bytes.Count(text[:n], []byte("\n"))
		whole := bytes.LastIndexByte(text[:n], '\n') + 1
		if lines == 0 {
			if !stopped || len(problems) != 1 {
				t.Errorf("cut at %d, in the first line: stopped %v, %v", n, stopped, problems)
			}
			continue
		}
		if stopped || len(recs) != lines-1 {
			t.Fatalf("cut at %d: stopped %v, %d records, want %d, %v", n, stopped, len(recs), lines-1, problems)
		}
		left, _ := filepath.Glob(name + ".*.broken")
		if n == whole {
			if len(problems)+len(left) > 0 {
				t.Errorf("cut at %d, behind a line: %v, %v", n, problems, left)
			}
			continue
		}
		if len(problems) != 1 || problems[0].Stops || problems[0].Offset != int64(whole) || len(left) != 1 {
			t.Fatalf("cut at %d: %v, %v", n, problems, left)
		}
		if tail, _ := os.ReadFile(left[0]); !bytes.Equal(tail, text[whole:n]) || !strings.Contains(problems[0].Why, fmt.Sprint(n-whole)) {
			t.Errorf("cut at %d: %q is kept, and said %q", n, tail, problems[0].Why)
		}
		if now, _ := os.ReadFile(name); !bytes.Equal(now, text[:whole]) {
			t.Errorf("cut at %d: the log has %d bytes", n, len(now))
		}
		os.Remove(left[0])
	}
}

func TestJ22ZerosAtTheEnd(t *testing.T) {
	dir, name, text := withLog(t)
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	for _, zeros := range []int{1, 100, 5000} {
		for _, whole := range []int{len(text), last, last + 20, len(text) - 1} {
			recs, stopped, problems := tryLog(t, dir, name, append(text[:whole:whole], make([]byte, zeros)...))
			want := bytes.Count(text[:whole], []byte("\n")) - 1
			if stopped || len(recs) != want || len(problems) != 1 {
				t.Errorf("%d zeros behind %d bytes: stopped %v, %d records, want %d, %v", zeros, whole, stopped, len(recs), want, problems)
			}
		}
	}
}

func TestJ23FlippedBits(t *testing.T) {
	t.Parallel()
	dir, name, text := withLog(t)
	jobs := filepath.Join(filepath.Dir(name), "jobs.jsonl")
	lines, err := os.ReadFile(jobs)
	if err != nil {
		t.Fatal(err)
	}
	apart := suite.Size(29, 1)
	for i := 0; i < len(text); i += apart {
		bad := bytes.Clone(text)
		bad[i] ^= 1 << (i % 8)
		_, stopped, problems := tryLog(t, dir, name, bad)
		line := bytes.Count(text[:i], []byte("\n")) + 1
		if !stopped || len(problems) != 1 || problems[0].Line < line || problems[0].Line > line+1 || problems[0].File != "batches/ns/b/log.jsonl" {
			t.Fatalf("bit of byte %d, line %d: stopped %v, %v", i, line, stopped, problems)
		}
		if now, _ := os.ReadFile(name); !bytes.Equal(now, bad) {
			t.Fatalf("the log was changed")
		}
	}
	for i := 0; i < len(lines); i += apart {
		bad := bytes.Clone(lines)
		bad[i] ^= 1 << (i % 8)
		if err := os.WriteFile(jobs, bad, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, stopped, problems := tryLog(t, dir, name, text); !stopped || len(problems) != 1 || problems[0].File != "batches/ns/b/jobs.jsonl" {
			t.Fatalf("bit of byte %d of jobs.jsonl: stopped %v, %v", i, stopped, problems)
		}
	}
}

func TestJ24AndOtherDamage(t *testing.T) {
	dir, name, text := withLog(t)
	lines := bytes.SplitAfter(text, []byte("\n"))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	record := func(rec job.Record) []byte { return appendRecord(nil, &rec) }
	far := math.MaxInt
	setFar := &job.Set{Priority: &far}
	for what, bad := range map[string][]byte{
		"a set of a job":     join(text, record(job.Record{Seq: 99, Kind: job.KindSet, Job: "a", Set: setFar})),
		"a set of all":       join(text, record(job.Record{Seq: 99, Kind: job.KindSet, Set: setFar})),
		"the first priority": join(summed(bytes.Replace(lines[0], []byte(`"spec":{`), []byte(`"spec":{"priority":-9223372036854775808,`), 1)), lines[1]),
		"bad before good":    join(lines[0], lines[1], []byte("{\"seq\":\n"), lines[3]),
		"zeros before good":  join(lines[0], lines[1], make([]byte, 100), lines[3]),
		"a line twice":       join(lines[0], lines[1], lines[1]),
		"lines moved":        join(lines[0], lines[2], lines[1]),
		"no first line":      join(lines[1], lines[2]),
		"an unknown kind":    join(text, record(job.Record{Seq: 99, Kind: "exploded", Job: "a"})),
		"an unknown job":     join(text, record(job.Record{Seq: 99, Kind: job.KindStart, Job: "z"})),
		"no legal move":      join(text, record(job.Record{Seq: 99, Kind: job.KindRetry, Job: "a"})),
		"a second beginning": join(text, record(job.Record{Seq: 99, Kind: job.KindBatch, Batch: "ns/b", Head: &job.Head{Format: 1}})),
	} {
		if _, stopped, problems := tryLog(t, dir, name, bad); !stopped || len(problems) != 1 || !problems[0].Stops {
			t.Errorf("%s: stopped %v, %v", what, stopped, problems)
		}
	}
}

// A batch that is deleted while it is read is not damaged.
func TestReadDeleted(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	err := h.Read("ns/b", -1, func(*job.Row) error { return os.Rename(b.dir, filepath.Join(t.TempDir(), "b")) })
	if err != nil {
		t.Errorf("while it is read: %v", err)
	}
	var bad *Problem
	if err := h.Read("ns/b", -1, func(*job.Row) error { return nil }); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &bad) {
		t.Errorf("after: %v", err)
	}
}

func TestJ29MissingFiles(t *testing.T) {
	for _, file := range []string{"log.jsonl", "jobs.jsonl", ""} {
		h := newHead(t)
		bad := submit(t, h, "ns/bad", []string{"a"})
		good := submit(t, h, "ns/good", []string{"a"})
		commit(t, h, bad, start("a", 1))
		if err := os.RemoveAll(filepath.Join(bad.dir, file)); err != nil {
			t.Fatal(err)
		}
		_, open, problems := restart(t, h, bad, good)
		if len(open) != 1 || open[0].ID != "ns/good" || len(problems) != 1 || !problems[0].Stops || problems[0].Batch != "ns/bad" {
			t.Errorf("without %q: open %v, problems %v", file, open, problems)
		}
	}
}

func TestJ32ReaderOfAnUnfinishedLine(t *testing.T) {
	dir, name, text := withLog(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	apart := suite.Size(17, 1)
	for n := bytes.IndexByte(text, '\n') + 1; n <= len(text); n++ {
		if n%apart != 0 && text[n-1] != '\n' && text[n] != '\n' {
			continue
		}
		if err := os.WriteFile(name, text[:n], 0o640); err != nil {
			t.Fatal(err)
		}
		events := 0
		next, err := s.Events("ns/b", 0, -1, func(*job.Record) error { events++; return nil })
		whole := bytes.LastIndexByte(text[:n], '\n') + 1
		if want := bytes.Count(text[:n], []byte("\n")); err != nil || events != want || next != int64(whole) {
			t.Fatalf("%d bytes: %d events, want %d, next %d, %v", n, events, want, next, err)
		}
		rows := 0
		if err := s.Read("ns/b", -1, func(*job.Row) error { rows++; return nil }); err != nil || rows != 2 {
			t.Fatalf("%d bytes: %d rows, %v", n, rows, err)
		}
	}
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	seen := 0
	if _, err := s.Events("ns/b", int64(last), -1, func(r *job.Record) error { seen++; return nil }); err != nil || seen != 1 {
		t.Errorf("from the last line: %d events, %v", seen, err)
	}
	state := job.Done
	err = s.Read("ns/b", int64(last), func(r *job.Row) error {
		if r.Job == "a" {
			state = r.State
		}
		return nil
	})
	if err != nil || state != job.Queued {
		t.Errorf("before the last line a is %v, %v", state, err)
	}
}

func TestClosedBatches(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	commit(t, h, b, job.Record{Kind: job.KindCancelled, Job: "a", By: "ana"})
	h.CloseBatch(b)
	if !h.Pending() {
		t.Error("a batch to be closed is not pending")
	}
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	h, open, problems := restart(t, h, b)
	if len(open) != 0 || len(problems) != 0 {
		t.Fatalf("a closed batch is open: %v, %v", open, problems)
	}
	infos, _, err := h.Batches(nil)
	if err != nil || len(infos) != 1 || infos[0].Open {
		t.Errorf("batches %+v, %v", infos, err)
	}
	b, problems, err = h.Open("ns/b")
	if err != nil || b == nil || len(problems) != 0 {
		t.Fatal(problems, err)
	}
	commit(t, h, b, job.Record{Kind: job.KindRetry, Job: "a"})
	h, open, problems = restart(t, h, b)
	if len(open) != 1 || len(problems) != 0 {
		t.Fatalf("a batch that is tried again is closed: %v, %v", open, problems)
	}
	// A record takes a wish to close back.
	h.CloseBatch(open[0])
	commit(t, h, open[0], start("a", 1))
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, open, _ = restart(t, h, open[0]); len(open) != 1 {
		t.Error("a batch with a running job was closed")
	}
}

func TestHeadLogIsMended(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	commit(t, h, b, job.Record{Kind: job.KindCancelled, Job: "a"})
	h.CloseBatch(b)
	if err := h.Commit(); err != nil {
		t.Fatal(err)
	}
	b.Close()
	h.Close()
	name := filepath.Join(h.Dir(), "head.jsonl")
	text, _ := os.ReadFile(name)
	for what, c := range map[string]struct {
		text []byte
		open int
	}{
		"torn":    {append(text[:len(text):len(text)], "{\"seq\":"...), 0},
		"damaged": {append([]byte("x"), text[1:]...), 0},
		"changed": {append(text[:len(text)-1:len(text)-1], 'x'), 1},
		"cut":     {text[:len(text)-3], 1},
		"missing": {nil, 1},
	} {
		os.Remove(name)
		if c.text != nil {
			os.WriteFile(name, c.text, 0o640)
		}
		h, open, problems := loadHead(t, h.Dir())
		if len(open) != c.open || len(problems) != 1 || problems[0].Stops {
			t.Errorf("%s: open %v, problems %v", what, open, problems)
		}
		for _, b := range open {
			b.Close()
		}
		h.Close()
	}
}

// While a tick is being made durable, the next one is appended (J33).
func TestJ33AppendWhileCommitting(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"})
	var memory []job.Record
	for range 50 {
		tick := h.Tick()
		done := make(chan error)
		go func() { done <- tick.Commit() }()
		for _, kind := range []job.Kind{job.KindStart, job.KindBack} {
			rec := job.Record{Kind: kind, Job: "a", Attempt: job.NewToken(), Try: len(memory)}
			h.Append(b, &rec)
			memory = append(memory, rec)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if !h.Pending() {
		t.Error("the last records are not pending")
	}
	if got := records(t, b); len(got) != len(memory)-2 {
		t.Errorf("%d records are in the log, want %d", len(got), len(memory)-2)
	}
	if err := h.Commit(); err != nil || h.Pending() {
		t.Error(err)
	}
	if got := records(t, b); !reflect.DeepEqual(got, memory) {
		t.Errorf("in the log:\n%+v\nin memory:\n%+v", got, memory)
	}
}

// Readers read only what was appended to head.jsonl since they read it last, and say the
// same as who reads all of it: also behind a line that was unfinished, and of a file that
// is damaged or another.
func TestHeadLogIsReadOnce(t *testing.T) {
	h := newHead(t)
	name := h.path("head.jsonl")
	seq := uint64(0)
	line := func(kind job.Kind, id job.BatchID) string {
		seq++
		return string(appendRecord(nil, &job.Record{Seq: seq, Kind: kind, Batch: id}))
	}
	text := ""
	last := line(job.KindClosed, "ns/torn")
	for _, step := range []struct {
		what string
		text func() string
		goOn bool // what was read is not read again
	}{
		{"the first", func() string { return line(job.KindOpened, "ns/a") + line(job.KindClosed, "ns/a") }, false},
		{"nothing more", func() string { return text }, true},
		{"one more", func() string { return text + line(job.KindOpened, "ns/a") }, true},
		{"a part of a line", func() string { last = line(job.KindClosed, "ns/b"); return text + last[:10] }, true},
		{"the rest of it", func() string { return text + last[10:] }, true},
		{"another, that is shorter", func() string { return line(job.KindOpened, "ns/c") }, false},
		{"damage", func() string { return text + "damage\n" + line(job.KindClosed, "ns/d") }, false},
		{"more behind it", func() string { return text + line(job.KindClosed, "ns/e") }, false},
	} {
		was := h.headRead.next
		text = step.text()
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if step.goOn {
			if err := os.WriteFile(name, []byte(strings.Repeat("x", int(was))+text[was:]), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		got, err := h.listing()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		all, err := Open(h.Dir())
		if err != nil {
			t.Fatal(err)
		}
		want, err := all.listing()
		if err != nil || len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v (%v)", step.what, got, want, err)
		}
	}
}
