package policy

import (
	"math"
	"slices"
	"strings"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
)

// What speaks against a node, from what never changes to what passes in a moment.

// Judge notes whether the node could ever run jobs of the class: see Able.
func (p *Node) Judge(c *Class) {
	for len(p.able) <= c.slot {
		p.able = append(p.able, false)
	}
	p.able[c.slot] = p.Lacks(c) == "" && p.CouldHold(c)
}

// Able says whether the node could ever run jobs of the class.
func (p *Node) Able(c *Class) bool { return p.able[c.slot] }

// Lacks is what of the class's wants the node is not, or of what it counts the node
// could never give; "" if there is nothing.
func (p *Node) Lacks(c *Class) string {
	if e := p.misses(c); e != nil {
		return e.String()
	}
	return p.site.lacks(c, p)
}

// AllLacks is all of the class's wants that the node is not, and then what it could never give of
// what the class counts. Where each want of GPUs fits another one, that is a [OneGPU].
func (p *Node) AllLacks(c *Class) (all []string) {
	picks := c.picks()
	for _, e := range c.Wants {
		is := e.Holds(p.Facts)
		if picks && e.OfGPUs() {
			some, any := e.GPUs(p.Facts)
			is = any || len(some) > 0
		}
		if !is {
			all = append(all, e.String())
		}
	}
	if e := p.misses(c); e != nil && !slices.Contains(all, e.String()) {
		all = append(all, OneGPU(c))
	}
	if short := p.site.lacks(c, p); short != "" {
		all = append(all, short)
	}
	return all
}

// OneGPU is a GPU that is all that the class wants of GPUs, in words.
func OneGPU(c *Class) string { return "one GPU with " + strings.Join(c.OfGPUs(), ", ") }

// OfGPUs is what the class wants of GPUs.
func (c *Class) OfGPUs() (words []string) {
	for _, e := range c.Wants {
		if e.OfGPUs() {
			words = append(words, e.String())
		}
	}
	return words
}

// misses is the first of the class's wants that the node is not.
func (p *Node) misses(c *Class) *capability.Expr {
	_, e := p.pick(c)
	return e
}

// pick is the GPUs of the node that are all that the class wants of GPUs, nothing if any is, and
// the first of its wants that the node, or none of these, is.
func (p *Node) pick(c *Class) (fit job.Cards, missing *capability.Expr) {
	picks := c.picks()
	for i := range c.Wants {
		e := &c.Wants[i]
		if !picks || !e.OfGPUs() {
			if !e.Holds(p.Facts) {
				return fit, e
			}
			continue
		}
		some, any := e.GPUs(p.Facts)
		if any {
			continue
		}
		cards := among(job.AllCards(some), fit)
		if cards == (job.Cards{}) {
			return fit, e
		}
		fit = cards
	}
	return fit, nil
}

// CouldHold says that the node, or it and those beside it, would have room for a job of the
// class if they ran nothing else and their owners used none of them.
func (p *Node) CouldHold(c *Class) bool {
	least := p.asked(c, c.Share)
	least.CPUs = max(1, least.CPUs)
	return Fits(p.Could, Share{}, least) || p.couldTogether(c)
}

// DiskBelow says that a node's whole disk is less than so many bytes.
func (p *Node) DiskBelow(bytes int64) bool { return 0 < p.Offer.DiskSize && p.Offer.DiskSize < bytes }

// AsksDisk is how many bytes of disk each of the jobs asks for at least.
func (q *Queue) AsksDisk() int64 { return max(q.Says.Disk, q.Disk) }

// Suits says that the node has what the jobs of the queue ask for, and what they
// turned out to need.
func (q *Queue) Suits(p *Node) bool {
	return p.Able(q.Class) && (q.Memory == 0 || p.Could.Memory > q.Memory) && !p.DiskBelow(q.AsksDisk())
}

// Could says that a node could ever run the jobs of a queue, as far as is known: it is
// there, or was a moment ago, and nothing but time keeps them from it. One that is
// drained may be so for ever, and so may one that had no room time and again.
func (l *Lab) Could(q *Queue, p *Node) bool {
	there := p.Session != 0 || p.Boot != "" && !p.Removed && l.Now-p.Heard < l.Lease
	return there && p.Drained == "" && q.Suits(p) && !q.Batch.Refusals[p].lasts() && !q.Batch.BuildFailed(p)
}

