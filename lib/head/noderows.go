package head

import (
	"cmp"
	"strings"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/spool"
)

// nodeRows is what is known of every node. Of its jobs those are counted of
// which the peer may know, and what it says of a job is an operator's to read. It reports false if
// dsched ends.
func (t *tool) nodeRows() (rows []node.Row, ok bool) {
	all, sees := t.operator(), map[*spool.Batch]bool{}
	t.do(func() {
		t.machine.Live(func(a sched.Attempt) {
			if b := t.batches[a.Ref.Batch]; b != nil {
				sees[b.Batch] = all
			}
		})
	})
	for b := range sees { // costs system calls, for which the state does not wait
		sees[b] = all || t.sees(b.ID, &b.Head)
	}
	ok = t.do(func() {
		rows = t.Head.nodeRows(all, func(b *spool.Batch) bool { return sees[b] })
	})
	return rows, ok
}

// unseen is how much of what is counted of each node is of batches that the
// peer may not know of.
func (h *Head) unseen(sees func(*spool.Batch) bool) map[node.Name]sched.Node {
	on := map[node.Name]sched.Node{}
	h.machine.Live(func(a sched.Attempt) {
		b := h.batches[a.Ref.Batch]
		if b == nil || sees(b.Batch) {
			return
		}
		n := on[a.Node]
		if a.Result == nil {
			n.Jobs++
		}
		if a.State == job.Stranded {
			n.Full++
		}
		if a.Phase == job.PhaseStuck {
			n.Stuck++
		}
		switch {
		case a.Current && b.Head.Spec.Retry == job.Never:
			n.Stay++
		case a.Current:
			n.Wait++
		}
		on[a.Node] = n
	})
	return on
}

// nodeRows is what is known of every node, and of those that wait to be let in.
// With all it has what nodes say of jobs.
func (h *Head) nodeRows(all bool, sees func(*spool.Batch) bool) []node.Row {
	unseen := map[node.Name]sched.Node{}
	if !all {
		unseen = h.unseen(sees)
	}
	var rows []node.Row
	if has, taken := h.machine.Counted(); has != "" {
		rows = append(rows, node.Row{State: node.Site, Counted: has, CountedUsed: taken})
	}
	seen := map[node.Name]bool{}
	for _, n := range h.machine.Nodes() {
		if h.nodes.removed[n.Node] {
			continue
		}
		seen[n.Node] = true
		less := unseen[n.Node]
		n.Jobs, n.Wait, n.Stay, n.Full, n.Stuck = n.Jobs-less.Jobs, n.Wait-less.Wait, n.Stay-less.Stay, n.Full-less.Full, n.Stuck-less.Stuck
		if s := h.nodes.sessions[h.nodes.byName[n.Node]]; s != nil {
			s.mu.Lock()
			n.Seen = s.heard
			s.mu.Unlock()
		} else if !n.Unheard {
			n.Seen = h.when(n.Heard)
		}
		switch n.State {
		case node.Resting:
			if all && n.Given != "" {
				n.Note += ": " + n.Given
			}
			n.Note += "; until " + h.clockTime(n.Until)
		case node.Silent, node.Lost:
			n.Note = h.awayNote(&n)
			if why := h.reachNote(n.Node); why != "" {
				n.Note += "; " + why
			}
			if why := h.copyNote(n.Node); why != "" {
				n.Note = why + "; " + n.Note
			}
		}
		if by := h.machine.Drained(n.Node); by != "" {
			n.Note = strings.TrimPrefix(n.Note+"; drained by "+by, "; ")
		}
		if n.Pause != nil {
			n.Note = strings.TrimPrefix(n.Note+"; "+pauseNote(h, n.Pause, n.Jobs, n.Said), "; ")
		}
		if n.Stuck > 0 {
			n.Note = strings.TrimPrefix(n.Note+"; "+some(n.Stuck, "attempt cannot be killed", "attempts cannot be killed"), "; ")
		}
		if n.Full > 0 {
			n.Note = strings.TrimPrefix(n.Note+"; "+some(n.Full, "result waits", "results wait")+" for the head's disk", "; ")
		}
		rows = append(rows, n.Row)
	}
	rows = append(rows, h.absentRows(seen)...)
	if wrong := h.door.wrongNote(); all && wrong != "" {
		list, _ := h.door.nodes()
		for i := range rows {
			if _, listed := list.Named(rows[i].Node); listed {
				rows[i].Note = strings.TrimPrefix(rows[i].Note+"; "+wrong, "; ")
			}
		}
	}
	return append(rows, h.door.waiterRows(func(n node.Name) bool { return h.nodes.sessions[h.nodes.byName[n]] != nil })...)
}

// absentRows is the nodes of the list of which nothing was seen yet.
func (h *Head) absentRows(seen map[node.Name]bool) (rows []node.Row) {
	list, _ := h.door.nodes()
	for _, l := range list.Lines() {
		if !seen[l.Node] && !l.Shut() {
			rows = append(rows, node.Row{Node: l.Node, State: node.Lost, Note: cmp.Or(h.reachNote(l.Node), h.copyNote(l.Node), "let in, and not here since dsched started")})
		}
	}
	return rows
}
