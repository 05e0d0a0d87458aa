package reading

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"distribute/lib/unit"
)

// parseExpression reads /EXPRESSION/ or /EXPRESSION/n.
func parseExpression(text string) (func() Taker, error) {
	end := strings.LastIndexByte(text, '/')
	if end == 0 {
		return nil, fmt.Errorf("%s has no second /, which ends an expression", quote(text))
	}
	n := -1
	if number := text[end+1:]; number != "" {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n == 0 || n < -maxBack {
			return nil, fmt.Errorf("%s behind the expression is no number that says which line, from 1, or from -1 to -%d", quote(number), maxBack)
		}
	}
	if end == 1 {
		return nil, fmt.Errorf("the expression is empty")
	}
	re, err := regexp.Compile(text[1:end])
	if err != nil {
		return nil, fmt.Errorf("%s is no expression: %w", quote(text[1:end]), err)
	}
	return func() Taker {
		t := &expressionTaker{re: re, found: nth{n: n}}
		t.lines.take, t.lines.returns = t.line, true
		return t
	}, nil
}

type expressionTaker struct {
	lines
	re    *regexp.Regexp
	found nth
}

func (t *expressionTaker) line(b []byte, _ bool) {
	m := t.re.FindSubmatchIndex(b)
	switch {
	case m == nil:
	case len(m) > 2 && m[2] >= 0:
		t.found.add(string(b[m[2]:min(m[3], m[2]+MaxValue+1)]))
	case len(m) > 2:
		t.found.add("")
	default:
		t.found.add(string(b[m[0]:min(m[1], m[0]+MaxValue+1)]))
	}
}

func (t *expressionTaker) Value() (string, error) {
	t.end()
	s, ok := t.found.get()
	switch {
	case t.found.seen == 0:
		return "", fmt.Errorf("has no line that /%s/ fits: %w", t.re, ErrNone)
	case !ok:
		return "", fmt.Errorf("has %s that /%s/ fits: %w", unit.Count(t.found.seen, "line"), t.re, ErrNone)
	}
	return clean(s)
}
