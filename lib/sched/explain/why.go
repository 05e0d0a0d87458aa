package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"distribute/lib/sched/policy"
	"distribute/lib/unit"
)

// A Teller tells why jobs wait.
type Teller struct {
	Lab *policy.Lab

	// Clock is the time of day at a moment; nil: none is told.
	Clock func(time.Duration) string
	// Takes is how long a job takes, about, that has run for so long; 0 if that is not
	// known, nil: it never is.
	Takes func(batch, job uint32, ran time.Duration) time.Duration
}

// A Wait is why a job waits, in one line for a person who may act on it, and when
// that may change by itself.
type Wait struct {
	Why   string
	Until time.Duration // 0: that is not known
}

// Wait tells why the jobs of a queue wait.
func (t *Teller) Wait(r *policy.Round, q *policy.Queue) Wait {
	if doom := t.Doomed(q); doom != "" {
		return Wait{Why: doom}
	}
	n, why := t.count(r, q)
	switch kept, out, left := keptFor(q), t.countedOut(q.Class), r.Yields(q); {
	case n.big() == 0:
		return Wait{Why: why + t.away(q)}
	case q.Batch.Full():
		return Wait{bounded(q.Batch), t.soonest(q.Batch)}
	case out != "":
		return Wait{Why: out}
	case left != "":
		return Wait{Why: left + " is left to a job that goes first"}
	case kept != nil:
		until, enough, why := t.freeAt(q.Class, kept), "enough", ""
		if q.Class.Share.CPUs == 0 {
			enough, why = "all", ": it asks for "+Asked(q.Class)+" (-R cpus=N asks for less)"
		}
		return Wait{fmt.Sprintf("%s is kept for it until %s there has ended%s%s%s", kept.Name, enough, t.clock(", about ", until), t.disk(q), why), until}
	}
	on, until := t.obstacles(r, q)
	text := t.capable(q, n) + t.disk(q)
	if on != "" {
		text += ": " + on
	}
	first := t.first(r, q)
	if on == "" && first == "" {
		first = "and it is about to start"
	}
	if first != "" {
		text += "; " + first
	}
	return Wait{text + t.away(q), until}
}

// Stuck tells why the jobs of a queue can start on no node that is connected, or not
// beside those that run; "" if they can.
func (t *Teller) Stuck(r *policy.Round, q *policy.Queue) string {
	if why := t.Nowhere(r, q); why != "" {
		return why
	}
	if q.Batch.Full() {
		return bounded(q.Batch)
	}
	return t.countedOut(q.Class)
}

// bounded tells that as many jobs of the batch run as may.
func bounded(b *policy.Batch) string {
	return fmt.Sprintf("max_running of its batch: %d run", b.Running)
}

// keptFor is a node that is kept for jobs as those of the queue, and that may be used for
// them; nil if there is none.
func keptFor(q *policy.Queue) *policy.Node {
	for _, k := range q.Class.Kept {
		if q.Takes(k.On) {
			return k.On
		}
	}
	return nil
}

