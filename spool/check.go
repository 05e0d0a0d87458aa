package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// Live says whether a dsched has the spool. It holds the lock itself for a
// moment, which Lock waits out.
func (s *Spool) Live() (bool, error) {
	f, err := os.OpenFile(s.path("run", "lock"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return true, nil
	}
	return false, err
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
	if r.Mend {
		if c.head, err = s.Lock(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.head.Close()) }()
	}
	if err := r.Unit(ctx, "the spool", c.top); err != nil {
		return err
	}
	if err := r.Unit(ctx, "head.jsonl", c.headLog); err != nil {
		return err
	}
	for _, id := range c.ids {
		if err := r.Unit(ctx, string(id), func(u *check.Unit) error { return c.batch(ctx, u, id) }); err != nil {
			return err
		}
	}
	if err := c.blobs(ctx); err != nil || c.head == nil {
		return err
	}
	if err := c.head.SyncPublished(); err != nil {
		return err
	}
	return c.listOpen()
}

// A checker is one check of one spool.
type checker struct {
	*Spool
	head   *Head // nil: nothing is mended
	run    *check.Run
	listed map[job.BatchID]listing
	blind  bool          // some lines of head.jsonl cannot be read
	ids    []job.BatchID // of the directories below batches/
	reopen []job.BatchID // to be listed as open, when every seq is known
}

