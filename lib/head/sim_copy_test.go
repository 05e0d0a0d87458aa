package head

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
	"distribute/spool"
)

// copies has the directory of a node be that of two: somebody has copied a desk's disk to another
// machine, which has another name or, as an image of the same machine, the same one. Both
// try to connect, and the first is often cut off meanwhile. Or a virtual machine is put back to an
// image of an hour ago: an operator lets it in again, if it is refused.
func (w *world) copies(n *simNode, until func(time.Duration, func())) {
	switch x := w.r.IntN(4); {
	case n.image != nil && x < 2 && n.twin == nil:
		w.act("%s is put back to its image", n.name)
		n.halt(true)
		n.restore()
		until(3*time.Second, n.start)
		w.hands.Go(func() { w.operator().loses(n) })
	case n.twin != nil:
		w.act("%s cut off, and the copy of its directory starts again", n.name)
		w.net.partition(n.name, true)
		n.twin.halt(w.r.IntN(2) == 0)
		until(3*time.Second, n.twin.start)
		until(20*time.Second, func() { w.act("%s back", n.name); w.net.partition(n.name, false) })
	case x == 0, n.wiped, !w.knows(n): // a copy is let in if an operator gives the node up, or it comes first
		w.act("an image of %s is made", n.name)
		n.image = n.copyDisk()
	default:
		w.twin(n, until)
	}
}

// twin starts a copy of a node on another machine.
func (w *world) twin(n *simNode, until func(time.Duration, func())) {
	t := &simNode{w: w, name: n.name + "copy", cpus: n.cpus, orders: map[string]*simOrder{}, stills: map[string]bool{}, pause: simPause{news: make(chan struct{})}, disk: n.copyDisk(), copied: true}
	if w.r.IntN(3) == 0 {
		t.called = node.Name(n.name)
	}
	w.act("the directory of %s is copied to %s, which is called %q", n.name, t.name, t.nameNow())
	w.addDisk(t.disk)
	n.twin = t
	if w.r.IntN(2) == 0 {
		w.net.partition(n.name, true)
		until(20*time.Second, func() { w.act("%s back", n.name); w.net.partition(n.name, false) })
	}
	if t.called == "" {
		w.nodes = append(w.nodes, t) // one as others, from now on
	}
	until(5*time.Second, t.start)
}

// endTwins ends the copies of nodes that have the name of these.
func (w *world) endTwins() {
	for _, n := range w.nodes {
		if n.twin != nil && n.twin.called != "" && n.twin.isUp() {
			n.twin.halt(true)
		}
	}
}

// isUp reports whether the machine runs a daemon, or a job.
func (n *simNode) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.daemon != nil || len(n.orders) > 0
}

// hasCopies reports whether some directory of a node was copied, or put back.
func (w *world) hasCopies() bool { return w.plan.theme == themeCopies }

// copyDisk copies the disk of a machine while it runs.
func (n *simNode) copyDisk() *simDisk {
	synctest.Wait() // nothing is written meanwhile
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.disk.kill(n.w.newRoot(n.name + "copy"))
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.disk.dead = false
	return d
}

// restore puts the disk of the machine back to its image.
func (n *simNode) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wiped, n.putBack = true, true
	n.w.excuseAll(n)
	n.setDisk(n.image)
	n.image = nil
}

// knows reports whether the head has noted where the directory of a node is.
func (w *world) knows(n *simNode) bool {
	var its struct{ State string }
	about, _ := os.ReadFile(n.path("node.json"))
	log, _ := os.ReadFile(filepath.Join(w.head.disk.root, "head.jsonl"))
	return json.Unmarshal(about, &its) == nil && bytes.Contains(log, []byte(its.State))
}

// loses gives up a node that was put back to an image, unless that is not refused: then the node
// stays connected for longer than its old session could seem to last.
func (p *person) loses(n *simNode) {
	for connected := 0; connected < 6 && p.w.ctx.Err() == nil; {
		p.sleep(10 * time.Second)
		err := p.say("lost", n.nameNow())
		if err == nil {
			return
		}
		if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.Input {
			connected++
		}
	}
}

// replaced reports whether a node was installed anew, or is a copy of the directory of one that
// was: the head takes what comes then for a new installation.
func (w *world) replaced(n *simNode) bool {
	return n.wiped || slices.ContainsFunc(w.nodes, func(of *simNode) bool { return of.twin == n && of.wiped })
}

// lossesAtRest checks by a log that no attempt was taken for lost, or for one that never began, that
// runs on a node which has its directory, whatever copies of that there are. Of attempts that an
// operator gave up, see givenUp.
func (w *world) lossesAtRest(s *spool.Spool, b *simBatch) {
	_, err := s.Events(b.id, 0, -1, func(rec *job.Record) error {
		w.mu.Lock()
		r := w.runs[rec.Attempt]
		w.mu.Unlock()
		if strings.Contains(rec.Reason, gaveUp) {
			return nil
		}
		if rec.Kind != job.KindBack && rec.Kind != job.KindFailed || r == nil || r.abroad || r.dropped || r.excused || w.replaced(r.node) {
			return nil
		}
		if rec.Fate == job.FateLost && !strings.Contains(rec.Reason, "silent for") || rec.Fate.Unstarted() {
			w.wrong("attempt %s of %s/%s has run on %s, which never lost it, and is taken for %s: %s", rec.Attempt, b.id, rec.Job, r.node.name, rec.Fate, rec.Reason)
		}
		return nil
	})
	if err != nil {
		w.wrong("the log of %s: %v", b.id, err)
	}
}

// gaveUp follows the name of a node in the reason of a record: an operator gave up its attempts.
const gaveUp = " was given up"

// givenUp checks a line that the head logs when it gives up an attempt: an operator asks for that
// just now. The head logs the line before it answers the operator.
func (w *world) givenUp(line string) {
	before, _, given := strings.Cut(line, gaveUp)
	if !given || !strings.Contains(line, " who=head ") || !strings.Contains(line, " job=") {
		return
	}
	name := node.Name(before[strings.LastIndexAny(before, ` "`)+1:])
	w.mu.Lock()
	asking := w.word(name).asking
	w.mu.Unlock()
	if asking == 0 {
		w.wrong("no operator asks to give up %s: %s", name, line)
	}
}