// capable tells how many nodes could run the jobs of a queue, and what the others lack.
func (t *Teller) capable(q *policy.Queue, n *census) string {
	var wanted []string
	for _, e := range q.Class.Wants {
		if slices.ContainsFunc(t.Lab.Nodes, func(p *policy.Node) bool { return p.Session != 0 && !e.Holds(p.Facts) }) {
			wanted = append(wanted, e.String())
		}
	}
	if n.of[policy.TooSmall] > 0 {
		wanted = append(wanted, Asked(q.Class))
	}
	if n.of[policy.SmallDisk] > 0 {
		wanted = append(wanted, "a disk of "+unit.FormatBytes(q.AsksDisk()))
	}
	switch {
	case len(wanted) == 0:
		return fmt.Sprintf("%d of %d nodes can run it", n.big()-n.of[policy.NotBuilt]-n.barred, n.there())
	case n.big() == 1:
		return fmt.Sprintf("%s: 1 of %d nodes has it", strings.Join(wanted, ", "), n.there())
	}
	return fmt.Sprintf("%s: %d of %d nodes have it", strings.Join(wanted, ", "), n.big(), n.there())
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
func (t *Teller) obstacles(r *policy.Round, q *policy.Queue) (text string, until time.Duration) {
	by := map[string]*obstacle{}
	for _, p := range t.Lab.Nodes {
		what, ends := t.obstacle(r, q, p)
		if what == "" {
			continue
		}
		if by[what] == nil {
			by[what] = &obstacle{what: what, until: ends}
		}
		by[what].on = append(by[what].on, string(p.Name))
		if ends > t.Lab.Now && (until == 0 || ends < until) {
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
func (t *Teller) obstacle(r *policy.Round, q *policy.Queue, p *policy.Node) (what string, until time.Duration) {
	own := func(why string) string { return strings.TrimPrefix(why, string(p.Name)+" ") }
	switch r.Verdict(q, p) {
	case policy.SmallDisk:
		return "has a disk of " + unit.FormatBytes(p.Offer.DiskSize), 0
	case policy.LessMemory:
		return "has no more than the " + unit.FormatBytes(q.Memory) + " of memory that it ran out of", 0
	case policy.FailedThere:
		return "not tried, since it failed there", 0
	case policy.Refused:
		ref := q.Batch.Refusals[p]
		return "gave it back (" + ref.Why + ")" + t.clock(", is tried again at ", ref.Until), ref.Until
	case policy.NotBuilt:
		return "failed to build it", 0
	case policy.Paused:
		return own(t.paused(p)), max(pauseEnd(p), p.HaltedUntil)
	case policy.Lent:
		return own(t.lent(q.Class, p)), pauseEnd(p)
	case policy.Resting:
		return "resting" + t.clock(" until ", p.RestsUntil), p.RestsUntil
	case policy.KeptForOthers:
		return t.kept(r, q, p), 0
	case policy.DiskFull:
		return "has " + unit.FormatBytes(p.Offer.Space()) + " of its disk left", 0
	case policy.Busy:
		until = t.freeAt(q.Class, p)
		return "busy" + t.clock(" until about ", until), until
	}
	return "", 0
}

// kept tells for whom a node is kept, and why a job of the queue cannot be run before.
func (t *Teller) kept(r *policy.Round, q *policy.Queue, p *policy.Node) string {
	why := keptForJob(p)
	opens, long := r.Opens(p), q.Says.Longest()
	if opens <= t.Lab.Now { // what runs there takes longer than it said
		opens = 0
	}
	from := t.clock(" from about ", opens)
	if from == "" || long == 0 {
		return why + from
	}
	return why + from + ", while this one may take " + unit.FormatDuration(long)
}

// freeAt is when a node will have room for a job of the class, about; 0 if it is not
// known of enough of the jobs there when they end.
func (t *Teller) freeAt(c *policy.Class, p *policy.Node) time.Duration {
	return p.FreeAt(c, func(a *policy.Run) time.Duration {
		if at := t.endOf(a); at > t.Lab.Now {
			return at
		}
		return 0
	})
}

// soonest is when the first of a batch's attempts ends, about; 0 if that is not known
// of any.
func (t *Teller) soonest(b *policy.Batch) (first time.Duration) {
	for _, p := range t.Lab.Nodes {
		for a := range p.Runs {
			if at := t.endOf(a); a.Queue.Batch == b && at > t.Lab.Now && (first == 0 || at < first) {
				first = at
			}
		}
	}
	return first
}

// endOf is when an attempt ends, about; 0 if that is not known, as of one that was
// begun before the head was started.
func (t *Teller) endOf(a *policy.Run) time.Duration {
	if t.Takes == nil || a.Began == 0 {
		return 0
	}
	if long := t.Takes(a.Queue.Batch.Num, a.Job, t.Lab.Now-a.Began); long > 0 {
		return a.Began + long
	}
	return 0
}

// first tells which jobs wait for nodes that those of a queue could use, and go before the
// first of these. Of other owners whose turn it is nobody knows how many of their jobs go
// before the turn is another's.
func (t *Teller) first(r *policy.Round, q *policy.Queue) string {
	nodes := slices.DeleteFunc(slices.Clone(t.Lab.Nodes), func(p *policy.Node) bool { return !p.Listed || !q.Takes(p) })
	higher, own, others := 0, 0, map[*policy.Owner]bool{}
	of := map[*policy.Batch]int{} // jobs of each batch that may not run all at once
	for _, o := range r.Ahead(q) {
		if !slices.ContainsFunc(nodes, o.Takes) || !t.Lab.Site.HasRoom(o.Class) {
			continue
		}
		b := o.Batch
		more, same := o.Before(q)
		if b.Most > 0 {
			left := max(0, b.Most-b.Running-of[b])
			more = min(more, left)
			same = min(same, left-more)
		}
		higher += more
		switch {
		case same == 0:
		case b.Owner == q.Batch.Owner:
			own += same
		default:
			others[b.Owner] = true
		}
		of[b] += more + same
	}
	var words []string
	if n := higher + own; n > 0 {
		by, verb := "by age", "go"
		if own == 0 {
			by = "by priority"
		} else if higher > 0 {
			by = fmt.Sprintf("%d by priority, %d by age", higher, own)
		}
		if n == 1 {
			verb = "goes"
		}
		words = append(words, fmt.Sprintf("%s %s first (%s)", unit.Count(n, "job"), verb, by))
	}
	if len(others) > 0 {
		words = append(words, "it is the turn of "+unit.Count(len(others), "other owner"))
	}
	return strings.Join(words, "; ")
}

// away tells which nodes that are not connected could run the jobs of a queue, as far
// as was heard since the head was started.
func (t *Teller) away(q *policy.Queue) string {
	var names []string
	for _, p := range t.Lab.Nodes {
		if p.Session == 0 && p.Boot != "" && !p.Removed && q.Suits(p) && !q.Avoids(p) {
			names = append(names, string(p.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; not connected: " + few(names)
}

// disk tells how much disk the jobs of a queue ask for, if that is in their way on
// some node.
func (t *Teller) disk(q *policy.Queue) string {
	if slices.ContainsFunc(t.Lab.Nodes, func(p *policy.Node) bool {
		return p.Session != 0 && p.Able(q.Class) && !p.DiskBelow(q.AsksDisk()) && q.TooFull(p)
	}) {
		return fmt.Sprintf(", and it needs %s of the disk", unit.FormatBytes(q.AsksDisk()))
	}
	return ""
}

// clock tells a moment after a word; "" if it is not known, or nobody tells the time.
func (t *Teller) clock(word string, at time.Duration) string {
	if at == 0 || t.Clock == nil {
		return ""
	}
	return word + t.Clock(at)
}
