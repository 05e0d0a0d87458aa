package spool

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// A place is what may be at paths of a spool, as FILES in dspool(5) has it.
type place struct {
	path  string      // with names of words for what differs
	mode  fs.FileMode // the type that is wanted, and the greatest permissions; see anything
	only  bool        // another type is not of this place
	odd   string      // of a directory: what is said of anything in it that has no place
	temps bool        // of a directory: files that are being written may be in it
	deep  bool        // of a directory: what is in it is looked at with it
	look  func(c *checker, u *check.Unit, name string) error
}

// anything is the mode of a place of which nothing is wanted.
const anything = fs.ModeIrregular

// inBatch is the directory of a batch, and its slash.
const inBatch = "batches/<name>/<name>/"

// layout is every place of a spool, but for what is in staging/, out/, attempts/ and
// manifests/, which logs tell. The first one counts that fits.
var layout = []place{
	{path: ".", odd: "nothing of that name belongs into a spool", temps: true},
	{path: "spool.json", mode: 0o640},
	{path: "README", mode: anything},
	{path: "head.yaml", mode: anything},
	{path: "head.jsonl", mode: 0o640},
	{path: "head.jsonl.<number>.broken", mode: 0o640},
	{path: "past.jsonl", mode: 0o640},
	{path: "ballast", mode: 0o640},
	{path: check.Found, mode: anything},
	{path: "lost+found", mode: anything},
	{path: "incoming", mode: fs.ModeDir | 0o773},
	{path: "incoming/<any>", mode: anything, look: (*checker).checkSubmission},
	{path: "rejected", mode: fs.ModeDir | 0o755, temps: true},
	{path: "rejected/<any>", mode: anything, look: (*checker).checkRejected},
	{path: "blobs", mode: fs.ModeDir | 0o750, odd: "it is not the beginning of a sum"},
	{path: "blobs/<xx>", mode: fs.ModeDir | 0o750, odd: "it is not named by a sum", temps: true, look: (*checker).addBlobDir},
	{path: "blobs/<xx>/<blob>", mode: 0o640, look: (*checker).checkBlob},
	{path: "uploads", mode: fs.ModeDir | 0o700, odd: "it is not the number of a user"},
	{path: "uploads/<uid>", mode: fs.ModeDir | 0o700, odd: "it is not named by a sum", deep: true},
	{path: "uploads/<uid>/<sum>", mode: 0o600},
	{path: "uploads/<uid>/<sum>.<token>", mode: 0o600},
	{path: "batches", mode: fs.ModeDir | 0o755, odd: "it is not the name of a namespace"},
	{path: "batches/<name>", mode: fs.ModeDir | 0o755, odd: "it is not the name of a batch", deep: true},
	{path: "batches/<name>/.new-<any>", mode: fs.ModeDir | 0o777, only: true, look: (*checker).checkNew},
	{path: "batches/<name>/<name>", mode: fs.ModeDir | 0o755, odd: "nothing of that name belongs into a batch", temps: true, look: (*checker).addBatch},
	{path: inBatch + "batch.yaml", mode: 0o640},
	{path: inBatch + "jobs.jsonl", mode: 0o640},
	{path: inBatch + "files.tar", mode: 0o640},
	{path: inBatch + "log.jsonl", mode: 0o640},
	{path: inBatch + "log.jsonl.<number>.broken", mode: anything},
	{path: inBatch + "staging", mode: fs.ModeDir | 0o750},
	{path: inBatch + "out", mode: fs.ModeDir | 0o750},
	{path: inBatch + "attempts", mode: fs.ModeDir | 0o750},
	{path: inBatch + "manifests", mode: fs.ModeDir | 0o750},
	{path: inBatch + "build", mode: fs.ModeDir | 0o750, odd: "it is not what a build printed", temps: true},
	{path: inBatch + "build/<name>.log", mode: 0o640},
	{path: "nodes", mode: fs.ModeDir | 0o755, odd: "it is not the file of a node", temps: true},
	{path: "nodes/<name>.json", mode: 0o640},
	{path: "keys", mode: fs.ModeDir | 0o700, odd: "it is no key, and no list of nodes", temps: true},
	{path: "keys/head", mode: 0o600},
	{path: "keys/nodes", mode: 0o600, look: (*checker).checkNodeList},
	{path: "keys/ssh_key", mode: 0o600},
	{path: "keys/ssh_key.pub", mode: 0o644},
	{path: "keys/known_hosts<any>", mode: 0o644},
	{path: "run", mode: fs.ModeDir | 0o755, odd: "nothing of that name belongs there"},
	{path: "run/lock", mode: 0o640},
	{path: "run/socket", mode: fs.ModeSocket | 0o777, only: true},
	{path: "trash", mode: fs.ModeDir | 0o700},
	{path: "trash/<any>", mode: anything, look: (*checker).checkTrash},
}

