package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"distribute/lib/job"
)

// endless is text that goes on.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// What is beyond a limit is refused by an error that names it, and leaves nothing.
func TestS11TooMuch(t *testing.T) {
	h := newHead(t)
	command := func(inputs ...job.Input) *job.Job {
		return &job.Job{Name: "j", Run: []string{"true"}, Inputs: inputs}
	}
	big := func(size int64, what string) job.Input {
		return job.Input{Path: what, Size: size, Mode: 0o644, Sum: sumOf(what)}
	}
	for _, tt := range []struct {
		what  string
		limit int64
		do    func(s *Submission) error
	}{
		{"a batch file", MaxFile, func(s *Submission) error { return s.BatchFile(endless{}) }},
		{"many jobs' lines", MaxText, func(s *Submission) error {
			s.index.end = MaxText - 10
			return s.AddJob(command())
		}},
		{"one long line", MaxLine, func(s *Submission) error {
			j := command()
			j.Run = append(j.Run, strings.Repeat("x", MaxLine))
			return s.AddJob(j)
		}},
		{"many inputs", MaxInputs, func(s *Submission) error {
			s.order = make([]*input, MaxInputs)
			return s.AddJob(command(big(1, "a")))
		}},
		{"a large input", MaxBytes, func(s *Submission) error { return s.AddJob(command(big(MaxBytes+1, "a"))) }},
		{"the largest number", MaxBytes, func(s *Submission) error {
			return s.AddJob(command(big(MaxBytes, "a"), big(1<<63-1, "b")))
		}},
	} {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
		if err == nil {
			err = s.Spec(plain)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = tt.do(s)
		if !errors.Is(err, ErrInput) || !strings.Contains(fmt.Sprint(err), fmt.Sprint(tt.limit)) || !strings.Contains(err.Error(), "limit") {
			t.Errorf("%s: %v, want the limit of %d", tt.what, err, tt.limit)
		}
		if err := s.Abort(); err != nil {
			t.Error(err)
		}
	}
}

// A file of 100 GB in incoming/ is refused without being read.
func TestS11HugeDrop(t *testing.T) {
	h := newHead(t)
	name := h.path("incoming", "huge")
	if err := os.WriteFile(name, []byte(`{"format":1}`+"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, 100<<30); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Take("huge", nobody, anyRoom); !errors.Is(err, ErrInput) || !strings.Contains(fmt.Sprint(err), fmt.Sprint(int64(MaxDrop))+" is the limit") {
		t.Errorf("it is taken: %v", err)
	}
}

// A drop file that says it has ten million jobs, or a batch file of a gigabyte,
// is not believed; one that has a million and one is refused at that line.
func TestS11TooManyJobs(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	drop := func(first string, rest io.Reader) error {
		f, err := os.Create(h.path("incoming", "many"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, first); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(f, rest); err != nil {
			t.Fatal(err)
		}
		_, _, err = h.Take("many", nobody, anyRoom)
		return err
	}
	first := `{"format":1,"submission":"` + string(job.NewToken()) + `","batch":"ns/b","file":%d,"jobs":%d}` + "\n"
	for _, tt := range []struct {
		file, jobs int
		limit      int
	}{{0, 10_000_000, MaxJobs}, {1 << 30, 1, MaxFile}, {-1, 1, MaxFile}, {0, -1, MaxJobs}} {
		err := drop(fmt.Sprintf(first, tt.file, tt.jobs), strings.NewReader(strings.Repeat("x", 100)))
		if !errors.Is(err, ErrInput) || !strings.Contains(fmt.Sprint(err), fmt.Sprint(tt.limit)+" is the limit") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
	if err == nil {
		err = s.Spec(plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abort()
	j := &job.Job{Run: []string{"./run"}}
	for i := 0; err == nil; i++ {
		j.Name = fmt.Sprint("j", i)
		if err = s.AddJob(j); err != nil && i != MaxJobs {
			t.Fatalf("job %d: %v", i, err)
		}
	}
	if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), fmt.Sprint(MaxJobs)) {
		t.Error(err)
	}
}

// Who takes his file back while it is refused does no harm.
func TestS12TakenBack(t *testing.T) {
	h := newHead(t)
	if err := h.Reject("gone", errors.New("it is garbage")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(h.path("rejected")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A batch of more different requests than may be is refused however it comes; so are jobs
// that would make it one. As many as may be are taken.
func TestTooManyRequests(t *testing.T) {
	h := newHead(t)
	jobs := func(from, to int) func(func(*job.Job) bool) {
		return func(yield func(*job.Job) bool) {
			for i := from; i < to; i++ {
				if !yield(&job.Job{Name: fmt.Sprint("j", i), Run: []string{"./run"}, Resources: &job.Resources{CPUs: i + 1}}) {
					return
				}
			}
		}
	}
	filled := func(id job.BatchID, from, to int) (*Submission, error) {
		s, err := h.Begin(job.NewToken(), id, "ana", os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(s.BatchFile(strings.NewReader("command:\n")), s.Spec(plain))
		for j := range jobs(from, to) {
			err = errors.Join(err, s.AddJob(j))
		}
		return s, err
	}
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrInput) || !strings.Contains(fmt.Sprint(err), "more than 256 different requests") {
			t.Errorf("it ends with %v", err)
		}
	}
	s, err := filled("ns/many", 0, job.MaxRequests+1)
	refused(errors.Join(err, s.Abort()))
	refused(h.Leave(Drop{Submission: job.NewToken(), Batch: "ns/left", Jobs: job.MaxRequests + 1}, nil, &plain, jobs(0, job.MaxRequests+1), nil))
	if left, err := h.Waiting(); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}

	s, err = filled("ns/b", 0, job.MaxRequests)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	h.Made(b)
	more, err := filled("ns/b", job.MaxRequests-1, job.MaxRequests+1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = more.Add(b)
	refused(err)
	same, err := filled("ns/b", 0, job.MaxRequests)
	if err != nil {
		t.Fatal(err)
	}
	a, err := same.Add(b)
	if err != nil || a.Jobs != 0 {
		t.Fatalf("the same jobs again: %v", err)
	}
	a.End()
}
