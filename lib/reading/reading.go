// Package reading reads single values from files that jobs have left: a value of
// JSON, what an expression fits, or a cell of a table. dtable(1) is its
// specification.
//
// A file is read once, from its beginning to its end, for all that is wanted of it:
// a [Reading] makes a [Taker], which takes the file in parts of any length and
// then tells the value. Files come from programs of users and are not trusted: what a
// Taker keeps of one is bounded.
package reading

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"distribute/lib/sweep"
)

// Bounds of what is read, in bytes.
const (
	MaxJSON  = 64 << 20 // of a file of JSON
	MaxLine  = 1 << 20  // of a line
	MaxValue = 4096     // of a value
)

// ErrNone is that a value is not there.
var ErrNone = errors.New("it is not there")

// A Reading is one value that is wanted: NAME=FILE:WHAT.
type Reading struct {
	Name string
	file []segment
	what string // as it is written
	make func() Taker
}

// A Taker takes a file and tells the value. Write never fails: what is wrong is told
// at the end.
type Taker interface {
	Write(p []byte) (int, error)
	// Value is the value; an error says, beginning with a verb of which the file is
	// the subject, why there is none.
	Value() (string, error)
}

// Parse reads what an operand asks for.
func Parse(operand string) (*Reading, error) {
	name, rest, ok := strings.Cut(operand, "=")
	if !ok {
		return nil, fmt.Errorf("%s is no reading: write NAME=FILE:WHAT", quote(operand))
	}
	if err := sweep.CheckName(name); err != nil {
		return nil, err
	}
	at := strings.Index(rest, ":.")
	if i := strings.Index(rest, ":/"); i >= 0 && (at < 0 || i < at) {
		at = i
	}
	if at < 0 {
		at = strings.LastIndexByte(rest, ':')
	}
	if at <= 0 || at == len(rest)-1 {
		return nil, fmt.Errorf("%s: %s says not what is to be read of which file: write FILE:.MEMBER, FILE:/EXPRESSION/ or FILE:COLUMN", name, quote(rest))
	}
	r := &Reading{Name: name, what: rest[at+1:]}
	var err error
	if r.file, err = segments(rest[:at]); err == nil {
		r.make, err = parseWhat(r.what)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func parseWhat(what string) (func() Taker, error) {
	switch what[0] {
	case '.':
		return parsePath(what)
	case '/':
		return parseExpression(what)
	}
	return parseColumn(what)
}

// Take makes a Taker for one file.
func (r *Reading) Take() Taker { return r.make() }

// quote is a text as it stands in what is said.
func quote(s string) string { return fmt.Sprintf("%.300q", s) }

// A segment of a path is text, or the name of a parameter.
type segment struct {
	text string
	fill bool
}

// segments finds the places of a path.
func segments(file string) (segs []segment, err error) {
	if file[0] == '/' || slices.Contains(strings.Split(file, "/"), "..") {
		return nil, fmt.Errorf("%s leaves the result: write a path in it, as dpull would have it", quote(file))
	}
	for rest := file; rest != ""; {
		text, after, ok := strings.Cut(rest, "{")
		segs = append(segs, segment{text: text})
		if !ok {
			break
		}
		name, after, ok := strings.Cut(after, "}")
		if !ok || name != "job" && sweep.CheckName(name) != nil {
			return nil, fmt.Errorf("%s: a parameter stands in braces, as {n}", quote(file))
		}
		segs, rest = append(segs, segment{text: name, fill: true}), after
	}
	return segs, nil
}

// File is the path of the file for a job: param tells its parameters.
func (r *Reading) File(job string, param func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for _, g := range r.file {
		switch value, ok := "", false; {
		case !g.fill:
			b.WriteString(g.text)
		case g.text == "job":
			b.WriteString(job)
		default:
			if value, ok = param(g.text); !ok {
				return "", fmt.Errorf("it has no parameter %q, which the name of the file has", g.text)
			}
			b.WriteString(value)
		}
	}
	if b.String() == "_output.txt" {
		return job + "_output.txt", nil
	}
	return path.Clean(b.String()), nil
}

// clean is a value as it is printed: one line of text.
func clean(s string) (string, error) {
	if len(s) > MaxValue {
		return "", fmt.Errorf("has a value of more than %d bytes there", MaxValue)
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
	if s == "" {
		return "", fmt.Errorf("has nothing there: %w", ErrNone)
	}
	return s, nil
}

// lines parts what is written into lines, of which take gets the first MaxLine
// bytes, and whether that was all.
type lines struct {
	rest    []byte
	long    bool
	returns bool // a carriage return ends a line, too, unless it is empty
	ended   bool // one has just done so: a line feed behind it is of the same line
	take    func(line []byte, whole bool)
}

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if l.returns {
			if r := bytes.IndexByte(part, '\r'); r >= 0 {
				part, i = part[:r], r
			}
		}
		returned := i >= 0 && p[i] == '\r'
		if room := MaxLine - len(l.rest); len(part) > room {
			part, l.long = part[:room], true
		}
		if i < 0 {
			l.rest = append(l.rest, part...)
			return n, nil
		}
		if len(l.rest) > 0 {
			l.rest = append(l.rest, part...)
			part = l.rest
		}
		if len(part) > 0 || !returned && !l.ended {
			l.line(part)
		}
		l.ended = returned && len(part) > 0
		p = p[i+1:]
	}
	return n, nil
}

func (l *lines) line(b []byte) {
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	l.take(b, !l.long)
	l.rest, l.long = l.rest[:0], false
}

// end is for a last line that has no end.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.line(l.rest)
	}
}

// A nth keeps the n-th of what comes, from 1, or if that is negative from the end.
type nth struct {
	n    int
	seen int
	last []string // the last -n of them, the oldest at seen%-n
}

func (k *nth) add(s string) {
	k.seen++
	switch {
	case k.n > 0 && k.seen == k.n:
		k.last = []string{s}
	case k.n < 0 && len(k.last) < -k.n:
		k.last = append(k.last, s)
	case k.n < 0:
		k.last[(k.seen-1)%-k.n] = s
	}
}

func (k *nth) get() (string, bool) {
	switch {
	case k.n > 0:
		if len(k.last) == 0 {
			return "", false
		}
		return k.last[0], true
	case len(k.last) < -k.n:
		return "", false
	}
	return k.last[k.seen%-k.n], true
}

// maxBack is how far from the end something can be asked for.
const maxBack = 10000
