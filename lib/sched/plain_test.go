package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
)

// The placing decision once more, from scratch and without any index: every
// job that waits, in order, is tried on every node. It is what place must
// equal, whatever it leaves out because nothing there can have changed.

type plain struct {
	m     *Machine
	nodes map[*peer]*plainNode
	waits map[Ref]bool
	run   map[uint32]int // jobs of each batch that run
	rates map[*owner]int64
	keeps []reservation  // the latest last
	taken map[string]int // of what is counted
}

type plainNode struct {
	p       *peer
	used    share
	active  int
	waiting int
	waits   share
	runs    []plainRun // in the order in which they were started
}

type plainRun struct {
	share share
	began time.Duration
	ends  time.Duration // at the latest; 0: that is not known
}

type placed struct {
	ref  Ref
	node string
}

// comparePlain takes back the starts among the actions of an event, decides
// again from what was kept before it, and compares.
func comparePlain(m *Machine, keeps []reservation, actions []Action) error {
	d := plain{m, map[*peer]*plainNode{}, map[Ref]bool{}, map[uint32]int{}, map[*owner]int64{}, slices.Clone(keeps), map[string]int{}}
	var got []placed
	started := map[*attempt]bool{}
	for _, a := range actions {
		s, ok := a.(Start)
		if !ok {
			continue
		}
		at := m.live[must(s.Attempt)]
		started[at] = true
		if at.active {
			got = append(got, placed{s.Ref, string(at.peer.name)})
		} else if err := rightlyAhead(m, at); err != nil {
			return err
		}
	}
	d.begin(started)
	if want := d.decide(); !slices.Equal(got, want) {
		return fmt.Errorf("placed %v, should be %v", got, want)
	}
	if got := keepsOf(m); !slices.Equal(got, d.keeps) {
		return fmt.Errorf("kept are %v, should be %v", got, d.keeps)
	}
	return nil
}

// keepsOf is what is kept for classes.
func keepsOf(m *Machine) (all []reservation) {
	for _, r := range m.keeps {
		all = append(all, *r)
	}
	return all
}

// begin is how things stood before some attempts were started.
func (d *plain) begin(started map[*attempt]bool) {
	for _, b := range d.m.order {
		for i, s := range b.States {
			d.waits[Ref{b.num, uint32(i)}] = b.ready && s == job.Queued && !plainGated(b, i)
		}
	}
	for _, p := range d.m.peers {
		n := &plainNode{p: p, used: p.used, active: p.active, waiting: p.waiting, waits: p.waits}
		d.nodes[p] = n
		for a := p.first; a != nil; a = a.after {
			switch {
			case started[a] && a.active:
				n.used = n.used.minus(a.share)
				n.active--
			case started[a]:
				n.waits = n.waits.minus(a.share)
				n.waiting--
			case a.result == nil:
				n.runs = append(n.runs, plainRun{a.share, a.began, plainEnd(d.m.queueOf(a.ref), a.began, a.active)})
			}
			if started[a] {
				d.waits[a.ref] = true
				continue
			}
			d.rates[d.m.batches[a.ref.Batch].owner] += plainWeight(a)
			if a.current && a.result == nil {
				d.run[a.ref.Batch]++
			}
			if plainCounted(a) {
				d.take(a.share.counts)
			}
		}
	}
}

// decide places what can be placed.
func (d *plain) decide() (all []placed) {
	for i := len(d.keeps) - 1; i >= 0; i-- {
		r := d.keeps[i]
		if ref, ok := d.waitsFor(r.of, d.nodes[r.on]); !ok || d.m.batches[ref.Batch].priority != r.priority || d.waiting(r.of) < d.kept(r.of) || !d.free(r.of) {
			d.keeps = slices.Delete(d.keeps, i, i+1)
		}
	}
	for {
		ref, n := d.first()
		if n == nil {
			return all
		}
		if d.reserve(ref, n) {
			continue
		}
		c := d.m.queueOf(ref).c
		s := plainShare(c, n.p)
		s.cards = job.CardsOf(s.gpus, plainGPUs(n.p, n.used, s))
		n.used = n.used.plus(s)
		n.active++
		n.runs = append(n.runs, plainRun{s, d.m.now, plainEnd(d.m.queueOf(ref), d.m.now, true)})
		d.run[ref.Batch]++
		d.rates[d.m.batches[ref.Batch].owner] += weight(s, n.p.could)
		d.take(s.counts)
		d.waits[ref] = false
		d.release(c, n.p)
		all = append(all, placed{ref, string(n.p.name)})
	}
}

