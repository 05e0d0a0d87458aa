package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// ErrOpen is of a batch that cannot be deleted: head.jsonl does not list it as
// closed, or another one has its name.
var ErrOpen = errors.New("it is not closed")

// list adds what is said of a batch to head.jsonl.
func (h *Head) list(rec *job.Record) {
	h.AppendHead(rec)
	h.listed[rec.Batch] = h.listed[rec.Batch].then(rec)
}

// A Doomed is a batch that is deleted and whose directory may still be there.
type Doomed struct {
	ID    job.BatchID
	First uint64 // as in its Info
}

// Closed says that head.jsonl lists the batch as closed, and not as deleted.
// It is for the goroutine that owns the state.
func (h *Head) Closed(id job.BatchID) bool { return h.listed[id].kind == job.KindClosed }

// Deleted says that head.jsonl lists the batch that has this name, or had it
// last, as deleted. Like Closed it is for the goroutine that owns the state.
func (h *Head) Deleted(id job.BatchID) bool {
	_, deleted := h.DeletedAt(id)
	return deleted
}

// DeletedAt is Deleted, and returns when the batch was deleted.
func (h *Head) DeletedAt(id job.BatchID) (at time.Time, deleted bool) {
	said := h.listed[id]
	if said.kind != job.KindDeleted {
		return at, false
	}
	b, err := h.firstRecord(id)
	return said.at, err != nil || b.seq == said.first
}

// Delete appends the record that a batch is deleted. When a Commit has made it
// durable the batch is deleted, whatever happens, and Trash has to follow. The
// batch, of which first is the First of its Info, must be closed ([ErrOpen]) and
// not be held by a Batch. by and request say who asked for it. Like Append it is
// for the goroutine that owns the state; it reads one line.
func (h *Head) Delete(id job.BatchID, first uint64, by string, request job.Token) (Doomed, error) {
	b, err := h.firstRecord(id)
	if err != nil {
		return Doomed{}, err
	}
	if !h.Closed(id) || b.seq != first {
		return Doomed{}, fmt.Errorf("%q: %w", id, ErrOpen)
	}
	h.list(&job.Record{Kind: job.KindDeleted, Batch: id, By: by, Request: request, First: b.seq})
	d := Doomed{id, b.seq}
	h.kept.mu.Lock()
	defer h.kept.mu.Unlock()
	h.kept.going[d] = true
	return d, nil
}

// Batches is [Spool.Batches] for who tells others of it. A batch counts as there
// until Trash has moved it: that it is deleted may not be durable before, and
// its name is not free.
func (h *Head) Batches(match func(job.BatchID) bool) ([]Info, []*Problem, error) {
	return h.batches(match, h.Going)
}

// Batch is Batches for one id, at a cost that does not grow with the number of batches.
func (h *Head) Batch(id job.BatchID) ([]Info, []*Problem, error) {
	for _, dir := range []string{filepath.Dir(h.batchDir(id)), h.batchDir(id)} {
		if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
			return nil, nil, nil
		}
	}
	return h.infos([]job.BatchID{id}, h.Going)
}

// Going says that a batch is deleted and not yet moved. It is safe for
// concurrent use.
func (h *Head) Going(d Doomed) bool {
	h.kept.mu.Lock()
	defer h.kept.mu.Unlock()
	return h.kept.going[d]
}

// Trash moves the directories of deleted batches into trash/, durably: then
// their names are free. One that was moved before, and another batch that has
// the name by now, is left alone. An error is [ErrFull], [ErrBroken], a
// [*Problem] or of a path; what is not moved, the next start moves. It is safe for concurrent
// use.
func (h *Head) Trash(doomed ...Doomed) error {
	dirs := []string{h.path("trash")}
	var places []string
	var errs []error
	for _, d := range doomed {
		to := h.path("trash", string(job.NewToken()))
		h.kept.fill(to) // nothing in it may be removed before its name is durable
		moved, err := h.trashOne(d, to)
		if errors.Is(err, ErrFull) && h.drop() {
			moved, err = h.trashOne(d, to)
		}
		if moved {
			dirs, places = append(dirs, h.path("batches", d.ID.Namespace())), append(places, to)
		} else {
			h.kept.filled(to)
		}
		if err == nil {
			h.gone(d)
		}
		errs = append(errs, err)
	}
	if len(places) == 0 {
		return errors.Join(errs...)
	}
	if err := durable.Step("delete.sync"); err != nil {
		return err
	}
	slices.Sort(dirs)
	if err := syncDirs(slices.Compact(dirs)); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, to := range places {
		h.kept.filled(to)
	}
	return errors.Join(errs...)
}

