package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// Live says whether a dsched has the spool.
func (s *Spool) Live() (bool, error) {
	live, err := check.Locked(s.path("run", "lock"))
	if live || err != nil {
		return live, err
	}
	return check.Locked(s.path("spool.json")) // somebody may have removed run/
}

// Check compares the spool in r.Dir with dspool(5), whether a dsched runs on it
// or not, and mends it if r.Mend says so. It reads all logs and lists all
// directories; with r.Sums it reads every result and input, too. 300,000 jobs
// that are over take two seconds and 160 MB. The errors are those of [Open],
// [ErrLocked] when it is to mend, and what the operating system refuses; what is
// wrong with the spool is no error but told.
func Check(ctx context.Context, r *check.Run) (err error) {
	s, err := Open(r.Dir)
	if err != nil {
		return err
	}
	r.Dir, r.Live = s.dir, s.Live
	c := &checker{Spool: s, run: r}
	c.setTree()
	if r.Mend {
		if err := c.mendRun(); err != nil {
			return err
		}
		if c.head, err = s.Lock(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.head.Close()) }()
	}
	if err := r.Unit(ctx, "the spool", func(u *check.Unit) error { return c.checkTop(ctx, u) }); err != nil {
		return err
	}
	if err := r.Unit(ctx, "head.jsonl", func(u *check.Unit) error { return c.checkHeadLog(ctx, u) }); err != nil {
		return err
	}
	// Blobs come before batches, which then miss those that were moved aside.
	if err := r.Unit(ctx, "blobs", func(u *check.Unit) error {
		c.blobs = c.blobs[:0]
		return c.tree.CheckDir(ctx, u, "blobs", "blobs")
	}); err != nil {
		return err
	}
	for _, dir := range c.blobs {
		if err := r.Unit(ctx, dir, func(u *check.Unit) error { return c.tree.CheckSeen(ctx, u, "blobs/<xx>", dir) }); err != nil {
			return err
		}
	}
	for _, name := range c.batches {
		id := batchAt(name)
		if err := r.Unit(ctx, string(id), func(u *check.Unit) error { return c.checkBatch(ctx, u, id) }); err != nil {
			return err
		}
	}
	if c.head == nil {
		return nil
	}
	if err := c.head.SyncPublished(); err != nil {
		return err
	}
	return c.listOpen()
}

// mendRun puts run/ right, in which the lock is: it is needed before anything else is mended.
func (c *checker) mendRun() error {
	info, err := os.Lstat(c.path("run"))
	if err == nil && !info.IsDir() {
		to, err := check.Aside(c.dir, "run")
		if err != nil {
			return err
		}
		c.before = append(c.before, check.Finding{Kind: check.Strange, Path: "run", What: "it should be a directory", Cure: "move it to " + to})
	}
	if err == nil && info.IsDir() && info.Mode().Perm()&0o700 != 0o700 && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
		mode := info.Mode().Perm() | 0o700
		if err := os.Chmod(c.path("run"), mode); err != nil {
			return err
		}
		c.before = append(c.before, check.Finding{Kind: check.Strange, Path: "run", What: fmt.Sprintf("its mode is %04o, less than 0700", info.Mode().Perm()),
			Cure: fmt.Sprintf("set its mode to %04o", mode)})
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() { // Lock makes it
		c.before = append(c.before, check.Finding{Kind: check.Damaged, Path: "run", What: "the directory is missing", Cure: "make it, empty"})
	}
	return nil
}

// A checker is one check of one spool.
type checker struct {
	*Spool
	headLog
	head   *Head // nil: nothing is mended
	run    *check.Run
	tree   *check.Tree
	before []check.Finding // of run/, which was mended before the lock was taken
	blind  bool            // some lines of head.jsonl cannot be read
	noList string          // why head.jsonl tells of no batch; empty: it does
	relist bool            // it is to be made anew, when every seq is known
	reopen []job.BatchID   // to be listed as open, when every seq is known

	batches, blobs []string // the directories of batches, and those in blobs/
}

// batchAt is the batch that has a directory.
func batchAt(dir string) job.BatchID { return job.BatchID(strings.TrimPrefix(dir, "batches/")) }

// listOpen appends to head.jsonl that batches are open, or makes it anew with all of them.
func (c *checker) listOpen() (err error) {
	if c.relist {
		return c.relistAll()
	}
	if len(c.reopen) == 0 {
		return nil
	}
	if c.head.log, err = durable.OpenLog(c.path("head.jsonl"), 0o640); err != nil {
		return err
	}
	for _, id := range c.reopen {
		c.head.list(&job.Record{Kind: job.KindOpened, Batch: id})
	}
	return c.head.Commit()
}

// relistAll makes head.jsonl anew, in one step, with every batch as open. They are also
// listed as closed before, since inputs of jobs that are over may have been collected.
func (c *checker) relistAll() error {
	if err := c.head.syncNamespaces(); err != nil { // a dsched that was killed may not have done so
		return err
	}
	var text []byte
	for _, name := range c.batches {
		for _, kind := range []job.Kind{job.KindClosed, job.KindOpened} {
			rec := &job.Record{Kind: kind, Batch: batchAt(name)}
			c.head.complete(rec)
			text = appendRecord(text, rec)
		}
	}
	return durable.WriteFile(c.path("head.jsonl"), text, 0o640)
}

// seenSeq makes sure that a record which mends something gets another seq.
func (c *checker) seenSeq(seq uint64) {
	if c.head != nil {
		c.head.seen(seq)
	}
}

