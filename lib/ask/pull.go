package ask

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

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
	Chosen   int     // portions of jobs with files that the choice takes
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
	defer func() { h.Close() }()
	progress()
	h.TellNewer(ctx, p.Cmd, ops)
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
		usable, err := p.job(ctx, h, id)
		if err != nil {
			return err
		}
		if p.told[id] = true; !usable {
			h.Close()
			next, err := Dial(ctx, p.Cmd, p.Head)
			if err != nil {
				return err
			}
			h = next
		}
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
// no error. It reports whether the session can be used for the next one.
func (p *Puller) job(ctx context.Context, h *Head, id string) (usable bool, err error) {
	j := &pulled{id: id, Choice: p.Choice}
	j.Skip = map[string]bool{}
	_, name, _, _ := job.ParseID(id)
	j.Jobs = slices.Compact([]string{name, path.Base(id)})
	all := false // of the job is there
	usable = true
	for whole := false; !whole; {
		var refused *wire.Error
		whole, err = p.portion(ctx, h, j)
		switch {
		case err == nil:
			all = whole && len(j.Skip) == 0 && !j.none
			continue
		case errors.As(err, &refused) && refused.Status == cli.NoSuch && hasTry(id) && !p.named[id]:
			p.Empty++
		case errors.As(err, &refused) && refused.Status == cli.NoSuch && !hasTry(id):
			j.problems = append(j.problems, cli.Errorf(cli.IO, "%s: %w: the job is done, so its files on the head are damaged (dfsck -s shows that there), or it was deleted meanwhile", id, err))
		case errors.Is(err, pull.ErrInTheWay):
			j.problems = append(j.problems, cli.Errorf(cli.No, "%w", err))
		case errors.As(err, new(*placeError)):
			usable = false // the rest of a transfer is not received
			j.problems = append(j.problems, err)
		case errors.As(err, &refused), errors.Is(err, wire.ErrGaveUp):
			j.problems = append(j.problems, fmt.Errorf("%s: %w", id, err))
		default:
			if ctx.Err() != nil { // nothing of this is done again
				p.report(j)
			}
			return false, err
		}
		break
	}
	p.report(j)
	if all {
		return usable, p.Brought(id)
	}
	return usable, nil
}

// report takes in the problems of a job.
func (p *Puller) report(j *pulled) {
	for _, err := range j.problems {
		p.problem(err)
	}
}

