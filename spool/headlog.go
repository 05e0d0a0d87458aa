package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"sync"
	"time"

	"distribute/lib/check"
	"distribute/lib/job"
)

// A headLog is what head.jsonl says.
type headLog struct {
	listed  map[job.BatchID]listing // what it says last of each batch
	drained map[string]string       // the nodes that are drained, and by whom
	states  map[string]nodeState    // what it says last of each node
}

func newHeadLog() headLog {
	return headLog{map[job.BatchID]listing{}, map[string]string{}, map[string]nodeState{}}
}

// A nodeState names the directory of a node.
type nodeState struct {
	id      string
	since   uint64 // seq of the first record of it
	machine string // of the last one
	session uint64 //
}

// A listing is what head.jsonl says last of a batch.
type listing struct {
	kind  job.Kind // opened, closed or deleted
	first uint64   // of one that is deleted: the seq of its log's first line
	at    time.Time
	again bool // it is open and was closed before: inputs of jobs that are over may be gone
}

// then is what is said with one more record.
func (l listing) then(rec *job.Record) listing {
	again := rec.Kind == job.KindOpened && (l.kind == job.KindClosed || l.again)
	return listing{rec.Kind, rec.First, rec.Time, again}
}

// of is what is said of the batch whose log begins with the line that has that
// seq: not what was said of one that had its name before and is deleted.
func (l listing) of(seq uint64) job.Kind {
	if l.kind == job.KindDeleted && l.first != seq {
		return ""
	}
	return l.kind
}

// readHeadLog folds the records of head.jsonl that l reads. A line that cannot be read, or
// is none of a head.jsonl, is told to report and passed over; an error of report ends the
// reading. Where the last line is unfinished the error is errTorn.
func (h *headLog) readHeadLog(l *logReader, report func(*Problem) error) error {
	return l.eachRecord(report, func(rec *job.Record) error {
		switch rec.Kind {
		case job.KindOpened, job.KindClosed, job.KindDeleted:
			if _, err := job.ParseBatchID(string(rec.Batch)); err != nil {
				return l.problem(err.Error())
			}
			h.listed[rec.Batch] = h.listed[rec.Batch].then(rec)
		case job.KindNode:
			s := nodeState{rec.State, rec.Seq, rec.Machine, rec.First}
			if was, known := h.states[rec.Node]; known && was.id == s.id {
				s.since = was.since
			}
			h.states[rec.Node] = s
		case job.KindDrained:
			h.drained[rec.Node] = rec.By
		case job.KindResumed:
			delete(h.drained, rec.Node)
		default:
			return l.problem(fmt.Sprintf("unknown kind of event %.40q", rec.Kind))
		}
		return nil
	})
}

// forgetClosed forgets which batches are closed, when a line of head.jsonl cannot be
// read: it may have told of any of those before it.
func (h *headLog) forgetClosed() {
	for id, said := range h.listed {
		if said.kind == job.KindClosed {
			delete(h.listed, id)
		}
	}
}

// A headReader remembers what it has read of head.jsonl, which only grows, or is replaced.
type headReader struct {
	mu     sync.Mutex // guards the rest
	listed map[job.BatchID]listing
	file   fs.FileInfo // nil: nothing is remembered
	next   int64       // where the next line starts
	seq    uint64      // of the last record
}

// listing is what head.jsonl says last of each batch, which is not to be changed. Lines that
// are damaged or unfinished are passed over, as a head passes over them: a batch that was closed
// before a damaged line is not known to be closed. It reads what was appended since it was
// called last; a file that was replaced, or is damaged, it reads from the start.
func (s *Spool) listing() (map[job.BatchID]listing, error) {
	r := &s.headRead
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := check.Open(s.path("head.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if r.file != nil && os.SameFile(r.file, info) && info.Size() >= r.next {
		if info.Size() == r.next {
			return r.listed, nil
		}
		if whole, err := r.goOn(f, maps.Clone(r.listed), r.next, r.seq); whole || err != nil {
			return r.listed, err
		}
	}
	r.file = info
	whole, err := r.goOn(f, map[job.BatchID]listing{}, 0, 0)
	if !whole {
		r.file = nil
	}
	return r.listed, err
}

// goOn reads f from a byte on, behind the record with that seq, and adds it to what is
// listed before. It reports whether no line is damaged.
func (r *headReader) goOn(f *os.File, listed map[job.BatchID]listing, from int64, seq uint64) (whole bool, err error) {
	h := newHeadLog()
	h.listed = listed
	whole = true
	l := newLogReader(io.NewSectionReader(f, from, math.MaxInt64-from), -1, "", "head.jsonl")
	l.next, l.seq = from, seq
	err = h.readHeadLog(l, func(p *Problem) error {
		whole = false
		h.forgetClosed()
		return p.err
	})
	if err != nil && !errors.Is(err, errTorn) {
		return false, err
	}
	r.listed, r.next, r.seq = h.listed, l.next, l.seq
	return whole, nil
}
