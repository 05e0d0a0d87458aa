package head

import (
	"os"
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/noded"
	"distribute/lib/proc"
	"distribute/spool"
)

// A simPause is what a person does to the jobs of a machine.
type simPause struct {
	noded.Stand
	news chan struct{} // closed when that changes, and made anew
}

// standing is how the pauses of the machine stand, and what tells of a change.
func (n *simNode) standing() (noded.Stand, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pause.Stand, n.pause.news
}

// setPause pauses the machine, or ends that.
func (n *simNode) setPause(st noded.Stand) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pause.Stand != st {
		close(n.pause.news)
		n.pause = simPause{st, make(chan struct{})}
	}
}

// isStill says that an order is to stand still.
func (n *simNode) isStill(token string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stills[token]
}

// busy says that something runs on the machine that nothing has paused.
func (n *simNode) busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.orders) > 0 && !n.pause.Frozen
}

// lives lets an attempt run for so many seconds, without those in which its machine
// is paused, or until it has run for as long as it may, and says how it ended; errDead if
// it was lost on the way.
func (n *simNode) lives(o *simOrder, r *simRun, st *proc.Status, left time.Duration) error {
	ran, limit := time.Duration(0), o.Time
	for {
		pause, news := n.standing()
		if pause.Frozen && pause.Out {
			return n.leaves(o, r, st)
		}
		pause.Frozen = pause.Frozen || n.isStill(o.Token)
		var end <-chan time.Time
		if !pause.Frozen {
			wait := left
			if limit > 0 && ran+left > limit {
				wait = max(0, limit-ran)
			}
			t := time.NewTimer(wait)
			defer t.Stop()
			end = t.C
		}
		began := time.Now()
		select {
		case now := <-end:
			if limit == 0 || ran+left <= limit {
				return nil
			}
			ran, left = ran+now.Sub(began), left-now.Sub(began)
			longer := proc.LongerLimit(n.path(o.rel), o.Token, limit)
			if longer == limit {
				n.timeIsUp(o, r, ran)
				st.Signal, st.Stopped = 15, proc.StoppedTime
				return nil
			}
			limit = longer
			continue
		case <-o.stop:
			if pause.Frozen {
				st.Paused += time.Since(began)
			}
			st.Signal, st.Stopped = 15, proc.StoppedOrder
			return nil
		case <-o.lost:
			return errDead
		case <-news:
		}
		if took := time.Since(began); pause.Frozen {
			st.Paused += took
		} else {
			ran, left = ran+took, max(0, left-took)
		}
	}
}

// leaves ends an attempt that is asked to leave: it saves that it has come a step
// further, or is killed, or happens to be done.
func (n *simNode) leaves(o *simOrder, r *simRun, st *proc.Status) error {
	st.Evicted = true
	exit := job.ExitSaved
	switch n.w.r.IntN(4) {
	case 0:
		st.Signal = 15
	case 1:
		return nil
	default:
		if err := os.WriteFile(n.path(o.rel, "work/step"), []byte(strconv.Itoa(r.began+1)), 0o600); err != nil {
			return n.w.odd(o, err)
		}
		n.w.set(func() { r.saved = r.began + 1 })
		st.Exit = &exit
	}
	return nil
}

// goesOn reads how far the job of an attempt has come before it.
func (n *simNode) goesOn(o *simOrder) int {
	b, err := os.ReadFile(n.path(o.rel, "work/step"))
	if err != nil {
		return 0
	}
	step, err := strconv.Atoi(string(b))
	if err != nil || step < 1 {
		n.w.wrong("attempt %s goes on from %q", o.Token, b)
	}
	return step
}

// stepsAtRest checks by a log that each attempt went on from what was saved last,
// so that no job has ever gone back.
func (w *world) stepsAtRest(s *spool.Spool, b *simBatch) {
	steps := map[string]int{}
	_, err := s.Events(b.id, 0, -1, func(rec *job.Record) error {
		w.mu.Lock()
		r := w.runs[rec.Attempt]
		w.mu.Unlock()
		switch {
		case rec.Kind == job.KindDone || rec.Kind == job.KindFailed || rec.Kind == job.KindCancelled:
			delete(steps, rec.Job)
		case r == nil || r.abroad:
		case rec.Kind == job.KindStart && r.began != steps[rec.Job]:
			w.wrong("attempt %s of %s/%s goes on from step %d, and %d was saved", rec.Attempt, b.id, rec.Job, r.began, steps[rec.Job])
		case rec.Kind == job.KindBack && rec.Saved && r.saved <= steps[rec.Job]:
			w.wrong("%s/%s goes back from step %d to %d", b.id, rec.Job, steps[rec.Job], r.saved)
		case rec.Kind == job.KindBack && rec.Saved:
			steps[rec.Job] = r.saved
		}
		return nil
	})
	if err != nil {
		w.wrong("the log of %s: %v", b.id, err)
	}
}

// paused is how often something was paused in a history, and how many attempts
// saved what they had.
func (w *world) paused() (acts, saved int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acts {
		if strings.Contains(a, " is paused") {
			acts++
		}
	}
	for _, r := range w.runs {
		if r.saved > 0 {
			saved++
		}
	}
	return acts, saved
}
