package sched

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// checkLearnt holds that each class asks for what the logs say that its like needed, and
// that it is known how long they take and may take.
func (r *rig) checkLearnt() error {
	for _, add := range r.adds {
		b, jobs := r.m.batches[add.Batch], max(0, add.Jobs)
		add = r.whole(add.Batch)
		memory, took, limit := map[*class][]int64{}, map[*class][]int64{}, map[*class]int64{}
		left, asks := map[*class][]int64{}, map[*class][]int64{}
		allow := func(i uint32, seconds int64) {
			c := b.queue(i).c
			if limit[c] = max(limit[c], seconds); seconds == 0 {
				limit[c] = math.MaxInt64
			}
		}
		known := 1 // queues
		sorted := func(from, to int) {
			for i := from; i < to; i++ {
				ask := Ask{}
				if add.Spec != nil {
					ask.Time, ask.Disk = add.Spec.Resources.Time, add.Spec.Resources.Disk
				}
				if i < len(add.Asks) {
					ask = add.Asks[i]
				}
				allow(uint32(i), ask.Time)
				c := b.queue(uint32(i)).c
				asks[c] = append(asks[c], ask.Disk)
				if b.class != nil {
					known = max(known, int(b.class[i])+1)
				}
			}
		}
		sorted(0, jobs)
		for _, e := range r.logs[add.Batch] {
			switch {
			case e.rec.Kind == job.KindAdded:
				sorted(jobs, jobs+e.rec.Jobs)
				jobs += e.rec.Jobs
			case e.rec.Kind == job.KindDone:
				c := b.queue(e.job).c
				memory[c] = append(memory[c], e.rec.MemoryPeak-e.rec.Cache)
				left[c] = append(left[c], e.rec.Bytes)
				took[c] = append(took[c], int64(math.Round(1000*e.rec.Runtime)))
			case e.rec.Set == nil || e.rec.Set.Time == nil:
			case e.job == AllJobs:
				for q := range b.all() {
					if !slices.ContainsFunc(b.queues[known:], func(later *queue) bool { return later.lore == q.lore }) {
						limit[q.c] = *e.rec.Set.Time
						if limit[q.c] == 0 {
							limit[q.c] = math.MaxInt64
						}
					}
				}
			default:
				allow(e.job, *e.rec.Set.Time)
			}
		}
		for q := range b.all() {
			said := q.c.share.cpus == 0 || q.c.share.memory > 0
			want := plainAbove(memory[q.c], 1)
			if said {
				want = 0
			}
			if q.c.share.learnt != want {
				return fmt.Errorf("batch %d: after %v a job counts with %d, should be %d", add.Batch, memory[q.c], q.c.share.learnt, want)
			}
			long := time.Duration(plainAbove(took[q.c], 3)) * time.Millisecond
			if disk := plainAbove(left[q.c], 1); q.jobs.n > 0 && q.lore.fills() != max(disk, slices.Min(asks[q.c])) {
				return fmt.Errorf("batch %d: after %v of the disk of %v a job counts with %d", add.Batch, left[q.c], asks[q.c], q.lore.fills())
			}
			if q.lore.takes() != long {
				return fmt.Errorf("batch %d: after %v ms a job takes %v at most, should be %v", add.Batch, took[q.c], q.lore.takes(), long)
			}
			if most := limit[q.c]; most < math.MaxInt64 {
				long = time.Duration(most) * time.Second
			}
			if q.jobs.n > 0 && q.lore.longest() != long {
				return fmt.Errorf("batch %d: a job takes %v at most, should be %v", add.Batch, q.lore.longest(), long)
			}
		}
	}
	return nil
}

// plainAbove is the greatest of n amounts and so many n-th parts of it, rounded up to
// four binary digits; 0 if they are fewer than three.
func plainAbove(all []int64, parts int64) int64 {
	most, n := int64(0), int64(0)
	for _, v := range all {
		if v > 0 {
			most, n = max(most, v), n+1
		}
	}
	if n < 3 {
		return 0
	}
	v := float64(most + most/n*parts)
	step := math.Exp2(max(0, math.Floor(math.Log2(v))-3))
	return int64(math.Ceil(v/step) * step)
}

