package spool

import (
	"bytes"
	"context"
	"encoding/hex"
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

// A Collected is what a collection has removed.
type Collected struct {
	Blobs int
	Bytes int64 // in them
	Temps int   // files and directories that were never finished, or are of no use any more
}

// ErrClock is why nothing is collected: the clock was set since the last look,
// so that ages mean nothing.
var ErrClock = errors.New("the clock was set by more than an hour")

// Collect removes, as dspool(5) tells under Collection, what is old and nobody
// needs: blobs that no batch reads any more, and what was never finished. keep
// is how long a closed batch of which not all is done keeps its inputs, if it
// does not say so itself. If a batch cannot be read, no blob is removed, and the
// error is a [*Problem]. It reads every jobs.jsonl of a batch that keeps its
// inputs, holds 32 bytes a blob, and is safe for concurrent use with everything
// else. Only one runs at a time; a second does nothing.
func (h *Head) Collect(ctx context.Context, keep time.Duration) (c Collected, err error) {
	if !h.steady() {
		return c, ErrClock
	}
	if !h.kept.begin() {
		return c, nil
	}
	defer h.kept.end()
	now := h.now()
	err = errors.Join(h.collectNew(ctx, &c, now), h.collectUploads(&c, now))
	named, nerr := h.named(ctx, keep, now)
	if nerr != nil {
		return c, errors.Join(err, nerr)
	}
	return c, errors.Join(err, h.collectBlobs(ctx, &c, named, now))
}

// collectNew removes submissions that this process does not fill.
func (h *Head) collectNew(ctx context.Context, c *Collected, now time.Time) error {
	names, err := fs.Glob(os.DirFS(h.dir), "batches/*/.new-*")
	for _, name := range names {
		name = h.path(name)
		info, serr := os.Lstat(name)
		if serr != nil || h.kept.fills(name) || !old(info, now, tempAge) {
			err = errors.Join(err, gone(serr))
			continue
		}
		if err := durable.Step("collect.new"); err != nil {
			return err
		}
		err = errors.Join(err, removeTree(ctx, name, info.IsDir()))
		c.Temps++
	}
	return err
}

// collectBlobs removes the blobs that are not named, and what never became one.
func (h *Head) collectBlobs(ctx context.Context, c *Collected, named *sums, now time.Time) error {
	dirs, err := os.ReadDir(h.path("blobs"))
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range dirs {
		list, err := os.ReadDir(h.path("blobs", d.Name()))
		errs = append(errs, err)
		for _, e := range list {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, h.collectBlob(c, named, d.Name(), e, now))
		}
	}
	return errors.Join(errs...)
}

func (h *Head) collectBlob(c *Collected, named *sums, dir string, e fs.DirEntry, now time.Time) error {
	name := h.path("blobs", dir, e.Name())
	temp := durable.IsTemp(e.Name())
	var sum key
	if !temp {
		if !isSum(e.Name()) {
			return nil // nobody's but a person's
		}
		if _, err := hex.Decode(sum[:], []byte(e.Name())); err != nil || named.has(sum) {
			return err
		}
	}
	age := blobAge
	if temp {
		age = tempAge
	}
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() || !old(info, now, age) {
		return gone(err)
	}
	if temp {
		if h.kept.fills(name) {
			return nil
		}
		c.Temps++
		return removeStep("collect.temp", name)
	}
	removed, err := h.kept.unlessUsed(sum, func() error { return removeStep("collect.blob", name) })
	if removed && err == nil {
		c.Blobs++
		c.Bytes += info.Size()
	}
	return err
}

func removeStep(step, name string) error {
	if err := durable.Step(step); err != nil {
		return err
	}
	return gone(os.Remove(name))
}

