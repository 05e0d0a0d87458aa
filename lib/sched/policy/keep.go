package policy

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Jobs that ask for much would wait for ever where jobs that ask for little come all
// the time: no node would ever have enough free at once. So when one of the latter is
// about to start where one of the former goes first, a node is kept for the class of
// the former, until a job of that has started. What else starts there meanwhile does
// not delay it.
//
// One node at a time would let a class have less than its owner's turn, where its jobs
// wait long for each: so more are kept as long as its jobs go first, but no more than
// these are, nor when a quarter of all nodes is kept for whatever.

// A Reservation is a node that is kept for a class.
type Reservation struct {
	Of       *Class
	On       *Node
	Standing Standing // of the job it is for; from those that are over it the node is not kept
	Since    time.Duration
	Patience time.Duration // how long it stays where it is
	Beside   []*Node       // which are kept, too: those beside it, where no one alone offers enough
	outlook  *outlook      // nil: not reckoned since what it depends on has changed
}

// leastPatience is how long a node is kept at least before another may be instead. It
// doubles each time, so that the jobs of some node end before it is over.
const leastPatience = time.Minute

// mostPatience bounds for how long that is because enough is to be expected to come free
// there no sooner.
const mostPatience = time.Hour

// An outlook is what is to be expected of a node that is kept.
type outlook struct {
	taken Share          // of it, when the job has started for which it is kept
	opens *time.Duration // see Opens; nil: not reckoned yet
}

// forecast is the outlook of a node that is kept, reckoned once until that changes.
func (k *Reservation) forecast() *outlook {
	if k.outlook == nil {
		k.outlook = &outlook{taken: k.taken()}
	}
	return k.outlook
}

// changed takes in that a job has started on a node.
func (p *Node) changed() {
	if p.Kept != nil {
		p.Kept.outlook = nil
	}
}

// taken is what of a kept node is taken when the job has started for which it is kept: what
// runs there now, but for attempts that alone leave it too little room, and the job.
func (k *Reservation) taken() Share {
	p := k.On
	asks, stays := k.Of.ShareOf(p), p.Used.Plus(p.Waits)
	for a := range p.Runs {
		if !Fits(p.Has, a.Share, asks) {
			stays = stays.Minus(a.Share)
		}
	}
	return stays.Plus(p.awaited(asks, stays))
}

// spares says that a node may be given a job of a class, for whose sake it is kept or
// beside that: there is room for both.
func (p *Node) spares(c *Class) bool {
	k := p.Kept
	return k == nil || k.Of == c || len(k.Beside) == 0 && Fits(p.Has, k.forecast().taken, c.ShareOf(p))
}

// beside says that a node may be given a job of q with that standing though it is kept for
// another: there is room for both, or it has a higher priority.
func (r *Round) beside(q *Queue, s Standing, p *Node) bool {
	return p.spares(q.Class) || s.Over(p.Kept.Standing)
}

// lets says the same, or that the job ends before the other could start, as far as is
// declared.
func (r *Round) lets(q *Queue, s Standing, p *Node) bool {
	return r.beside(q, s, p) || q.Says.Longest() > 0 && q.Says.Longest() <= r.Opens(p)-r.lab.Now
}

// Opens is when the job could start for which a node is kept, if what runs there ends
// when it is known to at the latest; 0 if that is not known of enough.
func (r *Round) Opens(p *Node) time.Duration {
	o := p.Kept.forecast()
	if o.opens == nil {
		at := p.Kept.On.FreeAt(p.Kept.Of, func(a *Run) time.Duration {
			long := a.Queue.Says.Longest()
			if !a.Active || a.Began == 0 || long == 0 {
				return 0
			}
			return a.Began + long
		})
		o.opens = &at
	}
	return *o.opens
}

// wait is how long a node will need until it has room for a job of the class, as far
// as one can tell without knowing how long anything runs: what has run for long is
// taken to run for as long again. Of what is longer than most it says only that.
func (l *Lab) wait(c *Class, p *Node, most time.Duration) (long time.Duration) {
	if !p.alone(c) {
		return l.waitTogether(c, p)
	}
	asks, used := c.ShareOf(p), p.Used.Plus(p.Waits)
	if Fits(p.Has, used, asks) {
		return 0
	}
	if long = l.Now - p.LastGiven; long > most { // so for most nodes
		return long
	}
	for a := range p.Back {
		used, long = used.Minus(a.Share), l.Now-a.Began
		if long > most || Fits(p.Has, used, asks) {
			return long
		}
	}
	return endless // it has attempts of which nothing is known
}

