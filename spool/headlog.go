package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

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
	id    string
	since uint64 // seq of the first record of it
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

// readHeadLog folds the records of head.jsonl. A line that cannot be read, or is none of a
// head.jsonl, is told to report and passed over; an error of report ends the reading.
// Where the last line is unfinished the error is errTorn.
func (h *headLog) readHeadLog(f io.Reader, report func(*Problem) error) (*logReader, error) {
	l := newLogReader(f, -1, "", "head.jsonl")
	return l, l.eachRecord(report, func(rec *job.Record) error {
		switch rec.Kind {
		case job.KindOpened, job.KindClosed, job.KindDeleted:
			if _, err := job.ParseBatchID(string(rec.Batch)); err != nil {
				return l.problem(err.Error())
			}
			h.listed[rec.Batch] = h.listed[rec.Batch].then(rec)
		case job.KindNode:
			if h.states[rec.Node].id != rec.State {
				h.states[rec.Node] = nodeState{rec.State, rec.Seq}
			}
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

// listing is what head.jsonl says last of each batch. Lines that are damaged or
// unfinished are passed over, as a head passes over them: a batch that was closed
// before a damaged line is not known to be closed.
func (s *Spool) listing() (map[job.BatchID]listing, error) {
	h := newHeadLog()
	f, err := os.Open(s.path("head.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return h.listed, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_, err = h.readHeadLog(f, func(p *Problem) error {
		h.forgetClosed()
		return p.err
	})
	if err != nil && !errors.Is(err, errTorn) {
		return nil, err
	}
	return h.listed, nil
}
