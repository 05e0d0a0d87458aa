package head

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"distribute/lib/noded"
	"distribute/lib/proc"
)

// A later is what ends a fault.
type later struct {
	at time.Time
	do func()
}

// harm does things to the world at random times, and looks at it after each.
func (w *world) harm() {
	var laters []later
	until := func(longest time.Duration, do func()) {
		laters = append(laters, later{time.Now().Add(time.Duration(w.r.Int64N(int64(longest)))), do})
	}
	for range w.plan.acts {
		gap := w.plan.gap
		if w.r.IntN(2) == 0 {
			gap /= 100 // in the middle of what the last act has begun
		}
		w.sleep(time.Duration(w.r.ExpFloat64() * float64(gap)))
		laters = slices.DeleteFunc(laters, func(l later) bool {
			due := !l.at.After(time.Now())
			if due {
				l.do()
			}
			return due
		})
		w.tend()
		synctest.Wait() // whoever has just been started is at rest, too
		w.harmOnce(until)
		synctest.Wait()
		w.look()
		if w.failed() {
			return
		}
	}
	for _, l := range laters {
		l.do()
	}
}

// tend starts dsched again where it has ended because its disk failed: what the
// disk does not have now it does not have.
func (w *world) tend() {
	if w.headOver() {
		w.act("dsched has ended, and starts again")
		w.haltHead(true)
		w.startHead()
	}
}

// A harm is something that befalls the world. It is given a node that it may
// befall, and until, which does what ends it within so long.
type harm struct {
	weight int
	do     func(w *world, n *simNode, until func(time.Duration, func()))
}

var harms = []harm{
	{16, (*world).ambush},
	{6, func(w *world, _ *simNode, until func(time.Duration, func())) {
		power, how := w.power()
		w.act("head %s", how)
		w.haltHead(power)
		until(w.shortly(), w.startHead)
	}},
	{16, func(w *world, n *simNode, until func(time.Duration, func())) {
		power, how := w.power()
		w.act("%s %s", n.name, how)
		n.halt(power)
		until(w.shortly(), n.start)
	}},
	{3, func(w *world, n *simNode, until func(time.Duration, func())) {
		w.act("%s installed anew", n.name)
		n.halt(true)
		n.wipe()
		until(time.Minute, n.start)
	}},
	{15, func(w *world, n *simNode, until func(time.Duration, func())) {
		w.act("%s cut off", n.name)
		w.net.partition(n.name, true)
		until(time.Duration(1+w.r.IntN(200))*time.Second, func() {
			w.act("%s back", n.name)
			w.net.partition(n.name, false)
		})
	}},
	{17, func(w *world, n *simNode, _ func(time.Duration, func())) {
		host := []string{n.name, "ana"}[w.r.IntN(2)]
		w.act("streams of %s reset", host)
		w.net.reset(w.net.of(host))
	}},
	{5, func(w *world, _ *simNode, _ func(time.Duration, func())) {
		w.act("the network takes up to %v", w.net.take(time.Duration(1+w.r.IntN(2000))*time.Millisecond))
	}},
	{6, func(w *world, n *simNode, until func(time.Duration, func())) {
		w.slowDisk([]string{"head", n.name}[w.r.IntN(2)], until)
	}},
	{3, func(w *world, _ *simNode, _ func(time.Duration, func())) {
		w.act("the next sync of the head fails")
		w.set(func() { w.broken["head"] = true })
	}},
	{5, func(w *world, _ *simNode, until func(time.Duration, func())) {
		w.act("the head's disk is full")
		w.set(func() { w.full = true })
		until(time.Minute, func() { w.act("the head's disk has room"); w.set(func() { w.full = false }) })
	}},
	{4, func(w *world, _ *simNode, until func(time.Duration, func())) {
		w.act("the head has no descriptors left")
		w.set(func() { w.few = true })
		until(time.Minute, func() { w.act("the head has descriptors"); w.set(func() { w.few = false }) })
	}},
	{4, func(w *world, _ *simNode, until func(time.Duration, func())) {
		w.act("the disks of the nodes are full")
		w.set(func() { w.filled = true })
		until(time.Minute, func() { w.act("the disks of the nodes have room"); w.set(func() { w.filled = false }) })
	}},
	{6, (*world).stepClock},
	{4, func(w *world, _ *simNode, until func(time.Duration, func())) {
		if h := w.headNow(); h != nil {
			w.act("the clock of the head is in another century, and what nobody needs is collected")
			w.setClock(1e6 * time.Hour)
			w.hands.Go(func() { // the first time the clock was just set
				h.collect(w.ctx)
				h.collect(w.ctx)
			})
			until(time.Second, func() { w.setClock(0) })
		}
	}},
	{3, func(w *world, n *simNode, _ func(time.Duration, func())) {
		if n.killSupervisor() {
			w.act("a supervisor of %s killed", n.name)
		}
	}},
	{3, func(w *world, n *simNode, _ func(time.Duration, func())) { w.rot(n) }},
	{6, (*world).breaks},
	{16, func(w *world, n *simNode, until func(time.Duration, func())) { w.pauses(n, until, w.r.IntN(3) > 0) }},
	{12, func(w *world, _ *simNode, _ func(time.Duration, func())) {
		w.act("nothing for a while")
		w.sleep(time.Duration(w.r.IntN(60)) * time.Second)
	}},
}

