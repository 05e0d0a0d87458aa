package spool

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
)

// A Batch is one batch, open for records. Its exported fields do not change.
// Its methods are safe for concurrent use. It keeps some twenty bytes a job and
// two descriptors open.
type Batch struct {
	ID        job.BatchID
	Head      job.Head
	Submitted time.Time

	seq   uint64 // of the log's first line
	bare  int64  // how long the log was when this program made it, and has only its first line; 0: it may have more
	dir   string
	lines *os.File // jobs.jsonl
	log   *durable.Log

	// Of the goroutine that owns the state.
	next    []byte // lines for the next tick
	closing bool
	named   bool // its name and those of its directories are durable, or will be before the next records are

	names  atomic.Pointer[index] // of its jobs, which become more by an Addition
	adding chan struct{}         // is full while jobs are added; no mutex, since that may wait long for the disk

	staged atomic.Bool  // something may have been in staging/ since that was last synced
	swept  atomic.Bool  // a tick that closes it has put something into trash/
	undone atomic.Bool  // a tick has lines of it that are not durable
	owed   atomic.Int64 // results that the log tells of and that are not yet durably in place
}

// Jobs is how many jobs it has.
func (b *Batch) Jobs() int { return b.index().len() }

func (b *Batch) index() *index { return b.names.Load() }

// A Brief is what scheduling needs of a job.
type Brief struct {
	Name          string
	Param         []string // its parameters, which the caller may keep
	Needs         []string // which the caller may keep
	Retries       int      // as the job asks, or else the batch
	Priority      int      // its own, besides that of the batch
	Capabilities  []string // of the job besides those of the batch
	job.Resources          // as the job asks, or else the batch
}

// Scan calls f for each job in the order of the file, with its number from 0.
// The Brief is valid during the call. A million jobs take some 0.3 s.
func (b *Batch) Scan(f func(i int, j *Brief) error) error { return b.scan(0, b.index().end, f) }

// scan is Scan for lines from one byte to another, numbered from 0.
func (b *Batch) scan(from, end int64, f func(i int, j *Brief) error) error {
	var j job.Job
	brief := Brief{}
	return eachLine(io.NewSectionReader(b.lines, from, end-from), end-from, func(i int, _ int64, text []byte) error {
		if err := readJob(text, briefLine(), &j); err != nil {
			return b.lineProblem(i, err)
		}
		brief = Brief{Name: j.Name, Param: j.Param, Needs: j.Needs, Capabilities: j.Capabilities, Retries: b.Head.Spec.Retries, Priority: j.Priority, Resources: b.Head.Spec.Resources}
		if j.Retries != nil {
			brief.Retries = *j.Retries
		}
		if j.Resources != nil {
			brief.Resources = *j.Resources
		}
		return f(i, &brief)
	})
}

// eachLine calls f for each line of the first size bytes of r, without its
// newline, with its number and place.
func eachLine(r io.ReaderAt, size int64, f func(i int, at int64, text []byte) error) error {
	lines := line.NewReader(bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 256<<10), MaxLine)
	at := int64(0)
	for i := 0; ; i++ {
		text, err := lines.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &Problem{Line: i + 1, Offset: at, Why: err.Error()}
		}
		if err := f(i, at, text); err != nil {
			return err
		}
		at += int64(len(text)) + 1
	}
}

func (b *Batch) lineProblem(i int, err error) *Problem {
	p := &Problem{Batch: b.ID, File: batchFile(b.ID, "jobs.jsonl"), Line: i + 1, Stops: true, Why: err.Error()}
	if i < b.index().len() {
		p.Offset, _ = b.index().line(i)
	}
	return p
}

// batchFile is a file of a batch, below the spool.
func batchFile(id job.BatchID, name string) string { return "batches/" + string(id) + "/" + name }

// JobLine is line i of jobs.jsonl, from 0, without its newline. Its checksum
// has been checked. Damage of the file, or of the disk below it, is a [*Problem].
func (b *Batch) JobLine(i int) ([]byte, error) {
	if i < 0 || i >= b.index().len() {
		return nil, fmt.Errorf("%s has no job number %d", b.ID, i)
	}
	at, n := b.index().line(i)
	text := make([]byte, n)
	switch _, err := b.lines.ReadAt(text, at); {
	case err == io.EOF:
		return nil, b.lineProblem(i, errors.New("the file ends before it"))
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, os.ErrClosed):
		return nil, err
	case err != nil: // the disk does not read this file
		return nil, b.lineProblem(i, err)
	}
	text = text[:n-1]
	if _, err := body(text); err != nil {
		return nil, b.lineProblem(i, err)
	}
	return text, nil
}

