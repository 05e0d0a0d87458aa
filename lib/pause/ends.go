package pause

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"distribute/lib/durable"
)

// Values of Pause.Ends.
const (
	EndsAll  = "all"  // pauses in all places
	EndsHere = "here" // pauses in its own place
)

// covers reports whether a record is for a pause, whenever that was made.
func (end *Pause) covers(p *Pause) bool { return end.Ends == EndsAll || end.Place == p.Place }

// endBy has a pause end that was made, as the kernel says, before one of these records. One
// of the same user ends by the removal of its file, so that it counts also if the clock was
// set back since.
func (p *Pause) endBy(ends []Pause) {
	for i := range ends {
		if end := &ends[i]; end.UID != p.UID && end.covers(p) && p.Changed.Before(end.Changed) {
			p.atMost(end.Changed)
		}
	}
}

// atMost has a pause end at t, unless it ends before.
func (p *Pause) atMost(t time.Time) {
	if p.Cap.IsZero() || t.Before(p.Cap) {
		p.Cap = t
	}
}

// PutEnd ends pauses: it puts a record into a place which readers heed if this process's user
// owns their node. It removes the earlier records of this user there that it replaces. All says that the
// record is for all places. The record is made later than all of these pauses, as the kernel says.
func PutEnd(place string, now time.Time, all bool, pauses []Pause) error {
	ends := EndsHere
	if all {
		ends = EndsAll
	}
	for range 100 {
		put, err := Put(place, Pause{Made: now, Ends: ends})
		if err != nil {
			return err
		}
		own, err := ownEnds(place)
		if err != nil {
			return err
		}
		late := true
		for _, e := range own {
			switch {
			case e.ID != put.ID && (all || e.Ends == EndsHere):
				err = gone(os.Remove(filepath.Join(place, e.ID)))
			case e.ID == put.ID:
				late = !slices.ContainsFunc(pauses, func(p Pause) bool { return !p.Changed.Before(e.Changed) && !p.Changed.After(now) })
			}
			if err != nil {
				return err
			}
		}
		if late {
			return durable.SyncDir(place)
		}
		time.Sleep(time.Millisecond) // the kernel's times go by some milliseconds
	}
	return fmt.Errorf("%s: the clock of its files stands still", place)
}

// ownEnds returns the records of this process's user in a place.
func ownEnds(place string) (own []Pause, err error) {
	dir, err := openPlace(place)
	if err != nil || dir == nil {
		return nil, err
	}
	defer dir.Close()
	list, err := candidates(dir, ownerOf, maxOfOne, maxInAll)
	for _, f := range list {
		if p, err := readFile(dir, f); err == nil && f.uid == os.Geteuid() && p.Ends != "" {
			own = append(own, p)
		}
	}
	return own, err
}
