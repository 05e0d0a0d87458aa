package query

import (
	"math"
	"strconv"
	"testing"

	"distribute/lib/job"
)

// A number is written as its shortest decimal in thousandths, whole or not.
func TestNumbersShown(t *testing.T) {
	fields, err := Pick(JobFields(), "runtime")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []float64{1, 12, 12.5, 0.001, 1.0 / 3, 1e-7, -1e-7, -3, -2.25, 1e9, 123456789.123, 1e15, 3e18, 1e20, -1e20} {
		want := strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64)
		if got := fields[0].Text(&job.Row{Runtime: x}); got != want {
			t.Errorf("%v is shown as %s, want %s", x, got, want)
		}
	}
}
