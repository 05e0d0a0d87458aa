package sched

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"distribute/lib/capability"
	"distribute/lib/job"
)

// A set is a set of numbers below a size fixed when it is made, in three or
// four levels of words: each bit of a level says that a word of the level
// below is not empty. Everything costs a step a level. The zero set is for few
// numbers of any size: it keeps no more than these, in order.
type set struct {
	levels [][]uint64
	few    []uint32
	n      int
}

func newSet(size int) *set {
	s := &set{}
	for {
		size = (size + 63) / 64
		s.levels = append(s.levels, make([]uint64, size))
		if size <= 1 {
			return s
		}
	}
}

// sized is the set with room for other members.
func (s *set) sized(size int) *set {
	if s.levels == nil || len(s.levels[0])*64 >= size {
		return s
	}
	t := newSet(size)
	for i, w := range s.levels[0] {
		for ; w != 0; w &= w - 1 {
			t.add(uint32(i*64 + bits.TrailingZeros64(w)))
		}
	}
	return t
}

func (s *set) has(i uint32) bool {
	if s.levels == nil {
		_, found := slices.BinarySearch(s.few, i)
		return found
	}
	return s.levels[0][i/64]&(1<<(i%64)) != 0
}

func (s *set) add(i uint32) {
	if s.has(i) {
		return
	}
	if s.n++; s.levels == nil {
		at, _ := slices.BinarySearch(s.few, i)
		s.few = slices.Insert(s.few, at, i)
		return
	}
	for _, l := range s.levels {
		w := &l[i/64]
		was := *w
		*w |= 1 << (i % 64)
		if was != 0 {
			return
		}
		i /= 64
	}
}

func (s *set) remove(i uint32) {
	if !s.has(i) {
		return
	}
	if s.n--; s.levels == nil {
		at, _ := slices.BinarySearch(s.few, i)
		s.few = slices.Delete(s.few, at, at+1)
		return
	}
	for _, l := range s.levels {
		w := &l[i/64]
		*w &^= 1 << (i % 64)
		if *w != 0 {
			return
		}
		i /= 64
	}
}

// first is the least member of a set that is not empty.
func (s *set) first() uint32 {
	if s.levels == nil {
		return s.few[0]
	}
	i := uint32(0)
	for l := len(s.levels) - 1; l >= 0; l-- {
		i = i*64 + uint32(bits.TrailingZeros64(s.levels[l][i]))
	}
	return i
}

// A class is all jobs that ask for the same of a node.
type class struct {
	name  string
	wants []capability.Expr
	share share          // no cpus: the whole node
	cards bool           // and all its GPUs: gpu is wanted, and no number of them
	users int            // queues in all
	keeps []*reservation // the nodes that are kept for it, the latest last
}

// A queue is the jobs of one batch and one class that wait.
type queue struct {
	b     *batch
	c     *class
	index int // in b.queues; behind all of these for one of b.avoiding
	jobs  *set
	says  *declared // of the batch and the class

	roomiest int64 // bytes: the most disk of a node on which they could run now
	avoidance
}

// wants is what a batch asks of a node in words.
func wants(spec *job.Spec) []string {
	if spec == nil {
		return nil
	}
	caps := slices.Clone(spec.Capabilities)
	switch spec.Kind {
	case job.Python:
		caps = append(caps, "python3")
	case job.Apptainer:
		caps = append(caps, "apptainer")
	}
	return caps
}

// A wish is what a job asks of a node, by which classes are known.
type wish struct {
	caps []string // of the batch and its own, in order, each once
	ask  Ask
}

// wishOf is what a job asks whose batch has those capabilities.
func wishOf(common []string, ask Ask) wish {
	if ask.Wants != "" {
		common = append(slices.Clip(common), strings.Split(ask.Wants, "\x00")...)
	}
	return wish{entries(common), ask}
}

// class is a class for it of which nobody knows.
func (w wish) class() *class {
	s := w.ask.share()
	cards := s.cpus == 0 && s.gpus == 0 && slices.Contains(w.caps, "gpu")
	return &class{name: fmt.Sprint(s) + "\x00" + strings.Join(w.caps, "\x00"), wants: parsed(w.caps), share: s, cards: cards}
}

// classFor is the class that is known and the same as one, or that one, for one more
// queue.
func (m *Machine) classFor(of *class) *class {
	c := m.classOf[of.name]
	if c == nil {
		c = of
		m.classOf[c.name] = c
		m.classes = append(m.classes, c)
		for _, p := range m.peers {
			p.judge(c)
		}
	}
	c.users++
	return c
}

// parsed reads what was checked when it was submitted. What no version of ours has
// written holds nowhere.
func parsed(caps []string) (all []capability.Expr) {
	for _, c := range caps {
		e, err := capability.Parse(c)
		if err != nil {
			e = capability.Expr{}
		}
		all = append(all, e)
	}
	return all
}

// lacks is the first of what the class wants that a node is not, if there is one.
func (c *class) lacks(f *capability.Facts) (capability.Expr, bool) {
	for _, e := range c.wants {
		if !e.Holds(f) {
			return e, false
		}
	}
	return capability.Expr{}, true
}

func (m *Machine) dropClass(c *class) {
	if c.users--; c.users > 0 {
		return
	}
	delete(m.classOf, c.name)
	m.classes = slices.DeleteFunc(m.classes, func(d *class) bool { return d == c })
	for _, p := range m.peers {
		delete(p.fits, c)
	}
}

// judge notes whether the node could ever run jobs of the class.
func (p *peer) judge(c *class) {
	if p.lacks(c) == "" && p.couldHold(c) {
		if p.fits == nil {
			p.fits = map[*class]bool{}
		}
		p.fits[c] = true
	} else {
		delete(p.fits, c)
	}
}

// lacks is what of the class's wants the node is not, or of what it counts the node
// could never give; "" if there is nothing.
func (p *peer) lacks(c *class) string {
	if e, ok := c.lacks(p.facts); !ok {
		return e.String()
	}
	return p.site.lacks(c, p)
}

// couldHold says that the node would have room for a job of the class if it ran
// nothing else and its owner used none of it.
func (p *peer) couldHold(c *class) bool {
	least := c.share
	least.cpus = max(1, least.cpus)
	return holds(p.could, share{}, least)
}

// stateChanged keeps counts and queues when the state of a job has changed.
func (m *Machine) stateChanged(b *batch, i uint32, old job.State) {
	s := b.States[i]
	b.counts[old]--
	b.counts[s]++
	switch {
	case s.Over() && !old.Over():
		b.open--
	case old.Over() && !s.Over():
		b.open++
	}
	if b.gates != nil {
		m.pass(b, i, old, s)
	}
	switch {
	case s == job.Queued:
		m.enqueue(b, i)
	case old == job.Queued:
		b.queue(i).jobs.remove(i)
	}
}

// queue is the queue of a job.
func (b *batch) queue(i uint32) *queue {
	if t := b.trials[i]; t != nil {
		return t.q
	}
	if b.class == nil {
		return b.queues[0]
	}
	return b.queues[b.class[i]]
}
