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

// learn takes in that a job has ended well.
func (m *Machine) learn(b *batch, i uint32, rec *job.Record) {
	q := b.queue(i)
	q.lore.memory.add(max(0, rec.MemoryPeak)-max(0, rec.Cache), job.MaxMemory)
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
	case !p.listed || a.dead:
		return
	case a.active:
		p.used = p.used.plus(more)
	case a.result == nil:
		p.waits = p.waits.plus(more)
	}
	m.touch(p)
}

// tooSmall says that a node has less memory than the jobs of a queue are known to need,
// and another has more on which they could run now.
func (q *queue) tooSmall(p *peer) bool {
	return p.has.memory > 0 && p.has.memory < min(q.c.share.learnt, q.most)
}

// survey finds out how much memory there is for the jobs of a queue, and says whether
// that is another answer than before. In the first minute a larger node may still come.
func (m *Machine) survey(q *queue) bool {
	was := q.most
	if q.most = 0; q.b.early && m.ticked-m.since < settleTime {
		q.most = math.MaxInt64
	} else if q.c.share.learnt > 0 {
		for _, p := range m.peers {
			if p.session != 0 && !p.offer.Pause.Full() && p.enough(q.c) && !q.avoids(p) && m.could(q, p) {
				q.most = max(q.most, p.has.memory)
			}
		}
	}
	return q.most != was
}

// surveyAll does that for all queues of which jobs wait and for whom a node may be too
// small.
func (m *Machine) surveyAll() {
	if !slices.ContainsFunc(m.classes, func(c *class) bool { return c.share.learnt > 0 }) {
		return
	}
	least := int64(job.MaxMemory)
	for _, p := range m.peers {
		if p.session != 0 && p.has.memory > 0 {
			least = min(least, p.has.memory)
		}
	}
	for _, c := range m.classes {
		if c.share.learnt <= least {
			continue
		}
		for _, l := range c.lanes {
			for _, q := range l.queues {
				if m.survey(q) {
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
	return q.tooSmall(p) || !p.holds(q.c.of(p)) && p.holds(least)
}

// memoryLeft tells how much memory a node has left.
func (p *peer) memoryLeft() string {
	return fmt.Sprintf("has %s of memory left", unit.FormatBytes(max(0, p.has.memory-p.used.memory-p.used.learnt)))
}

// learnt tells how much memory the jobs of a queue are taken to need, if that is in their
// way on some node.
func (m *Machine) learnt(q *queue) string {
	for _, p := range m.peers {
		if p.session != 0 && p.fits[q.c] && q.shortOf(p) {
			return fmt.Sprintf(", and it needs about %s of memory (as %d of its batch did)", unit.FormatBytes(q.c.share.learnt), q.lore.memory.of)
		}
	}
	return ""
}
