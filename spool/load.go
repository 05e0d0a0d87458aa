package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// trashed reports whether something is in trash/.
func (h *Head) trashed() bool {
	list, _ := os.ReadDir(h.path("trash"))
	return len(list) > 0
}

// Load reads what the spool holds and puts right what a crash has left, as the
// table in dspool(5) says: submissions that were not finished are removed, torn
// last lines cut off and kept aside, results that their log accepts and that
// are not in place put there, names that a process which was killed has not
// synced made durable, deletions that were cut short taken up. What is in
// trash/ is left to EmptyTrash. It returns the batches that are open, the oldest
// first, each with its log checked: a Replay of it does not fail. A batch that
// is damaged, or in a namespace that cannot be read, is left alone and told of by a Problem that
// stops it. It is called once, before anything else.
func (h *Head) Load() (open []*Batch, problems []*Problem, err error) {
	if problems, err = h.readHead(); err != nil {
		return nil, problems, err
	}
	if err := h.clean(); err != nil {
		return nil, problems, err
	}
	ids, err := h.batchIDs()
	if ids != nil && errors.Is(err, fs.ErrPermission) {
		problems = append(problems, &Problem{File: "batches", Why: fmt.Sprintf("the batches of a namespace are left alone: %v", err)})
	} else if err != nil {
		return nil, problems, err
	}
	there := make(map[job.BatchID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id, said := range h.listed {
		if said.kind == job.KindOpened && !there[id] {
			why := "the directory of an open batch is missing (was it moved away?)"
			if !errors.Is(exists(h.batchDir(id)), fs.ErrNotExist) {
				why = "the directory of its namespace cannot be read"
			}
			problems = append(problems, &Problem{Batch: id, File: "batches/" + string(id), Stops: true, Why: why})
		}
	}
	if ids, err = h.finishDeleted(ids); errors.Is(err, ErrFull) || OfPath(err) {
		problems = append(problems, &Problem{File: "trash", Why: fmt.Sprintf("what was deleted is not moved there before the next start: %v", err)})
	} else if err != nil {
		return nil, problems, err
	}
	// Who was killed may have moved batches into trash/ and not synced that: power that is cut
	// after EmptyTrash has begun with one would put back a part of it.
	if h.trashed() {
		if err := h.syncNamespaces(); err != nil {
			return nil, problems, err
		}
	}
	ids = slices.DeleteFunc(ids, func(id job.BatchID) bool { return h.listed[id].kind == job.KindClosed })
	for _, id := range ids { // names there may be younger than the last sync of who made them
		h.moved[h.path("batches", id.Namespace())], h.moved[h.path("batches")], h.moved[h.batchDir(id)] = true, true, true
	}
	open, more, err := h.openAll(ids)
	problems = append(problems, more...)
	if err != nil {
		return open, problems, err
	}
	if err := h.SyncPublished(); err != nil {
		return open, problems, err
	}
	for _, b := range open {
		b.named = true
	}
	if err := h.Restock(0); err != nil && !errors.Is(err, ErrFull) {
		return open, problems, err
	}
	return open, problems, nil
}

// openAll opens the batches, several at a time.
func (h *Head) openAll(ids []job.BatchID) (open []*Batch, problems []*Problem, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan job.BatchID)
	for range min(len(ids), runtime.GOMAXPROCS(0), 8) {
		wg.Go(func() {
			for id := range next {
				b, p, e := h.Open(id)
				if b != nil {
					b.keepCutLogs()
				}
				mu.Lock()
				problems, err = append(problems, p...), errors.Join(err, e)
				if b != nil {
					open = append(open, b)
				}
				mu.Unlock()
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	wg.Wait()
	slices.SortFunc(open, func(a, b *Batch) int { return cmp.Compare(a.seq, b.seq) })
	slices.SortFunc(problems, func(a, b *Problem) int { return cmp.Compare(a.File, b.File) })
	return open, problems, err
}

// clean removes what a crash has left half made and nothing names, and makes the
// directories anew that a copy of the spool left out since they were empty.
func (h *Head) clean() error {
	for _, d := range tree {
		if err := h.remakeTop(d.name); err != nil {
			return err
		}
	}
	if err := syncDirs([]string{h.dir}); err != nil { // a process that was killed may have made some of them
		return err
	}
	for _, glob := range []string{"batches/*/.new-*", "blobs/??/.*", "keys/.*", "nodes/.*", "rejected/.*", ".*"} {
		if err := removeAll(h.dir, glob, func(name string) bool {
			return strings.HasPrefix(glob, "batches/") || durable.IsTemp(name)
		}); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes what is below dir and matches glob, if its last element is
// one to be removed. What cannot be removed, as in a directory of another user, stays.
func removeAll(dir, glob string, remove func(name string) bool) error {
	names, err := fs.Glob(os.DirFS(dir), glob)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !remove(path.Base(name)) {
			continue
		}
		if err := durable.Step("clean.remove"); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil && !OfPath(err) {
			return err
		}
	}
	return nil
}

// batchIDs lists the directories below batches/ whose names are names. Where a
// namespace may not be listed, the others are listed, and the error is
// fs.ErrPermission.
func (s *Spool) batchIDs() ([]job.BatchID, error) {
	spaces, err := os.ReadDir(s.path("batches"))
	if err != nil {
		return nil, err
	}
	ids := []job.BatchID{}
	for _, ns := range spaces {
		if !ns.IsDir() || job.CheckName(ns.Name()) != nil {
			continue
		}
		names, rerr := os.ReadDir(s.path("batches", ns.Name()))
		if errors.Is(rerr, fs.ErrPermission) {
			err = rerr
			continue
		}
		if rerr != nil {
			return nil, rerr
		}
		for _, n := range names {
			if n.IsDir() && job.CheckName(n.Name()) == nil {
				ids = append(ids, job.NewBatchID(ns.Name(), n.Name()))
			}
		}
	}
	return ids, err
}

// Open opens one batch as Load does: a batch that is closed and whose jobs are
// to be tried again. A damaged batch is no error but a Problem that stops it,
// and the Batch is nil. The same batch must not be open twice. It is safe for
// concurrent use.
func (h *Head) Open(id job.BatchID) (*Batch, []*Problem, error) {
	b := &Batch{ID: id, dir: h.batchDir(id), adding: make(chan struct{}, 1)}
	b.staged.Store(true)
	problems, err := h.openBatch(b)
	var bad *Problem
	if errors.As(err, &bad) {
		err = nil
		problems = append(problems, bad)
	} else if err != nil && !ofAll(err) {
		problems = append(problems, &Problem{Batch: id, File: "batches/" + string(id), Stops: true, Why: err.Error(), err: err})
		err = nil
	}
	if slices.ContainsFunc(problems, func(p *Problem) bool { return p.Stops }) {
		h.leave(b)
		return nil, problems, errors.Join(err, b.Close())
	}
	if err == nil {
		err = h.settle(b)
	}
	if err != nil {
		return nil, problems, errors.Join(err, b.Close())
	}
	return b, problems, nil
}

// leave forgets what was to be made durable in the directory of b, which stops.
func (h *Head) leave(b *Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owed, b)
	for _, d := range b.places() {
		delete(h.moved, d)
	}
}

// places returns the directory of b, and those in it in which results and what belongs to them are.
func (b *Batch) places() []string {
	return []string{b.dir, filepath.Join(b.dir, "out"), filepath.Join(b.dir, "attempts"), filepath.Join(b.dir, "manifests")}
}

// ofAll says that err is of the whole disk or of this process: a batch that met it is as
// good as the others. Any other error in the files of a batch stops that batch alone.
func ofAll(err error) bool {
	for _, e := range []error{ErrBroken, syscall.EROFS, syscall.EIO, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return durable.NoRoom(err) || few(err)
}

// settle makes durable what the opening of b has put in place or removed, so that b can be
// closed again: SyncPublished, which does so after Load, comes only with the next result.
func (h *Head) settle(b *Batch) error {
	h.mu.Lock()
	n := len(h.owed[b])
	delete(h.owed, b)
	h.mu.Unlock()
	if n == 0 {
		return nil
	}
	if err := syncPresent(b.places()); err != nil {
		return err
	}
	b.owed.Add(int64(-n))
	return nil
}

func (h *Head) openBatch(b *Batch) (problems []*Problem, err error) {
	l := &loader{Batch: b, report: stop}
	f, err := l.openLog()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := durable.Reread(f.Name()); err != nil {
		return nil, err
	}
	r := newLogReader(f, -1, b.ID, batchFile(b.ID, "log.jsonl"))
	if _, err := l.readFirst(r); err != nil {
		return nil, err
	}
	if err := l.readJobs(); err != nil {
		return nil, err
	}
	if b.Jobs() < l.jobs {
		return nil, b.fewLines(l.jobs)
	}
	settled, err := readStaged(b)
	if err != nil {
		return nil, err
	}
	l.record = func(rec *job.Record) error {
		if rec.Manifest != "" {
			h.notePlaced(b, rec)
		}
		if _, ok := settled[rec.Attempt]; ok && rec.Attempt != "" {
			settled[rec.Attempt] = lastResult(rec, settled[rec.Attempt])
		}
		return nil
	}
	err = l.readLog(r)
	h.seen(r.seq)
	if errors.Is(err, errTorn) {
		problems, err = h.cutTorn(f, r)
	}
	if err != nil {
		return problems, err
	}
	if b.log, err = durable.OpenLog(f.Name(), 0o640); err != nil {
		return problems, err
	}
	for token, x := range l.less {
		if _, staged := settled[token]; !staged {
			continue
		}
		if err := h.unstage(b, x); err != nil {
			return problems, err
		}
		delete(settled, token)
	}
	more, err := h.placeStaged(b, settled)
	for _, x := range l.less {
		if err == nil {
			b.owed.Add(1)
			_, err = h.Shed(b, x.job, x.Try, x.Nothing)
		}
	}
	return append(problems, more...), err
}

// notePlaced notes that the result of a record may have been put in place by a process
// that was killed before it made that durable: Load does it before anybody is told.
func (h *Head) notePlaced(b *Batch, rec *job.Record) {
	dir, _ := resultPlace(rec.Job, rec.Try, rec.Kind == job.KindDone)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moved[filepath.Join(b.dir, dir)] = true
	h.moved[filepath.Join(b.dir, "manifests")] = true
}

// resultPlace is the directory of a batch in which the result of an attempt is, and its
// name there; it may be the accepted result of the job.
func resultPlace(job string, try int, accepted bool) (dir, name string) {
	if accepted {
		return "out", job
	}
	return "attempts", job + "~" + strconv.Itoa(try)
}

// lastResult returns the record that says where what an attempt left belongs: the
// last one with a manifest, or else the last one of that attempt at all.
func lastResult(rec, before *job.Record) *job.Record {
	if before != nil && before.Manifest != "" && rec.Manifest == "" {
		return before
	}
	keep := *rec
	return &keep
}

// readStaged lists the attempts that have something in staging/. If that is missing, none has.
func readStaged(b *Batch) (map[job.Token]*job.Record, error) {
	list, err := os.ReadDir(filepath.Join(b.dir, "staging"))
	if gone(err) != nil {
		return nil, err
	}
	found := make(map[job.Token]*job.Record, len(list))
	for _, e := range list {
		if job.Token(e.Name()).Check() == nil {
			found[job.Token(e.Name())] = nil
		}
	}
	return found, nil
}

// placeStaged puts in place what the log has accepted, and is called when the log
// has been read. What the log does not tell of is left where it is: the node
// may come back with the rest of it.
func (h *Head) placeStaged(b *Batch, settled map[job.Token]*job.Record) (problems []*Problem, err error) {
	for token, rec := range settled {
		if rec == nil {
			problems = append(problems, &Problem{Batch: b.ID, File: batchFile(b.ID, "staging/"+string(token)),
				Why: "the log does not know this attempt; what came of it is kept here"})
			continue
		}
		if rec.Manifest == "" {
			continue
		}
		b.owed.Add(1)
		if rec.List != nil {
			h.noteSmall(b, rec.Attempt)
		}
		dir, name := resultPlace(rec.Job, rec.Try, rec.Kind == job.KindDone)
		err := h.move(b, rec.Attempt, dir, name)
		var bad *Problem
		if errors.As(err, &bad) {
			problems = append(problems, bad)
		} else if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

// Owner is the number of the user whose batch it is.
func (s *Spool) Owner(id job.BatchID) (uid int, err error) {
	b, err := s.firstRecord(id)
	if err != nil {
		return -1, err
	}
	return b.Head.UID, nil
}
