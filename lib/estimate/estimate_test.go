package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A world is jobs of known lengths that some places take up one after the other.
type world struct{ long, begin []float64 }

func newWorld(jobs, places int, draw func() float64) world {
	w := world{}
	free := make([]float64, places)
	for range jobs {
		i := slices.Index(free, slices.Min(free))
		w.begin, w.long = append(w.begin, free[i]), append(w.long, draw())
		free[i] += w.long[len(w.long)-1]
	}
	return w
}

// end is when the n-th job of those that end first does.
func (w world) end(n int) float64 {
	var ends []float64
	for i := range w.long {
		ends = append(ends, w.begin[i]+w.long[i])
	}
	slices.Sort(ends)
	return ends[n-1]
}

// seen is what is seen of it at a moment.
func (w world) seen(at float64) *Sample {
	s := &Sample{}
	for i, long := range w.long {
		switch ran := at - w.begin[i]; {
		case ran < 0:
			s.Queued++
		case ran >= long:
			s.Ended(long)
		default:
			s.Running(ran)
		}
	}
	return s
}

// The interval holds the true end in four of five worlds, of whatever kind they are,
// early as well as late.
func TestEndIsWithin(t *testing.T) {
	for _, d := range []struct {
		name string
		draw func(*rand.Rand) float64
	}{
		{"constant", func(*rand.Rand) float64 { return 100 }},
		{"uniform", func(r *rand.Rand) float64 { return 50 + 100*r.Float64() }},
		{"lognormal", func(r *rand.Rand) float64 { return 100 * math.Exp(r.NormFloat64()) }},
		{"bimodal", func(r *rand.Rand) float64 {
			if r.IntN(5) == 0 {
				return 900 + 200*r.Float64()
			}
			return 50 + 20*r.Float64()
		}},
	} {
		within, told := 0, 0
		for _, c := range []struct{ jobs, places, ended int }{{30, 4, 10}, {30, 4, 20}, {200, 10, 20}, {200, 10, 150}, {1000, 16, 100}} {
			const worlds = 40
			here, wide := 0, 0.0
			for seed := range uint64(worlds) {
				rnd := rand.New(rand.NewPCG(seed, uint64(c.jobs+c.ended)))
				w := newWorld(c.jobs, c.places, func() float64 { return d.draw(rnd) })
				at := w.end(c.ended)
				e, ok := w.seen(at).End()
				if !ok {
					continue
				}
				here++
				end := w.end(c.jobs) - at
				if e.From-1 <= end && end <= e.To+1 {
					within++
				}
				wide += (e.To - e.From) / end
			}
			told += here
			if c.ended >= 100 && (here < worlds*3/4 || wide > 3*float64(here)) {
				t.Errorf("%s %+v: told in %d of %d worlds, as wide as %.2f of what is left", d.name, c, here, worlds, wide/float64(here))
			}
		}
		t.Logf("%s: within in %d of %d worlds", d.name, within, told)
		if within < told*4/5 {
			t.Errorf("%s: the end is within the interval in %d of %d worlds", d.name, within, told)
		}
	}
}

// Nothing is told while nothing is known.
func TestEndIsNotKnown(t *testing.T) {
	few := &Sample{Queued: 100}
	for range 9 {
		few.Ended(10)
		few.Running(3)
	}
	stopped := &Sample{Queued: 1}
	over := &Sample{}
	for range 10 {
		stopped.Ended(10)
		stopped.Stopped(3)
		over.Ended(10)
	}
	for name, s := range map[string]*Sample{"nothing": {}, "few": few, "stopped": stopped, "over": over} {
		if e, ok := s.End(); ok {
			t.Errorf("%s: it is over at %+v", name, e)
		}
	}
	if v, ok := few.Typical(); ok {
		t.Errorf("a job takes %v, which nine have told", v)
	}
	few.Ended(10)
	if _, ok := few.End(); !ok {
		t.Error("when ten have ended and nine run the end is not known")
	}
}

// What is left counts, not only what runs now; and what is kept of very many says as
// much as all of it.
func TestEndOfMany(t *testing.T) {
	s := &Sample{Queued: 100_000}
	for range 10_000 {
		s.Ended(100)
	}
	for range 1000 {
		s.Running(50)
	}
	e, ok := s.End()
	if !ok || e.From < 9900 || e.To > 10_400 {
		t.Errorf("101,000 jobs of 100 s in 1000 places are over between %+v", e)
	}
	if e.Rate < 35_000 || e.Rate > 37_000 {
		t.Errorf("they end at a rate of %v an hour", e.Rate)
	}
	again, _ := s.End()
	if again != e {
		t.Errorf("the same sample is over at %+v, and then at %+v", e, again)
	}
}

// Jobs that run longer than all that have ended count.
func TestTypical(t *testing.T) {
	s := &Sample{}
	for range 10 {
		s.Ended(10)
	}
	if v, ok := s.Typical(); !ok || v != 10 {
		t.Errorf("a job takes %v, %v", v, ok)
	}
	for range 20 {
		s.Running(1000)
	}
	if v, ok := s.Typical(); !ok || v < 1000 || v > 4000 {
		t.Errorf("a job takes %v, %v, where 20 of 25 have run for 1000", v, ok)
	}
}

// BenchmarkEnd is what it costs to estimate the end of a batch of 100,000 jobs.
func BenchmarkEnd(b *testing.B) {
	s := &Sample{Queued: 90_000}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		s.Ended(100 * rnd.ExpFloat64())
	}
	for range 500 {
		s.Running(50 * rnd.Float64())
	}
	for b.Loop() {
		if _, ok := s.End(); !ok {
			b.Fatal("it is not known")
		}
	}
}
