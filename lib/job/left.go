package job

import "slices"

// MaxPrinted is of how many attempts of a job that had to leave their nodes what
// they printed is kept, besides those of which all is kept.
const MaxPrinted = 10

// A Leaver is an attempt that had to leave its node and has left something; the
// zero one is none.
type Leaver struct {
	Attempt Token
	Try     int
}

// Left follows what is kept of those attempts of one job that had to leave their
// nodes: all that the last one left which has saved something, until the job is
// over; all that the last one left which has not; and what the others printed, of
// the last [MaxPrinted]. The zero one is of a job that has no such attempt.
type Left struct {
	saved, bare Leaver
	printed     []Leaver // in the order of their numbers
}

// A Less says that less is kept of an attempt from now on: what it printed, or
// nothing.
type Less struct {
	Leaver
	Nothing bool
}

// Leaves says that the record tells of an attempt that had to leave its node and
// has left something.
func (rec *Record) Leaves() bool {
	return rec.Kind == KindBack && rec.Fate.Evicted() && rec.Manifest != ""
}

// Fold takes in a record of the job, whose move is legal, and returns of what less
// is kept because of it, in this order.
func (l *Left) Fold(rec *Record) []Less {
	switch {
	case rec.Leaves() && rec.Saved:
		less := l.shed(&l.saved)
		l.saved = Leaver{rec.Attempt, rec.Try}
		return less
	case rec.Leaves():
		less := l.shed(&l.bare)
		l.bare = Leaver{rec.Attempt, rec.Try}
		return less
	case rec.Kind == KindDone || rec.Kind == KindFailed || rec.Kind == KindCancelled:
		return l.shed(&l.saved)
	}
	return nil
}

// shed leaves what an attempt printed, and of the first one nothing if there are too
// many.
func (l *Left) shed(from *Leaver) (less []Less) {
	if from.Try == 0 {
		return nil
	}
	less = append(less, Less{*from, false})
	at, _ := slices.BinarySearchFunc(l.printed, from.Try, func(p Leaver, try int) int { return p.Try - try })
	l.printed = slices.Insert(l.printed, at, *from)
	*from = Leaver{}
	if len(l.printed) > MaxPrinted {
		less = append(less, Less{l.printed[0], true})
		l.printed = slices.Delete(l.printed, 0, 1)
	}
	return less
}
