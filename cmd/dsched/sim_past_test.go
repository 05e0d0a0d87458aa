package main

import (
	"time"

	"distribute/lib/node"
)

// A simPast is what a head that was stopped had said of nodes that rest.
type simPast struct {
	until map[node.Name]time.Time // nil: not known
	seen  int                     // rests that another head went on with
}

// rests is until when nodes rest, when all that was decided is on the disk, else nil. It
// looks at the head from within, or while that stands still.
func rests(h *head) map[node.Name]time.Time {
	if h.committing != nil || len(h.actions) > 0 || h.pastDue() {
		return nil
	}
	until := map[node.Name]time.Time{}
	for _, s := range h.machine.Past().Nodes {
		if s.Rest != 0 {
			until[s.Node] = h.when(s.Rest)
		}
	}
	return until
}

// remembers checks that a head that was started goes on with the rests that the one
// before had told.
func (w *world) remembers(h *head) {
	rests := map[node.Name]time.Time{}
	for _, s := range h.machine.Past().Nodes {
		if s.Rest != 0 {
			rests[s.Node] = h.when(s.Rest)
		}
	}
	for name, until := range w.head.past.until {
		if time.Until(until) < time.Second {
			continue
		}
		w.head.past.seen++
		if off := rests[name].Sub(until); off.Abs() > time.Second {
			w.wrong("L47: %s was to rest until %v, and after a restart of the head it rests until %v", name, until, rests[name])
		}
	}
	w.head.past.until = nil
}

// breaks has everything fail at once on a node that has something to do, and stops
// the head when that one rests for it.
func (w *world) breaks(n *simNode, until func(time.Duration, func())) {
	for _, other := range w.nodes {
		if other.busy() {
			n = other
		}
	}
	w.act("on %s everything fails at once", n.name)
	n.setBroken(true)
	until(2*time.Minute, func() { w.act("%s is mended", n.name); n.setBroken(false) })
	for range 20 {
		w.sleep(time.Second)
		var now map[node.Name]time.Time
		w.ask(func(h *head) { now = rests(h) })
		if len(now) > 0 {
			power, how := w.power()
			w.act("head %s", how)
			w.haltHead(power)
			until(w.shortly(), w.startHead)
			return
		}
	}
}

// setBroken has everything that begins on the node fail at once, or not any more.
func (n *simNode) setBroken(is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = is
}

func (n *simNode) isBroken() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.broken
}
