package spool

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/job"
)

// A batchCheck is one look at one batch: the loader with a report that goes on.
type batchCheck struct {
	*checker
	loader
	u    *check.Unit
	open bool // as head.jsonl lists it

	early   bool // it is listed as closed before all its jobs are over
	renamed bool // its log is that of a batch of another name
	other   bool // its log is that of other jobs: what is in place is not compared with it

	// What was in its directories before the log was read.
	lists map[string][]fs.DirEntry   // staging and build
	kept  map[string]map[string]bool // out, attempts and manifests
	outs  int                        // names in out/

	logDamages, jobDamages damages
	noLog                  bool
	first                  *check.Finding // of the log; nil: it is whole
	whole                  int            // records that can be read
	before                 int            // how many of these are before the first damage
	upto                   int            // the same, with the damaged record itself if it can be read

	results []result
	inLog   *Results // reads the manifests of small ones

	common  places // of the inputs of all jobs
	content hash.Hash
	text    []byte
	read    int64 // bytes of jobs.jsonl
	needs   bool  // some job needs others
	inputs  map[[32]byte]inputAt
	awaited map[string]bool // blobs that jobs read which are not over; nil: not looked at
}

// inputAt is where an input of the batch lies.
type inputAt struct {
	size int64
	at   int64 // in files.tar; -1: a blob
}

// noLogCure is what can be done about a log or its jobs.
const noLogCure = "nothing: put it back from a copy, or save out/ and submit the other jobs again"

// checkBatch looks at a batch.
func (c *checker) checkBatch(ctx context.Context, u *check.Unit, id job.BatchID) (err error) {
	b := &batchCheck{checker: c, u: u, lists: make(map[string][]fs.DirEntry), kept: make(map[string]map[string]bool),
		logDamages: damages{u: u, cure: noLogCure}, jobDamages: damages{u: u, cure: noLogCure}}
	b.loader = loader{Batch: &Batch{ID: id, dir: c.batchDir(id)}, report: b.reportDamage, jobName: b.checkJob, record: b.checkRecord}
	b.history.Started = make(map[job.Key]struct{})
	if u.Again {
		if c.listed, err = c.listing(); err != nil {
			return err
		}
	}
	if errors.Is(exists(c.batchDir(id)), fs.ErrNotExist) {
		return nil // deleted meanwhile; checkHeadLog has looked whether it may be
	}
	if c.listed[id].kind == job.KindDeleted {
		if first, err := c.firstRecord(id); err == nil && c.listed[id].of(first.seq) == job.KindDeleted {
			u.Report(check.Left, b.name(""), "the batch is deleted, and its directory is there", "nothing: dsched moves it to trash/ when it starts")
			return nil
		}
	}
	b.open = c.listed[id].kind != job.KindClosed
	u.Batches++
	for _, look := range []func(context.Context) error{b.listDirs, b.checkLog, b.checkClosed, b.checkResults, b.checkContents, b.checkSecrets, b.checkInputs} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	b.tellSaved()
	return nil
}

// name is a file of the batch below the spool.
func (b *batchCheck) name(file string) string {
	return strings.TrimSuffix(batchFile(b.Batch.ID, file), "/")
}

// listDirs looks at the batch's directories, before the log is read: what is in
// place then has its record in the log.
func (b *batchCheck) listDirs(ctx context.Context) error {
	err := b.tree.CheckDir(ctx, b.u, "batches/<name>/<name>", b.name(""))
	for _, d := range []string{"staging", "out", "manifests", "attempts", "build"} {
		if err != nil {
			return err
		}
		if d == "staging" || d == "build" {
			b.lists[d], err = b.u.List(b.name(d), 0o750)
		} else {
			b.kept[d], err = b.namesIn(d)
		}
	}
	b.outs = len(b.kept["out"])
	return err
}

