package sched

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// plainSpeeds is what is known of how fast nodes are, and what is usual, reckoned from
// the records and from what was to be remembered.
type plainSpeeds struct {
	of    *Machine
	on    map[string]Lags
	usual Trend
}

// remember takes in what the next machine is told.
func (s *plainSpeeds) remember(past Past) {
	s.usual = past.Usual.bound(0, 60)
	for _, n := range past.Nodes {
		all := n.Lags
		for i, t := range all {
			all[i] = t.bound(-3, 3)
		}
		s.on[string(n.Node)] = all
	}
}

// bound is a mean that cannot be another.
func (t Trend) bound(least, most float64) Trend {
	return Trend{math.Min(most, math.Max(least, t.Log)), int(math.Min(31, math.Max(0, float64(t.Of))))}
}

// with is a mean of one more.
func (t Trend) with(log float64) Trend {
	if t.Of == 0 {
		return Trend{log, 1}
	}
	off := math.Max(-1, math.Min(1, log-t.Log))
	return Trend{t.Log + off/float64(t.Of+1), int(math.Min(31, float64(t.Of+1)))}
}

// see takes in a record that is not in its log yet.
func (s *plainSpeeds) see(r *rig, l *Log) {
	if l.Rec.Kind != job.KindDone {
		return
	}
	q, log := r.m.queueOf(l.Ref), r.logs[l.Ref.Batch]
	before, now := r.plainTook(l.Ref.Batch, log, q.c), r.plainTook(l.Ref.Batch, append(slices.Clip(log), entry{l.Ref.Job, l.Rec}), q.c)
	if now.of > before.of && before.mean.Of >= 3 && before.on != l.Rec.Node {
		all, kind := s.on[l.Rec.Node], plainKind(q.c)
		all[kind] = all[kind].with(math.Max(-3, math.Min(3, now.last-before.mean.Log)))
		s.on[l.Rec.Node] = all
	}
	if long := plainEnd(q, 1, true) - 1; long > 0 {
		s.usual = s.usual.with(math.Log2(float64(long / time.Millisecond)))
	}
}

// forget takes in that a node was removed.
func (s *plainSpeeds) forget(r *rig, e NodeGone) {
	if p := r.m.named[e.Node]; e.Removed && (p == nil || p.session == 0) {
		delete(s.on, string(e.Node))
	}
}

// compare holds that a machine knows the same.
func (s *plainSpeeds) compare() error {
	for _, p := range s.of.peers {
		if got, want := p.pace(), s.on[string(p.name)]; got != want {
			return fmt.Errorf("the lags of %s are %v, should be %v", p.name, got, want)
		}
	}
	if s.of.usual != s.usual {
		return fmt.Errorf("usual is %v, should be %v", s.of.usual, s.usual)
	}
	return nil
}

// A plainTime is how long jobs of a class took, and the last of them, and where that was.
type plainTime struct {
	of   int
	mean Trend
	last float64
	on   string
}

// plainTook is what a log says of that: of jobs that have ended well, took ten seconds,
// and began with nothing that was saved.
func (r *rig) plainTook(batch uint32, log []entry, c *class) (t plainTime) {
	saved := map[uint32]bool{}
	for _, e := range log {
		switch ms := math.Round(1000 * e.rec.Runtime); e.rec.Kind {
		case job.KindBack:
			saved[e.job] = saved[e.job] || e.rec.Saved
		case job.KindDone:
			if !node.Name(e.rec.Node).Abroad() && r.m.queueOf(Ref{batch, e.job}).c == c && !saved[e.job] && 10_000 <= ms && ms < job.MaxTime*1000 {
				t = plainTime{t.of + 1, t.mean.with(math.Log2(ms)), math.Log2(ms), e.rec.Node}
			}
			saved[e.job] = false
		case job.KindFailed, job.KindCancelled:
			saved[e.job] = false
		}
	}
	return t
}

// speedRig is nodes of one cpu, each of which takes so many times as long as a job says,
// that have run jobs of a batch for long enough to be known.
func speedRig(t *testing.T, slow ...float64) *rig {
	t.Helper()
	r := newRig(t, Config{})
	r.quick = true
	r.apply(Loaded{})
	for i := range slow {
		r.apply(up(uint64(i+1), fmt.Sprint("ws", i+1), 1))
		r.apply(ListEnd{uint64(i + 1)})
	}
	r.apply(timed(1, 40*len(slow), 0))
	r.runAll(time.Minute, slow)
	return r
}

// timed is a batch of jobs that may take so long.
func timed(batch uint32, jobs int, limit time.Duration) AddBatch {
	return AddBatch{Batch: batch, Jobs: jobs, Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1, Time: int64(limit.Seconds())}}}
}

