package query

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/unit"
)

// Errors of [Query.Resolve].
var (
	ErrNone    = errors.New("no such batch")          // a name is of no batch of the one who asks
	ErrSeveral = errors.New("several batches fit it") // a name is of more than one
)

// A Query says which jobs are meant. Jobs fit it that are among its ids, if it
// has any, and fit all its filters.
type Query struct {
	batches map[job.BatchID]bool
	jobs    map[job.ID]bool
	of      map[job.BatchID]bool // the batches of jobs
	names   []string
	filters []filter[job.Row]

	live     bool // no operand: only what is not over
	mine     bool // only of the one who asks
	named    bool // an operand names jobs
	uid      int  // of the one who asks
	anybody  bool // For was not called, or mine does not hold
	byStates [job.Cancelled + 1]bool
}

// Parse reads operands: ids, filters and names of batches. What names files
// and standard input has been put into ids before. Times in filters are
// relative to now and, without a zone, in that of now. Every error is
// [ErrUsage], and all operands that are wrong are named in it, a line each.
func Parse(operands []string, now time.Time) (*Query, error) {
	q := &Query{batches: map[job.BatchID]bool{}, jobs: map[job.ID]bool{}, of: map[job.BatchID]bool{},
		live: len(operands) == 0, mine: true, anybody: true}
	fields := JobFields()
	var errs []error
	for _, arg := range operands {
		if err := q.operand(fields, arg, now); err != nil {
			errs = append(errs, err)
		}
	}
	if len(q.batches)+len(q.jobs) > 0 {
		q.mine = false
	}
	q.findStates()
	return q, errors.Join(errs...)
}

func (q *Query) operand(fields []Field[job.Row], arg string, now time.Time) error {
	i := strings.IndexAny(arg, operators)
	if i < 0 {
		return q.name(fields, arg)
	}
	if arg[i] == '/' {
		return q.id(arg)
	}
	f, err := parseFilter(fields, arg, now)
	if err != nil {
		return err
	}
	switch f.field.Name {
	case "owner", "namespace":
		q.mine = false
	case "id":
		q.mine, q.named = false, true
	case "job":
		q.named = true
	}
	q.filters = append(q.filters, f)
	return nil
}

func (q *Query) id(arg string) error {
	batch, name, _, err := job.ParseID(arg)
	switch {
	case err != nil:
		return usagef("%s", err)
	case name == "":
		q.batches[batch] = true
	default:
		q.jobs[batch.Job(name)], q.of[batch] = true, true
		q.named = true
	}
	return nil
}

func (q *Query) name(fields []Field[job.Row], arg string) error {
	if slices.ContainsFunc(fields, func(f Field[job.Row]) bool { return f.Name == arg }) {
		return usagef("%q is a field without a condition (did the shell take the > ?); a batch of that name is written with its namespace, as NAMESPACE/%s", arg, arg)
	}
	if err := job.CheckName(arg); err != nil {
		return usagef("%s", err)
	}
	if !slices.Contains(q.names, arg) {
		q.names = append(q.names, arg)
	}
	return nil
}

// findStates fills byStates with the states that the filters on state let
// through.
func (q *Query) findStates() {
	for s := range q.byStates {
		r := job.Row{State: job.State(s)}
		q.byStates[s] = !slices.ContainsFunc(q.filters, func(f filter[job.Row]) bool {
			return f.field.Name == "state" && !f.match(&r)
		})
	}
}

// For narrows the query to the jobs of the user with that number if it means
// one's own, as it does unless it has an id or names an owner, a namespace or
// ids. Who everybody's jobs are asked for does not call it.
func (q *Query) For(uid int) { q.uid, q.anybody = uid, !q.mine }

// Resolve replaces the names of batches by the ids of the batches that have
// them and whose owner has the number uid; user is its name, for errors. Give
// it every batch there is, with the number of its owner. Errors are [ErrNone]
// and [ErrSeveral], with a line for each name and, under it, the ids that fit.
func (q *Query) Resolve(uid int, user string, batches func(yield func(id job.BatchID, uid int) bool)) error {
	if len(q.names) == 0 {
		return nil
	}
	fit := map[string][]job.BatchID{}
	for id, owner := range batches {
		if owner == uid && slices.Contains(q.names, id.Name()) {
			fit[id.Name()] = append(fit[id.Name()], id)
		}
	}
	var errs []error
	for _, name := range q.names {
		switch ids := fit[name]; len(ids) {
		case 0:
			errs = append(errs, fmt.Errorf("%q: %w of %s", name, ErrNone, unit.Quote(user)))
		case 1:
			q.batches[ids[0]] = true
		default:
			slices.Sort(ids)
			list := fmt.Sprint(ids)
			errs = append(errs, fmt.Errorf("%q: %w: %s", name, ErrSeveral, list[1:len(list)-1]))
		}
	}
	q.names = slices.DeleteFunc(q.names, func(name string) bool { return len(fit[name]) == 1 })
	return errors.Join(errs...)
}