// offering is a node that comes with so many cpus and so much memory.
func offering(session uint64, name string, cpus int, memory int64) Event {
	return NodeUp{Session: session, Node: node.Name(name), Boot: "b", State: "s" + name, Offer: node.Offer{CPUs: cpus, Memory: memory}}
}

// endWell ends all attempts of a batch, each of which had so much memory.
func (r *rig) endWell(batch uint32, memory int64) {
	var live []Attempt
	r.m.Live(func(a Attempt) {
		if a.Ref.Batch == batch && a.Result == nil {
			live = append(live, a)
		}
	})
	for _, a := range live {
		res := exited(0, "m")
		res.MemoryPeak = memory
		session := r.m.named[a.Node].session
		r.apply(Ended{session, a.Token, res})
		r.apply(Staged{Attempt: a.Token, Manifest: "m"})
		r.apply(Gone{session, a.Token})
	}
}

// runs is how many jobs of a batch run on a node.
func (r *rig) runs(batch uint32, name string) (n int) {
	r.m.Live(func(a Attempt) {
		if a.Ref.Batch == batch && string(a.Node) == name && a.Result == nil {
			n++
		}
	})
	return n
}

const gib = 1 << 30

// Jobs that say nothing of memory are packed by what three of their batch needed that
// asked for the same; others are as before.
func TestLearntMemory(t *testing.T) {
	for _, c := range []struct {
		name string
		spec job.Spec
		peak int64
		want int // that run then on a node of 8 cpus and 8 GiB
	}{
		{"much", job.Spec{Resources: job.Resources{CPUs: 1}}, 3 * gib, 2},
		{"some", job.Spec{Resources: job.Resources{CPUs: 1}}, 2 * gib, 3}, // each counts with 2.25G
		{"little", job.Spec{Resources: job.Resources{CPUs: 1}}, gib / 2, 8},
		{"not measured", job.Spec{Resources: job.Resources{CPUs: 1}}, 0, 8},
		{"more than there is", job.Spec{Resources: job.Resources{CPUs: 1}}, 100 * gib, 1},
		{"said", job.Spec{Resources: job.Resources{CPUs: 1, Memory: gib}}, 3 * gib, 8},
		{"whole nodes", job.Spec{}, 3 * gib, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.apply(Loaded{})
			r.apply(AddBatch{Batch: 1, Jobs: 40, Spec: &c.spec})
			r.apply(offering(1, "ws1", 8, 8*gib))
			r.apply(ListEnd{1})
			for range 3 {
				r.endWell(1, c.peak)
			}
			if n := r.runs(1, "ws1"); n != c.want {
				t.Errorf("%d jobs run", n)
			}
		})
	}
}

// A node that is too small for what its like needed gets a job only when no larger one
// can be used; what is in the way is told.
func TestLearntTooSmall(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/a", Jobs: 20, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}}})
	r.apply(offering(1, "ws1", 4, 10*gib))
	r.apply(ListEnd{1})
	r.endWell(1, 3*gib)
	r.endWell(1, 3*gib)
	if n := r.runs(1, "ws1"); n != 2 {
		t.Fatalf("%d jobs run", n)
	}
	r.apply(offering(2, "ws2", 4, 2*gib))
	r.apply(ListEnd{2})
	why := "2 of 2 nodes can run it, and it needs about 3.5G of memory (as 7 of its batch did): ws1 has 3G of memory left, ws2 has 2G of memory left"
	if n, got := r.runs(1, "ws2"), r.m.Reasons(1)(19).Why; n != 0 || got != why {
		t.Errorf("%d jobs run on the small node, and one waits: %s", n, got)
	}
	r.apply(AddBatch{Batch: 2, Jobs: 3, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}}})
	if n := r.runs(2, "ws1") + r.runs(2, "ws2"); n != 3 {
		t.Errorf("%d jobs of another batch run", n)
	}
	r.apply(Drain{"ws1", "ana"})
	if n := r.runs(1, "ws2"); n != 1 {
		t.Errorf("%d jobs run on the small node, where it is the only one", n)
	}
	r.endWell(1, 3*gib)
	if n := r.runs(1, "ws2"); n != 1 {
		t.Errorf("%d jobs run on the small node at once", n)
	}
}