// namesIn is what is in a directory of the batch that may have a million names.
func (b *batchCheck) namesIn(dir string) (map[string]bool, error) {
	f, err := os.OpenFile(b.path(b.name(dir)), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		_, err := b.u.List(b.name(dir), 0o750) // tells what is wrong
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

// checkLog reads the log, and behind its first line the jobs.
func (b *batchCheck) checkLog(context.Context) error {
	f, err := b.openLog()
	if f == nil {
		b.noLog = true
		return errors.Join(err, b.checkJobs())
	}
	defer f.Close()
	l := newLogReader(f, -1, b.Batch.ID, b.name("log.jsonl"))
	named, err := b.readFirst(l)
	if err != nil {
		return err
	}
	if b.about != nil {
		b.whole++
		if info, err := os.Lstat(b.path(b.name(""))); err == nil && b.about.Spec.Private {
			b.u.Mode(b.name(""), info, b.uid, 0o700)
		}
		if named != b.Batch.ID {
			b.u.Report(check.Strange, b.name(""), fmt.Sprintf("its log is that of the batch %.200q", named),
				"nothing: give it its name again, or put its own log back from a copy")
			b.renamed = true
		}
		if err := checkSpec(&b.about.Spec); err != nil {
			what, _, _ := strings.Cut(err.Error(), "\n")
			b.u.Report(check.Damaged, l.file, what, noLogCure).Line = 1
		}
	}
	if err := b.checkJobs(); err != nil {
		return err
	}
	defer func() { b.u.Count(l.next) }()
	err = b.readLog(l)
	b.seenSeq(l.seq)
	if err == errTorn {
		return b.checkTorn(b.u, f, l)
	}
	return err
}

// reportDamage finds what is wrong with the log or with jobs.jsonl.
func (b *batchCheck) reportDamage(p *Problem) error {
	d := &b.logDamages
	if p.File == b.name("jobs.jsonl") {
		d = &b.jobDamages
	}
	err := b.checker.report(d, p)
	if err == nil && d == &b.logDamages && b.first == nil {
		found := b.u.Found()
		b.first, b.upto, b.before = found[len(found)-1], b.whole, b.whole
		if p.Line > 0 {
			b.before = min(b.whole, p.Line-1)
		}
	}
	return err
}

// checkRecord looks at a record before it is folded.
func (b *batchCheck) checkRecord(rec *job.Record) error {
	b.whole++
	if rec.Manifest == "" {
		return nil
	}
	return b.addResult(rec)
}

// checkClosed looks whether the jobs of a batch that is listed as closed are over.
func (b *batchCheck) checkClosed(context.Context) error {
	if b.open || b.badLog || b.badJobs {
		return nil
	}
	left := 0
	for _, s := range b.history.States {
		if !s.Over() {
			left++
		}
	}
	if b.early = left > 0; b.early {
		b.u.Report(check.Damaged, b.name(""), fmt.Sprintf("head.jsonl lists it as closed with %s to be done, so dsched does not look at it", count(left, "job")),
			"list it as open in head.jsonl").Mend = func() error { b.reopen = append(b.reopen, b.Batch.ID); return nil }
	}
	return nil
}

// checkJobs reads jobs.jsonl, and compares it with what the log's first line says.
func (b *batchCheck) checkJobs() error {
	file, h := b.name("jobs.jsonl"), b.about
	b.inputs, b.content = make(map[[32]byte]inputAt), sha256.New()
	if err := b.openJobs(); b.lines == nil {
		return err
	}
	defer b.lines.Close()
	b.checkCommon()
	err := b.indexLines()
	b.u.Count(b.read)
	if err == nil && b.needs && !b.badJobs {
		err = b.checkNeeds()
	}
	if err != nil {
		b.badJobs = true
		return b.unreadable(b.u, file, err, noLogCure)
	}
	if h != nil && !b.badJobs && fmt.Sprintf("%x", b.content.Sum(nil)) != h.Content {
		b.other = true
		b.jobDamages.damaged(file, "it is whole, but not what the log says was asked for")
	}
	return nil
}

// checkCommon looks at what the jobs have in common, if that can be read.
func (b *batchCheck) checkCommon() {
	if b.about == nil {
		return
	}
	spec := &b.about.Spec
	d := func(err error) {
		if err != nil {
			b.jobDamages.add(check.Finding{Kind: check.Damaged, Path: b.name("log.jsonl"), Line: 1, What: err.Error()})
		}
	}
	d(b.common.add(spec.Inputs))
	b.text = appendSpec(b.text[:0], spec)
	b.content.Write(b.text)
	for i := range spec.Inputs {
		d(b.addInput(&spec.Inputs[i]))
	}
	if spec.Image != nil {
		d(b.addInput(spec.Image))
	}
}

// checkJob looks at a line of jobs.jsonl, and returns the name of its job.
func (b *batchCheck) checkJob(text []byte) (string, error) {
	b.read += int64(len(text)) + 1
	var one job.Job
	err := readJob(text, job.JobLine(), &one)
	switch {
	case err != nil:
	case b.about == nil:
		err = job.CheckName(one.Name)
	default:
		err = checkJob(&b.about.Spec, &b.common, &one)
	}
	if err != nil {
		return "", err
	}
	for k := range one.Inputs {
		if err := b.addInput(&one.Inputs[k]); err != nil {
			return one.Name, err
		}
	}
	b.needs = b.needs || len(one.Needs) > 0
	if b.about == nil || b.index().len() < b.about.Jobs {
		b.text = appendContent(b.text[:0], &one)
		b.content.Write(b.text)
	}
	return one.Name, nil
}

// checkNeeds looks at which job needs which in the lines of the jobs, which are whole.
func (b *batchCheck) checkNeeds() error {
	_, wrong, err := needsIn(b.lines, b.index().end)
	for _, e := range wrong {
		at, _ := b.index().line(e.Job)
		if err := b.badLine(&Problem{Line: e.Job + 1, Offset: at, Why: e.Error()}); err != nil {
			return err
		}
	}
	return err
}

// tellSaved adds to the first finding of a log that is damaged or missing what can be
// saved of the batch.
func (b *batchCheck) tellSaved() {
	f := b.first
	switch {
	case f == nil:
		return
	case b.noLog:
		f.What += fmt.Sprintf("; nothing tells what became of its jobs; out/ holds %s", count(b.outs, "result"))
		return
	}
	f.What += fmt.Sprintf("; %s before it and %d behind it are whole", count(b.before, "record"), b.whole-b.upto)
	var names []string // of jobs with accepted results that are whole, as far as was looked
	for i := range b.results {
		if r := &b.results[i]; r.try == 0 && r.whole {
			names = append(names, r.job)
		}
	}
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
