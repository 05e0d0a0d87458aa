package head

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

// verb does one of the things about a batch that only some histories have: see plan.
func (p *person) verb(h *ask.Head, b *simBatch) error {
	jobs := b.all()
	id := b.id.Job(jobs[p.r.IntN(len(jobs))].Name)
	switch x := p.r.IntN(20); {
	case x < 5:
		return p.add(h, b)
	case x < 8:
		return p.dry(h, b, id)
	case x < 10:
		if err := p.dry(h, b, id); err != nil {
			return err
		}
		return p.remove(h, b)
	case x == 10:
		return p.remove(h, b)
	case x == 11:
		return p.tooMany(h, b)
	case x == 12 && p.w.plan.cluster:
		return p.claims(h, b, id)
	case x < 14:
		return p.change(h, "retry", id, job.Queued)
	case x < 16:
		return p.change(h, "cancel", id, job.Cancelled)
	}
	return p.meddle(h)
}

// isDeleted reports whether somebody has asked for the deletion of the batch, and was not refused.
func (w *world) isDeleted(id job.BatchID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deleted[id] > 0
}

// isRolled reports whether the spool was put back to an older state.
func (w *world) isRolled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rolled
}

// add adds jobs to the batch. Until that is answered, the next call adds the same jobs.
func (p *person) add(h *ask.Head, b *simBatch) error {
	if p.w.isDeleted(b.id) || b.left || p.w.isRolled() {
		return nil // this could be another batch
	}
	jobs := b.all()
	if b.adding == nil {
		if len(jobs) > 8 {
			return nil
		}
		for range 1 + p.r.IntN(3) {
			all := slices.Concat(jobs, b.adding)
			j := p.inventJob(b, len(all), b.input(p.r))
			for _, other := range all {
				if p.w.plan.gates && p.r.IntN(4) == 0 {
					j.Needs = append(j.Needs, other.Name)
				}
			}
			b.mu.Lock()
			b.adding = append(b.adding, j)
			b.mu.Unlock()
		}
	}
	said := b.adding
	if p.w.plan.gates || p.r.IntN(2) == 0 {
		said = slices.Concat(jobs, said)
	}
	p.w.act("%s asks to add %d jobs to %s, which has %d", p.name, len(b.adding), b.id, len(jobs))
	m, err := p.offer(h, b, &wire.Submit{Ref: job.NewToken(), Batch: b.id, Add: true}, said)
	if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.Input && strings.Contains(refusal.Text, "would be cancelled at once") {
		p.w.act("%s is told that they cannot be added: %s", p.name, refusal.Text)
		b.mu.Lock()
		b.perhaps, b.adding = append(b.perhaps, b.adding...), nil // if one was asked for before and comes late
		b.mu.Unlock()
		if !p.w.plan.gates {
			p.w.wrong("jobs of %s, which never stops, are refused: %v", b.id, refusal)
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.w.act("%s is told that %d are added to %s (the same: %v)", p.name, m.Added, b.id, m.Same)
	b.mu.Lock()
	b.jobs = slices.Concat(jobs, b.adding)
	n := len(b.jobs)
	b.adding = nil
	b.mu.Unlock()
	if m.Jobs != n && b.perhaps == nil && !p.w.isRolled() {
		p.w.wrong("I18: %s should have %d jobs, and is said to have %d", b.id, n, m.Jobs)
	}
	return nil
}

// tooMany asks for more different requests than a batch may have, which is refused.
func (p *person) tooMany(h *ask.Head, b *simBatch) error {
	if p.w.isDeleted(b.id) || b.left || b.adding != nil || p.w.isRolled() {
		return nil
	}
	var jobs []job.Job
	for i := range job.MaxRequests + 1 {
		jobs = append(jobs, job.Job{Name: fmt.Sprintf("many%d", i), Run: []string{"sim", "0", "0"}, Resources: &job.Resources{CPUs: 1, Memory: int64(1+i) << 10}})
	}
	p.w.act("%s asks to add %d different requests to %s", p.name, len(jobs), b.id)
	m, err := p.offer(h, b, &wire.Submit{Ref: job.NewToken(), Batch: b.id, Add: true}, jobs)
	if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.Input {
		return nil
	}
	if err == nil {
		p.w.wrong("%s has taken %d different requests, and has %d jobs", b.id, len(jobs), m.Jobs)
	}
	return err
}

// dry asks what a change would be, which changes nothing.
func (p *person) dry(h *ask.Head, b *simBatch, id job.ID) error {
	change := wire.Change{Verb: []string{"retry", "retry", "cancel", "hold", "release", "set"}[p.r.IntN(6)], Dry: true, Freeze: p.r.IntN(2) == 0}
	if change.Verb == "set" {
		other := p.r.IntN(100)
		change.Set = &job.Set{Priority: &other}
	}
	args := []string{string(id)}
	if p.r.IntN(2) == 0 {
		args = []string{string(b.id)}
	}
	p.w.act("%s asks of which of %s it would be that %s", p.name, args, change.Verb)
	mine := p.idsOf(b.id)
	return h.Change(p.w.ctx, change, &ask.Operands{Args: args}, func(s string) error {
		if !slices.Contains(mine, job.ID(s)) && b.adding == nil && b.perhaps == nil {
			p.w.wrong("%s -n of %s would change %s", change.Verb, args, s)
		}
		return nil
	})
}

// meddle does something to a batch of another person: an operator may, others may not.
func (p *person) meddle(h *ask.Head) error {
	var others []*simBatch
	for _, b := range p.w.allBatches() {
		if b.of != p {
			others = append(others, b)
		}
	}
	if len(others) == 0 {
		return nil
	}
	b := others[p.r.IntN(len(others))]
	if !b.accepted.Load() {
		return nil
	}
	ids := p.idsOf(b.id)
	id := ids[p.r.IntN(len(ids))]
	verb := []string{"cancel", "retry", "hold", "release", "set", "delete", "claim", "add", "pull", "query"}[p.r.IntN(10)]
	if verb == "query" {
		return p.others(b, p.query(h, b))
	}
	if verb == "pull" {
		return p.others(b, p.pull(h, id))
	}
	if p.mayAll() {
		switch verb {
		case "cancel":
			return p.others(b, p.change(h, verb, id, job.Cancelled))
		case "retry":
			return p.others(b, p.change(h, verb, id, job.Queued))
		case "hold", "release":
			return p.others(b, p.hold(h, verb, []job.ID{id}))
		}
		return nil
	}
	p.w.act("%s asks to %s %s, which is another's", p.name, verb, id)
	return p.others(b, p.intrude(h, verb, b, id))
}

// intrude asks for a change of a batch of another person, which is refused or comes to
// nothing.
func (p *person) intrude(h *ask.Head, verb string, b *simBatch, id job.ID) error {
	change := wire.Change{Ref: job.NewToken(), Verb: verb, Args: []string{string(id)}, All: p.r.IntN(2) == 0, Freeze: true}
	switch verb {
	case "add":
		if p.w.isDeleted(b.id) || b.left {
			return nil // it could be his
		}
		jobs := []job.Job{{Name: "mine", Run: []string{"sim", "0", "0"}}}
		m, err := p.offer(h, b, &wire.Submit{Ref: job.NewToken(), Batch: b.id, Add: true}, jobs)
		if err == nil && !p.w.isDeleted(b.id) && !b.left && !p.w.isRolled() {
			p.w.wrong("%s has added to %s, which is another's: %+v", p.name, b.id, m)
		}
		if err == nil {
			p.w.set(func() { p.w.doomed[b.id] = true; p.w.deleted[b.id]++ }) // it is his now
		}
		if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.Input {
			return nil
		}
		return err
	case "set":
		priority := 99
		change.Set = &job.Set{Priority: &priority}
	case "delete":
		change.Args = []string{string(b.id)}
	case "claim":
		change.Node, change.Folder = string(hpc), job.NewToken()
	}
	r, err := h.Answer(p.w.ctx, &change)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err == nil && len(text) > 0 && !p.w.isDeleted(b.id) && !p.w.isRolled() {
		p.w.wrong("%s did %s to %s, which is another's: %q", p.name, verb, id, text)
	}
	return err
}

// others leaves of an error what is no refusal that somebody gets of another's batch.
func (p *person) others(b *simBatch, err error) error {
	refusal := (*wire.Error)(nil)
	if errors.As(err, &refusal) && (refusal.Status == cli.NotAllowed && !p.mayAll() || refusal.Status == cli.NoSuch) {
		return nil
	}
	if errors.As(err, &refusal) && refusal.Status != cli.Later && refusal.Status != cli.IO && !inputsGone(err) && !p.w.isRolled() {
		p.w.wrong("the head refuses %s of another to %s: status %d: %v", b.id, p.name, refusal.Status, refusal)
	}
	return nil
}

// mayAll reports whether the person is an operator.
func (p *person) mayAll() bool { return p.uid == os.Getuid() }
