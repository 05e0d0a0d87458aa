package spool

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// Stage opens the directory into which the result of an attempt is received,
// staging/<attempt>/tree, and makes it if it is missing. What an earlier, cut
// transfer has left is in it: pack.Verify says what is still missing. It is
// safe for concurrent use.
func (h *Head) Stage(b *Batch, attempt job.Token) (*os.Root, error) {
	if err := attempt.Check(); err != nil {
		return nil, err
	}
	b.staged.Store(true)
	dir := filepath.Join(b.dir, "staging", string(attempt))
	tree := filepath.Join(dir, "tree")
	err := os.Mkdir(tree, 0o750)
	if errors.Is(err, fs.ErrNotExist) {
		if err := h.mkStaged(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := durable.Step("stage.tree"); err != nil {
			return nil, err
		}
		err = os.Mkdir(tree, 0o750)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenRoot(tree + "/.")
}

// StageNew is Stage of an attempt of which nothing was received: else it fails with
// fs.ErrExist.
func (h *Head) StageNew(b *Batch, attempt job.Token) (*os.Root, error) {
	if err := attempt.Check(); err != nil {
		return nil, err
	}
	if err := h.mkStaged(filepath.Join(b.dir, "staging", string(attempt))); err != nil {
		return nil, err
	}
	if err := durable.Step("stage.tree"); err != nil {
		return nil, err
	}
	return h.Stage(b, attempt)
}

// mkStaged makes a directory of staging/.
func (h *Head) mkStaged(dir string) error {
	err := os.Mkdir(dir, 0o750)
	if errors.Is(err, fs.ErrNotExist) {
		if err = remakeDir(filepath.Dir(dir), 0o750); err == nil {
			err = os.Mkdir(dir, 0o750)
		}
	}
	if err == nil {
		h.note(dir, true)
	}
	return err
}

// remakeDir makes a directory of a batch durably, with that mode:
// somebody removed it, or a copy of the spool left it out since it was empty. Another
// goroutine may do the same.
func remakeDir(dir string, mode fs.FileMode) error {
	if err := makeDir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncPresent([]string{filepath.Dir(dir)})
}

// makeDir makes a directory with that mode.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.Mkdir(dir, mode.Perm()); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode()&fs.ModeSetgid|mode) // the directory above may hand its group on
}

// Staged is the manifest of a result that was sealed and not yet published. If
// there is none, the error is fs.ErrNotExist. It is safe for concurrent use.
func (h *Head) Staged(b *Batch, attempt job.Token) (pack.Manifest, error) {
	if err := attempt.Check(); err != nil {
		return nil, err
	}
	return readManifest(filepath.Join(b.dir, "staging", string(attempt), "manifest.jsonl"))
}

// StagedTail is the end of a file, so many bytes, of a result that was sealed and not
// yet published. If there is no such file, it is empty.
func (h *Head) StagedTail(b *Batch, attempt job.Token, file string, most int64) ([]byte, error) {
	if err := attempt.Check(); err != nil {
		return nil, err
	}
	tree, err := os.OpenRoot(filepath.Join(b.dir, "staging", string(attempt), "tree") + "/.")
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	if info, err := tree.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	f, err := tree.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	from := max(size-most, 0)
	return io.ReadAll(io.NewSectionReader(f, from, size-from))
}

// Unstage removes what was received of an attempt that nobody will ask for
// again. It is safe for concurrent use.
func (h *Head) Unstage(b *Batch, attempt job.Token) error {
	if err := attempt.Check(); err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "staging", string(attempt))
	h.note(dir, false)
	return removeTree(context.Background(), dir, true)
}

// note keeps whether all that is in a directory of staging/ was written by this
// Head. What an earlier one has left there may be in the cache alone.
func (h *Head) note(dir string, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if mine {
		h.staged[dir] = true
	} else {
		delete(h.staged, dir)
		delete(h.small, dir)
	}
}

