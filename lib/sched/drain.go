package sched

import "distribute/lib/node"

func (e Drain) apply(m *Machine) {
	if p := m.named[e.Node]; p != nil && e.By == "" {
		m.acquit(p)
	}
	if m.drained[e.Node] == e.By {
		return
	}
	if m.drained[e.Node] = e.By; e.By == "" {
		delete(m.drained, e.Node)
	}
	if p := m.named[e.Node]; p != nil {
		p.drained = e.By
		m.takeBack(p)
	}
}

// Drained is who has drained a node; "" if nobody has.
func (m *Machine) Drained(n node.Name) (by string) { return m.drained[n] }
