package spool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/job"
)

// A batchLook is one look at one batch.
type batchLook struct {
	*checker
	u    *check.Unit
	id   job.BatchID
	open bool // as head.jsonl lists it

	// What was in its directories before the log was read.
	lists map[string][]fs.DirEntry   // staging and build
	kept  map[string]map[string]bool // out, attempts and manifests

	about     *job.Head // the log's first line; nil: it cannot be read
	index     *index    // of jobs.jsonl; nil: it cannot be read
	badJobs   bool      // some of its lines cannot be read
	badLog    bool
	noLog     bool
	before    int // good records before the first bad one
	behind    int // and behind it
	firstLine *check.Finding

	states  []job.State
	begun   tokens
	results []result
	inLog   *Results // reads the manifests of small ones
	left    leavers

	inputs map[[32]byte]inputAt
	outs   int // names in out/
}

// inputAt is where an input of the batch lies, and the job that names it.
type inputAt struct {
	size int64
	at   int64 // in files.tar; -1: a blob
}

// noLogCure is what can be done about a log or its jobs.
const noLogCure = "nothing: put it back from a copy, or save out/ and submit the other jobs again"

func (c *checker) batch(ctx context.Context, u *check.Unit, id job.BatchID) error {
	b := &batchLook{checker: c, u: u, id: id, lists: make(map[string][]fs.DirEntry), kept: make(map[string]map[string]bool)}
	if u.Again {
		listed, err := c.listing()
		if err != nil {
			return err
		}
		c.listed = listed
	}
	if errors.Is(exists(c.batchDir(id)), fs.ErrNotExist) {
		return nil // deleted meanwhile; headLog has looked whether it may be
	}
	if c.deleted(id) {
		u.Find(check.Finding{Kind: check.Left, Path: b.name(""), What: "the batch is deleted, and its directory is there", Cure: "nothing: dsched moves it to trash/ when it starts"})
		return nil
	}
	b.open = c.listed[id].kind != job.KindClosed
	u.Batches++
	for _, look := range []func() error{b.list, b.log, b.closed, b.place, func() error { return b.content(ctx) }, func() error { return b.inputFiles(ctx) }} {
		if err := look(); err != nil {
			return err
		}
	}
	b.saved()
	return nil
}

// deleted says whether head.jsonl lists this very batch as deleted.
func (c *checker) deleted(id job.BatchID) bool {
	if c.listed[id].kind != job.KindDeleted {
		return false
	}
	f, err := check.Open(c.path(batchFile(id, "log.jsonl")))
	if err != nil {
		return false
	}
	defer f.Close()
	b := &Batch{ID: id}
	err = b.readFirst(newFirstReader(f, id))
	return err == nil && c.listed[id].of(b.seq) == job.KindDeleted
}

// name is a file of the batch below the spool.
func (b *batchLook) name(file string) string {
	return strings.TrimSuffix(batchFile(b.id, file), "/")
}

// batchDirs are the directories of a batch.
var batchDirs = []string{"staging", "out", "manifests", "attempts", "build"}

// list looks at the batch's directories, before the log is read: what is in
// place then has its record in the log.
func (b *batchLook) list() error {
	list, err := b.checker.list(b.u, b.name(""))
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, e := range list {
		there[e.Name()] = true
		b.entry(e)
	}
	for _, d := range batchDirs {
		switch d {
		case "staging", "build":
			b.lists[d], err = b.checker.list(b.u, b.name(d))
		default:
			b.kept[d], err = b.names(d)
		}
		if err != nil {
			return err
		}
	}
	b.outs = len(b.kept["out"])
	return nil
}

// names is what is in a directory of the batch that may have a million names.
func (b *batchLook) names(dir string) (map[string]bool, error) {
	f, err := os.OpenFile(b.path(b.name(dir)), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		_, err := b.checker.list(b.u, b.name(dir)) // tells what is wrong
		return nil, err
	}
	defer f.Close()
	all := make(map[string]bool)
	for {
		some, err := f.Readdirnames(4096)
		for _, name := range some {
			all[name] = true
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, b.unreadable(b.u, b.name(dir), err, "nothing: put it back from a copy")
		}
	}
}

