package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// An Info is what the first line of a batch's log tells, and whether the batch
// is open.
type Info struct {
	ID        job.BatchID
	Submitted time.Time
	Head      job.Head
	First     uint64 // the seq of the log's first line: another batch of that name has another
	Open      bool   // as head.jsonl lists it: some job may not be over
}

// Batches lists the batches whose ids match says yes to (nil: all), in the
// order of their names. What is damaged is told of by a Problem, and so is what
// may not be read; namespaces that may not be listed are passed over. It reads
// head.jsonl and the first line of each log.
func (s *Spool) Batches(match func(job.BatchID) bool) ([]Info, []*Problem, error) {
	return s.batches(match, func(Doomed) bool { return false })
}

// batches is Batches, where a batch of which head.jsonl says that it is deleted
// is still there if going says so.
func (s *Spool) batches(match func(job.BatchID) bool, going func(Doomed) bool) ([]Info, []*Problem, error) {
	ids, err := s.batchIDs()
	if err != nil && (ids == nil || !errors.Is(err, fs.ErrPermission)) {
		return nil, nil, err
	}
	if match != nil {
		ids = slices.DeleteFunc(ids, func(id job.BatchID) bool { return !match(id) })
	}
	return s.infos(ids, going)
}

// infos is batches of these ids.
func (s *Spool) infos(ids []job.BatchID, going func(Doomed) bool) ([]Info, []*Problem, error) {
	listed, err := s.listing()
	if err != nil {
		return nil, nil, err
	}
	var found []Info
	var problems []*Problem
	for _, id := range ids {
		b, err := s.firstRecord(id)
		var bad *Problem
		switch {
		case errors.As(err, &bad) && errors.Is(exists(s.batchDir(id)), fs.ErrNotExist):
			// deleted meanwhile
		case errors.As(err, &bad):
			problems = append(problems, bad)
		case errors.Is(err, fs.ErrPermission):
			problems = append(problems, &Problem{Batch: id, File: batchFile(id, ""), Closed: true, Why: "it may not be read"})
		case err != nil:
			return found, problems, err
		case listed[id].of(b.seq) != job.KindDeleted:
			found = append(found, Info{ID: id, Submitted: b.Submitted, Head: b.Head, First: b.seq, Open: listed[id].kind != job.KindClosed})
		case going(Doomed{id, b.seq}):
			found = append(found, Info{ID: id, Submitted: b.Submitted, Head: b.Head, First: b.seq})
		}
	}
	return found, problems, nil
}

// Read folds a batch into rows and calls f for each, in the order of the file.
// The row is valid during the call. Only the first upto bytes of the log count,
// which a dsched gives as Batch.Durable; with -1 all of it does. An unfinished
// last line is ignored: it is being written. Damage is a *Problem; of a batch that is
// deleted meanwhile the error is [fs.ErrNotExist]. A million
// jobs with two million records take a second and a half on two processors and,
// when all of them have run, 200 MB while it lasts.
func (s *Spool) Read(id job.BatchID, upto int64, f func(*job.Row) error) error {
	return s.read(id, upto, nil, f)
}

// ReadAttempts is Read with the attempts that jobs went on without: 160 bytes for each.
func (s *Spool) ReadAttempts(id job.BatchID, upto int64, f func(*job.Row) error) error {
	return s.read(id, upto, map[int][]packed{}, f)
}

func (s *Spool) read(id job.BatchID, upto int64, old map[int][]packed, f func(*job.Row) error) error {
	return s.unlessDeleted(id, s.readAll(id, upto, old, f))
}

// unlessDeleted returns err of reading a batch, or fs.ErrNotExist if that is damage as the batch
// was deleted meanwhile.
func (s *Spool) unlessDeleted(id job.BatchID, err error) error {
	var bad *Problem
	if errors.As(err, &bad) && errors.Is(exists(s.batchDir(id)), fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", id, fs.ErrNotExist)
	}
	return err
}

func (s *Spool) readAll(id job.BatchID, upto int64, old map[int][]packed, f func(*job.Row) error) error {
	b, err := s.Jobs(id)
	if err != nil {
		return err
	}
	rows, err := s.foldRows(b, upto, old)
	if err == nil {
		err = b.rows(rows, f)
	}
	return errors.Join(err, b.Close())
}

