package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"distribute/lib/capability"
	"distribute/lib/node"
	"distribute/lib/unit"
)

// A look counts the connected nodes by what keeps the jobs of a queue from them.
type look struct {
	there, able, big     int // all; with the capabilities; and large enough
	failed, rest         int
	refused, barred      int
	tried, poor          int // where they failed; and with no more memory than was too little
	lacks, small         string
	offered              []string // capabilities of nodes that lack something
	taken                []string // of those that are paused, or have lent back what it takes: by whom
	cpus, gpus, memory   bool     // some node that is able has enough of it
	cpusAndGPUs, gpusMem bool     // of both
	disks                disks
	fit                  []*peer // those with the capabilities
}

// bounded tells that as many jobs of the batch run as may.
func (b *batch) bounded() string {
	return fmt.Sprintf("max_running of its batch: %d run", b.running)
}

// never tells why no connected node could take a job of the queue; "" if one could
// sooner or later.
func (m *Machine) never(q *queue) (l look, why string) {
	if doom := m.doomed(q); doom != "" {
		return l, doom
	}
	for _, p := range m.peers {
		if p.session != 0 {
			m.look(&l, q, p)
		}
	}
	slices.Sort(l.taken)
	switch {
	case l.there == 0:
		why = "no node is connected"
	case l.able == 0:
		why = cmp.Or(m.uncountable(q.c), l.lacking(q.c))
	case l.big == 0 && l.tried > 0:
		why = fmt.Sprintf("failed on %s, and no other node is connected that can run it", nodes(q.shuns))
	case l.big == 0 && l.poor > 0:
		why = "no node has more than the " + unit.FormatBytes(q.memory) + " of memory that it ran out of"
	case l.big == 0 && l.disks.most > 0:
		why = l.disks.less(q.asksDisk())
	case l.big == 0:
		why = l.tooSmall(q.c)
		if most := l.most(q.c); most != "none" {
			why += ", the most is " + most
		}
	case l.failed == l.big:
		why = q.b.unable(fmt.Sprintf(" on %d of %d nodes", l.failed, l.big))
	case len(l.taken) > 0 && l.failed+l.rest+l.refused+len(l.taken) == l.big:
		why = few(l.taken)
	case l.refused > 0 && l.failed+l.rest+l.refused == l.big:
		why = l.small
	case l.failed+l.rest == l.big:
		why = fmt.Sprintf("%d of %d nodes can run it, and rest for a while", l.rest, l.there)
	}
	return l, why
}

// look takes in what keeps the jobs of q from a node.
func (m *Machine) look(l *look, q *queue, p *peer) {
	l.there++
	if missing := p.lacks(q.c); missing != "" {
		l.lacks, l.offered = missing, append(l.offered, p.facts.Capabilities...)
		return
	}
	l.able, l.fit = l.able+1, append(l.fit, p)
	l.large(p, q.c)
	if !p.fits[q.c] {
		return
	}
	switch {
	case p.smallDisk(q.asksDisk()):
		l.disks.add(p)
		return
	case !q.suits(p):
		l.poor++
		return
	case q.avoids(p):
		l.tried++
		return
	}
	l.big++
	why, refused := q.b.refusedBy(p)
	switch {
	case refused:
		if l.refused++; l.small == "" || string(p.name)+": "+why < l.small {
			l.small = string(p.name) + ": " + why
		}
		if q.b.refusals[p].barred {
			l.barred++
		}
	case !q.may(p):
		l.failed++
	case p.paused():
		l.taken = append(l.taken, m.pausedWhy(p))
	case !p.enough(q.c):
		l.taken = append(l.taken, m.lentWhy(p))
	case p.rest != 0:
		l.rest++
	}
}

// lacking says what no node has of what the class wants.
func (l *look) lacking(c *class) string {
	slices.Sort(l.offered)
	near := capability.Near(l.lacks, l.offered)
	if len(c.wants)+len(c.share.counts.Words()) > 1 {
		return fmt.Sprintf("none of %d nodes has all of %s (%s is missing)%s", l.there, c.wanted(), l.lacks, near)
	}
	return fmt.Sprintf("none of %d nodes has %s%s", l.there, l.lacks, near)
}

// wanted is all that the class wants, in words.
func (c *class) wanted() string {
	words := make([]string, len(c.wants))
	for i, e := range c.wants {
		words[i] = e.String()
	}
	for name, n := range c.share.counts.All() {
		words = append(words, fmt.Sprint(n, " ", name))
	}
	return strings.Join(words, ", ")
}

// enough says that the node has room for a job of the class as long as it offers
// what it does now.
func (p *peer) enough(c *class) bool {
	return p.has.cpus > 0 && !p.cardless(c) && holds(p.has, share{}, c.of(p))
}

// disks is the largest of the disks that are too small for a job.
type disks struct {
	of   int
	most int64
	on   node.Name
}

func (d *disks) add(p *peer) {
	d.of++
	if p.offer.DiskSize > d.most {
		d.most, d.on = p.offer.DiskSize, p.name
	}
}

// less says that none has so many bytes.
func (d *disks) less(bytes int64) string {
	return fmt.Sprintf("of the nodes that could run it none has a disk of %s, the most is %s on %s", unit.FormatBytes(bytes), unit.FormatBytes(d.most), d.on)
}

// large notes what of the class's resources a node has enough of.
func (l *look) large(p *peer, c *class) {
	cpus, gpus, memory := p.could.cpus >= max(1, c.share.cpus), p.could.gpus >= c.share.gpus, p.could.memory >= c.share.memory
	l.cpus, l.gpus, l.memory = l.cpus || cpus, l.gpus || gpus, l.memory || memory
	l.cpusAndGPUs, l.gpusMem = l.cpusAndGPUs || cpus && gpus, l.gpusMem || gpus && memory
}

// tooSmall says what no node has enough of.
func (l *look) tooSmall(c *class) string {
	gpus, memory := c.share.gpus.Words("gpu"), unit.FormatBytes(c.share.memory)+" of memory"
	cpus := some(max(1, c.share.cpus), "cpu")
	switch {
	case !l.gpus:
		return "no node has " + gpus
	case !l.memory:
		return "no node has " + memory
	case !l.cpus:
		return fmt.Sprintf("none of %d nodes offers %s", l.able, cpus)
	case c.share.gpus > 0 && !l.cpusAndGPUs:
		return "no node has " + cpus + " and " + gpus
	case c.share.gpus > 0 && c.share.memory > 0 && !l.gpusMem:
		return "no node has " + gpus + " and " + memory
	}
	return "no node has " + cpus + " and " + memory
}

// asked is what the class asks for, in words.
func (c *class) asked() string {
	switch {
	case c.cards:
		return "a whole node with its GPUs"
	case c.share.cpus == 0:
		return "a whole node"
	}
	asked := some(c.share.cpus, "cpu")
	if c.share.gpus > 0 {
		asked += ", " + c.share.gpus.Words("gpu")
	}
	if c.share.memory > 0 {
		asked += ", " + unit.FormatBytes(c.share.memory)
	}
	return asked
}

func some(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// few is the first of some reasons, and how many more there are.
func few(all []string) string {
	const shown = 3
	if more := len(all) - shown; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:shown], ", "), more)
	}
	return strings.Join(all, ", ")
}
