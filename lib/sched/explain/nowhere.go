package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"distribute/lib/capability"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
	"distribute/lib/unit"
)

// Doomed tells why no job of a queue can ever be started, as far as is known; "" if one may:
// see [policy.Lab.Doomed].
func (t *Teller) Doomed(q *policy.Queue) string {
	doomed, on := t.Lab.Doomed(q)
	switch {
	case !doomed:
		return ""
	case len(on) == 0:
		return "the jobs of its batch ask for too many different amounts of resources or capabilities"
	}
	names := make([]string, len(on))
	for i, p := range on {
		names[i] = string(p.Name)
	}
	slices.Sort(names)
	if more := len(names) - 5; more > 0 {
		names = append(names[:5], fmt.Sprintf("and %d more", more))
	}
	return unable(q.Batch, " on "+strings.Join(names, ", "))
}

// ReasonBuild is the reason of a back whose batch could not be built on its node, and
// what the reason of a failed begins with whose batch could not be built on any.
const ReasonBuild = "build failed"

// ReasonBox is what the reason of a failed begins with of whose batch no container could
// be started on any node.
const ReasonBox = "no container could be started"

// unable tells that the batch could not be built, with the last line that the build has
// printed. For a container there is nothing to build: then it could not be started. on says
// where.
func unable(b *policy.Batch, on string) string {
	why := ReasonBuild + on
	if b.Boxed {
		why = ReasonBox + on
	}
	if b.Said == "" {
		return why
	}
	said := b.Said
	if in := strings.TrimSuffix(strings.TrimPrefix(said, "["), "]"); len(in) == len(said)-2 && !strings.ContainsAny(in, "[]") {
		said = in // it is the node that says so
	}
	return why + ": " + said + " (dlog -B shows all)"
}

// A census counts the nodes by what keeps the jobs of a queue from them.
type census struct {
	of      [policy.Verdicts]int
	barred  int    // of those that refused it
	refused string // what the first of them, by name, says
	taken   []string
	lacks   lacks
	disks   disks
}

// there is how many nodes are connected.
func (n *census) there() int { return n.from(policy.Away + 1) }

// able is how many of them have what is asked for, but perhaps not enough of it.
func (n *census) able() int { return n.from(policy.Lacking + 1) }

// big is how many of them could run the jobs sooner or later.
func (n *census) big() int { return n.from(policy.FailedThere + 1) }

func (n *census) from(v policy.Verdict) (nodes int) {
	for _, k := range n.of[v:] {
		nodes += k
	}
	return nodes
}

// Nowhere tells why no connected node takes a job of the queue, were it not for other jobs;
// "" if one would.
func (t *Teller) Nowhere(r *policy.Round, q *policy.Queue) string {
	if doom := t.Doomed(q); doom != "" {
		return doom
	}
	_, why := t.count(r, q)
	return why
}

// count counts the nodes, and tells why none could take a job of the queue; "" if one could.
func (t *Teller) count(r *policy.Round, q *policy.Queue) (n *census, why string) {
	n = &census{}
	for _, p := range t.Lab.Nodes {
		v := r.Verdict(q, p)
		n.of[v]++
		if v != policy.Away {
			n.lacks.see(q.Class, p)
		}
		switch v {
		case policy.SmallDisk:
			n.disks.add(p)
		case policy.Refused:
			ref := q.Batch.Refusals[p]
			if says := string(p.Name) + ": " + ref.Why; n.refused == "" || says < n.refused {
				n.refused = says
			}
			if ref.Barred {
				n.barred++
			}
		case policy.Paused:
			n.taken = append(n.taken, t.paused(p))
		case policy.Lent:
			n.taken = append(n.taken, t.lent(q.Class, p))
		}
	}
	slices.Sort(n.taken)
	there, big, of := n.there(), n.big(), &n.of
	shut := of[policy.NotBuilt] + of[policy.Resting]
	switch {
	case there == 0:
		why = "no node is connected"
	case n.able() == 0:
		why = cmp.Or(t.uncountable(q.Class), n.lacks.missing(q.Class, there))
	case big == 0 && of[policy.FailedThere] > 0:
		why = fmt.Sprintf("failed on %s, and no other node is connected that can run it", Nodes(q.FailedOn))
	case big == 0 && of[policy.LessMemory] > 0:
		why = "no node has more than the " + unit.FormatBytes(q.Memory) + " of memory that it ran out of"
	case big == 0 && of[policy.SmallDisk] > 0:
		why = n.disks.less(q.AsksDisk())
	case big == 0:
		why = n.lacks.tooSmall(q.Class)
	case of[policy.NotBuilt] == big:
		why = unable(q.Batch, fmt.Sprintf(" on %d of %d nodes", big, big))
	case len(n.taken) > 0 && shut+of[policy.Refused]+len(n.taken) == big:
		why = few(n.taken)
	case of[policy.Refused] > 0 && shut+of[policy.Refused] == big:
		why = n.refused
	case shut == big:
		why = fmt.Sprintf("%d of %d nodes can run it, and rest for a while", of[policy.Resting], there)
	}
	return n, why
}

