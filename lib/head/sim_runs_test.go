package head

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// begins notes that an attempt runs, and what it will leave. It must be its
// first time (I5), and within what the node offers (I9).
func (w *world) begins(n *simNode, o *simOrder) *simRun {
	id := ""
	for _, e := range o.Env {
		if text, ok := strings.CutPrefix(e, "DISTRIBUTE_ID="); ok {
			id = text
		}
	}
	n.mu.Lock()
	used, free, enough := 0, job.AllCards([]int{0, 1}), true
	for _, other := range n.orders {
		used += other.cpus
		enough = enough && free.Hold(other.cards)
		free = free.Minus(other.cards)
	}
	n.mu.Unlock()
	if !enough {
		w.wrong("I9: %s gives more of a GPU than there is", n.name)
	}
	if used > n.cpus {
		w.wrong("I9: %s runs %d cpus and offers %d", n.name, used, n.cpus)
	}
	began := n.goesOn(o)
	w.mu.Lock()
	twice := w.runs[job.Token(o.Token)]
	r := &simRun{token: job.Token(o.Token), job: job.ID(id), node: n, rel: o.rel,
		text: fmt.Sprintf("%s %s %s\n", id, o.Token, n.name), at: w.path(), more: strings.Repeat(o.Token, w.large(w.r.IntN(200))), began: began, limit: o.Time}
	earlier := 0
	for _, other := range w.runs {
		if !other.abroad && other.node.putBack {
			continue // its image may have been as new as its last session
		}
		if other.job == r.job && other.saved == 0 { // one that has saved itself is meant to go on
			earlier++
		}
	}
	w.runs[r.token] = r
	once := w.never[r.job.Batch()] && !w.rolled && earlier > w.fact(r.job).retries
	w.mu.Unlock()
	if once {
		w.wrong("I15: %s must not be started twice, and runs again on %s", id, n.name)
	}
	if twice != nil {
		w.wrong("I5: attempt %s of %s runs a second time, on %s after %s", r.token, id, n.name, twice.node.name)
	}
	return r
}

// inputOf is what the job's input has in it, if it has one.
func (w *world) inputOf(id job.ID) (text string, known bool) {
	if w.isDeleted(id.Batch()) {
		return "", false // it may be another's now
	}
	for _, b := range w.allBatches() {
		for _, j := range b.known() {
			if b.id.Job(j.Name) != id {
				continue
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, in := range slices.Concat(b.spec.Inputs, j.Inputs) {
				text, known = b.blobs[in.Sum], true
			}
			return text, known
		}
	}
	return "", false
}

// isBuilt says that a batch has a build.
func (w *world) isBuilt(id job.BatchID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.built[id]
}

func (w *world) ends(r *simRun, st *proc.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.ran, r.timed = st.Wall, st.Stopped == proc.StoppedTime
	r.over, r.ok = true, st.Exit != nil && *st.Exit == 0 && st.Stopped == ""
}

// odd is an error of a supervisor's own files. After power was cut anything goes.
func (w *world) odd(o *simOrder, err error) error {
	select {
	case <-o.lost:
	default:
		w.wrong("a supervisor cannot write: %v", err)
	}
	return errDead
}

// excuse notes which results of a node may vanish, because it lost power before
// they were on its disk: each with all that is in it, in whatever order.
func (w *world) excuse(n *simNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		if r.node == n && !r.excused {
			record, _ := n.disk.trusted(r.rel + "/" + proc.RecordFile)
			text, _ := n.disk.trusted(r.rel + "/work/result.txt")
			r.excused = !hasResult(record) || string(text) != r.text || !n.disk.holds(r.rel+"/"+proc.RecordFile) ||
				!n.disk.holds(r.rel+"/work/"+r.at) || !n.disk.holds(r.rel+"/output")
		}
	}
}

// hasResult says whether the record of an attempt says how that ended.
func hasResult(record []byte) bool { return bytes.Contains(record, []byte("\n"+`{"result":`)) }

func (w *world) excuseAll(n *simNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		r.excused = r.excused || r.node == n
	}
}

// path is where an attempt leaves its second file: some paths are as long as they may be.
func (w *world) path() string {
	if !w.plan.verbs || w.r.IntN(16) > 0 && !(w.plan.long && w.r.IntN(2) == 0) {
		return "sub/more.bin"
	}
	long := strings.Repeat(strings.Repeat("d", 250)+"/", 17)
	return long[:maxPath-w.r.IntN(3)]
}

// maxPath is how long the path of a file can be that a job makes in its directory.
const maxPath = 4077

// large makes some of so many words more than a small result has, which comes by a stream
// of its own and has a file for its manifest.
func (w *world) large(words int) int {
	if words < 25 {
		return words + 2*pack.SmallBytes/32
	}
	return words
}
