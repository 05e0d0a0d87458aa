package query

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/unit"
)

// maxPattern bounds an expression, so that one who asks cannot make the head
// compile for long.
const maxPattern = 4096

// operators are the characters of which the first decides what an operand is.
const operators = "/=!~<>"

// A filter is one condition on a row.
type filter[R any] struct {
	field Field[R]
	fits  func(value) bool
}

func (f *filter[R]) match(r *R) bool { return f.fits(f.field.get(r)) }

// parseFilter reads "key op value", whose first operator stands at i. Times
// are relative to now and in its zone.
func parseFilter[R any](fields []Field[R], arg string, i int, now time.Time) (filter[R], error) {
	key, op, val := arg[:i], arg[i:i+1], arg[i+1:]
	if (op == "!" || op == "<" || op == ">") && strings.HasPrefix(val, "=") {
		op, val = op+"=", val[1:]
	}
	if op == "!" {
		return filter[R]{}, usagef("%q: after ! comes =", arg)
	}
	f, err := find(fields, key)
	if err != nil {
		return filter[R]{}, usagef("%q: %s", arg, err)
	}
	if val == "" {
		return filter[R]{}, usagef("%q: no value follows %s (an empty field is %s=-)", arg, op, key)
	}
	var fits func(value) bool
	switch op {
	case "=", "!=":
		fits, err = parseList(f.kind, f.words, val, now)
		if op == "!=" && err == nil {
			yes := fits
			fits = func(v value) bool { return !yes(v) }
		}
	case "~":
		fits, err = parseExpression(f, val)
	default:
		fits, err = parseOrder(f.kind, key, op, val, now)
	}
	if err != nil {
		return filter[R]{}, usagef("%q: %s", arg, err)
	}
	return filter[R]{*f, fits}, nil
}

// parseExpression is of a regular expression on what Text gives.
func parseExpression[R any](f *Field[R], val string) (func(value) bool, error) {
	if len(val) > maxPattern {
		return nil, usagef("the expression has more than %d bytes", maxPattern)
	}
	re, err := regexp.Compile(val)
	if err != nil {
		return nil, usagef("%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	text := Field[value]{kind: f.kind, get: func(v *value) value { return *v }}
	return func(v value) bool { return re.MatchString(text.Text(&v)) }, nil
}

// parseOrder is of one of < <= > >= and a value.
func parseOrder(k kind, key, op, val string, now time.Time) (func(value) bool, error) {
	if k == word || k == list {
		return nil, usagef("%s has no order: use = != or ~", key)
	}
	x, err := parseSpan(k, val, now)
	if err != nil {
		return nil, err
	}
	return func(v value) bool {
		switch {
		case !v.set:
			return false
		case op == "<":
			return v.num < x.from
		case op == "<=":
			return v.num < x.from || x.holds(v.num)
		case op == ">":
			return v.num > x.from && !x.holds(v.num)
		}
		return v.num >= x.from
	}, nil
}

// parseList is of a list with commas, of which one must fit.
func parseList(k kind, words []string, val string, now time.Time) (func(value) bool, error) {
	var tests []func(value) bool
	for _, part := range strings.Split(val, ",") {
		test, err := parseOne(k, words, part, now)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test)
	}
	if len(tests) == 1 {
		return tests[0], nil
	}
	return func(v value) bool {
		return slices.ContainsFunc(tests, func(test func(value) bool) bool { return test(v) })
	}, nil
}

func parseOne(k kind, words []string, part string, now time.Time) (func(value) bool, error) {
	switch {
	case part == "":
		return nil, usagef("a word of the list is empty (an empty field is -)")
	case part == "-":
		return func(v value) bool { return !v.set }, nil
	case k == word:
		return parseWord(words, part)
	case k == list:
		one, err := parseWord(words, part)
		return func(v value) bool {
			return slices.ContainsFunc(v.list, func(s string) bool { return one(ofText(s)) })
		}, err
	}
	x, err := parseRange(k, part, now)
	if err != nil {
		return nil, err
	}
	return func(v value) bool { return v.set && x.holds(v.num) }, nil
}

// parseWord is of a pattern.
func parseWord(words []string, pattern string) (func(value) bool, error) {
	if !strings.ContainsAny(pattern, "*?[") {
		if words != nil && !slices.Contains(words, pattern) {
			return nil, usagef("there is no %q%s", pattern, didYouMean(pattern, words))
		}
		return func(v value) bool { return v.set && v.text == pattern }, nil
	}
	re, err := globExpression(pattern)
	if err != nil {
		return nil, err
	}
	return func(v value) bool { return v.set && re.MatchString(v.text) }, nil
}

// globExpression translates a pattern: * is any text, ? one character, [a-z]
// one of several, [!a-z] or [^a-z] one of the others.
func globExpression(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, usagef("the pattern has more than %d bytes", maxPattern)
	}
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for rest := pattern; rest != ""; {
		switch rest[0] {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteString(".")
		case '[':
			set, after, ok := cutSet(rest)
			if !ok {
				return nil, usagef("%q: a [ has no ]", pattern)
			}
			b.WriteString(set)
			rest = after
			continue
		default:
			n := strings.IndexAny(rest, "*?[")
			if n < 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			rest = rest[n:]
			continue
		}
		rest = rest[1:]
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, usagef("%q is not a pattern", pattern)
	}
	return re, nil
}

