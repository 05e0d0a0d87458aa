package query

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/line"
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
	or    func(*R) string // what is printed where it is empty, not in JSON; nil: "-"
}

// Text is the field of r as it is printed into a pipe: "-" when it is empty,
// times in RFC 3339 and UTC, lengths of time in seconds, sizes in bytes. It
// never holds a TAB or a newline.
func (f *Field[R]) Text(r *R) string { return string(f.appendText(nil, r)) }

// appendText appends what Text is.
func (f *Field[R]) appendText(b []byte, r *R) []byte {
	v := f.get(r)
	if !v.Set && f.or != nil {
		return match.OfText(f.or(r)).Append(b, match.Word)
	}
	return v.Append(b, f.kind)
}

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

// Column is a field that only the caller knows. Text is what it is in a row, a line, or empty;
// in JSON a text that is JSON stands as it is, and for an empty one null.
func Column[R any](name string, text func(*R) string) Field[R] {
	return Field[R]{Name: name, kind: match.JSON, get: func(r *R) match.Value { return match.OfText(text(r)) }}
}

// json appends the field of r as a member of an object, or nothing if it is
// empty.
func (f *Field[R]) json(b []byte, r *R) []byte {
	v := f.get(r)
	if !v.Set && f.kind != match.JSON {
		return b
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(strconv.AppendQuote(b, f.Name), ':')
	switch f.kind {
	case match.JSON:
		switch {
		case !v.Set:
			return append(b, "null"...)
		case v.Text[0] != '"' && v.Text != "null" && json.Valid([]byte(v.Text)):
			return append(b, v.Text...)
		}
		return appendJSON(b, v.Text)
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
		return job.Counts(strings.Join(v.List, " ")).AppendJSON(b)
	case match.Moment:
		return line.AppendTime(b, v.At.UTC())
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
func JobFields() []Field[job.Row] { return fieldsOf[job.Row]() }

// UsualJobFields are those for [DefaultJob], where a signal stands in the place of an exit.
func UsualJobFields() []Field[job.Row] {
	all := JobFields()
	for i := range all {
		if all[i].Name == "exit" {
			all[i].or = func(r *job.Row) string { return r.Signal }
		}
	}
	return all
}

// NodeFields are all fields of a node, in the order of dquery(1).
func NodeFields() []Field[node.Row] { return fieldsOf[node.Row]() }

// fieldsOf are the members of a row as fields. What kind each is says its type, and the
// tag is:"…" where that says too little.
func fieldsOf[R any]() (all []Field[R]) {
	for _, m := range line.TableOf[R]().Members {
		f := Field[R]{Name: m.Name, kind: kindOf(&m), get: func(r *R) match.Value { return valueOf(m.Field(r), m.Always) }}
		switch m.Type {
		case reflect.TypeFor[job.State]():
			f.words = states()
		case reflect.TypeFor[node.State]():
			f.words = node.States()
		}
		all = append(all, f)
	}
	return all
}

func kindOf(m *line.Member) match.Kind {
	switch m.Tag.Get("is") {
	case "bytes":
		return match.Size
	case "seconds":
		return match.Length
	case "number":
		return match.Number
	}
	switch m.Type {
	case reflect.TypeFor[time.Time]():
		return match.Moment
	case reflect.TypeFor[job.State]():
		return match.Word
	case reflect.TypeFor[job.GPUs]():
		return match.Decimal
	case reflect.TypeFor[job.Counts]():
		return match.Amounts
	case reflect.TypeFor[[]string]():
		return match.List
	}
	switch m.Type.Kind() {
	case reflect.String:
		return match.Word
	case reflect.Float64:
		return match.Length
	}
	return match.Number
}

// valueOf is the value of a member. A number that is 0 is empty, unless it is always told.
func valueOf(f reflect.Value, always bool) match.Value {
	n := 0.0
	switch x := f.Addr().Interface().(type) {
	case *time.Time:
		return match.OfTime(*x)
	case *job.State:
		return match.OfText(x.String())
	case *job.Counts:
		return match.OfList(x.Words())
	case *[]string:
		return match.OfList(*x)
	case **int:
		if *x == nil {
			return match.Value{}
		}
		n, always = float64(**x), true
	case *job.GPUs:
		n = x.Float()
	case *int:
		n = float64(*x)
	case *int64:
		n = float64(*x)
	case *uint64:
		n = float64(*x)
	case *float64:
		n = *x
	default:
		return match.OfText(f.String())
	}
	return match.Value{Set: always || n != 0, Num: n}
}

// states are the names of all states of a job, in their order.
func states() []string {
	var names []string
	for s := job.Queued; s <= job.Cancelled; s++ {
		names = append(names, s.String())
	}
	return names
}