// Impossible tells why no node that is known and was not removed could ever run jobs of a class that write so
// many bytes, even if it had nothing else to do; "" if one could.
func (t *Teller) Impossible(c *policy.Class, disk int64) string {
	var l lacks
	var small disks
	of := 0
	for _, p := range t.Lab.Nodes {
		if p.Removed {
			continue
		}
		of++
		switch l.see(c, withoutUse(p)); {
		case EverAble(c, disk, p):
			return ""
		case withoutUse(p).Lacks(c) == "" && p.CouldHold(c):
			small.add(p)
		}
	}
	switch {
	case len(l.fit) == 0:
		return cmp.Or(t.uncountable(c), l.missing(c, of))
	case small.most > 0:
		return small.less(disk)
	}
	return l.tooSmall(c)
}

// EverAble says that a node could run jobs of a class that write so many bytes, if it had
// nothing else to do.
func EverAble(c *policy.Class, disk int64, p *policy.Node) bool {
	return withoutUse(p).Lacks(c) == "" && p.CouldHold(c) && !p.DiskBelow(disk)
}

// withoutUse is a node with all of its disk: how much is free of it changes.
func withoutUse(p *policy.Node) *policy.Node {
	free, facts := *p, *p.Facts
	facts.Disk = cmp.Or(p.Offer.DiskSize, math.MaxInt64)
	free.Facts = &facts
	return &free
}

// A lacks is what nodes lack of what a class asks for.
type lacks struct {
	of      map[string]int // how many of them lack what
	words   []string       // these, in the order in which they were met
	nodes   int            // that lack something
	offered []string       // capabilities of those
	cards   []string       // their GPUs, sorted, if some are wanted
	lackGPU bool           // some lack one that is wanted
	fit     []*policy.Node // those that have all, but perhaps not enough of it

	cpus, gpus, memory   bool // some node of these has enough of it
	cpusAndGPUs, gpusMem bool // of both
}

// see takes a node in.
func (l *lacks) see(c *policy.Class, p *policy.Node) {
	if all := p.AllLacks(c); len(all) > 0 {
		if l.of == nil {
			l.of = map[string]int{}
		}
		for _, w := range all {
			if l.of[w]++; l.of[w] == 1 {
				l.words = append(l.words, w)
			}
		}
		l.nodes, l.offered = l.nodes+1, append(l.offered, p.Facts.Capabilities...)
		l.seeCards(c, p, all)
		return
	}
	l.fit = append(l.fit, p)
	cpus, gpus, memory := p.Could.CPUs >= max(1, c.Share.CPUs), p.GPUs(c) >= c.Share.GPUs, p.Could.Memory >= c.Share.Memory
	l.cpus, l.gpus, l.memory = l.cpus || cpus, l.gpus || gpus, l.memory || memory
	l.cpusAndGPUs, l.gpusMem = l.cpusAndGPUs || cpus && gpus, l.gpusMem || gpus && memory
}

// seeCards takes in the GPUs of a node that lacks all of that, if the class wants something of GPUs.
func (l *lacks) seeCards(c *policy.Class, p *policy.Node, all []string) {
	of := c.OfGPUs()
	if len(of) == 0 {
		return
	}
	l.lackGPU = l.lackGPU || slices.ContainsFunc(append(of, policy.OneGPU(c)), func(w string) bool { return slices.Contains(all, w) })
	for _, g := range p.Facts.GPUs {
		card := cmp.Or(g.Model, "one of an unknown model")
		if g.Memory > 0 {
			card += " with " + unit.FormatBytes(g.Memory)
		}
		if at, has := slices.BinarySearch(l.cards, card); !has {
			l.cards = slices.Insert(l.cards, at, card)
		}
	}
}

// there says which GPUs the nodes have, if some lack one.
func (l *lacks) there() string {
	switch cards, more := l.cards, len(l.cards)-5; {
	case !l.lackGPU:
		return ""
	case len(cards) == 0:
		return "; there is no GPU"
	case more > 0:
		return fmt.Sprintf("; the GPUs are %s and %d more", strings.Join(cards[:5], ", "), more)
	default:
		return "; the GPUs are " + strings.Join(cards, ", ")
	}
}