// before says that a job goes before another.
func (d *plain) before(a, b Ref) bool {
	turn := func(o *owner) int64 { return int64(o.used + float64(d.rates[o])/1000/decay) }
	switch x, y := d.m.batches[a.Batch], d.m.batches[b.Batch]; {
	case x.priority != y.priority:
		return x.priority > y.priority
	case turn(x.owner) != turn(y.owner):
		return turn(x.owner) < turn(y.owner)
	case a.Batch != b.Batch:
		return a.Batch < b.Batch
	}
	return a.Job < b.Job
}

// foremost is the job that goes first of those that wait and fit.
func (d *plain) foremost(fits func(Ref) bool) (first Ref, ok bool) {
	for ref, waits := range d.waits {
		b := d.m.batches[ref.Batch]
		if waits && (b.most == 0 || d.run[ref.Batch] < b.most) && (!ok || d.before(ref, first)) && fits(ref) {
			first, ok = ref, true
		}
	}
	return first, ok
}

// first is the job that goes first of those that can be started, and its node.
func (d *plain) first() (Ref, *plainNode) {
	ref, ok := d.foremost(func(ref Ref) bool { return d.best(ref) != nil && !d.yields(ref) })
	if !ok {
		return ref, nil
	}
	return ref, d.best(ref)
}

// takes says that a node may be given a job at all.
func (d *plain) takes(n *plainNode, ref Ref) bool {
	q, p := d.m.queueOf(ref), n.p
	_, able := q.c.lacks(p.facts)
	if able = able && !plainShuns(d.m, ref, p) && d.countable(p, q.c); !able {
		return false
	}
	return !d.tooFull(ref, p) && p.listed && p.drained == "" && p.halt == 0 && p.rest == 0 && (p.offer.Pause == nil || p.offer.Pause.Give != nil) && d.m.doomed(q) == "" &&
		!q.b.shuns(p) && q.b.refusals[p].until == 0 && p.offer.CPUs > 0 && plainRoom(p, share{}, plainShare(q.c, p))
}

// tooFull says that a node has less disk than a job asks for, and that another that
// could be used for it has more.
func (d *plain) tooFull(ref Ref, p *peer) bool {
	q, space := d.m.queueOf(ref), int64(0)
	room := func(p *peer) int64 { return (p.offer.Disk + p.offer.Kept) + (p.offer.Disk+p.offer.Kept)/16 }
	for _, o := range d.m.peers {
		t := q.b.refusals[o]
		_, able := q.c.lacks(o.facts)
		able = able && o.couldHold(q.c) && d.countable(o, q.c) && !plainShuns(d.m, ref, o) && plainRoom(o, share{}, plainShare(q.c, o))
		lasts := t.until != 0 && (t.barred || t.long >= longestRefusal)
		open := o.session != 0 && o.rest == 0 && o.drained == "" && (o.offer.Pause == nil || o.offer.Pause.Give != nil) && o.offer.CPUs > 0
		if able && open && !lasts && !q.b.shuns(o) {
			space = max(space, room(o))
		}
	}
	if q.b.early && d.m.ticked < d.m.since+settleTime {
		space = math.MaxInt64
	}
	disk := room(p)
	return disk > 0 && disk < max(q.says.disk, q.disk) && disk < space
}

// plainShuns says that a job that failed is not to be started on a node: that has no
// more memory than was too little, or it failed there and another node could run it.
func plainShuns(m *Machine, ref Ref, p *peer) bool {
	b := m.batches[ref.Batch]
	t := b.trials[ref.Job]
	switch {
	case t == nil:
		return false
	case t.memory > 0 && p.could.memory <= t.memory, p.smallDisk(t.disk):
		return true
	}
	return slices.Contains(t.on, p) && plainElsewhere(m, ref, t, t.q.old)
}

