package sched

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// checkDeclared holds that it is known of each queue how long its jobs may run and how
// much disk they ask for at least, as the batch and its log say.
func (r *rig) checkDeclared() error {
	for _, add := range r.adds {
		b, jobs := r.m.batches[add.Batch], max(0, add.Jobs)
		add = r.whole(add.Batch)
		limit, asks := map[*policy.Class]int64{}, map[*policy.Class][]int64{}
		allow := func(i uint32, seconds int64) {
			c := b.queue(i).Class
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
				c := b.queue(uint32(i)).Class
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
			case e.rec.Set == nil || e.rec.Set.Time == nil:
			case e.job == AllJobs:
				for q := range b.All() {
					if !slices.ContainsFunc(b.Queues[known:], func(later *policy.Queue) bool { return later.Says == q.Says }) {
						limit[q.Class] = *e.rec.Set.Time
						if limit[q.Class] == 0 {
							limit[q.Class] = math.MaxInt64
						}
					}
				}
			default:
				allow(e.job, *e.rec.Set.Time)
			}
		}
		for q := range b.All() {
			if q.Jobs.N == 0 {
				continue
			}
			if disk := slices.Min(asks[q.Class]); q.Says.Disk != disk {
				return fmt.Errorf("batch %d: of %v bytes of disk a job counts with %d, should be %d", add.Batch, asks[q.Class], q.Says.Disk, disk)
			}
			long := time.Duration(0)
			if most := limit[q.Class]; most < math.MaxInt64 {
				long = time.Duration(most) * time.Second
			}
			if q.Says.Longest() != long {
				return fmt.Errorf("batch %d: a job takes %v at most, should be %v", add.Batch, q.Says.Longest(), long)
			}
		}
	}
	return nil
}

// offering is a node that comes with so many cpus and so much memory.
func offering(session uint64, name string, cpus int, memory int64) Event {
	return NodeUp{Session: session, Node: node.Name(name), Boot: "b", State: "s" + name, Offer: node.Offer{CPUs: cpus, Memory: memory}}
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
	r.why(Ref{1, 0}, "of the nodes that could run it none has a disk of 100G, the most is 73G on ws1")
	r.apply(NodeUp{Session: 2, Node: "ws2", Boot: "b", State: "s2", Offer: node.Offer{CPUs: 2, Disk: 200 * gib, DiskSize: 200 * gib}})
	r.apply(ListEnd{2})
	if n := r.runs(1, "ws2"); n != 2 {
		t.Errorf("%d run where the disk is large enough", n)
	}
}

// A node with less disk than a job says that it writes is used only if no other has
// more; and when it tells that it has.
func TestDiskAsked(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 9, Spec: &job.Spec{Resources: job.Resources{CPUs: 1, Disk: 3 * gib}}})
	r.joins(1, "ws1", 1)
	r.apply(Offered{1, node.Offer{CPUs: 1, Disk: 9 * gib}})
	r.apply(NodeUp{Session: 2, Node: "ws2", Boot: "b", State: "s2", Offer: node.Offer{CPUs: 2, Disk: gib / 2, Kept: gib / 2}})
	r.apply(ListEnd{2})
	r.why(Ref{1, 8}, "2 of 2 nodes can run it, and it needs 3G of the disk: ws1 busy, ws2 has 1G of its disk left")
	r.apply(Offered{2, node.Offer{CPUs: 2, Disk: 4 * gib}})
	if n := r.runs(1, "ws2"); n != 2 {
		t.Errorf("%d run where there is more", n)
	}
	for _, ev := range []Event{Offered{2, node.Offer{CPUs: 2, Disk: gib}}, ended(2, 2, exited(1, "")), ended(2, 3, exited(1, ""))} {
		r.apply(ev)
	}
	before := r.runs(1, "ws2")
	r.apply(Drain{"ws1", "ana"})
	if n := r.runs(1, "ws2"); before != 0 || n != 2 {
		t.Errorf("%d run on the only node, and %d before the other was drained", n, before)
	}
}

// After a start a node with too little disk is not used before others had the time to
// come.
func TestDiskAfterRestart(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 20, Spec: &job.Spec{Resources: job.Resources{CPUs: 1, Disk: 3 * gib}}})
	r.apply(NodeUp{Session: 1, Node: "ws1", Boot: "b", State: "s1", Offer: node.Offer{CPUs: 4, Disk: 9 * gib}})
	r.apply(ListEnd{1})
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
	r.apply(NodeUp{Session: 2, Node: "ws2", Boot: "b", State: "s2", Offer: node.Offer{CPUs: 2, Disk: gib}})
	r.apply(ListEnd{2})
	if n := r.runs(1, "ws2"); n != 0 {
		t.Errorf("%d jobs run at once where the disk is too small", n)
	}
	r.now += policy.SettleTime
	r.apply(Tick{})
	if n := r.runs(1, "ws2"); n != 2 {
		t.Errorf("%d jobs run there when no other node has come", n)
	}
}

