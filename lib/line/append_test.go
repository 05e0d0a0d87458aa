package line

import (
	"testing"
	"time"
)

func TestAppendTime(t *testing.T) {
	for _, at := range []time.Time{
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(987, 12, 31, 23, 59, 59, 999e6, time.UTC),
		time.Date(1969, 10, 20, 10, 20, 30, 7e6, time.UTC),
		time.Date(2026, 11, 9, 8, 7, 6, 50e6, time.UTC),
		time.Date(9999, 2, 28, 19, 8, 0, 100e6, time.UTC),
	} {
		want := at.Format(`"2006-01-02T15:04:05.000Z"`)
		if got := string(AppendTime(nil, at)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
