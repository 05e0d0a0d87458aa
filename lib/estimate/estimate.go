// Package estimate tells when what is under way will be over, by how long its like
// took, as an interval.
//
// Jobs that run yet are no less known than those that have ended: while the short
// ones of a batch have ended, the long ones run. So how long a job takes is drawn
// from both, as Efron's redistribution to the right has it, which gives the estimator
// of Kaplan and Meier (Efron 1967; Kaplan, Meier 1958): a job of which one knows
// only that it takes longer than it has run takes as long as one of those that took
// longer; if none did, it goes on for as long again in half of all cases (Gott
// 1993), and three times as long at most. How little a few jobs tell is weighed by
// the Bayesian bootstrap (Rubin 1981): in each of many trials jobs count differently
// much. A trial then has the jobs that are left taken up one after the other by the
// places in which jobs run now; the interval leaves out the trial that ends
// first, and the one that ends last. For the latter, one job more is taken to have
// been seen, which took three times as long as any.
//
// It is told nothing of jobs that are yet to come, of nodes that come or go, or of
// what the jobs are about: where the longest come last it is wrong.
package estimate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	leastEnded = 10  // jobs, below which nothing is told
	most       = 256 // values that are kept of what is seen
	trials     = 50
	outside    = 1    // of them is left out at each end
	lindy      = 4    // times what it has run already, at most, takes what runs for longest
	beyond     = 0.05 // of the jobs may take longer than any that has ended, or nothing is told
)

// A Sample is what is seen of the jobs of one batch. The zero one is empty. It keeps
// some of many values, drawn in the same way each time.
type Sample struct {
	Queued int // jobs that have not begun

	ended, running, stopped []float64
	nEnded, nRun, nStopped  int
	rnd                     *rand.Rand
}

// Ended takes in a job that has ended after so many seconds.
func (s *Sample) Ended(seconds float64) { s.keep(&s.ended, &s.nEnded, seconds) }

// Running takes in a job that has run for so many seconds, and runs on.
func (s *Sample) Running(seconds float64) { s.keep(&s.running, &s.nRun, seconds) }

// Stopped takes in a job that has run for so many seconds and will go on, but does
// not run now.
func (s *Sample) Stopped(seconds float64) { s.keep(&s.stopped, &s.nStopped, seconds) }

// keep is Vitter's algorithm R.
func (s *Sample) keep(values *[]float64, n *int, v float64) {
	v = min(max(0, v), 1e9)
	if *n++; len(*values) < most {
		*values = append(*values, v)
		return
	}
	if s.rnd == nil {
		s.rnd = rand.New(rand.NewPCG(1, 1))
	}
	if i := s.rnd.IntN(*n); i < most {
		(*values)[i] = v
	}
}

// An End is when jobs will be over, in seconds from now, and how many end in an hour
// meanwhile.
type End struct{ From, To, Rate float64 }

// End is when all jobs of the sample will be over, in four of five cases, if as many
// run at once as now. It says false while that is not known: if fewer than ten have
// ended, none runs, none is left, or more than a twentieth of the jobs take longer than any
// that has ended, as far as those show that run. It costs up to some tens
// of milliseconds.
func (s *Sample) End() (End, bool) {
	left := s.Queued + s.nRun + s.nStopped
	if s.nEnded < leastEnded || s.nRun == 0 || left == 0 {
		return End{}, false
	}
	early, late := s.known(false), s.known(true)
	if early.beyond() > beyond {
		return End{}, false
	}
	rnd := rand.New(rand.NewPCG(2, 2))
	first, last := make([]float64, trials), make([]float64, trials)
	mean := 0.0
	for i := range trials {
		early.weigh(rnd)
		first[i] = s.trial(early, rnd)
		mean += early.mean(rnd) / trials
		late.weigh(rnd)
		last[i] = s.trial(late, rnd)
	}
	slices.Sort(first)
	slices.Sort(last)
	e := End{From: first[outside], To: last[trials-1-outside]}
	if mean > 0 {
		e.Rate = 3600 * float64(s.nRun) / mean
	}
	return e, true
}

// Typical is how long half of the jobs take, those that run counted as far as they
// have come; false while that is not known.
func (s *Sample) Typical() (seconds float64, ok bool) {
	if s.nEnded < leastEnded {
		return 0, false
	}
	k := s.known(false)
	rnd := rand.New(rand.NewPCG(3, 3))
	all := make([]float64, most)
	for i := range all {
		all[i] = k.draw(0, rnd)
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// A seen job took so long, or has run so long and runs on.
type seen struct {
	value float64
	ended bool
	of    float64 // so many jobs it stands for
	above float64 // the sum of the weights from here on, in one trial
}

// known is what one knows of how long jobs take, by length.
type known []seen

// known is that; with more there is one job more, which took three times as long as any.
func (s *Sample) known(more bool) known {
	var k known
	add := func(values []float64, n int, ended bool) {
		for _, v := range values {
			k = append(k, seen{value: v, ended: ended, of: float64(n) / float64(len(values))})
		}
	}
	add(s.ended, s.nEnded, true)
	add(s.running, s.nRun, false)
	add(s.stopped, s.nStopped, false)
	slices.SortFunc(k, func(a, b seen) int { return cmp.Compare(a.value, b.value) })
	if more {
		k = append(k, seen{value: 3 * k[len(k)-1].value, ended: true, of: 1})
	}
	k.weigh(nil)
	return k
}

// weigh draws how much each job counts, for one trial; without rnd all count the same.
func (k known) weigh(rnd *rand.Rand) {
	above := 0.0
	for i := len(k) - 1; i >= 0; i-- {
		w := k[i].of
		if rnd != nil {
			w = max(0, w+math.Sqrt(w)*(rnd.ExpFloat64()-1))
		}
		above += w
		k[i].above = above
	}
}

// longer is the first job that took, or has run, longer than so many seconds.
func (k known) longer(than float64) int {
	i, _ := slices.BinarySearchFunc(k, than, func(s seen, v float64) int {
		if s.value <= v {
			return -1
		}
		return 1
	})
	return i
}

// draw is how long a job takes that takes longer than those before the i-th.
func (k known) draw(i int, rnd *rand.Rand) float64 {
	for last := 0.0; ; last = k[i-1].value {
		if i == len(k) {
			return last / max(rnd.Float64(), 1.0/lindy)
		}
		u := rnd.Float64() * k[i].above
		j, _ := slices.BinarySearchFunc(k[i:], u, func(s seen, u float64) int { return cmp.Compare(u, s.above) })
		j = min(max(i+j-1, i), len(k)-1)
		if k[j].ended {
			return k[j].value
		}
		i = k.longer(k[j].value)
	}
}

// after is how much longer a job takes that has run for so many seconds.
func (k known) after(ran float64, rnd *rand.Rand) float64 {
	i := k.longer(ran)
	if i == len(k) {
		return ran/max(rnd.Float64(), 1.0/lindy) - ran
	}
	return k.draw(i, rnd) - ran
}

// beyond is which part of the jobs takes longer than any that has ended.
func (k known) beyond() float64 {
	part := 1.0
	for i := range k {
		if k[i].ended {
			part *= 1 - k[i].of/k[i].above
		}
	}
	return part
}

// mean is how long a job takes, as a few draws have it.
func (k known) mean(rnd *rand.Rand) float64 {
	const draws = 32
	sum := 0.0
	for range draws {
		sum += k.draw(0, rnd)
	}
	return sum / draws
}
