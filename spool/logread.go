package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"distribute/lib/job"
	"distribute/lib/line"
)

// errTorn says that a log ends within a line.
var errTorn = errors.New("the last line is unfinished")

// A logReader reads the records of a log one after another.
type logReader struct {
	file  string // for Problems: its path below the spool
	batch job.BatchID
	lines *line.Reader
	words map[string]string // as of [line.Scan]
	n     int               // lines read
	at    int64             // where the last line read starts
	next  int64             // where the next line starts
	seq   uint64            // of the last good record
}

// newLogReader reads the first upto bytes of r, or all of them if upto is
// negative.
func newLogReader(r io.Reader, upto int64, batch job.BatchID, file string) *logReader {
	if upto >= 0 {
		r = io.LimitReader(r, upto)
	}
	return &logReader{file: file, batch: batch, words: map[string]string{},
		lines: line.NewReader(bufio.NewReaderSize(r, 256<<10), MaxLine)}
}

// newLineReader is newLogReader for one line of a batch's log, by default the first.
func newLineReader(r io.Reader, batch job.BatchID) *logReader {
	return &logReader{file: batchFile(batch, "log.jsonl"), batch: batch,
		lines: line.NewReader(bufio.NewReaderSize(r, 4<<10), MaxLine)}
}

// read decodes the next record into rec. It returns io.EOF at the end, errTorn
// if what is left has no newline, and a *Problem for a line that is damaged,
// after which it can go on.
func (l *logReader) read(rec *job.Record) error {
	b, err := l.lines.Next()
	switch {
	case err == io.EOF:
		return io.EOF
	case errors.Is(err, line.ErrPartial):
		l.at = l.next
		return errTorn
	case err != nil && !errors.Is(err, line.ErrLine):
		return err
	}
	l.n++
	l.at = l.next
	if err != nil {
		return l.problem(fmt.Sprintf("%v (more than %d bytes)", err, MaxLine))
	}
	l.next += int64(len(b)) + 1
	if err := readRecord(b, rec, l.words); err != nil {
		return l.problem(err.Error())
	}
	if rec.Seq <= l.seq {
		return l.problem(fmt.Sprintf("its seq is %d after %d: lines were moved or repeated", rec.Seq, l.seq))
	}
	l.seq = rec.Seq
	return nil
}

// eachRecord calls f for each record up to the end of the log. It calls report for each
// damaged line, each *Problem that f returns, and an error of the disk, and reads on if
// it can. An error of report, or another one of f, ends the reading. If the log ends
// within a line, the error is errTorn.
func (l *logReader) eachRecord(report func(*Problem) error, f func(*job.Record) error) error {
	var rec job.Record
	for {
		err := l.read(&rec)
		bad, damaged := err.(*Problem)
		switch {
		case err == io.EOF:
			return nil
		case err == errTorn:
			return err
		case err == nil:
			err = f(&rec)
			bad, damaged = err.(*Problem)
		case !damaged:
			return report(&Problem{Batch: l.batch, File: l.file, Stops: true, Why: err.Error(), err: err})
		}
		if damaged {
			err = report(bad)
		}
		if err != nil || l.next == l.at && l.batch != "" { // the line is too long: where the next ones start is not known
			return err
		}
	}
}

// problem says what is wrong with the line that was read last.
func (l *logReader) problem(why string) *Problem {
	return &Problem{Batch: l.batch, File: l.file, Line: l.n, Offset: l.at, Stops: true, after: l.seq,
		Why: fmt.Sprintf("%s; the last good record before it is %d", why, l.seq)}
}

// tornEnd is the Problem of what follows the last whole line of f, which l has read. A
// crash leaves the beginning of a line, or zeros, or both. In the log of a batch, a whole
// record whose newline became something else is damage, which stops the batch.
func (l *logReader) tornEnd(f *os.File) (*Problem, error) {
	tail, err := io.ReadAll(io.NewSectionReader(f, l.next, 2*MaxLine))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	torn := true
	if tail = bytes.TrimRight(tail, "\x00"); len(tail) > 0 {
		_, err = body(tail[:len(tail)-1])
		torn = err != nil
	}
	last := *l
	last.n++
	if !torn && l.batch != "" {
		return last.problem("the line does not end in a newline"), nil
	}
	return &Problem{Batch: l.batch, File: l.file, Line: last.n, Offset: l.next, Torn: torn, after: l.seq,
		Why: fmt.Sprintf("the last line is unfinished: %d bytes that nobody was told of", info.Size()-l.next)}, nil
}
