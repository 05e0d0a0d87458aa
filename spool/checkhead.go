package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// headLog looks at head.jsonl and compares it with the directories of batches.
func (c *checker) headLog(u *check.Unit) error {
	if err := c.foldHeadLog(u); err != nil {
		return err
	}
	if err := c.spaces(u); err != nil {
		return err
	}
	there := make(map[job.BatchID]bool, len(c.ids))
	for _, id := range c.ids {
		there[id] = true
	}
	var gone []string
	for id, said := range c.listed {
		if said.kind != job.KindDeleted && !there[id] {
			gone = append(gone, string(id))
		}
	}
	slices.Sort(gone)
	for _, id := range gone {
		u.Find(check.Finding{Kind: check.Damaged, Path: "batches/" + id,
			What: fmt.Sprintf("the directory of a batch that is %s is missing", c.listed[job.BatchID(id)].kind),
			Cure: "nothing: put it back (was it moved away?)"})
	}
	return nil
}

func (c *checker) foldHeadLog(u *check.Unit) error {
	const name = "head.jsonl"
	c.listed, c.blind = make(map[job.BatchID]listing), false
	f, err := check.Open(c.path(name))
	if err != nil {
		return c.unreadable(u, name, err, "nothing: dsched makes it anew, and looks at every batch")
	}
	defer f.Close()
	l := newLogReader(f, -1, "", name)
	d := damages{u: u, cure: "nothing: dsched passes over it, and looks at every batch that it may have told of"}
	for {
		var rec job.Record
		err := l.read(&rec)
		var bad *Problem
		switch {
		case err == io.EOF:
			u.Count(l.next)
			return nil
		case errors.Is(err, errTorn):
			u.Count(l.next)
			return c.tornLog(u, f, l)
		case errors.As(err, &bad):
			c.blind = true
			d.add(damage(bad, l.seq, d.cure))
			if l.next == l.at {
				return nil // a line without end
			}
			continue
		case err != nil:
			return c.unreadable(u, name, err, d.cure)
		}
		c.seenSeq(rec.Seq)
		switch rec.Kind {
		case job.KindOpened, job.KindClosed, job.KindDeleted:
			if _, err := job.ParseBatchID(string(rec.Batch)); err != nil {
				d.add(damage(l.problem(err.Error()), l.seq, d.cure))
				continue
			}
			c.listed[rec.Batch] = c.listed[rec.Batch].then(&rec)
		case job.KindNode, job.KindDrained, job.KindResumed:
		default:
			d.add(damage(l.problem(fmt.Sprintf("unknown kind of event %.40q", rec.Kind)), l.seq, d.cure))
		}
	}
}

func (c *checker) seenSeq(seq uint64) {
	if c.head != nil {
		c.head.seen(seq)
	}
}

// damages are findings of one file, the first of them told and the others
// counted: after one bad line there may be a million.
type damages struct {
	u    *check.Unit
	cure string
	n    int
	more *check.Finding
}

// maxDamages is how many findings of one sort are told of one file.
const maxDamages = 8

func (d *damages) add(f check.Finding) {
	d.n++
	if d.n <= maxDamages {
		d.u.Find(f)
		return
	}
	if d.n == maxDamages+1 {
		d.u.Find(check.Finding{Kind: f.Kind, Path: f.Path, What: "more of that", Cure: f.Cure})
		d.more = d.u.Last()
	}
	d.more.What = fmt.Sprintf("%d more of that", d.n-maxDamages)
}

