package main

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/spool"
)

// pastEvery is how old what is kept of what is in no log may be, if no node has begun
// to rest since: so much may be missing after a power cut.
const pastEvery = time.Minute

// A keptPast is what dsched knows of the file in which the machine's past is kept.
type keptPast struct {
	rests  uint64        // of the machine, as it was kept last
	last   sched.Past    // that was kept
	looked time.Duration // when it was seen last to be the same still
	stale  bool          // it is to be kept anew
}

// pastDue says that the machine's past is to be kept with the next tick: a node has
// begun to rest, or goes on before its time, which is to be true after a power cut;
// or it is another than a while ago.
func (h *head) pastDue() bool { return h.kept.stale || h.machine.Rests() != h.kept.rests }

// restsUnkept says that nodes rest, or do not any more, of which that is soon kept: it
// is told when it is. On a full disk that may never be.
func (h *head) restsUnkept() bool {
	return !h.full && (h.machine.Rests() != h.kept.rests || h.committing != nil && h.committing.rests)
}

// agePast looks at times whether there is something new to be kept. While nothing
// happens nothing is written.
func (h *head) agePast() {
	if h.now-max(h.kept.last.At, h.kept.looked) < pastEvery {
		return
	}
	h.kept.looked = h.now
	now := h.machine.Past()
	h.kept.stale = now.Works || h.kept.last.Works || !slices.EqualFunc(now.Nodes, h.kept.last.Nodes, sched.Standing.Is)
}

// past is the machine's past as it is kept, by the time of day.
func (h *head) past() *spool.Past {
	h.kept = keptPast{rests: h.machine.Rests(), last: h.machine.Past()}
	p := &spool.Past{Time: time.Now()}
	for _, u := range h.kept.last.Owners {
		p.Users = append(p.Users, spool.UserPast{UID: u.Owner, Used: u.CPU})
	}
	for _, s := range h.kept.last.Nodes {
		n := spool.NodePast{Node: string(s.Node), Boot: s.Boot, Heard: h.pastTime(s.Heard), Reason: s.Why, Given: s.Given, Blamed: s.Blamed,
			Fast: h.pastJobs(s.Fast), Rests: s.Rests, Only: h.pastJobs(s.Only), Proofs: s.Proofs}
		if s.Rest != 0 {
			n.Until = h.pastTime(s.Rest)
		}
		if len(s.Fast) > 0 {
			n.Since = h.pastTime(s.Since)
		}
		if s.Proofs > 0 {
			n.Proven = h.pastTime(s.Proven)
		}
		if s.Leaves {
			n.Left, n.Leaving = h.pastTime(s.Left), s.Leaving.Seconds()
		}
		p.Nodes = append(p.Nodes, n)
	}
	return p
}

func (h *head) pastTime(moment time.Duration) time.Time {
	return h.when(moment).UTC().Round(time.Millisecond)
}

func (h *head) pastJobs(refs []sched.Ref) (jobs []spool.PastJob) {
	for _, r := range refs {
		j := spool.PastJob{}
		if b := h.batches[r.Batch]; b != nil {
			j = spool.PastJob{Batch: b.ID, Line: int(r.Job) + 1}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// keepPast writes down what is to be kept of a tick, before anything is done or told
// because of it. That some time has passed can wait for room on the disk. It is not
// called by the state's goroutine.
func (h *head) keepPast(t *tick) error {
	if t.past == nil {
		return nil
	}
	err := h.store.WritePast(t.past, t.rests)
	if errors.Is(err, spool.ErrFull) && !t.rests {
		return nil
	}
	return err
}

// endPast keeps what is so when dsched ends, if there is room.
func (h *head) endPast() error {
	if err := h.store.WritePast(h.past(), false); err != nil && !errors.Is(err, spool.ErrFull) {
		return err
	}
	return nil
}

// remember tells the machine what was kept. Of no use, it is begun anew.
func (h *head) remember() {
	p, err := h.spool.ReadPast()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.log.Info("nothing was kept of what users have used and of what speaks against nodes: that begins anew")
		return
	case err != nil:
		h.log.Warn("what users have used and what speaks against nodes cannot be read, and begins anew", "file", "past.jsonl", "why", err)
		return
	}
	moment := func(t time.Time) time.Duration { return h.clock() + time.Until(t) }
	past := sched.Past{At: moment(p.Time)}
	for _, u := range p.Users {
		past.Owners = append(past.Owners, sched.Used{Owner: u.UID, CPU: u.Used})
	}
	over := uint32(0)
	for _, n := range p.Nodes {
		s := sched.Standing{Node: node.Name(n.Node), Boot: n.Boot, Heard: moment(n.Heard), Why: n.Reason, Given: n.Given, Blamed: n.Blamed,
			Fast: h.refs(n.Fast, &over), Since: moment(n.Since), Rests: n.Rests, Only: h.refs(n.Only, &over), Proofs: n.Proofs, Proven: moment(n.Proven),
			Leaves: !n.Left.IsZero(), Left: moment(n.Left), Leaving: seconds(n.Leaving)}
		if !n.Until.IsZero() {
			s.Rest = moment(n.Until)
		}
		past.Nodes = append(past.Nodes, s)
	}
	h.apply(sched.Remember{Past: past})
	h.kept = keptPast{rests: h.machine.Rests(), last: h.machine.Past()}
}

// refs is what jobs are for the machine. One of a batch that is not open gets a number
// that no other has: over counts them.
func (h *head) refs(jobs []spool.PastJob, over *uint32) (refs []sched.Ref) {
	for _, j := range jobs {
		r := sched.Ref{Batch: h.byID[j.Batch], Job: uint32(j.Line - 1)}
		if b := h.batches[r.Batch]; b == nil || j.Line > b.Jobs() {
			r = sched.Ref{Job: *over} // no batch has number 0
			*over++
		}
		refs = append(refs, r)
	}
	return refs
}