func (b *batchLook) entry(e fs.DirEntry) {
	name := b.name(e.Name())
	for _, d := range batchDirs {
		if e.Name() == d {
			b.wantDir(b.u, name, e, 0o750)
			return
		}
	}
	switch e.Name() {
	case "batch.yaml", "jobs.jsonl", "files.tar", "log.jsonl":
		b.wantFile(b.u, name, e, 0o640)
		return
	}
	if !broken(e.Name(), "log.jsonl") && !unfinished(b.u, name, e) {
		b.u.Odd(name, "nothing of that name belongs into a batch")
	}
}

// log reads the log, and behind its first line the jobs.
func (b *batchLook) log() error {
	name := b.name("log.jsonl")
	f, err := check.Open(b.path(name))
	if err != nil {
		if err := b.lost(name, err); err != nil {
			return err
		}
		b.badLog, b.noLog = false, true
		return b.jobs()
	}
	defer f.Close()
	l := newLogReader(f, -1, b.id, name)
	d := damages{u: b.u, cure: noLogCure}
	if err := b.first(l, &d); err != nil {
		return err
	}
	if err := b.jobs(); err != nil {
		return err
	}
	defer func() { b.u.Count(l.next) }()
	return b.records(f, l, &d)
}

// first reads the log's first line.
func (b *batchLook) first(l *logReader, d *damages) error {
	first := &Batch{ID: b.id}
	named, err := first.first(l)
	var bad *Problem
	switch {
	case errors.As(err, &bad):
		b.damaged(d, damage(bad, 0, noLogCure))
	case err != nil:
		return b.lost(l.file, err)
	default:
		b.before++
		b.about = &first.Head
		if info, err := os.Lstat(b.path(b.name(""))); err == nil && b.about.Spec.Private {
			b.u.Mode(b.name(""), info, b.uid, 0o700)
		}
		b.seenSeq(first.seq)
		if named != b.id {
			b.u.Find(check.Finding{Kind: check.Strange, Path: b.name(""), What: fmt.Sprintf("its log is that of the batch %.200q", named),
				Cure: "nothing: give it its name again"})
		}
		if err := checkSpec(&b.about.Spec); err != nil {
			b.u.Find(check.Finding{Kind: check.Damaged, Path: l.file, Line: 1, What: firstOf(err), Cure: noLogCure})
		}
	}
	return nil
}

// firstOf is the first line of an error.
func firstOf(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// damaged takes a bad line of the log.
func (b *batchLook) damaged(d *damages, f check.Finding) {
	d.add(f)
	if !b.badLog {
		b.badLog, b.firstLine = true, b.u.Last()
	}
}

// lost takes a log that cannot be read, from some byte on.
func (b *batchLook) lost(name string, err error) error {
	if err := b.unreadable(b.u, name, err, noLogCure); err != nil {
		return err
	}
	if !b.badLog {
		b.badLog, b.firstLine = true, b.u.Last()
	}
	return nil
}

// records folds the log behind its first line.
func (b *batchLook) records(f *os.File, l *logReader, d *damages) error {
	if b.index != nil {
		b.states = make([]job.State, b.index.len())
	}
	if b.about != nil {
		b.states = b.states[:min(b.about.Jobs, len(b.states))]
	}
	var rec job.Record
	for {
		err := l.read(&rec)
		var bad *Problem
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errTorn):
			return b.tornLog(b.u, f, l)
		case errors.As(err, &bad):
			b.damaged(d, damage(bad, l.seq, d.cure))
			if l.next == l.at {
				return nil // a line without end
			}
			continue
		case err != nil:
			return b.lost(l.file, err)
		}
		b.seenSeq(rec.Seq)
		if b.badLog {
			b.behind++
		} else {
			b.before++
		}
		if why := b.fold(&rec); why != "" && !b.badLog {
			b.before--
			b.damaged(d, damage(l.problem(why), l.seq, d.cure))
		}
	}
}

