package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"distribute/lib/ask"
	"distribute/lib/query"
)

// asked is a source that notes of which jobs the causes are asked for.
type asked struct {
	source
	of []string
}

func (a *asked) causes(_ context.Context, ops *ask.Operands) ([]query.Cause, error) {
	a.of = append(a.of, strings.Join(ops.Args, " "))
	return nil, nil
}

// Without operands it is asked why jobs failed in the last 24 hours, too.
func TestCausesOf(t *testing.T) {
	for args, want := range map[string][]string{"": {"", "state=failed ended=-1d.."}, "cavity": {"cavity"}} {
		a := &asked{}
		if _, err := causesOf(t.Context(), a, &ask.Operands{Args: strings.Fields(args)}); err != nil || !slices.Equal(a.of, want) {
			t.Errorf("%q: %v, asked for %q", args, err, a.of)
		}
	}
}
