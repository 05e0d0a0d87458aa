package head

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
)

// offered takes in what a node offers from now on.
func (h *Head) offered(s *session, o node.Offer) {
	h.apply(sched.Offered{Session: s.id, Offer: o})
	was := s.offer
	s.offer = o
	was.Disk, was.DiskSize, was.Kept, was.Soon = o.Disk, o.DiskSize, o.Kept, o.Soon
	if reflect.DeepEqual(was, o) {
		return // there is more room on its disk, or less
	}
	said := []any{"cpus", o.CPUs}
	if o.Pause != nil {
		said = append(said, "pause", pauseNote(h, o.Pause, 1, h.clock.tell()))
	}
	s.log.Info("node's offer changed", said...)
}

// tellWays shows followers those jobs that run in another way than before, or no more
// since they were cancelled, by how it is now.
func (h *Head) tellWays(changes []sched.Change) {
	var changed []logged
	for _, c := range changes {
		b := h.batches[c.Ref.Batch]
		if b == nil {
			continue
		}
		live := liveJob{token: c.Token, state: job.Cancelled}
		switch a, ok := h.machine.Attempt(c.Token); {
		case ok && (a.Current || a.Stopping):
			live = h.liveJob(a)
		case h.machine.State(c.Ref) != job.Cancelled:
			continue
		}
		if name, err := b.Name(int(c.Ref.Job)); err == nil {
			changed = append(changed, logged{batch: b.Batch, job: name, live: &live})
		}
	}
	slices.SortFunc(changed, func(a, b logged) int { return strings.Compare(a.job, b.job) })
	h.tellWatchers(changed)
}

// pauseNote tells who has taken a node with so many jobs back, from when, and until
// when, of a pause that was told of at the moment said: "ana, 13:02 to 15:02".
func pauseNote(h *Head, p *node.Pause, jobs int, said time.Duration) string {
	since := h.clockTime(said - seconds(p.Since))
	who := p.Who()
	if len(p.By) > 0 && p.Why != "" {
		who += " (" + p.Why + ")"
	}
	if p.Give != nil {
		note := fmt.Sprintf("%s lent back to %s", p.Give, who)
		if p.Left > 0 {
			note += " until " + h.clockTime(said+seconds(p.Left))
		}
		return note
	}
	note := who + ", since " + since
	if p.Left > 0 {
		note = fmt.Sprintf("%s, %s to %s", who, since, h.clockTime(said+seconds(p.Left)))
	}
	if jobs == 0 {
		return note
	}
	return note + leaving(h, p, said)
}

// pausedWhy tells of a job who has stopped it, and until when.
func pausedWhy(h *Head, a *sched.Attempt) string {
	p := a.Pause
	if p == nil {
		return ""
	}
	note := p.Who()
	if p.Left > 0 {
		note += ", until " + h.clockTime(a.Said+seconds(p.Left))
	}
	return note + leaving(h, p, a.Said)
}

// leaving tells when the jobs of a paused node go on elsewhere.
func leaving(h *Head, p *node.Pause, said time.Duration) string {
	switch {
	case p.Out:
		return "; jobs are leaving"
	case p.Go != nil && (p.Left == 0 || *p.Go < p.Left):
		return "; jobs leave at " + h.clockTime(said+seconds(*p.Go))
	}
	return ""
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
