package spool

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// An Addition is jobs that are to be added to a batch. Their lines and their inputs
// are on the disk, behind those of the batch, where they mean nothing before
// [Addition.Added]. No other is made meanwhile, and no blob that they read is collected: it
// has to be ended, after the commit of what Added returns.
type Addition struct {
	Batch *Batch
	Jobs  int // that the batch had not
	Had   int // that it had already

	names *index
	ended bool
	kept  *kept
	held  []key // blobs that are not collected meanwhile
}

// Add makes an Addition of the submission: the jobs that b, which its owner has
// submitted, has not. What the jobs have in common must be what those of b have; a job that b
// has by its name must be the same. The errors are those of Finish, but for ErrTaken
// and ErrSame. The submission is over in any case. It reads all jobs of b, some
// 0.3 s for 100,000, and may be called by any goroutine.
func (s *Submission) Add(b *Batch) (a *Addition, err error) {
	defer func() {
		s.full = errors.Is(err, ErrFull)
		if err = errors.Join(err, s.Abort()); err != nil && a != nil {
			a.End()
			a = nil
		}
	}()
	if err := s.complete(); err != nil {
		return nil, err
	}
	if err := s.like(b); err != nil {
		return nil, err
	}
	if err := s.nameArrivals(); err != nil {
		return nil, err
	}
	if err := s.syncBlobs(); err != nil {
		return nil, err
	}
	b.adding <- struct{}{}
	w := &adder{s: s, b: b, at: map[key]int64{}, names: b.index().first(b.Jobs())}
	if err := w.add(); err != nil {
		<-b.adding
		return nil, err
	}
	a = &Addition{Batch: b, Jobs: w.names.len() - b.Jobs(), Had: w.had, names: w.names, kept: s.head.kept, held: s.held}
	s.held = nil
	return a, nil
}

// Scan calls f for each of its jobs, numbered from 0, as [Batch.Scan] does.
func (a *Addition) Scan(f func(i int, j *Brief) error) error {
	return a.Batch.scan(a.Batch.index().end, a.names.end, f)
}

// Needs is which of all jobs of the batch, with these, need which, as [Batch.Needs] has
// it.
func (a *Addition) Needs() (*job.Needs, error) {
	n, wrong, err := needsIn(a.Batch.lines, a.names.end)
	if len(wrong) > 0 {
		err = job.NeedErrors(wrong)
	}
	return n, err
}

// End ends the Addition. After the first time it does nothing.
func (a *Addition) End() {
	if !a.ended {
		a.ended = true
		a.kept.release(a.held...)
		<-a.Batch.adding
	}
}

// Added has the batch have the jobs, and returns the record that says so, which has to
// be appended behind what was decided before and in front of what is said of these jobs.
func (a *Addition) Added() job.Record {
	a.Batch.names.Store(a.names)
	return job.Record{Kind: job.KindAdded, Jobs: a.Jobs}
}