// elsewhere says that there is a node from which the jobs of a queue do not keep away,
// and that could ever run them.
func (l *Lab) elsewhere(q *Queue) bool {
	return q.Old && l.Now-l.Loaded < SettleTime ||
		slices.ContainsFunc(l.Nodes, func(p *Node) bool { return l.Could(q, p) && !slices.Contains(q.FailedOn, p) })
}

// Avoids says that the jobs of the queue failed on a node, and there is another.
func (q *Queue) Avoids(p *Node) bool { return !q.Alone && slices.Contains(q.FailedOn, p) }

// Takes says that nothing speaks against a node but what runs there, or that it gives
// nothing at the moment.
func (q *Queue) Takes(p *Node) bool {
	return q.Suits(p) && !q.Avoids(p) && !q.Batch.refusedBy(p) && !q.Batch.BuildFailed(p) && !q.TooFull(p)
}

// TooFull says that a node has less room on its disk than the jobs of a queue ask for,
// and another has more. Where none has enough it is for the node to say so, which may
// find something that it can remove.
func (q *Queue) TooFull(p *Node) bool {
	return p.space() > 0 && p.space() < min(q.AsksDisk(), q.Roomiest)
}

// space is how much room a node has on its disk at most, by what it says, which it does
// not say again until it is a sixteenth more; 0: that is not known.
func (p *Node) space() int64 {
	room := p.Offer.Space()
	return room + room/16
}

// survey finds out how much disk there is for the queues that ask for more than some node
// has, also for those whose jobs are all given to nodes: some may be asked back.
func (l *Lab) survey() {
	least := int64(math.MaxInt64)
	for _, p := range l.Nodes {
		if p.space() > 0 {
			least = min(least, p.space())
		}
	}
	for _, b := range l.Batches {
		for q := range b.All() {
			if q.Roomiest = 0; q.AsksDisk() > least {
				q.Roomiest = l.roomiest(q)
			}
		}
	}
}

// roomiest is the most disk that one of the nodes has on which the jobs of a queue could
// run now, if nothing else ran there, or some that is enough. In the first minute a node
// with more may still come.
func (l *Lab) roomiest(q *Queue) (disk int64) {
	if l.awaits(q) {
		return math.MaxInt64
	}
	for _, p := range l.Nodes {
		if p.Session != 0 && p.RestsUntil == 0 && !p.Offer.Pause.Full() && p.OffersEnough(q.Class) && !q.Avoids(p) && l.Could(q, p) {
			if disk = max(disk, p.space()); disk >= q.AsksDisk() {
				break
			}
		}
	}
	return disk
}

// awaits says that nodes on which the jobs of a queue ran may still have to come.
func (l *Lab) awaits(q *Queue) bool { return q.Batch.Early && l.Now-l.Loaded < SettleTime }

// Paused says that a node is given nothing because somebody has taken it back.
func (p *Node) Paused() bool { return p.Offer.Pause.Full() || p.HaltedUntil != 0 || p.Drained != "" }

// Open says that a node may be given jobs.
func (p *Node) Open() bool { return p.Listed && p.RestsUntil == 0 && !p.Paused() }

// OffersEnough says that the node, or it and those beside it, have room for a job of the
// class as long as they offer what they do now.
func (p *Node) OffersEnough(c *Class) bool {
	return p.Has.CPUs > 0 && !p.cardless(c) && (p.alone(c) || p.offersTogether(c))
}

// couldStart says that the first job of a queue could start on a node if nothing else ran.
func (q *Queue) couldStart(p *Node) bool {
	return p.Open() && p.OffersEnough(q.Class) && q.Takes(p)
}

