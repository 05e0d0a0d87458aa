package sched

import (
	"fmt"
	"math"
	"slices"
	"time"

	"distribute/lib/unit"
)

// What jobs declare of their time and their disk makes no other class. A queue has it
// in common: the longest time, and the least disk.

// A declared is what the jobs of a queue say that they need of time and disk. It
// follows from the batch and its log.
type declared struct {
	limit int64 // seconds that the one may run that may for longest; below 0: one has no limit
	disk  int64 // bytes of disk that each asks for at least, if any job is known
	said  bool  // a job is known
}

// ask takes in what a job asks for.
func (d *declared) ask(a Ask) {
	d.allow(a.Time)
	if !d.said || a.Disk < d.disk {
		d.said, d.disk = true, a.Disk
	}
}

// allow takes in that a job may run for so many seconds; 0: as long as it takes.
func (d *declared) allow(seconds int64) {
	if seconds == 0 {
		d.limit = -1
	} else if d.limit >= 0 {
		d.limit = max(d.limit, seconds)
	}
}

// longest is how long a job runs at most; 0 if one of them has no limit.
func (d *declared) longest() time.Duration {
	return time.Duration(max(0, d.limit)) * time.Second
}

// within says that a job is over in so much time.
func (d *declared) within(left time.Duration) bool {
	long := d.longest()
	return 0 < long && long <= left
}

// tooFull says that a node has less room on its disk than the jobs of a queue ask for,
// and another has more. Where none has enough it is for the node to say so, which may
// find something that it can remove.
func (q *queue) tooFull(p *peer) bool {
	return p.space() > 0 && p.space() < min(q.asksDisk(), q.roomiest)
}

// space is how much room a node has on its disk at most, by what it says, which it does
// not say again until it is a sixteenth more; 0: that is not known.
func (p *peer) space() int64 {
	room := p.offer.Space()
	return room + room/16
}

// roomiest is the most disk that one of the nodes has on which the jobs of a queue could
// run now. In the first minute a node with more may still come.
func (m *Machine) roomiest(q *queue) (disk int64) {
	if m.awaits(q) {
		return math.MaxInt64
	}
	for _, p := range m.peers {
		if m.usable(q, p) {
			disk = max(disk, p.space())
		}
	}
	return disk
}

// awaits says that nodes on which the jobs of a queue ran may still have to come.
func (m *Machine) awaits(q *queue) bool { return q.b.early && m.ticked-m.since < settleTime }

// usable says that jobs of a queue could be run on a node that is connected, not paused
// and does not rest, if nothing else ran there.
func (m *Machine) usable(q *queue, p *peer) bool {
	return p.session != 0 && p.rest == 0 && !p.offer.Pause.Full() && p.enough(q.c) && !q.avoids(p) && m.could(q, p)
}

// survey finds out how much disk there is for the queues that ask for more than some node
// has.
func (m *Machine) survey(queues []*queue) {
	least := int64(math.MaxInt64)
	for _, p := range m.peers {
		if p.session != 0 && p.space() > 0 {
			least = min(least, p.space())
		}
	}
	for _, q := range queues {
		if q.roomiest = 0; q.asksDisk() > least {
			q.roomiest = m.roomiest(q)
		}
	}
}

// diskWhy tells how much disk the jobs of a queue ask for, if that is in their way on
// some node.
func (m *Machine) diskWhy(q *queue) string {
	if slices.ContainsFunc(m.peers, func(p *peer) bool {
		return p.session != 0 && p.fits[q.c] && !p.smallDisk(q.asksDisk()) && q.tooFull(p)
	}) {
		return fmt.Sprintf(", and it needs %s of the disk", unit.FormatBytes(q.asksDisk()))
	}
	return ""
}
