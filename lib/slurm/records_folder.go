package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/job"
	"distribute/lib/line"

	"golang.org/x/sys/unix"
)

// What comes from a folder on a cluster was written by other programs, on a disk that
// others may write: all of it is checked here.

// Names in a folder.
const (
	ListFile      = "d2slurm.jsonl"
	SubmittedFile = "submitted.tsv"
	StatusFile    = "status.json"
	OutputFile    = "output.txt"
	WorkDir       = "work"
	BatchFile     = "batch.jsonl" // of a batch that a head may not know: its specification, and a line for each job
	SourceFile    = "batch.yaml"  // and its batch file
	KnownFile     = "known"       // a head has known the batch, or, with text, may have been told of it
	NamedFile     = "named"       // the id of the batch that a head has of it, if another than the list says
	HomeFile      = "home"        // jobs that -C does not take: the head was told what became of them, or may have been
	BuiltFile     = "built"       // what is built once, is
	InputsDir     = "inputs"      // contents, named by their sums
	SecretsFile   = "secrets.sh"  // values of secrets, until all jobs are home; it never leaves the cluster
)

// Limits of what is read of a folder.
const (
	maxLine   = 1 << 20
	maxJobs   = 10_000_000
	maxWaves  = 1_000_000 // lines of submitted.tsv
	MaxStatus = 64 << 10  // bytes of a status file
)

// ErrFolder is what every error of a folder is that is not one.
var ErrFolder = errors.New("no folder of d2slurm")

// A Folder is jobs as they were taken to a cluster.
type Folder struct {
	Version int         `json:"version"`
	ID      job.Token   `json:"id"`
	Name    string      `json:"name"`
	Batch   job.BatchID `json:"batch"`
	Kind    string      `json:"kind"`
	Secrets bool        `json:"secrets,omitempty"` // there are values in [SecretsFile]

	Jobs []FolderJob `json:"-"`
}

// A FolderJob is one of them.
type FolderJob struct {
	Job    string   `json:"job"`
	Dir    string   `json:"dir"`              // below jobs/: what it has printed, how it ended, and [WorkDir]
	Group  int      `json:"group"`            // which array it is in
	Index  int      `json:"index"`            // and where
	Inputs []string `json:"inputs,omitempty"` // paths below the directory in which it runs that were there before it began; one that may have either of two times stands twice
	MTimes []int64  `json:"mtimes,omitempty"` // their times, in nanoseconds since 1970; missing in folders of earlier releases

	Outputs []string `json:"outputs,omitempty"` // what comes home; none: everything
	Ranks   int      `json:"ranks,omitempty"`   // so many processes of its command run side by side
}

// Printed are the files into which the job has printed, by the paths that they have at home.
func (j *FolderJob) Printed() map[string]string {
	return job.PrintedFiles(j.Job, j.Ranks, func(k int) string {
		if k == 0 {
			return OutputFile
		}
		return fmt.Sprintf("output.%d.txt", k)
	})
}

// ReadFolder reads the list of a folder. Every error is [ErrFolder] or one of r.
func ReadFolder(r io.Reader) (*Folder, error) {
	in := line.NewReader(r, maxLine)
	fail := func(n int, err error) error { return fmt.Errorf("%w: %s:%d: %w", ErrFolder, ListFile, n, err) }
	b, err := in.Next()
	if err == io.EOF {
		return nil, fail(1, errors.New("it is empty"))
	}
	f := &Folder{}
	if err == nil {
		err = line.Unmarshal(b, f)
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fail(1, err)
	}
	seen, dirs := map[string]bool{}, map[string]bool{}
	for n := 2; ; n++ {
		b, err := in.Next()
		if err == io.EOF {
			return f, nil
		}
		var j FolderJob
		if err == nil {
			err = line.Unmarshal(b, &j)
		}
		if err == nil {
			err = j.check()
		}
		switch {
		case err != nil:
		case seen[j.Job]:
			err = fmt.Errorf("job %q stands twice", j.Job)
		case dirs[j.Dir]:
			err = fmt.Errorf("directory %q stands twice", j.Dir)
		case len(f.Jobs) == maxJobs:
			err = fmt.Errorf("more than %d jobs", maxJobs)
		}
		if err != nil {
			return nil, fail(n, err)
		}
		seen[j.Job], dirs[j.Dir] = true, true
		f.Jobs = append(f.Jobs, j)
	}
}

