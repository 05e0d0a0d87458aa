package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// Append adds rec to the log of b: it gives it its Seq and Time and rounds its
// times and lengths to milliseconds, so that what stands in the log equals what
// the caller has. Nothing is written before Commit. A batch that head.jsonl
// does not list as open is listed there first, so a batch that was closed is
// open again by any record.
func (h *Head) Append(b *Batch, rec *job.Record) {
	h.nameSoon(b)
	if h.listed[b.ID].kind != job.KindOpened {
		h.list(&job.Record{Kind: job.KindOpened, Batch: b.ID})
	}
	h.complete(rec)
	if len(b.next) == 0 {
		h.dirty = append(h.dirty, b)
		b.closing = false
		h.closing = slices.DeleteFunc(h.closing, func(c *Batch) bool { return c.ID == b.ID }) // also as it was opened before
	}
	b.next = appendRecord(b.next, rec)
	if rec.Manifest != "" {
		b.owed.Add(1)
	}
}

// nameSoon has the next Commit make the name of b, and the names of its directories, durable
// before head.jsonl lists b and before its log tells of results, unless they are durable. A batch
// can be opened as soon as it has its name, and a process that was killed may have made its
// directories anew.
func (h *Head) nameSoon(b *Batch) {
	if b.named {
		return
	}
	b.named = true
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dir := range []string{h.path("batches"), filepath.Dir(b.dir), b.dir} {
		h.unsynced[dir] = true
	}
}

// Made says that b is a new batch. If head.jsonl lists its name as that of one
// that is closed, whose directory somebody has moved away, it is listed as open:
// else the next start would not look at it.
func (h *Head) Made(b *Batch) {
	if h.Closed(b.ID) {
		h.list(&job.Record{Kind: job.KindOpened, Batch: b.ID})
	}
}

// AppendHead adds rec to head.jsonl, in the same way.
func (h *Head) AppendHead(rec *job.Record) {
	h.complete(rec)
	h.next = appendRecord(h.next, rec)
}

func (h *Head) complete(rec *job.Record) {
	rec.Seq, rec.Time = h.seq.Add(1), h.now()
	normalise(rec)
}

// CloseBatch says that every job of b is over. The record of it is written by a
// later Commit, when all that its log tells of is durably in place
// (SyncPublished): a batch that is listed as closed is not looked at when a
// head starts. A record appended before that takes it back.
func (h *Head) CloseBatch(b *Batch) {
	if !b.closing && h.listed[b.ID].of(b.seq) != job.KindClosed {
		b.closing = true
		h.closing = append(h.closing, b)
	}
}

// Pending says that Commit has something to write.
func (h *Head) Pending() bool {
	return len(h.dirty) > 0 || len(h.next) > 0 || h.compacted != nil || h.tick.undone() || slices.ContainsFunc(h.closing, (*Batch).closable)
}

// Owes reports whether a result that the log tells of is not yet durably in place.
func (b *Batch) Owes() bool { return b.owed.Load() != 0 }

// closable says that nothing of b is on its way any more.
func (b *Batch) closable() bool {
	return len(b.next) == 0 && !b.undone.Load() && !b.Owes()
}

// closeBatches records the batches that are over, and returns them.
func (h *Head) closeBatches() (closed []*Batch) {
	h.closing = slices.DeleteFunc(h.closing, func(b *Batch) bool {
		if !b.closable() {
			return false
		}
		b.closing = false
		h.list(&job.Record{Kind: job.KindClosed, Batch: b.ID})
		closed = append(closed, b)
		return true
	})
	return closed
}

