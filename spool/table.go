package spool

import (
	"errors"
	"os"
	"path/filepath"

	"distribute/lib/job"
)

// A Table has the rows of one batch in memory, as its log was up to a byte. It takes some 20 bytes
// a job and some 200 for each that has run, and has no file open. It does not change, and is safe
// for concurrent use.
type Table struct {
	batch *Batch // whose files are closed
	rows  *rows
}

// ReadTable reads the first upto bytes of a batch's log, or all with -1, as [Spool.ReadAttempts]
// does, with the same errors.
func (s *Spool) ReadTable(id job.BatchID, upto int64) (*Table, error) {
	t, err := s.readTable(id, upto)
	return t, s.unlessDeleted(id, err)
}

func (s *Spool) readTable(id job.BatchID, upto int64) (*Table, error) {
	b, err := s.Jobs(id)
	if err != nil {
		return nil, err
	}
	rows, err := s.foldRows(b, upto, map[int][]packed{})
	if err = errors.Join(err, b.Close()); err != nil {
		return nil, err
	}
	return &Table{b, rows}, nil
}

// LogSize returns how many bytes the log of a batch has.
func (s *Spool) LogSize(id job.BatchID) (int64, error) {
	info, err := os.Stat(filepath.Join(s.batchDir(id), "log.jsonl"))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Of reports whether the table is of this batch, and not of another one of the same name.
func (t *Table) Of(i *Info) bool {
	b := t.batch
	return b.ID == i.ID && b.seq == i.First && b.Head.UID == i.Head.UID && b.Submitted.Equal(i.Submitted)
}

// Upto returns up to which byte the log was read: where its last whole line ended.
func (t *Table) Upto() int64 { return t.rows.upto }

// Row returns the row of a job, without its parameters and the priority of its own, and the job's
// number from 0. It returns false if the batch has no such job.
func (t *Table) Row(name string) (row *job.Row, number int, ok bool) {
	i, ok := t.batch.index().number(name)
	if !ok || i >= t.rows.jobs {
		return nil, 0, false
	}
	r := t.batch.row(t.rows, i, &Brief{Name: name})
	return &r, i, true
}
