package match

import (
	"testing"
	"time"
)

// Numbers that tell jobs apart, as seeds, are compared exactly, however large they are.
func TestLargeNumbers(t *testing.T) {
	const seed = "9007199254740993" // 2^53+1, which is no float
	for _, c := range []struct {
		op, val, text string
		want          bool
	}{
		{"=", seed, seed, true},
		{"=", seed, "9007199254740992", false},
		{"=", seed, "9007199254740994", false},
		{"!=", seed, "9007199254740992", true},
		{"=", "9007199254740992.." + seed, seed, true},
		{"=", "9007199254740992.." + seed, "9007199254740994", false},
		{"=", seed + "..", "9007199254740992", false},
		{"<", seed, "9007199254740992", true},
		{"<", seed, seed, false},
		{"<=", seed, seed, true},
		{">", seed, "9007199254740994", true},
		{">", seed, seed, false},
		{">=", seed, "9007199254740992", false},
		{"=", "18446744073709551615", "18446744073709551614", false},
		{"=", "18446744073709551615", "18446744073709551615", true},
		{"=", "-" + seed, "-9007199254740992", false},
		{"=", "1e16", "10000000000000000", true},
		{">", "1", "1e300", true},
		{"=", "1..3", "2.0", true},
		{"=", "1..3", "nan", false},
		{"<", "3", "nan", false},
		{">=", "3", "nan", false},
	} {
		test, err := Parse(Either, nil, "param.seed", c.op, c.val, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := test(OfEither(c.text, true)); got != c.want {
			t.Errorf("%s %s %s is %v", c.text, c.op, c.val, got)
		}
	}
}