// sweep empties staging/ of the batches that a Tick closes, before that is on
// the disk: nobody looks there again. It moves what is there into trash/, however much
// that is, since every other commit waits. What is not moved Sweep tells of later;
// what is must not be back after a power cut.
func (t *Tick) sweep() error {
	var dirs []string
	for _, b := range t.closed {
		if !b.staged.Load() {
			continue
		}
		moved, err := t.head.Sweep(b)
		if moved {
			b.swept.Store(true)
		}
		if err == nil {
			dirs = append(dirs, filepath.Join(b.dir, "staging"))
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	if err := durable.Step("commit.sweep"); err != nil {
		return err
	}
	if err := syncPresent(dirs); err != nil {
		return err
	}
	t.closed = nil
	return nil
}

// Commit makes all that was appended durable: head.jsonl first, then the logs
// of the batches together. Only when it has returned nil may anything be done
// or told because of those records. Before the records it makes the names durable that they
// tell of: of what Seal has sealed, and of batches.
//
// With [ErrFull] there was no room, although the ballast was given up: nothing
// may be done, the records are kept, and Commit can be called again. Any other
// error is [ErrBroken]: the program has to stop and to start again from what
// the disk has.
func (h *Head) Commit() error { return h.Tick().Commit() }

// A Tick is what was appended up to a moment, on its way to the disk.
type Tick struct {
	head    *Head
	batches []*Batch
	closed  []*Batch // that it says are closed
	done    atomic.Bool

	compacted *Compaction // to be put in the place of head.jsonl
}

func (t *Tick) undone() bool { return t != nil && !t.done.Load() }

// Tick takes all that was appended since the last one, with what an earlier one
// had no room for. Its Commit may run in another goroutine while more is
// appended here. The next Tick comes after that Commit has returned.
func (h *Head) Tick() *Tick {
	t := &Tick{head: h, closed: h.closeBatches(), compacted: h.compacted}
	h.compacted = nil
	if h.tick.undone() {
		t.batches, t.compacted = h.tick.batches, cmp.Or(t.compacted, h.tick.compacted)
		t.closed = append(t.closed, h.tick.closed...)
	}
	for _, b := range h.dirty {
		if !b.undone.Swap(true) {
			t.batches = append(t.batches, b)
		}
		b.log.Append(b.next)
		b.next = emptied(b.next)
	}
	h.dirty = h.dirty[:0]
	h.log.Append(h.next)
	h.next = emptied(h.next)
	h.tick = t
	return t
}

// emptied is a buffer to be filled again; one that a burst made large is let go.
func emptied(b []byte) []byte {
	if cap(b) > 1<<16 {
		return nil
	}
	return b[:0]
}

// Commit is [Head.Commit] for this Tick.
func (t *Tick) Commit() error {
	err := t.write()
	if errors.Is(err, ErrFull) && t.head.drop() {
		err = t.write()
	}
	switch {
	case err == nil:
		for _, b := range t.batches {
			b.undone.Store(false)
		}
		t.done.Store(true)
		return nil
	case errors.Is(err, ErrFull) || errors.Is(err, ErrBroken):
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

func (t *Tick) write() error {
	h := t.head
	if err := durable.Step("commit.head"); err != nil {
		return err
	}
	if err := t.sweep(); err != nil {
		return err
	}
	if err := h.syncNames(); err != nil {
		return err
	}
	if err := h.log.Flush(); err != nil {
		return err
	}
	if err := h.log.Sync(); err != nil {
		return err
	}
	if err := t.useCompacted(); err != nil {
		return err
	}
	if err := durable.Step("commit.write"); err != nil {
		return err
	}
	logs := make([]*durable.Log, len(t.batches))
	for i, b := range t.batches {
		logs[i] = b.log
		if err := b.log.Flush(); err != nil {
			return err
		}
	}
	if err := durable.Step("commit.sync"); err != nil {
		return err
	}
	return errors.Join(durable.SyncLogs(logs)...)
}

// syncNames makes the names durable that the records of a Tick tell of: those in staging/ that
// Seal has noted, and those of batches that are listed as open.
func (h *Head) syncNames() error {
	h.mu.Lock()
	dirs := slices.Collect(maps.Keys(h.unsynced))
	clear(h.unsynced)
	h.mu.Unlock()
	if len(dirs) == 0 {
		return nil
	}
	if err := durable.Step("commit.staging"); err != nil {
		return err
	}
	return syncPresent(dirs)
}

// syncPresent is syncDirs for directories of batches. It passes over those that are
// missing, as their batch may have been deleted, and those that are none or may not be opened.
func syncPresent(dirs []string) error {
	for {
		err := syncMany(dirs)
		n := len(dirs)
		if errors.Is(err, fs.ErrNotExist) || OfPath(err) { // nothing is synced yet
			dirs = slices.DeleteFunc(dirs, func(d string) bool {
				f, err := openDir(d)
				if err == nil {
					f.Close()
				}
				return errors.Is(err, fs.ErrNotExist) || OfPath(err)
			})
		}
		if len(dirs) == n {
			return broken(err)
		}
	}
}

// openDir opens a directory, and waits for nobody if it is a FIFO.
func openDir(name string) (*os.File, error) {
	return os.OpenFile(filepath.Clean(name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

// maxDirs is how many directories are open at a time to be synced together.
const maxDirs = 256

// How long, and how often, a descriptor is waited for.
const (
	fewWithin = time.Minute
	fewLook   = 50 * time.Millisecond
)

// syncDirs makes the names in the directories durable, many together. An error is ErrBroken.
func syncDirs(dirs []string) error { return broken(syncMany(dirs)) }

// broken is err as ErrBroken. No error stays none.
func broken(err error) error {
	if err == nil || errors.Is(err, ErrBroken) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// syncMany is syncDirs with an error as it is. For want of descriptors it syncs fewer together,
// and waits for one: somebody closes a file soon.
func syncMany(dirs []string) error {
	for until := time.Now().Add(fewWithin); len(dirs) > 0; {
		n, err := syncSome(dirs[:min(len(dirs), maxDirs)])
		if err != nil && (!few(err) || time.Now().After(until)) {
			return err
		}
		if err != nil {
			time.Sleep(fewLook)
		}
		dirs = dirs[n:]
	}
	return nil
}

// few says that something failed for want of descriptors.
func few(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// syncSome syncs the first of the directories, as many as can be opened, and
// says how many those are.
func syncSome(dirs []string) (n int, err error) {
	files := make([]*os.File, 0, len(dirs))
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, d := range dirs {
		f, err := openDir(d)
		if len(files) > 0 && few(err) {
			break
		}
		if err != nil {
			return 0, err
		}
		files = append(files, f)
	}
	return len(files), errors.Join(durable.SyncAll(files)...)
}