// tornLog judges what follows the last whole line of a log, which l has read.
func (c *checker) tornLog(u *check.Unit, f *os.File, l *logReader) error {
	ok, err := torn(f, l.next)
	if err != nil {
		return c.unreadable(u, l.file, err, "nothing: put it back from a copy")
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !ok && l.batch != "" {
		l.n++
		u.Find(damage(l.problem("the line does not end in a newline"), l.seq, "nothing: put the newline back, if that is all that is wrong"))
		return nil
	}
	found := check.Finding{Kind: check.Torn, Path: l.file, Line: l.n + 1, Byte: l.next, After: l.seq,
		What: fmt.Sprintf("the last line is unfinished: %d bytes that nobody was told of", info.Size()-l.next),
		Cure: "cut it off and keep it beside, as " + l.file + ".N.broken"}
	if c.head != nil {
		found.Mend = func() error {
			f, err := os.Open(c.path(l.file))
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = c.head.cutTorn(f, l)
			return err
		}
	}
	u.Find(found)
	return nil
}

// spaces lists the batches.
func (c *checker) spaces(u *check.Unit) error {
	c.ids = c.ids[:0]
	spaces, err := c.list(u, "batches")
	if err != nil {
		return err
	}
	for _, ns := range spaces {
		name := "batches/" + ns.Name()
		if job.CheckName(ns.Name()) != nil {
			u.Odd(name, "it is not the name of a namespace")
			continue
		}
		if !c.wantDir(u, name, ns, 0o755) {
			continue
		}
		list, err := c.list(u, name)
		if err != nil {
			return err
		}
		for _, e := range list {
			c.space(u, ns.Name(), e)
		}
	}
	return nil
}

func (c *checker) space(u *check.Unit, ns string, e fs.DirEntry) {
	name := "batches/" + ns + "/" + e.Name()
	switch {
	case strings.HasPrefix(e.Name(), ".new-") && e.IsDir():
		u.Find(check.Finding{Kind: check.Left, Path: name, What: "a submission that was cut short, and whose sender was told nothing", Cure: starts})
	case job.CheckName(e.Name()) != nil:
		u.Odd(name, "it is not the name of a batch")
	case c.wantDir(u, name, e, 0o755):
		c.ids = append(c.ids, job.NewBatchID(ns, e.Name()))
	}
}

// incoming looks at submissions that wait. Their files are their owners'.
func (c *checker) incoming(u *check.Unit) error {
	list, err := c.list(u, "incoming")
	for _, e := range list {
		name := "incoming/" + e.Name()
		info, err := e.Info()
		switch {
		case err != nil: // taken meanwhile
		case durable.IsTemp(e.Name()):
			if time.Since(info.ModTime()) > tempAge {
				u.Find(check.Finding{Kind: check.Left, Path: name, What: "what a dsubmit has left that died", Cure: "nothing: dsched removes it"})
			}
		case job.Token(e.Name()).Check() != nil || !info.Mode().IsRegular():
			u.Find(check.Finding{Kind: check.Strange, Path: name, What: "it is not a submission",
				Cure: "nothing: dsched moves it to rejected/"})
		case c.run.Sums:
			if err := c.drop(u, name); err != nil {
				return err
			}
		}
	}
	return err
}

// drop compares a file of incoming/ with its last line.
func (c *checker) drop(u *check.Unit, name string) error {
	f, err := check.Open(c.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	const cure = "nothing: dsched moves it to rejected/"
	if err != nil {
		return c.unreadable(u, name, err, cure)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := max(0, info.Size()-int64(endLen))
	sum := sha256.New()
	n, err := io.Copy(sum, io.NewSectionReader(f, 0, size))
	u.Count(n)
	end := make([]byte, endLen)
	if err == nil {
		_, err = io.ReadFull(io.NewSectionReader(f, size, int64(endLen)), end)
	}
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return c.unreadable(u, name, err, cure)
	}
	if string(end) != fmt.Sprintf("{\"sha256\":\"%x\"}\n", sum.Sum(nil)) {
		u.Find(check.Finding{Kind: check.Damaged, Path: name, What: "its last line is not the sum of the others", Cure: cure})
	}
	return nil
}

// rejected looks at what was refused: each has a file that says why.
func (c *checker) rejected(u *check.Unit) error {
	list, err := c.list(u, "rejected")
	there := make(map[string]bool, len(list))
	for _, e := range list {
		there[e.Name()] = true
	}
	for _, e := range list {
		name := "rejected/" + e.Name()
		of, why := strings.CutSuffix(e.Name(), ".why")
		switch {
		case unfinished(u, name, e):
		case why && !there[of]:
			u.Find(check.Finding{Kind: check.Left, Path: name, What: "a rejection that was cut short",
				Cure: "nothing: dsched rejects the file again"})
		case !why && !there[e.Name()+".why"]:
			u.Find(check.Finding{Kind: check.Strange, Path: name, What: "nothing says why it was refused", Cure: "nothing: remove it when it is of no use"})
		}
	}
	return err
}

// blobs looks at the input files that batches share.
func (c *checker) blobs(ctx context.Context) error {
	var dirs []string
	err := c.run.Unit(ctx, "blobs", func(u *check.Unit) error {
		dirs = dirs[:0]
		list, err := c.list(u, "blobs")
		for _, e := range list {
			name := "blobs/" + e.Name()
			if len(e.Name()) != 2 || strings.Trim(e.Name(), "0123456789abcdef") != "" {
				u.Odd(name, "it is not the beginning of a sum")
			} else if c.wantDir(u, name, e, 0o750) {
				dirs = append(dirs, name)
			}
		}
		return err
	})
	for _, dir := range dirs {
		if err != nil {
			return err
		}
		err = c.run.Unit(ctx, dir, func(u *check.Unit) error { return c.blobDir(ctx, u, dir) })
	}
	return err
}

func (c *checker) blobDir(ctx context.Context, u *check.Unit, dir string) error {
	list, err := os.ReadDir(c.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // collected meanwhile
	}
	if err != nil {
		return c.unreadable(u, dir, err, "nothing: put it back from a copy")
	}
	for _, e := range list {
		name := dir + "/" + e.Name()
		switch {
		case unfinished(u, name, e):
		case !isSum(e.Name()) || e.Name()[:2] != dir[len("blobs/"):]:
			u.Odd(name, "it is not named by a sum")
		case c.wantFile(u, name, e, 0o640) && c.run.Sums:
			u.Files++
			if err := u.Named(ctx, name, e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameTarHeader says whether b is the header of a file in files.tar.
func sameTarHeader(b []byte, sum string, size int64) bool {
	want := make([]byte, tarBlock)
	return tarHeader(want, sum, size) == nil && bytes.Equal(b, want)
}
