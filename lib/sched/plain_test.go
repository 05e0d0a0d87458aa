package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// The placing decision once more, from scratch and without any index: every
// job that waits, in order, is tried on every node. It is what place must
// equal, whatever it leaves out because nothing there can have changed.

type plain struct {
	m     *Machine
	nodes map[*policy.Node]*plainNode
	waits map[Ref]bool
	run   map[uint32]int // jobs of each batch that run
	rates map[*policy.Owner]int64
	keeps []policy.Reservation // the latest last
	taken map[string]int       // of what is counted

	oldest map[*policy.Owner]uint32 // of the batches of each that waited when it began
}

type plainNode struct {
	p       *policy.Node
	used    policy.Share
	active  int
	waiting int
	waits   policy.Share
	runs    []plainRun // in the order in which they were started
}

type plainRun struct {
	share policy.Share
	began time.Duration
	ends  time.Duration // at the latest; 0: that is not known
	order uint64        // of its start
}

type placed struct {
	ref  Ref
	node string
}

// comparePlain takes back the starts among the actions of an event, decides
// again from what was kept before it, and compares.
func comparePlain(m *Machine, keeps []policy.Reservation, actions []Action) error {
	d := plain{m, map[*policy.Node]*plainNode{}, map[Ref]bool{}, map[uint32]int{}, map[*policy.Owner]int64{}, slices.Clone(keeps), map[string]int{}, map[*policy.Owner]uint32{}}
	var got []placed
	started := map[*attempt]bool{}
	for _, a := range actions {
		s, ok := a.(Start)
		if !ok {
			continue
		}
		at := m.live[must(s.Attempt)]
		started[at] = true
		if at.Active {
			got = append(got, placed{s.Ref, string(at.peer.Name)})
		} else if err := rightlyAhead(m, at); err != nil {
			return err
		}
	}
	d.begin(started)
	if want := d.decide(); !slices.Equal(got, want) {
		return fmt.Errorf("placed %v, should be %v", got, want)
	}
	if got := keepsOf(m); !slices.EqualFunc(got, d.keeps, sameKeep) {
		return fmt.Errorf("kept are %v, should be %v", got, d.keeps)
	}
	return nil
}

func sameKeep(a, b policy.Reservation) bool {
	return a.Of == b.Of && a.On == b.On && a.Standing == b.Standing && a.Since == b.Since && a.Patience == b.Patience && slices.Equal(a.Beside, b.Beside)
}

// keepsOf is what is kept for classes.
func keepsOf(m *Machine) (all []policy.Reservation) {
	for _, r := range m.lab.Kept {
		all = append(all, policy.Reservation{Of: r.Of, On: r.On, Standing: r.Standing, Since: r.Since, Patience: r.Patience, Beside: slices.Clone(r.Beside)})
	}
	return all
}

// begin is how things stood before some attempts were started.
func (d *plain) begin(started map[*attempt]bool) {
	for b := range d.m.every() {
		for i, s := range b.States {
			d.waits[Ref{b.Num, uint32(i)}] = b.Ready && s == job.Queued && !plainGated(b, i)
		}
	}
	for _, p := range d.m.peers {
		n := &plainNode{p: p.Node, used: p.Used, active: p.Active, waiting: p.Waiting, waits: p.Waits}
		d.nodes[p.Node] = n
		for a := p.first; a != nil; a = a.after {
			switch {
			case started[a] && a.Active:
				n.used = n.used.Minus(a.Share)
				n.active--
			case started[a]:
				n.waits = n.waits.Minus(a.Share)
				n.waiting--
			case a.result == nil:
				n.runs = append(n.runs, plainRun{a.Share, a.Began, plainEnd(d.m.queueOf(a.ref), a.Began, a.Active), a.order})
			}
			if started[a] {
				d.waits[a.ref] = true
				continue
			}
			d.rates[d.m.batches[a.ref.Batch].Owner] += plainWeight(d.m, a)
			if a.current && a.result == nil {
				d.run[a.ref.Batch]++
			}
			if plainCounted(a) {
				d.take(a.Share.Counts)
			}
		}
		for _, g := range p.guests {
			if started[g.of] {
				n.used = n.used.Minus(g.Share)
				n.active--
				continue
			}
			n.runs = append(n.runs, plainRun{g.Share, g.Began, plainEnd(g.Queue, g.Began, true), g.of.order})
		}
		slices.SortFunc(n.runs, func(a, b plainRun) int { return cmp.Compare(a.order, b.order) })
	}
}

