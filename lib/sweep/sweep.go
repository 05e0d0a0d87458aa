package sweep

import (
	"errors"
	"fmt"
	"iter"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"distribute/lib/unit"
)

const (
	// MaxCases is how many cases are made at most: as many as a batch has jobs.
	MaxCases = 1_000_000
	// MaxName is the greatest length in bytes of the name of a parameter.
	MaxName = 100
	// MaxValue is the greatest length in bytes of a value.
	MaxValue = 64 << 10

	maxLen = 1 << 60 // values of a range, and cases that a sample is drawn of
)

var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`) })

// CheckName reports why s cannot name a parameter: what can is what is a place
// in dsubmit(1), a letter or _ first, then also digits, points and dashes.
func CheckName(s string) error {
	if !nameForm().MatchString(s) || len(s) > MaxName {
		return fmt.Errorf("%s cannot name a parameter: a letter or _ comes first, then letters, digits, _ . and -, at most %d", quote(s), MaxName)
	}
	return nil
}

// CheckValue reports why s cannot be a value: a case is a line of text, and its
// parameters are parted by a TAB.
func CheckValue(s string) error {
	if len(s) > MaxValue {
		return fmt.Errorf("a value has %d bytes, and %d is the limit: put it into a file", len(s), MaxValue)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("the value %s is not UTF-8 text", quote(s))
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("the value %s has a control character, as a TAB or the end of a line", quote(s))
	}
	return nil
}

// A Param is a parameter of a case and its value.
type Param struct{ Name, Value string }

// values are what a parameter takes, one after another.
type values interface {
	len() int64
	value(i int64) string
}

// words are values that were written out.
type words []string

func (w words) len() int64           { return int64(len(w)) }
func (w words) value(i int64) string { return w[i] }

// several are values in parts.
type several []values

func (s several) len() int64 {
	n := int64(0)
	for _, v := range s {
		n += v.len()
	}
	return n
}

func (s several) value(i int64) string {
	for _, v := range s {
		if i < v.len() {
			return v.value(i)
		}
		i -= v.len()
	}
	panic("no such value")
}

// An axis is parameters whose values go together, the first with the first.
type axis struct {
	names []string
	of    []values
	n     int64
}

// A Sweep is cases of parameters.
type Sweep struct {
	axes  []axis
	drawn []int64 // of a sample: which cases, in their order
}

// Open reads a file that an operand names.
type Open func(name string) ([]byte, error)

// Parse reads operands as of dsweep(1): name=values, @file, and + between two
// that go together. The error holds every mistake of them.
func Parse(operands []string, open Open) (*Sweep, error) {
	s, seen := &Sweep{}, map[string]bool{}
	var errs []error
	joins := false
	for i, op := range operands {
		if op == "+" {
			if i == 0 || i == len(operands)-1 || joins {
				errs = append(errs, errors.New(`"+" stands between two parameters that go together`))
			}
			joins = true
			continue
		}
		a, err := parseOperand(op, open)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range a.names {
			if seen[name] {
				errs = append(errs, fmt.Errorf("%s: the parameter %s is there twice", quote(op), quote(name)))
			}
			seen[name] = true
		}
		if err == nil && joins && len(s.axes) > 0 && len(errs) == 0 {
			err = s.axes[len(s.axes)-1].join(a)
			if err != nil {
				errs = append(errs, err)
			}
		} else if err == nil {
			s.axes = append(s.axes, a)
		}
		joins = false
	}
	if len(operands) == 0 {
		errs = append(errs, errors.New("no parameter is given"))
	}
	return s, errors.Join(errs...)
}

// quote quotes what comes from elsewhere, for a message.
func quote(s string) string { return strconv.Quote(clip(s)) }

// clip shortens an operand for a message.
func clip(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// join has the values of b go with those of a.
func (a *axis) join(b axis) error {
	if a.n != b.n {
		return fmt.Errorf("%s has %s, and %s, which is to go with it, has %s",
			quote(a.names[0]), unit.Count(int(a.n), "value"), quote(b.names[0]), unit.Count(int(b.n), "value"))
	}
	a.names, a.of = append(a.names, b.names...), append(a.of, b.of...)
	return nil
}

func parseOperand(op string, open Open) (axis, error) {
	if file, ok := strings.CutPrefix(op, "@"); ok {
		return parseFile(file, open)
	}
	name, text, ok := strings.Cut(op, "=")
	if !ok {
		return axis{}, fmt.Errorf("%s is no parameter: write name=values, or @file", quote(op))
	}
	if err := CheckName(name); err != nil {
		return axis{}, err
	}
	v, err := parseValues(text)
	if err != nil {
		return axis{names: []string{name}}, fmt.Errorf("%s: %w", name, err)
	}
	return axis{names: []string{name}, of: []values{v}, n: v.len()}, nil
}

// parseValues reads a list with commas of values and ranges.
func parseValues(text string) (values, error) {
	var all several
	for rest, more := text, true; more; {
		var item string
		var quoted bool
		var err error
		if item, rest, more, quoted, err = cutItem(rest); err != nil {
			return nil, err
		}
		if err := CheckValue(item); err != nil {
			return nil, err
		}
		if item == "" && !quoted {
			return nil, errors.New(`a value is empty: write "" if it is meant to be`)
		}
		r, err := parseRange(item, quoted)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", quote(item), err)
		case r != nil:
			if all = append(all, r); all.len() > maxLen || len(all) > MaxCases {
				return nil, errors.New("there are more values than can be counted here")
			}
		default:
			if n := len(all); n > 0 {
				if w, ok := all[n-1].(words); ok {
					all[n-1] = append(w, item)
					continue
				}
			}
			all = append(all, words{item})
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// cutItem cuts the first value off a list, without blanks around it. In double quotes it
// is text, in which two of them are one.
func cutItem(s string) (item, rest string, more, quoted bool, err error) {
	s = strings.TrimLeft(s, " ")
	if !strings.HasPrefix(s, `"`) {
		item, rest, more = strings.Cut(s, ",")
		return strings.TrimRight(item, " "), rest, more, false, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '"':
			b.WriteByte(s[i])
		case strings.HasPrefix(s[i:], `""`):
			b.WriteByte('"')
			i++
		default:
			rest = strings.TrimLeft(s[i+1:], " ")
			if rest != "" && rest[0] != ',' {
				return "", "", false, true, fmt.Errorf("after the quoted value %s comes a comma, or nothing", quote(b.String()))
			}
			rest, more = strings.CutPrefix(rest, ",")
			return b.String(), rest, more, true, nil
		}
	}
	return "", "", false, true, errors.New(`a double quote is not closed`)
}

