package head

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/check"
	"distribute/lib/cli"
	nodedesk "distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// look checks what can be seen at any moment: a node has deleted nothing that
// the head has not safe (I3), and the logs say what the head has in memory.
func (w *world) look() {
	w.mu.Lock()
	var there []*simRun
	for _, r := range w.runs {
		if r.ok && !r.gone && !r.excused {
			there = append(there, r)
		}
	}
	rolled := w.rolled
	w.mu.Unlock()
	if w.r.IntN(3) == 0 {
		w.ask(w.replays)
		w.ask(w.wordsHold)
	}
	for _, r := range there {
		if _, err := os.Lstat(r.node.path(r.rel)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		r.gone = true
		if why := w.unsafe(r); why != "" && !rolled {
			w.wrong("I3: %s has deleted attempt %s of %s, but %s", r.node.name, r.token, r.job, why)
		}
	}
}

// replays checks that the log of each open batch, folded anew, says what the head
// has in memory, when all of it is on the disk (I8).
func (w *world) replays(h *Head) {
	if h.ticks.committing != nil || h.ticks.placing != nil || len(h.ticks.actions)+len(h.ticks.waiting) > 0 || h.store.Pending() {
		return
	}
	all := w.allBatches()
	for id, n := range h.byID {
		var i uint32
		states := map[string]job.State{}
		err := h.spool.Read(id, -1, func(r *job.Row) error {
			states[r.Job] = r.State
			if s := h.machine.State(sched.Ref{Batch: n, Job: i}); s != r.State.Logged() {
				w.wrong("I8: %s is %s by its log, and %s in memory", r.ID, r.State, s)
			}
			i++
			return nil
		})
		if err != nil {
			w.wrong("I8: the log of %s cannot be read: %v", id, err)
		}
		for _, b := range all {
			if b.id == id && !w.isDeleted(id) {
				w.gatesHold(b, states)
			}
		}
	}
}

// unsafe says why a result may not be deleted: by what is on the disk of the
// head for certain, neither it is there nor another of its job, and nobody gave
// the job up.
func (w *world) unsafe(r *simRun) string {
	dir := "batches/" + string(r.job.Batch())
	w.mu.Lock()
	doomed := w.doomed[r.job.Batch()] // a deletion that is refused lets go of results, too
	lost := w.word(node.Name(r.node.name)).lost || w.word(r.node.alias()).lost
	w.mu.Unlock()
	if doomed {
		return ""
	}
	text, ok := w.head.disk.durably(dir + "/log.jsonl")
	if !ok {
		return "its batch's log is not on the head's disk"
	}
	why := "nothing of it is in the head's log"
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var rec job.Record
		if json.Unmarshal(lines.Bytes(), &rec) != nil || rec.Job != r.job.Name() {
			continue
		}
		switch {
		case rec.Kind == job.KindCancelled, rec.Kind == job.KindDone && rec.Attempt != r.token:
			return ""
		case rec.Kind == job.KindFailed && rec.Fate == job.FateLost && lost: // of who was given up
			return ""
		case rec.Attempt == r.token && rec.Manifest != "":
			why = "its files are not on the head's disk"
			for _, at := range []string{"staging/" + string(r.token) + "/tree", "out/" + r.job.Name(), fmt.Sprintf("attempts/%s~%d", r.job.Name(), rec.Try)} {
				if text, ok := w.head.disk.durably(dir + "/" + at + "/result.txt"); ok && string(text) == r.text {
					why = "its manifest is not on the head's disk"
				}
			}
			for _, at := range []string{"staging/" + string(r.token) + "/manifest.jsonl", "manifests/" + r.job.Name() + ".jsonl", fmt.Sprintf("manifests/%s~%d.jsonl", r.job.Name(), rec.Try)} {
				_, ok := w.head.disk.durably(dir + "/" + at)
				if (ok || rec.List != nil) && why == "its manifest is not on the head's disk" {
					return ""
				}
			}
		}
	}
	return why
}

// inspect lets dfsck look at a machine's disk that nothing uses, as a crash has
// left it: what it finds must be of these kinds.
func (w *world) inspect(who, root string, legal ...check.Kind) {
	tell := func(f *check.Finding) error {
		bare := w.isBare() && who == "head" && strings.HasSuffix(f.What, "the directory is missing")
		if !slices.Contains(legal, f.Kind) && !bare {
			w.wrong("dfsck: %s has %s", who, f.Text())
		}
		return nil
	}
	r := &check.Run{Dir: root, Sums: true, Tell: tell}
	var err error
	if who == "head" {
		err = spool.Check(context.Background(), r)
	} else {
		err = nodedesk.Check(context.Background(), r, "the next", func(string) (bool, error) { return false, nil })
	}
	if err != nil && !errors.Is(err, nodedesk.ErrNoDesk) {
		w.wrong("dfsck: %s: %v", who, err)
	}
}

// ask lets the state's goroutine of the head answer.
func (w *world) ask(f func(h *Head)) bool {
	h := w.headNow()
	return h != nil && h.do(func() { f(h) })
}