// decide places what can be placed.
func (d *plain) decide() (all []placed) {
	for ref, waits := range d.waits {
		b := d.m.batches[ref.Batch]
		if oldest, known := d.oldest[b.Owner]; waits && (b.Most == 0 || d.run[ref.Batch] < b.Most) && (!known || ref.Batch < oldest) {
			d.oldest[b.Owner] = ref.Batch
		}
	}
	for i := len(d.keeps) - 1; i >= 0; i-- {
		r := &d.keeps[i]
		ref, ok := d.waitsFor(r.Of, d.nodes[r.On])
		was := r.Standing
		if ok {
			r.Standing = plainStanding(d.m, ref)
		}
		if another := r.Standing.Common != was.Common || r.Standing.Owner == was.Owner && r.Standing.Own != was.Own; !ok || another || d.waiting(r.Of) < d.kept(r.Of) || !d.free(r.Of) {
			d.keeps = slices.Delete(d.keeps, i, i+1)
		}
	}
	for i := 0; i < len(d.keeps); i++ {
		d.widen(i)
	}
	for {
		ref, n := d.first()
		if n == nil {
			return all
		}
		if d.reserve(ref, n) {
			continue
		}
		c := d.m.queueOf(ref).Class
		for _, o := range d.deal(n, c, true) {
			n, s := d.nodes[o.On], o.Share
			s.Cards = job.CardsOf(s.GPUs, plainGPUs(n.p, n.used, s))
			n.used = n.used.Plus(s)
			n.active++
			n.runs = append(n.runs, plainRun{s, d.m.lab.Now, plainEnd(d.m.queueOf(ref), d.m.lab.Now, true), math.MaxUint64})
		}
		d.run[ref.Batch]++
		d.rates[d.m.batches[ref.Batch].Owner] += policy.Weight(plainShare(c, n.p), n.p.Could)
		d.take(c.Share.Counts)
		d.waits[ref] = false
		d.release(c, n.p)
		for i := range d.keeps {
			r, from := &d.keeps[i], d.m.batches[ref.Batch].Owner
			if first, ok := d.waitsFor(r.Of, d.nodes[r.On]); ok && r.Standing.Owner == from {
				if s := plainStanding(d.m, first); s.Owner != from && s.Common == r.Standing.Common {
					r.Standing = s
				}
			}
		}
		all = append(all, placed{ref, string(n.p.Name)})
	}
}

// before says that a job goes before another.
func (d *plain) before(a, b Ref) bool {
	turn := func(o *policy.Owner) int64 { return int64(o.Used + float64(d.rates[o])/1000/(math.Ln2/3600)) }
	switch x, y := d.m.batches[a.Batch], d.m.batches[b.Batch]; {
	case plainStanding(d.m, a).Common != plainStanding(d.m, b).Common:
		return plainStanding(d.m, a).Common > plainStanding(d.m, b).Common
	case turn(x.Owner) != turn(y.Owner):
		return turn(x.Owner) < turn(y.Owner)
	case x.Owner != y.Owner:
		return d.oldest[x.Owner] < d.oldest[y.Owner]
	case plainStanding(d.m, a).Own != plainStanding(d.m, b).Own:
		return plainStanding(d.m, a).Own > plainStanding(d.m, b).Own
	case a.Batch != b.Batch:
		return a.Batch < b.Batch
	}
	return a.Job < b.Job
}

// plainStanding is that of a job: the priority of its batch, and its own, among the jobs of its
// owner; for all what an operator has set, or everybody may, or what lets others go first.
func plainStanding(m *Machine, ref Ref) policy.Standing {
	b, own := m.batches[ref.Batch], 0
	if int(ref.Job) < len(b.Own) {
		own = int(b.Own[ref.Job])
	}
	s := policy.Standing{Owner: b.Owner, Own: b.Priority + own}
	switch {
	case m.lab.ForAll:
		s.Common = s.Own
	case b.ForAll && own < 0:
		s.Common = s.Own
	case b.ForAll:
		s.Common = b.Priority
	case s.Own < 0:
		s.Common = s.Own
	}
	return s
}

