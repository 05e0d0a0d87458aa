package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"distribute/lib/unit"
)

// A Wait is why a job waits, in one line for a person who may act on it, and when
// that may change by itself.
type Wait struct {
	Why   string
	Until time.Duration // 0: that is not known
}

// maxTold is for how many kinds of resources of a batch it is told in full why their
// jobs wait: the rest is told only why no node could ever take them.
const maxTold = 32

// Reasons tells why the jobs of a batch wait, by the number of the job; nothing of one
// that does not. It costs a look at every node and every batch that waits for
// each kind of resources that jobs of the batch ask for, up to maxTold of them, and a
// byte a job if some wait for others. What it returns may be called by any goroutine,
// at any time, by one at a time.
func (m *Machine) Reasons(batch uint32) func(job int) Wait {
	b := m.batches[batch]
	if b == nil {
		return func(int) Wait { return Wait{} }
	}
	told, r := map[*queue]Wait{}, m.round()
	for q := range b.all() {
		switch {
		case q.jobs.n == 0:
		case len(told) < maxTold:
			told[q] = m.reason(r, q)
		default:
			_, why := m.never(q)
			told[q] = Wait{Why: why}
		}
	}
	of, tried := make([]Wait, len(b.queues)), map[uint32]Wait{}
	for i, q := range b.queues {
		of[i] = told[q]
	}
	for i, t := range b.trials {
		tried[i] = told[t.q]
	}
	waits := b.waits()
	class, jobs := b.class, len(b.States) // which nobody changes
	return func(job int) Wait {
		if job >= jobs {
			return Wait{}
		}
		if waits != nil {
			if why := waits(uint32(job)); why != "" {
				return Wait{Why: why}
			}
		}
		if wait, ok := tried[uint32(job)]; ok {
			return wait
		}
		if class == nil {
			return of[0]
		}
		return of[class[job]]
	}
}

// reason tells why the jobs of a queue wait.
func (m *Machine) reason(r *round, q *queue) Wait {
	if doom := m.doomed(q); doom != "" {
		return Wait{Why: doom}
	}
	l, why := m.never(q)
	switch kept, out := q.kept(), m.countedOut(q.c); {
	case l.big == 0:
		return Wait{Why: why + m.away(q)}
	case q.b.full():
		return Wait{q.b.bounded(), m.soonest(q.b)}
	case out != "":
		return Wait{Why: out}
	case kept != nil:
		until, enough, why := m.freeAt(q.c, kept), "enough", ""
		if q.c.share.cpus == 0 {
			enough, why = "all", ": it asks for "+q.c.asked()+" (-R cpus=N asks for less)"
		}
		return Wait{fmt.Sprintf("%s is kept for it until %s there has ended%s%s%s", kept.name, enough, m.clock(", about ", until), m.diskWhy(q), why), until}
	}
	on, until := m.obstacles(r, q)
	text := m.capable(q, &l) + m.diskWhy(q)
	if on != "" {
		text += ": " + on
	}
	first := m.first(r, q)
	if on == "" && first == "" {
		first = "and it is about to start"
	}
	if first != "" {
		text += "; " + first
	}
	return Wait{text + m.away(q), until}
}

// kept is a node that is kept for jobs as those of the queue, and that may be used for
// them; nil if there is none.
func (q *queue) kept() *peer {
	for _, r := range q.c.keeps {
		if q.takes(r.on) {
			return r.on
		}
	}
	return nil
}

