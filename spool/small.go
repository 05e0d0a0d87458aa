package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// A Small is a small result that was received in full ([Head.StageNew]). No file has its
// manifest: the record that tells of it does (job.Record.List).
type Small struct {
	Batch   *Batch
	Attempt job.Token
}

func (r *Small) dir() string { return filepath.Join(r.Batch.dir, "staging", string(r.Attempt)) }

// syncedEach: up to so many small results are synced one by one. More cost less by one
// syncfs(2), which also waits for what others have written to the file system.
const syncedEach = 8

// SealSmall makes small results durable, together, as [Head.Seal] does for one result. All
// of them were checked against their manifests. An error is [ErrFull], [ErrBroken] or of a path
// ([OfPath]), or fs.ErrNotExist if one of a few was removed meanwhile. It is safe for
// concurrent use.
func (h *Head) SealSmall(all []Small) error {
	for _, r := range all {
		if err := r.Attempt.Check(); err != nil {
			return err
		}
		h.noteSmall(r.Batch, r.Attempt)
	}
	err := h.sealSmall(all)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: a small result was removed", fs.ErrNotExist)
	}
	return classed(err)
}

func (h *Head) sealSmall(all []Small) error {
	if err := durable.Step("seal.small"); err != nil {
		return err
	}
	if len(all) > syncedEach {
		return durable.SyncFS(h.dir)
	}
	dirs := map[string]bool{}
	for _, r := range all {
		dirs[filepath.Dir(r.dir())] = true
	}
	errs := make([]error, len(all)+1)
	var wg sync.WaitGroup
	for i, r := range all {
		wg.Go(func() { errs[i] = durable.SyncTree(r.dir()) })
	}
	wg.Go(func() { errs[len(all)] = syncDirs(slices.Collect(maps.Keys(dirs))) })
	wg.Wait()
	return errors.Join(errs...)
}

// noteSmall notes that the result of an attempt is a small one.
func (h *Head) noteSmall(b *Batch, attempt job.Token) {
	r := Small{b, attempt}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.small[r.dir()] = true
}

// Results opens the results of one batch, one after another. To find the manifests of small
// results it reads the batch's log, once, and then only what is new in it. It is for one
// goroutine at a time.
type Results struct {
	spool   *Spool
	batch   *Batch
	first   []byte           // first bytes of the log that was read; nil: none
	next    int64            // byte up to which it was read
	offsets map[string]int64 // of the records with small results, by the names of their directories
}

// Results returns a reader of the results of a batch. It reads nothing yet.
func (s *Spool) Results(id job.BatchID) *Results {
	return &Results{spool: s, batch: &Batch{ID: id, dir: s.batchDir(id)}}
}

// Result opens what is kept of a job, as [Results.Open] does.
func (s *Spool) Result(id job.ID, try int) (pack.Manifest, *os.Root, error) {
	batch, name, _, err := job.ParseID(string(id))
	if err != nil || name == "" {
		return nil, nil, fmt.Errorf("%q is not the id of a job: %w", id, err)
	}
	return s.Results(batch).Open(name, try)
}

// OpenTree opens the directory of what is kept of a job: its accepted result (try 0), or
// that of its attempt number try. If there is none, the error is fs.ErrNotExist.
func (s *Spool) OpenTree(batch job.BatchID, name string, try int) (*os.Root, error) {
	dir, name := resultPlace(name, try, try == 0)
	return os.OpenRoot(filepath.Join(s.batchDir(batch), dir, name) + "/.") // a FIFO in its place is not waited for
}

// Open opens what is kept of a job: its accepted result (try 0), or that of its attempt
// number try. If there is none, the error is fs.ErrNotExist.
func (r *Results) Open(name string, try int) (pack.Manifest, *os.Root, error) {
	root, err := r.spool.OpenTree(r.batch.ID, name, try)
	if err != nil {
		return nil, nil, err
	}
	_, name = resultPlace(name, try, try == 0)
	m, err := r.manifest(name)
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return m, root, nil
}

// ManifestSize is how many bytes the manifest of a result has that stands in a file of its
// own. It is 0 of a small result, and if there is none.
func (r *Results) ManifestSize(name string, try int) int64 {
	_, name = resultPlace(name, try, try == 0)
	info, err := os.Stat(filepath.Join(r.batch.dir, "manifests", name+".jsonl"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// FileSize returns the size in bytes that the manifest of a result says of a file. If there is
// no such manifest, or no such file in it, the error is fs.ErrNotExist.
func (r *Results) FileSize(name string, try int, file string) (int64, error) {
	_, name = resultPlace(name, try, try == 0)
	f, err := check.Open(filepath.Join(r.batch.dir, "manifests", name+".jsonl"))
	if err == nil {
		defer f.Close()
		e, err := pack.FindEntry(f, file)
		return e.Size, err
	}
	m, err := r.manifest(name)
	if err != nil {
		return 0, err
	}
	i, ok := m.Find(file)
	if !ok {
		return 0, fs.ErrNotExist
	}
	return m[i].Size, nil
}

// manifest is the manifest of the result whose directory has that name.
func (r *Results) manifest(name string) (pack.Manifest, error) {
	m, err := readManifest(filepath.Join(r.batch.dir, "manifests", name+".jsonl"))
	if !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	log, err := check.Open(filepath.Join(r.batch.dir, "log.jsonl"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := r.forgetOther(log); err != nil {
		return nil, err
	}
	if _, known := r.offsets[name]; !known {
		if err := r.indexLog(); err != nil {
			return nil, err
		}
	}
	at, known := r.offsets[name]
	if !known {
		return nil, fmt.Errorf("%w: no record has the manifest of %q", fs.ErrNotExist, name)
	}
	return r.manifestAt(log, at, name)
}

// firstRead is how many bytes tell the log of a batch from that of a later one with the same name:
// the time and the seq of its first record are in these.
const firstRead = 256

// forgetOther forgets what was read of another file: a later batch may have the same name. The
// number of its inode may be the same, too.
func (r *Results) forgetOther(log *os.File) error {
	info, err := log.Stat()
	if err != nil {
		return err
	}
	first := make([]byte, min(firstRead, info.Size()))
	if _, err := log.ReadAt(first, 0); err != nil {
		return err
	}
	if r.first == nil || !bytes.HasPrefix(first, r.first) || info.Size() < r.next {
		r.first, r.next, r.offsets = first, 0, map[string]int64{}
	}
	return nil
}

// indexLog notes where in the log the records with small results are.
func (r *Results) indexLog() (err error) {
	r.next, err = r.spool.events(r.batch, r.next, -1, func(l *logReader, rec *job.Record) error {
		if rec.List != nil {
			_, name := resultPlace(rec.Job, rec.Try, rec.Kind == job.KindDone)
			r.offsets[name] = l.at
		}
		return nil
	})
	return err
}

// manifestAt reads the manifest of the named result in the record at a byte of the log.
func (r *Results) manifestAt(log *os.File, at int64, name string) (pack.Manifest, error) {
	if _, err := log.Seek(at, io.SeekStart); err != nil {
		return nil, err
	}
	l := newLineReader(log, r.batch.ID)
	l.next = at
	var rec job.Record
	if err := l.read(&rec); err != nil {
		return nil, err
	}
	_, its := resultPlace(rec.Job, rec.Try, rec.Kind == job.KindDone)
	m, err := pack.ParseList(rec.List, pack.DefaultLimits())
	if err == nil && (m.Sum() != rec.Manifest || its != name) {
		err = fmt.Errorf("%w: the list is not that of %q, or does not have the sum that its record has", pack.ErrFormat, name)
	}
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	return m, nil
}
