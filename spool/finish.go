package spool

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// Lacks tells which contents the batch's jobs read, as pack.Blobs makes a
// manifest of them, and which of them have to come, in as many turns: each that
// was begun by itself, and then the others, as many as a message can name. It is called after the last job, and
// after the last turn once more: what was begun and turns out to be another
// content is lacking still. Small files are always wanted, larger ones unless
// the head has them and the asker may know it.
func (s *Submission) Lacks() (m pack.Manifest, turns []pack.Want) {
	slices.SortFunc(s.order, func(a, b *input) int { return bytes.Compare(a.sum[:], b.sum[:]) })
	sizes := make(map[string]int64, len(s.order))
	var whole []int
	for i, in := range s.order {
		sizes[hex.EncodeToString(in.sum[:])] = in.size
		switch {
		case in.have:
		case in.from() > 0:
			want := pack.WantOf(i)
			want.From = in.from()
			turns = append(turns, want)
		default:
			whole = append(whole, i)
		}
	}
	for ranges := range slices.Chunk(pack.WantOf(whole...).Ranges, pack.MaxRanges) {
		turns = append(turns, pack.Want{Ranges: ranges})
	}
	return pack.Blobs(sizes), turns
}

// Sink takes what pack.Receive unpacks of the manifest that Lacks gave.
func (s *Submission) Sink() pack.Sink { return inputSink{s} }

type inputSink struct{ s *Submission }

func (k inputSink) Put(_ int, e pack.Entry, from int64, r io.Reader) error {
	if e.Type != pack.File {
		return fmt.Errorf("%w: %.80q is no file", ErrInput, e.Path)
	}
	return k.s.put(e.Sum, e.Size, from, r)
}

// Check tells before the inputs come what Finish would say of the name: nil,
// or [ErrSame] with the batch, or [ErrTaken].
func (s *Submission) Check(free bool) (*Batch, error) {
	s.first.Head.Content = hex.EncodeToString(s.content.Sum(nil))
	for n := 1; ; n++ {
		b, err := s.head.compare(s.id.Numbered(n), s.first.Head, free)
		if !errors.Is(err, ErrTaken) || !free {
			return b, err
		}
	}
}

// compare says what there is under a name: nothing (nil), the submission mine
// (ErrSame), or another batch (ErrTaken). The same content under the name asked
// for is the same batch, unless the asker wants a new one by a free name.
func (s *Spool) compare(id job.BatchID, mine *job.Head, free bool) (*Batch, error) {
	if errors.Is(exists(s.batchDir(id)), fs.ErrNotExist) {
		return nil, nil
	}
	b, err := s.firstRecord(id)
	var bad *Problem
	if errors.As(err, &bad) {
		return nil, &TakenError{Batch: id, details: fmt.Sprintf(": it is there, and damaged: %v", bad)}
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, &TakenError{Batch: id}
	}
	if err != nil {
		return nil, classed(err)
	}
	switch {
	case b.Head.Content == mine.Content && b.Head.UID == mine.UID && (!free || b.Head.Submission == mine.Submission):
		if gone, err := s.deleted(b); gone || err != nil {
			return nil, errors.Join(err, fmt.Errorf("%q: %w, by a batch that is being deleted", id, ErrTaken))
		}
		if err := s.settle(id); err != nil {
			return nil, err
		}
		return b, fmt.Errorf("%q: %w", id, ErrSame)
	}
	return b, &TakenError{Batch: id, details: fmt.Sprintf(", by %.100q on %s", b.Head.Owner, b.Submitted.Format("2006-01-02"))}
}

// A TakenError is [ErrTaken], and says by whom.
type TakenError struct {
	Batch   job.BatchID
	details string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%q: %s%s", string(e.Batch), ErrTaken, e.details)
}

// Unwrap is ErrTaken.
func (e *TakenError) Unwrap() error { return ErrTaken }

// Bare is the error for one who may not know whose batch that is.
func (e *TakenError) Bare() error { return &TakenError{Batch: e.Batch} }

// settle makes the name of a batch that is there durable: who made it may not
// have come so far yet, and what is told of it must hold.
func (s *Spool) settle(id job.BatchID) error {
	if err := durable.Step("submit.same"); err != nil {
		return classed(err)
	}
	space, err := openDir(s.path("batches", id.Namespace()))
	if err != nil {
		return ofNamespace(id, err)
	}
	defer space.Close()
	return s.syncSpace(space)
}

// syncSpace makes durable the names in the directory of a namespace, which is open, and the
// names of namespaces. An error is ErrBroken.
func (s *Spool) syncSpace(space *os.File) error {
	if err := durable.Sync(space); err != nil {
		return broken(err)
	}
	return syncDirs([]string{s.path("batches")})
}

// Hold has the jobs held from the first moment of the batch on.
func (s *Submission) Hold() { s.hold = true }

// Finish makes the batch, durably and at once: before the rename that it ends
// with there is no batch, after it there is all of it. With free, the next free
// name is taken if the name asked for is not. The errors are [ErrInput]
// (something is missing), [ErrTaken], [ErrSame] with a Batch that has its ID
// and Head only, [ErrFull] and [ErrBroken]. The submission is over in any case.
// What it returns is for the goroutine that owns the state.
func (s *Submission) Finish(free bool) (b *Batch, err error) {
	defer func() {
		s.full = errors.Is(err, ErrFull)
		err = errors.Join(err, s.Abort())
	}()
	if err := s.complete(); err != nil {
		return nil, err
	}
	if err := s.nameArrivals(); err != nil {
		return nil, err
	}
	if err := s.syncBlobs(); err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		id := s.id.Numbered(n)
		b, err := s.head.compare(id, s.first.Head, free)
		if err == nil {
			if _, err := job.NameBatch("", string(id)); err != nil { // of no new batch
				return nil, fmt.Errorf("%w: %w", ErrInput, err)
			}
			b, err = s.claim(id)
		}
		if err == nil || !errors.Is(err, ErrTaken) && !errors.Is(err, fs.ErrExist) || !free && errors.Is(err, ErrTaken) {
			return b, err
		}
		if errors.Is(err, fs.ErrExist) {
			n-- // somebody was quicker: see who
		}
	}
}