// fold makes rec's move. Behind a bad line, or beside jobs that cannot be read,
// it makes what sense it can of it.
func (b *batchLook) fold(rec *job.Record) (why string) {
	if rec.Manifest != "" {
		if why := b.result(rec); why != "" {
			return why
		}
	}
	if token := string(rec.Attempt); rec.Kind == job.KindStart {
		b.begun.add(token)
	} else if token != "" && !b.begun.has(token) {
		return fmt.Sprintf("the attempt %.40q was never started", token)
	}
	if b.index == nil {
		return ""
	}
	if why := unset(rec); why != "" {
		return why
	}
	if rec.Kind == job.KindAdded {
		if b.about == nil {
			return ""
		}
		n := len(b.states) + max(0, rec.Jobs)
		if b.badJobs {
			n = min(n, b.index.len())
		}
		if rec.Jobs < 1 || n > b.index.len() {
			return fmt.Sprintf("it adds %s, and jobs.jsonl has not so many lines", count(rec.Jobs, "job"))
		}
		b.states = append(b.states, make([]job.State, n-len(b.states))...)
		return ""
	}
	if rec.Job == "" && rec.Kind.Whole() {
		foldAll(b.states, rec)
		return ""
	}
	i, ok := b.index.number(rec.Job)
	if !ok || i >= len(b.states) {
		if b.badJobs {
			return ""
		}
		return fmt.Sprintf("there is no job %.100q", rec.Job)
	}
	next, ok := b.states[i].Next(rec.Kind)
	if !ok {
		return fmt.Sprintf("%.40q is no event, or not one of a job that is %s", rec.Kind, b.states[i])
	}
	b.states[i] = next
	b.left.fold(rec)
	return ""
}

// closed looks whether the jobs of a batch that is listed as closed are over.
func (b *batchLook) closed() error {
	if b.open || b.badLog || b.noLog || b.badJobs || b.about == nil {
		return nil
	}
	left := 0
	for _, s := range b.states {
		if !s.Over() {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	b.u.Find(check.Finding{Kind: check.Damaged, Path: b.name(""), Cure: "list it as open in head.jsonl",
		What: fmt.Sprintf("head.jsonl lists it as closed with %s to be done, so dsched does not look at it", count(left, "job")),
		Mend: func() error { b.reopen = append(b.reopen, b.id); return nil }})
	return nil
}

// tokens is a set of attempts.
type tokens struct {
	known map[[16]byte]struct{}
}

func rawToken(s string) (raw [16]byte, ok bool) {
	if len(s) != 32 {
		return raw, false
	}
	_, err := hex.Decode(raw[:], []byte(s))
	return raw, err == nil
}

func (t *tokens) add(s string) {
	if t.known == nil {
		t.known = make(map[[16]byte]struct{})
	}
	if raw, ok := rawToken(s); ok {
		t.known[raw] = struct{}{}
	}
}

func (t *tokens) has(s string) bool {
	raw, ok := rawToken(s)
	_, known := t.known[raw]
	return ok && known
}

// jobs reads jobs.jsonl.
func (b *batchLook) jobs() error {
	name := b.name("jobs.jsonl")
	f, err := check.Open(b.path(name))
	if err != nil {
		return b.unreadable(b.u, name, err, noLogCure)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b.index, b.inputs = newIndex(0), make(map[[32]byte]inputAt)
	j := &jobLook{b: b, d: damages{u: b.u, cure: noLogCure}, name: name, content: sha256.New()}
	j.begin()
	err = eachLine(f, info.Size(), j.line)
	if p := (*Problem)(nil); errors.Is(err, errTail) || errors.As(err, &p) && j.beyond(p.Line-1) {
		err = nil
	}
	b.u.Count(j.read)
	b.u.Jobs += j.lines
	if err == nil {
		err = j.needed(f)
	}
	var bad *Problem
	if errors.As(err, &bad) {
		bad.File = name
		b.badJobs = true
		j.d.add(damage(bad, 0, noLogCure))
		err = nil
	}
	if err != nil {
		b.badJobs = true
		return b.unreadable(b.u, name, err, noLogCure)
	}
	j.end()
	return nil
}

// saved tells what is left of a batch whose log is damaged or missing.
func (b *batchLook) saved() {
	f := b.firstLine
	switch {
	case f == nil:
		return
	case b.noLog:
		f.What += fmt.Sprintf("; nothing tells what became of its jobs; out/ holds %s", count(b.outs, "result"))
		return
	}
	f.What += fmt.Sprintf("; %s before it and %d behind it are whole", count(b.before, "record"), b.behind)
	names := b.intact()
	if len(names) == 0 {
		return
	}
	const shown = 20
	more := ""
	if n := len(names) - shown; n > 0 {
		names, more = names[:shown], fmt.Sprintf(" and %d more", n)
	}
	f.What += "; accepted by whole records and in out/: " + strings.Join(names, " ") + more
}
