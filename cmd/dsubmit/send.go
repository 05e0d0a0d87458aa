package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"syscall"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/unit"
	"distribute/lib/wire"
	"distribute/spool"
)

// submit gives the batch to the head, or leaves it in the spool's incoming/ if
// no dsched serves it. When it returns an id the batch is durable. When the head
// is lost it goes on as soon as there is one again, or leaves it there: the
// submission's id stays, so that one which was accepted and not answered is
// there already.
func (s *submission) submit(ctx context.Context, b *job.Batch) (id job.BatchID, err error) {
	ref := job.NewToken()
	err = ask.Again(ctx, s.Cmd, func(reached func()) error {
		id, err = s.try(ctx, b, ref, reached)
		if unreached := (*dial.Error)(nil); errors.As(err, &unreached) {
			if dir, ok := dial.Spool(unreached.Addr); ok {
				id, err = s.drop(b, ref, dir, unreached)
			}
		}
		return err
	})
	if ctx.Err() != nil && s.begun {
		s.talk("the head keeps for a day what it has of the inputs: the same again goes on there")
	}
	return id, err
}

// try is submit over one session with the head.
func (s *submission) try(ctx context.Context, b *job.Batch, ref job.Token, reached func()) (job.BatchID, error) {
	h, err := ask.Dial(ctx, s.Cmd, *s.head)
	if err != nil {
		return "", err
	}
	defer h.Close()
	reached()
	offer := func() (*wire.Accepted, error) {
		answer, begun, err := h.Submit(ctx, s.Cmd, b, wire.Submit{Ref: ref, Unique: *s.unique, Queue: *s.queue, Held: *s.held, Add: *s.adds})
		s.begun = s.begun || begun
		return answer, err
	}
	answer, err := offer()
	if *s.adds && freeName(err) != "" { // the batch may have been made since the head looked for it: add to it
		answer, err = offer()
	}
	if err != nil {
		return "", s.otherwise(err, b.Secrets)
	}
	switch {
	case answer.Same && *s.adds:
		s.talk("%s has all of these already", answer.Batch)
	case answer.Same:
		s.talk("%s is there already, with %s", answer.Batch, unit.Count(answer.Jobs, "job"))
	case answer.Added > 0:
		s.talk("%s: %s more, %d in all", answer.Batch, unit.Count(answer.Added, "job"), answer.Jobs)
		s.tellBegun(ctx, h, b)
	default:
		s.talk("%s: %s", answer.Batch, sized(b))
	}
	return answer.Batch, nil
}

// tellBegun says how many jobs of a batch began before others were added that they need: they do
// not run again. It is a hint, so it is silent if the head does not answer.
func (s *submission) tellBegun(ctx context.Context, h *ask.Head, b *job.Batch) {
	names, needs := make([]string, len(b.Jobs)), make([][]string, len(b.Jobs))
	for i := range b.Jobs {
		names[i], needs[i] = b.Jobs[i].Name, b.Jobs[i].Needs
	}
	n, _ := job.ResolveNeeds(names, needs)
	if n == nil {
		return
	}
	began, done := map[string]time.Time{}, map[string]time.Time{}
	// By the head's clock, what a cluster ran ended when it was brought, which may be after a job that
	// needs it began there: such a job counts only beside one that is not done.
	start := func(r *job.Row) time.Time {
		if r.OnCluster() {
			return time.Unix(1<<40, 0)
		}
		return r.Started
	}
	err := ask.Rows(ctx, h, wire.Query{Of: "jobs"}, &ask.Operands{Args: []string{string(b.ID())}}, func(r *job.Row) error {
		switch r.State {
		case job.Done:
			began[r.Job], done[r.Job] = start(r), r.Ended
		case job.Running, job.Paused, job.Stranded, job.Unreachable:
			began[r.Job] = start(r)
		}
		return nil
	})
	if err != nil {
		return
	}
	last := make([]time.Time, n.Lists()+1) // when the last job of each list was done; zero: it is not
	for k := 1; k <= n.Lists(); k++ {
		for _, i := range n.List(uint32(k)) {
			at := done[names[i]]
			if at.IsZero() {
				last[k] = at
				break
			}
			if at.After(last[k]) {
				last[k] = at
			}
		}
	}
	first, count := "", 0
	for i, k := range n.Of {
		if at := began[names[i]]; k > 0 && !at.IsZero() && (last[k].IsZero() || at.Before(last[k])) {
			first, count = cmp.Or(first, names[i]), count+1
		}
	}
	switch {
	case count == 1:
		s.talk("%s began before jobs were added that it needs, and does not run again: give it another name", b.ID().Job(first))
	case count > 1:
		s.talk("%s and %d more began before jobs were added that they need, and do not run again: give them other names", b.ID().Job(first), count-1)
	}
}

