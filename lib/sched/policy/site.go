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

// contested is the first name that the site counts of which a class would have too little
// once somebody has taken so much more, for whom there is enough; "" if there is none.
func (s *Site) contested(c *Class, more job.Counts) string {
	for name, n := range more.All() {
		if has := s.Has.Of(name); has > 0 && s.Taken.Of(name)+n+c.Share.Counts.Of(name) > has {
			return name
		}
	}
	return ""
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

// Yields is the name of which the first job of q has to leave what it asks for to one that
// goes first, and waits for want of more of it or of a node that is kept for it; "" if there
// is none. So jobs that ask for much of what the site counts are not passed over for ever by
// those that ask for little.
func (r *Round) Yields(q *Queue) string {
	if q.Class.Share.Counts == "" {
		return ""
	}
	for _, o := range r.Ahead(q) {
		name := r.lab.Site.contested(o.Class, q.Class.Share.Counts)
		waits := !r.lab.Site.HasRoom(o.Class) || len(o.Class.Kept) > 0
		if name != "" && waits && o.Class != q.Class && slices.ContainsFunc(r.lab.Nodes, o.couldStart) {
			return name
		}
	}
	return ""
}
