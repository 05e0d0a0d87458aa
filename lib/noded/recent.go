package noded

import "distribute/lib/job"

// maxRecent is how many tokens at least are remembered.
const maxRecent = 1 << 12

// A recent is a set of the last tokens that were added, maxRecent to twice as
// many.
type recent struct{ last, before map[job.Token]bool }

func (r *recent) add(t job.Token) {
	if len(r.last) == maxRecent {
		r.before, r.last = r.last, nil
	}
	if r.last == nil {
		r.last = map[job.Token]bool{}
	}
	r.last[t] = true
}

func (r *recent) has(t job.Token) bool { return r.last[t] || r.before[t] }
