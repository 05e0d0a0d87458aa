package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// A leaver is an attempt that had to leave its node, of which less is kept than it
// has left.
type leaver struct {
	job.Less
	job string
}

func (l *leaver) name() string { return l.job + "~" + strconv.Itoa(l.Try) }

// Owe says that a record which was appended to b leaves less of an attempt, and
// that Shed follows: b is not closed before.
func (h *Head) Owe(b *Batch) { b.owed.Add(1) }

// Shed removes what an attempt has left of a job that had to leave its node, but
// for what it printed unless nothing is to be kept, after the record has been
// committed that says so: it goes to trash/. Doing it again changes nothing.
// [Head.SyncPublished] makes it durable. It says whether there is something in
// trash/ now. An error is [ErrFull], [ErrBroken] or of a path in the batch. It is safe for
// concurrent use.
func (h *Head) Shed(b *Batch, name string, try int, nothing bool) (bool, error) {
	l := leaver{job.Less{Leaver: job.Leaver{Try: try}, Nothing: nothing}, name}
	moved, err := h.shed(b, &l)
	if errors.Is(err, ErrFull) && h.drop() {
		moved, err = h.shed(b, &l)
	}
	return moved, err
}

func (h *Head) shed(b *Batch, l *leaver) (moved bool, err error) {
	attempts := filepath.Join(b.dir, "attempts")
	tree := filepath.Join(attempts, l.name())
	printed := filepath.Join(attempts, job.OutputName(l.name()))
	if err := durable.Step("shed.printed"); err != nil {
		return false, classed(err)
	}
	if l.Nothing {
		moved, err = h.toTrash(printed)
	} else {
		err = keepPrinted(filepath.Join(tree, job.OutputName(l.job)), printed)
	}
	if err != nil {
		return moved, classed(err)
	}
	if err := durable.Step("shed.tree"); err != nil {
		return moved, classed(err)
	}
	too, err := h.toTrash(tree)
	moved = moved || too
	if err != nil {
		return moved, classed(err)
	}
	if err := durable.Step("shed.manifest"); err != nil {
		return moved, classed(err)
	}
	if err := gone(os.Remove(filepath.Join(b.dir, "manifests", l.name()+".jsonl"))); err != nil {
		return moved, classed(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moved[attempts] = true
	h.moved[filepath.Join(b.dir, "manifests")] = true
	h.owes(b, fmt.Sprintf("%s without, nothing %t", l.name(), l.Nothing))
	return moved, nil
}

// unstage is shed of what an attempt has in staging/, if there is something: a power
// cut may bring back a directory that was empty when it was removed, or in which only
// the manifest lacks, which was moved on and removed.
func (h *Head) unstage(b *Batch, l *leaver) error {
	err := h.unstageOnce(b, l)
	if errors.Is(err, ErrFull) && h.drop() {
		err = h.unstageOnce(b, l)
	}
	return err
}

func (h *Head) unstageOnce(b *Batch, l *leaver) error {
	dir := filepath.Join(b.dir, "staging", string(l.Attempt))
	if !l.Nothing {
		printed := filepath.Join(b.dir, "attempts", job.OutputName(l.name()))
		if err := keepPrinted(filepath.Join(dir, "tree", job.OutputName(l.job)), printed); err != nil {
			return classed(err)
		}
	}
	_, err := h.toTrash(dir)
	return classed(err)
}

// keepPrinted gives a file its place, durably, if it is there and nothing has that.
func keepPrinted(file, place string) error {
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return nil // it was moved before, or is nothing that could be shown
	}
	switch err := publishAnew(file, place, 0o750); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return durable.SyncDir(filepath.Dir(place))
}

// toTrash moves something into trash/, and says whether it was there.
func (h *Head) toTrash(name string) (bool, error) {
	err := publishAnew(name, h.path("trash", string(job.NewToken())), 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Printed opens what an attempt printed of which nothing else is kept. If there is
// no such file, the error is fs.ErrNotExist.
func (s *Spool) Printed(id job.ID, try int) (*os.File, error) {
	batch, name, _, err := job.ParseID(string(id))
	if err != nil || name == "" {
		return nil, fmt.Errorf("%q is not the id of a job: %w", id, err)
	}
	file := filepath.Join(s.batchDir(batch), "attempts", job.OutputName(name+"~"+strconv.Itoa(try)))
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%q is not a regular file", file), err, f.Close())
	}
	return f, nil
}