// waitTogether is that of ranks that fit on no node of a machine alone: until all has ended
// that runs there.
func (l *Lab) waitTogether(c *Class, p *Node) (long time.Duration) {
	if p.Portions(c) != nil {
		return 0
	}
	for _, o := range append([]*Node{p}, p.Beside...) {
		for a := range o.Runs {
			long = max(long, l.Now-a.Began)
		}
	}
	if long == 0 {
		return endless // it has attempts of which nothing is known
	}
	return long
}

// endless is longer than any job runs.
const endless = math.MaxInt64 / 2

// unkeep gives a node free that is kept.
func (r *Round) unkeep(k *Reservation) {
	gone := func(o *Reservation) bool { return o == k }
	k.Of.Kept, r.lab.Kept = slices.DeleteFunc(k.Of.Kept, gone), slices.DeleteFunc(r.lab.Kept, gone)
	for _, p := range append([]*Node{k.On}, k.Beside...) {
		p.Kept = nil
		for slot, nodes := range r.places {
			if i := slices.Index(nodes.kept, p); nodes.ranks && len(p.Beside) > 0 {
				delete(r.places, slot) // other nodes have more room with this one
			} else if i >= 0 {
				nodes.kept, nodes.free = slices.Delete(nodes.kept, i, i+1), append(nodes.free, p)
			}
		}
	}
}

// widen keeps the nodes beside one that is kept for ranks which do not fit on it alone, unless
// they are kept for others since longer: two that need the same nodes never wait for each other.
func (r *Round) widen(k *Reservation) {
	for _, p := range k.Beside {
		p.Kept = nil
	}
	if k.Beside = nil; k.On.alone(k.Of) {
		return
	}
	older := r.lab.Kept[:slices.Index(r.lab.Kept, k)]
	for _, p := range k.On.Beside {
		if p.Kept != nil && !slices.Contains(older, p.Kept) {
			r.unkeep(p.Kept)
		}
		if p.Kept == nil {
			p.Kept, k.Beside = k, append(k.Beside, p)
		}
	}
}

// release gives a node free for which a job of the class need not wait any more, since
// one has started on p: that, or the one that was kept last.
func (r *Round) release(c *Class, p *Node) {
	k := p.Kept
	if (k == nil || k.Of != c) && len(c.Kept) > 0 {
		k = c.Kept[len(c.Kept)-1]
	}
	if k != nil && k.Of == c {
		r.unkeep(k)
	}
}

// still says that the node is kept for a job with that standing, as before: whose turn it is
// among owners may change meanwhile.
func (k *Reservation) still(s Standing) bool {
	same := s.Common == k.Standing.Common && (s.Own == k.Standing.Own || s.Owner != k.Standing.Owner)
	k.Standing = s
	return same
}

// passKept passes nodes that are kept for jobs of an owner to other owners, whose turn it is after
// a start, so that the owner's jobs of a higher priority do not take them.
func (r *Round) passKept(from *Owner) {
	for _, k := range r.lab.Kept {
		if k.Standing.Owner != from {
			continue
		}
		at := slices.IndexFunc(r.queues, func(q *Queue) bool { return q.Class == k.Of && q.couldStart(k.On) })
		if at < 0 {
			continue
		}
		if s := r.queues[at].Standing(); s.Owner != from && s.Common == k.Standing.Common {
			k.Standing = s
			for _, nodes := range r.places {
				nodes.least.Own = min(nodes.least.Own, s.Own)
			}
		}
	}
}

// review gives nodes free for which nothing waits any more.
func (r *Round) review() {
	l := r.lab
	for i := len(l.Kept) - 1; i >= 0; i-- {
		k := l.Kept[i]
		at := slices.IndexFunc(r.queues, func(q *Queue) bool { return q.Class == k.Of && q.couldStart(k.On) })
		if at < 0 || !k.still(r.queues[at].Standing()) || !r.more(k.Of, len(k.Of.Kept)-1) || !l.Site.HasRoom(k.Of) {
			r.unkeep(k)
		}
	}
	for i := 0; i < len(l.Kept); i++ { // which gets shorter
		r.widen(l.Kept[i])
	}
}