// clockForm is of a time of day, and of a range that may be taken for one.
var clockForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]$`) })

// parseRange reads a range, if the item has the form of one.
func parseRange(item string, quoted bool) (*run, error) {
	if quoted {
		return nil, nil
	}
	if clockForm().MatchString(item) {
		if strings.Contains(":"+item, ":0") {
			return nil, nil // no range is written so
		}
		return nil, fmt.Errorf(`a time of day, or a range? A time stands in double quotes, and a range begins with a sign: +%s`, item)
	}
	if parts := strings.Split(item, ":"); len(parts) == 3 {
		return parseStep(parts[0], parts[1], parts[2])
	}
	if lo, hi, ok := strings.Cut(item, ".."); ok && lo != "" && lo != "." && !strings.Contains(lo, "/") && hi != "" && hi[0] != '/' {
		hi, n, ok := strings.Cut(hi, "/")
		if !ok {
			return nil, fmt.Errorf("how many values? Write %s..%s/5, or with a step %[1]s:%[2]s:STEP", lo, hi)
		}
		return parseSpaced(lo, hi, n)
	}
	return nil, nil
}

// Repeat has each case made n times, with the parameter repeat from 1.
func (s *Sweep) Repeat(n int) error {
	if n < 1 {
		return fmt.Errorf("%d repeats make no sense: 1 or more", n)
	}
	if slices.Contains(s.Names(), repeat) {
		return fmt.Errorf("with repeats, the parameter %q is their number: give yours another name", repeat)
	}
	one := decimal{digits: big.NewInt(1)}
	s.axes = append(s.axes, axis{names: []string{repeat}, of: []values{&run{lo: one, step: one, n: int64(n)}}, n: int64(n)})
	return nil
}

// repeat is the parameter that counts repeats.
const repeat = "repeat"

// Count is how many cases there are.
func (s *Sweep) Count() *big.Int {
	if s.drawn != nil {
		return big.NewInt(int64(len(s.drawn)))
	}
	n := big.NewInt(1)
	for _, a := range s.axes {
		n.Mul(n, big.NewInt(a.n))
	}
	return n
}

// Check refuses a sweep that has too many cases, before any is made.
func (s *Sweep) Check() error {
	if n := s.Count(); n.Cmp(big.NewInt(MaxCases)) > 0 {
		return fmt.Errorf("these are %s cases, and %d is the limit: take fewer values, or draw some of them", short(n), MaxCases)
	}
	return nil
}

// Draw leaves n of the cases, drawn at random and in their order. The same seed
// draws the same ones, on any machine and with any version.
func (s *Sweep) Draw(n int64, seed uint64) error {
	all := s.Count()
	switch {
	case n < 1 || n > MaxCases:
		return fmt.Errorf("%d cases cannot be drawn: from 1 to %d", n, MaxCases)
	case all.Cmp(big.NewInt(maxLen)) > 0:
		return fmt.Errorf("these are %s cases, too many to draw of: take fewer values", short(all))
	case all.Cmp(big.NewInt(n)) < 0:
		return fmt.Errorf("%d cases cannot be drawn of %v", n, all)
	}
	taken := make(map[int64]bool, n)
	r := splitmix(seed)
	for k := all.Int64() - n; k < all.Int64(); k++ { // Floyd's way: each set is as likely
		i := r.below(k + 1)
		if taken[i] {
			i = k
		}
		taken[i] = true
		s.drawn = append(s.drawn, i)
	}
	slices.Sort(s.drawn)
	return nil
}

// splitmix is the generator of that name by Steele, Lea and Flood.
type splitmix uint64

func (r *splitmix) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is a number from 0 to n-1, each as likely.
func (r *splitmix) below(n int64) int64 {
	m := uint64(n)
	over := -m % m // of all 2^64 numbers, the last ones that make no whole turn
	for {
		if x := r.next(); over == 0 || x < -over {
			return int64(x % m)
		}
	}
}

// Names are the parameters of a case, in their order.
func (s *Sweep) Names() (names []string) {
	for _, a := range s.axes {
		names = append(names, a.names...)
	}
	return names
}

// Cases are the cases, of which the last parameter changes first. The slice is
// used again for the next one.
func (s *Sweep) Cases() iter.Seq[[]Param] {
	return func(yield func([]Param) bool) {
		names := s.Names()
		params, at := make([]Param, len(names)), make([]int64, len(s.axes))
		for i, name := range names {
			params[i].Name = name
		}
		total, drawn := s.Count().Int64(), s.drawn
		for k := range total {
			i := k
			if drawn != nil {
				i = drawn[k]
			}
			to := len(params)
			for j := len(s.axes) - 1; j >= 0; j-- {
				a := &s.axes[j]
				to -= len(a.names)
				if v := i%a.n + 1; at[j] != v { // from 1, so that the first is new
					at[j] = v
					for p := range a.of {
						params[to+p].Value = a.of[p].value(v - 1)
					}
				}
				i /= a.n
			}
			if !yield(params) {
				return
			}
		}
	}
}
