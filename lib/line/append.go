package line

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// The functions below write what [Scan] reads. A member is the bytes before its
// value, with its key, and the value; one that is empty or zero is left out.

// AppendTextMember appends a member that is a text.
func AppendTextMember(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return AppendText(append(b, key...), s)
}

// AppendIntMember appends a member that is a whole number.
func AppendIntMember(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, key...), n, 10)
}

// AppendSecondsMember appends a member that is a length of time in seconds.
func AppendSecondsMember(b []byte, key string, f float64) []byte {
	if f == 0 {
		return b
	}
	return strconv.AppendFloat(append(b, key...), f, 'f', -1, 64)
}

// AppendTimeMember appends a member that is a time, as AppendTime does.
func AppendTimeMember(b []byte, key string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return AppendTime(append(b, key...), t)
}

// AppendText appends s as a JSON string. What is not UTF-8 becomes U+FFFD.
func AppendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if x := s[i]; x < ' ' || x == '"' || x == '\\' || x >= utf8.RuneSelf {
			return appendEscaped(append(b, s[:i]...), s[i:])
		}
	}
	return append(append(b, s...), '"')
}

func appendEscaped(b []byte, s string) []byte {
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < ' ':
			const digits = "0123456789abcdef"
			b = append(b, `\u00`...)
			b = append(b, digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// AppendTime appends t, which must be in UTC, have no part below a millisecond
// and a year of four digits, as "2026-11-20T12:00:00.000Z".
func AppendTime(b []byte, t time.Time) []byte {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	milli := t.Nanosecond() / 1e6
	return append(b, '"', digit(year/1000), digit(year/100), digit(year/10), digit(year),
		'-', digit(int(month)/10), digit(int(month)), '-', digit(day/10), digit(day),
		'T', digit(hour/10), digit(hour), ':', digit(minute/10), digit(minute), ':', digit(second/10), digit(second),
		'.', digit(milli/100), digit(milli/10), digit(milli), 'Z', '"')
}

// digit is the last digit of n.
func digit(n int) byte { return '0' + byte(uint(n)%10) }

// AppendThousandths appends a number of thousandths as a number of ones, without zeros
// behind its last digit: 500 as 0.5.
func AppendThousandths(b []byte, n int64) []byte {
	if n < 0 {
		b, n = append(b, '-'), -n
	}
	b = strconv.AppendInt(b, n/1000, 10)
	if n %= 1000; n == 0 {
		return b
	}
	b = append(b, '.', digit(int(n/100)), digit(int(n/10%10)), digit(int(n%10)))
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// AppendThousandthsMember appends a member that is such a number, unless it is 0.
func AppendThousandthsMember(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return AppendThousandths(append(b, key...), n)
}