// IDs are the ids among the operands and those that names were resolved to,
// sorted: of batches, and of jobs. Whoever asks for one that does not exist
// must be told.
func (q *Query) IDs() ([]job.BatchID, []job.ID) {
	return slices.Sorted(maps.Keys(q.batches)), slices.Sorted(maps.Keys(q.jobs))
}

// About says whether a batch, or a job of it, is among the ids of the query.
func (q *Query) About(id job.BatchID) bool { return q.batches[id] || q.of[id] }

// Names says whether the query is about a batch of that id or, by a name that is not
// resolved, may be.
func (q *Query) Names(id job.BatchID) bool {
	return q.About(id) || slices.Contains(q.names, id.Name())
}

// Reads says whether a batch has to be looked at, as far as its id and whether it is open tell.
func (q *Query) Reads(id job.BatchID, open bool) bool {
	return (!q.selective() || q.About(id)) && (open || !q.OnlyLive())
}

// Filters says that there is a filter on the field of that name.
func (q *Query) Filters(name string) bool {
	return slices.ContainsFunc(q.filters, func(f filter[job.Row]) bool { return f.field.Name == name })
}

// NamesJobs says that the query is about certain jobs, so that a table should
// show each.
func (q *Query) NamesJobs() bool { return q.named }

// OnlyLive says that nothing fits that is over, so that only open batches need
// to be looked at.
func (q *Query) OnlyLive() bool {
	return q.live || !q.byStates[job.Done] && !q.byStates[job.Failed] && !q.byStates[job.Cancelled]
}

// MayFit says whether a job of the batch can fit, which costs little: a batch
// that may not need not be read.
func (q *Query) MayFit(id job.BatchID, head *job.Head) bool {
	if !q.anybody && head.UID != q.uid {
		return false
	}
	if q.selective() && !q.About(id) {
		return false
	}
	r := job.Row{Namespace: id.Namespace(), Batch: id.Name(), Owner: head.Owner}
	return !slices.ContainsFunc(q.filters, func(f filter[job.Row]) bool {
		switch f.field.Name {
		case "namespace", "batch", "owner":
			return !f.match(&r)
		}
		return false
	})
}

func (q *Query) selective() bool { return len(q.batches)+len(q.jobs)+len(q.names) > 0 }

// Match says whether the job fits.
func (q *Query) Match(r *job.Row) bool { return !(q.live && r.State.Over()) && q.fits(r) }

// fits is Match without the rule that no operand means what is not over.
func (q *Query) fits(r *job.Row) bool {
	if !q.anybody && r.UID != q.uid {
		return false
	}
	if q.selective() && !q.jobs[r.ID] && !q.batches[r.ID.Batch()] {
		return false
	}
	for i := range q.filters {
		if !q.filters[i].match(r) {
			return false
		}
	}
	return true
}

// Nodes says which nodes are meant.
type Nodes struct{ filters []filter[node.Row] }

// ParseNodes reads operands about nodes: filters on their fields, and names
// of nodes, which may be patterns; one of the names must fit. Every error is
// [ErrUsage].
func ParseNodes(operands []string, now time.Time) (*Nodes, error) {
	n := &Nodes{}
	fields := NodeFields()
	var names []string
	var errs []error
	for _, arg := range operands {
		i := strings.IndexAny(arg, operators)
		switch {
		case i < 0 && slices.ContainsFunc(fields, func(f Field[node.Row]) bool { return f.Name == arg }):
			errs = append(errs, usagef("%q is a field without a condition (did the shell take the > ?)", arg))
		case i < 0:
			names = append(names, arg)
		case arg[i] == '/':
			errs = append(errs, usagef("%q is not a node", arg))
		default:
			f, err := parseFilter(fields, arg, now)
			if err != nil {
				errs = append(errs, err)
			}
			n.filters = append(n.filters, f)
		}
	}
	if len(names) > 0 {
		f, err := parseFilter(fields, "node="+strings.Join(names, ","), now)
		if err != nil {
			errs = append(errs, err)
		}
		n.filters = append(n.filters, f)
	}
	return n, errors.Join(errs...)
}

// Match says whether the node fits.
func (n *Nodes) Match(r *node.Row) bool {
	for i := range n.filters {
		if !n.filters[i].match(r) {
			return false
		}
	}
	return true
}