// Job reads job number i, from 0. It costs one read.
func (b *Batch) Job(i int) (job.Job, error) {
	var j job.Job
	text, err := b.JobLine(i)
	if err != nil {
		return j, err
	}
	if err := readJob(text, job.JobLine(), &j); err != nil {
		return j, b.lineProblem(i, err)
	}
	return j, nil
}

// Name reads the name of job number i.
func (b *Batch) Name(i int) (string, error) {
	text, err := b.JobLine(i)
	if err != nil {
		return "", err
	}
	var j job.Job
	if err := readJob(text, nameLine(), &j); err != nil {
		return "", b.lineProblem(i, err)
	}
	return j.Name, nil
}

// First is the seq of the first line of the log, as in [Info]: another batch of that name has
// another.
func (b *Batch) First() uint64 { return b.seq }

// Index finds the number of a job by its name. It finds none whose line cannot be read.
func (b *Batch) Index(name string) (int, bool) {
	i, ok, err := b.Find(name)
	return i, ok && err == nil
}

// Find is Index with an error if the line of the job cannot be read.
func (b *Batch) Find(name string) (i int, ok bool, err error) {
	i, ok = b.index().number(name)
	if !ok {
		return 0, false, nil
	}
	got, err := b.Name(i)
	return i, err == nil && got == name, err
}

// Durable is how many bytes of the batch's log are durable: what may be told.
func (b *Batch) Durable() int64 { return b.log.Size() }

// Unchanged says that nobody else has opened the batch and changed it since this Batch was
// made: its log is in its place, and as long as this Batch left it.
func (b *Batch) Unchanged() bool { return b.log.InPlace() }

// Replay calls f for each record of the log behind the first, in its order,
// with the number of its job, or -1 if it has none. The record is valid during
// the call. Three million take some 0.9 s.
func (b *Batch) Replay(f func(i int, rec *job.Record) error) error {
	if b.log.Written() == b.bare {
		return nil
	}
	file, err := check.Open(b.log.Path())
	if err != nil {
		return err
	}
	defer file.Close()
	l := newLogReader(file, b.log.Written(), b.ID, batchFile(b.ID, "log.jsonl"))
	return l.eachRecord(stop, func(rec *job.Record) error {
		if l.n == 1 {
			return nil
		}
		i := -1
		if rec.Job != "" {
			var ok bool
			if i, ok = b.index().number(rec.Job); !ok {
				return l.problem(fmt.Sprintf("there is no job %.100q", rec.Job))
			}
		}
		return f(i, rec)
	})
}

// OpenInput opens an input of the batch or of one of its jobs, and tells its
// size. What is read is not checked against its sum; who gets it does that.
func (b *Batch) OpenInput(in job.Input) (io.ReadSeekCloser, int64, error) {
	if in.At == nil {
		return openBlob(filepath.Dir(filepath.Dir(filepath.Dir(b.dir))), in)
	}
	f, err := check.Open(filepath.Join(b.dir, "files.tar"))
	if err != nil {
		return nil, 0, err
	}
	return &section{io.NewSectionReader(f, *in.At, in.Size), f}, in.Size, nil
}

// Lost reports whether an input is certainly not there, or not of its size: a job that needs
// it cannot run before somebody has mended the spool.
func (b *Batch) Lost(in job.Input) bool {
	name := filepath.Join(b.dir, "files.tar")
	if in.At == nil {
		if !isSum(in.Sum) {
			return true
		}
		name = blobFile(filepath.Dir(filepath.Dir(filepath.Dir(b.dir))), in.Sum)
	}
	info, err := os.Lstat(name)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return in.At == nil && (!info.Mode().IsRegular() || info.Size() != in.Size)
}

// blobFile is the file of a blob.
func blobFile(spool, sum string) string { return filepath.Join(spool, "blobs", sum[:2], sum) }

// section is a part of a file that closes the file.
type section struct {
	*io.SectionReader
	file *os.File
}

func (s *section) Close() error { return s.file.Close() }

func openBlob(spool string, in job.Input) (io.ReadSeekCloser, int64, error) {
	if !isSum(in.Sum) {
		return nil, 0, fmt.Errorf("%q is not the name of a blob", in.Sum)
	}
	f, err := check.Open(blobFile(spool, in.Sum))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != in.Size {
		err = fmt.Errorf("blob %s has %d bytes and should have %d", in.Sum, info.Size(), in.Size)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, in.Size, nil
}

func isSum(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if x := s[i]; (x < '0' || x > '9') && (x < 'a' || x > 'f') {
			return false
		}
	}
	return true
}

// Close closes the batch's files. What was appended and not committed is lost.
func (b *Batch) Close() error {
	var errs []error
	if b.log != nil {
		errs = append(errs, b.log.Close())
	}
	if b.lines != nil {
		errs = append(errs, b.lines.Close())
	}
	return errors.Join(errs...)
}