// Seal makes a staged result durable, when all of it has been received and
// checked against its manifest m: the manifest is written beside the tree, and
// everything is synced. Only then may a record with m's sum be appended; the
// Commit of it makes the name of the directory durable too. An error is
// [ErrFull], [ErrBroken] or of a path in the batch, or fs.ErrNotExist if it was removed
// meanwhile, since its node is given up and its batch is over. It is safe for concurrent use.
func (h *Head) Seal(b *Batch, attempt job.Token, m pack.Manifest) error {
	if err := attempt.Check(); err != nil {
		return err
	}
	err := h.seal(b, attempt, m)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return classed(err)
	}
	return nil
}

func (h *Head) seal(b *Batch, attempt job.Token, m pack.Manifest) error {
	dir := filepath.Join(b.dir, "staging", string(attempt))
	if err := durable.Step("seal.manifest"); err != nil {
		return err
	}
	if err := writeManifest(filepath.Join(dir, "manifest.jsonl"), m); err != nil {
		return err
	}
	h.mu.Lock()
	delete(h.small, dir) // which it was to be, and there was no room
	h.mu.Unlock()
	if err := durable.Step("seal.sync"); err != nil {
		return err
	}
	if err := durable.SyncTree(dir); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsynced[filepath.Dir(dir)] = true
	return nil
}

// OfPath says that err is of one path, at which somebody has put something that this
// process cannot use: the disk is as good as before.
func OfPath(err error) bool {
	return !ofAll(err) && slices.ContainsFunc([]error{syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EXDEV, syscall.ENOTEMPTY},
		func(e error) bool { return errors.Is(err, e) })
}

// classed is err as ErrFull or ErrBroken. For want of descriptors, or at one path, nothing is
// broken: that is neither, as all else goes on. No error stays none.
func classed(err error) error {
	switch {
	case err == nil:
		return nil
	case durable.NoRoom(err):
		return full(err)
	case few(err) || OfPath(err):
		return err
	}
	return broken(err)
}

