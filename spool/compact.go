package spool

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"

	"distribute/lib/durable"
	"distribute/lib/job"
)

const (
	compactFrom = 1 << 20 // bytes of head.jsonl below which it stays as it is
	keptDeleted = 1000    // deletions that it tells of when it was compacted
)

// compact replaces head.jsonl by the records of it that still decide something, if it is
// large and most of it does not. Load calls it when all directories of deleted batches are
// in trash/, but those in there: the log of such a batch cannot be read. Where there is no
// room, the file stays as it is.
func (h *Head) compact(there map[job.BatchID]bool) error {
	name := h.path("head.jsonl")
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < compactFrom {
		return err
	}
	text, err := compacted(f, there)
	if err != nil || int64(len(text)) > info.Size()/2 {
		return err
	}
	if err := durable.Step("compact.sync"); err != nil {
		return err
	}
	// A process that was killed may have moved batches into trash/ and not have synced that.
	// Without the records of their deletion, a power cut must not put them back.
	if err := durable.SyncFS(h.dir); err != nil {
		return classed(err)
	}
	if err := errors.Join(durable.Step("compact.replace"), h.log.Close()); err != nil {
		return err
	}
	err = durable.WriteFile(name, text, 0o640)
	if err != nil && !errors.Is(full(err), ErrFull) {
		return classed(err)
	}
	if h.log, err = durable.OpenLog(name, 0o640); err != nil {
		return err
	}
	return h.refold()
}

// refold folds head.jsonl again, after it was replaced.
func (h *Head) refold() error {
	f, err := os.Open(h.path("head.jsonl"))
	if err != nil {
		return err
	}
	h.headLog = newHeadLog()
	err = h.readHeadLog(newLogReader(f, -1, "", "head.jsonl"), func(p *Problem) error { return p })
	return errors.Join(err, f.Close())
}

// compacted returns the records of a head.jsonl without damage that decide something: what
// is folded from them is what is folded from all, but for old deletions of batches of which
// there has no directory.
func compacted(f io.Reader, there map[job.BatchID]bool) ([]byte, error) {
	type batch struct{ closed, last *job.Record } // closed: before an opened
	batches := map[job.BatchID]batch{}
	nodes, drained := map[string]*job.Record{}, map[string]*job.Record{}
	var deleted, keep []*job.Record
	var last *job.Record
	err := newLogReader(f, -1, "", "head.jsonl").eachRecord(func(p *Problem) error { return p }, func(r *job.Record) error {
		rec := *r
		last = &rec
		b := batches[rec.Batch]
		switch rec.Kind {
		case job.KindOpened:
			if b.last != nil && b.last.Kind == job.KindClosed {
				b.closed = b.last
			}
			batches[rec.Batch] = batch{b.closed, &rec}
		case job.KindClosed:
			batches[rec.Batch] = batch{nil, &rec}
		case job.KindDeleted:
			if delete(batches, rec.Batch); there[rec.Batch] {
				batches[rec.Batch] = batch{nil, &rec}
			}
			deleted = append(deleted[max(0, len(deleted)+1-keptDeleted):], &rec)
		case job.KindNode:
			if was := nodes[rec.Node]; was == nil || was.State != rec.State {
				nodes[rec.Node] = &rec
			}
		case job.KindDrained:
			drained[rec.Node] = &rec
		case job.KindResumed:
			delete(drained, rec.Node)
		}
		return nil
	})
	if err != nil || last == nil {
		return nil, err
	}
	keep = append(append(keep, last), deleted...)
	for _, b := range batches {
		if keep = append(keep, b.last); b.closed != nil {
			keep = append(keep, b.closed)
		}
	}
	for _, of := range []map[string]*job.Record{nodes, drained} {
		for _, r := range of {
			keep = append(keep, r)
		}
	}
	slices.SortFunc(keep, func(a, b *job.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	var text []byte
	for i, r := range keep {
		if i == 0 || r != keep[i-1] {
			text = appendRecord(text, r)
		}
	}
	return text, nil
}
