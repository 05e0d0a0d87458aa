package main

import (
	"errors"
	"io/fs"
	"time"

	"distribute/lib/conf"
	"distribute/lib/unit"
)

// settings is what head.yaml says.
type settings struct {
	Keep      time.Duration // how long a closed batch keeps its inputs, if it does not say so itself and not all of it is done
	Lease     time.Duration // how long a silent node keeps its jobs; 0: 15 minutes
	Listen    []string      // besides the socket
	Operators []string      // who may change everybody's batches
	Reserve   int64         // bytes of the disk left to others; less than 0: by the size of the file system
}

// readSettings reads head.yaml; one that is missing says nothing. The error
// holds every mistake.
func readSettings(name string) (settings, error) {
	s := settings{Reserve: -1, Keep: 30 * 24 * time.Hour}
	data, err := conf.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if conf.Blank(data) {
		return s, nil
	}
	doc, err := conf.Parse(name, data)
	if err != nil {
		return s, err
	}
	m := doc.Root().Map(conf.Keys{Known: []string{"keep", "lease", "listen", "operators", "reserve"}})
	if n := m.Get("keep"); !n.Absent() {
		if s.Keep, err = unit.ParseDuration(n.Text()); err != nil {
			n.Errorf("%w", err)
		}
	}
	if n := m.Get("lease"); !n.Absent() {
		s.Lease, err = unit.ParseDuration(n.Text())
		if err == nil && s.Lease < time.Minute {
			err = errors.New("a lease is at least 1m: nodes are heard from every 15 seconds")
		}
		if err != nil {
			n.Errorf("%w", err)
		}
	}
	if n := m.Get("reserve"); !n.Absent() {
		if s.Reserve, err = unit.ParseBytes(n.Text()); err != nil {
			n.Errorf("%w", err)
		}
	}
	s.Listen = m.Get("listen").Texts("write a list: ['tls://']")
	s.Operators = m.Get("operators").Texts("write a list of user names: [ana, okafor]")
	return s, doc.Err()
}
