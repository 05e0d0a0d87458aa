package head

import (
	"errors"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

// hurries changes a batch while it is being submitted: it can be found from when it has its
// name, which is before it is accepted.
func (p *person) hurries(b *simBatch) {
	for tries := 0; tries < 20 && !p.calm(); tries++ {
		p.wait(3 * time.Second)
		accepted := b.accepted.Load()
		err := p.once(func(h *ask.Head) error {
			jobs := b.all()
			return p.hurry(h, b, b.id.Job(jobs[p.r.IntN(len(jobs))].Name))
		})
		if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.NoSuch && !accepted {
			continue
		}
		if err != nil {
			p.refused(b, err)
		}
		if accepted {
			return
		}
	}
}

// hurry does one thing about a batch that may be there.
func (p *person) hurry(h *ask.Head, b *simBatch, id job.ID) error {
	switch x := p.r.IntN(16); {
	case x < 5:
		return p.cancelAll(h, b)
	case x < 6:
		return p.change(h, "cancel", id, job.Cancelled)
	case x < 8:
		return p.change(h, "retry", id, job.Queued)
	case x < 11:
		return p.hold(h, []string{"hold", "hold", "release"}[p.r.IntN(3)], p.idsOf(b.id))
	case x < 12:
		return p.set(h, b)
	case x < 13:
		return p.remove(h, b)
	case x < 14:
		if err := p.query(h, b); err != nil { // it must be there, else another is made
			return err
		}
		return p.add(h, b)
	}
	return p.pull(h, id)
}

// cancelAll cancels all jobs of a batch.
func (p *person) cancelAll(h *ask.Head, b *simBatch) error {
	p.w.act("%s asks to cancel %s", p.name, b.id)
	p.w.set(func() {
		for _, j := range b.known() {
			p.w.fact(b.id.Job(j.Name)).cancels = true
		}
	})
	return h.Change(p.w.ctx, wire.Change{Verb: "cancel"}, &ask.Operands{Args: []string{string(b.id)}}, func(s string) error {
		p.w.act("%s is told that cancel of %s is done", p.name, s)
		p.w.told(job.ID(s), job.Cancelled)
		return nil
	})
}

// offered notes that a batch is submitted, perhaps again.
func (w *world) offered(b *simBatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.offers++; w.deleted[b.id] > 0 {
		w.madeAgain(b)
	}
}

// madeAgain reports whether a batch that was deleted before it was accepted may be made again. A
// repeated submission may do so: the head keeps nothing of a deleted batch by which it could
// recognise the submission. Answers about the jobs then count no more. It needs mu.
func (w *world) madeAgain(b *simBatch) bool {
	if b.offers < 2 {
		return false
	}
	b.gone.Store(false)
	for _, j := range b.known() {
		f := w.fact(b.id.Job(j.Name))
		*f = fact{retries: f.retries + 1, cancels: f.cancels, retried: true, freed: true}
	}
	return true
}
