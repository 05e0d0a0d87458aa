package job

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"distribute/lib/msg"
)

// MaxNeeds is with how many names the needs of a batch are compared at most: a name
// with one, a glob with all that begin as it does before its first wildcard. Lists
// that are written the same are compared once.
const MaxNeeds = 4_000_000

// maxNeedErrors is how many mistakes in the needs of a batch are told.
const maxNeedErrors = 100

// maxNeed is the limit in bytes of one entry of a list of needs.
const maxNeed = 4 * MaxName

// wildcards are the characters with which a glob begins to be one. No name has
// them.
const wildcards = "*?["

// CheckNeed reports why s cannot be an entry of a list of needs: the name of a job,
// or a glob as of [path.Match].
func CheckNeed(s string) error {
	if !strings.ContainsAny(s, wildcards) {
		return CheckName(s)
	}
	if len(s) > maxNeed || !utf8.ValidString(s) {
		return fmt.Errorf("%s is longer than %d bytes, or no text", msg.Quote(s), maxNeed)
	}
	if _, err := path.Match(s, ""); err != nil || strings.Contains(s, `\`) {
		return fmt.Errorf("%s is no pattern: check its brackets", msg.Quote(s))
	}
	return nil
}

// Needs is which jobs of a batch need which others of it, by their numbers from 0.
// Jobs that need the same have one list. It takes four bytes a job, and four for
// each entry of a list.
type Needs struct {
	Of   []uint32 // of each job: its list, from 1; 0: it needs none
	ends []uint32 // of each list, in jobs
	jobs []uint32
}

// Lists is how many different lists there are.
func (n *Needs) Lists() int { return len(n.ends) }

// List is the jobs of list k, from 1, in their order. It is not to be changed.
func (n *Needs) List(k uint32) []uint32 {
	from := uint32(0)
	if k > 1 {
		from = n.ends[k-2]
	}
	return n.jobs[from:n.ends[k-1]]
}

// A NeedError is a mistake in the needs of a job.
type NeedError struct {
	Job  int // its number
	Need int // the number of the need in its list
	text string
}

func (e *NeedError) Error() string { return e.text }

// ResolveNeeds finds which jobs are meant by the needs of jobs, of which each may
// be a name or a glob that [CheckNeed] takes. Jobs without needs have nil. The
// errors are each a [*NeedError], at most maxNeedErrors of them; with one there
// are no Needs. Without any needs the result is nil. It costs about a second for a
// million jobs.
func ResolveNeeds(names []string, needs [][]string) (*Needs, []*NeedError) {
	if !slices.ContainsFunc(needs, func(list []string) bool { return len(list) > 0 }) {
		return nil, nil
	}
	r := newResolver(names)
	r.n = &Needs{Of: make([]uint32, len(names))}
	for i, list := range needs {
		if len(list) > 0 && len(r.errs) < maxNeedErrors && r.tried <= MaxNeeds {
			r.job(uint32(i), list)
		}
	}
	if r.errs == nil {
		r.cycle()
	}
	if r.errs != nil {
		return nil, r.errs
	}
	return r.n, nil
}

// A resolver finds jobs by names and globs.
type resolver struct {
	names []string
	order []uint32          // the jobs, sorted by name
	lists map[string]uint32 // by what is written, and whom it leaves out
	taken []uint32          // of each job the last list that has it
	tried int               // names that were compared
	n     *Needs
	errs  []*NeedError
}

func newResolver(names []string) *resolver {
	r := &resolver{names: names, order: make([]uint32, len(names)), taken: make([]uint32, len(names)), lists: map[string]uint32{}}
	for i := range r.order {
		r.order[i] = uint32(i)
	}
	slices.SortStableFunc(r.order, func(a, b uint32) int { return strings.Compare(names[a], names[b]) })
	return r
}

// each calls f with the jobs that a need may mean, until that returns false: the
// one of a name, or all that begin as a glob does.
func (r *resolver) each(need string, f func(i uint32) bool) {
	head, glob := need, false
	if w := strings.IndexAny(need, wildcards); w >= 0 {
		head, glob = need[:w], true
	}
	at := sort.Search(len(r.order), func(k int) bool { return r.names[r.order[k]] >= head })
	for ; at < len(r.order) && strings.HasPrefix(r.names[r.order[at]], head); at++ {
		if !glob && r.names[r.order[at]] != head || !f(r.order[at]) || !glob {
			return
		}
	}
}

// fits says that a need means a job other than number self.
func (r *resolver) fits(need string, self uint32) (yes bool) {
	r.each(need, func(i uint32) bool {
		yes = i != self && Fits(need, r.names[i])
		return !yes
	})
	return yes
}

// Fits says that a need means the job of that name.
func Fits(need, name string) bool {
	ok, err := path.Match(need, name)
	return ok && err == nil
}

func (r *resolver) mistake(i uint32, need int, format string, a ...any) {
	r.errs = append(r.errs, &NeedError{int(i), need, fmt.Sprintf(format, a...)})
}

// job finds the list of a job. A list that fits the job itself is its own, without
// it.
func (r *resolver) job(i uint32, list []string) {
	key := strings.Join(list, "\x00")
	for _, need := range list {
		if Fits(need, r.names[i]) {
			key = fmt.Sprintf("%s\x00\x00%d", key, i)
			break
		}
	}
	if k, ok := r.lists[key]; ok {
		r.n.Of[i] = k
		return
	}
	from, k := len(r.n.jobs), uint32(len(r.n.ends)+1)
	for at, need := range list {
		if r.take(i, at, need, k); r.tried > MaxNeeds {
			return
		}
	}
	slices.Sort(r.n.jobs[from:])
	r.n.ends = append(r.n.ends, uint32(len(r.n.jobs)))
	r.n.Of[i], r.lists[key] = k, k
}

// take takes into list k what one need of job i means.
func (r *resolver) take(i uint32, at int, need string, k uint32) {
	glob, found := strings.ContainsAny(need, wildcards), false
	r.each(need, func(o uint32) bool {
		if r.tried++; r.tried > MaxNeeds {
			return false
		}
		if !Fits(need, r.names[o]) || glob && o == i {
			return true
		}
		found = true
		if r.taken[o] != k {
			r.taken[o] = k
			r.n.jobs = append(r.n.jobs, o)
		}
		return true
	})
	name := msg.Quote(r.names[i])
	switch {
	case r.tried > MaxNeeds:
		r.mistake(i, at, "the needs of the batch are to be compared with more than %d names, which is the limit: write one list for jobs that need the same, or begin globs with more letters", MaxNeeds)
	case found && !glob && r.names[i] == need:
		r.mistake(i, at, "job %s needs itself: remove that", name)
	case !found && glob:
		r.mistake(i, at, "job %s needs %s, which fits no other job of the batch", name, msg.Quote(need))
	case !found:
		r.mistake(i, at, "job %s needs %s, and there is no such job%s", name, msg.Quote(need), r.near(need))
	}
}

// near is what may have been meant.
func (r *resolver) near(need string) string {
	if len(r.names) > 10_000 {
		return "" // that would take long
	}
	if near := msg.DidYouMean(need, r.names); near != "" {
		return near
	}
	return ""
}

// A step is a list on the way that is looked at, and which of its jobs comes next.
type step struct {
	list uint32
	next int
}

// cycle tells of jobs that wait for one another. A list leads to those of its jobs:
// each list is looked at once, however many jobs have it.
func (r *resolver) cycle() {
	const on, over = 1, 2
	seen := make([]uint8, r.n.Lists()+1)
	var way []step
	for k := range uint32(r.n.Lists()) {
		if seen[k+1] == 0 {
			way, seen[k+1] = append(way, step{list: k + 1}), on
		}
		for len(way) > 0 {
			s := &way[len(way)-1]
			jobs := r.n.List(s.list)
			if s.next == len(jobs) {
				seen[s.list] = over
				way = way[:len(way)-1]
				continue
			}
			i := jobs[s.next]
			s.next++
			switch to := r.n.Of[i]; {
			case to == 0 || seen[to] == over:
			case seen[to] == on:
				r.tellCycle(way, to)
				return
			default:
				way, seen[to] = append(way, step{list: to}), on
			}
		}
	}
}

// tellCycle tells of the end of a way that leads to a list again which is on it.
func (r *resolver) tellCycle(way []step, to uint32) {
	at := slices.IndexFunc(way, func(s step) bool { return s.list == to })
	var jobs []uint32
	for _, s := range way[at:] {
		jobs = append(jobs, r.n.List(s.list)[s.next-1])
	}
	first := slices.Index(jobs, slices.Min(jobs))
	jobs = append(slices.Concat(jobs[first:], jobs[:first]), jobs[first])
	const shown = 10
	var names []string
	for k, i := range jobs {
		switch more := len(jobs) - 1 - shown; {
		case more < 2 || k < shown || k == len(jobs)-1:
			names = append(names, r.names[i])
		case k == shown:
			names = append(names, fmt.Sprintf("(%d more)", more))
		}
	}
	r.mistake(jobs[0], 0, "jobs wait for one another, so none of them could start: %s (remove one of these needs)", strings.Join(names, " -> "))
}

// NeedErrors are the errors of [ResolveNeeds] as one.
func NeedErrors(errs []*NeedError) error {
	var all []error
	for _, e := range errs {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// ForgetNeeds takes from jobs, which are some of a batch, what they need of the
// others.
func ForgetNeeds(jobs []Job) {
	names := make([]string, len(jobs))
	for i := range jobs {
		names[i] = jobs[i].Name
	}
	r, none := newResolver(names), map[string]bool{}
	for i := range jobs {
		jobs[i].Needs = slices.DeleteFunc(slices.Clone(jobs[i].Needs), func(need string) bool {
			fits := !none[need] && r.fits(need, uint32(i))
			if !fits && !Fits(need, names[i]) {
				none[need] = true
			}
			return !fits
		})
	}
}
