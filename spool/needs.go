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
	var dec decoder
	err := eachLine(lines, size, func(i int, at int64, text []byte) error {
		object, err := body(text)
		if err != nil {
			return &Problem{Line: i + 1, Offset: at, Why: err.Error()}
		}
		var brief Brief
		name, _, ok := scanBrief(object, &brief)
		if ok {
			brief.Name = string(name)
		} else {
			var j job.Job
			if err := dec.jobBody(object, &j); err != nil {
				return &Problem{Line: i + 1, Offset: at, Why: err.Error()}
			}
			brief.Name, brief.Needs = j.Name, j.Needs
		}
		names, needs = append(names, brief.Name), append(needs, brief.Needs)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	n, wrong := job.ResolveNeeds(names, needs)
	return n, wrong, nil
}
