package spool

import (
	"io"

	"distribute/lib/job"
)

// Needs is which of the batch's jobs need which others. It is nil if none does; a
// batch whose needs make no sense is damaged, which is a *Problem. It reads all
// lines.
func (b *Batch) Needs() (*job.Needs, error) {
	n, wrong, err := needsIn(b.lines, b.index().end)
	if len(wrong) > 0 {
		err = &Problem{Batch: b.ID, File: batchFile(b.ID, "jobs.jsonl"), Line: wrong[0].Job + 1, Stops: true, Why: wrong[0].Error()}
	}
	return n, err
}

// needsIn finds who needs whom in the lines of jobs, which have been checked.
func needsIn(lines io.ReaderAt, size int64) (*job.Needs, []*job.NeedError, error) {
	var names []string
	var needs [][]string
	var j job.Job
	err := eachLine(lines, size, func(i int, at int64, text []byte) error {
		if err := readJob(text, needsLine(), &j); err != nil {
			return &Problem{Line: i + 1, Offset: at, Why: err.Error()}
		}
		names, needs = append(names, j.Name), append(needs, j.Needs)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	n, wrong := job.ResolveNeeds(names, needs)
	return n, wrong, nil
}