// named is the blobs that batches read which keep their inputs: all that are
// not closed, and of those that are closed the ones that may be tried again.
func (h *Head) named(ctx context.Context, keep time.Duration, now time.Time) (*sums, error) {
	ids, err := h.batchIDs()
	if err != nil {
		return nil, err
	}
	listed, err := h.listing()
	if err != nil {
		return nil, err
	}
	all := &sums{}
	for _, id := range ids {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err := h.nameBlobs(all, id, listed[id], keep, now)
		if errors.Is(exists(h.batchDir(id)), fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
	}
	all.sort()
	return all, nil
}

// nameBlobs adds the blobs that one batch keeps.
func (h *Head) nameBlobs(all *sums, id job.BatchID, said listing, keep time.Duration, now time.Time) error {
	b, err := h.firstRecord(id)
	if err != nil {
		return err
	}
	switch said.of(b.seq) {
	case job.KindDeleted:
		return nil
	case job.KindClosed:
		if s := b.Head.Spec.Keep; s != nil {
			keep = time.Duration(*s) * time.Second
		}
		if past := now.Sub(said.at); past >= 0 && past > keep {
			return nil
		}
		// No job ceases to be done.
		if jobs, done, err := h.counts(b, -1); done >= jobs || err != nil {
			return err
		}
	}
	spec := &b.Head.Spec
	all.add(spec.Inputs)
	if spec.Image != nil {
		all.add([]job.Input{*spec.Image})
	}
	return h.inputs(b, all.add)
}

// counts is how many jobs a batch has, and how many of them are done, as the first upto
// bytes of its log tell, or all of them if upto is negative.
func (s *Spool) counts(b *Batch, upto int64) (jobs, done int, err error) {
	jobs = b.Head.Jobs
	_, err = s.events(b, 0, upto, func(_ *logReader, rec *job.Record) error {
		switch rec.Kind {
		case job.KindDone:
			done++
		case job.KindAdded:
			jobs += rec.Jobs
		}
		return nil
	})
	return jobs, done, err
}

// inputs calls f for the inputs of each job of a batch that is not open. It ends at lines
// that do not count and are not whole: who writes them holds what they read.
func (s *Spool) inputs(b *Batch, f func([]job.Input)) error {
	log, err := os.Stat(filepath.Join(b.dir, "log.jsonl")) // before a line that is being written now counts
	if err != nil {
		return err
	}
	file, bad := b.openFile("jobs.jsonl")
	if bad != nil {
		return stop(bad)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var j job.Job
	err = eachLine(file, info.Size(), func(i int, at int64, text []byte) error {
		if err := readJob(text, job.JobLine(), &j); err != nil {
			return &Problem{Line: i + 1, Offset: at, Why: err.Error()}
		}
		f(j.Inputs)
		return nil
	})
	var p *Problem
	if errors.As(err, &p) {
		if p.Line > b.Head.Jobs {
			if jobs, _, err := s.counts(b, log.Size()); p.Line > jobs || err != nil {
				return err
			}
		}
		p.Batch, p.File, p.Stops = b.ID, batchFile(b.ID, "jobs.jsonl"), true
	}
	return err
}

// sums is a set of blobs, 32 bytes each.
type sums struct {
	list   []key
	sorted int // how many of them are sorted, each once
}

// add takes those of the inputs in that are blobs.
func (s *sums) add(in []job.Input) {
	for i := range in {
		var sum key
		if in[i].At != nil || !isSum(in[i].Sum) {
			continue
		}
		if _, err := hex.Decode(sum[:], []byte(in[i].Sum)); err != nil {
			panic(fmt.Sprintf("%q is a sum and not hexadecimal", in[i].Sum))
		}
		s.list = append(s.list, sum)
	}
	if len(s.list) > 2*max(s.sorted, 1<<15) {
		s.sort()
	}
}

func (s *sums) sort() {
	slices.SortFunc(s.list, compareKeys)
	s.list = slices.Compact(s.list)
	s.sorted = len(s.list)
}

// has says whether a sum is in the set, after sort.
func (s *sums) has(sum key) bool {
	_, found := slices.BinarySearchFunc(s.list, sum, compareKeys)
	return found
}

func compareKeys(a, b key) int { return bytes.Compare(a[:], b[:]) }
