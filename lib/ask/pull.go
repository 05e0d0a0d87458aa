package ask

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/pull"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// maxProblems is how many jobs and files that went wrong are named.
const maxProblems = 1000

// A Puller brings results home. Its settings come first; the rest is what has come of it.
type Puller struct {
	Cmd      *cli.Cmd
	Head     string // as for [Dial]
	Dry      bool   // files are counted, not moved
	Choice   pull.Choice
	Root     *os.Root // below which results are put; nil: a dry run where there is no directory
	Progress *cli.Progress
	Brought  func(id string) error // is called when all of a job, or of an attempt, is there

	Met      int     // jobs that fit
	Files    int     // that were moved, or would be
	Bytes    int64   // in them
	Waiting  int     // jobs that are not over
	Empty    int     // jobs that are over and left nothing
	Skipped  int     // jobs of which something stayed on the node
	List     string  // that names it, of the first of these
	Problems []error // each of one job or file; the others went on

	named map[string]bool // attempts among the operands of the request under way
	told  map[string]bool // ids that were brought, of the request under way
}

// Another ends a request: what it brought is brought again if the next means it, too.
func (p *Puller) Another() { p.told = nil }

// Pull pulls what the operands mean over one session with the head, and calls progress
// when it has that. The same request again, of a session that was lost, passes over what
// was brought already.
func (p *Puller) Pull(ctx context.Context, ops *Operands, progress func()) error {
	h, err := Dial(ctx, p.Cmd, p.Head)
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
func (p *Puller) meant(ctx context.Context, h *Head, ops *Operands) ([]string, error) {
	rest := &Operands{Args: append([]string(nil), ops.Args...)}
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
		err := Rows(ctx, h, wire.Query{Of: "jobs"}, rest, func(r *job.Row) error {
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
		p.Met, p.Waiting, p.Empty = p.Met+met, p.Waiting+waiting, p.Empty+empty
	}
	return ids, nil
}

// job pulls one job, or one attempt. What concerns it alone is a problem and
// no error.
func (p *Puller) job(ctx context.Context, h *Head, id string) error {
	for whole := false; !whole; {
		var err error
		var refused *wire.Error
		whole, err = p.portion(ctx, h, id)
		if errors.As(err, &refused) && refused.Status == cli.NoSuch && hasTry(id) && !p.named[id] {
			p.Empty++
			return nil
		}
		if errors.Is(err, pull.ErrInTheWay) {
			p.problem(cli.Errorf(cli.No, "%w", err))
			return nil
		}
		if errors.As(err, &refused) || errors.Is(err, wire.ErrGaveUp) {
			p.problem(fmt.Errorf("%s: %w", id, err))
			return nil
		}
		if errors.Is(err, pack.ErrSum) {
			p.problem(err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return p.Brought(id)
}

func hasTry(id string) bool {
	_, _, try, err := job.ParseID(id)
	return err == nil && try > 0
}

func (p *Puller) open(id string) (*pull.Place, error) {
	if p.Root == nil {
		return new(pull.Place), nil
	}
	return pull.Open(p.Root, id, !p.Dry)
}

// portion pulls as much of a job as one request can name, and says whether
// that was all.
func (p *Puller) portion(ctx context.Context, h *Head, id string) (whole bool, err error) {
	r, err := h.Result(ctx, id)
	if err != nil {
		return false, err
	}
	place, err := p.open(id)
	if errors.Is(err, pull.ErrInTheWay) {
		return false, errors.Join(err, r.Leave(ctx))
	}
	if err != nil {
		return false, err
	}
	defer place.Close()
	n, err := place.Plan(ctx, r.Manifest, &p.Choice, !p.Dry)
	if err != nil {
		return false, err
	}
	defer n.Close()
	p.Files, p.Bytes = p.Files+n.Files, p.Bytes+n.Bytes
	if n.Whole || p.Dry {
		p.note(id, r.Manifest)
	}
	if p.Dry {
		return true, r.Leave(ctx)
	}
	p.Progress.Grow(n.Bytes)
	err = n.Prepare(func(e pack.Entry) { p.Cmd.Verbose("%s", unit.Quote(path.Join(id, e.Path))) }, p.Progress.Add)
	if err != nil {
		return false, err
	}
	if n.None {
		err = r.Leave(ctx)
	} else {
		err = r.Take(ctx, n.Want, n)
	}
	if err != nil {
		return false, err
	}
	for _, changed := range n.Changed {
		p.problem(cli.Errorf(cli.No, "%q is not as in the result, and is left (changed here, or of an older result: move it away to pull it)", path.Join(id, changed)))
	}
	var wrong []error
	for _, file := range n.Damaged {
		wrong = append(wrong, Damaged(path.Join(id, file)))
	}
	if n.Whole && len(n.Changed)+len(wrong) == 0 && p.Choice.All() {
		place.Tidy(r.Manifest)
	}
	return n.Whole, errors.Join(wrong...)
}

// note notes a job that left what did not come to the head.
func (p *Puller) note(id string, m pack.Manifest) {
	_, name, _, err := job.ParseID(id)
	list := job.SkippedName(name)
	if err == nil && slices.ContainsFunc(m, func(e pack.Entry) bool { return e.Path == list }) {
		if p.Skipped++; p.Skipped == 1 {
			p.List = path.Join(id, list)
		}
	}
}

func (p *Puller) problem(err error) {
	if len(p.Problems) == maxProblems {
		err = cli.Errorf(cli.Status(err), "and more")
	}
	if len(p.Problems) <= maxProblems {
		p.Problems = append(p.Problems, err)
	}
}