// cutSet cuts a set off the start of s and gives it as an expression.
func cutSet(s string) (set, after string, ok bool) {
	body, begin := s[1:], "["
	if strings.HasPrefix(body, "!") || strings.HasPrefix(body, "^") {
		body, begin = body[1:], "[^"
	}
	end := strings.IndexByte(body, ']')
	if end == 0 {
		end = strings.IndexByte(body[1:], ']') + 1
	}
	if end <= 0 {
		return "", "", false
	}
	quoted := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`).Replace(body[:end])
	return begin + quoted + "]", body[end+1:], true
}

// span is what a value means: from it up to another, which is included unless
// open. A day is open: it ends where the next one begins.
type span struct {
	from, to float64
	open     bool
}

func (x span) holds(n float64) bool {
	return n >= x.from && (n < x.to || !x.open && n == x.to)
}

// parseRange reads "from..to", either of which may be missing, or one value.
func parseRange(k kind, s string, now time.Time) (span, error) {
	from, to, ranged := strings.Cut(s, "..")
	if !ranged {
		return parseSpan(k, s, now)
	}
	if from == "" && to == "" {
		return span{}, usagef("a range needs one end at least")
	}
	x := span{from: math.Inf(-1), to: math.Inf(1)}
	if from != "" {
		begin, err := parseSpan(k, from, now)
		if err != nil {
			return span{}, err
		}
		x.from = begin.from
	}
	if to != "" {
		end, err := parseSpan(k, to, now)
		if err != nil {
			return span{}, err
		}
		x.to, x.open = end.to, end.open
	}
	if x.from > x.to {
		return span{}, usagef("the range %q is empty: its ends are the wrong way round", s)
	}
	return x, nil
}

func parseSpan(k kind, s string, now time.Time) (span, error) {
	var n float64
	switch k {
	case number:
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return span{}, usagef("%q is not a whole number", s)
		}
		n = float64(i)
	case size:
		i, err := unit.ParseBytes(s)
		if err != nil {
			return span{}, err
		}
		n = float64(i)
	case length:
		d, err := unit.ParseDuration(s)
		if err != nil {
			return span{}, err
		}
		n = d.Seconds()
	case moment:
		return parseMoment(s, now)
	}
	return span{from: n, to: n}, nil
}

// dates are the ways to write a time, and for how long each lasts.
var dates = [...]struct {
	layout string
	long   func(time.Time) time.Time
}{
	{time.DateOnly, func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }},
	{"2006-01-02T15:04", func(t time.Time) time.Time { return t.Add(time.Minute) }},
	{"2006-01-02T15:04:05", func(t time.Time) time.Time { return t.Add(time.Second) }},
	{time.RFC3339, func(t time.Time) time.Time { return t.Add(time.Second) }},
}

func parseMoment(s string, now time.Time) (span, error) {
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		d, err := unit.ParseDuration(ago)
		if err != nil {
			return span{}, err
		}
		n := ofTime(now).num - d.Seconds()
		return span{from: n, to: n}, nil
	}
	for _, d := range dates {
		if t, err := time.ParseInLocation(d.layout, s, now.Location()); err == nil {
			return span{from: ofTime(t).num, to: ofTime(d.long(t)).num, open: true}, nil
		}
	}
	return span{}, usagef("%q is not a time: write it like 2026-11-20, 2026-11-20T17:30 or -2d (two days ago)", s)
}