func (f *Folder) check() error {
	if f.Version != 1 {
		return fmt.Errorf("it has version %d, and this program knows 1", f.Version)
	}
	_, err := job.ParseBatchID(string(f.Batch))
	return errors.Join(f.ID.Check(), job.CheckName(f.Name), err)
}

func (j *FolderJob) check() error {
	below, ok := strings.CutPrefix(j.Dir, "jobs/")
	if !ok || !local(below) || strings.Contains(below, "/") {
		return fmt.Errorf("%.200q is no directory of a job: jobs/NAME", j.Dir)
	}
	for _, p := range j.Inputs {
		if !local(p) {
			return fmt.Errorf("%.200q is no path below the directory of a job", p)
		}
	}
	if j.Ranks < 0 || j.Ranks > job.MaxRanks {
		return fmt.Errorf("%d ranks make no sense", j.Ranks)
	}
	if err := job.CheckOutputs(job.Command, j.Outputs); err != nil {
		return err
	}
	if j.Group < 0 || j.Index < 0 {
		return errors.New("its group or index is below 0")
	}
	return job.CheckName(j.Job)
}

// local says that a path leads down, and is written in one way only.
func local(p string) bool {
	return filepath.IsLocal(p) && p != "." && filepath.Clean(p) == p && !strings.ContainsAny(p, "\x00\n\r")
}

// Submitted tells under which ids Slurm has the jobs of a folder.
type Submitted struct {
	waves map[int][]wave // by group
	Build int64          // the job that builds what they wait for; 0: there is none
	Odd   []string       // lines that say nothing
}

type wave struct {
	first, last int
	id          int64
}

// ReadSubmitted reads what submit.sh has noted. A line that was cut, or says nothing,
// stops no other.
func ReadSubmitted(r io.Reader) (*Submitted, error) {
	s := &Submitted{waves: map[int][]wave{}}
	in := line.NewReader(r, 4096)
	for n := 1; ; n++ {
		b, err := in.Next()
		switch {
		case err == io.EOF, errors.Is(err, line.ErrPartial):
			return s, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %s:%d: %w", ErrFolder, SubmittedFile, n, err)
		case n > maxWaves:
			return nil, fmt.Errorf("%w: %s has more than %d lines", ErrFolder, SubmittedFile, maxWaves)
		}
		words := strings.Split(string(b), "\t")
		switch {
		case words[0] == "after":
			continue
		case words[0] == "build" && len(words) > 3:
			if id, err := strconv.ParseInt(strings.TrimSpace(words[3]), 10, 64); err == nil && id > 0 {
				s.Build = id
				continue
			}
		}
		if group, w, ok := readWave(words); ok {
			s.waves[group] = append(s.waves[group], w)
		} else if len(s.Odd) < 10 {
			s.Odd = append(s.Odd, fmt.Sprintf("%s:%d: %.100q says nothing", SubmittedFile, n, b))
		}
	}
}

func readWave(words []string) (group int, w wave, ok bool) {
	if len(words) < 4 {
		return 0, w, false
	}
	var errs [4]error
	group, errs[0] = strconv.Atoi(words[0])
	w.first, errs[1] = strconv.Atoi(words[1])
	w.last, errs[2] = strconv.Atoi(words[2])
	w.id, errs[3] = strconv.ParseInt(strings.TrimSpace(words[3]), 10, 64)
	return group, w, errors.Join(errs[:]...) == nil && group >= 0 && 0 <= w.first && w.first <= w.last && w.id > 0
}

// A TaskID names one task of an array in Slurm.
type TaskID struct {
	Job  int64
	Task int // -1: the job is no array
}

func (t TaskID) String() string {
	if t.Task < 0 {
		return strconv.FormatInt(t.Job, 10)
	}
	return fmt.Sprintf("%d_%d", t.Job, t.Task)
}

// Of is as what Slurm has a job, the last time that it was submitted.
func (s *Submitted) Of(j *FolderJob) (TaskID, bool) {
	waves := s.waves[j.Group]
	for i := len(waves) - 1; i >= 0; i-- {
		if w := waves[i]; w.first <= j.Index && j.Index <= w.last {
			return TaskID{w.id, j.Index - w.first}, true
		}
	}
	return TaskID{}, false
}

// IDs are the ids of the arrays, each once.
func (s *Submitted) IDs() map[int64]bool {
	ids := map[int64]bool{}
	for _, waves := range s.waves {
		for _, w := range waves {
			ids[w.id] = true
		}
	}
	return ids
}