// runAll has all jobs run to their ends, which take so long on a node of speed 1.
func (r *rig) runAll(long time.Duration, slow []float64) {
	for {
		var live []Attempt
		r.m.Live(func(a Attempt) { live = append(live, a) })
		if len(live) == 0 {
			return
		}
		for _, a := range live {
			var n int
			fmt.Sscanf(string(a.Node), "ws%d", &n)
			res := exited(0, "m")
			res.Runtime = slow[n-1] * long.Seconds()
			r.apply(Ended{uint64(n), a.Token, res})
			r.apply(Staged{Attempt: a.Token, Manifest: "m"})
			r.apply(Gone{uint64(n), a.Token})
		}
	}
}

// on is where the jobs of a batch run, in their order.
func (r *rig) on(batch uint32) (names []string) {
	for i := range r.m.batches[batch].States {
		if a, ok := r.m.Current(Ref{batch, uint32(i)}); ok {
			names = append(names, string(a.Node))
		}
	}
	return names
}

// Of nodes that are free a job that takes long gets the fastest, one that takes little the
// slowest, and any other that which is known longest, as does one of which nothing is known;
// after a restart, too. A row tells it.
func TestPace(t *testing.T) {
	slow := []float64{1, 0.5, 1, 2}
	for _, restarted := range []bool{false, true} {
		for limit, want := range map[time.Duration]string{
			3 * time.Hour:    "ws2 ws1 ws3 ws4",
			2 * time.Minute:  "ws1 ws2 ws3 ws4",
			30 * time.Second: "ws4 ws1 ws3 ws2",
			0:                "ws1 ws2 ws3 ws4",
		} {
			r := speedRig(t, slow...)
			if restarted {
				r.restart(time.Hour)
				for i := range slow {
					r.apply(up(uint64(i+11), fmt.Sprint("ws", i+1), 1))
					r.apply(ListEnd{uint64(i + 11)})
				}
			}
			r.apply(timed(2, 4, limit))
			if got := strings.Join(r.on(2), " "); got != want {
				t.Errorf("jobs of at most %v run on %s, not on %s; restarted: %v", limit, got, want, restarted)
			}
			for name, want := range map[string]string{"ws1": "", "ws2": "jobs take 0.5 times as long as elsewhere", "ws4": "jobs take 2.1 times as long as elsewhere"} {
				if note := r.row(node.Name(name)).Note; note != want {
					t.Errorf("the note of %s is %q, not %q", name, note, want)
				}
			}
		}
	}
}

// What one of three nodes says of the time of its jobs moves what is known of the others
// by half an octave at most.
func TestPaceBounds(t *testing.T) {
	for _, lie := range []float64{1e-300, 0, -1, math.NaN(), 0.17, 1000} {
		r := speedRig(t, 1, 1, lie)
		for _, name := range []string{"ws1", "ws2"} {
			if l := r.m.named[node.Name(name)].lags[lagOfCPUs]; math.Abs(l.Log) > 0.6 {
				t.Errorf("ws3 takes %g times as long, and %s is %+v", lie, name, l)
			}
		}
		if l := r.m.named["ws3"].lags[lagOfCPUs]; math.Abs(l.Log) > maxLag {
			t.Errorf("ws3 takes %g times as long, and is %+v", lie, l)
		}
	}
}

// Jobs that ran on one node alone, or went on with what was saved, tell nothing, and
// those that have a whole node, or GPUs, nothing of the others.
func TestPaceOfKinds(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(up(1, "ws1", 1))
	r.apply(ListEnd{1})
	r.apply(timed(1, 40, 0))
	r.runAll(time.Minute, []float64{1})
	if p := r.m.named["ws1"].pace(); p != (Lags{}) {
		t.Errorf("of ws1, which is alone, is known %v", p)
	}
	r.apply(up(2, "ws2", 1))
	r.apply(ListEnd{2})
	r.apply(AddBatch{Batch: 2, Jobs: 80, Spec: &job.Spec{Kind: job.Command}})
	r.runAll(time.Minute, []float64{1, 4})
	for name, step := range map[string]int{"ws1": -2, "ws2": 2} {
		p := r.m.named[node.Name(name)]
		if p.lags[lagOfWhole].step != step || p.lags[lagOfCPUs].Of+p.lags[lagOfGPUs].Of > 0 {
			t.Errorf("of %s is known %+v", name, p.lags)
		}
	}
}

// A node that was removed is not known any more; one whose machine was started anew is.
func TestPaceForgotten(t *testing.T) {
	r := speedRig(t, 1, 4)
	kept := r.m.Past().Nodes
	other := up(11, "ws1", 1).(NodeUp)
	other.Boot = "another"
	for _, ev := range []Event{NodeDown{1}, NodeDown{2}, other, NodeGone{Node: "ws2", Removed: true}} {
		r.apply(ev)
	}
	if now := r.m.Past().Nodes; len(kept) != 2 || len(now) != 1 || now[0].Node != "ws1" || now[0].Lags != kept[0].Lags {
		t.Errorf("%+v was to be remembered, and is %+v", kept, now)
	}
}
