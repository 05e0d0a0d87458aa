package spool

import (
	"errors"
	"io"

	"distribute/lib/job"
)

// How far a log is read ahead of what is done with its records: enough that
// neither side waits for the other at each, and little enough to stay in the
// cache of a processor.
const (
	passageLen = 256 // records
	passages   = 3   // one that is read, one that waits, one that is looked at
)

// A passage is some records of a log, one behind another.
type passage struct {
	recs []job.Record
	ends []int64 // of the line of each: where the next one starts
	err  error   // of the read behind them, after which there is nothing more
}

// each calls f for each record up to the end of the log, or to a last line that
// is unfinished, as reading one after another does; meanwhile another goroutine
// reads on. What l tells is of the record that f is called with. When each
// returns nothing reads any more.
func (l *logReader) each(f func(*logReader, *job.Record) error) error {
	ahead := *l
	full, free := make(chan passage, passages), make(chan passage, passages) // there is room for all in either
	for range passages {
		free <- passage{}
	}
	go func() {
		defer close(full)
		for p := range free {
			p = ahead.passage(p)
			full <- p
			if p.err != nil {
				return
			}
		}
	}()
	defer func() {
		close(free)
		for range full {
		}
	}()
	for p := range full {
		for i := range p.recs {
			l.n, l.at, l.next, l.seq = l.n+1, l.next, p.ends[i], p.recs[i].Seq
			if err := f(l, &p.recs[i]); err != nil {
				return err
			}
		}
		if p.err != nil {
			*l = ahead
			if p.err == io.EOF || errors.Is(p.err, errTorn) {
				return nil
			}
			return p.err
		}
		free <- p
	}
	return nil
}

// passage reads the next records into the room of p.
func (l *logReader) passage(p passage) passage {
	p.recs, p.ends = p.recs[:0], p.ends[:0]
	for n := range passageLen {
		p.recs = append(p.recs, job.Record{})
		if p.err = l.read(&p.recs[n]); p.err != nil {
			p.recs = p.recs[:n]
			break
		}
		p.ends = append(p.ends, l.next)
	}
	return p
}
