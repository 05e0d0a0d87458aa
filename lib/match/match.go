package match

import (
	"cmp"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/msg"
	"distribute/lib/unit"
)

// MaxPattern bounds an expression or pattern, in bytes, so that one who asks cannot
// make the head compile for long.
const MaxPattern = 4096

// Operators are the characters of which the first one ends a key.
const Operators = "=!~<>"

// A Test is what one condition asks of a value.
type Test func(Value) bool

// Cut cuts a condition "key op value" at its first operator, if it has one. An
// operator of two characters is one of != <= >=.
func Cut(arg string) (key, op, val string, ok bool) {
	i := strings.IndexAny(arg, Operators)
	if i < 0 {
		return arg, "", "", false
	}
	key, op, val = arg[:i], arg[i:i+1], arg[i+1:]
	if (op == "!" || op == "<" || op == ">") && strings.HasPrefix(val, "=") {
		op, val = op+"=", val[1:]
	}
	return key, op, val, true
}

// Parse reads what stands behind the key of a condition: an operator, and what
// values of the kind are compared with. Words are the only ones that such a value
// can be, if there are any. Times are relative to now and in its zone. Its errors
// are for the person who wrote the condition.
func Parse(k Kind, words []string, key, op, val string, now time.Time) (Test, error) {
	switch op {
	case "=", "!=":
		fits, err := parseList(k, words, val, now)
		if op == "!=" && err == nil {
			return func(v Value) bool { return !fits(v) }, nil
		}
		return fits, err
	case "~":
		return parseExpression(k, val)
	}
	return parseOrder(k, key, op, val, now)
}

