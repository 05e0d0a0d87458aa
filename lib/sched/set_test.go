package sched

import (
	"math"
	"testing"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

func setTo(batch uint32, s job.Set, timed ...uint32) Event {
	return SetBatch{Batch: batch, Set: s, Timed: timed, By: "ana"}
}

// forAll is a priority that an operator sets.
func forAll(priority int) job.Set { return job.Set{Priority: &priority, ForAll: true} }

// What no person could have set is no record of ours, and changes nothing.
func TestSetDamaged(t *testing.T) {
	r := newRig(t, Config{})
	add := asks(1, 1, 2, 0, 0)
	add.Replay = true
	r.m.step(add, 0)
	far, long := math.MaxInt, int64(-1)
	for _, s := range []job.Set{{Priority: &far}, {Time: &long}, {}, {Time: new(int64), ForAll: true}} {
		for _, i := range []uint32{0, AllJobs} {
			if err := r.m.Replay(Ref{1, i}, &job.Record{Kind: job.KindSet, Set: &s}); err == nil || r.m.batches[1].Priority != 0 {
				t.Errorf("%+v of job %d: %v", s, i, err)
			}
		}
	}
	at := func(priority int) *policy.Queue {
		b := &policy.Batch{Priority: priority, Owner: &policy.Owner{}}
		q := &policy.Queue{Batch: b, Jobs: policy.NewLine(b, 1)}
		q.Jobs.Add(0)
		return q
	}
	if least, most := at(math.MinInt), at(math.MaxInt); most.Compare(least) >= 0 || least.Compare(most) <= 0 {
		t.Error("the least priority goes before the greatest")
	}
}

func TestSets(t *testing.T) {
	high, one, none, hour := 7, 1, 0, int64(3600)
	ruleBook{
		{"a batch that is set above another goes first", nil, []step{
			{0, Loaded{}, ""},
			{0, asks(1, 1, 2, 0, 0), ""},
			{0, asks(2, 1, 2, 0, 0), ""},
			{0, setTo(2, job.Set{Priority: &high}), "set 2/all"},
			{1, setTo(2, job.Set{Priority: &high}), ""},
			{1, up(1, "ws1", 1), "node ws1 s1"},
			{1, ListEnd{1}, "start 2/0 a1~1 ws1/1; START 1 2/0 a1"},
			{2, setTo(1, job.Set{Priority: &high}), "set 1/all"},
			{9, ended(1, 1, exited(1, "")), "failed 2/0 a1; HAVE 1 a1; start 1/0 a2~1 ws1/1; START 1 1/0 a2"},
		}},
		{"a bound is set, and taken away", nil, []step{
			{0, Loaded{}, ""},
			{0, asks(1, 1, 4, 0, 0), ""},
			{0, setTo(1, job.Set{MaxRunning: &one}), "set 1/all"},
			{0, up(1, "ws1", 2), "node ws1 s1"},
			{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
			{1, setTo(1, job.Set{MaxRunning: &none}), "set 1/all; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
			{2, setTo(1, job.Set{MaxRunning: &one}), "set 1/all"},
			{9, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1"},
			{9, ended(1, 2, exited(1, "")), "failed 1/1 a2; HAVE 1 a2; start 1/2 a3~1 ws1/1; START 1 1/2 a3"},
		}},
		{"a time is of jobs, or of all that are not over", nil, []step{
			{0, Loaded{}, ""},
			{0, asks(1, 1, 3, 0, 0), ""},
			{0, setTo(1, job.Set{Time: &hour}, 2, 1, 9), "set 1/1; set 1/2"},
			{1, Cancel{Ref: Ref{1, 0}}, "cancelled 1/0"},
			{2, setTo(1, job.Set{Time: &hour}, 0, 1), "set 1/1"},
			{3, setTo(1, job.Set{Time: &hour, Priority: &high}, 0, 1, 2), "set 1/all"},
			{3, SetBatch{Batch: 1, Set: job.Set{Time: &hour}, Timed: []uint32{1}, Others: 1, By: "ana"}, "set 1/all"},
			{3, SetBatch{Batch: 1, Set: job.Set{Time: &hour}, Timed: []uint32{1}, By: "ana"}, "set 1/1"},
			{4, SetBatch{Batch: 1, Set: job.Set{MaxRunning: &one}, Request: "q"}, "set 1/all"},
			{5, SetBatch{Batch: 1, Set: job.Set{MaxRunning: &none}, Request: "q"}, ""},
			{6, Cancel{Ref: Ref{1, 1}}, "cancelled 1/1"},
			{6, Cancel{Ref: Ref{1, 2}}, "cancelled 1/2; CLOSED 1"},
			{7, setTo(1, job.Set{Priority: &one}), ""},
		}},
	}.run(t)
}
