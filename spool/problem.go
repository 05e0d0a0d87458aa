package spool

import (
	"fmt"

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
}

func (p *Problem) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d (byte %d)", p.File, p.Line, p.Offset)
	}
	return where + ": " + p.Why
}