// writeManifest makes the file name the manifest m, unless it is that already.
func writeManifest(name string, m pack.Manifest) error {
	if sameManifest(name, m) {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return err
	}
	err = m.Encode(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func sameManifest(name string, m pack.Manifest) bool {
	f, err := check.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	same := &sameBytes{r: bufio.NewReader(f)}
	if m.Encode(same) != nil {
		return false
	}
	_, err = same.r.ReadByte()
	return err == io.EOF
}

// sameBytes is a Writer that fails when it is given other bytes than r has.
type sameBytes struct {
	r   *bufio.Reader
	buf []byte
}

func (s *sameBytes) Write(b []byte) (int, error) {
	s.buf = append(s.buf[:0], b...)
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return 0, err
	}
	if !bytes.Equal(s.buf, b) {
		return 0, io.ErrUnexpectedEOF
	}
	return len(b), nil
}

func readManifest(name string) (pack.Manifest, error) {
	f, err := check.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := pack.DecodeManifest(f, pack.DefaultLimits())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return m, nil
}

// Publish puts the sealed result of an attempt in place as that of its job:
// staging/<attempt>/tree becomes out/<job>. The record that accepts it has been
// committed. Doing it again changes nothing. An error that is a *Problem says
// that the spool is not as its log tells; any other is [ErrFull], [ErrBroken] or of a path
// in the batch. It is safe for concurrent use.
func (h *Head) Publish(b *Batch, name string, attempt job.Token) error {
	return h.move(b, attempt, "out", name)
}

// Aside keeps the sealed result of an attempt that is not its job's: it becomes
// attempts/<job>~<try>. Else it is like Publish.
func (h *Head) Aside(b *Batch, name string, try int, attempt job.Token) error {
	dir, name := resultPlace(name, try, false)
	return h.move(b, attempt, dir, name)
}

// move is moveAll; where there is no room for names, with what the ballast took:
// while results that are accepted are not in place, nothing is told, not even
// that something was deleted.
func (h *Head) move(b *Batch, attempt job.Token, into, name string) error {
	err := h.moveAll(b, attempt, into, name)
	if errors.Is(err, ErrFull) && h.drop() {
		err = h.moveAll(b, attempt, into, name)
	}
	return err
}

func (h *Head) moveAll(b *Batch, attempt job.Token, into, name string) error {
	staged := filepath.Join(b.dir, "staging", string(attempt))
	moves := []struct{ step, from, dir, to string }{
		{"publish.tree", "tree", into, name},
		{"publish.manifest", "manifest.jsonl", "manifests", name + ".jsonl"},
	}
	h.mu.Lock()
	small := h.small[staged]
	h.mu.Unlock()
	if small {
		moves = moves[:1]
	}
	for _, m := range moves {
		if err := durable.Step(m.step); err != nil {
			return classed(err)
		}
		if err := h.moveOne(b, filepath.Join(staged, m.from), m.dir, m.to); err != nil {
			return err
		}
	}
	if err := durable.Step("publish.empty"); err != nil {
		return err
	}
	switch err := syscall.Rmdir(staged); {
	case err == syscall.ENOENT:
		return nil // it was all done before
	case err != nil:
		return &Problem{Batch: b.ID, File: batchFile(b.ID, "staging/"+string(attempt)),
			Why: fmt.Sprintf("it should be empty and is not: %v", err)}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.staged, staged)
	delete(h.small, staged)
	h.moved[filepath.Join(b.dir, into)] = true
	if !small {
		h.moved[filepath.Join(b.dir, "manifests")] = true
	}
	h.owes(b, filepath.Join(into, name))
	return nil
}

// owes notes that something in b awaits [Head.SyncPublished]; noted twice, it counts once: on a
// full disk all that was to be put in place is tried again. The caller holds h.mu.
func (h *Head) owes(b *Batch, name string) {
	if h.owed[b] == nil {
		h.owed[b] = make(map[string]bool)
	}
	h.owed[b][name] = true
}

// moveOne renames from to dir/to, unless that was done before.
func (h *Head) moveOne(b *Batch, from, dir, to string) error {
	target := filepath.Join(b.dir, dir, to)
	err := publishAnew(from, target, 0o750)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return &Problem{Batch: b.ID, File: batchFile(b.ID, dir+"/"+to),
			Why: fmt.Sprintf("it is there, and %q should become it; both are left as they are", from)}
	case errors.Is(err, fs.ErrNotExist) && exists(target) == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &Problem{Batch: b.ID, File: batchFile(b.ID, dir+"/"+to),
			Why: fmt.Sprintf("the log says that it is there, but neither it nor %q is", from)}
	}
	return classed(err)
}

// publishAnew is durable.Publish into a directory of a batch, or into trash/, which it makes
// anew, with that mode, if it is missing. The error is fs.ErrNotExist only if from is not there.
func publishAnew(from, target string, mode fs.FileMode) error {
	dir := filepath.Dir(target)
	err := durable.Publish(from, target)
	if !errors.Is(err, fs.ErrNotExist) || exists(from) != nil {
		return err
	}
	for range 10 { // who removes empty directories can do it again
		if err := makeDir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err = durable.Publish(from, target); !errors.Is(err, fs.ErrNotExist) || exists(from) != nil {
			return cmp.Or(err, syncPresent([]string{filepath.Dir(dir)}))
		}
	}
	return &fs.PathError{Op: "rename into", Path: dir, Err: syscall.ENOTDIR} // a link that leads nowhere is there
}

// SyncPublished makes durable what Publish and Aside have put in place since.
// Only then may a node be told that the head has a result. An error is
// [ErrBroken]. It is safe for concurrent use.
func (h *Head) SyncPublished() error {
	h.mu.Lock()
	dirs, owed := slices.Collect(maps.Keys(h.moved)), maps.Clone(h.owed)
	clear(h.moved)
	clear(h.owed)
	h.mu.Unlock()
	if len(dirs) == 0 {
		return nil
	}
	if err := durable.Step("publish.sync"); err != nil {
		return err
	}
	if err := syncPresent(dirs); err != nil {
		return err
	}
	for b, names := range owed {
		b.owed.Add(int64(-len(names)))
	}
	return nil
}
