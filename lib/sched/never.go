package sched

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// Never tells why no node could ever run jobs of the spec that ask for so much,
// even if it had nothing else to do; "" if one could, or if that is not known: in
// the first minute after the start, without any node, and as long as nothing was
// heard of a node that an attempt was given to earlier. It costs a look at every
// node.
func (m *Machine) Never(spec *job.Spec, ask Ask) string {
	if !m.loaded || m.now-m.since < settleTime {
		return ""
	}
	c := wishOf(wants(spec), ask).class()
	if !m.allHere() {
		return ""
	}
	var l look
	for _, p := range m.peers {
		l.there++
		free := *p.facts
		free.Disk = cmp.Or(p.offer.DiskSize, math.MaxInt64) // how much is free of it changes
		if missing, ok := c.lacks(&free); !ok {
			l.lacks, l.offered = missing.String(), append(l.offered, p.facts.Capabilities...)
			continue
		}
		if missing := m.site.lacks(c, p); missing != "" {
			l.lacks = missing
			continue
		}
		switch {
		case p.couldHold(c) && p.smallDisk(ask.Disk):
			l.disks.add(p)
		case p.couldHold(c):
			return ""
		}
		l.able++
		l.large(p, c)
		l.fit = append(l.fit, p)
	}
	switch {
	case l.able == 0:
		return cmp.Or(m.uncountable(c), l.lacking(c))
	case l.disks.most > 0:
		return l.disks.less(ask.Disk)
	}
	return l.tooSmall(c) + ", the most is " + l.most(c)
}

// allHere says that something was heard of each node that is known.
func (m *Machine) allHere() bool {
	return len(m.peers) > 0 && !slices.ContainsFunc(m.peers, func(p *peer) bool { return p.boot == "" })
}

// most is the most that one of the nodes with the capabilities has of each resource that
// none has enough of, or if there is enough of each, of all that is asked for.
func (l *look) most(c *class) string {
	var most share
	var on [3]string
	for _, p := range l.fit {
		if p.could.cpus > most.cpus {
			most.cpus, on[0] = p.could.cpus, string(p.name)
		}
		if p.could.gpus > most.gpus {
			most.gpus, on[1] = p.could.gpus, string(p.name)
		}
		if p.could.memory > most.memory {
			most.memory, on[2] = p.could.memory, string(p.name)
		}
	}
	each := l.cpus && l.gpus && l.memory
	var words []string
	say := func(wanted bool, amount, node string) {
		if wanted && node != "" {
			words = append(words, amount+" on "+node)
		}
	}
	say(!l.cpus || each && c.share.cpus > 0, some(most.cpus, "cpu"), on[0])
	say(!l.gpus || each && c.share.gpus > 0, most.gpus.Words("gpu"), on[1])
	say(!l.memory || each && c.share.memory > 0, unit.FormatBytes(most.memory), on[2])
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " and ")
}
