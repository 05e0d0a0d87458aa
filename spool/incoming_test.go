package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/suite"
)

var dropContents = []string{"small", strings.Repeat("big", job.SmallFile), ""}

func nobody(int) (string, error) { return "ana", nil }

// leave1 leaves a submission of jobs in incoming/.
func leave1(t testing.TB, s *Spool, d Drop, names ...string) {
	t.Helper()
	jobs := func(yield func(*job.Job) bool) {
		for _, n := range names {
			j := &job.Job{Name: n, Run: []string{"./run"}}
			for _, c := range dropContents {
				j.Inputs = append(j.Inputs, inputOf("in/"+sumOf(c)[:4], c))
			}
			if !yield(j) {
				return
			}
		}
	}
	d.Jobs = len(names)
	err := s.Leave(d, []byte("the file\n"), &plain, jobs, func(sum string) (io.ReadCloser, error) {
		i := slices.IndexFunc(dropContents, func(c string) bool { return sumOf(c) == sum })
		return io.NopCloser(strings.NewReader(dropContents[i])), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLeaveAndTake(t *testing.T) {
	h := newHead(t)
	d := Drop{Submission: job.NewToken(), Batch: "ns/b", Free: true}
	for range 2 { // once or twice is the same
		leave1(t, h.Spool, d, "a", "b")
	}
	waiting, err := h.Waiting()
	if err != nil || len(waiting) != 1 || waiting[0].Drop.Batch != "ns/b" || waiting[0].Drop.Jobs != 2 || waiting[0].Why != "" ||
		waiting[0].Drop.UID != os.Getuid() {
		t.Fatalf("waiting %+v, %v", waiting, err)
	}
	s, got, err := h.Take(waiting[0].Name, nobody, anyRoom)
	if err != nil || !got.Free {
		t.Fatalf("%+v, %v", got, err)
	}
	b, err := s.Finish(got.Free)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.ID != "ns/b" || b.Head.Submission != d.Submission || b.Head.UID != os.Getuid() || b.Head.Owner != "ana" {
		t.Errorf("batch %+v", b)
	}
	for i := range b.Jobs() {
		j, err := b.Job(i)
		if err != nil {
			t.Fatal(err)
		}
		for k, c := range dropContents {
			if readInput(t, b, j.Inputs[k]) != c {
				t.Errorf("input %d of %q differs", k, j.Name)
			}
		}
	}
	if text, _ := os.ReadFile(filepath.Join(b.dir, "batch.yaml")); string(text) != "the file\n" {
		t.Errorf("batch.yaml: %q", text)
	}
	if err := h.Taken(waiting[0].Name); err != nil {
		t.Error(err)
	}
	if waiting, _ := h.Waiting(); len(waiting) != 0 {
		t.Errorf("still waiting: %+v", waiting)
	}
}

// Two who draw the same id do not get the batch of one.
func TestS07SameIDLeft(t *testing.T) {
	h := newHead(t)
	d := Drop{Submission: job.NewToken(), Batch: "ns/b", Jobs: 1}
	leave := func(name string) error {
		return h.Leave(d, nil, &plain, func(yield func(*job.Job) bool) { yield(&job.Job{Name: name, Run: []string{"./run"}}) }, nil)
	}
	if err := leave("a"); err != nil {
		t.Fatal(err)
	}
	if err := leave("a"); err != nil {
		t.Errorf("the same again: %v", err)
	}
	wantErr(t, "another one", leave("b"), ErrTaken)
	if list, err := h.Waiting(); err != nil || len(list) != 1 {
		t.Errorf("%d wait, %v", len(list), err)
	}
}

// S09, S12: what is no submission goes to rejected/ as it is, beside its reason.
func TestS09RejectsWhatIsNoSubmission(t *testing.T) {
	h := newHead(t)
	good := job.NewToken()
	leave1(t, h.Spool, Drop{Submission: good, Batch: "ns/b"}, "a", "b")
	text, err := os.ReadFile(h.path("incoming", string(good)))
	if err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) func(string) error {
		return func(name string) error { return os.WriteFile(name, content, 0o640) }
	}
	changed := func(old, new string) func(string) error {
		return write(bytes.Replace(text, []byte(old), []byte(new), 1))
	}
	wrongSum := bytes.Clone(text)
	wrongSum[len(text)-4] ^= 1
	outside := filepath.Join(t.TempDir(), "outside")
	os.WriteFile(outside, text, 0o640)
	for what, make := range map[string]func(string) error{
		"a link":            func(name string) error { return os.Symlink(outside, name) },
		"a hard link":       func(name string) error { return os.Link(outside, name) },
		"a FIFO":            func(name string) error { return syscall.Mkfifo(name, 0o640) },
		"a directory":       func(name string) error { return os.Mkdir(name, 0o750) },
		"nothing":           write(nil),
		"garbage":           write(bytes.Repeat([]byte{0xff, 0, 10}, 1000)),
		"UTF-16":            write(bytes.Repeat([]byte("{\x00\"\x00"), 100)),
		"a byte order mark": write(append([]byte("\xef\xbb\xbf"), text...)),
		"another format":    changed(`{"format":1`, `{"format":9`),
		"another name":      changed("ns/b", "../b"),
		"another job":       changed(`"name":"b"`, `"name":"a"`),
		"another file":      changed("the file", "the life"),
		"other jobs":        changed(`"jobs":2`, `"jobs":3`),
		"a cut":             write(text[:len(text)/2]),
		"a cut line":        write(text[:len(text)-1]),
		"a byte more":       write(append(bytes.Clone(text), '\n')),
		"a wrong sum":       write(wrongSum),
	} {
		name := string(job.NewToken())
		if err := make(h.path("incoming", name)); err != nil {
			t.Fatal(err)
		}
		_, _, err := h.Take(name, nobody, anyRoom)
		if !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := h.Reject(name, err); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if why, _ := os.ReadFile(h.path("rejected", name+".why")); string(why) != err.Error()+"\n" {
			t.Errorf("%s: why: %q", what, why)
		}
		if exists(h.path("rejected", name)) != nil || exists(h.path("incoming", name)) == nil {
			t.Errorf("%s was not moved", what)
		}
	}
	if left, _ := filepath.Glob(h.path("batches", "ns", ".new-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if list, err := h.Waiting(); err != nil || len(list) != 18 {
		t.Errorf("%d wait or were rejected, %v", len(list), err)
	}
	_, _, err = h.Take("../head.yaml", nobody, anyRoom)
	wantErr(t, "a path", err, ErrInput)
}

// Whatever single byte of a drop file is another, it is not taken.
func TestS03ChangedDropFiles(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	good := job.NewToken()
	leave1(t, h.Spool, Drop{Submission: good, Batch: "ns/b"}, "a")
	name := h.path("incoming", string(good))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(text); i += suite.Size(23, 7) {
		bad := bytes.Clone(text)
		bad[i] ^= 1 << (i % 8)
		if err := os.WriteFile(name, bad, 0o640); err != nil {
			t.Fatal(err)
		}
		if s, _, err := h.Take(string(good), nobody, anyRoom); err == nil {
			t.Errorf("byte %d of %d was changed, and it was taken", i, len(text))
			s.Abort()
		}
	}
}

func TestS14WatchIncoming(t *testing.T) {
	h := newHead(t)
	early, late := job.NewToken(), job.NewToken()
	leave1(t, h.Spool, Drop{Submission: early, Batch: "ns/b"}, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // where no watch is to be had, it looks each minute
	defer cancel()
	names := h.WatchIncoming(ctx)
	if got := <-names; got != string(early) {
		t.Fatalf("%q came", got)
	}
	leave1(t, h.Spool, Drop{Submission: late, Batch: "ns/b"}, "a")
	for got := range names {
		if got == string(late) {
			cancel()
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("the second one never came")
	}
}

// Submissions take as long as they are big: scans for others do not wait for that in turn.
func TestScansWaitForNoSubmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead(t)
		for range 3 {
			leave1(t, h.Spool, Drop{Submission: job.NewToken(), Batch: "ns/b"}, "a")
		}
		names := make(chan string)
		var taking sync.WaitGroup
		taking.Go(func() {
			for range names {
				time.Sleep(10 * time.Minute)
			}
		})
		if took, _, ok := h.scanIncoming(t.Context(), names); took != 0 || !ok {
			t.Errorf("the scan took %v", took)
		}
		close(names)
		taking.Wait()
	})
}

// However much is no submission, and stays, a scan has a few names of it at a time, so that
// one which comes meanwhile does not wait for all; and each in its turn.
func TestScansHaveFewOthers(t *testing.T) {
	h := newHead(t)
	left := map[string]bool{}
	for i := range 3 * maxOthers {
		name := fmt.Sprint("other", i)
		left[name] = true
		if err := os.Mkdir(h.path("incoming", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	token := string(job.NewToken())
	for scan := 0; len(left) > 0 && scan < 1000; scan++ {
		names := make(chan string, len(left)+4*maxOthers)
		if _, more, ok := h.scanIncoming(t.Context(), names); !more || !ok || len(names) > maxOthers+1 {
			t.Fatalf("%d names came, %v, %v", len(names), more, ok)
		}
		close(names)
		first := true
		for name := range names {
			if scan > 0 && first != (name == token) {
				t.Errorf("%s came", name)
			}
			first = false
			delete(left, name)
		}
		if scan == 0 {
			leave1(t, h.Spool, Drop{Submission: job.Token(token), Batch: "ns/b"}, "a")
		}
	}
	if len(left) > 0 {
		t.Errorf("%d never came", len(left))
	}
}

// Its owner writes another submission over a file while it is taken. It is
// refused, or taken as the one or as the other, whole.
func TestS10RewrittenWhileTaken(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	token := job.NewToken()
	name := h.path("incoming", string(token))
	texts, contents := [2][]byte{}, [2]string{strings.Repeat("a", 700_000), strings.Repeat("b", 700_000)}
	for i, c := range contents {
		j := &job.Job{Name: "j" + c[:1], Run: []string{"./run"}, Inputs: []job.Input{inputOf("in", c)}}
		err := h.Leave(Drop{Submission: token, Batch: "ns/b", Jobs: 1}, []byte("the file\n"), &plain,
			func(yield func(*job.Job) bool) { yield(j) },
			func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(c)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	taken, refused := 0, 0
	rounds := suite.Size(8, 24)
	for round := range rounds {
		h := newHead(t)
		name := h.path("incoming", string(token))
		first := round % 2
		if err := os.WriteFile(name, texts[first], 0o640); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		rewrite := func(int) (string, error) { // called when the first line is read
			go func() { written <- writeOver(name, texts[1-first], round*120_000/rounds) }()
			if round%3 == 0 {
				written <- <-written
			}
			return "ana", nil
		}
		s, _, err := h.Take(string(token), rewrite, anyRoom)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if err != nil {
			wantErr(t, "what was rewritten", err, ErrInput)
			refused++
			continue
		}
		taken++
		b, err := s.Finish(false)
		if err != nil {
			t.Fatal(err)
		}
		j, err := b.Job(0)
		if err != nil {
			t.Fatal(err)
		}
		if got := readInput(t, b, j.Inputs[0]); len(got) != 700_000 || strings.Count(got, j.Name[1:]) != len(got) {
			t.Errorf("job %s has an input that begins with %.10q", j.Name, got)
		}
		b.Close()
	}
	t.Logf("%d were taken, %d refused", taken, refused)
	if refused == 0 {
		t.Error("nothing was written while it was read")
	}
}

// writeOver writes text over a file, from a place on, and then before it.
func writeOver(name string, text []byte, from int) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	from %= len(text)
	_, err = f.WriteAt(text[from:], int64(from))
	if err == nil {
		_, err = f.WriteAt(text[:from], 0)
	}
	return err
}

// A file is found although the time of its directory says that nothing came.
func TestS15DirectoryTimeStands(t *testing.T) {
	h := newHead(t)
	when := time.Now().Add(-time.Hour)
	found := func() (names []string) {
		t.Helper()
		if err := os.Chtimes(h.path("incoming"), when, when); err != nil {
			t.Fatal(err)
		}
		ch := make(chan string, 10)
		h.scanIncoming(t.Context(), ch)
		close(ch)
		for n := range ch {
			names = append(names, n)
		}
		return names
	}
	for want := range 3 {
		if got := found(); len(got) != want {
			t.Errorf("%d files were found, %d are there", len(got), want)
		}
		leave1(t, h.Spool, Drop{Submission: job.NewToken(), Batch: "ns/b"}, "a")
	}
}

func TestS16OldUnfinishedFiles(t *testing.T) {
	h := newHead(t)
	now := time.Now()
	for name, when := range map[string]time.Time{"old": now, "held": now, "new": now.Add(2 * time.Hour), "future": now.Add(100 * time.Hour)} {
		file := h.path("incoming", "."+name+".tmp~")
		if err := errors.Join(os.WriteFile(file, nil, 0o640), os.Chtimes(file, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(h.path("incoming", ".held.tmp~"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	look := func(when string, want ...string) {
		t.Helper()
		h.scanIncoming(t.Context(), nil)
		var left []string
		list, _ := os.ReadDir(h.path("incoming"))
		for _, e := range list {
			left = append(left, e.Name())
		}
		if !reflect.DeepEqual(left, want) {
			t.Errorf("%s: left %q, want %q", when, left, want)
		}
	}
	all := []string{".future.tmp~", ".held.tmp~", ".new.tmp~", ".old.tmp~"}
	look("at once", all...)
	later(h, -72*time.Hour)
	look("the clock set back", all...)
	later(h, 72*time.Hour+37*time.Hour)
	look("after 37 hours", ".future.tmp~", ".held.tmp~", ".new.tmp~")
}

// FuzzDrop feeds Take what somebody may leave in incoming/: it takes it whole or
// not at all, and leaves nothing of what it does not take.
func FuzzDrop(f *testing.F) {
	h := newHead(f)
	good := job.NewToken()
	leave1(f, h.Spool, Drop{Submission: good, Batch: "ns/b"}, "a")
	name := h.path("incoming", string(good))
	text, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(name, content, 0o640); err != nil {
			t.Fatal(err)
		}
		s, d, err := h.Take(string(good), nobody, anyRoom)
		if err == nil {
			if s.index.len() != d.Jobs {
				t.Errorf("%d jobs of %d were taken", s.index.len(), d.Jobs)
			}
			if err := s.Abort(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, ErrInput) {
			t.Errorf("%q: %v", content, err)
		}
		if left, _ := filepath.Glob(h.path("batches", "*", ".new-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// anyRoom is a disk on which everything fits.
func anyRoom(int64, int) error { return nil }

// X99: why a private submission is refused tells the group nothing of it.
func TestX99RejectedPrivate(t *testing.T) {
	h := newHead(t)
	why := fmt.Errorf("%w: job 3, %q", ErrInput, "secret")
	for mode, told := range map[fs.FileMode]bool{0o640: true, 0o600: false} {
		name := string(job.NewToken())
		if err := os.WriteFile(h.path("incoming", name), nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := h.Reject(name, why); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(h.path("rejected", name+".why"))
		if err != nil || strings.Contains(string(text), "secret") != told {
			t.Errorf("%#o: %q, %v", mode, text, err)
		}
	}
}

// S09: the longest name that a file can have leaves room for what is added to it.
func TestS09LongestName(t *testing.T) {
	h := newHead(t)
	name := strings.Repeat("x", 255)
	for range 2 {
		if err := os.WriteFile(h.path("incoming", name), nil, 0o640); err != nil {
			t.Fatal(err)
		}
		if err := h.Reject(name, ErrInput); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := h.Waiting(); err != nil || len(list) != 2 || list[0].Why != ErrInput.Error() || list[1].Why != ErrInput.Error() {
		t.Errorf("rejected: %+v, %v", list, err)
	}
}

// S09: a directory whose owner alone may move it stays; nothing is broken by that.
func TestS09DirectoryStays(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can become somebody else")
	}
	h := newHead(t)
	const somebody = 65534
	for _, dir := range []string{"", "incoming", "rejected"} {
		if err := os.Chown(h.path(dir), somebody, somebody); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(h.path("../.."), 0o755), os.Mkdir(h.path("incoming", "x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	as := proc.Identity{UID: somebody, GID: somebody}
	err := as.Do(func() error { return h.Reject("x", ErrInput) })
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrBroken) {
		t.Error(err)
	}
	if list, err := os.ReadDir(h.path("rejected")); err != nil || len(list) != 0 {
		t.Errorf("rejected/ has %v, %v; expected nothing", list, err)
	}
}

// S09: what is rejected is not taken for the reason of another, and is not replaced by it.
func TestS09NamedLikeAReason(t *testing.T) {
	h := newHead(t)
	err := errors.Join(os.Mkdir(h.path("incoming", "x.why"), 0o750), os.WriteFile(h.path("incoming", "x"), nil, 0o640))
	if err := errors.Join(err, h.Reject("x.why", ErrInput), h.Reject("x", ErrInput)); err != nil {
		t.Fatal(err)
	}
	if list, err := h.Waiting(); err != nil || len(list) != 2 {
		t.Errorf("rejected: %+v, %v", list, err)
	}
}