// capable tells how many nodes could run the jobs of a queue, and what the others lack.
func (m *Machine) capable(q *queue, l *look) string {
	var wanted []string
	for _, e := range q.c.wants {
		if slices.ContainsFunc(m.peers, func(p *peer) bool { return p.session != 0 && !e.Holds(p.facts) }) {
			wanted = append(wanted, e.String())
		}
	}
	if l.big+l.tried+l.poor+l.disks.of < l.able {
		wanted = append(wanted, q.c.asked())
	}
	if l.disks.of > 0 {
		wanted = append(wanted, "a disk of "+unit.FormatBytes(q.asksDisk()))
	}
	switch {
	case len(wanted) == 0:
		return fmt.Sprintf("%d of %d nodes can run it", l.big-l.failed-l.barred, l.there)
	case l.big == 1:
		return fmt.Sprintf("%s: 1 of %d nodes has it", strings.Join(wanted, ", "), l.there)
	}
	return fmt.Sprintf("%s: %d of %d nodes have it", strings.Join(wanted, ", "), l.big, l.there)
}

// An obstacle is what is in the way of a queue on some nodes.
type obstacle struct {
	what  string
	until time.Duration
	on    []string
}

// How much is told of obstacles.
const (
	maxObstacles = 4
	maxObstacleN = 3 // nodes of each
)

// obstacles tells what is in the way of the jobs of a queue on the nodes that could
// run them, what ends soonest first, and when the first of it ends.
func (m *Machine) obstacles(r *round, q *queue) (text string, until time.Duration) {
	by := map[string]*obstacle{}
	for _, p := range m.peers {
		if p.session == 0 || !p.fits[q.c] {
			continue
		}
		what, ends := m.obstacle(r, q, p)
		if what == "" {
			continue
		}
		if by[what] == nil {
			by[what] = &obstacle{what: what, until: ends}
		}
		by[what].on = append(by[what].on, string(p.name))
		if ends > m.now && (until == 0 || ends < until) {
			until = ends
		}
	}
	var all []*obstacle
	for _, o := range by {
		slices.Sort(o.on)
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *obstacle) int {
		return cmp.Or(cmp.Compare(uint64(a.until-1), uint64(b.until-1)), len(b.on)-len(a.on), strings.Compare(a.on[0], b.on[0]))
	})
	var words []string
	more := 0
	for i, o := range all {
		if i >= maxObstacles {
			more += len(o.on)
			continue
		}
		words = append(words, o.String())
	}
	if more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", "), until
}

// String names the nodes, and what is in the way there.
func (o *obstacle) String() string {
	on := strings.Join(o.on[:min(len(o.on), maxObstacleN)], ", ")
	if more := len(o.on) - maxObstacleN; more > 0 {
		on += fmt.Sprintf(" and %d more", more)
	}
	return on + " " + o.what
}

// obstacle is what is in the way of the jobs of a queue on a node that could run
// them, and when it ends, 0 if that is not known; "" if nothing is but other jobs
// that go first.
func (m *Machine) obstacle(r *round, q *queue, p *peer) (what string, until time.Duration) {
	own := func(why string) string { return strings.TrimPrefix(why, string(p.name)+" ") }
	why, refused := q.b.refusedBy(p)
	switch {
	case p.smallDisk(q.asksDisk()):
		return "has a disk of " + unit.FormatBytes(p.offer.DiskSize), 0
	case !q.suits(p):
		return "has no more than the " + unit.FormatBytes(q.memory) + " of memory that it ran out of", 0
	case q.avoids(p):
		return "not tried, since it failed there", 0
	case refused:
		t := q.b.refusals[p]
		return "gave it back (" + why + ")" + m.clock(", is tried again at ", t.until), t.until
	case q.b.shuns(p):
		return "failed to build it", 0
	case p.paused():
		return own(m.pausedWhy(p)), max(m.pauseEnd(p), p.halt)
	case !p.enough(q.c):
		return own(m.lentWhy(p)), m.pauseEnd(p)
	case p.rest != 0:
		return "resting" + m.clock(" until ", p.rest), p.rest
	case !r.lets(q, p):
		return m.keptWhy(q, p), 0
	case q.tooFull(p):
		return "has " + unit.FormatBytes(p.offer.Space()) + " of its disk left", 0
	case p.room(q.c):
		return "", 0
	}
	until = m.freeAt(q.c, p)
	return "busy" + m.clock(" until about ", until), until
}

