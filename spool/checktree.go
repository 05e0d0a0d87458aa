package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
)

// inBatch is the directory of a batch, and its slash.
const inBatch = "batches/<name>/<name>/"

// setTree sets every place of a spool, as FILES in dspool(5) has them, but for what is in
// staging/, out/, attempts/ and manifests/, of which logs tell.
func (c *checker) setTree() {
	const dir = fs.ModeDir
	t := &check.Tree{UID: c.uid, Starts: starts, Name: func(s string) bool { return job.CheckName(s) == nil }, Made: map[string]fs.FileMode{}}
	for _, d := range tree {
		t.Made[d.name] = d.mode
	}
	c.tree = t
	t.Places = []check.Place{
		{Path: ".", Mode: dir | 0o755, Odd: "nothing of that name belongs into a spool", Temps: true},
		{Path: "spool.json|head.jsonl|head.jsonl.<number>.broken|ballast", Mode: 0o640},
		{Path: "README|head.yaml<any>|#head.yaml#|.head.yaml<any>|.#head.yaml|lost+found|" + check.Found, Mode: check.Anything},
		{Path: ".<any>.tmp~", Mode: dir | check.Anything, Only: true, Check: check.LeftBehind("a directory that was being made", starts)},
		{Path: "incoming", Mode: dir | 0o773},
		{Path: "incoming/<any>", Mode: check.Anything, Check: c.checkSubmission},
		{Path: "rejected", Mode: dir | 0o755, Temps: true},
		{Path: "rejected/<any>", Mode: check.Anything, Check: c.checkRejected},
		{Path: "blobs", Mode: dir | 0o750, Odd: "it is not the beginning of a sum"},
		{Path: "blobs/<xx>", Mode: dir | 0o750, Odd: "it is not named by a sum", Temps: true, Check: check.Collect(&c.blobs)},
		{Path: "blobs/<xx>/<blob>", Mode: 0o640, Check: c.checkBlob},
		{Path: "uploads", Mode: dir | 0o700, Odd: "it is not the number of a user"},
		{Path: "uploads/<uid>", Mode: dir | 0o700, Odd: "it is not named by a sum", Check: t.Within("uploads/<uid>")},
		{Path: "uploads/<uid>/<sum>|<sum>.<token>", Mode: 0o600},
		{Path: "batches", Mode: dir | 0o755, Odd: "it is not the name of a namespace"},
		{Path: "batches/<name>", Mode: dir | 0o755, Odd: "it is not the name of a batch", Check: t.Within("batches/<name>")},
		{Path: "batches/<name>/.new-<any>", Mode: dir | check.Anything, Only: true,
			Check: check.LeftBehind("a submission that was cut short, and whose sender was told nothing", starts)},
		{Path: "batches/<name>/<name>", Mode: dir | 0o755, Odd: "nothing of that name belongs into a batch", Temps: true, Check: check.Collect(&c.batches)},
		{Path: inBatch + "batch.yaml|jobs.jsonl|files.tar|log.jsonl", Mode: 0o640},
		{Path: inBatch + secretsFile, Mode: 0o600},
		{Path: inBatch + "log.jsonl.<number>.broken", Mode: check.Anything},
		{Path: inBatch + "staging|out|attempts|manifests", Mode: dir | 0o750},
		{Path: inBatch + "build", Mode: dir | 0o750, Odd: "it is not what a build printed", Temps: true},
		{Path: inBatch + "build/<name>.log", Mode: 0o640},
		{Path: "nodes", Mode: dir | 0o755, Odd: "it is not the file of a node", Temps: true},
		{Path: "nodes/<name>.json", Mode: 0o640},
		{Path: "keys", Mode: dir | 0o700, Odd: "it is no key, and no list of nodes", Temps: true},
		{Path: "keys/head", Mode: 0o600, Check: check.Key(c.run.Key, "nothing: put it back from a copy, or remove it and run dadm init, and let every node take the new key")},
		{Path: "keys/ssh_key", Mode: 0o600, Check: check.Key(check.PEM, "nothing: put it back from a copy, or make another with ssh-keygen and take it to the nodes")},
		{Path: "keys/nodes", Mode: 0o600, Check: c.checkNodeList},
		{Path: "keys/nodes~|#nodes#|.nodes.sw<any>|.#nodes", Mode: check.Anything},
		{Path: "keys/ssh_key.pub|known_hosts<any>", Mode: 0o644},
		{Path: "run", Mode: dir | 0o755, Odd: "nothing of that name belongs there"},
		{Path: "run/lock", Mode: 0o640},
		{Path: "run/socket", Mode: fs.ModeSocket | check.Anything, Only: true},
		{Path: "run/desk-<any>", Mode: dir | 0o700},
		{Path: "trash", Mode: dir | 0o700},
		{Path: "trash/<any>", Mode: check.Anything, Check: check.LeftBehind("a deleted batch, or a part of it", "nothing: dsched removes it")},
	}
}

// starts is the cure of what is left to the next dsched.
const starts = "nothing: dsched removes it when it starts"

// checkTop looks at what lies in the spool's own directory, and in the small ones.
func (c *checker) checkTop(ctx context.Context, u *check.Unit) error {
	if err := c.tree.CheckDir(ctx, u, ".", "."); err != nil {
		return err
	}
	for _, f := range c.before {
		f.Mend = func() error { return nil } // it was done
		u.Find(f)
	}
	for _, dir := range []string{"incoming", "rejected", "nodes", "keys", "run", "trash", "uploads"} {
		if dir == "uploads" && errors.Is(exists(c.path(dir)), fs.ErrNotExist) {
			continue // a spool need not have it
		}
		if err := c.tree.CheckDir(ctx, u, dir, dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) checkBlob(ctx context.Context, u *check.Unit, name string) error {
	if !c.run.Sums {
		return nil
	}
	u.Files++
	return u.Named(ctx, name, path.Base(name))
}

// checkSubmission looks at a submission that waits. The file is its owner's. It compares
// the last line with the others if sums are compared.
func (c *checker) checkSubmission(ctx context.Context, u *check.Unit, name string) error {
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
	case info.IsDir() && int(info.Sys().(*syscall.Stat_t).Uid) != c.uid:
		u.Report(check.Strange, name, "a directory of another user", "its owner or root removes it; dsched does if it is empty")
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
	size, end := max(0, info.Size()-int64(endLen)), make([]byte, endLen)
	sum, err := u.Hash(ctx, f, 0, size)
	if err == nil {
		_, err = io.ReadFull(io.NewSectionReader(f, size, int64(endLen)), end)
	}
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return c.unreadable(u, name, err, cure)
	}
	if string(end) != fmt.Sprintf("{\"sha256\":\"%s\"}\n", sum) {
		u.Report(check.Damaged, name, "its last line is not the sum of the others", cure)
	}
	return nil
}

// checkRejected looks at what was refused: each has a file that says why.
func (c *checker) checkRejected(_ context.Context, u *check.Unit, name string) error {
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
func (c *checker) checkNodeList(_ context.Context, u *check.Unit, name string) error {
	text, err := readRegular(c.NodesFile())
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
