package head

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"distribute/lib/node"
)

// Limits of the nodes that ask to be let in, and whom nobody has accepted.
const (
	maxWaiters  = 32        // that are kept
	waitersFor  = time.Hour // after they were heard last
	waitersTold = time.Minute
)

// A waiter is a node that has proven its key and that nobody has accepted: all
// that is kept of what such a peer says.
type waiter struct {
	name  node.Name
	key   node.Fingerprint
	from  string // where it dials from
	heard time.Time
}

// waiters are few, and in memory only. Somebody who makes keys by the thousand
// pushes out his own: with one too many, whoever dials from the place that has
// the most goes, the one heard longest ago first.
type waiters struct {
	all  []waiter // the one heard longest ago first
	told time.Time
}

// add notes one, and says whether it is time to tell of it.
func (ws *waiters) add(w waiter) (tell bool) {
	ws.drop(w.key)
	ws.keep(func(old waiter) bool { return w.heard.Sub(old.heard) < waitersFor })
	ws.all = append(ws.all, w)
	if len(ws.all) > maxWaiters {
		from, most := make(map[string]int), 0
		for _, w := range ws.all {
			network := networkOf(w.from)
			from[network]++
			most = max(most, from[network])
		}
		out := slices.IndexFunc(ws.all, func(w waiter) bool { return from[networkOf(w.from)] == most })
		ws.all = slices.Delete(ws.all, out, out+1)
	}
	if w.heard.Sub(ws.told) < waitersTold {
		return false
	}
	ws.told = w.heard
	return true
}

func (ws *waiters) len() int { return len(ws.all) }

// drop forgets the one with that key.
func (ws *waiters) drop(key node.Fingerprint) {
	ws.keep(func(w waiter) bool { return w.key != key })
}

// keep forgets those that do not fit.
func (ws *waiters) keep(fits func(waiter) bool) {
	ws.all = slices.DeleteFunc(ws.all, func(w waiter) bool { return !fits(w) })
}

// waiting is who waits, by name.
func (d *door) waiting() []waiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiters.keep(func(w waiter) bool { return time.Since(w.heard) < waitersFor })
	all := slices.Clone(d.waiters.all)
	slices.SortFunc(all, func(a, b waiter) int {
		return cmp.Or(strings.Compare(string(a.name), string(b.name)), strings.Compare(string(a.key), string(b.key)))
	})
	return all
}

// waiterRows is how those who wait are shown. Somebody else may call himself as a
// node is called that is here.
func (d *door) waiterRows(here func(node.Name) bool) []node.Row {
	list, _ := d.nodes()
	var rows []node.Row
	for _, w := range d.waiting() {
		note := string(w.key) + " (dadm accept " + string(w.name) + " SHA256:...)"
		line, listed := list.Named(w.name)
		switch {
		case listed && !line.Shut():
			note = string(w.key) + " (" + string(w.name) + " is known by " + line.By() + ": dadm remove " + string(w.name) + " first)"
		case !listed && here(w.name):
			note = string(w.key) + " (another node " + string(w.name) + " is here, which dadm accept would put out)"
		}
		rows = append(rows, node.Row{Node: w.name, State: node.Pending, Seen: w.heard, Note: note})
	}
	return rows
}