// keptWhy tells for whom a node is kept, and why a job of the queue cannot be run before.
func (m *Machine) keptWhy(q *queue, p *peer) string {
	why := "kept for a job of " + p.keeps.of.asked()
	from, long := m.clock(" from about ", m.opens(p)), q.says.longest()
	if from == "" || long == 0 {
		return why + from
	}
	return why + from + ", while this one may take " + unit.FormatDuration(long)
}

// pauseEnd is when the pause of a node ends; 0: that is not known.
func (m *Machine) pauseEnd(p *peer) time.Duration {
	if p.offer.Pause == nil || p.offer.Pause.Left == 0 {
		return 0
	}
	return p.offered + time.Duration(p.offer.Pause.Left*float64(time.Second))
}

// freeAt is when a node will have room for a job of the class, about; 0 if it is not
// known of enough of the jobs there when they end.
func (m *Machine) freeAt(c *class, p *peer) time.Duration {
	return p.freeAt(c, func(a *attempt) time.Duration {
		if at := m.endOf(a); at > m.now {
			return at
		}
		return 0
	})
}

// freeAt is when a node has room for a job of the class, if attempts end when endOf says; 0
// if it does not say so, 0, of enough of them.
func (p *peer) freeAt(c *class, endOf func(*attempt) time.Duration) time.Duration {
	type end struct {
		at    time.Duration
		share share
	}
	var ends []end
	for a := p.first; a != nil; a = a.after {
		if a.result != nil {
			continue
		}
		if at := endOf(a); at > 0 {
			ends = append(ends, end{at, a.share})
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	used, at := p.used.plus(p.waits), time.Duration(0)
	for _, e := range ends {
		if holds(p.has, used, c.of(p)) {
			break
		}
		used, at = used.minus(e.share), e.at
	}
	if !holds(p.has, used, c.of(p)) {
		return 0
	}
	return at
}

// soonest is when the first of a batch's attempts ends, about; 0 if that is not known
// of any.
func (m *Machine) soonest(b *batch) (first time.Duration) {
	for _, a := range b.of {
		for ; a != nil; a = a.next {
			if at := m.endOf(a); at > m.now && (first == 0 || at < first) {
				first = at
			}
		}
	}
	return first
}

// endOf is when an attempt ends, about; 0 if that is not known, as of one that was
// begun before the head was started.
func (m *Machine) endOf(a *attempt) time.Duration {
	if m.cfg.Takes == nil || a.began == 0 {
		return 0
	}
	if long := m.cfg.Takes(a.ref, m.now-a.began); long > 0 {
		return a.began + long
	}
	return 0
}

// first tells which jobs go before the first one of a queue.
func (m *Machine) first(r *round, q *queue) string {
	higher, others, own := r.goFirst(q)
	all := higher + others + own
	if all == 0 {
		return ""
	}
	var by []string
	for _, w := range []struct {
		n    int
		what string
	}{{higher, "by priority"}, {others, "by turn of their owners"}, {own, "by age"}} {
		switch {
		case w.n == all:
			by = append(by, w.what)
		case w.n > 0:
			by = append(by, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	verb := "go"
	if all == 1 {
		verb = "goes"
	}
	return fmt.Sprintf("%s %s first (%s)", some(all, "job"), verb, strings.Join(by, ", "))
}

// away tells which nodes that are not connected could run the jobs of a queue, as far
// as was heard since the head was started.
func (m *Machine) away(q *queue) string {
	var names []string
	for _, p := range m.peers {
		if p.session == 0 && p.boot != "" && q.suits(p) && !q.avoids(p) {
			names = append(names, string(p.name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; not connected: " + few(names)
}

// clock tells a moment after a word; "" if it is not known, or nobody tells the time.
func (m *Machine) clock(word string, at time.Duration) string {
	if at == 0 || m.cfg.Clock == nil {
		return ""
	}
	return word + m.cfg.Clock(at)
}
