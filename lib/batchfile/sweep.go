package batchfile

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/sweep"
)

// maxSwept is how many texts the jobs that a sweep makes have at most.
const maxSwept = 50 * job.MaxJobs

// sweep reads the cases of the batch: what dsweep(1) is given, or a mapping of
// names to values. Files of cases are read.
func (r *reader) sweep(n conf.Node) {
	switch {
	case n.Absent():
	case n.IsMap():
		r.sweepOf(n, r.sweepMap(n))
	case n.IsList():
		var words []string
		for _, e := range n.List("") {
			words = append(words, r.sweepWords(e)...)
		}
		r.sweepOf(n, words)
	default:
		r.sweepOf(n, r.sweepWords(n))
	}
}

// sweepWords are the words of a text, as of a command line. Blanks between double
// quotes part none; those around the name of a file are none of it.
func (r *reader) sweepWords(n conf.Node) (words []string) {
	if n.Absent() {
		n.Errorf("an entry of sweep is empty: remove it")
	}
	word, quoted := "", false
	for _, c := range n.Text() + " " {
		switch {
		case c == '"':
			if quoted = !quoted; word == "" || word[0] != '@' {
				word += `"`
			}
		case quoted || c != ' ' && c != '\n' && c != '\t':
			word += string(c)
		case word != "":
			words, word = append(words, word), ""
		}
	}
	if word != "" {
		n.Errorf("a double quote is not closed")
	}
	return words
}

// sweepMap are the parameters of a mapping, as of a command line. Values of a list
// are what is written.
func (r *reader) sweepMap(n conf.Node) (words []string) {
	for _, p := range n.AnyMap().Pairs() {
		var text string
		if p.IsList() {
			var list []string
			for _, v := range p.Texts("") {
				list = append(list, `"`+strings.ReplaceAll(v, `"`, `""`)+`"`)
			}
			if text = strings.Join(list, ","); text == "" {
				p.Errorf("the parameter %s has no value", msg.Quote(p.Name))
				continue
			}
		} else if text = p.Text(); p.Absent() || text == "" {
			p.Key.Errorf("the parameter %s has no value", msg.Quote(p.Name))
			continue
		}
		if strings.HasPrefix(p.Name, "@") || p.Name == "+" {
			p.Key.Errorf("a mapping has names and their values: write a list, as of dsweep(1)")
			continue
		}
		word := p.Name + "=" + text
		if _, err := sweep.Parse([]string{word}, r.cased); err != nil {
			p.Key.Errorf("%w", err)
			continue
		}
		words = append(words, word)
	}
	return words
}

// sweepOf makes the sweep of what dsweep(1) would be given.
func (r *reader) sweepOf(n conf.Node, words []string) {
	if r.doc.Any() {
		return
	}
	options := map[string]string{}
	operands := words[:0:0]
	for i := 0; i < len(words); i++ {
		w := words[i]
		if len(w) < 2 || w[0] != '-' {
			operands = append(operands, w)
			continue
		}
		key, value := w[:2], w[2:]
		if value == "" && i+1 < len(words) {
			i++
			value = words[i]
		}
		if !slices.Contains([]string{"-k", "-s", "-x"}, key) || options[key] != "" {
			n.Errorf("sweep: %s is no option here, or there twice: -k, -s and -x of dsweep(1) are", msg.Quote(key))
			return
		}
		if number, err := strconv.ParseUint(value, 10, 64); err != nil || number == 0 && key != "-s" || number > job.MaxJobs && key != "-s" {
			n.Errorf("sweep: %s wants a whole number, not %s", key, msg.Quote(value))
			return
		}
		options[key] = value
	}
	s, err := sweep.Parse(operands, r.cased)
	if err == nil && options["-x"] != "" {
		times, _ := strconv.Atoi(options["-x"])
		err = s.Repeat(times)
	}
	if err == nil && options["-k"] != "" {
		number, _ := strconv.ParseInt(options["-k"], 10, 64)
		seed := uint64(1)
		if options["-s"] != "" {
			seed, _ = strconv.ParseUint(options["-s"], 10, 64)
		}
		err = s.Draw(number, seed)
	} else if err == nil && options["-s"] != "" {
		err = fmt.Errorf("-s goes with -k: without it, nothing is drawn")
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		n.Errorf("sweep: %w", err)
		return
	}
	r.cases, r.names = s, s.Names()
}

// cased reads a file of cases.
func (r *reader) cased(name string) ([]byte, error) {
	where := locate(r.f.dir, name)
	f, _, err := job.OpenSource(where)
	if err != nil {
		return nil, cannot(name, where, err)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, sweep.MaxFile+1))
}

// isParam says whether braces around that name are a place, where YAML took them for
// a mapping.
func (r *reader) isParam(name string) bool {
	return r.cases == nil || slices.Contains(r.names, name)
}

