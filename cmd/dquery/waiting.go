package main

import (
	"os"
	"time"

	"distribute/lib/dial"
	"distribute/spool"
)

// tellOf is for how long it is told of a submission that it was refused.
const tellOf = 24 * time.Hour

// sayWaiting says which submissions of the user, left while no dsched ran, are
// incoming yet, and which were rejected of late, where the spool is on this
// machine and may be read.
func (d *dquery) sayWaiting(addr string) {
	dir, ok := dial.Spool(addr)
	if !ok {
		return
	}
	s, err := spool.Open(dir)
	if err != nil {
		return
	}
	all, _ := s.Waiting() // what cannot be read is not one's own
	for _, w := range all {
		switch {
		case w.Drop.Batch == "" || w.Drop.UID != os.Getuid() && !d.all:
		case w.Why == "":
			d.c.Talk("%s: incoming since %s: waits for dsched, or for room", w.Drop.Batch, w.Time.Format(time.DateTime))
		case d.now().Sub(w.Time) < tellOf:
			d.c.Talk("%s: rejected, left at %s: %s", w.Drop.Batch, w.Time.Format(time.DateTime), w.Why)
		}
	}
}
