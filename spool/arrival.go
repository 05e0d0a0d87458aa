package spool

import (
	"errors"
	"os"

	"distribute/lib/durable"
)

// syncedAtOnce is how many blobs of a submission are synced together, as many
// as [durable.SyncAll] does at a time. Until then their files are open.
const syncedAtOnce = 16

// An arrival is a blob that has come whole, and is neither synced nor named.
type arrival struct {
	in    *input
	sum   string
	temp  string
	file  *os.File
	begun *beginning // that it was, in uploads/
}

// arrive takes a blob that has come whole; it gets its name with others.
func (s *Submission) arrive(a *arrival) error {
	a.in.have = true
	if s.whole = append(s.whole, a); len(s.whole) < syncedAtOnce {
		return nil
	}
	return s.nameArrivals()
}

// nameArrivals syncs what has arrived, and then gives it its names, which are
// not durable yet. After an error what has no name then is dropped.
func (s *Submission) nameArrivals() (err error) {
	defer func() { s.full = s.full || errors.Is(err, ErrFull) }()
	if len(s.whole) == 0 {
		return nil
	}
	if err := durable.Step("submit.blob.sync"); err != nil {
		return errors.Join(err, s.dropArrivals())
	}
	files := make([]*os.File, len(s.whole))
	for i, a := range s.whole {
		files[i] = a.file
	}
	if err := errors.Join(durable.SyncAll(files)...); err != nil {
		return errors.Join(classed(err), s.dropArrivals())
	}
	for len(s.whole) > 0 {
		a := s.whole[0]
		err := durable.Step("submit.blob.rename")
		if err == nil {
			err = s.name(a.in.sum, a.temp, s.head.path("blobs", a.sum[:2], a.sum))
		}
		if err == nil {
			s.whole = s.whole[1:]
			err = errors.Join(s.leave(a), s.sent(a.sum))
		}
		if err != nil {
			return errors.Join(err, s.dropArrivals())
		}
	}
	return nil
}

// leave ends work on the file of an arrival.
func (s *Submission) leave(a *arrival) error {
	if a.begun != nil {
		a.in.begun = nil
		return s.head.letGo(a.begun, true)
	}
	s.head.kept.filled(a.temp)
	return classed(a.file.Close())
}

// drop removes the file of an arrival. A beginning stays what it is.
func (s *Submission) drop(a *arrival) error {
	if a.in.have = false; a.begun != nil {
		return nil
	}
	return errors.Join(s.leave(a), gone(os.Remove(a.temp)))
}

// dropArrivals drops all that have no name.
func (s *Submission) dropArrivals() (err error) {
	for _, a := range s.whole {
		err = errors.Join(err, s.drop(a))
	}
	s.whole = nil
	return err
}
