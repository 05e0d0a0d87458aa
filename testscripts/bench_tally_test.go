package testscripts

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"text/tabwriter"
	"time"
)

// The benchmarks of whole batches do each thing a few times, beside the limit of
// the machine or a peer in the same round, and report ratios: make bench. These
// settings make them shorter or longer:
//
//	BENCH_JOBS     jobs, of those that count jobs
//	BENCH_ROUNDS   how often each thing is done
//	BENCH_MIB      what is moved
//	BENCH_REST     seconds that a desk rests

// A tally is what the rounds of a benchmark found, by name, in the order in
// which they came.
type tally struct {
	names []string
	of    map[string][]float64
}

func (f *tally) add(name string, figure float64) {
	if _, known := f.of[name]; !known {
		f.names = append(f.names, name)
	}
	f.of[name] = append(f.of[name], figure)
}

// rounds does a round as often as BENCH_ROUNDS says, or else n times. Go's line
// of the benchmark has the medians; a table before it the least and the most, too.
func rounds(b *testing.B, n int, round func(f *tally)) {
	f := &tally{of: map[string][]float64{}}
	for b.Loop() {
		for range setting(b, "BENCH_ROUNDS", n) {
			round(f)
		}
	}
	f.report(b)
}

func (f *tally) report(b *testing.B) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\tmedian\tleast\tmost\t\n", b.Name())
	for _, name := range f.names {
		all := slices.Sorted(slices.Values(f.of[name]))
		mid := all[len(all)/2]
		b.ReportMetric(mid, name)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", name, digits(mid), digits(all[0]), digits(all[len(all)-1]))
	}
	w.Flush()
	b.ReportMetric(0, "ns/op")
}

// digits is a figure as people read it: three digits, or all before the point.
func digits(x float64) string {
	switch {
	case x >= 100 || x == 0:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

func took(f func()) float64 {
	began := time.Now()
	f()
	return time.Since(began).Seconds()
}

// scale is how many jobs a benchmark has; BENCH_JOBS sets another number.
func scale(b *testing.B, n int) int { return setting(b, "BENCH_JOBS", n) }

// setting is a number of the environment, or else n.
func setting(b *testing.B, name string, n int) int {
	if s := os.Getenv(name); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			b.Fatalf("%s is %q: it must be a number from 1 on", name, s)
		}
	}
	return n
}
