package head

import (
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/job"
	"distribute/lib/noded"
	"distribute/lib/wire"
	"distribute/spool"
)

// simLimits are the limits of time that people give jobs, in seconds; 0 is none.
var simLimits = []int64{0, 0, 2, 30, 120, 3600}

// timeIsUp notes that the limit of time of an attempt ends it: nobody was told, long enough ago and
// while nothing was wrong with any machine, that it may run for longer.
func (n *simNode) timeIsUp(o *simOrder, r *simRun, ran time.Duration) {
	n.w.mu.Lock()
	f := *n.w.fact(r.job)
	n.w.mu.Unlock()
	if f.allowed != nil && time.Since(f.since) > 30*time.Second && o.began.Before(f.since) && (*f.allowed == 0 || ran < time.Duration(*f.allowed)*time.Second) {
		n.w.wrong("attempt %s of %s is ended after %v by its limit of time, which is %d s since %v", r.token, r.job, ran, *f.allowed, f.since.Sub(n.w.began))
	}
}

// moreTime has an operator give jobs another limit of time while they run and nothing is wrong
// with any machine. Meanwhile they are held for a moment, and nodes are paused.
func (w *world) moreTime() {
	p := w.operator()
	for range 4 {
		for _, b := range w.allBatches() {
			ids := p.idsOf(b.id)
			if len(ids) == 0 || w.isDeleted(b.id) || !b.accepted.Load() || p.r.IntN(3) == 0 {
				continue
			}
			p.once(func(h *ask.Head) error {
				return p.allow(h, ids[p.r.IntN(len(ids))], []int64{0, 60, 300, 900}[p.r.IntN(4)])
			})
			if p.r.IntN(2) == 0 {
				p.once(func(h *ask.Head) error { return p.hold(h, "hold", ids) })
			}
		}
		n := w.nodes[p.r.IntN(len(w.nodes))]
		w.act("%s is paused", n.name)
		n.setPause(noded.Stand{Frozen: true})
		w.sleep(time.Duration(p.r.Int64N(int64(5 * time.Minute))))
		w.act("%s is used again", n.name)
		n.setPause(noded.Stand{})
		for _, b := range w.allBatches() {
			p.letGo(b)
		}
		w.sleep(time.Duration(p.r.Int64N(int64(time.Minute))))
	}
}

// allow gives a job another limit of time. Who is told so while nothing is wrong knows that the
// job runs for that long from soon on.
func (p *person) allow(h *ask.Head, id job.ID, seconds int64) error {
	p.w.act("%s asks to set the limit of %s to %d s", p.name, id, seconds)
	p.w.set(func() { p.w.fact(id).allowed = nil })
	return h.Change(p.w.ctx, wire.Change{Verb: "set", Set: &job.Set{Time: &seconds}}, &ask.Operands{Args: []string{string(id)}}, func(string) error {
		p.w.act("%s is told that %s may run for %d s", p.name, id, seconds)
		p.w.set(func() {
			f := p.w.fact(id)
			f.allowed, f.since = &seconds, time.Now()
		})
		return nil
	})
}

// limitsAtRest checks by a log that each attempt was given the limit that its job had, or a later
// one, ran for as long as it might and no longer, and that one which its limit ended has failed
// for that reason.
func (w *world) limitsAtRest(s *spool.Spool, b *simBatch) {
	now := map[string]int64{} // by job: the limit by the log so far
	most := map[job.Token]int64{}
	at := map[job.Token]string{} // jobs of attempts
	var all []job.Token
	longer := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	}
	_, err := s.Events(b.id, 0, -1, func(rec *job.Record) error {
		w.mu.Lock()
		r := w.runs[rec.Attempt]
		w.mu.Unlock()
		limit := func(name string) int64 {
			if l, ok := now[name]; ok {
				return l
			}
			for _, j := range b.known() {
				if j.Name == name && j.Resources != nil {
					return j.Resources.Time
				}
			}
			return b.spec.Resources.Time
		}
		switch {
		case rec.Kind == job.KindSet && rec.Set != nil && rec.Set.Time != nil:
			for _, j := range b.known() {
				if rec.Job == "" || rec.Job == j.Name {
					now[j.Name] = *rec.Set.Time
				}
			}
			for token, name := range at {
				if rec.Job == "" || rec.Job == name {
					most[token] = longer(most[token], *rec.Set.Time)
				}
			}
		case rec.Kind == job.KindStart:
			if want := limit(rec.Job); rec.Limit != want && len(b.known()) == b.first {
				w.wrong("attempt %s of %s/%s is started with the limit %d, and has %d", rec.Attempt, b.id, rec.Job, rec.Limit, want)
			}
			at[rec.Attempt], most[rec.Attempt] = rec.Job, rec.Limit
			all = append(all, rec.Attempt)
		case (rec.Kind == job.KindFailed || rec.Kind == job.KindBack) && rec.Fate == job.FateEnded && r != nil && r.timed != strings.Contains(rec.Reason, job.ReasonTime):
			w.wrong("%s/%s is %s for %q, and its limit of time has ended it: %v", b.id, rec.Job, rec.Kind, rec.Reason, r.timed)
		case rec.Kind == job.KindDone && r != nil && r.timed:
			w.wrong("%s/%s is done, and its limit of time has ended it", b.id, rec.Job)
		}
		return nil
	})
	if err != nil {
		w.wrong("the log of %s: %v", b.id, err)
	}
	for _, token := range all {
		w.mu.Lock()
		r := w.runs[token]
		w.mu.Unlock()
		if r == nil || !r.over || r.abroad {
			continue
		}
		if limit := time.Duration(most[token]) * time.Second; limit > 0 && r.ran > limit+time.Second {
			w.wrong("attempt %s of %s/%s has run for %v, and might for %v", token, b.id, at[token], r.ran, limit)
		}
		if r.timed && (r.limit == 0 || r.ran < r.limit) {
			w.wrong("attempt %s of %s/%s is ended by its limit of %v after %v", token, b.id, at[token], r.limit, r.ran)
		}
	}
}
