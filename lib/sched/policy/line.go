package policy

import (
	"cmp"
	"iter"
	"slices"
)

// A Line is jobs of one batch that wait for a node, by their numbers: those of a higher
// priority of their own in front, and of equal ones the lower numbers. Everything costs a step
// for each of these priorities, and what it costs in a [Set].
type Line struct {
	N int // how many there are

	of    *Batch
	size  int       // of the batch; 0: there are few in it
	ranks []ranking // the highest priority first; none is empty but that of 0
}

// A ranking is the jobs of a line that have a priority of their own.
type ranking struct {
	priority int
	jobs     *Set
}

// NewLine makes a line of jobs of a batch with numbers below a size; 0 is for few jobs with
// numbers of any size.
func NewLine(of *Batch, size int) *Line {
	l := &Line{of: of, size: size}
	if size > 0 {
		l.ranks = []ranking{{0, NewSet(size)}}
	}
	return l
}

// Resize makes room for other jobs of the batch.
func (l *Line) Resize(size int) {
	l.size = size
	for i := range l.ranks {
		l.ranks[i].jobs = l.ranks[i].jobs.Sized(size)
	}
}

// find is where the jobs of a priority are, or would be.
func (l *Line) find(priority int) (at int, there bool) {
	return slices.BinarySearchFunc(l.ranks, priority, func(r ranking, p int) int { return cmp.Compare(p, r.priority) })
}

// Has says that a job is in the line.
func (l *Line) Has(i uint32) bool {
	at, there := l.find(l.of.own(i))
	return there && l.ranks[at].jobs.Has(i)
}

// Add puts a job in.
func (l *Line) Add(i uint32) {
	p := l.of.own(i)
	at, there := l.find(p)
	if !there {
		l.ranks = slices.Insert(l.ranks, at, ranking{p, NewSparseSet(l.size)})
	}
	s := l.ranks[at].jobs
	was := s.N
	s.Add(i)
	l.N += s.N - was
}

// Remove takes a job out.
func (l *Line) Remove(i uint32) {
	p := l.of.own(i)
	at, there := l.find(p)
	if !there {
		return
	}
	s := l.ranks[at].jobs
	was := s.N
	s.Remove(i)
	l.N -= was - s.N
	if s.N == 0 && p != 0 {
		l.ranks = slices.Delete(l.ranks, at, at+1)
	}
}

// first is the first jobs of a line that is not empty.
func (l *Line) first() ranking {
	for _, r := range l.ranks {
		if r.jobs.N > 0 {
			return r
		}
	}
	return ranking{}
}

// First is the job in front of a line that is not empty.
func (l *Line) First() uint32 { return l.first().jobs.First() }

// Priority is that of the first job itself; 0 of an empty line.
func (l *Line) Priority() int { return l.first().priority }

// all yields the priorities of their own that jobs have, the highest first, and these jobs.
func (l *Line) all() iter.Seq2[int, *Set] {
	return func(yield func(int, *Set) bool) {
		for _, r := range l.ranks {
			if r.jobs.N > 0 && !yield(r.priority, r.jobs) {
				return
			}
		}
	}
}

// Parts yields the priorities of their own that jobs of a queue have, the highest first, and the
// queue as it will be when only jobs of that one and lower ones wait.
func (q *Queue) Parts() iter.Seq2[int, *Queue] {
	return func(yield func(int, *Queue) bool) {
		left := q.Jobs.N
		for i, r := range q.Jobs.ranks {
			if r.jobs.N == 0 {
				continue
			}
			part, jobs := *q, *q.Jobs
			jobs.N, jobs.ranks = left, jobs.ranks[i:]
			part.Jobs = &jobs
			if !yield(r.priority, &part) {
				return
			}
			left -= r.jobs.N
		}
	}
}

// own is the priority that a job has besides that of its batch.
func (b *Batch) own(i uint32) int {
	if int(i) < len(b.Own) {
		return int(b.Own[i])
	}
	return 0
}