// HasRoom says that a node, or it and those beside it, have room for a job of the class now.
// What waits there goes first.
func (p *Node) HasRoom(c *Class) bool {
	switch {
	case p.Used.CPUs+c.Share.CPUs > p.Has.CPUs && !c.spreads(p): // most nodes are full, and most are told so here
		return false
	case !p.Open() || p.Waiting > 0 || p.Has.CPUs == 0 || p.cardless(c):
		return false
	}
	return (p.holds(c.ShareOf(p)) || p.Portions(c) != nil) && p.site.HasRoom(c)
}

// ahead says that one more attempt of a queue may wait on a busy node.
func (p *Node) ahead(q *Queue) bool {
	c, most := q.Class, q.Batch.Ahead(p)
	switch {
	case p.Waiting >= p.Active*most:
		return false
	case p.RestsUntil != 0 || p.Paused() || !p.OffersEnough(c):
		return false
	case c.Share.Counts != "" || c.Share.GPUs > 0 || c.Cards: // what waits would keep that from others
		return false
	case c.Ranks > 1 && !p.alone(c):
		return false
	}
	room := Share{CPUs: p.Has.CPUs * most, Memory: p.Has.Memory * int64(most)}
	return Fits(room, p.Waits, c.ShareOf(p))
}

// mixed says that the jobs of a queue are of too many classes, and all to fail.
func (q *Queue) mixed() bool { return q.Batch.Mixed && q.Index == MaxClasses-1 }

// Doomed says that no job of a queue will ever be started: its batch could be built on none
// of the nodes that could run them, which are on; or, on none, they are of too many classes.
func (l *Lab) Doomed(q *Queue) (doomed bool, on []*Node) {
	if q.mixed() {
		return true, nil
	}
	if len(q.Batch.FailedBuilds)+len(q.Batch.Suspect) == 0 || l.awaits(q) {
		return false, nil
	}
	for _, p := range l.Nodes {
		if !p.Listed || p.Drained != "" || !q.Suits(p) {
			continue
		}
		if !q.Batch.BuildFailed(p) {
			return false, nil
		}
		on = append(on, p)
	}
	return len(on) > 0, on
}

// A Verdict is what is in the way of the first job of a queue on a node: the first that
// holds of these, from what never passes to what passes soonest.
type Verdict int

// The verdicts.
const (
	Away          Verdict = iota // it is not connected
	Lacking                      // it is not what the class wants, or does not count what that asks for
	TooSmall                     // it has less, even if its owner uses nothing
	SmallDisk                    // its whole disk is smaller
	LessMemory                   // it has no more memory than the jobs ran out of
	FailedThere                  // the jobs failed there, and could run elsewhere
	Refused                      // it has given a job of the batch back
	NotBuilt                     // the batch could not be built there
	Paused                       // somebody has taken it back, or drained it
	Lent                         // somebody uses a part of it, and the rest is not enough
	Resting                      // jobs fail there
	KeptForOthers                // it is kept for jobs that ask for more
	DiskFull                     // others have more room on their disks
	Busy                         // other jobs run there
	Free                         // nothing is
	Verdicts      = iota
)

// Verdict is what is in the way of a queue on a node.
func (r *Round) Verdict(q *Queue, p *Node) Verdict {
	switch {
	case p.Session == 0:
		return Away
	case p.Lacks(q.Class) != "":
		return Lacking
	case !p.Able(q.Class):
		return TooSmall
	case p.DiskBelow(q.AsksDisk()):
		return SmallDisk
	case !q.Suits(p):
		return LessMemory
	case q.Avoids(p):
		return FailedThere
	case q.Batch.refusedBy(p):
		return Refused
	case q.Batch.BuildFailed(p):
		return NotBuilt
	case p.Paused():
		return Paused
	case !p.OffersEnough(q.Class):
		return Lent
	case p.RestsUntil != 0:
		return Resting
	case !r.lets(q, q.Standing(), p):
		return KeptForOthers
	case q.TooFull(p):
		return DiskFull
	case !p.HasRoom(q.Class):
		return Busy
	}
	return Free
}

// soon is within what time a node that will be paused is used only after others.
const soon = time.Hour

// Leaves says that a node will soon be paused by its hours. When it was to be paused
// and says no more of it, something else has come in between.
func (l *Lab) Leaves(p *Node) bool { return p.PausesAt > l.Now && p.PausesAt-l.Now < soon }
