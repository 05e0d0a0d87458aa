package batchfile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// stdin is how messages call the lines.
const stdin = "standard input"

// A Template is a command that becomes a batch, a job for each line, as
// dsubmit(1) is given it after --. In the words of Command, in Job, in Inputs
// and in values of Env, these are places that a line fills:
//
//	{}      the whole line
//	{#}     the number of the line, from 1
//	{3}     the third field, from 1
//	{name}  the value of the field that reads name=value
//
// Fields end at TABs if the line has any, else at runs of blanks. Braces around
// anything else are text, and {{name}} is the text {name}.
type Template struct {
	Namespace string
	Name      string   // of the batch
	Command   []string // argv
	Job       string   // names of jobs; "": made of the line
	Inputs    []string // files, directories and globs that go along besides
	Requests  []string // as of -R: "cpus=4,gfortran"
	Env       []string // variables of the environment, as NAME=value
	Secrets   []string // names of variables whose values no file has
	Private   bool     // only its owner and operators see the batch
	Dir       string   // what relative paths are relative to

	Objects   bool     // lines are JSON objects: jobs, or with Command what differs of them
	Templates []string // files NAME.in, of which each job gets its own NAME
}

// placeText is the form of what a line fills.
const placeText = `(|#|[1-9][0-9]{0,3}|[A-Za-z_][A-Za-z0-9_.-]*)`

var placeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{\{` + placeText + `\}\}|\{` + placeText + `\}`) })

// A segment is a piece of a word: text, or a place.
type segment struct {
	text string
	name string // of the place; "" is the whole line
	fill bool
	at   int // where the place begins in the word, in bytes
}

// segments cuts a word into text and places.
func segments(word string) (segs []segment, fill bool) {
	last := 0
	for _, m := range placeForm().FindAllStringSubmatchIndex(word, -1) {
		if m[0] > last {
			segs = append(segs, segment{text: word[last:m[0]]})
		}
		if m[4] < 0 {
			segs = append(segs, segment{text: word[m[0]+1 : m[1]-1]})
		} else {
			segs, fill = append(segs, segment{name: word[m[4]:m[5]], fill: true, at: m[0]}), true
		}
		last = m[1]
	}
	if last < len(word) || len(segs) == 0 {
		segs = append(segs, segment{text: word[last:]})
	}
	return segs, fill
}

// NeedsLines says that the template has a place to fill. Without one it is one
// job, and no line is to be read.
func (t *Template) NeedsLines() bool {
	if t.Objects || len(t.Templates) > 0 {
		return true
	}
	for _, words := range [][]string{t.Command, {t.Job}, t.Inputs, t.Env} {
		for _, w := range words {
			if _, fill := segments(w); fill {
				return true
			}
		}
	}
	return false
}

// ReadLines reads lines for [Template.File]: UTF-8 text, at most [job.MaxJobs] lines
// of at most 128 KiB each. A carriage return at the end of a line is cut off.
func ReadLines(r io.Reader) ([]string, error) {
	var lines []string
	in := bufio.NewReaderSize(r, job.MaxArgv)
	for {
		b, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if err == io.EOF && len(b) == 0 {
			return lines, nil
		}
		line := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if len(lines) == 0 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		at := conf.Place{File: stdin, Line: len(lines) + 1}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, &conf.Mistake{Place: at, Text: fmt.Sprintf("the line is longer than %d bytes, which is the limit", job.MaxArgv)}
		case len(lines) == job.MaxJobs:
			return nil, &conf.Mistake{Place: at, Text: fmt.Sprintf("there are more than %d lines, which is the limit", job.MaxJobs)}
		case !utf8.ValidString(line):
			return nil, &conf.Mistake{Place: at, Text: "the line is not UTF-8 text"}
		case strings.ContainsRune(line, 0):
			return nil, &conf.Mistake{Place: at, Text: "the line holds a zero byte"}
		}
		lines = append(lines, line)
	}
}

// File makes the batch: a job for each line that is not blank, or one job if
// there is nothing to fill. The error holds every mistake, those of lines with
// their number. Words of the command that are relative paths of files are
// looked for by [File.Collect].
func (t *Template) File(lines []string) (*File, error) {
	b := templating{t: t, f: &File{Namespace: t.Namespace, Name: t.Name, dir: t.Dir, jobsAt: conf.Place{File: stdin}}}
	b.f.buildAt = conf.Place{File: "the command"}
	b.common()
	if b.errs.Any() {
		return nil, b.errs.Err()
	}
	switch {
	case t.Objects:
		b.objects(lines)
	case t.NeedsLines():
		b.lines(lines)
	default:
		b.single()
	}
	if err := b.errs.Err(); err != nil {
		return nil, err
	}
	b.f.Data = b.f.YAML()
	return b.f, nil
}

// templating is a Template on its way to a File.
type templating struct {
	t      *Template
	f      *File
	errs   conf.Mistakes
	words  [][]segment
	name   []segment
	inputs [][]segment // with places
	env    [][]segment // likewise
	all    *places     // inputs of the batch
	files  []fileOf    // templates of files
	size   sizes       // of the files that were made of them
}

// common reads what does not depend on a line.
func (b *templating) common() {
	at := conf.Place{File: "the command"}
	for _, n := range []string{b.t.Namespace, b.t.Name} {
		if err := job.CheckName(n); err != nil {
			b.errs.Errorf(conf.Place{File: "-b"}, "%v", err)
		}
	}
	res, caps, err := job.ParseRequests(b.t.Requests)
	if err != nil {
		b.errs.Errorf(conf.Place{File: "-R"}, "%v", err)
	}
	b.f.Spec = job.Spec{Kind: job.Command, Resources: res, Capabilities: caps, Private: b.t.Private}
	if len(b.t.Command) == 0 && !b.t.Objects || len(b.t.Command) > 0 && b.t.Command[0] == "" {
		b.errs.Errorf(at, "there is no command after --")
	}
	for _, w := range b.t.Command {
		switch {
		case !utf8.ValidString(w):
			b.errs.Errorf(at, "the word %s is not UTF-8 text", msg.Quote(w))
		case strings.ContainsRune(w, 0):
			b.errs.Errorf(at, "the word %s holds a zero byte", msg.Quote(w))
		}
		segs, fill := segments(w)
		b.words = append(b.words, segs)
		if !fill {
			b.f.words = append(b.f.words, join(segs))
		}
	}
	b.name, _ = segments(b.t.Job)
	all := new(places)
	for _, in := range b.t.Inputs {
		segs, fill := segments(in)
		if fill {
			b.inputs = append(b.inputs, segs)
			continue
		}
		b.want(all, conf.Place{File: "-i"}, join(segs))
	}
	b.f.wants, b.all = all.list, indexed(all.list)
	b.variables()
	for _, name := range b.t.Templates {
		b.template(name)
	}
}

// Literal is a text as a word of a [Template] that means just it.
func Literal(text string) string {
	return placeForm().ReplaceAllStringFunc(text, func(place string) string { return "{" + place + "}" })
}

// join is the text of segments that have nothing to fill.
func join(segs []segment) string {
	var s strings.Builder
	for _, g := range segs {
		s.WriteString(g.text)
	}
	return s.String()
}

// want takes a file of -i into the list.
func (b *templating) want(to *places, at conf.Place, p string) {
	w := want{at: at, path: p, many: true, keep: true, into: "input"}
	if p == "" || strings.ContainsRune(p, 0) {
		b.errs.Errorf(at, "a path is empty")
		return
	}
	if err := w.check(); err != nil {
		b.errs.Errorf(at, "%v", err)
		return
	}
	if old := to.add(w); old != nil {
		b.errs.Errorf(at, "%s would lie at %s, where %s lies", msg.Quote(p), msg.Quote(w.place()), msg.Quote(old.path))
	}
}

// single makes the one job of a template that has nothing to fill.
func (b *templating) single() {
	name := join(b.name)
	if name == "" {
		name = safeName(path.Base(join(b.words[0])))
	} else if err := job.CheckName(name); err != nil {
		b.errs.Errorf(conf.Place{File: "-J"}, "%v", err)
	}
	var run []string
	for _, w := range b.words {
		run = append(run, join(w))
	}
	b.f.Jobs, b.f.jobWants = []job.Job{{Name: name, Run: run}}, [][]want{nil}
	b.f.jobAt = []conf.Place{{File: "the command"}}
}

// lines makes a job of each line.
func (b *templating) lines(lines []string) {
	n := len(lines)
	b.f.Jobs, b.f.jobWants, b.f.jobAt = make([]job.Job, 0, n), make([][]want, 0, n), make([]conf.Place, 0, n)
	names := make(map[string]int, n)
	for i, text := range lines {
		if strings.TrimSpace(text) == "" {
			continue
		}
		l := given{text: text, at: conf.Place{File: stdin, Line: i + 1}}
		var j job.Job
		if strings.Contains(text, "=") {
			var err error
			isText := !strings.Contains(text, "\t")
			switch j.Param, err = kept(l.split(), isText); {
			case err != nil && !isText:
				b.errs.Errorf(l.at, "%v", err)
			case err != nil:
				b.f.unkept++
				b.f.Note = cmp.Or(b.f.Note, fmt.Sprintf("%s: %v", l.at, err))
			}
		}
		b.take(&l, j, &places{outer: b.all}, names)
	}
	if b.f.unkept > 0 {
		b.f.Note += ": it is no parameter of the job"
	}
	if b.f.unkept > 1 {
		b.f.Note += fmt.Sprintf(", and so in %d lines", b.f.unkept)
	}
}

// take fills what the command line says into the job of a line, and adds it.
func (b *templating) take(l *given, j job.Job, own *places, names map[string]int) {
	if len(b.words) > 0 {
		j.Run = make([]string, len(b.words))
		size := 0
		for k, w := range b.words {
			j.Run[k] = b.fill(l, w)
			size += len(j.Run[k]) + 1
		}
		if j.Run[0] == "" || size > job.MaxArgv {
			b.errs.Repeatf("command", l.at, "the command is empty, or longer than %d bytes", job.MaxArgv)
		}
	}
	j.Env = b.ownEnv(l, j.Env)
	j.Name = b.jobName(l, names)
	for _, in := range b.inputs {
		b.want(own, l.at, b.fill(l, in))
	}
	b.f.jobMade = append(b.f.jobMade, b.made(l, slices.Concat(b.files, l.files)))
	b.f.Jobs, b.f.jobWants, b.f.jobAt = append(b.f.Jobs, j), append(b.f.jobWants, own.list), append(b.f.jobAt, l.at)
}

// jobName is the name for the line's job: what -J says, which must differ from
// all others, or one made of the line, which is made to differ.
func (b *templating) jobName(l *given, names map[string]int) string {
	if b.t.Job == "" && l.name == "" {
		name := safeName(strings.TrimSpace(l.made()))
		for n := names[name]; n > 0; {
			n++
			next := fmt.Sprintf("%.*s_%d", min(len(name), job.MaxName-8), name, n)
			if names[next] == 0 {
				names[name], name = n, next
				break
			}
		}
		names[name] = 1
		return name
	}
	name := l.name
	if b.t.Job != "" {
		l.safe = true
		name = b.fill(l, b.name)
		l.safe = false
		if err := job.CheckName(name); err != nil {
			b.errs.Repeatf("-J", l.at, "-J: %v", err)
		}
	}
	switch first := names[name]; {
	case first > 0 && b.t.Job != "":
		b.errs.Repeatf("-J", l.at, "-J: a second job is named %s (the first is of line %d): add {#} or another field", msg.Quote(name), first)
	case first > 0:
		b.errs.Errorf(l.at, "a second job is named %s (the first is of line %d): names in a batch differ", msg.Quote(name), first)
	default:
		names[name] = l.at.Line
	}
	return name
}

// A given is one line of input and its fields.
type given struct {
	text   string
	at     conf.Place
	fields []string // nil until they are asked for
	safe   bool     // values go into a name
	object bool     // the line is a JSON object, and fields are its parameters
	name   string   // of its job, if the line says it
	files  []fileOf // templates that it names
}

func (b *templating) fill(l *given, segs []segment) string { return b.fillOf(l, segs, "") }

// fillOf is fill, where mistakes are told with what it is of.
func (b *templating) fillOf(l *given, segs []segment, of string) string {
	return b.fillAt(l, segs, func(int) string { return of }, l.value)
}

// fillAt is fill, where mistakes are told with what at says of the place of a segment, and value is
// what fills it.
func (b *templating) fillAt(l *given, segs []segment, at func(int) string, value func(string) (string, error)) string {
	if len(segs) == 1 && !segs[0].fill {
		return segs[0].text
	}
	var s strings.Builder
	for _, g := range segs {
		text := g.text
		if g.fill {
			var err error
			if text, err = value(g.name); err != nil {
				of := at(g.at)
				b.errs.Repeatf(of+"{"+g.name+"}", l.at, "%s%v", of, err)
			}
			if l.safe {
				text = strings.Map(safeRune, text)
			}
		}
		s.WriteString(text)
	}
	return s.String()
}

// value is what fills the place of that name.
func (l *given) value(name string) (string, error) {
	switch name {
	case "":
		return l.text, nil
	case "#":
		return strconv.Itoa(l.at.Line), nil
	}
	fields := l.split()
	switch n, err := strconv.Atoi(name); {
	case err == nil && l.object:
		return "", fmt.Errorf("{%d} is wanted, and the parameters of an object have names: write {NAME}, or {{%d}} if that is meant as text", n, n)
	case err == nil && n > len(fields):
		return "", fmt.Errorf("{%d} is wanted, and the line has fields up to {%d} (write {{%d}} if that is meant as text)", n, len(fields), n)
	case err == nil:
		return fields[n-1], nil
	}
	if v, ok := job.ParamOf(fields, name); ok {
		if n := len(slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return !strings.HasPrefix(f, name+"=") })); n > 1 {
			return "", fmt.Errorf("{%s} is wanted, and the line has %d fields %s=…", name, n, name)
		}
		return v, nil
	}
	if l.object {
		return "", fmt.Errorf("{%s} is wanted, and the line has no such parameter (write {{%s}} if that is meant as text)", name, name)
	}
	return "", fmt.Errorf("{%s} is wanted, and the line has no field %s=… (write {{%s}} if that is meant as text)", name, name, name)
}

// inFile is value in a file, of which braces may be part, as of JSON or of a mesh: the whole of a
// line of parameters, and one of them with its name, are no text that somebody has there.
func (l *given) inFile(name string) (string, error) {
	fields := l.split()
	if len(fields) == 2 && fields[1] == "" && nameIn(fields[0]) != "" && strings.ContainsFunc(fields[0], unicode.IsSpace) {
		whole := *l // as dsweep(1) ends a value with blanks
		whole.fields = fields[:1]
		l, fields = &whole, whole.fields
	}
	if name == "" && (l.object || !slices.ContainsFunc(fields, func(f string) bool { return nameIn(f) == "" })) {
		return "", errWholeLine
	}
	if n, err := strconv.Atoi(name); err == nil && !l.object && n <= len(fields) {
		if param := nameIn(fields[n-1]); param != "" {
			return "", fmt.Errorf("{%d} would be %s: write {%s} for the value, or {{%d}} if that is meant as text", n, fields[n-1], param, n)
		}
	}
	return l.value(name)
}

// errWholeLine is what is wrong with {} in a file.
var errWholeLine = errors.New("{} would be all parameters of the job: write {NAME} for one, or {{}} if that is meant as text")

// split is the fields of the line.
func (l *given) split() []string {
	switch {
	case l.object || l.fields != nil:
	case strings.ContainsRune(l.text, '\t'):
		l.fields = strings.Split(l.text, "\t")
	default:
		l.fields = strings.Fields(l.text)
	}
	return l.fields
}

// safeRune makes what may not be in a name an underscore.
func safeRune(r rune) rune {
	if job.NameRune(r) {
		return r
	}
	return '_'
}

// safeName makes a name of any text.
func safeName(s string) string {
	s = strings.Map(safeRune, s)
	if len(s) > job.MaxName {
		s = s[:job.MaxName]
	}
	if s == "" || s[0] == '.' || s[0] == '-' {
		s = "_" + s[:min(len(s), job.MaxName-1)]
	}
	if strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml") {
		s = s[:min(len(s), job.MaxName-1)] + "_"
	}
	return s
}