// A pulled job is one that is on its way.
type pulled struct {
	id          string
	pull.Choice         // with the files that cannot be had
	none        bool    // of its files is chosen
	problems    []error // told when all has come: the session may be lost before, and all this is done again
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
// that was all. The files that the head cannot send, or sends with another
// content, are problems, and are skipped from then on.
func (p *Puller) portion(ctx context.Context, h *Head, j *pulled) (whole bool, err error) {
	id := j.id
	r, err := h.Result(ctx, id)
	if err != nil {
		return false, err
	}
	if !j.TakesAny(r.Manifest) {
		j.none = true
		return true, r.Leave(ctx)
	}
	p.Chosen++
	place, err := p.open(id)
	if errors.Is(err, pull.ErrInTheWay) {
		return false, errors.Join(err, r.Leave(ctx))
	}
	if at := (*fs.PathError)(nil); errors.As(err, &at) && strings.Contains(at.Path, "/") { // else no job can be pulled
		return false, p.here(id, err)
	}
	if err != nil {
		return false, fmt.Errorf("%q: %w", p.Root.Name(), err)
	}
	defer place.Close()
	n, err := place.Plan(ctx, r.Manifest, &j.Choice, !p.Dry)
	if err != nil {
		return false, p.here(id, err)
	}
	defer n.Close()
	p.Files, p.Bytes = p.Files+n.Files, p.Bytes+n.Bytes
	p.refused(j, n)
	if p.Dry {
		n.Each(func(e pack.Entry) { p.Cmd.Verbose("%s", unit.Quote(path.Join(id, e.Path))) })
		p.note(id, r.Manifest)
		return true, r.Leave(ctx)
	}
	left := int64(0) // bytes of the request that have not come
	err = n.Prepare(func(e pack.Entry) {
		p.Cmd.Verbose("%s", unit.Quote(path.Join(id, e.Path)))
	}, func(bytes int64) {
		left -= bytes
		p.Progress.Add(bytes)
	})
	if err != nil {
		return false, p.here(id, err)
	}
	p.refused(j, n)
	more, first := true, true // the head waits to be told what is wanted
	for whole = n.None; !whole; whole = whole || n.None {
		left = n.Bytes
		p.Progress.Grow(left)
		more, err = r.TakePart(ctx, n.Want, n)
		gaveUp := errors.Is(err, wire.ErrGaveUp)
		if refused := (*wire.Error)(nil); !first && errors.As(err, &refused) && refused.Status == cli.NoSuch {
			p.Progress.Grow(-left)
			j.Skip, j.Most, j.problems = map[string]bool{}, p.Choice.Most, nil // of a result that was deleted: another may have its name
			return false, nil
		}
		if err != nil && !gaveUp {
			return false, p.here(id, err)
		}
		first = false
		for _, file := range n.Damaged {
			j.Skip[file] = true
			j.problem(Damaged(path.Join(id, file)))
		}
		n.Damaged = nil
		p.refused(j, n)
		skip := false
		if gaveUp {
			p.Progress.Grow(-left)
			skip = j.narrow(n, err)
		} else {
			j.Most *= narrowing
		}
		if whole = !gaveUp && n.Whole; whole {
			break
		}
		if !more {
			return false, nil
		}
		if err := n.Next(j.Most, skip); err != nil {
			return false, p.here(id, err)
		}
		p.Files, p.Bytes = p.Files+n.Files, p.Bytes+n.Bytes
	}
	if more {
		if err := r.Leave(ctx); err != nil {
			return false, err
		}
	}
	p.note(id, r.Manifest)
	for _, changed := range n.Changed {
		j.problem(cli.Errorf(cli.No, "%q is not as in the result, and is left (changed here, or of an older result: move it away to pull it)", path.Join(id, changed)))
	}
	if len(n.Changed)+len(j.Skip) == 0 && j.All() {
		place.Tidy(r.Manifest)
	}
	return true, nil
}

// refused takes in what the file system here does not take of a job. All else comes.
func (p *Puller) refused(j *pulled, n *pull.Plan) {
	for _, r := range n.Refused {
		if !j.Skip[r.Path] {
			j.Skip[r.Path] = true
			j.problem(cli.Errorf(cli.No, "%q cannot be made here: %w (pull it into a directory on another file system)", path.Join(j.id, r.Path), r.Err))
		}
	}
}

// A placeError is returned when the directory of one job cannot be used here.
type placeError struct {
	dir string
	err error
}

func (e *placeError) Error() string {
	return fmt.Sprintf("%q: %v (mend that, or pull into another directory)", e.dir, e.err)
}

func (e *placeError) Unwrap() error { return e.err }

// ExitStatus returns the status with which a tool ends for it.
func (*placeError) ExitStatus() int { return cli.IO }

// here returns err, as a placeError if it concerns the directory of this job only: a full
// disk, for example, concerns all.
func (p *Puller) here(id string, err error) error {
	if errors.As(err, new(*Lost)) {
		return err
	}
	for _, one := range []error{fs.ErrPermission, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL} {
		if errors.Is(err, one) {
			return &placeError{path.Join(p.Root.Name(), id), err}
		}
	}
	return err
}

// narrowing is the factor by which a request names fewer files after one that brought none,
// and more after one that brought all.
const narrowing = 16

// narrow has the next request name fewer files after the head gave up the one of the plan. It
// reports whether its first file is to be skipped: one that was asked for alone, and is a
// problem then.
func (j *pulled) narrow(n *pull.Plan, err error) (skip bool) {
	switch {
	case n.Came() == n.Files: // the last has more bytes on the head than in the result
	case n.Came() > 0: // files come in order
		j.Most = 1
	case n.Files > 1:
		j.Most = max(1, n.Files/narrowing)
	default:
		skip = true
		j.Skip[n.First()] = true
		j.problem(fmt.Errorf("%.300q cannot be read on the head (dfsck -s shows there what is damaged): %w", path.Join(j.id, n.First()), err))
	}
	return skip
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

func (p *Puller) problem(err error) { p.Problems = addProblem(p.Problems, err) }

func (j *pulled) problem(err error) { j.problems = addProblem(j.problems, err) }

// addProblem adds a problem to a list, which ends in the number of those beyond [maxProblems].
func addProblem(list []error, err error) []error {
	if len(list) < maxProblems {
		return append(list, err)
	}
	added := 1
	if more := (*moreError)(nil); errors.As(err, &more) {
		added = more.n
	}
	if len(list) == maxProblems {
		return append(list, &moreError{added, cli.Status(err)})
	}
	list[maxProblems].(*moreError).n += added
	return list
}

// A moreError stands for problems that are not named.
type moreError struct{ n, status int }

func (e *moreError) Error() string { return fmt.Sprintf("and %d more", e.n) }

// ExitStatus returns the status of the first of them.
func (e *moreError) ExitStatus() int { return e.status }
