package head

import "testing"

// A job takes as long as half of those of its batch did, and one that has run for longer
// as long as it may.
func TestTakes(t *testing.T) {
	for _, c := range []struct{ half, limit, ran, want float64 }{
		{0, 0, 5, 0}, {60, 0, 5, 60}, {60, 100, 5, 60}, {60, 100, 70, 100}, {60, 0, 70, 0},
		{60, 50, 5, 50}, {0, 100, 5, 100}, {0, 100, 200, 0},
	} {
		if got := takes(c.half, c.limit, c.ran); got != c.want {
			t.Errorf("%+v: it takes %v", c, got)
		}
	}
}
