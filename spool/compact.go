package spool

import (
	"cmp"
	"errors"
	"fmt"
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

// A Compaction is a smaller head.jsonl beside the one in use.
type Compaction struct {
	log    *durable.Log
	upto   int64                  // bytes of the one in use that it stands for
	forgot map[job.BatchID]uint64 // the deletions that it does not tell of: First of the batches
	err    error                  // why it was not put in place
}

// Grown returns how many bytes of head.jsonl Compact is to look at: 0 if it is small, or was
// found to need half of them. It is for the goroutine that owns the state, while no Tick is
// committed and no Compact runs.
func (h *Head) Grown() (upto int64) {
	if size := h.log.Size(); size >= h.compactAt {
		return size
	}
	return 0
}

// Compact writes the records of the first upto bytes of head.jsonl that still decide
// something to a new file, for UseCompacted. It returns nil if they are more than half of it.
// It changes nothing else, and is safe for concurrent use with everything but Grown and itself.
func (h *Head) Compact(upto int64) (*Compaction, error) {
	c, err := h.compact(upto)
	if c == nil {
		h.compactAt = max(2*upto, compactFrom)
	}
	return c, err
}

// UseCompacted has the next Tick put c in the place of head.jsonl; Compacted follows its
// Commit. Both are for the goroutine that owns the state.
func (h *Head) UseCompacted(c *Compaction) { h.compacted = c }

// Compacted forgets the deletions of which head.jsonl does not tell any more. It returns an
// error if c was not put in place, and head.jsonl is as it was.
func (h *Head) Compacted(c *Compaction) error {
	if c.err != nil {
		h.compactAt = 2 * h.log.Size()
		return c.err
	}
	for id, first := range c.forgot {
		if said := h.listed[id]; said.kind == job.KindDeleted && said.first == first {
			delete(h.listed, id)
		}
	}
	return nil
}

// Drop removes a Compaction that is not used.
func (c *Compaction) Drop() error {
	return errors.Join(gone(os.Remove(c.log.Path())), c.log.Close())
}

func (h *Head) compact(upto int64) (*Compaction, error) {
	f, err := os.Open(h.path("head.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ids, err := h.batchIDs()
	if err != nil {
		return nil, err
	}
	// Batches that are not there were moved into trash/, perhaps by a process that was killed
	// and has not synced that. Without the records of their deletion, a power cut must not put
	// them back.
	if err := h.syncNamespaces(); err != nil {
		return nil, err
	}
	c := &Compaction{upto: upto}
	text, err := c.fold(f, ids)
	if err != nil || int64(len(text)) > upto/2 {
		return nil, err
	}
	name := h.path(compactedName)
	if err := removeStep("compact.write", name); err != nil {
		return nil, err
	}
	if c.log, err = durable.OpenLog(name, 0o640); err != nil {
		return nil, err
	}
	c.log.Append(text)
	if err := errors.Join(c.log.Flush(), c.log.Sync()); err != nil {
		return nil, errors.Join(err, c.Drop())
	}
	return c, nil
}

// compactedName is the name of a Compaction, as of what is written and not yet in place.
const compactedName = ".head.jsonl.compacted.tmp~"

// syncNamespaces makes durable which batches are in batches/ and which in trash/.
func (h *Head) syncNamespaces() error {
	if err := durable.Step("compact.sync"); err != nil {
		return err
	}
	list, err := os.ReadDir(h.path("batches"))
	if err != nil {
		return err
	}
	dirs := []string{h.path("batches"), h.path("trash")}
	for _, e := range list {
		if e.IsDir() {
			dirs = append(dirs, h.path("batches", e.Name()))
		}
	}
	return syncPresent(dirs)
}

// useCompacted puts what UseCompacted was given in the place of head.jsonl, all of which is
// durable. An error is ErrBroken: the power may yet put the old file back, without what is
// appended now. If anything fails before that, the old file stays in use.
func (t *Tick) useCompacted() error {
	h, c := t.head, t.compacted
	if t.compacted = nil; c == nil {
		return nil
	}
	name := h.path("head.jsonl")
	if c.err = h.addTail(c); c.err == nil {
		c.err = renameStep("compact.rename", c.log.Path(), name)
	}
	if c.err != nil {
		c.err = errors.Join(c.err, c.Drop())
		return nil
	}
	c.log.Moved(name)
	old := h.log
	h.log = c.log
	old.Close() // all of it is durable
	err := durable.Step("compact.syncdir")
	if err == nil {
		err = durable.SyncDir(h.dir)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

func renameStep(step, from, to string) error {
	if err := durable.Step(step); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// addTail adds what has come to head.jsonl since c was written.
func (h *Head) addTail(c *Compaction) error {
	tail := make([]byte, h.log.Size()-c.upto)
	f, err := os.Open(h.path("head.jsonl"))
	if err != nil {
		return err
	}
	_, err = f.ReadAt(tail, c.upto)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := durable.Step("compact.tail"); err != nil {
		return err
	}
	c.log.Append(tail)
	return errors.Join(c.log.Flush(), c.log.Sync())
}

// A headLine is a line of head.jsonl that decides something.
type headLine struct {
	from, to int64
	kind     job.Kind
	state    string // of a node
}

// fold returns the lines of the first bytes of a head.jsonl that decide something: what is
// folded from them is what is folded from all, but for old deletions of batches other than
// ids. A damaged line is an error.
func (c *Compaction) fold(f *os.File, ids []job.BatchID) ([]byte, error) {
	there := make(map[job.BatchID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	type batch struct{ closed, last *headLine } // closed: before an opened
	batches := map[job.BatchID]batch{}
	nodes, newest, drained := map[string]*headLine{}, map[string]*headLine{}, map[string]*headLine{}
	var deleted, keep []*headLine
	var last *headLine
	c.forgot = map[job.BatchID]uint64{}
	names := make([]job.BatchID, 0, keptDeleted)
	l := newLogReader(io.NewSectionReader(f, 0, c.upto), -1, "", "head.jsonl")
	err := l.eachRecord(func(p *Problem) error { return p }, func(rec *job.Record) error {
		r := &headLine{from: l.at, to: l.next, kind: rec.Kind, state: rec.State}
		last = r
		b := batches[rec.Batch]
		switch rec.Kind {
		case job.KindOpened:
			if b.last != nil && b.last.kind == job.KindClosed {
				b.closed = b.last
			}
			batches[rec.Batch] = batch{b.closed, r}
			delete(c.forgot, rec.Batch)
		case job.KindClosed:
			batches[rec.Batch] = batch{nil, r}
			delete(c.forgot, rec.Batch)
		case job.KindDeleted:
			delete(batches, rec.Batch)
			if c.forgot[rec.Batch] = rec.First; there[rec.Batch] {
				batches[rec.Batch] = batch{nil, r}
			}
			deleted = append(deleted[max(0, len(deleted)+1-keptDeleted):], r)
			names = append(names[max(0, len(names)+1-keptDeleted):], rec.Batch)
		case job.KindNode:
			if was := nodes[rec.Node]; was == nil || was.state != rec.State {
				nodes[rec.Node] = r
			}
			newest[rec.Node] = r
		case job.KindDrained:
			drained[rec.Node] = r
		case job.KindResumed:
			delete(drained, rec.Node)
		default:
			return l.problem(fmt.Sprintf("unknown kind of event %.40q", rec.Kind))
		}
		return nil
	})
	if err != nil || last == nil {
		return nil, err
	}
	keep = append(append(keep, last), deleted...)
	for id, b := range batches {
		delete(c.forgot, id)
		if keep = append(keep, b.last); b.closed != nil {
			keep = append(keep, b.closed)
		}
	}
	for _, id := range names {
		delete(c.forgot, id)
	}
	for _, of := range []map[string]*headLine{nodes, newest, drained} {
		for _, r := range of {
			keep = append(keep, r)
		}
	}
	slices.SortFunc(keep, func(a, b *headLine) int { return cmp.Compare(a.from, b.from) })
	return linesOf(f, slices.Compact(keep))
}

// linesOf reads lines of a file.
func linesOf(f *os.File, lines []*headLine) ([]byte, error) {
	var size int64
	for _, r := range lines {
		size += r.to - r.from
	}
	text := make([]byte, 0, size)
	for _, r := range lines {
		n := len(text)
		text = text[:n+int(r.to-r.from)]
		if _, err := f.ReadAt(text[n:], r.from); err != nil {
			return nil, err
		}
	}
	return text, nil
}