// ErrStatus is what every error of a status file is.
var ErrStatus = errors.New("malformed status file")

// ReadStatus is how a job ended, as its script has written it, and whether Slurm had asked
// it to.
func ReadStatus(text []byte) (o job.Outcome, terminated bool, err error) {
	var s struct {
		Exit       *int    `json:"exit"`
		Signal     any     `json:"signal"`
		Started    any     `json:"started"`
		Ended      any     `json:"ended"`
		Reason     string  `json:"reason"`
		Skipped    string  `json:"skipped"`
		Node       string  `json:"node"`
		CPUTime    float64 `json:"cpu_time"`
		MemoryPeak float64 `json:"memory_peak"`
		Written    float64 `json:"written"`
		Terminated bool    `json:"terminated"`
	}
	fail := func(err error) (job.Outcome, bool, error) {
		return job.Outcome{}, false, fmt.Errorf("%w: %w", ErrStatus, err)
	}
	if len(text) > MaxStatus {
		return fail(fmt.Errorf("it has more than %d bytes", MaxStatus))
	}
	if err := line.Unmarshal([]byte(strings.TrimSpace(string(text))), &s); err != nil {
		return fail(err)
	}
	var errs [3]error
	o.Signal, errs[0] = signalOf(s.Signal)
	o.Started, errs[1] = timeOf(s.Started)
	o.Ended, errs[2] = timeOf(s.Ended)
	if err := errors.Join(errs[:]...); err != nil {
		return fail(err)
	}
	if o.Signal == "" {
		if o.Exit = s.Exit; s.Exit == nil || *s.Exit < 0 || *s.Exit > 255 {
			return fail(errors.New("it has neither an exit status nor a signal"))
		}
	}
	for _, amount := range []*float64{&s.CPUTime, &s.MemoryPeak, &s.Written} {
		if !(*amount >= 0 && *amount < 1<<60) {
			*amount = 0 // it is not known
		}
	}
	o.Reason, o.Skipped, o.Machine = clean(s.Reason), clean(s.Skipped), machine(s.Node)
	o.CPUTime, o.MemoryPeak, o.Written = math.Round(s.CPUTime*1000)/1000, int64(s.MemoryPeak), int64(s.Written)
	o.Runtime = lasted(o.Started, o.Ended)
	return o, s.Terminated, nil
}

// lasted is how many seconds are between two times, if both are known.
func lasted(from, to time.Time) float64 {
	if from.IsZero() || to.Before(from) {
		return 0
	}
	return to.Sub(from).Seconds()
}

// signalOf is the name of a signal: it may be a name or a number.
func signalOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case float64:
		if v == 0 {
			return "", nil
		}
		if n := int(v); v == math.Trunc(v) && 0 < n && n <= 64 { // those for real time have no name
			return cmp.Or(unix.SignalName(syscall.Signal(n)), "SIG"+strconv.Itoa(n)), nil
		}
	case string:
		if v == "" || v == "0" {
			return "", nil
		}
		v = strings.TrimPrefix(v, "SIG")
		if n, err := strconv.Atoi(v); err == nil {
			return signalOf(float64(n))
		}
		name := "SIG" + v
		if unix.SignalNum(name) != 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("%.40v is no signal", v)
}

// timeOf is a time: as in RFC 3339, or seconds since 1970.
func timeOf(v any) (time.Time, error) {
	switch v := v.(type) {
	case nil:
		return time.Time{}, nil
	case float64:
		return secondsOf(v)
	case string:
		if v == "" {
			return time.Time{}, nil
		}
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return secondsOf(s)
		}
		if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return bounded(t)
		}
	}
	return time.Time{}, fmt.Errorf("%.40v is no time", v)
}

func secondsOf(s float64) (time.Time, error) {
	if !(s >= 0 && s < 1<<33) {
		return time.Time{}, fmt.Errorf("%.40v is no time", s)
	}
	return bounded(time.UnixMilli(int64(s * 1000)))
}

func bounded(t time.Time) (time.Time, error) {
	if t.Unix() < 0 || t.Year() > 2241 {
		return time.Time{}, fmt.Errorf("%v is no time of a job", t)
	}
	return t.UTC(), nil
}

// clean is a text of others, fit to be kept and shown.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return s[:min(len(s), 300)]
}
