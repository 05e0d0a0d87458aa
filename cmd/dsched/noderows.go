package main

import (
	"cmp"
	"strings"

	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/spool"
)

// nodeRows is what is known of every node. Of its jobs those are counted of
// which the peer may know.
func (t *tool) nodeRows() (rows []node.Row) {
	running := map[*spool.Batch]map[node.Name]int{}
	t.do(func() {
		rows = t.head.nodeRows()
		t.machine.Live(func(a sched.Attempt) {
			b := t.batches[a.Ref.Batch]
			if b == nil || a.Result != nil {
				return
			}
			if running[b.Batch] == nil {
				running[b.Batch] = map[node.Name]int{}
			}
			running[b.Batch][a.Node]++
		})
	})
	for b, on := range running {
		if t.sees(b.ID, &b.Head) {
			continue
		}
		for i := range rows {
			rows[i].Jobs -= on[rows[i].Node]
		}
	}
	return rows
}

// nodeRows is what is known of every node, and of those that wait to be let in.
func (h *head) nodeRows() []node.Row {
	var rows []node.Row
	seen := map[node.Name]bool{}
	for _, n := range h.machine.Nodes() {
		if h.removed[n.Node] {
			continue
		}
		seen[n.Node] = true
		if s := h.sessions[h.byNode[n.Node]]; s != nil {
			s.mu.Lock()
			n.Seen = s.heard
			s.mu.Unlock()
		} else if !n.Never {
			n.Seen = h.when(n.Heard)
		}
		switch n.State {
		case node.Resting:
			n.Note += "; until " + h.clockTime(n.Until)
		case node.Silent, node.Lost:
			n.Note = h.awayNote(&n)
			if why := h.reachNote(n.Node); why != "" {
				n.Note += "; " + why
			}
		}
		if n.Stuck > 0 {
			n.Note = strings.TrimPrefix(n.Note+"; "+some(n.Stuck, "attempt cannot be killed", "attempts cannot be killed"), "; ")
		}
		if n.Full > 0 {
			n.Note = strings.TrimPrefix(n.Note+"; "+some(n.Full, "result waits", "results wait")+" for the head's disk", "; ")
		}
		rows = append(rows, n.Row)
	}
	return append(append(rows, h.absentRows(seen)...), h.door.waiterRows()...)
}

// absentRows is the nodes of the list of which nothing was seen yet.
func (h *head) absentRows(seen map[node.Name]bool) (rows []node.Row) {
	list, _ := h.door.nodes()
	for _, l := range list.Lines() {
		if !seen[l.Node] && !l.Shut() {
			rows = append(rows, node.Row{Node: l.Node, State: node.Lost, Note: cmp.Or(h.reachNote(l.Node), "let in, and not here since dsched started")})
		}
	}
	return rows
}