// FreeName is the name that a submission as id would get now with free: id
// itself, or the first of its numbered names that no batch has, as far as the
// caller may see. It is safe for concurrent use.
func (s *Spool) FreeName(id job.BatchID) job.BatchID {
	for n := 1; ; n++ {
		if name := id.Numbered(n); exists(s.batchDir(name)) != nil {
			return name
		}
	}
}

// complete writes what is not yet written of the batch's files but the log.
func (s *Submission) complete() error {
	switch {
	case s.dir == "":
		return fmt.Errorf("%w: it is over", ErrInput)
	case s.spec == nil:
		return fmt.Errorf("%w: its specification is missing", ErrInput)
	case s.index.len() == 0:
		return fmt.Errorf("%w: it has no jobs", ErrInput)
	}
	for _, in := range s.order {
		if !in.have {
			return fmt.Errorf("%w: the file with the sum %x has not come", ErrInput, in.sum)
		}
	}
	head := s.first.Head
	head.Content, head.Jobs, head.Spec = hex.EncodeToString(s.content.Sum(nil)), s.index.len(), *s.spec
	if err := s.out.Flush(); err != nil {
		return classed(err)
	}
	if s.needs {
		if _, wrong, err := needsIn(s.lines, s.index.end); err != nil {
			return classed(err)
		} else if len(wrong) > 0 {
			return fmt.Errorf("%w: %w", ErrInput, job.NeedErrors(wrong))
		}
	}
	if s.tar != nil {
		if err := s.tar.Truncate(s.tarEnd + 2*tarBlock); err != nil {
			return classed(err)
		}
	}
	return nil
}

// syncBlobs makes the names of all blobs that the batch reads durable.
func (s *Submission) syncBlobs() error {
	if len(s.blobs) == 0 {
		return nil
	}
	if err := durable.Step("submit.blobs.sync"); err != nil {
		return err
	}
	dirs := []string{s.head.path("blobs")}
	for d := range s.blobs {
		dirs = append(dirs, d)
	}
	err := syncMany(dirs)
	if OfPath(err) { // one that may not be opened keeps this batch from being made
		return err
	}
	return broken(err)
}

// claim writes the log's first line, makes everything durable, and takes the
// name. It fails with fs.ErrExist if somebody else took it meanwhile.
func (s *Submission) claim(id job.BatchID) (*Batch, error) {
	s.first.Batch = id
	s.head.complete(&s.first)
	name := filepath.Join(s.dir, "log.jsonl")
	if err := durable.Step("submit.log"); err != nil {
		return nil, err
	}
	line := appendRecord(nil, &s.first)
	if len(line) > MaxLine {
		return nil, fmt.Errorf("%w: what its jobs have in common is %d bytes long, at most %d are allowed",
			ErrInput, len(line), MaxLine)
	}
	if s.hold {
		held := job.Record{Kind: job.KindHold, By: s.first.Head.Owner}
		s.head.complete(&held)
		line = appendRecord(line, &held)
	}
	if err := os.WriteFile(name, line, 0o640); err != nil {
		return nil, s.ofPlace(err)
	}
	if !s.spec.Private {
		if err := likeAbove(s.dir); err != nil {
			return nil, s.ofPlace(err)
		}
	}
	if err := durable.Step("submit.sync"); err != nil {
		return nil, s.ofPlace(err)
	}
	if err := durable.SyncTree(s.dir); err != nil {
		return nil, s.ofPlace(err)
	}
	log, err := durable.OpenLog(name, 0o640) // before there is a batch: what is there must not fail to be open
	if err != nil {
		return nil, s.ofPlace(err)
	}
	if err := s.named(id); err != nil {
		log.Close()
		return nil, err
	}
	s.index.trim()
	b := &Batch{ID: id, Head: *s.first.Head, Submitted: s.first.Time, seq: s.first.Seq,
		dir: s.head.batchDir(id), lines: s.lines, log: log, bare: log.Written(), named: true, adding: make(chan struct{}, 1)}
	b.names.Store(s.index)
	if s.hold {
		b.bare = 0
	}
	log.Moved(filepath.Join(b.dir, "log.jsonl"))
	s.lines = nil
	return b, nil
}

// named gives the batch its name, durably. When the name is there, an error
// leaves nothing but to start again.
func (s *Submission) named(id job.BatchID) error {
	space, err := openDir(s.head.path("batches", id.Namespace())) // before there is a name that must be synced
	if err != nil {
		return s.ofPlace(err)
	}
	defer space.Close()
	if err := durable.Step("submit.rename"); err != nil {
		return err
	}
	if err := durable.Publish(s.dir, s.head.batchDir(id)); errors.Is(err, fs.ErrExist) {
		return err
	} else if err != nil {
		return s.ofPlace(err)
	}
	s.dir = ""
	if err := durable.Step("submit.name"); err != nil {
		return err
	}
	return s.head.syncSpace(space)
}
