package policy

import (
	"fmt"
	"slices"

	"distribute/lib/job"
)

// What is counted by a name is counted by nodes, by the site, or both. What the site
// counts any node may use, and all of them together no more than there is; what nodes
// count only these have, each for its own jobs.

// A Site is what is counted over all nodes.
type Site struct {
	Has   job.Counts
	Taken job.Counts // by attempts that may run, of every name
}

// contested says that a class would have too little of a name that the site counts
// once somebody has taken so much more, for whom there is enough.
func (s *Site) contested(c *Class, more job.Counts) bool {
	for name, n := range more.All() {
		if has := s.Has.Of(name); has > 0 && s.Taken.Of(name)+n+c.Share.Counts.Of(name) > has {
			return true
		}
	}
	return false
}

// HasRoom says that as much as a class asks for is free of what the site counts.
func (s *Site) HasRoom(c *Class) bool {
	name, _ := s.Short(c)
	return name == ""
}

// Short is the first name of which less is free than the class asks for, and how
// much.
func (s *Site) Short(c *Class) (name string, free int) {
	for name, n := range c.Share.Counts.All() {
		if has := s.Has.Of(name); has > 0 && s.Taken.Of(name)+n > has {
			return name, has - s.Taken.Of(name)
		}
	}
	return "", 0
}

// lacks is what of the counts of a class a node could never give its jobs: neither it
// nor the site counts it, or one that counts it has less; "" if there is none.
func (s *Site) lacks(c *Class, p *Node) string {
	for name, n := range c.Share.Counts.All() {
		here, all := p.Could.Counts.Of(name), s.Has.Of(name)
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
func (r *Round) yields(q *Queue) bool {
	if q.Class.Share.Counts == "" {
		return false
	}
	return slices.ContainsFunc(r.Ahead(q), func(o *Queue) bool {
		waits := !r.lab.Site.HasRoom(o.Class) || len(o.Class.Kept) > 0
		return o.Class != q.Class && waits && r.lab.Site.contested(o.Class, q.Class.Share.Counts) &&
			slices.ContainsFunc(r.lab.Nodes, func(p *Node) bool { return o.couldStart(p) })
	})
}