// like makes sure that the jobs have in common what those of the batch have.
func (s *Submission) like(b *Batch) error {
	spec := *s.spec
	if spec.StopShare > 0 && spec.StopShare == b.Head.Spec.StopShare {
		spec.StopAfter = b.Head.Spec.StopAfter // which follows from the number of jobs
	}
	mine, its := appendSpec(nil, &spec), appendSpec(nil, &b.Head.Spec)
	if bytes.Equal(mine, its) {
		return nil
	}
	var m, i map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(mine, &m), json.Unmarshal(its, &i)); err != nil {
		return err
	}
	var differ []string
	for name := range m {
		if !bytes.Equal(m[name], i[name]) {
			differ = append(differ, name)
		}
	}
	for name := range i {
		if _, ok := m[name]; !ok {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return fmt.Errorf("%w: what all jobs of %q have in common is other: %s (say the same of these, or make another batch of them)", ErrInput, b.ID, strings.Join(differ, ", "))
}

// An adder adds jobs to a batch.
type adder struct {
	s     *Submission
	b     *Batch
	names *index
	had   int
	needs bool
	lines []byte

	requests job.Requests // of the jobs of the batch, and of these

	at    map[key]int64 // where small inputs lie in files.tar of the batch
	end   int64         // behind the last of them
	moves []move
}

// A move is that of a small input into files.tar of the batch.
type move struct{ from, to, size int64 }

func (w *adder) add() error {
	if err := w.look(); err != nil {
		return err
	}
	if err := eachLine(w.s.lines, w.s.index.end, w.line); err != nil || len(w.lines) == 0 {
		return err
	}
	if err := w.copyInputs(); err != nil {
		return err
	}
	return w.write()
}

// look finds the small inputs of the batch.
func (w *adder) look() error {
	spec := &w.b.Head.Spec
	w.knows(spec.Inputs)
	if spec.Image != nil {
		w.knows([]job.Input{*spec.Image})
	}
	var j job.Job
	return eachLine(w.b.lines, w.b.index().end, func(i int, _ int64, text []byte) error {
		if err := readJob(text, job.JobLine(), &j); err != nil {
			return w.b.lineProblem(i, err)
		}
		w.needs = w.needs || len(j.Needs) > 0
		w.knows(j.Inputs)
		w.requests.Add(spec, &j) // one of an earlier release may make too many
		return nil
	})
}

func (w *adder) knows(inputs []job.Input) {
	for i := range inputs {
		in := &inputs[i]
		var sum key
		if in.At == nil || !isSum(in.Sum) {
			continue
		}
		if _, err := hex.Decode(sum[:], []byte(in.Sum)); err == nil {
			w.at[sum] = *in.At
			w.end = max(w.end, *in.At+blocks(in.Size))
		}
	}
}

// blocks is how many bytes of a tar so many bytes take.
func blocks(n int64) int64 { return (n + tarBlock - 1) / tarBlock * tarBlock }

// line takes a job of the submission.
func (w *adder) line(i int, _ int64, text []byte) error {
	var j job.Job
	if err := readJob(text, job.JobLine(), &j); err != nil {
		return err
	}
	if k, there := w.b.index().number(j.Name); there {
		old, err := w.b.Job(k)
		if err != nil {
			return err
		}
		if !bytes.Equal(appendContent(nil, &old), appendContent(nil, &j)) {
			return fmt.Errorf("%w: the batch has a job %.100q, which is another (give this one another name)", ErrInput, j.Name)
		}
		w.had++
		return nil
	}
	if w.names.len() >= MaxJobs {
		return fmt.Errorf("%w: with these the batch has more than %d jobs, which is the limit", ErrInput, MaxJobs)
	}
	if err := w.requests.Add(w.s.spec, &j); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	w.needs = w.needs || len(j.Needs) > 0
	w.place(j.Inputs)
	from := len(w.lines)
	w.lines = appendJobLine(w.lines, &j)
	switch n := len(w.lines) - from; {
	case n > MaxLine:
		return fmt.Errorf("%w: job %.100q is %d bytes long, and %d is the limit", ErrInput, j.Name, n, MaxLine)
	case w.names.end+int64(n) > MaxText:
		return fmt.Errorf("%w: with these the jobs of the batch are more than %d bytes long, which is the limit", ErrInput, int64(MaxText))
	case !w.names.add([]byte(j.Name), n):
		return fmt.Errorf("%w: two jobs are named %.100q", ErrInput, j.Name)
	}
	return nil
}

// place says where in the batch small inputs lie, or will.
func (w *adder) place(inputs []job.Input) {
	for i := range inputs {
		in := &inputs[i]
		if in.At == nil {
			continue
		}
		var sum key
		hex.Decode(sum[:], []byte(in.Sum)) // which was checked
		to, there := w.at[sum]
		if !there {
			to = w.end + tarBlock
			w.end = to + blocks(in.Size)
			w.at[sum] = to
			w.moves = append(w.moves, move{*in.At, to, in.Size})
		}
		in.At = &to
	}
}

// copyInputs copies the small inputs that the batch has not behind those that it has.
func (w *adder) copyInputs() (err error) {
	if len(w.moves) == 0 {
		return nil
	}
	if err := durable.Step("add.files"); err != nil {
		return err
	}
	name := filepath.Join(w.b.dir, "files.tar")
	made := errors.Is(exists(name), fs.ErrNotExist)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o640)
	if err != nil {
		return ofBatch(err)
	}
	defer func() { err = errors.Join(err, ofBatch(f.Close())) }()
	for _, m := range w.moves {
		from := io.NewSectionReader(w.s.tar, m.from-tarBlock, tarBlock+blocks(m.size))
		if _, err := io.Copy(io.NewOffsetWriter(f, m.to-tarBlock), from); err != nil {
			return ofBatch(err)
		}
	}
	if err := f.Truncate(w.end); err != nil {
		return ofBatch(err)
	}
	if err := f.Truncate(w.end + 2*tarBlock); err != nil {
		return ofBatch(err)
	}
	if err := durable.Sync(f); err != nil {
		return ofBatch(err)
	}
	if made {
		return syncDirs([]string{w.b.dir})
	}
	return nil
}

// write writes the lines of the jobs behind those of the batch.
func (w *adder) write() (err error) {
	if err := durable.Step("add.jobs"); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(w.b.dir, "jobs.jsonl"), os.O_RDWR, 0)
	if err != nil {
		return ofBatch(err)
	}
	defer func() { err = errors.Join(err, ofBatch(f.Close())) }()
	at := w.b.index().end
	if err := f.Truncate(at); err != nil { // of what came to nothing
		return ofBatch(err)
	}
	if _, err := f.WriteAt(w.lines, at); err != nil {
		return ofBatch(errors.Join(err, f.Truncate(at)))
	}
	if w.needs {
		if _, wrong, err := needsIn(f, w.names.end); err != nil {
			return ofBatch(err)
		} else if len(wrong) > 0 {
			return fmt.Errorf("%w: %w", ErrInput, job.NeedErrors(wrong))
		}
	}
	if err := durable.Step("add.sync"); err != nil {
		return err
	}
	return ofBatch(durable.Sync(f))
}

// ofBatch is classed of an error in the files of a batch that should be there.
func ofBatch(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return classed(err)
}
