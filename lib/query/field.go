package query

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/unit"
)

// ErrUsage is what every error of operands, filters and lists of fields is:
// the person who wrote them has to change them.
var ErrUsage = errors.New("wrong usage")

// usage is an error of the text alone that is ErrUsage.
type usage struct{ text string }

func (u usage) Error() string        { return u.text }
func (u usage) Is(target error) bool { return target == ErrUsage }

func usagef(format string, a ...any) error { return usage{fmt.Sprintf(format, a...)} }

// kind says what a field holds, which decides how it is compared and printed.
type kind uint8

const (
	word   kind = iota // text, compared by pattern
	list               // of words, compared one by one
	number             // whole
	size               // bytes
	length             // of time, seconds
	moment             // a time
)

// value is what one field of one row holds.
type value struct {
	set  bool // else it is empty
	text string
	list []string // of a list; text is its words with commas
	num  float64  // of a number, size or length; of a moment seconds since 1970
	at   time.Time
}

func ofText(s string) value { return value{set: s != "", text: s} }

func ofList(l []string) value { return value{set: len(l) > 0, text: strings.Join(l, ","), list: l} }

func ofTime(t time.Time) value {
	return value{set: !t.IsZero(), at: t, num: float64(t.UnixMilli()) / 1000}
}

// some is a number that is empty when it is zero.
func some[N int | int64 | float64](n N) value { return value{set: n != 0, num: float64(n)} }

// count is a number that is told when it is zero.
func count(n int) value { return value{set: true, num: float64(n)} }

// A Field is one field of rows of type R.
type Field[R any] struct {
	Name  string
	kind  kind
	words []string // the only words it can hold; none: any
	get   func(*R) value
}

// Text is the field of r as it is printed into a pipe: "-" when it is empty,
// times in RFC 3339 and UTC, lengths of time in seconds, sizes in bytes. It
// never holds a TAB or a newline.
func (f *Field[R]) Text(r *R) string { return string(f.appendText(nil, r)) }

// appendText appends what Text is.
func (f *Field[R]) appendText(b []byte, r *R) []byte {
	v := f.get(r)
	if !v.set {
		return append(b, '-')
	}
	switch f.kind {
	case word, list:
		return append(b, unit.Quote(v.text)...)
	case moment:
		return v.at.UTC().AppendFormat(b, time.RFC3339)
	}
	if n := int64(v.num); float64(n) == v.num && -1e15 < v.num && v.num < 1e15 && (n != 0 || !math.Signbit(v.num)) {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, math.Round(v.num*1000)/1000, 'f', -1, 64)
}

// Human is the field of r as it stands in a table: local and human times and
// sizes. Lengths and sizes are rounded.
func (f *Field[R]) Human(r *R, now time.Time) string {
	v := f.get(r)
	if v.set {
		switch f.kind {
		case size:
			return unit.FormatBytes(int64(v.num))
		case length:
			return unit.FormatDuration(seconds(v.num))
		case moment:
			return humanTime(v.at, now)
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
	if !v.set {
		return b
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(strconv.AppendQuote(b, f.Name), ':')
	switch f.kind {
	case word:
		return appendJSON(b, v.text)
	case list:
		return appendJSON(b, v.list)
	case moment:
		return appendJSON(b, v.at.UTC())
	case number, size:
		return strconv.AppendInt(b, int64(v.num), 10)
	}
	return appendJSON(b, v.num)
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

func find[R any](fields []Field[R], name string) (*Field[R], error) {
	names := make([]string, len(fields))
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i], nil
		}
		names[i] = fields[i].Name
	}
	return nil, usagef("unknown field %q%s", name, didYouMean(name, names))
}

// The fields that are printed when nothing else is said.
const (
	DefaultJob   = "id,state,node,attempt,exit,runtime,reason"
	DefaultBatch = "id,jobs,queued,held,running,paused,stranded,unreachable,done,failed,cancelled"
	DefaultNode  = "node,state,jobs,cpus_used,cpus,memory,seen,note"
)

// JobFields are all fields of a job, in the order of dquery(1).
func JobFields() []Field[job.Row] {
	return []Field[job.Row]{
		{"id", word, nil, func(r *job.Row) value { return ofText(string(r.ID)) }},
		{"namespace", word, nil, func(r *job.Row) value { return ofText(r.Namespace) }},
		{"batch", word, nil, func(r *job.Row) value { return ofText(r.Batch) }},
		{"job", word, nil, func(r *job.Row) value { return ofText(r.Job) }},
		{"owner", word, nil, func(r *job.Row) value { return ofText(r.Owner) }},
		{"state", word, states(), func(r *job.Row) value { return ofText(r.State.String()) }},
		{"phase", word, nil, func(r *job.Row) value { return ofText(r.Phase) }},
		{"node", word, nil, func(r *job.Row) value { return ofText(r.Node) }},
		{"attempt", number, nil, func(r *job.Row) value { return some(r.Attempt) }},
		{"exit", number, nil, func(r *job.Row) value {
			if r.Exit == nil {
				return value{}
			}
			return count(*r.Exit)
		}},
		{"signal", word, nil, func(r *job.Row) value { return ofText(r.Signal) }},
		{"reason", word, nil, func(r *job.Row) value { return ofText(r.Reason) }},
		{"submitted", moment, nil, func(r *job.Row) value { return ofTime(r.Submitted) }},
		{"started", moment, nil, func(r *job.Row) value { return ofTime(r.Started) }},
		{"ended", moment, nil, func(r *job.Row) value { return ofTime(r.Ended) }},
		{"runtime", length, nil, func(r *job.Row) value { return some(r.Runtime) }},
		{"paused", length, nil, func(r *job.Row) value { return some(r.Paused) }},
		{"cpus", number, nil, func(r *job.Row) value { return some(r.CPUs) }},
		{"memory_peak", size, nil, func(r *job.Row) value { return some(r.MemoryPeak) }},
		{"cpu_time", length, nil, func(r *job.Row) value { return some(r.CPUTime) }},
		{"written", size, nil, func(r *job.Row) value { return some(r.Written) }},
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
		{"node", word, nil, func(r *node.Row) value { return ofText(string(r.Node)) }},
		{"state", word, nil, func(r *node.Row) value { return ofText(string(r.State)) }},
		{"jobs", number, nil, func(r *node.Row) value { return count(r.Jobs) }},
		{"cpus", number, nil, func(r *node.Row) value { return count(r.CPUs) }},
		{"cpus_used", number, nil, func(r *node.Row) value { return count(r.CPUsUsed) }},
		{"memory", size, nil, func(r *node.Row) value { return some(r.Memory) }},
		{"arch", word, nil, func(r *node.Row) value { return ofText(r.Arch) }},
		{"seen", moment, nil, func(r *node.Row) value { return ofTime(r.Seen) }},
		{"containment", word, nil, func(r *node.Row) value { return ofText(r.Containment) }},
		{"capabilities", list, nil, func(r *node.Row) value { return ofList(r.Capability) }},
		{"note", word, nil, func(r *node.Row) value { return ofText(r.Note) }},
	}
}
