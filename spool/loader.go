package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"distribute/lib/check"
	"distribute/lib/job"
	"distribute/lib/line"
)

// A loader reads a batch: the first line of its log, its jobs, and what its log makes of
// them. It calls report for each thing that is wrong. If report returns an error, the
// loading ends with it; else the loader goes on and reads of the rest what it can.
type loader struct {
	*Batch
	report func(*Problem) error
	record func(*job.Record) error // is called for each record but the first, before it is folded

	// jobName checks a line of jobs.jsonl and returns the name of the job, also with an
	// error if the name can be read; nil: only names are read.
	jobName func(text []byte) (string, error)

	about   *job.Head   // of the log's first line; nil: it cannot be read
	jobs    int         // how many lines of jobs.jsonl are of jobs
	counted bool        // jobs has those that were added
	history job.History // what the log makes of the jobs
	less    map[job.Token]*leaver
	badJobs bool // some lines of jobs.jsonl cannot be read
	badLog  bool // or of the log
}

// openFile opens a file of the batch, or says why it cannot be opened.
func (b *Batch) openFile(name string) (*os.File, *Problem) {
	f, err := check.Open(filepath.Join(b.dir, name))
	if err == nil {
		return f, nil
	}
	p := &Problem{Batch: b.ID, File: batchFile(b.ID, name), Stops: true, Why: check.Reason(err), err: err}
	if errors.Is(err, fs.ErrNotExist) {
		p.Why = "it is missing, so nothing is done with this batch"
	}
	return nil, p
}

// openLog opens the log. If it cannot be opened, and report takes that, it returns nil.
func (l *loader) openLog() (*os.File, error) {
	f, bad := l.openFile("log.jsonl")
	if bad != nil {
		l.badLog = true
		return nil, l.report(bad)
	}
	return f, nil
}

// readFirst reads the log's first line, and returns of which batch that says that it is.
func (l *loader) readFirst(r *logReader) (named job.BatchID, err error) {
	if named, err = l.first(r); err == nil {
		l.about, l.jobs = &l.Head, l.Head.Jobs
		return named, nil
	}
	l.badLog = true
	p, ok := err.(*Problem)
	if !ok {
		p = &Problem{Batch: l.ID, File: r.file, Stops: true, Why: err.Error(), err: err}
	}
	p.after = 0
	return "", l.report(p)
}

// openJobs opens jobs.jsonl. If it cannot be opened, and report takes that, the batch has
// no lines.
func (l *loader) openJobs() error {
	l.names.Store(newIndex(0))
	var bad *Problem
	if l.lines, bad = l.openFile("jobs.jsonl"); bad != nil {
		l.badJobs = true
		return l.report(bad)
	}
	return nil
}

// readJobs opens jobs.jsonl and makes the index of its lines.
func (l *loader) readJobs() error {
	if err := l.openJobs(); err != nil {
		return err
	}
	return l.indexLines()
}

// errTail is that what follows in jobs.jsonl is of no job: it is of an addition that came
// to nothing, or is under way.
var errTail = errors.New("what follows belongs to no job")

// indexLines makes the index of jobs.jsonl, which is open. The memory that it needs is in
// proportion to the file.
func (l *loader) indexLines() error {
	info, err := l.lines.Stat()
	if err != nil {
		return err
	}
	name := l.jobName
	if name == nil {
		var j job.Job
		name = func(text []byte) (string, error) { err := readJob(text, nameLine(), &j); return j.Name, err }
	}
	x := newIndex(int(min(int64(l.jobs), info.Size()/int64(minLine))))
	l.names.Store(x)
	err = eachLine(l.lines, info.Size(), func(i int, at int64, text []byte) error {
		if l.isNoJob(i) {
			return errTail
		}
		name, err := name(text)
		if (err == nil || name != "") && !x.add([]byte(name), len(text)+1) && err == nil {
			err = fmt.Errorf("the name %.100q stands twice", name)
		}
		if err != nil {
			return l.badLine(&Problem{Line: i + 1, Offset: at, Why: err.Error()})
		}
		return nil
	})
	x.trim()
	switch bad, ok := err.(*Problem); {
	case errors.Is(err, errTail), ok && bad.File == "" && l.isNoJob(bad.Line-1): // File: it was not reported
	case ok && bad.File == "":
		return l.badLine(bad)
	case err != nil:
		return err
	}
	if l.about != nil && !l.badJobs && x.len() < l.about.Jobs {
		l.badJobs = true
		return l.report(l.fewLines(l.about.Jobs))
	}
	return nil
}

// badLine reports a line of jobs.jsonl.
func (l *loader) badLine(p *Problem) error {
	l.badJobs = true
	p.Batch, p.File, p.Stops = l.ID, batchFile(l.ID, "jobs.jsonl"), true
	return l.report(p)
}

