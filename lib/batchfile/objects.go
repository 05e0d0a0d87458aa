package batchfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
)

// objectKeys are the members of a line that is a whole job: those of a job of a
// command in a batch file.
func (b *templating) objectKeys() conf.Keys {
	keys := keysOf[job.Command].job
	if len(b.t.Command) == 0 {
		return keys
	}
	refused := map[string]string{"run": `"run" is what the command after -- says: leave one of them out`}
	for k, text := range keys.Refused {
		refused[k] = text
	}
	known := slices.DeleteFunc(slices.Clone(keys.Known), func(k string) bool { return k == "run" })
	return conf.Keys{Known: known, Refused: refused}
}

// objects makes a job of each line, which is a JSON object.
func (b *templating) objects(lines []string) {
	keys, names, templates := b.objectKeys(), make(map[string]int, len(lines)), map[string]*fileOf{}
	for i, text := range lines {
		if strings.TrimSpace(text) == "" {
			continue
		}
		l := given{text: text, at: conf.Place{File: stdin, Line: i + 1}, object: true}
		doc, err := parseObject(text)
		if err != nil {
			b.errs.Errorf(l.at, "%v", err)
			continue
		}
		r := reader{doc: doc, f: b.f, templates: templates}
		m := doc.Root().Map(keys)
		l.fields = r.params(m.Get("param"))
		if n := m.Get("name"); b.t.Job == "" {
			l.name = r.name(n, job.CheckName)
		} else if !n.Absent() {
			n.Errorf(`"name" is what -J says: leave one of them out`)
		}
		own := &places{outer: b.all}
		j, fills := r.objectJob(m, own, len(b.t.Command) == 0)
		for _, w := range fills {
			if f := r.template(&w); f != nil {
				l.files = append(l.files, fileOf{f.path, w.place(), f.text, f.segs, f.mode})
			}
		}
		if err := doc.Err(); err != nil {
			b.doc(l.at, err)
			continue
		}
		j.Param = l.fields
		b.take(&l, j, own, names)
	}
	if b.errs.Any() {
		return
	}
	b.f.sort(func(i, k int) int { return b.f.Jobs[k].Priority - b.f.Jobs[i].Priority })
	if b.f.needAt == nil {
		return
	}
	_, errs := job.ResolveNeeds(b.f.names(), needsOf(b.f.Jobs))
	for _, e := range errs {
		b.errs.Errorf(b.f.jobAt[e.Job], "%s", e)
	}
}

// objectJob reads a job of a command, but for its name and its parameters, and the files that are to
// be filled.
func (r *reader) objectJob(m conf.Map, own *places, run bool) (j job.Job, fills []want) {
	if run {
		j.Run = r.words(m.Need("run"))
	}
	fills = r.files(own, m.Get("required_files"))
	r.ownOf(m, &j)
	return j, fills
}

// doc takes in the mistakes of the text that was made of a line. Their columns
// mean nothing to who wrote the line.
func (b *templating) doc(at conf.Place, err error) {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		many = oneError{err}
	}
	for _, err := range many.Unwrap() {
		if m := (*conf.Mistake)(nil); errors.As(err, &m) {
			err = errors.New(m.Text)
		}
		b.errs.Repeatf(err.Error(), at, "%v", err)
	}
}

type oneError struct{ err error }

func (e oneError) Unwrap() []error { return []error{e.err} }

// parseObject reads a line of JSON as what a batch file would say.
func parseObject(text string) (*conf.Doc, error) {
	var all json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("the line is no JSON object: %w", err)
	}
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return nil, errors.New("the line is no JSON object: that is between braces")
	}
	return conf.Parse(stdin, appendYAML(nil, json.NewDecoder(strings.NewReader(text))))
}

// appendYAML appends a JSON value that has been checked as YAML that means the same,
// with all texts in one form and all numbers as they are written.
func appendYAML(b []byte, d *json.Decoder) []byte {
	d.UseNumber()
	t, _ := d.Token()
	switch t := t.(type) {
	case json.Delim:
		b = append(b, byte(t))
		for n := 0; d.More(); n++ {
			if n > 0 {
				b = append(b, ", "...)
			}
			if b = appendYAML(b, d); t == '{' {
				b = appendYAML(append(b, ": "...), d)
			}
		}
		end, _ := d.Token()
		b = append(b, end.(json.Delim).String()...)
	case string:
		b = append(b, quote(t)...)
	case json.Number:
		b = append(b, t.String()...)
	case bool:
		b = strconv.AppendBool(b, t)
	default:
		b = append(b, "null"...)
	}
	return b
}

// made is the text that a job's name is made of, if nothing says it.
func (l *given) made() string {
	switch {
	case !l.object:
		return l.text
	case len(l.fields) == 0:
		return strconv.Itoa(l.at.Line)
	}
	return strings.Join(l.fields, "_")
}
