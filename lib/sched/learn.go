package sched

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// What the jobs of a batch need that say nothing of it is taken from those of them that
// ended well and had asked for the same. It follows from the log, so it is the same
// after a restart. It bounds only who starts where and when: what a job has said holds,
// and where no node has as much as its like needed, it goes where there is most.
//
// The memory that they need is part of their class: so nodes are kept for jobs that need
// much, as for those that ask for it. How long they take counts where a node is kept.

// leastLearnt is how many jobs have ended well before anything is taken from them.
const leastLearnt = 3

// A lore is what is known of the jobs of a queue from those that ended well.
type lore struct {
	memory measure // bytes
	time   measure // milliseconds
	limit  int64   // seconds that the one may run that may for longest; below 0: there is no bound
	disk   measure // bytes
	least  int64   // bytes of disk that each asks for at least, if it is said
	said   bool
}

// ask takes in what a job asks for.
func (l *lore) ask(a Ask) {
	l.allow(a.Time)
	if !l.said || a.Disk < l.least {
		l.said, l.least = true, a.Disk
	}
}

// allow takes in that a job may run for so many seconds; 0: as long as it takes.
func (l *lore) allow(seconds int64) {
	if seconds == 0 {
		l.limit = -1
	} else if l.limit >= 0 {
		l.limit = max(l.limit, seconds)
	}
}

// A measure is the greatest of some amounts, and how many they were.
type measure struct {
	most int64
	of   int
}

func (s *measure) add(n, limit int64) {
	if n > 0 {
		s.most, s.of = max(s.most, min(n, limit)), s.of+1
	}
}

// above is what another one is taken to be at most, 0 while too few are known: the
// greatest of n and so many n-ths of it. It is rounded up to one of eight steps from a
// power of two to the next, so that it is seldom another.
func (s measure) above(parts int64) int64 {
	if s.of < leastLearnt {
		return 0
	}
	n := s.most + s.most/int64(s.of)*parts
	low := max(0, bits.Len64(uint64(n))-4)
	return (n + 1<<low - 1) >> low << low
}

// needs is how many bytes of memory a job is taken to need at most. Of amounts up to an
// unknown bound, each as likely, the greatest of n and an n-th more is that bound on
// average; where all are alike it costs little once there are some.
func (l *lore) needs() int64 { return l.memory.above(1) }

// fills is how many bytes of disk a job is taken to need: what it says that it writes, and
// no less than others have left, all of which lay in their directories at the end.
func (l *lore) fills() int64 { return max(l.least, l.disk.above(1)) }

// fills is the same for a queue, whose jobs may ask for more than their like.
func (q *queue) fills() int64 { return max(q.disk, q.lore.fills()) }

// takes is how long a job is taken to run at most. Times are spread more: of jobs that
// end by mere chance (exponentially) one in ten takes longer than the longest of 3 and
// three thirds more, one in twenty than that of 10 and three tenths more.
func (l *lore) takes() time.Duration { return time.Duration(l.time.above(3)) * time.Millisecond }

// longest is how long a job runs at most: as it says, or else as it is known of its like;
// 0 if that is not known.
func (l *lore) longest() time.Duration {
	if l.limit > 0 {
		return time.Duration(l.limit) * time.Second
	}
	return l.takes()
}

// within says that a job is known to be over in so much time.
func (l *lore) within(left time.Duration) bool {
	long := l.longest()
	return 0 < long && long <= left
}

// shortest is the less of both, if both are known.
func (l *lore) shortest() time.Duration {
	long := l.longest()
	if known := l.takes(); known > 0 {
		return min(long, known)
	}
	return long
}

// maxTime is more milliseconds than any job is believed to have run.
const maxTime = job.MaxTime * 1000

// maxDisk is more bytes than any job is believed to leave.
const maxDisk = 1 << 60