// words is what may stand for a word in the path of a place, of which dir is the
// directory.
var words = map[string]func(s, dir string) bool{
	"any":    func(s, _ string) bool { return true },
	"name":   func(s, _ string) bool { return job.CheckName(s) == nil },
	"token":  func(s, _ string) bool { return job.Token(s).Check() == nil },
	"sum":    func(s, _ string) bool { return isSum(s) },
	"blob":   func(s, dir string) bool { return isSum(s) && s[:2] == path.Base(dir) },
	"xx":     func(s, _ string) bool { return len(s) == 2 && strings.Trim(s, "0123456789abcdef") == "" },
	"number": func(s, _ string) bool { return s != "" && strings.Trim(s, "0123456789") == "" },
	"uid":    func(s, _ string) bool { _, err := strconv.ParseUint(s, 10, 32); return err == nil },
}

// fits says that an element of a path, in dir, is as one of a place has it.
func fits(pattern, name, dir string) bool {
	before, rest, ok := strings.Cut(pattern, "<")
	if !ok {
		return pattern == name
	}
	name, ok = strings.CutPrefix(name, before)
	word, after, _ := strings.Cut(rest, ">")
	end := len(name) - len(after)
	if next := strings.IndexByte(after, '<'); next >= 0 {
		end = strings.Index(name, after[:next])
	}
	return ok && end >= 0 && words[word](name[:end], dir) && fits(after, name[end:], dir)
}

// placesIn is the places by their directories.
var placesIn = func() map[string][]*place {
	in := make(map[string][]*place)
	for i := range layout {
		dir := path.Dir(layout[i].path)
		in[dir] = append(in[dir], &layout[i])
	}
	return in
}()

// checkDir lists a directory of the spool, at the place of that path, and compares what
// is in it with the places there.
func (c *checker) checkDir(u *check.Unit, at, dir string) error {
	list, err := c.list(u, dir)
	return errors.Join(c.checkList(u, at, dir, list), err)
}