// A node with less disk than a job says it writes, or others have left, is used only if no
// other has more; and when it tells that it has.
// Of a queue whose jobs ask for different amounts of disk the first is given to any node
// that has enough for some. What is then found too large for a node waits for a larger one,
// and the others go on there.
func TestDiskTooSmall(t *testing.T) {
	large := Ask{CPUs: 1, Disk: 100 * gib}
	small := Ask{CPUs: 1, Disk: gib}
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 4, Spec: &job.Spec{}, Asks: []Ask{large, large, small, small}})
	r.apply(NodeUp{Session: 1, Node: "ws1", Boot: "b", State: "s1", Offer: node.Offer{CPUs: 1, Disk: 50 * gib, DiskSize: 73 * gib}})
	script{
		{ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{Asks{tok(1), large.Disk}, ""},
		{ended(1, 1, noRoom), "back 1/0 a1 no_room (no room: needs 3G); FORGET 1 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{gone(1, 1), ""},
		{Asks{tok(2), large.Disk}, ""},
		{ended(1, 2, noRoom), "back 1/1 a2 no_room (no room: needs 3G); FORGET 1 a2; start 1/2 a3~1 ws1/1; START 1 1/2 a3"},
		{gone(1, 2), ""},
		{ended(1, 3, exited(0, "m")), "GRANT 1 a3; start 1/3 a4~1 ws1/1; START 1 1/3 a4"},
		{staged(3, "m"), "done 1/2 a3 m; PUBLISH 1/2 a3 out=true; HAVE 1 a3"},
		{gone(1, 3), ""},
	}.run(t, r)
	for range 100 {
		r.now += time.Minute
		r.apply(Heard{1})
		r.apply(Tick{})
	}
	if got, want := r.m.Why(Ref{1, 0}), "of the nodes that could run it none has a disk of 100G, the most is 73G on ws1"; got != want {
		t.Errorf("it waits since %q, should be %q", got, want)
	}
	r.apply(NodeUp{Session: 2, Node: "ws2", Boot: "b", State: "s2", Offer: node.Offer{CPUs: 2, Disk: 200 * gib, DiskSize: 200 * gib}})
	r.apply(ListEnd{2})
	if n := r.runs(1, "ws2"); n != 2 {
		t.Errorf("%d run where the disk is large enough", n)
	}
}

func TestLearntDisk(t *testing.T) {
	for _, c := range []struct {
		name       string
		says, left int64
		disk       int64 // of the other, later
		why        string
		want       int // that are then started there
	}{
		{"they say it", 3 * gib, 0, 4 * gib, "it needs 3G of the disk: ws1 busy, ws2 has 1G of its disk left", 2},
		{"others left it", 0, 3 * gib, 4 * gib, "it needs about 4G of the disk (as 3 of its batch did): ws1 busy, ws2 has 1G of its disk left", 2},
		{"others left more", 2 * gib, 3 * gib, 3 * gib, "it needs about 4G of the disk (as 3 of its batch did): ws1 busy, ws2 has 1G of its disk left", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.apply(Loaded{})
			r.apply(AddBatch{Batch: 1, Jobs: 9, Spec: &job.Spec{Resources: job.Resources{CPUs: 1, Disk: c.says}}})
			r.apply(up(1, "ws1", 1))
			r.apply(ListEnd{1})
			r.apply(Offered{1, node.Offer{CPUs: 1, Disk: 9 * gib}})
			for i := range 3 {
				res := exited(0, "m")
				res.Bytes = c.left
				r.apply(ended(1, i+1, res))
				r.apply(staged(i+1, "m"))
				r.apply(gone(1, i+1))
			}
			r.apply(NodeUp{Session: 2, Node: "ws2", Boot: "b", State: "s2", Offer: node.Offer{CPUs: 2, Disk: gib / 2, Kept: gib / 2}})
			r.apply(ListEnd{2})
			if got := r.m.Why(Ref{1, 8}); got != "2 of 2 nodes can run it, and "+c.why {
				t.Errorf("it waits: %s", got)
			}
			r.apply(Offered{2, node.Offer{CPUs: 2, Disk: c.disk}})
			if n := r.runs(1, "ws2"); n != c.want {
				t.Errorf("%d run where there is more", n)
			}
			r.apply(Drain{"ws1", "ana"})
			if n := r.runs(1, "ws2"); n != 2 {
				t.Errorf("%d run on the only node", n)
			}
		})
	}
}

