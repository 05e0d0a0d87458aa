package spool

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// Note keeps the manifest of a result beside what is received of it, before
// the first of it comes, so that a transfer that is cut goes on where it was.
// It promises nothing: what counts is Seal. It is safe for concurrent use.
func (h *Head) Note(b *Batch, attempt job.Token, m pack.Manifest) error {
	return writeManifest(filepath.Join(b.dir, "staging", string(attempt), "manifest.jsonl"), m)
}

// Resume tells what an earlier transfer of a result has left in staging/: its
// manifest, whose SHA-256 must be sum, and what is still missing of it. What is
// there is hashed again; what was written before this Head was locked is first
// read anew from the disk, since a program that ended because a sync failed
// leaves a cache that may not be what the disk has. What is not as it has to be
// is removed and missing. Where there is nothing, or of another manifest, or more is missing
// here and there than a message can name, what is left is removed and the manifest is nil. An error that is [ErrBroken] is
// the disk's. It is safe for concurrent use with anything but work on the same
// attempt.
func (h *Head) Resume(ctx context.Context, b *Batch, attempt job.Token, sum string) (pack.Manifest, pack.Want, error) {
	if err := attempt.Check(); err != nil {
		return nil, pack.Want{}, err
	}
	dir := filepath.Join(b.dir, "staging", string(attempt))
	if errors.Is(exists(dir), fs.ErrNotExist) {
		return nil, pack.Want{}, nil
	}
	if err := h.reread(dir); err != nil {
		return nil, pack.Want{}, err
	}
	m, err := h.Staged(b, attempt)
	if err != nil || m.Sum() != sum {
		return nil, pack.Want{}, h.Unstage(b, attempt)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "tree") + "/.")
	if err != nil {
		return nil, pack.Want{}, h.Unstage(b, attempt)
	}
	defer root.Close()
	want, bad, err := pack.Verify(ctx, root, m)
	if ctx.Err() != nil {
		return nil, pack.Want{}, ctx.Err()
	}
	if err == nil && len(bad) > 0 {
		err = pack.Clear(root, m, bad)
		want = want.With(m, bad...)
	}
	if err != nil || len(want.Ranges) > pack.MaxRanges { // which no message names
		return nil, pack.Want{}, h.Unstage(b, attempt)
	}
	return m, want, nil
}

// reread drops what is cached of a directory of staging/ that this Head has not
// made.
func (h *Head) reread(dir string) error {
	h.mu.Lock()
	mine := h.staged[dir]
	h.mu.Unlock()
	if mine {
		return nil
	}
	if err := durable.RereadTree(dir); err != nil {
		return classed(err)
	}
	h.note(dir, true)
	return nil
}

// Sweep moves into trash/ what is left in staging/ of a batch that is closed: beginnings
// of results that no node will send the rest of. No node was ever told that the
// head has them. While a result that the log accepts is not in its place, nothing
// is moved. It reports whether something went to trash/ since it was called last.
func (h *Head) Sweep(b *Batch) (moved bool, err error) {
	moved = b.swept.Swap(false)
	if b.owed.Load() != 0 {
		return moved, nil
	}
	list, err := os.ReadDir(filepath.Join(b.dir, "staging"))
	err = gone(err)
	for _, e := range list {
		dir := filepath.Join(b.dir, "staging", e.Name())
		h.note(dir, false)
		went, merr := h.toTrash(dir)
		if errors.Is(full(merr), ErrFull) { // for want of room for a name
			merr = removeTree(context.Background(), dir, e.IsDir())
		}
		moved, err = moved || went, errors.Join(err, merr)
	}
	return moved, err
}