// checkList is checkDir when the directory was listed.
func (c *checker) checkList(u *check.Unit, at, dir string, list []fs.DirEntry) error {
	of := &layout[slices.IndexFunc(layout, func(p place) bool { return p.path == at })]
	for _, e := range list {
		name := path.Join(dir, e.Name())
		i := slices.IndexFunc(placesIn[at], func(p *place) bool {
			return fits(path.Base(p.path), e.Name(), dir) && (!p.only || p.mode.Type() == e.Type())
		})
		if temp := of.temps && durable.IsTemp(e.Name()) && !e.IsDir(); temp {
			u.Report(check.Left, name, "a file that was being written", starts)
			continue
		}
		if i < 0 {
			u.Odd(name, of.odd)
			continue
		}
		p := placesIn[at][i]
		if p.mode != anything && !c.checkMode(u, name, e, p.mode) {
			continue
		}
		var err error
		if p.look != nil {
			err = p.look(c, u, name)
		} else if p.deep {
			err = c.checkDir(u, p.path, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMode finds what is of another type than it should be, which is false, or may be
// read or written by more people.
func (c *checker) checkMode(u *check.Unit, name string, e fs.DirEntry, want fs.FileMode) bool {
	info, err := e.Info()
	switch {
	case err != nil:
		return false // it has gone meanwhile
	case info.Mode().Type() == want.Type():
		u.Mode(name, info, c.uid, want.Perm())
		return true
	case want.IsDir():
		u.Odd(name, "it should be a directory")
	default:
		u.Odd(name, "it should be a regular file")
	}
	return false
}

// list reads a directory of the spool. One that is missing is found.
func (c *checker) list(u *check.Unit, dir string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(c.path(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name := c.path(dir)
		u.Report(check.Damaged, dir, "the directory is missing", "make it, empty").Mend = func() error {
			return errors.Join(os.Mkdir(name, 0o750), durable.SyncDir(path.Dir(name)))
		}
		return nil, nil
	case err != nil && check.Broken(err):
		u.Report(check.Damaged, dir, "it cannot be listed: "+check.Reason(err), "nothing: put it back from a copy")
		return list, nil
	}
	return list, err
}

// starts is the cure of what is left to the next dsched.
const starts = "nothing: dsched removes it when it starts"

// checkTop looks at what lies in the spool's own directory, and in the small ones.
func (c *checker) checkTop(u *check.Unit) error {
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	if err := c.checkList(u, ".", ".", list); err != nil {
		return err
	}
	if _, err := c.ReadPast(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.Report(check.Damaged, "past.jsonl", check.Reason(err), "nothing: dsched begins anew with nothing used and nothing against nodes")
	}
	for _, dir := range []string{"incoming", "rejected", "nodes", "keys", "run", "trash", "uploads"} {
		if dir == "uploads" && errors.Is(exists(c.path(dir)), fs.ErrNotExist) {
			continue // a spool need not have it
		}
		if err := c.checkDir(u, dir, dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) addBatch(_ *check.Unit, name string) error {
	c.ids = append(c.ids, job.BatchID(strings.TrimPrefix(name, "batches/")))
	return nil
}

func (c *checker) addBlobDir(_ *check.Unit, name string) error {
	c.blobs = append(c.blobs, name)
	return nil
}

// checkBlobs looks at the directories of input files that batches share.
func (c *checker) checkBlobs(u *check.Unit) error {
	c.blobs = c.blobs[:0]
	return c.checkDir(u, "blobs", "blobs")
}

func (c *checker) checkBlob(u *check.Unit, name string) error {
	if !c.run.Sums {
		return nil
	}
	u.Files++
	return u.Named(c.ctx, name, path.Base(name))
}

func (c *checker) checkNew(u *check.Unit, name string) error {
	u.Report(check.Left, name, "a submission that was cut short, and whose sender was told nothing", starts)
	return nil
}

func (c *checker) checkTrash(u *check.Unit, name string) error {
	u.Report(check.Left, name, "a deleted batch, or a part of it", "nothing: dsched removes it")
	return nil
}

// checkSubmission looks at a submission that waits. The file is its owner's. It compares
// the last line with the others if sums are compared.
func (c *checker) checkSubmission(u *check.Unit, name string) error {
	const cure = "nothing: dsched moves it to rejected/"
	info, err := os.Lstat(c.path(name))
	switch {
	case err != nil: // taken meanwhile
		return nil
	case durable.IsTemp(path.Base(name)):
		if time.Since(info.ModTime()) > tempAge {
			u.Report(check.Left, name, "what a dsubmit has left that died", "nothing: dsched removes it")
		}
		return nil
	case job.Token(path.Base(name)).Check() != nil || !info.Mode().IsRegular():
		u.Report(check.Strange, name, "it is not a submission", cure)
		return nil
	case !c.run.Sums:
		return nil
	}
	f, err := check.Open(c.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.unreadable(u, name, err, cure)
	}
	defer f.Close()
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
		u.Report(check.Damaged, name, "its last line is not the sum of the others", cure)
	}
	return nil
}

// checkRejected looks at what was refused: each has a file that says why.
func (c *checker) checkRejected(u *check.Unit, name string) error {
	of, why := strings.CutSuffix(name, ".why")
	switch {
	case why && exists(c.path(of)) != nil:
		u.Report(check.Left, name, "a rejection that was cut short", "nothing: dsched rejects the file again")
	case !why && exists(c.path(name+".why")) != nil:
		u.Report(check.Strange, name, "nothing says why it was refused", "nothing: remove it when it is of no use")
	}
	return nil
}

// checkNodeList finds what is wrong in the list of nodes. People write it, so they put
// it right.
func (c *checker) checkNodeList(u *check.Unit, name string) error {
	text, err := os.ReadFile(c.NodesFile())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return c.unreadable(u, name, err, "nothing: put it back from a copy")
	}
	u.Count(int64(len(text)))
	_, wrong := ParseNodes(text)
	found := damages{u: u, cure: "nothing: correct the line, or take it out; dsched goes by the list before until then, and does not start"}
	at, line := int64(0), 1
	for l := range strings.Lines(string(text)) {
		if len(wrong) > 0 && wrong[0].Line == line {
			found.add(check.Finding{Kind: check.Damaged, Path: name, Line: line, Byte: at, What: wrong[0].Why})
			wrong = wrong[1:]
		}
		at += int64(len(l))
		line++
	}
	return nil
}