// notFilled tells of places in what all cases of a sweep have, where nothing fills them. A job
// can have its own of the key. It reports whether there are any.
func (r *reader) notFilled(n conf.Node, key string) (found bool) {
	if r.cases == nil || r.older {
		return false
	}
	n.Fill(r.isParam, func(_ string, at conf.Node, text string) string {
		segs, _ := segments(text)
		if i := slices.IndexFunc(segs, func(g segment) bool { return g.fill && (g.name == "#" || g.name != "" && r.isParam(g.name)) }); i >= 0 {
			at.Errorf("{%s} is not filled here, where all cases have the same: write it under the job's %q", segs[i].name, key)
			found = true
		}
		return text
	})
	return found
}

// hasPlaces says whether a job is one for each case: whether some text in it has a
// place, or it has no name, as one whose places are in a template.
func (r *reader) hasPlaces(n conf.Node) (has bool, texts int) {
	has = n.IsMap() && n.AnyMap().Get("name").Absent()
	n.Fill(r.isParam, func(_ string, _ conf.Node, text string) string {
		_, fill := segments(text)
		has = has || fill
		texts++
		return text
	})
	return has, texts
}

// addSwept reads an entry with places, which has so many texts: a job for each case.
func (r *reader) addSwept(n conf.Node, texts int, add func(conf.Node)) {
	r.swept = true
	if r.cases == nil { // what is wrong with the sweep has been told
		return
	}
	cases := int(r.cases.Count().Int64())
	switch {
	case cases > job.MaxJobs-len(r.f.Jobs):
		n.Errorf("with the %d jobs of this entry the batch has more than %d, which is the limit: split it", cases, job.MaxJobs)
		return
	case cases*texts > maxSwept:
		n.Errorf("the %d jobs of this entry have %d texts each, and %d together is the limit: put what all share into a script", cases, texts, maxSwept)
		return
	}
	for c := range r.filled(n) {
		add(c)
	}
	r.param = nil
}

// filled is the entry of a job for each case, of which r.param are the parameters.
func (r *reader) filled(n conf.Node) iter.Seq[conf.Node] {
	return func(yield func(conf.Node) bool) {
		number := 0
		for params := range r.cases.Cases() {
			number++
			r.number = number
			r.param = make([]string, len(params))
			for i, p := range params {
				r.param[i] = p.Name + "=" + p.Value
			}
			if err := job.CheckParams(r.param); err != nil {
				n.Errorf("case %d: %v", number, err)
				return
			}
			before := r.doc.Any()
			c := n.Fill(r.isParam, func(key string, at conf.Node, text string) string {
				segs, fill := segments(text)
				if !fill {
					return join(segs)
				}
				var b strings.Builder
				for _, g := range segs {
					if g.fill {
						g.text = r.value(g.name, number, at)
						if key == "name" || key == "needs" {
							g.text = strings.Map(safeRune, g.text)
						}
					}
					b.WriteString(g.text)
				}
				return b.String()
			})
			if r.doc.Any() && !before || r.doc.Full() || !yield(c) {
				return
			}
		}
	}
}

// value is what fills the place of that name for the case of r.param.
func (r *reader) value(name string, number int, at conf.Node) string {
	switch name {
	case "":
		return strings.Join(r.param, "\t")
	case "#":
		return strconv.Itoa(number)
	}
	v, ok := job.ParamOf(r.param, name)
	if !ok {
		at.Errorf("{%s} is wanted, and the sweep has no such parameter, but %s (write {{%s}} if that is meant as text)", name, strings.Join(r.names, ", "), name)
	}
	return v
}

// template reads the template that a job names, once for all jobs; nil if it cannot be read.
func (r *reader) template(w *want) *fileOf {
	f, seen := r.templates[w.path]
	if !seen {
		var err error
		if f, err = readTemplate(r.f.dir, w.path); err != nil {
			r.doc.Errorf(w.at, "%w", err)
		}
		if r.templates == nil {
			r.templates = map[string]*fileOf{}
		}
		r.templates[w.path] = f
	}
	return f
}

// fillFile makes a file for a job of a template, whose places are the job's parameters.
func (r *reader) fillFile(w *want, j *job.Job) (made, bool) {
	f := r.template(w)
	if f == nil {
		return made{}, false
	}
	var b strings.Builder
	for _, g := range f.segs {
		text, ok := g.text, true
		if g.fill {
			switch text, ok = job.ParamOf(j.Param, g.name); {
			case ok:
			case r.param != nil && (g.name == "#" || g.name == "" && r.older):
				text = r.value(g.name, r.number, conf.Node{})
			case r.param != nil && g.name == "":
				r.doc.Errorf(w.at, "%s%w", f.at(g.at), errWholeLine)
				return made{}, false
			default:
				r.doc.Errorf(w.at, "%s{%s} is wanted, and job %s has no such parameter (write {{%s}} if that is meant as text)",
					f.at(g.at), g.name, msg.Quote(j.Name), g.name)
				return made{}, false
			}
		}
		b.WriteString(text)
	}
	if !r.size.add(b.String()) {
		r.doc.Errorf(w.at, "%w", errMade)
		return made{}, false
	}
	return made{w.path, w.place(), b.String(), f.mode}, true
}