// listOpen appends to head.jsonl that batches are open.
func (c *checker) listOpen() (err error) {
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

// starts is the cure of what is left to the next dsched.
const starts = "nothing: dsched removes it when it starts"

// list reads a directory of the spool. One that is missing is found.
func (c *checker) list(u *check.Unit, dir string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(c.path(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name := c.path(dir)
		u.Find(check.Finding{Kind: check.Damaged, Path: dir, What: "the directory is missing", Cure: "make it, empty",
			Mend: func() error { return errors.Join(os.Mkdir(name, 0o750), durable.SyncDir(path.Dir(name))) }})
		return nil, nil
	case err != nil && check.Broken(err):
		u.Find(check.Finding{Kind: check.Damaged, Path: dir, What: "it cannot be listed: " + check.Reason(err), Cure: "nothing: put it back from a copy"})
		return list, nil
	}
	return list, err
}

// unreadable finds a file that could not be opened or read. Other errors than
// those of a file come back.
func (c *checker) unreadable(u *check.Unit, name string, err error, cure string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		u.Find(check.Finding{Kind: check.Damaged, Path: name, What: "it is missing", Cure: cure})
	case check.Broken(err):
		u.Find(check.Finding{Kind: check.Damaged, Path: name, What: "it cannot be read: " + check.Reason(err), Cure: cure})
	default:
		return err
	}
	return nil
}

// wantDir finds what should be a directory and is none, and a mode that is too
// open.
func (c *checker) wantDir(u *check.Unit, name string, e fs.DirEntry, most fs.FileMode) (ok bool) {
	info, err := e.Info()
	if err != nil {
		return false // it has gone meanwhile
	}
	if !info.IsDir() {
		u.Odd(name, "it should be a directory")
		return false
	}
	u.Mode(name, info, c.uid, most)
	return true
}

// wantFile is wantDir for a regular file.
func (c *checker) wantFile(u *check.Unit, name string, e fs.DirEntry, most fs.FileMode) (ok bool) {
	info, err := e.Info()
	if err != nil {
		return false
	}
	if !info.Mode().IsRegular() {
		u.Odd(name, "it should be a regular file")
		return false
	}
	u.Mode(name, info, c.uid, most)
	return true
}

// unfinished finds a file that was being written, and reports whether it is one.
func unfinished(u *check.Unit, name string, e fs.DirEntry) bool {
	if !durable.IsTemp(e.Name()) || e.IsDir() {
		return false
	}
	u.Find(check.Finding{Kind: check.Left, Path: name, What: "a file that was being written", Cure: starts})
	return true
}

// top looks at what lies in the spool's own directory and in the small ones.
func (c *checker) top(u *check.Unit) error {
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, e := range list {
		there[e.Name()] = true
		c.topEntry(u, e)
	}
	for _, d := range tree {
		if !there[d.name] {
			if _, err := c.list(u, d.name); err != nil {
				return err
			}
		}
	}
	for _, look := range []func(*check.Unit) error{c.past, c.incoming, c.rejected, c.nodes, c.keys, c.runDir, c.trash, c.uploadDirs} {
		if err := look(u); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) topEntry(u *check.Unit, e fs.DirEntry) {
	name := e.Name()
	for _, d := range tree {
		if d.name == name {
			c.wantDir(u, name, e, d.most)
			return
		}
	}
	switch {
	case slices.Contains([]string{"spool.json", "head.jsonl", "past.jsonl", "ballast"}, name), broken(name, "head.jsonl"):
		c.wantFile(u, name, e, 0o640)
	case name == "README" || name == "head.yaml" || name == check.Found || name == "lost+found":
	case name == "uploads":
		c.wantDir(u, name, e, 0o700)
	case unfinished(u, name, e):
	default:
		u.Odd(name, "nothing of that name belongs into a spool")
	}
}

// broken says whether name is what was cut off the end of the log base.
func broken(name, base string) bool {
	n, ok := strings.CutPrefix(name, base+".")
	n, ok2 := strings.CutSuffix(n, ".broken")
	return ok && ok2 && n != "" && strings.Trim(n, "0123456789") == ""
}

func (c *checker) nodes(u *check.Unit) error {
	list, err := c.list(u, "nodes")
	for _, e := range list {
		name := "nodes/" + e.Name()
		node, ok := strings.CutSuffix(e.Name(), ".json")
		switch {
		case ok && job.CheckName(node) == nil:
			c.wantFile(u, name, e, 0o640)
		case unfinished(u, name, e):
		default:
			u.Odd(name, "it is not the file of a node")
		}
	}
	return err
}

func (c *checker) runDir(u *check.Unit) error {
	list, err := c.list(u, "run")
	for _, e := range list {
		name := "run/" + e.Name()
		switch {
		case e.Name() == "lock":
			c.wantFile(u, name, e, 0o640)
		case e.Name() == "socket" && e.Type()&fs.ModeSocket != 0:
		default:
			u.Odd(name, "nothing of that name belongs there")
		}
	}
	return err
}

func (c *checker) trash(u *check.Unit) error {
	list, err := c.list(u, "trash")
	for _, e := range list {
		u.Find(check.Finding{Kind: check.Left, Path: "trash/" + e.Name(), What: "a deleted batch, or a part of it", Cure: "nothing: dsched removes it"})
	}
	return err
}

// damage is a Finding of a Problem.
func damage(p *Problem, after uint64, cure string) check.Finding {
	return check.Finding{Kind: check.Damaged, Path: p.File, Line: p.Line, Byte: p.Offset, After: after, What: p.Why, Cure: cure}
}

// count is "1 job" or "3 jobs".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// uploadDirs looks at what users have sent of inputs; a spool need not have it.
func (c *checker) uploadDirs(u *check.Unit) error {
	list, err := os.ReadDir(c.path("uploads"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, d := range list {
		dir := "uploads/" + d.Name()
		if _, err := strconv.ParseUint(d.Name(), 10, 32); err != nil {
			u.Odd(dir, "it is not the number of a user")
			continue
		}
		if !c.wantDir(u, dir, d, 0o700) {
			continue
		}
		files, err := os.ReadDir(c.path(dir))
		if err != nil {
			return err
		}
		for _, e := range files {
			sum, token, begun := strings.Cut(e.Name(), ".")
			if !isSum(sum) || begun && job.Token(token).Check() != nil {
				u.Odd(dir+"/"+e.Name(), "it is not named by a sum")
				continue
			}
			c.wantFile(u, dir+"/"+e.Name(), e, 0o600)
		}
	}
	return err
}
