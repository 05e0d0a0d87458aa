package sched

import (
	"fmt"
	"math"
	"strings"

	"distribute/lib/job"
	"distribute/lib/node"
)

// Nodes are not equally fast, which jobs of a batch tell that asked for the same and
// ended well on different ones. Of nodes that are otherwise as good the faster are for
// jobs that are known to take long, and left to these by those that take little. Nobody
// waits for that, and nobody goes before another for it.
//
// What is known of nodes lasts longer than the batches, so it does not follow from the
// logs of those that are open (past.go).

// A Trend is a mean of logarithms to the base of 2 in which the last ones count most. One
// that is far off moves it no more than one that is 1 off: half of them and more have to
// be wrong for it to be.
type Trend struct {
	Log float64
	Of  int // how many they were; no more than trendOf are counted
}

// trendOf is how many a mean is of before the next counts for as much as the one before.
const trendOf = 31

func (t *Trend) add(log float64) {
	if t.Of == 0 {
		t.Log = log
	} else {
		t.Log += max(-1, min(1, log-t.Log)) / float64(t.Of+1)
	}
	t.Of = min(t.Of+1, trendOf)
}

// within is a mean that was remembered, if it can have been.
func (t Trend) within(least, most float64) Trend {
	return Trend{max(least, min(most, t.Log)), max(0, min(trendOf, t.Of))}
}

// A lag is by how much longer than elsewhere jobs of a kind take on a node; below 0, by
// how much shorter.
type lag struct {
	Trend
	step int // of so many half octaves, a factor of 1.41 each; 0 while too few are known
}

// Lags are those of jobs that have cpus of a node, that have a whole one, and that have
// GPUs: what makes one faster for the first may not for the others.
type Lags [lagKinds]Trend

const (
	lagOfCPUs = iota
	lagOfWhole
	lagOfGPUs
	lagKinds
)

var lagWords = [lagKinds]string{"jobs", "jobs of whole nodes", "jobs with GPUs"}

// lagKind is of which kind the jobs of a class are.
func (c *class) lagKind() int {
	switch {
	case c.share.cpus == 0:
		return lagOfWhole
	case c.share.gpus > 0:
		return lagOfGPUs
	}
	return lagOfCPUs
}

const (
	leastLags = 16     // ends by which a node, or what is usual, is known
	maxLag    = 3      // octaves: no node is taken to be faster or slower by more than 8 times
	leastTime = 10_000 // milliseconds; what takes less is mostly its start and its end
)

// is takes in what a lag is.
func (l *lag) is(t Trend) {
	*l = lag{Trend: t}
	if t.Of >= leastLags {
		l.step = int(math.Round(2 * t.Log))
	}
}

// add takes in by how much longer one has taken.
func (l *lag) add(log float64) {
	t := l.Trend
	t.add(max(-maxLag, min(maxLag, log)))
	l.is(t)
}

// pace is what is known of a node.
func (p *peer) pace() (all Lags) {
	for i := range p.lags {
		all[i] = p.lags[i].Trend
	}
	return all
}

// compare takes in, of a job that has ended well, how long that took beside others of its
// like. The one that ended before must have been on another node: where all are on one
// nothing is to be compared. What began with what was saved has taken less than its like.
func (m *Machine) compare(b *batch, i uint32, rec *job.Record) {
	q, ms := b.queue(i), math.Round(rec.Runtime*1000)
	if _, saved := b.saved[i]; saved || !(ms >= leastTime && ms < maxTime) {
		return
	}
	if node.Name(rec.Node).Abroad() {
		return
	}
	log, l := math.Log2(ms), q.lore
	if p := m.named[node.Name(rec.Node)]; b.ready && p != nil && l.took.Of >= leastLearnt && l.on != rec.Node {
		p.lags[q.c.lagKind()].add(log - l.took.Log)
	}
	l.took.add(log)
	l.on = rec.Node
}

// usually takes in how long a job was known to take that has ended well.
func (m *Machine) usually(q *queue) {
	if long := q.lore.shortest(); long > 0 {
		m.usual.add(math.Log2(float64(long.Milliseconds())))
	}
}

// length is 1 if the jobs of a queue are known to take twice as long as is usual, or
// longer; -1 if they take half, or less; else 0.
func (m *Machine) length(q *queue) int {
	long := q.lore.shortest()
	if long == 0 || m.usual.Of < leastLags {
		return 0
	}
	switch more := math.Log2(float64(long.Milliseconds())) - m.usual.Log; {
	case more >= 1:
		return 1
	case more <= -1:
		return -1
	}
	return 0
}

// paceNote tells how fast a node is, if jobs are placed by it; else "".
func (p *peer) paceNote() string {
	var words []string
	for i, l := range p.lags {
		if l.step != 0 {
			words = append(words, fmt.Sprintf("%s take %.2g times as long as elsewhere", lagWords[i], math.Exp2(l.Log)))
		}
	}
	return strings.Join(words, ", ")
}