// plainElsewhere says that a job that failed on some nodes could be run on another.
func plainElsewhere(m *Machine, ref Ref, t *trial, old bool) bool {
	b, c := m.batches[ref.Batch], m.queueOf(ref).c
	for _, p := range m.peers {
		_, able := c.lacks(p.facts)
		known := p.session != 0 || p.boot != "" && m.ticked < p.heard+m.cfg.Lease
		refused := b.refusals[p]
		lasts := refused.until != 0 && (refused.barred || refused.long >= longestRefusal)
		able = able && p.couldHold(c) && (&plain{m: m}).countable(p, c)
		if !slices.Contains(t.on, p) && able && known && p.drained == "" && !b.shuns(p) && !lasts &&
			(t.memory == 0 || p.could.memory > t.memory) && !p.smallDisk(t.disk) {
			return true
		}
	}
	return old && m.ticked < m.since+settleTime
}

// waitsFor is the job of a class that goes first on a node that has enough for it.
func (d *plain) waitsFor(c *class, n *plainNode) (Ref, bool) {
	return d.foremost(func(ref Ref) bool { return d.m.queueOf(ref).c == c && d.takes(n, ref) })
}

// keptFor is the reservation of a node, or nil.
func (d *plain) keptFor(n *plainNode) *reservation {
	if i := slices.IndexFunc(d.keeps, func(r reservation) bool { return r.on == n.p }); i >= 0 {
		return &d.keeps[i]
	}
	return nil
}

// kept is how many nodes are kept for a class.
func (d *plain) kept(c *class) (n int) {
	for _, r := range d.keeps {
		if r.of == c {
			n++
		}
	}
	return n
}

// waiting is how many jobs of a class wait and may run.
func (d *plain) waiting(c *class) (n int) {
	of := map[uint32]int{}
	for ref, waits := range d.waits {
		if q := d.m.queueOf(ref); waits && q.c == c && d.m.doomed(q) == "" && (q.b.most == 0 || d.run[ref.Batch]+of[ref.Batch] < q.b.most) {
			of[ref.Batch]++
			n++
		}
	}
	return n
}

// release gives a node free when a job of a class has started on p: that if it is
// kept for it, else the one that was kept last.
func (d *plain) release(c *class, p *peer) {
	at := -1
	for i, r := range d.keeps {
		if r.of == c && (at < 0 || d.keeps[at].on != p) {
			at = i
		}
	}
	if at >= 0 {
		d.keeps = slices.Delete(d.keeps, at, at+1)
	}
}

// spares says that a job on a node does not delay the one for which that is kept.
func (d *plain) spares(n *plainNode, ref Ref) bool {
	r, q := d.keptFor(n), d.m.queueOf(ref)
	if r == nil || r.of == q.c || q.b.priority > r.priority {
		return true
	}
	asks := plainShare(r.of, n.p)
	stays := n.used.plus(n.waits)
	for _, r := range n.runs {
		if !plainRoom(n.p, r.share, asks) {
			stays = stays.minus(r.share)
		}
	}
	asks.cards = job.CardsOf(asks.gpus, plainAwaited(n.p, stays, asks))
	return plainRoom(n.p, stays.plus(asks), plainShare(q.c, n.p)) || d.inTime(n, q)
}

// inTime says that a job begun now on a node that is kept ends before the one for which
// it is could begin there, if all that runs ends as late as it may.
func (d *plain) inTime(n *plainNode, q *queue) bool {
	long := time.Duration(q.says.limit) * time.Second
	end := d.m.now + long
	stays := n.used.plus(n.waits)
	for _, r := range n.runs {
		if r.ends > 0 && r.ends < end {
			stays = stays.minus(r.share)
		}
	}
	all := n.used.plus(n.waits)
	for _, r := range n.runs {
		if r.ends > 0 {
			all = all.minus(r.share)
		}
	}
	asks := plainShare(d.keptFor(n).of, n.p)
	return long > 0 && !plainRoom(n.p, stays, asks) && plainRoom(n.p, all, asks)
}

// plainEnd is when an attempt of a queue ends at the latest that was begun then.
func plainEnd(q *queue, began time.Duration, active bool) time.Duration {
	if q.says.limit <= 0 || began == 0 || !active {
		return 0
	}
	return began + time.Duration(q.says.limit)*time.Second
}