// more says that more than n jobs of the class wait and may run.
func (r *Round) more(c *Class, n int) bool {
	of := map[*Batch]int{} // jobs of each batch that may not run all at once
	for _, q := range r.queues {
		if q.Class != c {
			continue
		}
		may := q.Jobs.N
		if b := q.Batch; b.Most > 0 {
			may = min(may, b.Most-b.Running-of[b])
			of[b] += may
		}
		if n -= may; n < 0 {
			return true
		}
	}
	return false
}

// reserve looks, before the first job of q starts on a node, at the jobs that go before it
// and could run there: of the first class of these that lacks a node, one is kept for it,
// and what starts is to be decided again. It says whether there was one.
func (r *Round) reserve(q *Queue, p *Node) bool {
	l := r.lab
	none := map[*Class]bool{q.Class: true} // these get no node now
	for _, o := range r.Ahead(q) {
		c := o.Class
		if none[c] || !l.Site.HasRoom(c) || !o.couldStart(p) { // without what the site counts a node is of no use
			continue
		}
		if len(c.Kept) == 0 {
			if on := r.earliest(o); on != nil {
				r.keep(c, on, 0)
				return true
			}
			continue
		}
		none[c] = true
		switch last := l.latest(c); {
		case p.Kept != nil:
		case r.more(c, len(c.Kept)) && len(l.Kept) < len(l.Nodes)/4:
			r.keep(c, p, 0)
			return true
		case last != nil && l.wait(c, p, endless) < l.wait(c, last.On, endless)/2:
			r.unkeep(last)
			r.keep(c, p, 2*last.Patience)
			return true
		}
	}
	return false
}

// keep keeps a node for a class, for as long as it is to be expected to take, or at least
// so long.
func (r *Round) keep(c *Class, on *Node, patience time.Duration) {
	l := r.lab
	i := slices.IndexFunc(r.queues, func(o *Queue) bool { return o.Class == c && o.couldStart(on) })
	on.Kept = &Reservation{Of: c, On: on, Standing: r.queues[i].Standing(), Since: l.Now,
		Patience: max(leastPatience, patience, min(l.wait(c, on, mostPatience), mostPatience))}
	c.Kept, l.Kept = append(c.Kept, on.Kept), append(l.Kept, on.Kept)
	r.widen(on.Kept)
}

// latest is that of a class's nodes which may be given free for a better one, and
// where its job would start last; nil if there is none.
func (l *Lab) latest(c *Class) (last *Reservation) {
	for _, r := range c.Kept {
		if l.Now-r.Since >= r.Patience && (last == nil || l.wait(c, r.On, endless) > l.wait(c, last.On, endless)) {
			last = r
		}
	}
	return last
}

// earliest is the node on which the first job of a queue can start soonest, of those
// that are kept for no other; nil if there is none.
func (r *Round) earliest(q *Queue) (best *Node) {
	l, least := r.lab, time.Duration(endless)
	for _, p := range l.Nodes {
		if p.Kept != nil || !q.couldStart(p) {
			continue
		}
		if long := l.wait(q.Class, p, least); best == nil || long < least || long == least && l.rank(q, p).better(l.rank(q, best)) {
			best, least = p, long
		}
	}
	return best
}

// FreeAt is when a node has room for a job of the class, if attempts end when endOf says,
// which says 0 of those of which it is not known. It is 0 if that is not known of enough of
// them, and if there is room now.
func (p *Node) FreeAt(c *Class, endOf func(*Run) time.Duration) time.Duration {
	type end struct {
		at    time.Duration
		share Share
	}
	var ends []end
	for a := range p.Runs {
		if at := endOf(a); at > 0 {
			ends = append(ends, end{at, a.Share})
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	used, at := p.Used.Plus(p.Waits), time.Duration(0)
	for _, e := range ends {
		if Fits(p.Has, used, c.ShareOf(p)) {
			break
		}
		used, at = used.Minus(e.share), e.at
	}
	if !Fits(p.Has, used, c.ShareOf(p)) {
		return 0
	}
	return at
}
