package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/pull"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// maxProblems is how many jobs and files that went wrong are named.
const maxProblems = 1000

// session pulls what the operands mean over one session with the head. What
// was pulled and told in an earlier one is passed over.
func (p *puller) session(ctx context.Context, ops *ask.Operands, progress func()) error {
	h, err := ask.Dial(ctx, p.c, p.head)
	if err != nil {
		return err
	}
	defer h.Close()
	progress()
	ids, err := p.meant(ctx, h, ops)
	if err != nil {
		return err
	}
	if p.told == nil {
		p.told = map[string]bool{}
	}
	for _, id := range ids {
		if p.told[id] {
			continue
		}
		if err := p.job(ctx, h, id); err != nil {
			return err
		}
		p.told[id] = true
	}
	return nil
}

// meant asks which jobs are meant, and gives the id of what each has to offer:
// its result, or its last attempt. Attempts that are named are taken as they
// are.
func (p *puller) meant(ctx context.Context, h *ask.Head, ops *ask.Operands) ([]string, error) {
	rest := &ask.Operands{Args: append([]string(nil), ops.Args...)}
	ids, err := h.Attempts(ctx, rest)
	if err != nil {
		return nil, err
	}
	met, waiting, empty := len(ids), 0, 0
	p.named = map[string]bool{}
	for _, id := range ids {
		p.named[id] = true
	}
	if len(rest.Args) > 0 {
		err := ask.Rows(ctx, h, wire.Query{Of: "jobs"}, rest, func(r *job.Row) error {
			if _, _, _, err := job.ParseID(string(r.ID)); err != nil {
				return h.Odd(ctx, err)
			}
			met++
			switch {
			case !r.State.Over():
				waiting++
			case r.State == job.Done:
				ids = append(ids, string(r.ID))
			case r.Attempt > 0:
				ids = append(ids, r.ID.Try(r.Attempt))
			default:
				empty++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if p.told == nil { // else they were counted when this was asked before
		p.met, p.waiting, p.empty = p.met+met, p.waiting+waiting, p.empty+empty
	}
	return ids, nil
}

// job pulls one job, or one attempt. What concerns it alone is a problem and
// no error.
func (p *puller) job(ctx context.Context, h *ask.Head, id string) error {
	for whole := false; !whole; {
		var err error
		var refused *wire.Error
		whole, err = p.portion(ctx, h, id)
		if errors.As(err, &refused) && refused.Status == cli.NoSuch && hasTry(id) && !p.named[id] {
			p.empty++
			return nil
		}
		if errors.Is(err, pull.ErrInTheWay) {
			p.problem(cli.Errorf(cli.No, "%w", err))
			return nil
		}
		if errors.As(err, &refused) {
			p.problem(fmt.Errorf("%s: %w", id, err))
			return nil
		}
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(p.c.Stdout, id)
	return err
}

func hasTry(id string) bool {
	_, _, try, err := job.ParseID(id)
	return err == nil && try > 0
}

func (p *puller) open(id string) (*pull.Place, error) {
	if p.root == nil {
		return new(pull.Place), nil
	}
	return pull.Open(p.root, id, !p.dry)
}

// portion pulls as much of a job as one request can name, and says whether
// that was all.
func (p *puller) portion(ctx context.Context, h *ask.Head, id string) (whole bool, err error) {
	ref := job.NewToken()
	r, err := h.Answer(ctx, &wire.Pull{Ref: ref, ID: id})
	if err != nil {
		return false, err
	}
	m, err := pack.DecodeManifest(r, pack.DefaultLimits())
	if err != nil {
		return false, p.wrong(ctx, h, id, r, err)
	}
	if err := wire.Drain(r); err != nil {
		return false, h.Failed(ctx, err)
	}
	place, err := p.open(id)
	if errors.Is(err, pull.ErrInTheWay) {
		return false, errors.Join(err, h.Failed(ctx, h.Send(&wire.Pick{Ref: ref, None: true})))
	}
	if err != nil {
		return false, err
	}
	defer place.Close()
	n, err := place.Plan(ctx, m, &p.choice, !p.dry)
	if err != nil {
		return false, err
	}
	defer n.Close()
	p.files, p.bytes = p.files+n.Files, p.bytes+n.Bytes
	if n.Whole || p.dry {
		p.note(id, m)
	}
	if p.dry {
		return true, h.Failed(ctx, h.Send(&wire.Pick{Ref: ref, None: true}))
	}
	p.progress.Grow(n.Bytes)
	err = n.Prepare(func(e pack.Entry) { p.c.Verbose("%s", unit.Quote(path.Join(id, e.Path))) }, p.progress.Add)
	if err != nil {
		return false, err
	}
	if n.None {
		err = h.Failed(ctx, h.Send(&wire.Pick{Ref: ref, None: true}))
	} else {
		err = p.receive(ctx, h, n, m, ref, id)
	}
	if err != nil {
		return false, err
	}
	for _, changed := range n.Changed {
		p.problem(cli.Errorf(cli.No, "%q was changed here and is left as it is", path.Join(id, changed)))
	}
	return n.Whole, nil
}

// note notes a job that left what did not come to the head.
func (p *puller) note(id string, m pack.Manifest) {
	_, name, _, err := job.ParseID(id)
	list := job.SkippedName(name)
	if err == nil && slices.ContainsFunc(m, func(e pack.Entry) bool { return e.Path == list }) {
		if p.skipped++; p.skipped == 1 {
			p.list = path.Join(id, list)
		}
	}
}

// receive asks for what the plan wants and takes it.
func (p *puller) receive(ctx context.Context, h *ask.Head, n *pull.Plan, m pack.Manifest, ref job.Token, id string) error {
	r, err := h.Answer(ctx, &wire.Pick{Ref: ref, Want: wire.Want(n.Want)})
	if err != nil {
		return err
	}
	if err := pack.Receive(r, m, n.Want, n); err != nil {
		return p.wrong(ctx, h, id, r, err)
	}
	return h.Failed(ctx, wire.Drain(r))
}

// wrong tells what did not arrive as it should have from what could not be
// written and from a head that went away, which r still knows.
func (p *puller) wrong(ctx context.Context, h *ask.Head, id string, r io.Reader, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if _, rerr := r.Read(make([]byte, 1)); rerr != nil && rerr != io.EOF {
			return h.Failed(ctx, rerr)
		}
	}
	switch {
	case errors.Is(err, wire.ErrCut), errors.Is(err, wire.ErrGaveUp):
		return h.Failed(ctx, err)
	case errors.Is(err, pack.ErrSum):
		return cli.Errorf(cli.IO, "%w (what came of it is removed: pull again; if that is wrong too the file is damaged on the head, which dfsck -s shows there)", err)
	case errors.Is(err, pack.ErrFormat), errors.Is(err, pack.ErrLimit), errors.Is(err, io.ErrUnexpectedEOF):
		return cli.Errorf(cli.IO, "%s: what the head sent is wrong: %w", id, err)
	}
	return err
}

func (p *puller) problem(err error) {
	if len(p.problems) == maxProblems {
		err = cli.Errorf(cli.Status(err), "and more")
	}
	if len(p.problems) <= maxProblems {
		p.problems = append(p.problems, err)
	}
}