// headNow is the head that runs, nil if it is down or not yet up.
func (w *world) headNow() *Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head.h
}

// nodesAreBack checks that each node has a session.
func (w *world) nodesAreBack() {
	back := map[node.Name]bool{}
	w.ask(func(h *Head) {
		for _, r := range h.machine.Nodes() {
			back[r.Node] = r.State != node.Lost && h.nodes.sessions[h.nodes.byName[r.Node]] != nil
		}
	})
	for _, n := range w.nodes {
		if !back[node.Name(n.name)] {
			w.wrong("%s is not back three minutes after the last fault", n.name)
		}
	}
}

// allOver says that everybody has submitted what he wanted to, and that no batch
// is open.
func (w *world) allOver() bool {
	for _, b := range w.allBatches() {
		if !b.accepted.Load() {
			return false
		}
	}
	if waiting, _ := filepath.Glob(w.head.disk.root + "/incoming/[^.]*"); len(waiting) > 0 { // not what a dsubmit that was cut was making
		return false
	}
	open, kept := 1, 0
	up := w.ask(func(h *Head) {
		open = len(h.batches)
		for n := range h.batches {
			if h.machine.Open(n) == 0 && h.machine.Waits(n) {
				kept++
			}
		}
	})
	if !up || open == 0 || open > kept || !w.someLost() {
		w.keptFor = 0
		return up && open == 0
	}
	w.keptFor++ // what was given up and is there after all is kept, until its batch is deleted
	return w.keptFor > 20
}

// someLost reports whether something was given up by the word of an operator, or of a copy of
// its node, or cannot come home because its node has another name.
func (w *world) someLost() bool {
	if w.hasCopies() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, word := range w.words {
		if word.lost {
			return true
		}
	}
	return false
}

// deleteAll deletes all batches, of which nothing is left then anywhere.
func (w *world) deleteAll() {
	p := w.operator()
	for _, b := range w.allBatches() {
		if w.r.IntN(2) == 0 {
			p.once(func(h *ask.Head) error { return p.would(h, "retry", string(b.id)) })
		}
		before := w.isDeleted(b.id)
		for deleted := before && b.gone.Load(); !deleted; {
			if err := p.once(func(h *ask.Head) error { return p.remove(h, b) }); err != nil {
				if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.NoSuch && before {
					break // of somebody who was not told so
				}
				w.wrong("%s cannot be deleted at the end: %v", b.id, err)
				return
			}
			deleted = true
			if !b.gone.Load() {
				w.ask(func(h *Head) {
					if h.store.Deleted(b.id) || h.byID[b.id] == 0 && !h.store.Closed(b.id) {
						return // it was deleted before by who was not told, or never came
					}
					w.wrong("%s is not deleted at the end", b.id)
				})
			}
		}
	}
	w.lastBatch()
	w.sleep(5 * time.Minute)
	w.ask(func(h *Head) {
		if len(h.batches) > 0 {
			w.wrong("%d batches are open that were deleted", len(h.batches))
		}
	})
}

func (w *world) allBatches() (all []*simBatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.people {
		all = append(all, p.batches...)
	}
	return all
}

// stuckJobs says what did not come to its end.
func (w *world) stuckJobs() {
	for _, b := range w.allBatches() {
		if !b.accepted.Load() {
			w.wrong("%s is still not submitted", b.id)
		}
	}
	w.ask(func(h *Head) {
		for id, n := range h.byID {
			left := ""
			for i := range h.batches[n].Jobs() {
				ref := sched.Ref{Batch: n, Job: uint32(i)}
				if s := h.machine.State(ref); !s.Over() {
					left += fmt.Sprintf(" j%d is %s (%s)", i, s, h.machine.Reasons(n)(i).Why)
				}
			}
			if left == "" {
				left = " all jobs are over"
			}
			h.machine.Live(func(a sched.Attempt) {
				if a.Ref.Batch == n {
					left += fmt.Sprintf("; attempt %s on %s is %s", a.Token, a.Node, a.Phase)
				}
			})
			w.wrong("liveness: %s is still open an hour after the last fault:%s", id, left)
		}
	})
}

// atRest checks what is left when all is over: every job has one end, which is
// what was told of it; a done job has the result of one of its attempts; nothing
// lies about, neither in the spool nor on the nodes.
func (w *world) atRest() {
	s, err := spool.Open(w.head.disk.root)
	if err != nil {
		w.wrong("%v", err)
		return
	}
	for _, b := range w.allBatches() {
		w.batchAtRest(s, b)
	}
	w.mu.Lock()
	rolled := w.rolled
	w.mu.Unlock()
	if rolled {
		return
	}
	if w.plan.verbs {
		if !w.someLost() {
			w.emptyNodes()
			w.askedAgain()
		}
		w.deleteAll()
	}
	w.inspect("head", w.killedAtRest())
	w.empty("the head", w.head.disk.root, "batches/*/*/staging/*", "batches/*/.new-*", "trash/*")
	w.emptyNodes()
	for _, n := range w.nodes {
		w.inspect(n.name, n.disk.kill(w.newRoot(n.name)).root)
	}
}

