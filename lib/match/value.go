package match

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"distribute/lib/unit"
)

// ErrUsage is what every error of a condition is: the person who wrote it has to
// change it.
var ErrUsage = errors.New("wrong usage")

type usage struct{ text string }

func (u usage) Error() string        { return u.text }
func (u usage) Is(target error) bool { return target == ErrUsage }

// Errorf is an error of the text alone that is ErrUsage.
func Errorf(format string, a ...any) error { return usage{fmt.Sprintf(format, a...)} }

// A Kind says what a value is, which decides how it is compared and written.
type Kind uint8

// The kinds of values.
const (
	Word    Kind = iota // text, compared by pattern
	List                // of words, compared one by one
	Amounts             // a list of words as matlab=2
	Number              // whole
	Decimal             // a number with at most three digits behind the point
	Size                // bytes
	Length              // of time, seconds
	Moment              // a time
	Either              // text, compared as a number with what is one
	JSON                // as it is written in JSON, or text
)

// A Value is what is compared.
type Value struct {
	Set  bool     // else it is empty
	Text string   // of a word; of a list its words with commas
	List []string // of a list
	Num  float64  // of a number, size or length; of a moment seconds since 1970
	At   time.Time
}

// OfText is the value of a word.
func OfText(s string) Value { return Value{Set: s != "", Text: s} }

// OfEither is the value of a text that may be a number.
func OfEither(s string, set bool) Value {
	v := Value{Set: set, Text: s, Num: math.NaN()}
	if n, ok := plain(s); set && ok {
		v.Num = n
	}
	return v
}

// IsNumber says that JSON takes a text for a number.
func (v Value) IsNumber() bool {
	return !math.IsNaN(v.Num) && json.Valid([]byte(v.Text))
}

// plain is a finite decimal number.
func plain(s string) (float64, bool) {
	if s == "" || strings.Trim(s, "+-0123456789.eE") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// OfList is the value of a list.
func OfList(l []string) Value {
	return Value{Set: len(l) > 0, Text: strings.Join(l, ","), List: l}
}

// OfTime is the value of a moment.
func OfTime(t time.Time) Value {
	return Value{Set: !t.IsZero(), At: t, Num: float64(t.UnixMilli()) / 1000}
}

// Some is the value of a number that is empty when it is zero.
func Some[N int | int64 | float64](n N) Value { return Value{Set: n != 0, Num: float64(n)} }

// Count is the value of a number that is told when it is zero.
func Count(n int) Value { return Value{Set: true, Num: float64(n)} }

// Append appends the value as it is written into a pipe: "-" when it is empty,
// times in RFC 3339 and UTC, lengths of time in seconds, sizes in bytes. It never
// holds a TAB or a newline.
func (v Value) Append(b []byte, k Kind) []byte {
	if !v.Set {
		return append(b, '-')
	}
	switch k {
	case JSON:
		return append(b, v.Text...)
	case Either:
		if v.Text == "" {
			return append(b, '-')
		}
		return append(b, unit.Quote(v.Text)...)
	case Word, List, Amounts:
		return append(b, unit.Quote(v.Text)...)
	case Moment:
		return v.At.UTC().AppendFormat(b, time.RFC3339)
	}
	if n := int64(v.Num); float64(n) == v.Num && -1e15 < v.Num && v.Num < 1e15 && (n != 0 || !math.Signbit(v.Num)) {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, math.Round(v.Num*1000)/1000, 'f', -1, 64)
}
