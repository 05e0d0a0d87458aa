// Package unit reads and writes the sizes and times that people type and see:
// 2G of memory, 1h30m of time. Records for programs use plain bytes and
// seconds and need nothing of it.
package unit

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const suffixes = "KMGTP"

// ParseBytes reads a number of bytes: digits, and after them one of K M G T P
// in either case, which are powers of 1024 and may be written KiB or KB too.
// A fraction needs a suffix and is rounded down to a whole byte. A sign, a
// space, and a value above the largest int64 are errors that quote s.
func ParseBytes(s string) (int64, error) {
	bad := func() (int64, error) {
		return 0, fmt.Errorf("%q is not a size: write it like 512M, 2G or 1.5T", s)
	}
	number, scale := splitSize(s)
	whole, fraction, dotted := strings.Cut(number, ".")
	if !digits(whole) || dotted && (!digits(fraction) || scale == 0) {
		return bad()
	}
	n, ok := scaled(whole, fraction, 1<<(10*scale))
	if !ok {
		return 0, fmt.Errorf("%q is more bytes than can be counted", s)
	}
	return n, nil
}

// splitSize cuts the suffix off s and says which power of 1024 it is.
func splitSize(s string) (number string, scale int) {
	end := strings.LastIndexAny(s, "0123456789.") + 1
	number, suffix := s[:end], s[end:]
	if suffix == "" || suffix == "B" {
		return number, 0
	}
	scale = strings.IndexByte(suffixes, suffix[0]&^0x20) + 1
	switch suffix[1:] {
	case "", "B", "iB", "b", "ib":
	default:
		scale = 0
	}
	if scale == 0 {
		return "", 0
	}
	return number, scale
}

func digits(s string) bool {
	for _, b := range []byte(s) {
		if b < '0' || b > '9' {
			return false
		}
	}
	return s != ""
}