// wait is how long the last of the youngest attempts has run that have to end before
// a node has room.
func (d *plain) wait(c *class, n *plainNode) time.Duration {
	used := n.used.plus(n.waits)
	for i := len(n.runs); i >= 0; i-- {
		if i < len(n.runs) {
			used = used.minus(n.runs[i].share)
		}
		if plainRoom(n.p, used, plainShare(c, n.p)) && i == len(n.runs) {
			return 0
		} else if plainRoom(n.p, used, plainShare(c, n.p)) {
			return d.m.now - n.runs[i].began
		}
	}
	return math.MaxInt64 / 2
}

// reserve keeps a node for the job that would be passed over by another's start.
func (d *plain) reserve(ref Ref, n *plainNode) bool {
	own := d.m.queueOf(ref).c
	over, ok := d.foremost(func(r Ref) bool {
		return d.m.queueOf(r).c != own && d.free(d.m.queueOf(r).c) && d.takes(n, r) && d.before(r, ref)
	})
	if !ok {
		return false
	}
	c := d.m.queueOf(over).c
	kept, patience := d.kept(c), time.Duration(0)
	switch {
	case kept == 0:
		if n = d.soonest(over); n == nil {
			return false
		}
	case d.keptFor(n) != nil:
		return false
	case d.waiting(c) <= kept || len(d.keeps) >= len(d.m.peers)/4:
		worst := -1
		for i, r := range d.keeps {
			if r.of == c && d.m.now-r.since >= r.patience && (worst < 0 || d.wait(c, d.nodes[r.on]) > d.wait(c, d.nodes[d.keeps[worst].on])) {
				worst = i
			}
		}
		if worst < 0 || d.wait(c, n) >= d.wait(c, d.nodes[d.keeps[worst].on])/2 {
			return false
		}
		patience = 2 * d.keeps[worst].patience
		d.keeps = slices.Delete(d.keeps, worst, worst+1)
	}
	first, _ := d.waitsFor(c, n)
	d.keeps = append(d.keeps, reservation{c, n.p, d.m.batches[first.Batch].priority, d.m.now, max(leastPatience, patience, d.wait(c, n))})
	return true
}

// soonest is the node that can be kept for a job and needs the least time for it.
func (d *plain) soonest(ref Ref) *plainNode {
	q := d.m.queueOf(ref)
	var all []*plainNode
	for _, p := range d.m.peers {
		if n := d.nodes[p]; d.takes(n, ref) && d.keptFor(n) == nil {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *plainNode) int {
		return cmp.Or(cmp.Compare(d.wait(q.c, a), d.wait(q.c, b)), d.prefers(q, a, b))
	})
}

// best is the node for a job that can be started now.
func (d *plain) best(ref Ref) *plainNode {
	q := d.m.queueOf(ref)
	var all []*plainNode
	for _, p := range d.m.peers {
		n := d.nodes[p]
		fits := d.free(q.c) && plainRoom(p, n.used, plainShare(q.c, p)) && (q.c.share.cpus > 0 || n.active == 0)
		if d.takes(n, ref) && fits && n.waiting == 0 && d.spares(n, ref) {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *plainNode) int { return d.prefers(q, a, b) })
}

// prefers orders nodes for a queue.
func (d *plain) prefers(q *queue, a, b *plainNode) int {
	rank := func(n *plainNode) []int {
		_, built := q.b.pace[n.p]
		spared := q.c.share.gpus == 0 && n.p.has.gpus > 0
		opens := false
		if part := q.c.share.gpus; 0 < part && part < 1000 {
			on := plainGPUs(n.p, n.used, share{gpus: part})
			opens = len(on) == 0 || n.used.cards.At(on[0]) == 0
		}
		left := n.p.offered + time.Duration(n.p.offer.Soon*float64(time.Second)) - d.m.now
		return []int{rankOf(0 < left && left < time.Hour), rankOf(!built), rankOf(spared), rankOf(opens), n.p.offer.CPUs - n.used.cpus, n.p.index}
	}
	return slices.Compare(rank(a), rank(b))
}

func rankOf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// plainWeight is what an attempt takes of its node, in thousandths of a cpu.
func plainWeight(a *attempt) int64 {
	p := a.peer
	if !a.active || !p.listed || p.offer.Pause != nil && p.offer.Pause.Give == nil {
		return 0
	}
	return weight(a.share, p.could)
}

