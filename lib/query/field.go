package query

import (
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/match"
	"distribute/lib/msg"
	"distribute/lib/node"
	"distribute/lib/sweep"
	"distribute/lib/unit"
)

// ErrUsage is what every error of operands, filters and lists of fields is:
// the person who wrote them has to change them.
var ErrUsage = match.ErrUsage

func usagef(format string, a ...any) error { return match.Errorf(format, a...) }

// A Field is one field of rows of type R.
type Field[R any] struct {
	Name  string
	kind  match.Kind
	words []string // the only words it can hold; none: any
	get   func(*R) match.Value
}

// Text is the field of r as it is printed into a pipe: "-" when it is empty,
// times in RFC 3339 and UTC, lengths of time in seconds, sizes in bytes. It
// never holds a TAB or a newline.
func (f *Field[R]) Text(r *R) string { return string(f.appendText(nil, r)) }

// appendText appends what Text is.
func (f *Field[R]) appendText(b []byte, r *R) []byte { return f.get(r).Append(b, f.kind) }

// Human is the field of r as it stands in a table: local and human times and
// sizes. Lengths and sizes are rounded.
func (f *Field[R]) Human(r *R, now time.Time) string {
	v := f.get(r)
	if v.Set {
		switch f.kind {
		case match.Size:
			return unit.FormatBytes(int64(v.Num))
		case match.Length:
			return unit.FormatDuration(seconds(v.Num))
		case match.Moment:
			return humanTime(v.At, now)
		}
	}
	return f.Text(r)
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }

// humanTime writes t as short as now allows, in now's zone.
func humanTime(t, now time.Time) string {
	t = t.In(now.Location())
	switch d := now.Sub(t); {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format("15:04")
	case -6*24*time.Hour < d && d < 6*24*time.Hour:
		return t.Format("Mon 15:04")
	}
	return t.Format(time.DateOnly)
}

// json appends the field of r as a member of an object, or nothing if it is
// empty.
func (f *Field[R]) json(b []byte, r *R) []byte {
	v := f.get(r)
	if !v.Set {
		return b
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(strconv.AppendQuote(b, f.Name), ':')
	switch f.kind {
	case match.Word:
		return appendJSON(b, v.Text)
	case match.Either:
		if v.IsNumber() {
			return append(b, v.Text...)
		}
		return appendJSON(b, v.Text)
	case match.List:
		if f.Name == "param" {
			return sweep.AppendObject(b, sweep.Params(v.List))
		}
		return appendJSON(b, v.List)
	case match.Amounts:
		return job.Counts(strings.Join(v.List, " ")).Append(b)
	case match.Moment:
		return appendJSON(b, v.At.UTC())
	case match.Number, match.Decimal, match.Size:
		return v.Append(b, f.kind)
	}
	return appendJSON(b, v.Num)
}

// Pick returns the fields that a list with commas names, in its order.
func Pick[R any](fields []Field[R], list string) ([]Field[R], error) {
	var picked []Field[R]
	for _, name := range strings.Split(list, ",") {
		f, err := find(fields, name)
		if err != nil {
			return nil, err
		}
		picked = append(picked, *f)
	}
	return picked, nil
}

// paramField is the field param.NAME, if the rows have such: the value of one
// parameter.
func paramField[R any](field string) (*Field[R], bool) {
	name, ok := strings.CutPrefix(field, "param.")
	f, of := any(&Field[job.Row]{Name: field, kind: match.Either, get: func(r *job.Row) match.Value {
		return match.OfEither(job.ParamOf(r.Param, name))
	}}).(*Field[R])
	return f, ok && of && sweep.CheckName(name) == nil
}

func find[R any](fields []Field[R], name string) (*Field[R], error) {
	names := make([]string, len(fields))
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i], nil
		}
		names[i] = fields[i].Name
	}
	if f, ok := paramField[R](name); ok {
		return f, nil
	}
	return nil, usagef("unknown field %q%s", name, msg.DidYouMean(name, names))
}

// The fields that are printed when nothing else is said.
const (
	DefaultJob   = "id,state,node,attempt,exit,runtime,reason"
	DefaultBatch = "id,jobs,queued,held,running,paused,stranded,unreachable,done,failed,cancelled,rate,ends,ends_by"
	DefaultCause = "id,state,jobs,exit,signal,nodes,reason,said,until"
	DefaultNode  = "node,state,jobs,cpus_used,cpus,memory,seen,note"
)