// After a start a node that is too small is not used before larger ones had the time to
// come; what is known is the same.
func TestLearntAfterRestart(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, ID: "u/a", Jobs: 20, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}}})
	r.apply(offering(1, "ws1", 4, 10*gib))
	r.apply(ListEnd{1})
	r.endWell(1, 3*gib)
	r.endWell(1, 3*gib)
	before := r.m.Snapshot()
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	if r.m = m; m.Snapshot() != before {
		t.Errorf("it was\n%s, and is\n%s", before, m.Snapshot())
	}
	clear(r.uses)
	r.apply(Loaded{})
	r.apply(offering(2, "ws2", 4, 2*gib))
	r.apply(ListEnd{2})
	if n := r.runs(1, "ws2"); n != 0 {
		t.Errorf("%d jobs run on the small node at once", n)
	}
	r.now += settleTime
	r.apply(Tick{})
	if n := r.runs(1, "ws2"); n != 1 {
		t.Errorf("%d jobs run on the small node when no other has come", n)
	}
}

// A job whose like needed much is not passed over for ever by jobs that ask for the same,
// and need little.
func TestLearntDoesNotStarve(t *testing.T) {
	one := job.Spec{Resources: job.Resources{CPUs: 1}}
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 12, Spec: &one})
	r.apply(offering(1, "ws1", 4, 8*gib))
	r.apply(ListEnd{1})
	r.endWell(1, 6*gib)
	r.endWell(1, 6*gib) // which has them run one by one
	if n := r.runs(1, "ws1"); n != 1 {
		t.Fatalf("%d jobs run", n)
	}
	r.apply(AddBatch{Batch: 2, Jobs: 100, Owner: 1, Spec: &one})
	for range 30 {
		r.now += time.Minute
		r.endWell(2, gib/4)
		r.endWell(1, 6*gib)
		r.apply(Tick{})
	}
	if n := r.m.Open(1); n != 0 {
		t.Errorf("%d jobs are passed over", n)
	}
	if n := r.m.Open(2); n > 20 {
		t.Errorf("%d of the small ones are left", n)
	}
}

// While a node is kept for a job that asks for much, one starts there that ends before
// that can start, by what it says or what is known of its like.
func TestBackfill(t *testing.T) {
	timed := func(seconds int64) *job.Spec {
		return &job.Spec{Resources: job.Resources{CPUs: 1, Time: seconds}}
	}
	for _, c := range []struct {
		name      string
		first     int64 // seconds that what runs may run
		spec      *job.Spec
		took      float64 // of three like it
		want      int     // that start
		why       string
		afterward int64 // seconds that are set for it
		then      int
	}{
		{"it says nothing", 600, timed(0), 0, 0, "ws1 kept for a job of 4 cpus from about 700", 400, 1},
		{"it is short", 600, timed(600), 0, 1, "", 0, 1},
		{"it is long", 600, timed(660), 0, 0, "ws1 kept for a job of 4 cpus from about 700, while this one may take 11m", 599, 1},
		{"its like was short", 600, timed(0), 250, 1, "", 0, 1},
		{"its like was long", 600, timed(0), 350, 0, "ws1 kept for a job of 4 cpus from about 700, while this one may take 12m", 0, 0},
		{"its like was short, and it says more", 600, timed(700), 250, 0, "ws1 kept for a job of 4 cpus from about 700, while this one may take 11m", 0, 1},
		{"what runs says nothing", 0, timed(10), 0, 0, "ws1 kept for a job of 4 cpus", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Clock: plainClock})
			r.now = 100 * time.Second
			r.apply(Loaded{})
			r.apply(AddBatch{Batch: 4, Jobs: 5, Spec: c.spec})
			held := []uint32{3, 4}
			if c.took == 0 {
				held = all(r.m.batches[4])
			}
			r.apply(HoldJobs{Batch: 4, Jobs: held, By: "u"})
			r.apply(offering(1, "ws1", 4, 0))
			r.apply(ListEnd{1})
			for i := range 5 - len(held) {
				res := exited(0, "m")
				res.Runtime = c.took
				r.apply(ended(1, i+1, res))
				r.apply(staged(i+1, "m"))
				r.apply(gone(1, i+1))
			}
			r.apply(AddBatch{Batch: 1, Jobs: 3, Spec: timed(c.first)})
			r.apply(AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Resources: job.Resources{CPUs: 4}}})
			r.apply(HoldJobs{Batch: 4, Jobs: held, By: "u", Release: true})
			if n := r.runs(4, "ws1"); n != c.want {
				t.Fatalf("%d start", n)
			}
			if c.why != "" {
				if got := r.m.Why(Ref{4, 4}); got != "1 of 1 nodes can run it: "+c.why+"; 1 job goes first (by age)" {
					t.Errorf("it waits: %s", got)
				}
			}
			r.apply(SetBatch{Batch: 4, Set: job.Set{Time: &c.afterward}, Timed: all(r.m.batches[4]), By: "u"})
			if n := r.runs(4, "ws1"); n != c.then {
				t.Errorf("%d run when its time was set", n)
			}
		})
	}
}