// missing says what none of so many nodes has of what the class wants.
func (l *lacks) missing(c *policy.Class, of int) string {
	slices.Sort(l.offered)
	near, everywhere := "", []string{}
	for _, w := range l.words {
		if l.of[w] == l.nodes {
			everywhere = append(everywhere, w)
			near = cmp.Or(near, capability.Near(w, l.offered))
		}
	}
	if len(c.Wants)+len(c.Share.Counts.Words()) == 1 {
		return fmt.Sprintf("none of %d nodes has %s%s", of, strings.Join(everywhere, ""), near) + l.there()
	}
	why := "are missing"
	switch len(everywhere) {
	case 0: // some have the one and some the other
		for _, w := range l.words {
			everywhere = append(everywhere, fmt.Sprintf("%d without %s", l.of[w], w))
		}
		return fmt.Sprintf("none of %d nodes has all of %s (%s)", of, wanted(c), strings.Join(everywhere, ", ")) + l.there()
	case 1:
		why = "is missing"
	}
	return fmt.Sprintf("none of %d nodes has all of %s (%s %s)%s", of, wanted(c), strings.Join(everywhere, ", "), why, near) + l.there()
}

// tooSmall says what no node has enough of, and the most that there is.
func (l *lacks) tooSmall(c *policy.Class) string {
	if ranks, on := l.together(c); len(on) > 0 {
		return fmt.Sprintf("the nodes of no machine have room for all of it, the most is %s on %s", unit.Count(ranks, "rank"), Nodes(on))
	}
	why := l.scarce(c)
	if most := l.most(c); most != "" {
		why += ", the most is " + most
	}
	return why
}

// together is the most ranks of a job of the class for which the nodes of a machine have room,
// and these; none where each is a machine by itself.
func (l *lacks) together(c *policy.Class) (ranks int, on []*policy.Node) {
	if c.Ranks < 2 || !slices.ContainsFunc(l.fit, func(p *policy.Node) bool { return len(p.Beside) > 0 }) {
		return 0, nil
	}
	for _, p := range l.fit {
		all, left := p.CouldTogether(c)
		if n := c.Ranks - left; n > ranks {
			ranks, on = n, nil
			for _, o := range all {
				on = append(on, o.On)
			}
		}
	}
	slices.SortFunc(on, func(p, o *policy.Node) int { return strings.Compare(string(p.Name), string(o.Name)) })
	return ranks, on
}

// scarce says what no node has enough of.
func (l *lacks) scarce(c *policy.Class) string {
	gpus, memory := c.Share.GPUs.Words("gpu"), unit.FormatBytes(c.Share.Memory)+" of memory"
	cpus := unit.Count(max(1, c.Share.CPUs), "cpu")
	switch {
	case !l.gpus:
		return "no node has " + gpus + ofGPUs(c)
	case !l.memory:
		return "no node has " + memory
	case !l.cpus:
		return fmt.Sprintf("none of %d nodes offers %s", len(l.fit), cpus)
	case c.Share.GPUs > 0 && !l.cpusAndGPUs:
		return "no node has " + cpus + " and " + gpus
	case c.Share.GPUs > 0 && c.Share.Memory > 0 && !l.gpusMem:
		return "no node has " + gpus + " and " + memory
	}
	return "no node has " + cpus + " and " + memory
}

// ofGPUs is what the class wants of its GPUs, as a sentence has it; "" if it wants nothing.
func ofGPUs(c *policy.Class) string {
	words := c.OfGPUs()
	if len(words) == 0 {
		return ""
	}
	return " of " + strings.Join(words, ", ")
}

// most is the most that one of the nodes with the capabilities has of each resource that
// none has enough of, or if there is enough of each, of all that is asked for.
func (l *lacks) most(c *policy.Class) string {
	var most policy.Share
	var on [3]string
	for _, p := range l.fit {
		if p.Could.CPUs > most.CPUs {
			most.CPUs, on[0] = p.Could.CPUs, string(p.Name)
		}
		if has := p.GPUs(c); has > most.GPUs {
			most.GPUs, on[1] = has, string(p.Name)
		}
		if p.Could.Memory > most.Memory {
			most.Memory, on[2] = p.Could.Memory, string(p.Name)
		}
	}
	each := l.cpus && l.gpus && l.memory
	var words []string
	say := func(wanted bool, amount, node string) {
		if wanted && node != "" {
			words = append(words, amount+" on "+node)
		}
	}
	say(!l.cpus || each && c.Share.CPUs > 0, unit.Count(most.CPUs, "cpu"), on[0])
	say(!l.gpus || each && c.Share.GPUs > 0, most.GPUs.Words("gpu"), on[1])
	say(!l.memory || each && c.Share.Memory > 0, unit.FormatBytes(most.Memory), on[2])
	return strings.Join(words, " and ")
}

// disks is the largest of the disks that are too small for a job.
type disks struct {
	most int64
	on   node.Name
}

func (d *disks) add(p *policy.Node) {
	if p.Offer.DiskSize > d.most {
		d.most, d.on = p.Offer.DiskSize, p.Name
	}
}

// less says that none has so many bytes.
func (d *disks) less(bytes int64) string {
	return fmt.Sprintf("of the nodes that could run it none has a disk of %s, the most is %s on %s", unit.FormatBytes(bytes), unit.FormatBytes(d.most), d.on)
}