// While a node is kept for a job that asks for much, one starts there that ends before
// that can start, by what they say.
func TestBackfill(t *testing.T) {
	timed := func(seconds int64) *job.Spec {
		return &job.Spec{Resources: job.Resources{CPUs: 1, Time: seconds}}
	}
	for _, c := range []struct {
		name  string
		first int64 // seconds that what runs may run
		spec  *job.Spec
		want  int // that start
		why   string
		set   int64 // seconds that are set for it
		then  int
	}{
		{"it says nothing", 600, timed(0), 0, "ws1 kept for a job of 4 cpus from about 700", 400, 1},
		{"it is short", 600, timed(600), 1, "", 0, 1},
		{"it is long", 600, timed(660), 0, "ws1 kept for a job of 4 cpus from about 700, while this one may take 11m", 599, 1},
		{"it may run on", 600, timed(660), 0, "ws1 kept for a job of 4 cpus from about 700, while this one may take 11m", 0, 0},
		{"what runs says nothing", 0, timed(10), 0, "ws1 kept for a job of 4 cpus", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Clock: plainClock})
			r.now = 100 * time.Second
			r.apply(Loaded{})
			r.apply(AddBatch{Batch: 4, Jobs: 5, Spec: c.spec})
			held := all(r.m.batches[4])
			r.apply(HoldJobs{Batch: 4, Jobs: held, By: "u"})
			r.apply(offering(1, "ws1", 4, 0))
			r.apply(ListEnd{1})
			r.apply(AddBatch{Batch: 1, Jobs: 3, Spec: timed(c.first)})
			r.apply(AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Resources: job.Resources{CPUs: 4}}})
			r.apply(HoldJobs{Batch: 4, Jobs: held, By: "u", Release: true})
			if n := r.runs(4, "ws1"); n != c.want {
				t.Fatalf("%d start", n)
			}
			if c.why != "" {
				r.why(Ref{4, 4}, "1 of 1 nodes can run it: "+c.why+"; 1 job goes first (by age)")
			}
			r.apply(SetBatch{Batch: 4, Set: job.Set{Time: &c.set}, Timed: all(r.m.batches[4]), By: "u"})
			if n := r.runs(4, "ws1"); n != c.then {
				t.Errorf("%d run when its time was set", n)
			}
		})
	}
}

// While the node with more disk rests, jobs run on the others; when its rest is over they
// do not.
func TestDiskWhileOneRests(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 30, Spec: &job.Spec{Resources: job.Resources{CPUs: 1, Disk: 3 * gib}}})
	r.apply(NodeUp{Session: 1, Node: "ws1", Boot: "b", State: "s1", Offer: node.Offer{CPUs: 3, Disk: 9 * gib}})
	r.apply(ListEnd{1})
	r.apply(NodeUp{Session: 2, Node: "ws2", Boot: "b", State: "s2", Offer: node.Offer{CPUs: 1, Disk: gib}})
	r.apply(ListEnd{2})
	if n := r.runs(1, "ws2"); n != 0 {
		t.Fatalf("%d jobs run where the disk is too small", n)
	}
	r.giveBack(1, "ws1")
	if n := r.runs(1, "ws2"); n != 1 {
		t.Errorf("%d jobs run there while the other node rests", n)
	}
	r.now += resting
	r.apply(Tick{})
	r.apply(Ended{2, r.one(1, "ws2").Token, exited(1, "")})
	if n, small := r.runs(1, "ws1"), r.runs(1, "ws2"); n != 3 || small != 0 {
		t.Errorf("%d jobs run on ws1 after its rest, and %d where the disk is too small", n, small)
	}
}

// one is one of the attempts that a node has of a batch.
func (r *rig) one(batch uint32, name string) (one Attempt) {
	r.m.Live(func(a Attempt) {
		if a.Ref.Batch == batch && string(a.Node) == name && a.Result == nil {
			one = a
		}
	})
	return one
}

// giveBack has a node give back one of the attempts that it has of a batch.
func (r *rig) giveBack(batch uint32, name string) {
	one := r.one(batch, name)
	r.apply(Ended{r.m.named[one.Node].Session, one.Token, Result{Fate: job.FateUnstarted}})
}

// BenchmarkDisk is what an event costs by which many batches might find more disk on a
// node.
func BenchmarkDisk(b *testing.B) {
	for _, c := range []struct {
		name string
		ev   func(session uint64) Event
	}{
		{"Tick", func(uint64) Event { return Tick{} }},
		{"Offered", func(s uint64) Event { return Offered{s, node.Offer{CPUs: 1, Disk: 4 * gib}} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := New(Config{})
			m.step(Loaded{}, 0)
			for i := range 1000 {
				m.step(AddBatch{Batch: uint32(i + 1), Jobs: 5, Spec: &job.Spec{Resources: job.Resources{CPUs: 1, Disk: int64(6+i%7) * gib}}}, 0)
			}
			for i := range 300 {
				m.step(NodeUp{Session: uint64(i + 1), Node: node.Name(fmt.Sprint("ws", i)), Boot: "b", State: "s", Offer: node.Offer{CPUs: 1, Disk: 4 * gib}}, 0)
				m.step(ListEnd{uint64(i + 1)}, 0)
			}
			for i := 0; b.Loop(); i++ {
				m.step(c.ev(uint64(i%300+1)), 0)
			}
		})
	}
}
