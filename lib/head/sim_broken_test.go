package head

import "time"

// breaks has everything fail at once on a node that has something to do.
func (w *world) breaks(n *simNode, until func(time.Duration, func())) {
	for _, other := range w.nodes {
		if other.busy() {
			n = other
		}
	}
	w.act("on %s everything fails at once", n.name)
	n.setBroken(true)
	until(2*time.Minute, func() { w.act("%s is mended", n.name); n.setBroken(false) })
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
