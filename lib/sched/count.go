package sched

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"distribute/lib/job"
	"distribute/lib/msg"
)

// What is counted by a name is counted by nodes, by the site, or both. What the site
// counts any node may use, and all of them together no more than there is; what nodes
// count only these have, each for its own jobs.

// A site is what is counted over all nodes.
type site struct {
	has   job.Counts
	taken job.Counts // by attempts that may run, of every name
}

func (e Counted) apply(m *Machine) {
	m.site.has = e.Site
	for _, c := range m.classes {
		if c.share.counts == "" {
			continue
		}
		for _, p := range m.peers {
			p.judge(c)
		}
	}
}

// Counted is what the site counts, and how much of that is taken.
func (m *Machine) Counted() (has, taken job.Counts) {
	for name := range m.site.has.All() {
		taken = taken.With(name, m.site.taken.Of(name))
	}
	return m.site.has, taken
}

// takeCounts takes in whether an attempt has what it was given of what is counted:
// until it has ended, or its node was silent for a lease and its job goes on
// elsewhere.
func (m *Machine) takeCounts(a *attempt) {
	has := !a.dead && a.result == nil && (a.current || a.peer.session != 0 || !a.peer.expired)
	if has == a.counted || a.share.counts == "" {
		return
	}
	a.counted = has
	if has {
		m.site.taken = m.site.taken.Plus(a.share.counts)
		return
	}
	m.site.taken = m.site.taken.Minus(a.share.counts)
}

// contested says that a class would have too little of a name that the site counts
// once somebody has taken so much more.
func (s *site) contested(c *class, more job.Counts) bool {
	for name, n := range more.All() {
		asks, has := c.share.counts.Of(name), s.has.Of(name)
		if has > 0 && asks > 0 && s.taken.Of(name)+n+asks > has {
			return true
		}
	}
	return false
}

// room says that as much as a class asks for is free of what the site counts.
func (s *site) room(c *class) bool {
	name, _ := s.short(c)
	return name == ""
}

// short is the first name of which less is free than the class asks for, and how
// much.
func (s *site) short(c *class) (name string, free int) {
	for name, n := range c.share.counts.All() {
		if has := s.has.Of(name); has > 0 && s.taken.Of(name)+n > has {
			return name, has - s.taken.Of(name)
		}
	}
	return "", 0
}

// lacks is what of the counts of a class a node could never give its jobs: neither it
// nor the site counts it, or one that counts it has less; "" if there is none.
func (s *site) lacks(c *class, p *peer) string {
	for name, n := range c.share.counts.All() {
		here, all := p.could.counts.Of(name), s.has.Of(name)
		if here+all == 0 || here > 0 && here < n || all > 0 && all < n {
			return fmt.Sprint(n, " ", name)
		}
	}
	return ""
}

// yields says that the first job of q has to leave what it asks for to one that goes
// first, and waits for want of more of it or of a node that is kept for it: so jobs that
// ask for much of what the site counts are not passed over for ever by those that ask for
// little.
func (r *round) yields(q *queue) bool {
	if q.c.share.counts == "" {
		return false
	}
	return slices.ContainsFunc(r.ahead(q), func(o *queue) bool {
		waits := !r.m.site.room(o.c) || len(o.c.keeps) > 0
		return o.c != q.c && waits && r.m.site.contested(o.c, q.c.share.counts) &&
			slices.ContainsFunc(r.m.peers, func(p *peer) bool { return o.waitsFor(p) })
	})
}

// uncountable tells of what a class asks for that nobody counts, or of which nobody
// has as much; "" if there is nothing of that kind. It costs a look at every node.
func (m *Machine) uncountable(c *class) string {
	for name, n := range c.share.counts.All() {
		all := m.site.has.Of(name)
		most, on := 0, ""
		for _, p := range m.peers {
			if has := p.could.counts.Of(name); has > most {
				most, on = has, string(p.name)
			}
		}
		switch {
		case all > 0 && all < n:
			return fmt.Sprintf("the site has %d %s, not %d", all, name, n)
		case all+most == 0:
			return fmt.Sprintf("neither the site nor a node counts %q%s", name, m.near(name))
		case all == 0 && most < n:
			return fmt.Sprintf("no node has %d %s, the most is %d on %s", n, name, most, on)
		}
	}
	return ""
}

// near is the name that somebody counts and that was most likely meant.
func (m *Machine) near(name string) string {
	known := map[string]bool{}
	for has := range m.site.has.All() {
		known[has] = true
	}
	for _, p := range m.peers {
		for has := range p.could.counts.All() {
			known[has] = true
		}
	}
	names := slices.Sorted(maps.Keys(known))
	switch near := msg.DidYouMean(name, names); {
	case near != "":
		return near
	case len(names) == 0:
		return ""
	}
	return " (counted are " + few(names) + ")"
}

// countedOut tells that what the class asks for is in use, of the site or of all nodes
// that could run it; "" if it is not.
func (m *Machine) countedOut(c *class) string {
	if name, free := m.site.short(c); name != "" {
		return outOf(name, m.site.has.Of(name), free, "the site")
	}
	on, why := 0, ""
	for _, p := range m.peers {
		if !p.listed || !p.fits[c] {
			continue
		}
		on++
		short := ""
		for name, n := range c.share.counts.All() {
			if has := p.has.counts.Of(name); has > 0 && p.used.counts.Of(name)+n > has {
				short = outOf(name, has, has-p.used.counts.Of(name), string(p.name))
				break
			}
		}
		if why = short; why == "" {
			return ""
		}
	}
	if on > 1 {
		return fmt.Sprintf("what it asks for is in use on all %d nodes that have %s", on, strings.Join(c.share.counts.Words(), ", "))
	}
	return why
}

// outOf tells that too few of a name are free.
func outOf(name string, has, free int, of string) string {
	if free <= 0 {
		return fmt.Sprintf("all %d %s of %s are in use", has, name, of)
	}
	return fmt.Sprintf("only %d of %d %s of %s are free", free, has, name, of)
}