// sized is how many jobs a batch has, and how much of a machine each is given.
func sized(b *job.Batch) string {
	least, most, whole := job.MaxCPUs, 0, 0
	for i := range b.Jobs {
		r := b.Spec.Resources
		if own := b.Jobs[i].Resources; own != nil {
			r = *own
		}
		r = r.Together()
		if r.CPUs == 0 {
			whole++
			continue
		}
		least, most = min(least, r.CPUs), max(most, r.CPUs)
	}
	jobs := unit.Count(len(b.Jobs), "job")
	switch {
	case len(b.Jobs) == 0:
		return jobs
	case whole == 1 && len(b.Jobs) == 1:
		return jobs + ", a whole machine"
	case whole == len(b.Jobs):
		return jobs + ", each a whole machine"
	case least == most:
		jobs += " of " + unit.Count(least, "cpu")
	default:
		jobs += fmt.Sprintf(" of %d to %d cpus", least, most)
	}
	if whole > 0 {
		jobs += fmt.Sprintf(", %d of them a whole machine", whole)
	}
	return jobs
}

// drop leaves the batch where dsched will find it when it is started.
func (s *submission) drop(b *job.Batch, ref job.Token, dir string, unreached error) (job.BatchID, error) {
	sp, err := spool.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return "", cli.Errorf(cli.NotAllowed, "%w", unreached)
	}
	if err != nil {
		return "", cli.Errorf(cli.Unreachable, "%w; and %w", unreached, err)
	}
	if *s.adds {
		return "", cli.Errorf(cli.Unreachable, "%w: -a adds jobs only with its help", unreached)
	}
	if *s.waiting {
		return "", cli.Errorf(cli.Unreachable, "%w: there is nothing to wait for", unreached)
	}
	if len(b.Secrets) > 0 {
		return "", cli.Errorf(cli.Unreachable, "%w: the batch has secrets, which do not wait in incoming/", unreached)
	}
	if *s.held {
		return "", cli.Errorf(cli.Unreachable, "%w: -k holds jobs only with its help", unreached)
	}
	d := spool.Drop{Submission: ref, Batch: b.ID(), Free: *s.unique, Jobs: len(b.Jobs)}
	open := func(sum string) (io.ReadCloser, error) { return b.Sources[sum].Open() }
	err = sp.Leave(d, b.Data, &b.Spec, each(b.Jobs), open)
	switch {
	case errors.Is(err, spool.ErrSame):
		s.talk("%s is there already", b.ID())
		return b.ID(), nil
	case errors.Is(err, spool.ErrTaken):
		return "", s.otherwise(&wire.Error{Status: cli.Input, Text: err.Error(), Free: sp.FreeName(b.ID())}, nil)
	case errors.Is(err, spool.ErrPrivate):
		return "", cli.Errorf(cli.Unreachable, "%w, and the batch is private: in incoming/ others could read it", unreached)
	case errors.Is(err, spool.ErrInput):
		return "", cli.Errorf(cli.Input, "%w", err)
	case errors.Is(err, spool.ErrFull):
		return "", cli.Errorf(cli.Later, "the batch could not be left in %q: %w (make room there, and submit it again)", dir, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EIO):
		return "", cli.Errorf(cli.Later, "the batch could not be left in %q: %w (the disk has failed: submit it again when that is mended)", dir, err)
	case err != nil:
		return "", fmt.Errorf("the batch could not be left in %q: %w", dir, err)
	}
	id, name := b.ID(), ""
	if *s.unique {
		id = sp.FreeName(id)
		name = ", and then is " + string(id) + ", or the next if that is taken then"
	}
	s.talk("no dsched serves %q: the batch waits in its incoming/ until one does%s", dir, name)
	return id, nil
}

// each yields the address of each job.
func each(jobs []job.Job) iter.Seq[*job.Job] {
	return func(yield func(*job.Job) bool) {
		for i := range jobs {
			if !yield(&jobs[i]) {
				return
			}
		}
	}
}