func (h *Head) gone(d Doomed) {
	h.kept.mu.Lock()
	defer h.kept.mu.Unlock()
	delete(h.kept.going, d)
}

func (h *Head) trashOne(d Doomed, to string) (moved bool, err error) {
	b, err := h.firstRecord(d.ID)
	if errors.Is(exists(h.batchDir(d.ID)), fs.ErrNotExist) || err == nil && b.seq != d.First {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	space, err := openDir(filepath.Dir(h.batchDir(d.ID))) // else the removal of its name could not be synced
	if err != nil {
		return false, classed(err)
	}
	defer space.Close()
	if err := durable.Step("delete.rename"); err != nil {
		return false, full(err)
	}
	err = publishAnew(h.batchDir(d.ID), to, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, classed(err)
	}
	return true, nil
}

// finishDeleted moves the batches among ids that head.jsonl lists as deleted
// into trash/, and returns the others.
func (h *Head) finishDeleted(ids []job.BatchID) (others []job.BatchID, err error) {
	var doomed []Doomed
	for _, id := range ids {
		if said := h.listed[id]; said.kind == job.KindDeleted {
			b, err := h.firstRecord(id)
			if err == nil && b.seq == said.first {
				doomed = append(doomed, Doomed{id, said.first})
				continue
			}
		}
		others = append(others, id)
	}
	return others, h.Trash(doomed...)
}

// deleted says that head.jsonl lists the batch b, which is still there, as
// deleted.
func (s *Spool) deleted(b *Batch) (bool, error) {
	listed, err := s.listing()
	return listed[b.ID].of(b.seq) == job.KindDeleted, err
}

// going is deleted, of the batch that has a name.
func (s *Spool) going(id job.BatchID) (bool, error) {
	b, err := s.firstRecord(id)
	var bad *Problem
	if errors.As(err, &bad) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.deleted(b)
}

// EmptyTrash removes what is in trash/, until ctx ends. It takes as long as it
// takes, and is safe for concurrent use with everything else.
func (h *Head) EmptyTrash(ctx context.Context) error {
	list, err := os.ReadDir(h.path("trash"))
	if err != nil {
		return gone(err)
	}
	var errs []error
	for _, e := range list {
		if name := h.path("trash", e.Name()); !h.kept.fills(name) {
			errs = append(errs, removeTree(ctx, name, e.IsDir()))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a file or a directory with all that is in it, also what
// its modes protect from its owner. It stops between two files when ctx ends.
func removeTree(ctx context.Context, name string, dir bool) error {
	top, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return gone(err)
	}
	defer top.Close()
	remove := func(in *os.Root, name string, dir bool) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := durable.Step("delete.remove"); err != nil {
			return err
		}
		if dir {
			return gone(in.Chmod(name, 0o700)) // its content is first
		}
		return gone(in.Remove(name))
	}
	base := filepath.Base(name)
	if err := remove(top, base, dir); err != nil || !dir {
		return err
	}
	root, err := top.OpenRoot(base + "/.")
	if err != nil {
		return gone(err)
	}
	defer root.Close()
	err = durable.Walk(root, func(e durable.Entry, err error) error {
		if err != nil || e.Path == "." {
			return gone(err)
		}
		return remove(e.Dir, e.Name, e.Info.IsDir())
	}, func(e durable.Entry) error {
		return gone(e.Dir.Remove(e.Name))
	})
	if err != nil {
		return err
	}
	return gone(top.Remove(base))
}

// eachBelow calls f for a directory and all that lies below it. What is removed meanwhile,
// or the directory itself if there is none, is passed over.
func eachBelow(dir string, f func(durable.Entry) error) error {
	top, err := os.OpenRoot(dir)
	if err != nil {
		return gone(err)
	}
	defer top.Close()
	return durable.Walk(top, func(e durable.Entry, err error) error {
		if err != nil {
			return gone(err)
		}
		return f(e)
	}, nil)
}

// gone is err, where that a file is not there is as good as its removal.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Weight is how many bytes of the disk the files of a batch take. It looks at
// each.
func (s *Spool) Weight(ctx context.Context, id job.BatchID) (bytes int64, err error) {
	err = eachBelow(s.batchDir(id), func(e durable.Entry) error {
		bytes += e.Takes()
		return ctx.Err()
	})
	return bytes, err
}
