package spool

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/suite"
)

// newHead makes a spool for the group of this process and takes it.
func newHead(t testing.TB) *Head {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "spool")
	if err := Init(dir, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	h, open, problems := loadHead(t, dir)
	if len(open) > 0 || len(problems) > 0 {
		t.Fatalf("a new spool has %v, %v", open, problems)
	}
	return h
}

// loadHead starts a head on a spool.
func loadHead(t testing.TB, dir string) (*Head, []*Batch, []*Problem) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	open, problems, err := h.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range open {
		t.Cleanup(func() { b.Close() })
	}
	return h, open, problems
}

// restart closes a head and its batches and starts another.
func restart(t testing.TB, h *Head, batches ...*Batch) (*Head, []*Batch, []*Problem) {
	t.Helper()
	for _, b := range batches {
		b.Close()
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return loadHead(t, h.Dir())
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// inputOf is an input of that content.
func inputOf(path, content string) job.Input {
	return job.Input{Path: path, Size: int64(len(content)), Mode: 0o644, Sum: sumOf(content)}
}

var plain = job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}

// fillIn fills a submission of jobs a, b, c, … that read contents.
func fillIn(s *Submission, spec job.Spec, names []string, contents ...string) error {
	if err := s.BatchFile(strings.NewReader("command:\n")); err != nil {
		return err
	}
	if err := s.Spec(spec); err != nil {
		return err
	}
	for _, n := range names {
		j := &job.Job{Name: n, Run: []string{"./run", n}}
		for i, c := range contents {
			j.Inputs = append(j.Inputs, inputOf(fmt.Sprintf("input/f%d", i), c))
		}
		if err := s.AddJob(j); err != nil {
			return err
		}
	}
	if err := s.Resume(); err != nil {
		return err
	}
	m, turns := s.Lacks()
	bySum := make(map[string]string)
	for _, c := range contents {
		bySum[sumOf(c)] = c
	}
	for _, want := range turns {
		var stream bytes.Buffer
		err := pack.Send(&stream, m, want, func(_ int, e pack.Entry) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(bySum[e.Sum])), nil
		})
		if err == nil {
			err = pack.Receive(&stream, m, want, s.Sink())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// submit makes a batch.
func submit(t testing.TB, h *Head, id job.BatchID, names []string, contents ...string) *Batch {
	t.Helper()
	s, err := h.Begin(job.NewToken(), id, "ana", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if err := fillIn(s, plain, names, contents...); err != nil {
		t.Fatal(err)
	}
	b, err := s.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func TestInit(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil || job.Token(s.ID()).Check() != nil {
		t.Fatalf("Open: %v, id %q", err, s.ID())
	}
	for name, mode := range map[string]fs.FileMode{".": 0o700, "batches": 0o750, "keys": 0o700, "run": 0o750} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != mode || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	for _, name := range []string{"spool.json", "README", "head.yaml", "head.jsonl"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	wantErr(t, "a second time", Init(dir, Private), fs.ErrExist)

	full := filepath.Join(top, "full")
	os.Mkdir(full, 0o755)
	os.WriteFile(filepath.Join(full, "thesis.tex"), nil, 0o644)
	wantErr(t, "into a full directory", Init(full, Private), ErrPlace)
	if list, _ := os.ReadDir(full); len(list) != 1 {
		t.Errorf("it left %v", list)
	}

	mount := filepath.Join(top, "mount")
	os.MkdirAll(filepath.Join(mount, "lost+found"), 0o755)
	if err := Init(mount, Private); err != nil {
		t.Errorf("into a new file system: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	wantErr(t, "an empty directory", err, ErrNoSpool)
	_, err = Open(filepath.Join(dir, "missing"))
	wantErr(t, "a missing directory", err, ErrNoSpool)
	for text, want := range map[string]error{
		`{"format":2,"id":"00112233445566778899aabbccddeeff"}`: ErrFormat,
		`{"format":1,"id":"short"}`:                            job.ErrName,
	} {
		os.WriteFile(filepath.Join(dir, "spool.json"), []byte(text), 0o640)
		_, err = Open(dir)
		wantErr(t, text, err, want)
	}
	if _, err = Open(dir); err == nil {
		t.Error("a bad id was taken")
	}
}

func TestJ30OtherFormatNamesBoth(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	text, _ := os.ReadFile(b.log.Path())
	other := strings.Replace(string(text[:len(text)-sumLen-1]), `"format":1`, `"format":7`, 1)
	os.WriteFile(b.log.Path(), append(sealed(other), '\n'), 0o640)
	_, open, problems := restart(t, h, b)
	if len(open) != 0 || len(problems) != 1 || !strings.Contains(problems[0].Why, "7") || !strings.Contains(problems[0].Why, "1") {
		t.Errorf("open %v, problems %v", open, problems)
	}
}

func TestS19TwoHeads(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	s, err := Open(h.Dir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Lock()
	wantErr(t, "a second head", err, ErrLocked)
	if want := fmt.Sprint(os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not name process %s", err, want)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// A spool has one head also if somebody removes run/, with its lock, under it.
func TestTwoHeadsWithoutRun(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	s, err := Open(h.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.path("run")); err != nil {
		t.Fatal(err)
	}
	if second, err := s.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("a second head: %v", err)
		if err == nil {
			second.Close()
		}
	}
	if live, err := s.Live(); !live || err != nil {
		t.Errorf("a head has it: %v, %v", live, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if live, err := s.Live(); live || err != nil {
		t.Errorf("no head has it: %v, %v", live, err)
	}
	again, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestSubmission(t *testing.T) {
	h := newHead(t)
	big := strings.Repeat("big", job.SmallFile)
	b := submit(t, h, "ns/b", []string{"a", "b", "c"}, "small", big, "", "small")
	if b.Jobs() != 3 || b.Head.Owner != "ana" || b.Head.UID != os.Getuid() || b.ID != "ns/b" {
		t.Errorf("batch %+v", b)
	}
	_, open, problems := restart(t, h, b)
	if len(open) != 1 || len(problems) != 0 {
		t.Fatalf("open %v, problems %v", open, problems)
	}
	b = open[0]
	for i, name := range []string{"a", "b", "c"} {
		j, err := b.Job(i)
		if err != nil || j.Name != name || !reflect.DeepEqual(j.Run, []string{"./run", name}) || len(j.Inputs) != 4 {
			t.Fatalf("job %d: %+v, %v", i, j, err)
		}
		if n, ok := b.Index(name); n != i || !ok {
			t.Errorf("Index(%q) = %d, %v", name, n, ok)
		}
		for k, want := range []string{"small", big, "", "small"} {
			if got := readInput(t, b, j.Inputs[k]); got != want {
				t.Errorf("input %d has %d bytes", k, len(got))
			}
		}
	}
	if _, ok := b.Index("d"); ok {
		t.Error("there is a job d")
	}
	if _, err := b.Job(3); err == nil {
		t.Error("there is a fourth job")
	}
	var briefs []Brief
	err := b.Scan(func(i int, j *Brief) error {
		briefs = append(briefs, *j)
		return nil
	})
	if one := (job.Resources{CPUs: 1}); err != nil || !reflect.DeepEqual(briefs, []Brief{{Name: "a", Resources: one}, {Name: "b", Resources: one}, {Name: "c", Resources: one}}) {
		t.Errorf("Scan: %+v, %v", briefs, err)
	}
}

// By its content a submission is known that is sent again, also to a later release.
func TestContent(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"}, "small", large("x"))
	log, err := os.ReadFile(filepath.Join(b.dir, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := os.ReadFile(filepath.Join(b.dir, "jobs.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var first struct {
		Head struct {
			Content string
			Spec    json.RawMessage
		}
	}
	if err := json.NewDecoder(bytes.NewReader(log)).Decode(&first); err != nil {
		t.Fatal(err)
	}
	jobs = regexp.MustCompile(`,"at":[0-9]+|,"crc":"[0-9a-f]{8}"`).ReplaceAll(jobs, nil)
	if want := sumOf(string(first.Head.Spec) + "\n" + string(jobs)); first.Head.Content != want {
		t.Errorf("its content is %s, and the sum of\n%s\n%sis %s", first.Head.Content, first.Head.Spec, jobs, want)
	}
}

// The group can read what is submitted into a namespace that a crash has left half made.
func TestReadableInNamespaceCutShort(t *testing.T) {
	h := newHead(t)
	undo := durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "submit.namespace" {
			return errors.New("cut")
		}
		return nil
	}})
	_, err := h.Begin(job.NewToken(), "new/b", "ana", os.Getuid())
	if undo(); err == nil {
		t.Fatal("the namespace is made without a step")
	}
	submit(t, h, "new/b", []string{"a"}).Close()
	if !h.Readable("new/b", Reader{UID: os.Getuid() + 1, Groups: []int{os.Getgid()}}) {
		t.Error("the group cannot read it")
	}
}

// What may be read goes by owner, group and others of the modes. Of an ACL the kernel shows
// the mask as the group's bits, and its entries do not count.
func TestReadable(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can give directories away")
	}
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"})
	const gid, other = 61001, 61002
	for _, dir := range []string{h.path(), h.path("batches"), h.path("batches", "ns"), b.dir} {
		if err := os.Chown(dir, -1, gid); err != nil {
			t.Fatal(err)
		}
	}
	named, member, outsider := Reader{UID: 61000}, Reader{UID: 61003, Groups: []int{gid}}, Reader{UID: 61004, Groups: []int{other}}
	look := func(when string, want ...bool) {
		t.Helper()
		for i, r := range []Reader{named, member, outsider} {
			if got := h.Readable("ns/b", r); got != want[i] {
				t.Errorf("%s: %+v may read: %v", when, r, got)
			}
		}
	}
	look("as made", false, true, false)
	acl := []byte{2, 0, 0, 0}
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, math.MaxUint32}, {2, 5, 61000}, {4, 0, math.MaxUint32}, {0x10, 5, math.MaxUint32}, {0x20, 0, math.MaxUint32}} {
		acl = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(acl, e.tag), e.perm), e.id)
	}
	if err := unix.Setxattr(b.dir, "system.posix_acl_access", acl, 0); err != nil {
		suite.Missing(t, fmt.Sprint("no ACLs here: ", err))
	}
	look("with an ACL for one user, and nothing for the group", false, true, false)
	if err := errors.Join(unix.Removexattr(b.dir, "system.posix_acl_access"), os.Chmod(b.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	look("closed", false, false, false)
}

func readInput(t *testing.T, b *Batch, in job.Input) string {
	t.Helper()
	r, size, err := b.OpenInput(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || size != int64(len(got)) {
		t.Errorf("%s: %d bytes of %d, %v", in.Path, len(got), size, err)
	}
	return string(got)
}

func TestFilesTarIsATar(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b"}, "one", "two", strings.Repeat("x", 1000), "")
	sums := readTar(t, filepath.Join(b.dir, "files.tar"))
	for _, c := range []string{"one", "two", strings.Repeat("x", 1000), ""} {
		if sums[sumOf(c)] != c {
			t.Errorf("files.tar has %q", sums[sumOf(c)])
		}
	}
	if len(sums) != 4 {
		t.Errorf("files.tar has %d files", len(sums))
	}
}

// Two may draw the same id, as two may choose the same name: what differs is not
// taken for the same.
func TestS07SameAndTaken(t *testing.T) {
	h := newHead(t)
	token := job.NewToken()
	try := func(id job.Token, free bool, names ...string) (*Batch, error) {
		s, err := h.Begin(id, "ns/b", "ana", os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		if err := fillIn(s, plain, names, "content"); err != nil {
			t.Fatal(err)
		}
		early, errEarly := s.Check(free)
		b, err := s.Finish(free)
		if errors.Is(err, ErrSame) != errors.Is(errEarly, ErrSame) || errors.Is(err, ErrTaken) != errors.Is(errEarly, ErrTaken) ||
			errEarly != nil && early.ID != b.ID {
			t.Errorf("Check said %v, and Finish %v", errEarly, err)
		}
		if err == nil {
			t.Cleanup(func() { b.Close() })
		}
		return b, err
	}
	first, err := try(token, false, "a", "b")
	if err != nil || first.ID != "ns/b" {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		id    job.Token
		free  bool
		names []string
		want  job.BatchID
		err   error
	}{
		{"the same submission", token, false, []string{"a", "b"}, "ns/b", ErrSame},
		{"the same submission, any name", token, true, []string{"a", "b"}, "ns/b", ErrSame},
		{"the same content", job.NewToken(), false, []string{"a", "b"}, "ns/b", ErrSame},
		{"other content", job.NewToken(), false, []string{"a", "c"}, "ns/b", ErrTaken},
		{"other content, any name", "00112233445566778899aabbccddeeff", true, []string{"a", "c"}, "ns/b.2", nil},
		{"that again", "00112233445566778899aabbccddeeff", true, []string{"a", "c"}, "ns/b.2", ErrSame},
		{"another's submission of the same id", token, false, []string{"a", "d"}, "ns/b", ErrTaken},
		{"the first content, any name", job.NewToken(), true, []string{"a", "b"}, "ns/b.3", nil},
	} {
		b, err := try(c.id, c.free, c.names...)
		if c.err == nil && err != nil || c.err != nil && !errors.Is(err, c.err) || b == nil || b.ID != c.want {
			t.Errorf("%s: %+v, %v", c.what, b, err)
		}
	}
	if left, _ := filepath.Glob(h.path("batches", "ns", ".new-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestS06TwoAtOnce(t *testing.T) {
	h := newHead(t)
	token := job.NewToken()
	results := make(chan error)
	for range 4 {
		go func() {
			s, err := h.Begin(token, "ns/b", "ana", os.Getuid())
			if err == nil {
				err = fillIn(s, plain, []string{"a"}, "content")
			}
			if err == nil {
				_, err = s.Finish(true)
			}
			results <- err
		}()
	}
	made := 0
	for range 4 {
		if err := <-results; err == nil {
			made++
		} else if !errors.Is(err, ErrSame) {
			t.Error(err)
		}
	}
	if list, _ := os.ReadDir(h.path("batches", "ns")); made != 1 || len(list) != 1 {
		t.Errorf("%d were made: %v", made, list)
	}
}

func TestS13AndWhatElseIsRefused(t *testing.T) {
	h := newHead(t)
	for _, id := range []job.BatchID{"b", "../b", "ns/-rf", "ns/.new", "ns/b/c", "ns/b.yaml", "run=7/b"} {
		_, err := h.Begin(job.NewToken(), id, "ana", 1)
		wantErr(t, string(id), err, ErrInput)
	}
	_, err := h.Begin("x", "ns/b", "ana", 1)
	wantErr(t, "a bad token", err, ErrInput)
	many := make([]job.Input, 12)
	for i := range many {
		many[i] = inputOf(fmt.Sprintf("f%d", i%11), "x")
	}
	long := inputOf("x", "x")
	long.Size = 2
	for what, j := range map[string]job.Job{
		"no name":         {Run: []string{"x"}},
		"a way up":        {Name: "../x", Run: []string{"x"}},
		"an option":       {Name: "-rf", Run: []string{"x"}},
		"a line":          {Name: "a\nb", Run: []string{"x"}},
		"an escape":       {Name: "a\x1b[2J", Run: []string{"x"}},
		"long":            {Name: strings.Repeat("n", 300), Run: []string{"x"}},
		"twice":           {Name: "there", Run: []string{"x"}},
		"nothing to run":  {Name: "x"},
		"a NUL":           {Name: "x", Run: []string{"a\x00b"}},
		"cpus":            {Name: "x", Run: []string{"x"}, Resources: &job.Resources{CPUs: -1}},
		"memory":          {Name: "x", Run: []string{"x"}, Resources: &job.Resources{Memory: 512}},
		"gpus":            {Name: "x", Run: []string{"x"}, Resources: &job.Resources{GPUs: -1}},
		"more than a gpu": {Name: "x", Run: []string{"x"}, Resources: &job.Resources{GPUs: 1500}},
		"time":            {Name: "x", Run: []string{"x"}, Resources: &job.Resources{Time: 1 << 60}},
		"a capability":    {Name: "x", Run: []string{"x"}, Capabilities: []string{"cores>2"}},
		"an input above":  {Name: "x", Run: []string{"x"}, Inputs: []job.Input{inputOf("../x", "x")}},
		"an input at /":   {Name: "x", Run: []string{"x"}, Inputs: []job.Input{inputOf("/etc/passwd", "x")}},
		"no sum":          {Name: "x", Run: []string{"x"}, Inputs: []job.Input{{Path: "x"}}},
		"two at one path": {Name: "x", Run: []string{"x"}, Inputs: []job.Input{inputOf("x", "x"), inputOf("x", "y")}},
		"a file below a file": {Name: "x", Run: []string{"x"},
			Inputs: []job.Input{inputOf("x/y", "x"), inputOf("x", "y")}},
		"many, two at one path": {Name: "x", Run: []string{"x"}, Inputs: many},
		"at the batch's":        {Name: "x", Run: []string{"x"}, Inputs: []job.Input{inputOf("common/file", "x")}},
		"below the batch's":     {Name: "x", Run: []string{"x"}, Inputs: []job.Input{inputOf("common/file/x", "x")}},
		"two sizes":             {Name: "x", Run: []string{"x"}, Inputs: []job.Input{long}},
	} {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", 1)
		if err != nil {
			t.Fatal(err)
		}
		spec := plain
		spec.Inputs = []job.Input{inputOf("common/file", "x")}
		if err := s.Spec(spec); err != nil {
			t.Fatal(err)
		}
		if err := s.AddJob(&job.Job{Name: "there", Run: []string{"x"}}); err != nil {
			t.Fatal(err)
		}
		wantErr(t, what, s.AddJob(&j), ErrInput)
		if err := s.Abort(); err != nil {
			t.Error(err)
		}
	}
	for what, spec := range map[string]job.Spec{"no kind": {}, "docker": {Kind: "docker"}, "no image": {Kind: job.Apptainer},
		"a space": {Kind: job.Command, Capabilities: []string{"g fortran"}}} {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", 1)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, what, s.Spec(spec), ErrInput)
		s.Abort()
	}
}

func TestWhatComesIsChecked(t *testing.T) {
	h := newHead(t)
	big := strings.Repeat("b", job.SmallFile)
	for what, c := range map[string]struct{ said, came string }{
		"other content":     {"said", "came"},
		"short":             {"said", "sai"},
		"long":              {"said", "said!"},
		"big other content": {big, big[1:] + "x"},
		"big short":         {big, big[1:]},
		"big long":          {big, big + "x"},
	} {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", 1)
		if err != nil {
			t.Fatal(err)
		}
		in := inputOf("f", c.said)
		if err := errors.Join(s.Spec(plain), s.AddJob(&job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{in}})); err != nil {
			t.Fatal(err)
		}
		wantErr(t, what, s.Put(in.Sum, in.Size, strings.NewReader(c.came)), ErrInput)
		wantErr(t, what+": nobody asked", s.Put(sumOf("?"), 1, strings.NewReader("?")), ErrInput)
		_, err = s.Finish(false)
		wantErr(t, what+": Finish", err, ErrInput)
	}
	if left, _ := filepath.Glob(h.path("blobs", "*", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left, _ := filepath.Glob(h.path("blobs", "*", ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A hash is no key to another's file.
func TestBlobsOfOthersAreSentAgain(t *testing.T) {
	h := newHead(t)
	big := strings.Repeat("b", job.SmallFile)
	submit(t, h, "ns/b", []string{"a"}, big)
	h.uid = 61000
	for uid, want := range map[int]bool{0: false, h.uid: false, h.uid + 1: true} {
		s, err := h.Begin(job.NewToken(), "ns/c", "bob", uid)
		if err != nil {
			t.Fatal(err)
		}
		j := &job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{inputOf("f", big)}}
		if err := errors.Join(s.Spec(plain), s.AddJob(j)); err != nil {
			t.Fatal(err)
		}
		if _, turns := s.Lacks(); len(turns) > 0 != want {
			t.Errorf("uid %d: lacks %v", uid, turns)
		}
		s.Abort()
	}
}

func readTar(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := make(map[string]string)
	r := tar.NewReader(f)
	for {
		e, err := r.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[e.Name] = string(content)
	}
}

// A child that a head has started does not keep the spool locked after it.
func TestS20LockDiesWithItsHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashScene+"=hold", crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		t.Error("the holder ended by itself")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(child))
	if err != nil || syscall.Kill(pid, 0) != nil {
		t.Fatalf("the child %q does not live: %v", child, err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
}

// runHold locks the spool, starts a child, tells its pid, and stays.
func runHold(dir string) error {
	if _, _, err := lockAndLoad(dir); err != nil {
		return err
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		return err
	}
	tell("%d", child.Process.Pid)
	return child.Wait()
}
