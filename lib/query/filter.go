package query

import (
	"time"

	"distribute/lib/match"
)

// operators are the characters of which the first decides what an operand is.
const operators = "/" + match.Operators

// A filter is one condition on a row.
type filter[R any] struct {
	field Field[R]
	fits  match.Test
}

func (f *filter[R]) match(r *R) bool { return f.fits(f.field.get(r)) }

// parseFilter reads "key op value". Times are relative to now and in its zone.
func parseFilter[R any](fields []Field[R], arg string, now time.Time) (filter[R], error) {
	key, op, val, _ := match.Cut(arg)
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
	fits, err := match.Parse(f.kind, f.words, key, op, val, now)
	if err != nil {
		return filter[R]{}, usagef("%q: %s", arg, err)
	}
	return filter[R]{*f, fits}, nil
}
