package node

import (
	"fmt"
	"math"
	"strings"

	"distribute/lib/unit"
)

// A Pause is what a person at a node, or the node for one, has taken back of it.
// Lengths of time are in seconds and counted from when it is said: the clocks of
// a node and of the head differ.
type Pause struct {
	By    []string `json:"by,omitempty"`   // who holds it, as the node calls them
	Why   string   `json:"why,omitempty"`  // in words, if nobody has asked for it
	Since float64  `json:"since"`          // for how long it has lasted
	Left  float64  `json:"left,omitempty"` // until it ends by itself; 0: it does not
	Give  *Give    `json:"give,omitempty"` // what is given back; nil: all, so that nothing runs
	Out   bool     `json:"out,omitempty"`  // jobs are asked to save what they have, and to go elsewhere
	Go    *float64 `json:"go,omitempty"`   // until that is asked; nil: they wait for the end
}

// A Give is the part of a node that is given back for a while. Its offer is less
// by that.
type Give struct {
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
}

// A GPU is one that a node offers.
type GPU struct {
	Index  int    `json:"index"` // as the vendor's tools number it
	Model  string `json:"model,omitempty"`
	Memory int64  `json:"memory,omitempty"` // bytes
	UUID   string `json:"uuid,omitempty"`
	Busy   bool   `json:"busy,omitempty"` // processes that are no job's use it, so it is given to none
	Why    string `json:"why,omitempty"`  // of a busy one: why it is not known who uses it
}

// Full says that nothing runs on the node.
func (p *Pause) Full() bool { return p != nil && p.Give == nil }

// Who is who holds the pause, in words: "ana", or "ana and bo", or what it is
// for, or "its owner".
func (p *Pause) Who() string {
	switch n := len(p.By); {
	case n > 1:
		return strings.Join(p.By[:n-1], ", ") + " and " + p.By[n-1]
	case n == 1:
		return p.By[0]
	case p.Why != "":
		return p.Why
	}
	return "its owner"
}

// What is kept of a pause.
const (
	maxHolders = 8
	maxSpan    = 100 * 365 * 86400 // seconds
)

// bounded is p less what no node says.
func (p *Pause) bounded() *Pause {
	if p == nil {
		return nil
	}
	q := *p
	q.By = nil
	for _, name := range p.By[:min(len(p.By), maxHolders)] {
		if name = word(name); name != "" {
			q.By = append(q.By, name)
		}
	}
	q.Why, q.Since, q.Left = word(p.Why), span(p.Since), span(p.Left)
	if p.Go != nil {
		s := span(*p.Go)
		q.Go = &s
	}
	if p.Give != nil {
		q.Give = &Give{min(max(0, p.Give.CPUs), MaxCPUs), max(0, p.Give.Memory)}
	}
	return &q
}

// word is a text that a node says, fit to be kept.
func word(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxWord)], "") }

// span is a length of time that a node says.
func span(s float64) float64 {
	if math.IsNaN(s) {
		return 0
	}
	return min(max(0, s), maxSpan)
}

// String is what is given back, in words.
func (g *Give) String() string {
	var parts []string
	switch {
	case g.CPUs == 1:
		parts = append(parts, "1 cpu")
	case g.CPUs != 0:
		parts = append(parts, fmt.Sprintf("%d cpus", g.CPUs))
	}
	if g.Memory != 0 {
		parts = append(parts, unit.FormatBytes(g.Memory))
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, " and ")
}