// learn takes in that a job has ended well.
func (m *Machine) learn(b *batch, i uint32, rec *job.Record) {
	q := b.queue(i)
	q.lore.memory.add(max(0, rec.MemoryPeak)-max(0, rec.Cache), job.MaxMemory)
	left := q.lore.fills()
	if q.lore.disk.add(rec.Bytes, maxDisk); q.lore.fills() != left {
		for r := range b.all() {
			if r.lore == q.lore {
				m.survey(r)
			}
		}
		m.feed(q.c)
	}
	took := q.lore.takes()
	if ms := math.Round(rec.Runtime * 1000); ms < maxTime {
		q.lore.time.add(int64(ms), maxTime)
	}
	if q.lore.takes() != took && len(m.keeps) > 0 {
		m.retime()
		m.feed(q.c)
	}
	if n := q.lore.needs(); q.c.share.cpus > 0 && q.c.share.memory == 0 && n != q.c.share.learnt {
		m.reclass(q, n)
	}
}

// reclass has the jobs of a queue, and those of it that failed and wait elsewhere, be of
// the class of which so much memory is known to be needed. What runs of them counts with
// that, too.
func (m *Machine) reclass(q *queue, needs int64) {
	b, old := q.b, q.c
	c := m.classFor(old.needing(needs))
	for r := range b.all() {
		if r.c == old {
			old.hide(r)
			r.c = c
			m.enter(r)
		}
	}
	m.dropClass(old)
	for _, a := range b.of {
		for ; a != nil; a = a.next {
			if m.queueOf(a.ref).c == c {
				m.weigh(a, needs)
			}
		}
	}
}

// weigh has an attempt count with so much memory that was not asked for.
func (m *Machine) weigh(a *attempt, needs int64) {
	more := share{learnt: needs - a.share.learnt}
	a.share.learnt = needs
	p := a.peer
	switch {
	case !p.listed || a.dead || p.abroad:
		return
	case a.active:
		p.used = p.used.plus(more)
	case a.result == nil:
		p.waits = p.waits.plus(more)
	}
	m.touch(p)
}

// tooSmall says that a node has too little memory or disk for the jobs of a queue.
func (q *queue) tooSmall(p *peer) bool {
	return q.most.memory > 0 && q.tooLittle(p) || q.most.disk > 0 && q.tooFull(p) // which are 0 where nothing is known
}

// tooLittle says that a node has less memory than the jobs of a queue are known to need,
// and another has more on which they could run now. One that rests is none: its rest may
// last for an hour, and another one begin after it.
func (q *queue) tooLittle(p *peer) bool { return p.lacksOf(min(q.c.share.learnt, q.most.memory)) }

// lacksOf says that a node is known to have less than so much memory.
func (p *peer) lacksOf(memory int64) bool { return 0 < p.has.memory && p.has.memory < memory }

// tooFull says that a node has less room on its disk than the jobs of a queue need, and
// another has more. Where none has enough it is for the node to say so, which may find
// something that it can remove.
func (q *queue) tooFull(p *peer) bool {
	return p.space() > 0 && p.space() < min(q.fills(), q.most.disk)
}

// space is how much room a node has on its disk at most, by what it says, which it does
// not say again until it is a sixteenth more; 0: that is not known.
func (p *peer) space() int64 {
	room := p.offer.Space()
	return room + room/16
}

// A roomiest is the most that any of some nodes has, each in bytes.
type roomiest struct {
	memory int64
	disk   int64 // of those that do not have too little memory
}

// survey finds out how much there is for the jobs of a queue, and says whether it is
// another answer than before.
func (m *Machine) survey(q *queue) bool { return q.knows(m.most(q)) }

func (q *queue) knows(most roomiest) (new bool) {
	new, q.most = q.most != most, most
	return new
}

