package spool

import (
	"errors"
	"fmt"
	"io/fs"

	"distribute/lib/check"
	"distribute/lib/job"
)

// A Problem is something wrong in the spool that was found and not mended in
// silence: damage, or what a crash has left and was put right.
type Problem struct {
	Batch  job.BatchID // empty: what belongs to no batch
	File   string      // its path below the spool
	Line   int         // from 1; 0: no line
	Offset int64       // in bytes, of that line
	Torn   bool        // what a crash leaves of a line that nobody was told of; it was cut off
	Stops  bool        // the batch is left alone until somebody has looked
	Closed bool        // nothing is known of it but that its modes keep who looks from reading it
	Why    string

	after uint64 // the seq of the last good record before the line
	err   error  // why the file cannot be opened or read; nil: it was read
}

// stop is the error with which reading ends because of the Problem: the Problem, or
// what the operating system says, unless that is of this one file.
func stop(p *Problem) error {
	if p.err == nil || errors.Is(p.err, fs.ErrNotExist) || errors.Is(p.err, check.ErrKind) {
		return p
	}
	return p.err
}

func (p *Problem) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d (byte %d)", p.File, p.Line, p.Offset)
	}
	return where + ": " + p.Why
}