// slowDisk has the disk of a machine take long for each sync.
func (w *world) slowDisk(who string, until func(time.Duration, func())) {
	d := time.Duration(1+w.r.IntN(30)) * time.Second
	w.act("the disk of %s takes %v a sync", who, d)
	w.set(func() { w.stall[who] = d })
	until(40*time.Second, func() { w.set(func() { w.stall[who] = 0 }) })
}

// pauses has a person pause a node, if there is one, one that has something to do: its jobs
// leave it, or wait.
func (w *world) pauses(n *simNode, until func(time.Duration, func()), out bool) {
	for _, other := range w.nodes {
		if other.busy() {
			n = other
		}
	}
	w.act("%s is paused (out: %v)", n.name, out)
	n.setPause(noded.Stand{Frozen: true, Out: out})
	until(time.Duration(1+w.r.IntN(300))*time.Second, func() {
		w.act("%s is used again", n.name)
		n.setPause(noded.Stand{})
	})
}

// harmOnce does one thing.
func (w *world) harmOnce(until func(time.Duration, func())) {
	n := w.nodes[w.r.IntN(len(w.nodes))]
	if w.plan.rolls && w.r.IntN(8) == 0 {
		w.rollBack()
		return
	}
	if w.themedHarm(n, until) {
		return
	}
	if w.plan.verbs && w.r.IntN(16) == 0 {
		off := []time.Duration{0, time.Minute, -time.Hour, 20000 * time.Hour, -200000 * time.Hour}[w.r.IntN(5)]
		w.act("the clock of %s is off by %v", n.name, off)
		n.setClock(off)
		return
	}
	all := 0
	for _, h := range harms {
		all += h.weight
	}
	x := w.r.IntN(all)
	for _, h := range harms {
		if x -= h.weight; x < 0 {
			h.do(w, n, until)
			return
		}
	}
}

// power says whether the power is cut, or only the process killed.
func (w *world) power() (bool, string) {
	if w.r.IntN(2) == 0 {
		return true, "without power"
	}
	return false, "killed"
}

// shortly is how long something is down at most: mostly not for long.
func (w *world) shortly() time.Duration {
	if w.r.IntN(3) == 0 {
		return 4 * time.Minute
	}
	return 3 * time.Second
}

// ambush waits for a sync, and strikes in the middle of it or right after it.
func (w *world) ambush(n *simNode, until func(time.Duration, func())) {
	t := &trap{"head", "", w.r.IntN(2) == 0, make(chan struct{})}
	if w.r.IntN(3) == 0 {
		t.machine = n.name
	}
	some := traps[t.machine == "head"]
	t.of = some[w.r.IntN(len(some))]
	w.ambushAt(t, n, until)
}

// ambushAt waits for the sync of a trap, and strikes there.
func (w *world) ambushAt(t *trap, n *simNode, until func(time.Duration, func())) {
	power, how := w.power()
	w.set(func() { w.trap = t })
	select {
	case <-t.sprung:
		synctest.Wait()
		w.act("%s %s at a sync of %s (done: %v)", t.machine, how, t.of, t.after)
	case <-time.After(20 * time.Second):
		w.set(func() { w.trap = nil })
		return
	}
	if t.machine == "head" {
		w.haltHead(power)
		until(10*time.Second, w.startHead)
	} else {
		n.halt(power)
		until(10*time.Second, n.start)
	}
}

