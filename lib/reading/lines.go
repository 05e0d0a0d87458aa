package reading

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"distribute/lib/unit"
)

// maxBack is how far from the end a value can be asked for.
const maxBack = 10000

// lines is the Parser of a file of lines. Of the values that are added it keeps the n-th, from 1,
// or if n is negative from the end.
type lines struct {
	n    int
	read func(line []byte) error // adds the value in a line, if there is one
	none func() error            // why there is no value, if nothing is wrong

	line  []byte // the first MaxLine+1 bytes of the one under way
	ended bool   // by the last byte, a carriage return: a line feed after it is of the same line
	seen  int    // values
	kept  []string
	err   error
}

// Write ends a line at a line feed and, unless it is empty, at a carriage return.
func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		ended := c == '\r' && len(l.line) > 0
		switch {
		case ended, c == '\n' && !l.ended:
			l.end()
		case c != '\n' && c != '\r' && len(l.line) <= MaxLine:
			l.line = append(l.line, c)
		}
		l.ended = ended
	}
	return len(p), nil
}

// escapes matches the sequences for colours, character sets, titles, links and the cursor of terminals.
var escapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[ -/]+[0-~]|[0-Z\\\\^-~])")
})

func (l *lines) end() {
	line := l.line
	if len(line) <= MaxLine && bytes.IndexByte(line, 0x1b) >= 0 { // else its end is not here
		line = escapes().ReplaceAll(line, nil)
	}
	if l.err == nil {
		l.err = l.read(line)
	}
	l.line = l.line[:0]
}

func (l *lines) add(value []byte) {
	l.seen++
	if l.n < 0 || l.n == l.seen {
		l.kept = append(l.kept, string(value[:min(len(value), MaxValue+1)]))
	}
	if l.n < 0 && len(l.kept) > -l.n {
		l.kept = l.kept[1:]
	}
}

func (l *lines) Value() (string, error) {
	if len(l.line) > 0 {
		l.end()
	}
	switch {
	case l.err != nil:
		return "", l.err
	case len(l.kept) < max(1, -l.n):
		return "", l.none()
	}
	return clean(l.kept[0])
}

var expressionForm = regexp.MustCompile(`(?s)^/(.*)/([^/]*)$`)

// parseExpression parses /EXPRESSION/ or /EXPRESSION/n.
func parseExpression(text string) (func() Parser, error) {
	m := expressionForm.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%s has no second /, which ends an expression", quote(text))
	}
	n, err := strconv.Atoi(cmp.Or(m[2], "-1"))
	if err != nil || n == 0 || n < -maxBack {
		return nil, fmt.Errorf("%s behind the expression is no number that says which line, from 1, or from -1 to -%d", quote(m[2]), maxBack)
	}
	if m[1] == "" {
		return nil, fmt.Errorf("the expression is empty")
	}
	re, err := regexp.Compile(m[1])
	if err != nil {
		return nil, fmt.Errorf("%s is no expression: %w", quote(m[1]), err)
	}
	return func() Parser {
		l := &lines{n: n}
		l.read = func(line []byte) error {
			if m := re.FindSubmatch(line[:min(len(line), MaxLine)]); m != nil {
				l.add(m[min(1, len(m)-1)])
			}
			return nil
		}
		l.none = func() error {
			fit := "no line"
			if l.seen > 0 {
				fit = unit.Count(l.seen, "line")
			}
			return fmt.Errorf("has %s that /%s/ fits: it is not there", fit, re)
		}
		return l
	}, nil
}
