package main

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

// offered takes in what a node offers from now on, and shows followers the jobs
// that stop or go on because of it.
func (h *head) offered(s *session, o node.Offer) {
	before := h.ways(s.name)
	h.apply(sched.Offered{Session: s.id, Offer: o})
	was := s.offer
	s.offer = o
	was.Disk, was.Kept, was.Soon = o.Disk, o.Kept, o.Soon
	if reflect.DeepEqual(was, o) {
		h.tellWays(before)
		return // there is more room on its disk, or less
	}
	said := []any{"cpus", o.CPUs}
	if o.Pause != nil {
		said = append(said, "pause", pauseNote(h, o.Pause, 1, h.clock()))
	}
	s.log.Info("the node offers something else", said...)
	h.tellWays(before)
}

// ways is how the jobs of some attempts run, or of all that a node has.
func (h *head) ways(name node.Name, of ...job.Token) map[job.Token]job.State {
	if len(h.watchers) == 0 {
		return nil
	}
	all := map[job.Token]job.State{}
	for _, t := range of {
		if a, ok := h.machine.Attempt(t); ok && a.Node == name && a.Current {
			all[t] = a.State
		}
	}
	if len(of) > 0 {
		return all
	}
	h.machine.Live(func(a sched.Attempt) {
		if a.Node == name && a.Current {
			all[a.Token] = a.State
		}
	})
	return all
}

// waysOf is how those of these jobs run that do.
func (h *head) waysOf(refs []sched.Ref) map[job.Token]job.State {
	all := map[job.Token]job.State{}
	for _, ref := range refs {
		if a, ok := h.machine.Current(ref); ok && len(h.watchers) > 0 {
			all[a.Token] = a.State
		}
	}
	return all
}

// tellWays shows followers those jobs that run in another way than before, when
// all that was decided by now is durable and done.
func (h *head) tellWays(before map[job.Token]job.State) {
	var changed []logged
	for t, was := range before {
		a, ok := h.machine.Attempt(t)
		b := h.batches[a.Ref.Batch]
		if !ok || !a.Current || a.State == was || b == nil {
			continue
		}
		if name, err := b.Name(int(a.Ref.Job)); err == nil {
			live := h.liveJob(a)
			changed = append(changed, logged{batch: b.Batch, job: name, live: &live})
		}
	}
	slices.SortFunc(changed, func(a, b logged) int { return strings.Compare(a.job, b.job) })
	if len(changed) > 0 {
		h.after = append(h.after, func() { h.tellWatchers(changed) })
	}
}

// pauseNote tells who has taken a node with so many jobs back, from when, and until
// when, of a pause that was told of at the moment said: "ana, 13:02 to 15:02".
func pauseNote(h *head, p *node.Pause, jobs int, said time.Duration) string {
	since := h.clockTime(said - seconds(p.Since) - time.Minute + 1)
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
func pausedWhy(h *head, a *sched.Attempt) string {
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
func leaving(h *head, p *node.Pause, said time.Duration) string {
	switch {
	case p.Out:
		return "; jobs are leaving"
	case p.Go != nil && (p.Left == 0 || *p.Go < p.Left):
		return "; jobs leave at " + h.clockTime(said+seconds(*p.Go))
	}
	return ""
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