// ParseThousandths reads a number that is not negative and has at most three digits
// behind the point, in thousandths: "0.5" as 500. It is false of anything else, and of
// more than a billion.
func ParseThousandths(s string) (int64, bool) {
	whole, fraction, pointed := strings.Cut(s, ".")
	if !digits(whole) || pointed && !digits(fraction) || len(fraction) > 3 {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > 1e9 {
		return 0, false
	}
	part, _ := strconv.ParseInt((fraction + "000")[:3], 10, 64) // digits
	return n*1000 + part, true
}

// scaled is whole.fraction times unit, rounded down. It reports whether that
// fits into an int64. Digits of the fraction after the fifteenth are dropped.
func scaled(whole, fraction string, unit uint64) (int64, bool) {
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil {
		return 0, false
	}
	over, n := bits.Mul64(n, unit)
	if over != 0 || n > math.MaxInt64 {
		return 0, false
	}
	fraction = fraction[:min(len(fraction), 15)]
	if fraction != "" {
		f, _ := strconv.ParseUint(fraction, 10, 64)
		tens := uint64(1)
		for range fraction {
			tens *= 10
		}
		hi, lo := bits.Mul64(f, unit)
		part, _ := bits.Div64(hi, lo, tens)
		n += part
	}
	return int64(n), n <= math.MaxInt64
}

// FormatBytes writes n as a person reads it, in at most five characters below
// 1024 P: 123, 22K, 1.5G. A value below ten of its unit shows one decimal
// unless that is zero. ParseBytes reads it back, less what was rounded off.
func FormatBytes(n int64) string {
	if n < 0 {
		return "-" + FormatBytes(-max(n, -math.MaxInt64))
	}
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f, i := float64(n)/1024, 0
	for math.Round(f) >= 1024 && i < len(suffixes)-1 {
		f, i = f/1024, i+1
	}
	if tenths := math.Round(f * 10); tenths < 100 && math.Mod(tenths, 10) != 0 {
		return fmt.Sprintf("%.1f%c", tenths/10, suffixes[i])
	}
	return fmt.Sprintf("%.0f%c", f, suffixes[i])
}

// spans are the units of a duration in the order in which they are written.
var spans = [...]struct {
	name string
	unit time.Duration
}{
	{"w", 7 * 24 * time.Hour},
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
}

// ParseDuration reads a length of time. It is a number of seconds (90), or
// numbers with units w d h m s ms, largest first and each at most once (1h30m,
// 2d, 1.5h), or hh:mm:ss with days before a dash (00:30:00, 1-12:00:00). Two
// numbers with one colon are refused: nobody knows whether they begin with
// hours or with minutes. A day is 24 hours. A sign is an error; errors quote s.
// With the error of one that is too long the greatest is returned.
func ParseDuration(s string) (time.Duration, error) {
	d, ok := time.Duration(0), false
	switch {
	case strings.Contains(s, ":"):
		d, ok = parseClock(s)
	case digits(strings.Replace(s, ".", "", 1)):
		d, ok = parseSpans(s + "s")
	default:
		d, ok = parseSpans(s)
	}
	switch {
	case !ok:
		return 0, fmt.Errorf("%q is not a length of time: write it like 90s, 1h30m, 2d or 00:30:00", s)
	case d == math.MaxInt64:
		return d, fmt.Errorf("%q is longer than can be counted", s)
	}
	return d, nil
}

// WrittenDuration is ParseDuration of what a person writes for others to read: a number
// without a unit, but 0, is an error that names the likely ones.
func WrittenDuration(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err == nil && d > 0 && bare(s) {
		return 0, fmt.Errorf("%q has no unit: write %[2]ss, %[2]sm or %[2]sh", s, s)
	}
	return d, err
}

// WrittenBytes is ParseBytes likewise: a number below 1M without a unit, but 0, is an
// error.
func WrittenBytes(s string) (int64, error) {
	n, err := ParseBytes(s)
	if err == nil && 0 < n && n < 1<<20 && bare(s) {
		return 0, fmt.Errorf("%q has no unit: write %[2]sM or %[2]sG", s, s)
	}
	return n, err
}

func bare(s string) bool { return strings.Trim(s, "0123456789.") == "" }

// parseSpans reads numbers with units; the greatest is what is too long.
func parseSpans(s string) (time.Duration, bool) {
	var total time.Duration
	next := 0
	for first := true; first || s != ""; first = false {
		end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if end < 0 {
			return 0, false
		}
		number := s[:end]
		s = s[end:]
		name := s
		if end := strings.IndexAny(s, "0123456789."); end >= 0 {
			name = s[:end]
		}
		s = s[len(name):]
		for next < len(spans) && spans[next].name != name {
			next++
		}
		whole, fraction, dotted := strings.Cut(number, ".")
		if next == len(spans) || !digits(whole) || dotted && !digits(fraction) {
			return 0, false
		}
		part, ok := scaled(whole, fraction, uint64(spans[next].unit))
		if !ok || time.Duration(part) > math.MaxInt64-total {
			part, total = math.MaxInt64, 0
		}
		total += time.Duration(part)
		next++
	}
	return total, true
}

func parseClock(s string) (time.Duration, bool) {
	days, clock, dashed := strings.Cut(s, "-")
	if !dashed {
		days, clock = "0", s
	}
	f := strings.Split(clock, ":")
	if len(f) != 3 || !digits(f[0]) || len(f[1]) != 2 || len(f[2]) != 2 || f[1] > "59" || f[2] > "59" {
		return 0, false
	}
	if dashed && (len(f[0]) != 2 || f[0] > "23") {
		return 0, false
	}
	return parseSpans(days + "d" + f[0] + "h" + f[1] + "m" + f[2] + "s")
}

// FormatDuration writes d as a person reads it: 12s, 2m05s, 12m, 1h02m, 3d4h.
// It shows at most two units, drops the smaller one when it is zero or the
// larger one is ten minutes and more, and rounds down, so that a run never
// seems to have used up a limit that it has not. ParseDuration reads it back.
func FormatDuration(d time.Duration) string {
	if d < 0 {
		return "-" + FormatDuration(-max(d, -math.MaxInt64))
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute && d%time.Minute >= time.Second:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day && d%time.Hour >= time.Minute:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%day >= time.Hour:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// Quote returns s as it can be shown in a line on a terminal. That is s itself
// when it is valid UTF-8 of printable characters without a backslash and does
// not begin with a double quote, else s as a Go string literal. What Quote
// returns never holds a control character, a newline, a TAB or a character
// that changes the direction of writing, and different strings stay different.
func Quote(s string) string {
	plain := s != "" && s[0] != '"' && utf8.ValidString(s)
	for _, r := range s {
		plain = plain && r != '\\' && strconv.IsPrint(r)
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// Count is a number of things for a person: "1 job", "2 jobs".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
