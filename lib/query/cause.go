package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"distribute/lib/cause"
	"distribute/lib/job"
	"distribute/lib/unit"
)

// A Cause is a line of dquery -w: the jobs that failed, or do not go on, for one
// cause. What it has of a job is of the first one that was met.
type Cause struct {
	ID     job.ID    `json:"id"`
	State  job.State `json:"state"`
	Jobs   int       `json:"jobs"`
	Exit   *int      `json:"exit,omitempty"`
	Signal string    `json:"signal,omitempty"`
	Nodes  []string  `json:"nodes,omitempty"` // those with most of the jobs first, maxCauseNodes at most
	Reason string    `json:"reason,omitempty"`
	Said   string    `json:"said,omitempty"` // the last line that it printed
	Until  time.Time `json:"until,omitzero"` // when that may change by itself
}

// CauseFields are all fields of a cause, in the order of dquery(1).
func CauseFields() []Field[Cause] { return fieldsOf[Cause]() }

// What is kept of causes at most: so many are told apart by what was printed or
// said of them, and the rest by their states and statuses alone.
const (
	maxCauses     = 10_000
	maxCauseNodes = 16
)

// theRest is the reason of these.
const theRest = "one of more causes than are told apart"

// A likeness is what jobs of one cause have in common.
type likeness struct {
	state                job.State
	exited               bool
	exit                 int
	signal, reason, said string
}

// A found cause is one that is being counted.
type found struct {
	Cause
	on map[string]int // jobs on each node
}

// Causes puts the jobs that fit a query together by why they failed or do not go
// on. Jobs that run, are done, or were cancelled are passed over. It is not safe for
// concurrent use.
type Causes struct {
	q  *Query
	by map[likeness]*found
}

// NewCauses finds the causes of the jobs that fit q.
func NewCauses(q *Query) *Causes { return &Causes{q: q, by: map[likeness]*found{}} }

// like is what jobs of the cause have in common.
func (c *Cause) like() likeness {
	like := likeness{state: c.State, signal: c.Signal, reason: c.Reason} // in which numbers tell apart what waits
	if c.Exit != nil {
		like.exited, like.exit = true, *c.Exit
	}
	if c.State == job.Failed && c.Reason != theRest {
		like.reason, like.said = cause.Like(c.Reason, c.ID.Name()), cause.Like(c.Said, c.ID.Name())
	}
	return like
}

// Add takes in a job, if it fits. It costs a look at its reason and at what it said;
// until is when that reason may change by itself, zero if that is not known.
func (c *Causes) Add(r *job.Row, until time.Time) {
	if r.State == job.Running || r.State == job.Done || r.State == job.Cancelled || !c.q.Match(r) {
		return
	}
	one := Cause{ID: r.ID, State: r.State, Exit: r.Exit, Signal: r.Signal, Reason: r.Reason}
	if r.State == job.Failed {
		one.Reason, one.Said = (&job.Outcome{Exit: r.Exit, Signal: r.Signal, Reason: r.Reason}).Last(), r.Said
	}
	like := one.like()
	f := c.by[like]
	if f == nil && len(c.by) >= maxCauses {
		one.Reason, one.Said = theRest, ""
		like = one.like()
		f = c.by[like]
	}
	if f == nil {
		f = &found{one, map[string]int{}}
		c.by[like] = f
	}
	f.Jobs++
	if r.Node != "" {
		f.on[r.Node]++
	}
	if f.Until.IsZero() || !until.IsZero() && until.Before(f.Until) {
		f.Until = until
	}
}

// Rows are the causes: of jobs that are not over first, and the ones with most jobs
// first.
func (c *Causes) Rows() []Cause {
	var rows []Cause
	for _, f := range c.by {
		for n := range f.on {
			f.Nodes = append(f.Nodes, n)
		}
		slices.SortFunc(f.Nodes, func(a, b string) int {
			return cmp.Or(f.on[b]-f.on[a], strings.Compare(a, b))
		})
		f.Nodes = f.Nodes[:min(len(f.Nodes), maxCauseNodes)]
		rows = append(rows, f.Cause)
	}
	slices.SortFunc(rows, causeOrder)
	return rows
}

func causeOrder(a, b Cause) int {
	return cmp.Or(int(a.State)-int(b.State), b.Jobs-a.Jobs, strings.Compare(string(a.ID), string(b.ID)))
}

// JoinCauses puts together the causes of several lots of jobs, each lot counted by
// itself. Of nodes those come first that do in the lot with most jobs.
func JoinCauses(lots []Cause) []Cause {
	slices.SortFunc(lots, causeOrder)
	var rows []Cause
	at := map[likeness]int{}
	for _, c := range lots {
		i, there := at[c.like()]
		if !there {
			at[c.like()] = len(rows)
			rows = append(rows, c)
			continue
		}
		r := &rows[i]
		r.Jobs += c.Jobs
		for _, n := range c.Nodes {
			if !slices.Contains(r.Nodes, n) && len(r.Nodes) < maxCauseNodes {
				r.Nodes = append(r.Nodes, n)
			}
		}
		if r.Until.IsZero() || !c.Until.IsZero() && c.Until.Before(r.Until) {
			r.Until = c.Until
		}
	}
	slices.SortFunc(rows, causeOrder)
	return rows
}

// causeTable is the table of causes: two or more lines each.
type causeTable struct {
	look Look
	b    strings.Builder
}

// NewCauseTable prints causes for people.
func NewCauseTable(look Look) Printer[Cause] { return &causeTable{look: look} }

const (
	causeIndent = 4 // of what is told of a cause
	causeLines  = 6 // of that at most
)

// Print takes one cause.
func (t *causeTable) Print(c *Cause) error {
	head := fmt.Sprintf("%-13s e.g. %s", fmt.Sprintf("%d %s", c.Jobs, c.State), unit.Quote(string(c.ID)))
	if c.State == job.Failed && t.look.Color {
		head = "\x1b[31m" + head + "\x1b[0m"
	}
	t.b.WriteString(head + "\n")
	for _, line := range foldWords(unit.Quote(c.Text()), max(t.look.Width-causeIndent, leastFold), causeLines) {
		t.b.WriteString(strings.Repeat(" ", causeIndent) + line + "\n")
	}
	return nil
}

// Flush writes them.
func (t *causeTable) Flush() error {
	text := t.b.String()
	t.b.Reset()
	if _, err := t.look.W.Write([]byte(text)); err != nil {
		return err
	}
	return flush(t.look.W)
}

// Text is what is told of a cause beyond its jobs. It is not quoted.
func (c *Cause) Text() string {
	if c.State != job.Failed {
		return cmp.Or(c.Reason, "nothing more is known")
	}
	text := strings.Join(job.How(c.Exit, c.Signal, c.Reason), ", ") + c.where()
	if c.Said != "" {
		text += ": " + c.Said
	}
	return cmp.Or(strings.TrimPrefix(text, " "), "nothing more is known")
}

// where names the nodes, those with most of the jobs.
func (c *Cause) where() string {
	const shown = 3
	switch n := len(c.Nodes); {
	case n == 0:
		return ""
	case n > shown:
		return fmt.Sprintf(" on %s and others", strings.Join(c.Nodes[:shown], ", "))
	}
	return " on " + strings.Join(c.Nodes, ", ")
}