// rot changes a byte of what an attempt left on a node, which must not come home
// as its result.
func (w *world) rot(n *simNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		name := n.disk.root + "/" + r.rel + "/work/result.txt"
		info, err := os.Stat(name)
		if record, err := os.ReadFile(n.disk.root + "/" + r.rel + "/" + proc.RecordFile); err != nil || !hasResult(record) {
			continue // what it is has not been written down yet
		}
		if r.node != n || !r.over || err != nil || info.Size() == 0 {
			continue
		}
		text := []byte(r.text)
		text[w.r.IntN(len(text))] ^= 1
		if err := errors.Join(os.WriteFile(name, text, 0o600), os.Chtimes(name, info.ModTime(), info.ModTime())); err != nil {
			panic(err)
		}
		r.excused = true
		w.acts = append(w.acts, fmt.Sprintf("%v what %s left on %s rots", w.at(), r.token, n.name))
		return
	}
}

// A trap waits for a sync, to do harm in the middle of it or right after it.
type trap struct {
	machine, of string
	after       bool
	sprung      chan struct{}
}

// traps are syncs that are worth it, by the ends of their names.
var traps = map[bool][]string{
	true:  {"/log.jsonl", "/head.jsonl", "/staging", "/out", "/manifests", "/attempts", "/lab", "/jobs.jsonl", "/result.txt", "/tree", "/manifest.jsonl"},
	false: {"/attempts", "/attempt.jsonl", "/result.txt", "/work", "/output"},
}

// spring holds a sync up for a moment if there is a trap for it.
func (w *world) spring(machine, name string, after bool) {
	w.mu.Lock()
	t := w.trap
	hit := t != nil && t.machine == machine && t.after == after && strings.HasSuffix(name, t.of)
	if hit {
		w.trap = nil
	}
	w.mu.Unlock()
	if hit {
		close(t.sprung)
		time.Sleep(time.Second)
	}
}

// rollBack keeps a copy of the spool, and the second time puts the spool back
// to it: an operator who had a backup.
func (w *world) rollBack() {
	copied := w.head.disk.kill(w.newRoot("backup"))
	w.stopHead(false)
	synctest.Wait()
	if w.head.old == "" {
		w.act("a backup of the spool")
		w.head.old = copied.root
	} else {
		w.act("the spool is put back to the backup")
		w.sleep(10 * time.Second) // what was on its way to people has come
		old := &simDisk{root: w.head.old, saved: map[inode]*image{}, asked: map[inode]*image{}, known: map[inode]bool{}}
		copied = old.kill(w.newRoot("head"))
		w.set(func() { w.rolled = true; clear(w.facts) })
	}
	next := w.newDisk("head", copied.root)
	w.set(func() { w.head.disk = next })
	w.startHead()
}

// heal ends all faults; then everything must come right.
func (w *world) heal() {
	w.act("everything is healed")
	w.set(func() { w.full, w.few, w.filled, w.calm = false, false, false, true; clear(w.stall); clear(w.broken) })
	w.net.take(10 * time.Millisecond)
	w.endTwins()
	for _, n := range w.nodes {
		w.net.partition(n.name, false)
		n.setPause(noded.Stand{})
		n.setBroken(false)
		if n.copied { // as the logs say
			n.halt(true)
			n.wipe()
		}
		if n.renamed {
			n.halt(false)
			n.setRenamed(false)
		}
		n.start()
	}
	w.startHead()
	w.sleep(time.Minute) // what its disk has not done yet may still fail
	w.tend()
	w.sleep(2 * time.Minute)
	w.look()
	if w.headOver() {
		w.wrong("dsched is down three minutes after the last fault")
		return
	}
	w.awaitUnsaid()
	w.nodesAreBack()
	if w.plan.theme == themeLimits {
		w.moreTime()
	}
	rounds := 240
	if w.plan.theme == themeLimits { // whose jobs are long
		rounds = 2000
	}
	for range rounds {
		if w.allOver() {
			w.sleep(10 * time.Second) // the nodes hear of it
			w.atRest()
			return
		}
		w.sleep(15 * time.Second)
		w.look()
		if w.failed() {
			return
		}
	}
	w.stuckJobs()
}