// emptyNodes checks that nothing of any job is left on the nodes. One that was ahead of the head
// keeps what the head gave up and then deleted while it was away: it may be of a later batch.
func (w *world) emptyNodes() {
	var clocks [2]time.Duration
	w.set(func() { clocks = w.clocks })
	for _, n := range w.nodes {
		if (n.ahead || clocks[0] < 0) && w.someLost() {
			continue
		}
		w.empty(n.name, n.path(), "attempts/*", "trash/*", "builds/*")
	}
}

// killedAtRest is what lies on the head's disk when dsched is killed while nothing is
// being written down.
func (w *world) killedAtRest() (root string) {
	for root == "" {
		there := w.ask(func(h *Head) {
			if h.ticks.committing == nil {
				root = w.head.disk.kill(w.newRoot("head")).root
			}
		})
		if !there {
			return w.head.disk.kill(w.newRoot("head")).root
		}
		time.Sleep(time.Millisecond)
	}
	return root
}

// empty checks that nothing is there.
func (w *world) empty(who, root string, globs ...string) {
	for _, g := range globs {
		names, err := filepath.Glob(root + "/" + g)
		if err != nil || len(names) > 0 {
			w.wrong("leftover: %s has %q (%v)", who, names, err)
		}
	}
}

func (w *world) batchAtRest(s *spool.Spool, b *simBatch) {
	dir := filepath.Join(w.head.disk.root, "batches", string(b.id))
	w.mu.Lock()
	deleted, rolled := w.deleted[b.id] > 0, w.rolled
	w.mu.Unlock()
	if deleted {
		if _, err := os.Lstat(dir); err == nil && b.gone.Load() && !rolled {
			w.wrong("I4: %s was said to be deleted, and is there", b.id)
		}
		return
	}
	found := map[string]job.State{}
	err := s.Read(b.id, -1, func(r *job.Row) error {
		found[r.Job] = r.State
		w.told(r.ID, r.State)
		return nil
	})
	if err != nil {
		if !rolled {
			w.wrong("I6: %s was accepted, and cannot be read: %v", b.id, err)
		}
		return
	}
	for i, j := range b.all() {
		id := b.id.Job(j.Name)
		st, ok := found[j.Name]
		if !ok && rolled && i >= b.first {
			continue // it was added since
		}
		if !ok || !st.Over() {
			w.wrong("I6: %s is %v at the end (there: %v)", id, st, ok)
		}
		files, err := readTree(filepath.Join(dir, "out", j.Name))
		switch {
		case st != job.Done && err == nil:
			w.wrong("I1: %s is %s, and has a result", id, st)
		case st == job.Done && err != nil:
			w.wrong("I2: %s is done, and has no result: %v", id, err)
		case st == job.Done:
			w.result(id, files)
		}
	}
	w.logAtRest(s, b)
	w.triesAtRest(s, b)
	if !rolled {
		w.startsAtRest(s, b)
		w.stepsAtRest(s, b)
		w.limitsAtRest(s, b)
		w.lossesAtRest(s, b)
	}
}

// logAtRest checks a log: its numbers grow, and no job is done twice (I1, I8).
func (w *world) logAtRest(s *spool.Spool, b *simBatch) {
	var last uint64
	done := map[string]int{}
	starts := map[job.Token]bool{}
	_, err := s.Events(b.id, 0, -1, func(rec *job.Record) error {
		if rec.Seq <= last {
			w.wrong("I8: record %d of %s comes after %d", rec.Seq, b.id, last)
		}
		last = rec.Seq
		switch rec.Kind {
		case job.KindDone:
			done[rec.Job]++
		case job.KindStart:
			if starts[rec.Attempt] {
				w.wrong("I5: the log of %s starts %s twice", b.id, rec.Attempt)
			}
			starts[rec.Attempt] = true
			for _, name := range b.before(rec.Job) {
				if done[name] == 0 && rec.Node != string(hpc) {
					w.wrong("%s of %s is started before %s is done", rec.Job, b.id, name)
				}
			}
		}
		return nil
	})
	for name, n := range done {
		if n > 1 {
			err = errors.Join(err, fmt.Errorf("%s is done %d times", name, n))
		}
	}
	if err != nil {
		w.wrong("I1: the log of %s: %v", b.id, err)
	}
}

// readTree is all files of a directory.
func readTree(dir string) (map[string]string, error) {
	files := map[string]string{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return files, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := root.ReadFile(p)
		files[p] = string(b)
		return err
	})
	return files, err
}

// removed says that a disk of a history in which something was wrong is gone: none
// ever is, so something else has removed it, such as a sweep of temporary
// directories, and nothing that was found means anything.
func (w *world) removed() {
	if !w.failed() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.disks)) {
		if _, err := os.Lstat(filepath.Join(w.base, name)); err != nil {
			w.wrong("nothing of this counts, for something else has removed a disk under it: %v", err)
			return
		}
	}
}

// story is what was wrong and what was done, for who looks for a mistake.
func (w *world) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Concat([]string{"what is wrong:"}, w.faults, []string{"what was done:"}, w.acts), "\n  ")
}