// isNoJob says that line i of jobs.jsonl, from 0, is of no job by the log.
func (l *loader) isNoJob(i int) bool {
	if l.about == nil || i < l.jobs {
		return false
	}
	if !l.counted {
		l.counted, l.jobs = true, l.jobs+l.countAdded()
	}
	return i >= l.jobs
}

// countAdded is how many jobs the log adds. It decodes no other records, so that it takes
// little of the time that the fold takes.
func (b *Batch) countAdded() (jobs int) {
	f, bad := b.openFile("log.jsonl")
	if bad != nil {
		return 0 // whoever reads the log reports that
	}
	defer f.Close()
	lines := line.NewReader(bufio.NewReaderSize(f, 256<<10), MaxLine)
	kind := []byte(`"` + job.KindAdded + `"`)
	var rec job.Record
	for {
		text, err := lines.Next()
		if err != nil {
			return jobs
		}
		if bytes.Contains(text, kind) && readRecord(text, &rec, nil) == nil && rec.Kind == job.KindAdded {
			jobs = min(jobs+min(max(rec.Jobs, 0), MaxJobs), MaxJobs)
		}
	}
}

// readLog folds the records behind the first. Behind a damaged line it does not report
// records that cannot follow those before them: the record that is missing may explain it.
func (l *loader) readLog(r *logReader) error {
	jobs := l.Jobs()
	if l.about != nil {
		jobs = min(l.about.Jobs, jobs)
	}
	l.history.Add(jobs)
	report := func(p *Problem) error {
		l.badLog = true
		return l.report(p)
	}
	return r.eachRecord(report, func(rec *job.Record) error {
		err := l.record(rec)
		if err == nil {
			err = l.foldRecord(rec)
		}
		if err == nil || l.badLog {
			return nil
		}
		return r.problem(err.Error())
	})
}

// foldRecord folds one record. If some lines of jobs.jsonl cannot be read, it passes over
// records of jobs that it does not know.
func (l *loader) foldRecord(rec *job.Record) error {
	i, partial := job.WholeBatch, l.badJobs || l.about == nil
	switch {
	case rec.Kind == job.KindAdded:
		n := len(l.history.States) + min(max(rec.Jobs, 0), MaxJobs)
		if partial {
			n = min(n, l.Jobs())
		}
		if rec.Jobs < 1 || n > l.Jobs() {
			return fmt.Errorf("it adds %s, and jobs.jsonl has not so many lines", count(rec.Jobs, "job"))
		}
		if rec.Jobs = n - len(l.history.States); rec.Jobs == 0 {
			return nil
		}
	case rec.Job != "" || !rec.Kind.Whole():
		var ok bool
		if i, ok = l.index().number(rec.Job); !ok {
			i = math.MaxInt
		}
	}
	less, err := l.history.Fold(i, rec, nil)
	if partial && errors.Is(err, job.ErrNoJob) {
		return nil
	}
	for _, x := range less {
		if l.less == nil {
			l.less = map[job.Token]*leaver{}
		}
		l.less[x.Attempt] = &leaver{x, rec.Job}
	}
	return err
}

// fewLines is that jobs.jsonl has not the lines that the log tells of.
func (b *Batch) fewLines(jobs int) *Problem {
	return &Problem{Batch: b.ID, File: batchFile(b.ID, "jobs.jsonl"), Stops: true,
		Why: fmt.Sprintf("it has %s, and the log says %d", count(b.Jobs(), "line"), jobs)}
}

// firstRecord reads the first line of a batch's log.
func (s *Spool) firstRecord(id job.BatchID) (*Batch, error) {
	b := &Batch{ID: id, dir: s.batchDir(id)}
	f, bad := b.openFile("log.jsonl")
	if bad != nil {
		return nil, stop(bad)
	}
	defer f.Close()
	_, err := b.first(newLineReader(f, id))
	return b, err
}

// first reads the first line of the batch's log, and returns of which batch that says
// that it is.
func (b *Batch) first(l *logReader) (named job.BatchID, err error) {
	var rec job.Record
	err = l.read(&rec)
	if err == io.EOF || errors.Is(err, errTorn) {
		l.n = 1
		return "", l.problem("the first line is missing")
	}
	if err != nil {
		return "", err
	}
	switch {
	case rec.Kind != job.KindBatch || rec.Head == nil:
		return "", l.problem("the first line does not tell of the batch")
	case rec.Head.Format != Format:
		return "", l.problem(fmt.Sprintf("its format is %d, this program knows %d", rec.Head.Format, Format))
	case rec.Batch.Name() == "" || rec.Head.Jobs < 0 || rec.Head.Jobs > MaxJobs:
		return "", l.problem("the first line makes no sense")
	}
	if err := rec.Head.Spec.CheckOrder(); err != nil {
		return "", l.problem(err.Error())
	}
	b.Head, b.Submitted, b.seq = *rec.Head, rec.Time, rec.Seq
	return rec.Batch, nil
}
