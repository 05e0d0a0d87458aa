package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"distribute/lib/msg"
	"distribute/lib/sched/policy"
	"distribute/lib/unit"
)

// Asked is what the class asks for, in words.
func Asked(c *policy.Class) string {
	switch {
	case c.Cards:
		return "a whole node with its GPUs"
	case c.Share.CPUs == 0:
		return "a whole node"
	}
	asked := unit.Count(c.Share.CPUs, "cpu")
	if c.Share.GPUs > 0 {
		asked += ", " + c.Share.GPUs.Words("gpu")
	}
	if c.Share.Memory > 0 {
		asked += ", " + unit.FormatBytes(c.Share.Memory)
	}
	return asked
}

// wanted is all that the class wants, in words.
func wanted(c *policy.Class) string {
	words := make([]string, len(c.Wants))
	for i, e := range c.Wants {
		words[i] = e.String()
	}
	for name, n := range c.Share.Counts.All() {
		words = append(words, fmt.Sprint(n, " ", name))
	}
	return strings.Join(words, ", ")
}

// Nodes is the names of some nodes, as a sentence has them.
func Nodes(some []*policy.Node) string {
	words := make([]string, len(some))
	for i, p := range some {
		words[i] = string(p.Name)
	}
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

// few is the first of some reasons, and how many more there are.
func few(all []string) string {
	const shown = 3
	if more := len(all) - shown; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:shown], ", "), more)
	}
	return strings.Join(all, ", ")
}

// uncountable tells of what a class asks for that nobody counts, or of which nobody
// has as much; "" if there is nothing of that kind.
func (t *Teller) uncountable(c *policy.Class) string {
	for name, n := range c.Share.Counts.All() {
		all := t.Lab.Site.Has.Of(name)
		most, on := 0, ""
		for _, p := range t.Lab.Nodes {
			if has := p.Could.Counts.Of(name); has > most && !p.Removed {
				most, on = has, string(p.Name)
			}
		}
		switch {
		case all > 0 && all < n:
			return fmt.Sprintf("the site has %d %s, not %d", all, name, n)
		case all+most == 0:
			return fmt.Sprintf("neither the site nor a node counts %q%s", name, t.near(name))
		case all == 0 && most < n:
			return fmt.Sprintf("no node has %d %s, the most is %d on %s", n, name, most, on)
		}
	}
	return ""
}

// near is the name that somebody counts and that was most likely meant.
func (t *Teller) near(name string) string {
	known := map[string]bool{}
	for has := range t.Lab.Site.Has.All() {
		known[has] = true
	}
	for _, p := range t.Lab.Nodes {
		for has := range p.Could.Counts.All() {
			if !p.Removed {
				known[has] = true
			}
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
func (t *Teller) countedOut(c *policy.Class) string {
	if name, free := t.Lab.Site.Short(c); name != "" {
		return outOf(name, t.Lab.Site.Has.Of(name), free, "the site")
	}
	on, why := 0, ""
	for _, p := range t.Lab.Nodes {
		if !p.Listed || !p.Able(c) {
			continue
		}
		on++
		short := ""
		for name, n := range c.Share.Counts.All() {
			if has := p.Has.Counts.Of(name); has > 0 && p.Used.Counts.Of(name)+n > has {
				short = outOf(name, has, has-p.Used.Counts.Of(name), string(p.Name))
				break
			}
		}
		if why = short; why == "" {
			return ""
		}
	}
	if on > 1 {
		return fmt.Sprintf("what it asks for is in use on all %d nodes that have %s", on, strings.Join(c.Share.Counts.Words(), ", "))
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

// Note tells for whom a node is kept, and when it will be paused by its hours, if that is
// soon.
func (t *Teller) Note(p *policy.Node) string {
	var words []string
	if p.Kept != nil {
		words = append(words, keptForJob(p))
	}
	if t.Clock != nil && t.Lab.Leaves(p) {
		words = append(words, "pauses at "+t.Clock(p.PausesAt))
	}
	return strings.Join(words, "; ")
}

// keptForJob tells for whom a node is kept.
func keptForJob(p *policy.Node) string { return "kept for a job of " + Asked(p.Kept.Of) }

// paused tells by whom a node is paused or drained, and until when.
func (t *Teller) paused(p *policy.Node) string {
	pause := p.Offer.Pause
	if p.Drained != "" {
		return fmt.Sprintf("%s drained by %s", p.Name, p.Drained)
	}
	if pause == nil {
		return fmt.Sprintf("%s is paused", p.Name)
	}
	if len(pause.By) == 0 {
		return fmt.Sprintf("%s paused (%s)%s", p.Name, pause.Who(), t.clock(" until ", pauseEnd(p)))
	}
	return fmt.Sprintf("%s paused by %s%s", p.Name, pause.Who(), t.clock(" until ", pauseEnd(p)))
}

// lent tells what of a node is lent back that jobs of the class need, and until when. Without
// that it offers less than it could only where it is short of those beside it, or where
// somebody else is on its GPUs.
func (t *Teller) lent(c *policy.Class, p *policy.Node) string {
	pause := p.Offer.Pause
	if pause == nil || pause.Give == nil {
		if why := t.short(p); c.Ranks > 1 && why != "" {
			return fmt.Sprintf("%s has no room for all ranks, and %s", p.Name, why)
		}
		fit := p.Fitting(c)
		left := unit.Count(p.Has.Cards.Only(fit).Len(), "gpu") + ofGPUs(c)
		for _, g := range p.Offer.GPUs {
			if g.Busy && g.Why != "" && fit.At(g.Index) > 0 {
				return fmt.Sprintf("%s has %s left, and cannot tell who uses the rest (%s)", p.Name, left, g.Why)
			}
		}
		return fmt.Sprintf("%s has %s left, and somebody else uses the rest", p.Name, left)
	}
	return fmt.Sprintf("%s lent back %s to %s%s", p.Name, pause.Give, pause.Who(), t.clock(" until ", pauseEnd(p)))
}

// short tells which of the nodes beside one gives less than it has, and why; "" if none does.
func (t *Teller) short(p *policy.Node) string {
	for _, o := range p.Beside {
		switch {
		case !o.Listed:
			return string(o.Name) + " is not connected"
		case o.Paused():
			return t.paused(o)
		case o.RestsUntil != 0:
			return string(o.Name) + " is resting" + t.clock(" until ", o.RestsUntil)
		case o.Offer.Pause != nil:
			return t.lent(&policy.Class{}, o)
		}
	}
	return ""
}

// pauseEnd is when the pause of a node ends; 0: that is not known.
func pauseEnd(p *policy.Node) time.Duration {
	if p.Offer.Pause == nil || p.Offer.Pause.Left == 0 {
		return 0
	}
	return p.Offered + time.Duration(p.Offer.Pause.Left*float64(time.Second))
}