// plainOver says that a job goes before one with that standing, whatever was used.
func plainOver(m *Machine, ref Ref, o policy.Standing) bool {
	s := plainStanding(m, ref)
	if s.Common == o.Common && s.Owner == o.Owner {
		return s.Own > o.Own
	}
	return s.Common > o.Common
}

// foremost is the job that goes first of those that wait and fit.
func (d *plain) foremost(fits func(Ref) bool) (first Ref, ok bool) {
	for ref, waits := range d.waits {
		b := d.m.batches[ref.Batch]
		if waits && (b.Most == 0 || d.run[ref.Batch] < b.Most) && (!ok || d.before(ref, first)) && fits(ref) {
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
	able := plainWants(q.Class, p)
	if able = able && !plainShuns(d.m, ref, p) && d.countable(p, q.Class); !able {
		return false
	}
	return !d.tooFull(ref, p) && plainOpen(p) && !plainDoomed(d.m, q) &&
		!q.Batch.BuildFailed(p) && q.Batch.Refusals[p].Until == 0 && d.deal(n, q.Class, false) != nil
}

// plainOpen says that a node gives something at the moment.
func plainOpen(p *policy.Node) bool {
	return p.Listed && p.Drained == "" && p.HaltedUntil == 0 && p.RestsUntil == 0 && (p.Offer.Pause == nil || p.Offer.Pause.Give != nil) && p.Offer.CPUs > 0
}

// deal is what a job of a class has of a node, and of others of its machine if it does not fit
// there; now, or if nothing ran there. Nil if it does not fit.
func (d *plain) deal(n *plainNode, c *policy.Class, now bool) (all []policy.Portion) {
	fits := func(n *plainNode, s policy.Share) bool {
		if now {
			return plainRoom(n.p, n.used, s) && n.waiting == 0
		}
		return plainRoom(n.p, policy.Share{}, s)
	}
	if s := plainShare(c, n.p); fits(n, s) && n.p.Offer.CPUs > 0 {
		return []policy.Portion{{On: n.p, Ranks: c.Ranks, Share: s}}
	}
	left := c.Ranks
	for _, p := range append([]*policy.Node{n.p}, plainBeside(d.m, n.p)...) {
		o := d.nodes[p]
		r := d.keptFor(o)
		if o != n && !(plainOpen(p) && plainWants(c, p) && (!now || r == nil || r.Of == c)) {
			continue
		}
		for k := left; k > 0; k-- {
			s := policy.Share{CPUs: c.Share.CPUs / c.Ranks * k, Memory: c.Share.Memory / int64(c.Ranks) * int64(k), GPUs: c.Share.GPUs / job.GPUs(c.Ranks) * job.GPUs(k), Among: plainAmong(c, p)}
			if o == n {
				s.Counts = c.Share.Counts
			}
			if fits(o, s) {
				all = append(all, policy.Portion{On: p, Ranks: k, Share: s})
				left -= k
				break
			}
		}
	}
	if left > 0 || len(all) < 2 || all[0].On != n.p {
		return nil
	}
	return all
}

// plainBeside is the other nodes of the machine that a node is of.
func plainBeside(m *Machine, p *policy.Node) (all []*policy.Node) {
	for _, o := range m.lab.Nodes {
		if o != p && p.Offer.Machine != "" && o.Offer.Machine == p.Offer.Machine {
			all = append(all, o)
		}
	}
	return all
}

// plainWants says that a node has each capability that a class wants; if the class has GPUs, all
// that it wants of these in one of them.
func plainWants(c *policy.Class, p *policy.Node) bool {
	if plainPicks(c) && plainAmong(c, p) == (job.Cards{}) && slices.ContainsFunc(c.Wants, func(e capability.Expr) bool {
		_, all := e.GPUs(p.Facts)
		return e.OfGPUs() && !all
	}) {
		return false
	}
	return !slices.ContainsFunc(c.Wants, func(e capability.Expr) bool {
		return !e.Holds(p.Facts) && !(plainPicks(c) && e.OfGPUs())
	})
}

// plainPicks says that a class has GPUs.
func plainPicks(c *policy.Class) bool {
	gpu := slices.ContainsFunc(c.Wants, func(e capability.Expr) bool { return e.String() == "gpu" })
	return c.Share.GPUs > 0 || gpu && c.Share.CPUs == 0
}

// plainAmong is the GPUs of a node that are all that a class wants; nothing if it wants nothing
// of them.
func plainAmong(c *policy.Class, p *policy.Node) job.Cards {
	var wanted []int
	picks := false
	for _, g := range p.Facts.GPUs {
		fits := true
		for _, e := range c.Wants {
			fit, all := e.GPUs(p.Facts)
			if e.OfGPUs() && !all {
				picks = true
				fits = fits && slices.Contains(fit, g.Index)
			}
		}
		if fits {
			wanted = append(wanted, g.Index)
		}
	}
	if !picks || !plainPicks(c) {
		return job.Cards{}
	}
	return job.AllCards(wanted)
}

// tooFull says that a node has less disk than a job asks for, and that another that
// could be used for it has more.
func (d *plain) tooFull(ref Ref, p *policy.Node) bool {
	q, space := d.m.queueOf(ref), int64(0)
	room := func(p *policy.Node) int64 { return (p.Offer.Disk + p.Offer.Kept) + (p.Offer.Disk+p.Offer.Kept)/16 }
	for _, o := range d.m.lab.Nodes {
		t := q.Batch.Refusals[o]
		able := plainWants(q.Class, o) && o.CouldHold(q.Class) && d.countable(o, q.Class) && !plainShuns(d.m, ref, o) && d.deal(d.nodes[o], q.Class, false) != nil
		lasts := t.Until != 0 && (t.Barred || t.Long >= policy.LongestRefusal)
		open := o.Session != 0 && o.RestsUntil == 0 && o.Drained == "" && (o.Offer.Pause == nil || o.Offer.Pause.Give != nil) && o.Offer.CPUs > 0
		if able && open && !lasts && !q.Batch.BuildFailed(o) {
			space = max(space, room(o))
		}
	}
	if q.Batch.Early && d.m.lab.Now < d.m.lab.Loaded+policy.SettleTime {
		space = math.MaxInt64
	}
	disk := room(p)
	return disk > 0 && disk < max(q.Says.Disk, q.Disk) && disk < space
}

// plainShuns says that a job that failed is not to be started on a node: that has no
// more memory than was too little, or it failed there and another node could run it.
func plainShuns(m *Machine, ref Ref, p *policy.Node) bool {
	b := m.batches[ref.Batch]
	t := b.trials[ref.Job]
	switch {
	case p.DiskBelow(m.queueOf(ref).AsksDisk()):
		return true
	case t == nil:
		return false
	case t.memory > 0 && p.Could.Memory <= t.memory:
		return true
	}
	return slices.Contains(t.on, p) && plainElsewhere(m, ref, t, t.q.Old)
}

// plainElsewhere says that a job that failed on some nodes could be run on another.
func plainElsewhere(m *Machine, ref Ref, t *trial, old bool) bool {
	b, q := m.batches[ref.Batch], m.queueOf(ref)
	c := q.Class
	for _, p := range m.lab.Nodes {
		able := plainWants(c, p)
		known := p.Session != 0 || p.Boot != "" && !p.Removed && m.lab.Now < p.Heard+m.lab.Lease
		refused := b.Refusals[p]
		lasts := refused.Until != 0 && (refused.Barred || refused.Long >= policy.LongestRefusal)
		able = able && p.CouldHold(c) && (&plain{m: m}).countable(p, c)
		if !slices.Contains(t.on, p) && able && known && p.Drained == "" && !b.BuildFailed(p) && !lasts &&
			(t.memory == 0 || p.Could.Memory > t.memory) && !p.DiskBelow(q.AsksDisk()) {
			return true
		}
	}
	return old && m.lab.Now < m.lab.Loaded+policy.SettleTime
}

// waitsFor is the job of a class that goes first on a node that has enough for it.
func (d *plain) waitsFor(c *policy.Class, n *plainNode) (Ref, bool) {
	return d.foremost(func(ref Ref) bool { return d.m.queueOf(ref).Class == c && d.takes(n, ref) })
}

// keptFor is the reservation of a node, or nil.
func (d *plain) keptFor(n *plainNode) *policy.Reservation {
	if i := slices.IndexFunc(d.keeps, func(r policy.Reservation) bool { return r.On == n.p || slices.Contains(r.Beside, n.p) }); i >= 0 {
		return &d.keeps[i]
	}
	return nil
}

// kept is how many nodes are kept for a class.
func (d *plain) kept(c *policy.Class) (n int) {
	for _, r := range d.keeps {
		if r.Of == c {
			n++
		}
	}
	return n
}

// waiting is how many jobs of a class wait and may run.
func (d *plain) waiting(c *policy.Class) (n int) {
	of := map[uint32]int{}
	for ref, waits := range d.waits {
		if q := d.m.queueOf(ref); waits && q.Class == c && !plainDoomed(d.m, q) && (q.Batch.Most == 0 || d.run[ref.Batch]+of[ref.Batch] < q.Batch.Most) {
			of[ref.Batch]++
			n++
		}
	}
	return n
}

// release gives a node free when a job of a class has started on p: that if it is
// kept for it, else the one that was kept last.
func (d *plain) release(c *policy.Class, p *policy.Node) {
	at := -1
	for i, r := range d.keeps {
		if r.Of == c && (at < 0 || d.keptFor(d.nodes[p]) != &d.keeps[at]) {
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
	if r == nil || r.Of == q.Class || plainOver(d.m, ref, r.Standing) {
		return true
	}
	if len(r.Beside) > 0 {
		return false
	}
	asks := plainShare(r.Of, n.p)
	stays := n.used.Plus(n.waits)
	for _, r := range n.runs {
		if !plainRoom(n.p, r.share, asks) {
			stays = stays.Minus(r.share)
		}
	}
	asks.Cards = job.CardsOf(asks.GPUs, plainAwaited(n.p, stays, asks))
	return plainRoom(n.p, stays.Plus(asks), plainShare(q.Class, n.p)) || d.inTime(n, q)
}

// inTime says that a job begun now on a node that is kept ends before the one for which
// it is could begin there, if all that runs ends as late as it may.
func (d *plain) inTime(n *plainNode, q *policy.Queue) bool {
	long := time.Duration(q.Says.Limit) * time.Second
	end := d.m.lab.Now + long
	stays := n.used.Plus(n.waits)
	for _, r := range n.runs {
		if r.ends > 0 && r.ends < end {
			stays = stays.Minus(r.share)
		}
	}
	all := n.used.Plus(n.waits)
	for _, r := range n.runs {
		if r.ends > 0 {
			all = all.Minus(r.share)
		}
	}
	asks := plainShare(d.keptFor(n).Of, n.p)
	return long > 0 && !plainRoom(n.p, stays, asks) && plainRoom(n.p, all, asks)
}

// plainEnd is when an attempt of a queue ends at the latest that was begun then.
func plainEnd(q *policy.Queue, began time.Duration, active bool) time.Duration {
	if q.Says.Limit <= 0 || began == 0 || !active {
		return 0
	}
	return began + time.Duration(q.Says.Limit)*time.Second
}

// wait is how long the last of the youngest attempts has run that have to end before
// a node has room.
func (d *plain) wait(c *policy.Class, n *plainNode) time.Duration {
	if !plainRoom(n.p, policy.Share{}, plainShare(c, n.p)) {
		oldest := d.m.lab.Now
		for _, p := range append([]*policy.Node{n.p}, plainBeside(d.m, n.p)...) {
			for _, r := range d.nodes[p].runs {
				oldest = min(oldest, r.began)
			}
		}
		switch {
		case d.deal(n, c, true) != nil:
			return 0
		case oldest == d.m.lab.Now:
			return math.MaxInt64 / 2
		}
		return d.m.lab.Now - oldest
	}
	used := n.used.Plus(n.waits)
	for i := len(n.runs); i >= 0; i-- {
		if i < len(n.runs) {
			used = used.Minus(n.runs[i].share)
		}
		if plainRoom(n.p, used, plainShare(c, n.p)) && i == len(n.runs) {
			return 0
		} else if plainRoom(n.p, used, plainShare(c, n.p)) {
			return d.m.lab.Now - n.runs[i].began
		}
	}
	return math.MaxInt64 / 2
}

// reserve keeps a node for the first job that would be passed over by another's start, and
// lacks one.
func (d *plain) reserve(ref Ref, n *plainNode) bool {
	own := d.m.queueOf(ref).Class
	over, ok := d.foremost(func(r Ref) bool {
		c := d.m.queueOf(r).Class
		on, _ := d.keeper(r, n)
		return c != own && d.free(c) && d.takes(n, r) && d.before(r, ref) && on != nil
	})
	if !ok {
		return false
	}
	c, patience := d.m.queueOf(over).Class, time.Duration(0)
	n, worst := d.keeper(over, n)
	if worst >= 0 {
		patience = 2 * d.keeps[worst].Patience
		d.keeps = slices.Delete(d.keeps, worst, worst+1)
	}
	first, _ := d.waitsFor(c, n)
	d.keeps = append(d.keeps, policy.Reservation{Of: c, On: n.p, Standing: plainStanding(d.m, first), Since: d.m.lab.Now,
		Patience: max(time.Minute, patience, min(d.wait(c, n), time.Hour))})
	d.widen(len(d.keeps) - 1)
	return true
}

// widen keeps all of a machine where a node of it is kept for ranks which that alone never
// holds, but for what is kept since longer.
func (d *plain) widen(i int) {
	r := &d.keeps[i]
	if r.Beside = nil; plainRoom(r.On, policy.Share{}, plainShare(r.Of, r.On)) {
		return
	}
	for _, p := range plainBeside(d.m, r.On) {
		at := slices.IndexFunc(d.keeps, func(r policy.Reservation) bool { return r.On == p || slices.Contains(r.Beside, p) })
		if at > i {
			d.keeps = slices.Delete(d.keeps, at, at+1)
		}
		if r = &d.keeps[i]; at < 0 || at > i {
			r.Beside = append(r.Beside, p)
		}
	}
}

// keeper is the node that is to be kept for a job where n was about to be given to another,
// and which of those that are kept is to be given free for it, or -1; nil if there is none.
func (d *plain) keeper(ref Ref, n *plainNode) (on *plainNode, worst int) {
	c, worst := d.m.queueOf(ref).Class, -1
	switch kept := d.kept(c); {
	case kept == 0:
		return d.soonest(ref), -1
	case d.keptFor(n) != nil:
		return nil, -1
	case d.waiting(c) <= kept || len(d.keeps) >= len(d.m.lab.Nodes)/4:
		for i, r := range d.keeps {
			if r.Of == c && d.m.lab.Now-r.Since >= r.Patience && (worst < 0 || d.wait(c, d.nodes[r.On]) > d.wait(c, d.nodes[d.keeps[worst].On])) {
				worst = i
			}
		}
		if worst < 0 || d.wait(c, n) >= d.wait(c, d.nodes[d.keeps[worst].On])/2 {
			return nil, -1
		}
	}
	return n, worst
}

// soonest is the node that can be kept for a job and needs the least time for it.
func (d *plain) soonest(ref Ref) *plainNode {
	q := d.m.queueOf(ref)
	var all []*plainNode
	for _, p := range d.m.lab.Nodes {
		if n := d.nodes[p]; d.takes(n, ref) && d.keptFor(n) == nil {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *plainNode) int {
		return cmp.Or(cmp.Compare(d.wait(q.Class, a), d.wait(q.Class, b)), d.prefers(q, a, b))
	})
}

// best is the node for a job that can be started now.
func (d *plain) best(ref Ref) *plainNode {
	q := d.m.queueOf(ref)
	var all []*plainNode
	for _, p := range d.m.lab.Nodes {
		n := d.nodes[p]
		fits := d.free(q.Class) && d.deal(n, q.Class, true) != nil && (q.Class.Share.CPUs > 0 || n.active == 0)
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
func (d *plain) prefers(q *policy.Queue, a, b *plainNode) int {
	rank := func(n *plainNode) []int {
		_, built := q.Batch.Pace[n.p]
		spared := q.Class.Share.GPUs == 0 && n.p.Has.GPUs > 0
		opens := false
		if part := q.Class.Share.GPUs; 0 < part && part < 1000 {
			on := plainGPUs(n.p, n.used, policy.Share{GPUs: part, Among: plainAmong(q.Class, n.p)})
			opens = len(on) == 0 || n.used.Cards.At(on[0]) == 0
		}
		left := n.p.Offered + time.Duration(n.p.Offer.Soon*float64(time.Second)) - d.m.lab.Now
		parted := q.Class.Ranks > 1 && len(plainBeside(d.m, n.p)) > 0 && !plainRoom(n.p, n.used, plainAsks(q.Class, n.p))
		return []int{rankOf(0 < left && left < time.Hour), rankOf(parted), rankOf(!built), rankOf(spared), rankOf(opens), n.p.Offer.CPUs - n.used.CPUs, n.p.Index}
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
func plainWeight(m *Machine, a *attempt) int64 {
	p := a.peer
	if _, still := m.batches[a.ref.Batch].frozen[a.ref.Job]; still || !a.Active || !p.Listed || p.Offer.Pause != nil && p.Offer.Pause.Give == nil {
		return 0
	}
	s := a.Share
	for _, g := range a.beside {
		if g.on.Offer.Pause != nil && g.on.Offer.Pause.Give == nil {
			return 0
		}
		s = s.Plus(g.Share)
	}
	return policy.Weight(s, p.Could)
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
	rates := map[*policy.Owner]int64{}
	for _, a := range r.m.live {
		rates[r.m.batches[a.ref.Batch].Owner] += plainWeight(r.m, a)
	}
	for uid, o := range r.m.lab.Owners {
		u := r.uses[uid]
		if u == nil {
			u = &plainUse{at: r.now}
			r.uses[uid] = u
		}
		passed := r.now - u.at
		rest := math.Pow(0.5, passed.Hours())
		u.used, u.at = u.used*rest+float64(u.rate)/1000*(1-rest)*3600/math.Ln2, r.now
		u.rate = rates[o]
		o.Reckon(r.m.lab.Now)
		if math.Abs(o.Used-u.used) > 1e-6*(1+u.used) {
			return fmt.Errorf("owner %d has used %g, should be %g", uid, o.Used, u.used)
		}
	}
	return nil
}

// plainAsks is what a job of a class asks a node for.
func plainAsks(c *policy.Class, p *policy.Node) policy.Share {
	s := c.Share
	s.Among = plainAmong(c, p)
	return s
}

// plainShare is what a job of a class has of a node.
func plainShare(c *policy.Class, p *policy.Node) policy.Share {
	s := plainAsks(c, p)
	if s.CPUs == 0 {
		s.CPUs = p.Offer.CPUs
	}
	gpu := slices.ContainsFunc(c.Wants, func(e capability.Expr) bool { return e.String() == "gpu" })
	if gpu && c.Share.CPUs == 0 && s.GPUs == 0 {
		for _, g := range p.Offer.GPUs {
			if !g.Busy && (s.Among == (job.Cards{}) || s.Among.At(g.Index) > 0) {
				s.GPUs += 1000
			}
		}
		if len(p.Offer.GPUs) > 0 {
			s.GPUs = max(s.GPUs, 1000) // which is not to be had
		}
	}
	return s
}

// plainRoom says whether a node has room for so much more.
func plainRoom(p *policy.Node, used, more policy.Share) bool {
	return used.CPUs+more.CPUs <= p.Offer.CPUs && plainGPUs(p, used, more) != nil &&
		(more.Memory == 0 || used.Memory+more.Memory <= p.Offer.Memory) && plainFree(p.Offer.Counted, used.Counts, more.Counts)
}

// plainGPUs is which GPUs of a node somebody gets who asks for so many more, or has these
// already; nil if they are not free, and none if he asks for none.
func plainGPUs(p *policy.Node, used, more policy.Share) []int {
	list := []int{}
	if more.GPUs == 0 {
		return list
	}
	part := min(more.GPUs, 1000)
	for _, g := range p.Offer.GPUs {
		if !g.Busy && (more.Among == (job.Cards{}) || more.Among.At(g.Index) > 0) && used.Cards.At(g.Index)+part <= 1000 && (more.Cards.Indexes() == nil || more.Cards.At(g.Index) == part) {
			list = append(list, g.Index)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(int(used.Cards.At(b)-used.Cards.At(a)), a-b) })
	n := int((more.GPUs + 999) / 1000)
	if len(list) < n {
		return nil
	}
	return list[:n]
}

// plainAwaited is which GPUs a job gets sooner or later beside what stays: those that are
// free for it, else those of which the least is taken.
func plainAwaited(p *policy.Node, stays, asks policy.Share) []int {
	if list := plainGPUs(p, stays, asks); list != nil {
		return list
	}
	var list []int
	for _, g := range p.Offer.GPUs {
		if !g.Busy && (asks.Among == (job.Cards{}) || asks.Among.At(g.Index) > 0) {
			list = append(list, g.Index)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(int(stays.Cards.At(a)-stays.Cards.At(b)), b-a) })
	return list[:min(len(list), int((asks.GPUs+999)/1000))]
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
	gone := a.peer.Session == 0 && a.peer.expired && !a.current
	return a.result == nil && !a.dead && !gone
}

func (d *plain) take(counts job.Counts) {
	for name, n := range counts.All() {
		d.taken[name] += n
	}
}

// free says that what a class asks for is free of what the site counts.
func (d *plain) free(c *policy.Class) bool {
	for name, n := range c.Share.Counts.All() {
		if has := d.m.lab.Site.Has.Of(name); has > 0 && d.taken[name]+n > has {
			return false
		}
	}
	return true
}

// countable says that each name is counted by the node or the site, and enough.
func (d *plain) countable(p *policy.Node, c *policy.Class) bool {
	for name, n := range c.Share.Counts.All() {
		here, all := p.Offer.Counted.Of(name), d.m.lab.Site.Has.Of(name)
		if max(here, all) == 0 || here > 0 && n > here || all > 0 && n > all {
			return false
		}
	}
	return true
}

// yields says that a job that goes first waits for more of what a job asks for, or for
// a node that is kept for it, and that job would leave too little.
func (d *plain) yields(ref Ref) bool {
	own := d.m.queueOf(ref).Class
	_, ok := d.foremost(func(r Ref) bool {
		c := d.m.queueOf(r).Class
		scarce := false
		for name, n := range own.Share.Counts.All() {
			has, asks := d.m.lab.Site.Has.Of(name), c.Share.Counts.Of(name)
			scarce = scarce || has > 0 && asks > 0 && has-d.taken[name]-n < asks
		}
		return c != own && scarce && (!d.free(c) || d.kept(c) > 0) && d.before(r, ref) &&
			slices.ContainsFunc(d.m.lab.Nodes, func(p *policy.Node) bool { return d.takes(d.nodes[p], r) })
	})
	return ok
}

// rightlyAhead checks the rule for attempts that are sent ahead: of a batch whose
// attempts are short there, one a slot at most, or what is over in a tenth of a second.
func rightlyAhead(m *Machine, a *attempt) error {
	p, b := a.peer.Node, m.batches[a.ref.Batch]
	ran, known := b.Pace[p]
	most := 1
	for most < 8 && time.Duration(most+1)*ran <= 100*time.Millisecond {
		most++
	}
	waiting, waits := 0, policy.Share{} // with it: others may have been sent behind it, of which more may wait
	for o := a; o != nil; o = o.before {
		if o.result == nil && !o.Active {
			waiting, waits = waiting+1, waits.Plus(o.Share)
		}
	}
	if len(a.beside) > 0 || !p.OffersEnough(m.queueOf(a.ref).Class) || waiting > p.Active*most || a.Share.Counts != "" || a.Share.GPUs > 0 || !known || ran < 0 || ran >= 5*time.Second ||
		waits.CPUs > p.Offer.CPUs*most || waits.Memory > p.Offer.Memory*int64(most) && waits.Memory > 0 {
		return fmt.Errorf("attempt %s is sent ahead to %s, where %d wait and %d run", a.Token, p.Name, waiting, p.Active)
	}
	if r := p.Kept; r != nil && r.Of.Share.CPUs == 0 && r.Of != m.queueOf(a.ref).Class && !plainOver(m, a.ref, r.Standing) {
		return fmt.Errorf("attempt %s is sent ahead to %s, which is kept whole for others", a.Token, p.Name)
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
	for c := range g.canaries {
		plainEarly(g, c, early)
	}
	for c := range g.canaries {
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
		if !r.m.loaded || !b.Ready || b.gates == nil {
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

// plainDoomed says that the build of a queue's batch failed wherever it could run, or that
// its jobs are of too many classes.
func plainDoomed(m *Machine, q *policy.Queue) bool {
	able, failed := 0, 0
	for _, p := range m.lab.Nodes {
		if p.Listed && p.Drained == "" && q.Suits(p) {
			if able++; q.Batch.BuildFailed(p) {
				failed++
			}
		}
	}
	early := q.Batch.Early && m.lab.Now < m.lab.Loaded+policy.SettleTime
	return able > 0 && able == failed && !early || q.Batch.Mixed && q.Index == MaxClasses-1
}