// Jobs opens a batch for what its jobs are and what they read, and for nothing else.
// Its Close is for the caller to call. A million jobs take some 0.3 s.
func (s *Spool) Jobs(id job.BatchID) (*Batch, error) {
	b, err := s.firstRecord(id)
	if err != nil {
		return nil, err
	}
	l := loader{Batch: b, report: stop, about: &b.Head, jobs: b.Head.Jobs}
	if err := l.readJobs(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// foldRows folds the log into rows.
func (s *Spool) foldRows(b *Batch, upto int64, old map[int][]packed) (*rows, error) {
	all := newRows(b.Jobs(), b.Submitted)
	all.old = old
	all.jobs, all.known = b.Head.Jobs, []known{{0, b.seq}}
	started := -1
	var err error
	all.upto, err = s.events(b, 0, upto, func(l *logReader, rec *job.Record) error {
		if rec.Kind == job.KindBatch {
			return nil
		}
		if rec.Kind == job.KindAdded {
			if rec.Jobs < 1 {
				return l.problem("it adds no job")
			}
			all.known = append(all.known, known{all.jobs, rec.Seq})
			return all.grow(b, rec.Jobs)
		}
		if rec.Job == "" && rec.Kind.Whole() {
			if rec.Kind == job.KindSet {
				all.set(rec.Set)
			}
			for i := range all.jobs {
				if _, there := all.at(i); rec.Kind == job.KindSet && !there {
					continue // it was not started
				}
				if err := all.fold(i, rec); err != nil {
					return l.problem(err.Error())
				}
			}
			return nil
		}
		i, ok := b.index().near(rec.Job, started)
		if !ok || i >= all.jobs {
			return l.problem(fmt.Sprintf("there is no job %.100q", rec.Job))
		}
		if rec.Kind == job.KindStart {
			started = i
		}
		if err := all.fold(i, rec); err != nil {
			return l.problem(err.Error())
		}
		return nil
	})
	return all, err
}

// grow takes in that the batch has so many jobs more. Their lines may be younger
// than the index.
func (r *rows) grow(b *Batch, more int) error {
	r.jobs += more
	if r.jobs > b.Jobs() {
		l := loader{Batch: b, report: stop, about: &b.Head, jobs: r.jobs, counted: true}
		if err := l.indexLines(); err != nil {
			return err
		}
		if b.Jobs() < r.jobs {
			return b.fewLines(r.jobs)
		}
	}
	r.of = append(r.of, make([]uint32, max(0, b.Jobs()-len(r.of)))...)
	return nil
}

// set takes in what is asked for of the batch.
func (r *rows) set(s *job.Set) {
	if s != nil && s.Priority != nil {
		priority := *s.Priority
		r.priority = &priority
	}
}

// fold takes a record into the row of job i.
func (r *rows) fold(i int, rec *job.Record) error {
	row := job.Row{Submitted: r.submitted}
	p, ok := r.at(i)
	if ok {
		r.unpack(p, &row)
	}
	if r.old != nil {
		r.noteSuperseded(i, rec, &row)
	}
	if err := row.Fold(rec); err != nil {
		return err
	}
	if !ok {
		if row.Seq == 0 {
			return nil // the record, of the whole batch, does not move it
		}
		p = r.make(i)
	}
	r.pack(p, &row)
	return nil
}

// noteSuperseded notes what a record says of attempts that job i, which has that row, goes on
// without.
func (r *rows) noteSuperseded(i int, rec *job.Record, row *job.Row) {
	all := r.old[i]
	if rec.Kind == job.KindAdopt { // an attempt runs on
		all = slices.DeleteFunc(all, func(p packed) bool { return r.text(&p.token) == string(rec.Attempt) })
	}
	for k := range all {
		var old job.Row
		r.unpack(&all[k], &old)
		old.Late(rec)
		r.pack(&all[k], &old)
	}
	old, ok := row.Superseded(rec)
	if ok && !slices.ContainsFunc(all, func(p packed) bool { return r.text(&p.token) == string(old.Token) }) {
		all = append(all, packed{})
		r.pack(&all[len(all)-1], &old)
	}
	if all != nil {
		r.old[i] = all
	}
}

// rows calls f for each row in the order of the file.
func (b *Batch) rows(all *rows, f func(*job.Row) error) error {
	var row job.Row
	return b.scan(0, b.index().upTo(all.jobs), func(i int, j *Brief) error {
		row = b.row(all, i, j)
		return f(&row)
	})
}

// row returns the row of job i.
func (b *Batch) row(all *rows, i int, j *Brief) job.Row {
	row := job.NewRow(b.ID, j.Name, &b.Head, b.Submitted)
	row.Param, row.Seq = j.Param, all.since(i)
	if all.priority != nil {
		row.Priority = *all.priority
	}
	row.Prefer(j.Priority)
	for _, old := range all.old[i] {
		was := row
		was.Old = nil
		all.unpack(&old, &was)
		row.Old = append(row.Old, was)
	}
	if p, ok := all.at(i); ok {
		all.unpack(p, &row)
	}
	return row
}

// Settle makes durable what a dsched that is no more had written to the log of
// a batch: what is told of it then stays true even if the power goes. Whoever
// may read the log may do so. It is for readers beside whom no dsched runs; one
// that runs tells only what is durable.
func (s *Spool) Settle(id job.BatchID) error {
	f, err := check.Open(filepath.Join(s.batchDir(id), "log.jsonl"))
	if err != nil {
		return err
	}
	return errors.Join(durable.Sync(f), f.Close())
}

// Events calls f for each whole record of a batch's log that starts at byte
// from or later, the first line included, and returns where the next one will
// start. It reads the first upto bytes, or all that is there if upto is
// negative. The record is valid during the call.
func (s *Spool) Events(id job.BatchID, from, upto int64, f func(*job.Record) error) (next int64, err error) {
	b := &Batch{ID: id, dir: s.batchDir(id)}
	return s.events(b, from, upto, func(_ *logReader, rec *job.Record) error { return f(rec) })
}

func (s *Spool) events(b *Batch, from, upto int64, f func(*logReader, *job.Record) error) (next int64, err error) {
	file, bad := b.openFile("log.jsonl")
	if bad != nil {
		return from, stop(bad)
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return from, err
	}
	if upto >= 0 {
		upto = max(0, upto-from)
	}
	l := newLogReader(file, upto, b.ID, batchFile(b.ID, "log.jsonl"))
	l.next = from
	err = l.each(f)
	return l.next, err
}
