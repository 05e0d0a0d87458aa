package estimate

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// Of what is queued so many jobs are taken up one by one, or drawn for the sum of the
// others.
const oneByOne = 128

// places is when each place in which a job runs is free, the first one in front.
type places []float64

func (p places) Len() int           { return len(p) }
func (p places) Less(i, j int) bool { return p[i] < p[j] }
func (p places) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *places) Push(x any)        { *p = append(*p, x.(float64)) }
func (p *places) Pop() any          { panic("no place goes away") }

// trial is when all jobs that are left are over in one trial. Of very many that are
// queued all but some are taken as the sum that so many have on average, give or take
// what chance makes of that; of more places than are kept, as those that are.
func (s *Sample) trial(k known, rnd *rand.Rand) float64 {
	at := make(places, len(s.running))
	for i, ran := range s.running {
		at[i] = k.after(ran, rnd)
	}
	share := float64(len(at)) / float64(s.nRun) // of the places
	queued := int(math.Round(float64(s.Queued) * share))
	bulk := max(0, queued-oneByOne) / len(at) * len(at)
	if bulk > 0 {
		each := s.sum(k, bulk, rnd) / float64(len(at))
		for i := range at {
			at[i] += each
		}
	}
	heap.Init(&at)
	next := func(long float64) {
		at[0] += long
		heap.Fix(&at, 0)
	}
	for range queued - bulk {
		next(k.draw(0, rnd))
	}
	for _, ran := range s.stopped {
		next(k.after(ran, rnd))
	}
	end := 0.0
	for _, t := range at {
		end = max(end, t)
	}
	return end
}

// sum is how long so many jobs take together, which is many.
func (s *Sample) sum(k known, n int, rnd *rand.Rand) float64 {
	sum, squares := 0.0, 0.0
	for range oneByOne {
		v := k.draw(0, rnd)
		sum += v
		squares += v * v
	}
	mean := sum / oneByOne
	deviation := math.Sqrt(max(0, squares/oneByOne-mean*mean))
	return max(0, float64(n)*mean+math.Sqrt(float64(n))*deviation*rnd.NormFloat64())
}