// A plainUse is what an owner has used, reckoned after every event from what his
// attempts took since the one before.
type plainUse struct {
	used float64
	rate int64
	at   time.Duration
}

// compareUse reckons what owners have used without the machine's account of it.
func (r *rig) compareUse() error {
	rates := map[*owner]int64{}
	for _, a := range r.m.live {
		rates[r.m.batches[a.ref.Batch].owner] += plainWeight(a)
	}
	for uid := range r.uses {
		if r.m.owners[uid] == nil {
			delete(r.uses, uid) // who has used nothing to speak of
		}
	}
	for uid, o := range r.m.owners {
		u := r.uses[uid]
		if u == nil {
			u = &plainUse{at: r.now}
			r.uses[uid] = u
		}
		passed := r.now - u.at
		rest := math.Pow(0.5, passed.Hours())
		u.used, u.at = u.used*rest+float64(u.rate)/1000*(1-rest)*3600/math.Ln2, r.now
		u.rate = rates[o]
		o.reckon(r.m.now)
		if math.Abs(o.used-u.used) > 1e-6*(1+u.used) {
			return fmt.Errorf("owner %d has used %g, should be %g", uid, o.used, u.used)
		}
	}
	return nil
}

// plainShare is what a job of a class has of a node.
func plainShare(c *class, p *peer) share {
	s := c.share
	if s.cpus == 0 {
		s.cpus = p.offer.CPUs
	}
	gpu := slices.ContainsFunc(c.wants, func(e capability.Expr) bool { return e.String() == "gpu" })
	if gpu && c.share.cpus == 0 && s.gpus == 0 {
		for _, g := range p.offer.GPUs {
			if !g.Busy {
				s.gpus += 1000
			}
		}
		if len(p.offer.GPUs) > 0 {
			s.gpus = max(s.gpus, 1000) // which is not to be had
		}
	}
	return s
}

// plainRoom says whether a node has room for so much more.
func plainRoom(p *peer, used, more share) bool {
	return used.cpus+more.cpus <= p.offer.CPUs && plainGPUs(p, used, more) != nil &&
		(more.memory == 0 || used.memory+more.memory <= p.offer.Memory) && plainFree(p.offer.Counted, used.counts, more.counts)
}

// plainGPUs is which GPUs of a node somebody gets who asks for so many more, or has these
// already; nil if they are not free, and none if he asks for none.
func plainGPUs(p *peer, used, more share) []int {
	list := []int{}
	if more.gpus == 0 {
		return list
	}
	part := min(more.gpus, 1000)
	for _, g := range p.offer.GPUs {
		if !g.Busy && used.cards.At(g.Index)+part <= 1000 && (more.cards.Indexes() == nil || more.cards.At(g.Index) == part) {
			list = append(list, g.Index)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(int(used.cards.At(b)-used.cards.At(a)), a-b) })
	n := int((more.gpus + 999) / 1000)
	if len(list) < n {
		return nil
	}
	return list[:n]
}

// plainAwaited is which GPUs a job gets sooner or later beside what stays: those that are
// free for it, else those of which the least is taken.
func plainAwaited(p *peer, stays, asks share) []int {
	if list := plainGPUs(p, stays, asks); list != nil {
		return list
	}
	var list []int
	for _, g := range p.offer.GPUs {
		if !g.Busy {
			list = append(list, g.Index)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(int(stays.cards.At(a)-stays.cards.At(b)), b-a) })
	return list[:min(len(list), int((asks.gpus+999)/1000))]
}

// plainFree says that there is so much more of what is counted of those names that are.
func plainFree(has, used, more job.Counts) bool {
	for name, n := range more.All() {
		if has.Of(name) > 0 && used.Of(name)+n > has.Of(name) {
			return false
		}
	}
	return true
}

// plainCounted says that an attempt has what it was given of what is counted.
func plainCounted(a *attempt) bool {
	gone := a.peer.session == 0 && a.peer.expired && !a.current
	return a.result == nil && !a.dead && !gone
}

func (d *plain) take(counts job.Counts) {
	for name, n := range counts.All() {
		d.taken[name] += n
	}
}