// most is how much there is for the jobs of a queue, if it matters. In the first minute a
// larger node may still come.
func (m *Machine) most(q *queue) (most roomiest) {
	switch {
	case q.c.share.learnt+q.fills() == 0:
		return roomiest{}
	case m.awaits(q):
		return roomiest{math.MaxInt64, math.MaxInt64}
	}
	for _, p := range m.peers {
		if m.usable(q, p) {
			most.memory = max(most.memory, p.has.memory)
		}
	}
	for _, p := range m.peers {
		if !p.lacksOf(min(q.c.share.learnt, most.memory)) && m.usable(q, p) {
			most.disk = max(most.disk, p.space())
		}
	}
	return most
}

// awaits says that nodes on which the jobs of a queue ran may still have to come.
func (m *Machine) awaits(q *queue) bool { return q.b.early && m.ticked-m.since < settleTime }

// usable says that jobs of a queue could be run on a node that is connected, not paused
// and does not rest, if nothing else ran there.
func (m *Machine) usable(q *queue, p *peer) bool {
	return p.session != 0 && p.rest == 0 && !p.offer.Pause.Full() && p.enough(q.c) && !q.avoids(p) && m.could(q, p)
}

// choosy says that the jobs of a queue may not be run on some nodes on which others of
// their class may.
func (m *Machine) choosy(q *queue) bool {
	_, cramped := m.tights[q.b]
	return cramped || len(q.shuns)+len(q.b.avoid)+len(q.b.suspect) > 0
}

// surveyAll does that for all queues of which jobs wait and for whom a node may be too
// small, once for all of a class that may use the same nodes.
func (m *Machine) surveyAll() {
	known := func(c *class) bool {
		return slices.ContainsFunc(c.lanes, func(l *lane) bool {
			return slices.ContainsFunc(l.queues, func(q *queue) bool { return c.share.learnt+q.fills() > 0 })
		})
	}
	if !slices.ContainsFunc(m.classes, known) {
		return
	}
	least := roomiest{math.MaxInt64, math.MaxInt64}
	for _, p := range m.peers {
		if p.session != 0 && p.has.memory > 0 {
			least.memory = min(least.memory, p.has.memory)
		}
		if p.session != 0 && p.space() > 0 {
			least.disk = min(least.disk, p.space())
		}
	}
	for _, c := range m.classes {
		var common *roomiest
		for _, l := range c.lanes {
			for _, q := range l.queues {
				if c.share.learnt <= least.memory && q.fills() <= least.disk {
					continue
				}
				var most roomiest
				switch {
				case m.choosy(q) || m.awaits(q):
					most = m.most(q)
				case common == nil:
					most = m.most(q)
					common = &most
				default:
					most = *common
				}
				if q.knows(most) {
					m.feed(c)
				}
			}
		}
	}
}

// shortOf says that a node has room for a job of the queue but for the memory that its
// like needed.
func (q *queue) shortOf(p *peer) bool {
	least := q.c.of(p)
	least.learnt = 0
	return q.tooLittle(p) || !p.holds(q.c.of(p)) && p.holds(least)
}

// memoryLeft tells how much memory a node has left.
func (p *peer) memoryLeft() string {
	return fmt.Sprintf("has %s of memory left", unit.FormatBytes(max(0, p.has.memory-p.used.memory-p.used.learnt)))
}

// learnt tells how much memory or disk the jobs of a queue are taken to need, if that is in
// their way on some node.
func (m *Machine) learnt(q *queue) string {
	for _, p := range m.peers {
		switch {
		case p.session == 0 || !p.fits[q.c] || p.smallDisk(q.asksDisk()):
		case q.shortOf(p):
			return fmt.Sprintf(", and it needs about %s of memory (as %d of its batch did)", unit.FormatBytes(q.c.share.learnt), q.lore.memory.of)
		case q.tooFull(p) && q.fills() == q.asksDisk():
			return fmt.Sprintf(", and it needs %s of the disk", unit.FormatBytes(q.asksDisk()))
		case q.tooFull(p):
			return fmt.Sprintf(", and it needs about %s of the disk (as %d of its batch did)", unit.FormatBytes(q.fills()), q.lore.disk.of)
		}
	}
	return ""
}