// While a larger node rests those that are too small are used, one job at a time; when its
// rest is over they are not.
func TestLearntWhileOneRests(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 30, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}}})
	r.apply(offering(1, "ws1", 3, 10*gib))
	r.apply(ListEnd{1})
	r.endWell(1, 3*gib)
	r.apply(offering(2, "ws2", 4, 2*gib))
	r.apply(ListEnd{2})
	if n := r.runs(1, "ws2"); n != 0 {
		t.Fatalf("%d jobs run on the small node", n)
	}
	r.giveBack(1, "ws1")
	if n := r.runs(1, "ws2"); n != 1 {
		t.Errorf("%d jobs run on the small node while the other rests", n)
	}
	r.now += resting
	r.apply(Tick{})
	r.endWell(1, 3*gib)
	if n, small := r.runs(1, "ws1"), r.runs(1, "ws2"); n == 0 || small != 0 {
		t.Errorf("%d jobs run on the large node after its rest, and %d on the small one", n, small)
	}
}

// giveBack has a node give back one of the attempts that it has of a batch.
func (r *rig) giveBack(batch uint32, name string) {
	var one Attempt
	r.m.Live(func(a Attempt) {
		if a.Ref.Batch == batch && string(a.Node) == name && a.Result == nil {
			one = a
		}
	})
	r.apply(Ended{r.m.named[one.Node].session, one.Token, Result{Fate: job.FateUnstarted}})
}

// BenchmarkLearnt is what an event costs of which many batches might take that a node is
// not too small any more.
func BenchmarkLearnt(b *testing.B) {
	for _, c := range []struct {
		name string
		ev   func(session uint64) Event
	}{
		{"Tick", func(uint64) Event { return Tick{} }},
		{"Offered", func(s uint64) Event { return Offered{s, node.Offer{CPUs: 1, Memory: 4 * gib}} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := New(Config{})
			m.Apply(Loaded{}, 0)
			for i := range 1000 {
				m.Apply(AddBatch{Batch: uint32(i + 1), Jobs: 5, Spec: &job.Spec{Resources: job.Resources{CPUs: 1}}}, 0)
				q := m.batches[uint32(i+1)].queues[0]
				q.lore.memory = measure{int64(6+i%7) * gib, leastLearnt}
				m.reclass(q, q.lore.needs())
			}
			for i := range 300 {
				m.Apply(offering(uint64(i+1), fmt.Sprint("ws", i), 1, 4*gib), 0)
				m.Apply(ListEnd{uint64(i + 1)}, 0)
			}
			for i := 0; b.Loop(); i++ {
				m.Apply(c.ev(uint64(i%300+1)), 0)
			}
		})
	}
}