// free says that what a class asks for is free of what the site counts.
func (d *plain) free(c *class) bool {
	for name, n := range c.share.counts.All() {
		if has := d.m.site.has.Of(name); has > 0 && d.taken[name]+n > has {
			return false
		}
	}
	return true
}

// countable says that each name is counted by the node or the site, and enough.
func (d *plain) countable(p *peer, c *class) bool {
	for name, n := range c.share.counts.All() {
		here, all := p.offer.Counted.Of(name), d.m.site.has.Of(name)
		if max(here, all) == 0 || here > 0 && n > here || all > 0 && n > all {
			return false
		}
	}
	return true
}

// yields says that a job that goes first waits for more of what a job asks for, or for
// a node that is kept for it, and that job would leave too little.
func (d *plain) yields(ref Ref) bool {
	own := d.m.queueOf(ref).c
	_, ok := d.foremost(func(r Ref) bool {
		c := d.m.queueOf(r).c
		scarce := false
		for name, n := range own.share.counts.All() {
			has, asks := d.m.site.has.Of(name), c.share.counts.Of(name)
			scarce = scarce || has > 0 && asks > 0 && has-d.taken[name]-n < asks
		}
		return c != own && scarce && (!d.free(c) || d.kept(c) > 0) && d.before(r, ref) &&
			slices.ContainsFunc(d.m.peers, func(p *peer) bool { return d.takes(d.nodes[p], r) })
	})
	return ok
}

// rightlyAhead checks the rule for attempts that are sent ahead: one a slot at
// most, of a batch whose attempts are short there.
func rightlyAhead(m *Machine, a *attempt) error {
	p, b := a.peer, m.batches[a.ref.Batch]
	if p.waiting > p.active || a.share.counts != "" || a.share.gpus > 0 || !b.short(p) || !plainRoom(p, share{}, p.waits.bare()) {
		return fmt.Errorf("attempt %s is sent ahead to %s, where %d wait and %d run", a.token, p.name, p.waiting, p.active)
	}
	if r := p.keeps; r != nil && r.of.share.cpus == 0 && r.of != m.queueOf(a.ref).c && r.priority >= b.priority {
		return fmt.Errorf("attempt %s is sent ahead to %s, which is kept whole for others", a.token, p.name)
	}
	return nil
}

// plainGated says that a job has to wait for others of its batch.
func plainGated(b *batch, i int) bool {
	waits, _ := plainGate(b, i)
	return waits
}

// plainGate says that a job has to wait for others of its batch, and that it would
// do so in vain.
func plainGate(b *batch, i int) (waits, vain bool) {
	g := b.gates
	if g == nil {
		return false, false
	}
	wait := func(o int) {
		waits = waits || b.States[o] != job.Done
		vain = vain || spoils(b.States[o])
	}
	for _, o := range plainNeeds(g, i) {
		wait(o)
	}
	early := map[int]bool{}
	for c := range int(g.first) {
		plainEarly(g, c, early)
	}
	for c := range int(g.first) {
		if !early[i] {
			wait(c)
		}
	}
	return waits, vain
}

func plainNeeds(g *gates, i int) (all []int) {
	if g.needs == nil || g.needs.Of[i] == 0 {
		return nil
	}
	for _, o := range g.needs.List(g.needs.Of[i]) {
		all = append(all, int(o))
	}
	return all
}

func plainEarly(g *gates, i int, early map[int]bool) {
	if !early[i] {
		early[i] = true
		for _, o := range plainNeeds(g, i) {
			plainEarly(g, o, early)
		}
	}
}

// checkEnded holds that no job waits that can or shall not be started any more.
func (r *rig) checkEnded() error {
	for n, b := range r.m.batches {
		if !r.m.loaded || !b.ready || b.gates == nil {
			continue
		}
		fails := 0
		for _, e := range r.logs[n] {
			if e.rec.Kind == job.KindFailed && e.rec.Attempt != "" {
				fails++
			} else if e.rec.Kind == job.KindRetry {
				fails = 0
			}
		}
		for i, s := range b.States {
			_, vain := plainGate(b, i)
			if s == job.Queued && (vain || b.gates.stop > 0 && fails >= b.gates.stop) {
				return fmt.Errorf("job %d/%d is queued, and should be over: vain=%v, %d jobs failed of %d", n, i, vain, fails, b.gates.stop)
			}
		}
	}
	return nil
}
