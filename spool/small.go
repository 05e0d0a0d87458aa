package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// A Small is a small result that was received in full ([Head.Stage]). It has no file with
// its manifest: the record that tells of it has it (job.Record.Tree).
type Small struct {
	Batch   *Batch
	Attempt job.Token
}

// syncedEach is how many small results are made durable each by itself. More cost less with
// one syncfs(2), which also waits for what others have written to the file system.
const syncedEach = 2

// SealSmall makes small results durable, together, as [Head.Seal] does for one result. All
// of them were checked against their manifests. An error is [ErrFull] or [ErrBroken], or
// fs.ErrNotExist if one was removed meanwhile. It is safe for concurrent use.
func (h *Head) SealSmall(all []Small) error {
	for _, r := range all {
		if err := r.Attempt.Check(); err != nil {
			return err
		}
		h.noteSmall(r.Batch, r.Attempt)
	}
	err := h.sealSmall(all)
	if errors.Is(err, fs.ErrNotExist) {
		return err
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

func (r *Small) dir() string { return filepath.Join(r.Batch.dir, "staging", string(r.Attempt)) }

// noteSmall notes that the result of an attempt has no file with its manifest.
func (h *Head) noteSmall(b *Batch, attempt job.Token) {
	r := Small{b, attempt}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.small[r.dir()] = true
}

// Results opens the results of one batch, one after another. It reads the batch's log once,
// and what was added since when it does not find a result. It is for one goroutine at a
// time.
type Results struct {
	spool *Spool
	batch *Batch
	at    map[string]int64 // of small results, by the name of their directory: the byte at which their record stands in the log
	next  int64            // the byte up to which the log was read
	log   fs.FileInfo      // of which file; the name of a batch that is deleted may be another's
}

// Results returns a reader of the results of a batch. It costs nothing yet.
func (s *Spool) Results(id job.BatchID) *Results {
	return &Results{spool: s, batch: &Batch{ID: id, dir: s.batchDir(id)}, at: map[string]int64{}}
}

// Result opens what is kept of a job, as Results does. It reads the batch's log if the
// result is a small one.
func (s *Spool) Result(id job.ID, try int) (pack.Manifest, *os.Root, error) {
	batch, name, _, err := job.ParseID(string(id))
	if err != nil || name == "" {
		return nil, nil, fmt.Errorf("%q is not the id of a job: %w", id, err)
	}
	return s.Results(batch).Open(name, try)
}

// Tree opens the directory of what is kept of a job: its accepted result (try 0), or what
// its attempt number try left. If there is none, the error is fs.ErrNotExist.
func (s *Spool) Tree(batch job.BatchID, name string, try int) (*os.Root, error) {
	return os.OpenRoot(filepath.Join(s.batchDir(batch), treeOf(name, try)))
}

// treeOf is the place of a result in the directory of its batch.
func treeOf(name string, try int) string {
	if try > 0 {
		return filepath.Join("attempts", name+"~"+strconv.Itoa(try))
	}
	return filepath.Join("out", name)
}

// Open opens what is kept of a job: its accepted result (try 0), or what its attempt number
// try left. If there is none, the error is fs.ErrNotExist.
func (r *Results) Open(name string, try int) (pack.Manifest, *os.Root, error) {
	root, err := r.spool.Tree(r.batch.ID, name, try)
	if err != nil {
		return nil, nil, err
	}
	m, err := r.manifest(filepath.Base(treeOf(name, try)))
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return m, root, nil
}

// manifest is the manifest of the result in the directory of that name.
func (r *Results) manifest(name string) (pack.Manifest, error) {
	m, err := readManifest(filepath.Join(r.batch.dir, "manifests", name+".jsonl"))
	if !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	if _, known := r.at[name]; !known {
		if err := r.readOn(); err != nil {
			return nil, err
		}
	}
	at, known := r.at[name]
	if !known {
		return nil, err
	}
	return r.recorded(at)
}

// readOn notes where in the log the records with small results are.
func (r *Results) readOn() error {
	log, err := os.Stat(filepath.Join(r.batch.dir, "log.jsonl"))
	if err != nil {
		return err
	}
	if r.log != nil && !os.SameFile(r.log, log) {
		clear(r.at)
		r.next = 0
	}
	r.log = log
	r.next, err = r.spool.events(r.batch, r.next, -1, func(l *logReader, rec *job.Record) error {
		if rec.Tree != nil {
			name := rec.Job
			if rec.Kind != job.KindDone {
				name += "~" + strconv.Itoa(rec.Try)
			}
			r.at[name] = l.at
		}
		return nil
	})
	return err
}

// recorded is the manifest that the record at a byte of the log has.
func (r *Results) recorded(at int64) (pack.Manifest, error) {
	f, err := os.Open(filepath.Join(r.batch.dir, "log.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(at, 0); err != nil {
		return nil, err
	}
	l := newFirstReader(f, r.batch.ID)
	l.next = at
	var rec job.Record
	if err := l.read(&rec); err != nil {
		return nil, err
	}
	return smallManifest(&rec)
}

// smallManifest is the manifest in a record of a small result, which must have its sum.
func smallManifest(rec *job.Record) (pack.Manifest, error) {
	m, err := pack.ParseList(rec.Tree, pack.DefaultLimits())
	if err == nil && m.Sum() != rec.Manifest {
		err = fmt.Errorf("%w: the list does not have the sum of the manifest", pack.ErrFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
	}
	return m, nil
}
