// Package reading reads single values from files that jobs have left: a value of JSON,
// the match of a regular expression, or a cell of a table. dtable(1) is its specification.
//
// A file is read once, from its beginning to its end, for all values that are wanted of
// it: each [Reading] makes a [Parser], to which the file is written. Files come from
// programs of users and are not trusted: the memory of a Parser is bounded.
package reading

import (
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"distribute/lib/sweep"
)

// Bounds of what is read, in bytes.
const (
	MaxJSON  = 64 << 20 // of a file of JSON
	MaxLine  = 1 << 20  // of a line
	MaxValue = 4096     // of a value
)

// A Reading is one value that is wanted: NAME=FILE:WHAT.
type Reading struct {
	Name      string
	NewParser func() Parser // for one file
	file      string
}

// A Parser finds a value in the file that is written to it. Write never fails: Value says
// what is wrong, beginning with a verb of which the file is the subject.
type Parser interface {
	io.Writer
	Value() (string, error)
}

var (
	// form is FILE:WHAT. The first path or expression ends the name of the file, else the last colon does.
	form  = regexp.MustCompile(`(?s)^(?:(.+?):([./].*)|(.+):(.+))$`)
	place = regexp.MustCompile(`\{[^}]*\}?`) // of a parameter in the name of a file
)

// Parse makes a Reading of an operand.
func Parse(operand string) (*Reading, error) {
	name, text, _ := strings.Cut(operand, "=")
	if err := sweep.CheckName(name); err != nil {
		return nil, err
	}
	m := form.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%s: %s says not what is to be read of which file: write FILE:.MEMBER, FILE:/EXPRESSION/ or FILE:COLUMN",
			name, quote(text))
	}
	file, what := m[1]+m[3], m[2]+m[4]
	if !filepath.IsLocal(file) {
		return nil, fmt.Errorf("%s: %s leaves the result: write a path in it, as dpull would have it", name, quote(file))
	}
	for _, p := range place.FindAllString(file, -1) {
		if !strings.HasSuffix(p, "}") || sweep.CheckName(p[1:len(p)-1]) != nil {
			return nil, fmt.Errorf("%s: %s: a parameter stands in braces, as {n}", name, quote(file))
		}
	}
	parse := parseColumn
	switch what[0] {
	case '.':
		parse = parsePath
	case '/':
		parse = parseExpression
	}
	newParser, err := parse(what)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Reading{Name: name, NewParser: newParser, file: file}, nil
}

// quote is a text as it stands in what is said.
func quote(s string) string { return fmt.Sprintf("%.300q", s) }

// File is the path of the file for a job: param tells its parameters.
func (r *Reading) File(job string, param func(name string) (string, bool)) (string, error) {
	var missing error
	file := place.ReplaceAllStringFunc(r.file, func(p string) string {
		name := p[1 : len(p)-1]
		value, ok := param(name)
		if name == "job" {
			value, ok = job, true
		}
		if !ok {
			missing = fmt.Errorf("it has no parameter %q, which the name of the file has", name)
		}
		return value
	})
	if file == "_output.txt" {
		file = job + "_output.txt"
	}
	return path.Clean(file), missing
}

// clean is a value as it is printed: one line of text.
func clean(s string) (string, error) {
	if len(s) > MaxValue {
		return "", fmt.Errorf("has a value of more than %d bytes there", MaxValue)
	}
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
	if s == "" {
		return "", fmt.Errorf("has nothing there: it is not there")
	}
	return s, nil
}