// parseExpression is of a regular expression on what Append gives.
func parseExpression(k Kind, val string) (Test, error) {
	if len(val) > MaxPattern {
		return nil, Errorf("the expression has more than %d bytes", MaxPattern)
	}
	re, err := regexp.Compile(val)
	if err != nil {
		return nil, Errorf("%s", unit.Quote(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
	return func(v Value) bool { return re.Match(v.Append(nil, k)) }, nil
}

// parseOrder is of one of < <= > >= and a value.
func parseOrder(k Kind, key, op, val string, now time.Time) (Test, error) {
	if k == Word || k == List || k == Amounts {
		return nil, Errorf("%s has no order: use = != or ~", key)
	}
	x, err := parseSpan(k, val, now)
	if err != nil {
		return nil, err
	}
	return func(v Value) bool {
		switch {
		case !v.Set || math.IsNaN(v.Num):
			return false
		case op == "<":
			return x.before(v) < 0
		case op == "<=":
			return x.before(v) < 0 || x.holds(v)
		case op == ">":
			return x.before(v) > 0 && !x.holds(v)
		}
		return x.before(v) >= 0
	}, nil
}

// parseList is of a list with commas, of which one must fit.
func parseList(k Kind, words []string, val string, now time.Time) (Test, error) {
	var tests []Test
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
	return func(v Value) bool {
		return slices.ContainsFunc(tests, func(test Test) bool { return test(v) })
	}, nil
}

func parseOne(k Kind, words []string, part string, now time.Time) (Test, error) {
	switch {
	case part == "":
		return nil, Errorf("a word of the list is empty (an empty field is -)")
	case part == "-":
		return func(v Value) bool { return !v.Set }, nil
	case k == Word:
		return parseWord(words, part)
	case k == List || k == Amounts:
		one, err := parseWord(words, part)
		return func(v Value) bool {
			return slices.ContainsFunc(v.List, func(s string) bool { return one(OfText(s)) })
		}, err
	}
	x, err := parseRange(k, part, now)
	if err != nil && k == Either { // no number: text
		return parseWord(words, part)
	}
	if err != nil {
		return nil, err
	}
	if k == Either {
		return func(v Value) bool { return v.Set && (x.holds(v) || v.Text == part) }, nil
	}
	return func(v Value) bool { return v.Set && x.holds(v) }, nil
}

// parseWord is of a pattern.
func parseWord(words []string, pattern string) (Test, error) {
	if !strings.ContainsAny(pattern, "*?[") {
		if words != nil && !slices.Contains(words, pattern) {
			return nil, Errorf("there is no %q%s", pattern, msg.DidYouMean(pattern, words))
		}
		return func(v Value) bool { return v.Set && v.Text == pattern }, nil
	}
	re, err := globExpression(pattern)
	if err != nil {
		return nil, err
	}
	return func(v Value) bool { return v.Set && re.MatchString(v.Text) }, nil
}

// globExpression translates a pattern: * is any text, ? one character, [a-z]
// one of several, [!a-z] or [^a-z] one of the others.
func globExpression(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > MaxPattern {
		return nil, Errorf("the pattern has more than %d bytes", MaxPattern)
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
				return nil, Errorf("%q: a [ has no ]", pattern)
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
		return nil, Errorf("%q is not a pattern", pattern)
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
	from, to   float64
	open       bool
	begin, end *big.Int // the same, of a whole number that may be too large for them
}

func (x span) holds(v Value) bool {
	after := x.after(v)
	return x.before(v) >= 0 && (after < 0 || !x.open && after == 0)
}

// before is how v compares with the begin of the span, and after with its end, as
// [cmp.Compare] has it: what is no number is before all.
func (x span) before(v Value) int { return compare(v, x.from, x.begin) }
func (x span) after(v Value) int  { return compare(v, x.to, x.end) }

// compare compares exactly also what is too large for a float to be whole: numbers that
// tell jobs apart, as seeds.
func compare(v Value, n float64, whole *big.Int) int {
	if whole != nil && math.Abs(v.Num) >= maxWhole {
		if own := wholeOf(v.Text); own != nil {
			return own.Cmp(whole)
		}
	}
	return cmp.Compare(v.Num, n)
}

// maxWhole is up to where every whole number is a float.
const maxWhole = 1 << 53

// wholeOf is the whole number that a text is; nil if it is none.
func wholeOf(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil
	}
	return n
}

// parseRange reads "from..to", either of which may be missing, or one value.
func parseRange(k Kind, s string, now time.Time) (span, error) {
	from, to, ranged := strings.Cut(s, "..")
	if !ranged {
		return parseSpan(k, s, now)
	}
	if from == "" && to == "" {
		return span{}, Errorf("a range needs one end at least")
	}
	x := span{from: math.Inf(-1), to: math.Inf(1)}
	if from != "" {
		begin, err := parseSpan(k, from, now)
		if err != nil {
			return span{}, err
		}
		x.from, x.begin = begin.from, begin.begin
	}
	if to != "" {
		end, err := parseSpan(k, to, now)
		if err != nil {
			return span{}, err
		}
		x.to, x.open, x.end = end.to, end.open, end.end
	}
	if x.from > x.to {
		return span{}, Errorf("the range %q is empty: its ends are the wrong way round", s)
	}
	return x, nil
}

// NoUnit is why a size that stands in a file or a request says too little: it is a number
// of bytes, and few.
func NoUnit(k Kind, s string) error {
	if k != Size {
		return nil
	}
	if _, err := unit.ParseBytes(s); err != nil { // a range, or what Parse refuses
		return nil
	}
	_, err := unit.WrittenBytes(s)
	return err
}

func parseSpan(k Kind, s string, now time.Time) (span, error) {
	var n float64
	switch k {
	case Number:
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return span{}, Errorf("%q is not a whole number", s)
		}
		n = float64(i)
	case Decimal:
		i, ok := unit.ParseThousandths(s)
		if !ok {
			return span{}, Errorf("%q is not a number with at most three digits behind the point", s)
		}
		n = float64(i) / 1000
	case Size:
		i, err := unit.ParseBytes(s)
		if err != nil {
			return span{}, err
		}
		n = float64(i)
	case Length:
		d, err := unit.ParseDuration(s)
		if err != nil {
			return span{}, err
		}
		n = d.Seconds()
	case Either:
		i, ok := plain(s)
		if !ok {
			return span{}, Errorf("%q is not a number", s)
		}
		whole := wholeOf(s)
		return span{from: i, to: i, begin: whole, end: whole}, nil
	case Moment:
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
		n := OfTime(now).Num - d.Seconds()
		return span{from: n, to: n}, nil
	}
	for _, d := range dates {
		if t, err := time.ParseInLocation(d.layout, s, now.Location()); err == nil {
			return span{from: OfTime(t).Num, to: OfTime(d.long(t)).Num, open: true}, nil
		}
	}
	return span{}, Errorf("%q is not a time: write it like 2026-11-20, 2026-11-20T17:30 or -2d (two days ago)", s)
}
