package line

import (
	"strconv"
	"time"
	"unicode/utf8"
)

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