// JobFields are all fields of a job, in the order of dquery(1).
func JobFields() []Field[job.Row] {
	return []Field[job.Row]{
		{"id", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(string(r.ID)) }},
		{"namespace", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Namespace) }},
		{"batch", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Batch) }},
		{"job", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Job) }},
		{"owner", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Owner) }},
		{"state", match.Word, states(), func(r *job.Row) match.Value { return match.OfText(r.State.String()) }},
		{"phase", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Phase) }},
		{"node", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Node) }},
		{"machine", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Machine) }},
		{"attempt", match.Number, nil, func(r *job.Row) match.Value { return match.Some(r.Attempt) }},
		{"exit", match.Number, nil, func(r *job.Row) match.Value {
			if r.Exit == nil {
				return match.Value{}
			}
			return match.Count(*r.Exit)
		}},
		{"signal", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Signal) }},
		{"reason", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Reason) }},
		{"said", match.Word, nil, func(r *job.Row) match.Value { return match.OfText(r.Said) }},
		{"submitted", match.Moment, nil, func(r *job.Row) match.Value { return match.OfTime(r.Submitted) }},
		{"started", match.Moment, nil, func(r *job.Row) match.Value { return match.OfTime(r.Started) }},
		{"ended", match.Moment, nil, func(r *job.Row) match.Value { return match.OfTime(r.Ended) }},
		{"ends", match.Moment, nil, func(r *job.Row) match.Value { return match.OfTime(r.Ends) }},
		{"runtime", match.Length, nil, func(r *job.Row) match.Value { return match.Some(r.Runtime) }},
		{"ran", match.Length, nil, func(r *job.Row) match.Value { return match.Some(r.Ran) }},
		{"paused", match.Length, nil, func(r *job.Row) match.Value { return match.Some(r.Paused) }},
		{"cpus", match.Number, nil, func(r *job.Row) match.Value { return match.Some(r.CPUs) }},
		{"memory", match.Size, nil, func(r *job.Row) match.Value { return match.Some(r.Memory) }},
		{"gpus", match.Decimal, nil, func(r *job.Row) match.Value { return match.Some(r.GPUs.Float()) }},
		{"counted", match.Amounts, nil, func(r *job.Row) match.Value { return match.OfList(r.Counted.Words()) }},
		{"time", match.Length, nil, func(r *job.Row) match.Value { return match.Some(float64(r.Limit)) }},
		{"memory_peak", match.Size, nil, func(r *job.Row) match.Value { return match.Some(r.MemoryPeak) }},
		{"cpu_time", match.Length, nil, func(r *job.Row) match.Value { return match.Some(r.CPUTime) }},
		{"written", match.Size, nil, func(r *job.Row) match.Value { return match.Some(r.Written) }},
		{"priority", match.Number, nil, func(r *job.Row) match.Value { return match.Count(r.Priority) }},
		{"seq", match.Number, nil, func(r *job.Row) match.Value { return match.Some(int64(r.Seq)) }},
		{"param", match.List, nil, func(r *job.Row) match.Value { return match.OfList(r.Param) }},
	}
}

// states are the names of all states of a job, in their order.
func states() []string {
	var names []string
	for s := job.Queued; s <= job.Cancelled; s++ {
		names = append(names, s.String())
	}
	return names
}

// NodeFields are all fields of a node, in the order of dquery(1).
func NodeFields() []Field[node.Row] {
	return []Field[node.Row]{
		{"node", match.Word, nil, func(r *node.Row) match.Value { return match.OfText(string(r.Node)) }},
		{"state", match.Word, nil, func(r *node.Row) match.Value { return match.OfText(string(r.State)) }},
		{"jobs", match.Number, nil, func(r *node.Row) match.Value { return match.Count(r.Jobs) }},
		{"cpus", match.Number, nil, func(r *node.Row) match.Value { return match.Count(r.CPUs) }},
		{"cpus_used", match.Number, nil, func(r *node.Row) match.Value { return match.Count(r.CPUsUsed) }},
		{"memory", match.Size, nil, func(r *node.Row) match.Value { return match.Some(r.Memory) }},
		{"memory_used", match.Size, nil, func(r *node.Row) match.Value { return match.Some(r.MemoryUsed) }},
		{"gpus", match.Number, nil, func(r *node.Row) match.Value { return match.Count(r.GPUs) }},
		{"gpus_used", match.Decimal, nil, func(r *node.Row) match.Value { return match.Value{Set: true, Num: r.GPUsUsed.Float()} }},
		{"counted", match.Amounts, nil, func(r *node.Row) match.Value { return match.OfList(r.Counted.Words()) }},
		{"counted_used", match.Amounts, nil, func(r *node.Row) match.Value { return match.OfList(r.CountedUsed.Words()) }},
		{"arch", match.Word, nil, func(r *node.Row) match.Value { return match.OfText(r.Arch) }},
		{"seen", match.Moment, nil, func(r *node.Row) match.Value { return match.OfTime(r.Seen) }},
		{"containment", match.Word, nil, func(r *node.Row) match.Value { return match.OfText(r.Containment) }},
		{"capabilities", match.List, nil, func(r *node.Row) match.Value { return match.OfList(r.Capability) }},
		{"note", match.Word, nil, func(r *node.Row) match.Value { return match.OfText(r.Note) }},
	}
}