// checkHeadLog reads head.jsonl and compares it with the directories of batches.
func (c *checker) checkHeadLog(ctx context.Context, u *check.Unit) error {
	if err := c.foldHeadLog(u); err != nil {
		return err
	}
	c.batches = c.batches[:0]
	if err := c.tree.CheckDir(ctx, u, "batches", "batches"); err != nil {
		return err
	}
	if c.noList != "" {
		c.reportNoList(u)
	}
	gone := make(map[job.BatchID]job.Kind)
	for id, said := range c.listed {
		if said.kind != job.KindDeleted {
			gone[id] = said.kind
		}
	}
	for _, name := range c.batches {
		delete(gone, batchAt(name))
	}
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		u.Report(check.Damaged, "batches/"+string(id), fmt.Sprintf("the directory of a batch that is %s is missing", gone[id]), "nothing: put it back (was it moved away?)")
	}
	return nil
}

// reportNoList finds that head.jsonl is missing, or is empty although there are batches.
func (c *checker) reportNoList(u *check.Unit) {
	what, n := c.noList, len(c.batches)
	if c.noList == emptyList && !slices.ContainsFunc(c.batches, c.isBegun) {
		return
	}
	if n > 0 {
		what += ", and there "
		if n == 1 {
			what += "is 1 batch"
		} else {
			what += fmt.Sprintf("are %d batches", n)
		}
		what += "; which are over and which nodes are drained is forgotten"
	}
	u.Report(check.Damaged, "head.jsonl", what, "make it anew, with every batch as open").Mend =
		func() error { c.relist = true; return nil }
}

// isBegun reports whether the log of a batch has a record of which head.jsonl is told first:
// any but those that come with the submission.
func (c *checker) isBegun(dir string) bool {
	f, err := check.Open(c.path(dir, "log.jsonl"))
	if err != nil {
		return false
	}
	defer f.Close()
	begun := false
	l := newLogReader(f, -1, batchAt(dir), dir+"/log.jsonl")
	l.eachRecord(stop, func(rec *job.Record) error {
		begun = rec.Kind != job.KindBatch && rec.Kind != job.KindHold
		if begun {
			return io.EOF
		}
		return nil
	})
	return begun
}

// emptyList is the noList of a new spool, and of a file that was emptied.
const emptyList = "it is empty"

// foldHeadLog reads head.jsonl.
func (c *checker) foldHeadLog(u *check.Unit) error {
	const name = "head.jsonl"
	c.headLog, c.blind, c.noList = newHeadLog(), false, ""
	f, err := check.Open(c.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		c.noList = "it is missing"
		return nil
	}
	if err != nil {
		return c.unreadable(u, name, err, "nothing: dsched makes it anew, and looks at every batch")
	}
	defer f.Close()
	d := damages{u: u, cure: "nothing: dsched passes over it, and looks at every batch that it may have told of"}
	l := newLogReader(f, -1, "", name)
	err = c.readHeadLog(l, func(p *Problem) error {
		c.blind = true
		return c.report(&d, p)
	})
	c.seenSeq(l.seq)
	u.Count(l.next)
	if l.next == 0 && (err == nil || err == errTorn) {
		c.noList = emptyList // or will be, when its end is cut off
	}
	if err == errTorn {
		return c.checkTorn(u, f, l)
	}
	return err
}

// report finds a Problem. An error is none of a file.
func (c *checker) report(d *damages, p *Problem) error {
	if p.err != nil {
		return c.unreadable(d.u, p.File, p.err, d.cure)
	}
	d.add(check.Finding{Kind: check.Damaged, Path: p.File, Line: p.Line, Byte: p.Offset, After: p.after, What: p.Why})
	return nil
}

// unreadable finds a file that could not be opened or read. Other errors than
// those of a file come back.
func (c *checker) unreadable(u *check.Unit, name string, err error, cure string) error {
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		u.Report(check.Damaged, name, "it is missing", cure)
	case check.Broken(err):
		u.Report(check.Damaged, name, "it cannot be read: "+check.Reason(err), cure)
	default:
		return err
	}
	return nil
}

// damages are findings of one file with one cure, the first of them told and the
// others counted: after one bad line there may be a million.
type damages struct {
	u    *check.Unit
	cure string
	n    int
	more *check.Finding
}

// maxDamages is how many findings of one sort are told of one file.
const maxDamages = 8

func (d *damages) add(f check.Finding) {
	f.Cure = cmp.Or(f.Cure, d.cure)
	switch d.n++; {
	case d.n <= maxDamages:
		d.u.Find(f)
		return
	case d.n == maxDamages+1:
		d.more = d.u.Report(f.Kind, f.Path, "", f.Cure)
	}
	d.more.What = fmt.Sprintf("%d more of that", d.n-maxDamages)
}

// damaged adds a finding that is in no line.
func (d *damages) damaged(path, what string) {
	d.add(check.Finding{Kind: check.Damaged, Path: path, What: what})
}

// checkTorn judges what follows the last whole line of a log, which l has read.
func (c *checker) checkTorn(u *check.Unit, f *os.File, l *logReader) error {
	p, err := l.tornEnd(f)
	if err != nil {
		return c.unreadable(u, l.file, err, "nothing: put it back from a copy")
	}
	found := u.Find(check.Finding{Kind: check.Torn, Path: p.File, Line: p.Line, Byte: p.Offset, After: p.after, What: p.Why,
		Cure: "cut it off and keep it beside, as " + l.file + ".N.broken"})
	if p.Stops {
		found.Kind, found.Cure = check.Damaged, "nothing: put the newline back, if that is all that is wrong"
	} else if c.head != nil {
		found.Mend = func() error {
			f, err := check.Open(c.path(l.file))
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = c.head.cutTorn(f, l)
			return err
		}
	}
	return nil
}

// count is "1 job" or "3 jobs".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
