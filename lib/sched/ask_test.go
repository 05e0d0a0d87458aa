package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// checkAsks holds that each job of a new batch is in a class that asks for what it
// asks for, in words and in amounts, and that jobs of one class are in one queue.
func checkAsks(b *batch, e *AddBatch) error {
	var kinds []*policy.Class
	for _, q := range b.Queues {
		if kinds = append(kinds, q.Class); slices.Contains(kinds[:q.Index], q.Class) {
			return fmt.Errorf("batch %d has two queues of one class", b.Num)
		}
	}
	for i := range b.States {
		ask, all := Ask{}, []string(nil)
		if e.Spec != nil {
			ask, all = AskOf(e.Spec.Resources, nil), wants(e.Spec)
		}
		if i < len(e.Asks) {
			ask = e.Asks[i]
		}
		if ask.Wants != "" {
			all = slices.Concat(all, strings.Split(ask.Wants, "\x00"))
		}
		c := b.queue(uint32(i)).Class
		var has []string
		for _, e := range c.Wants {
			has = append(has, e.String())
		}
		if len(kinds) < MaxClasses && (c.Share != ask.share() || !slices.Equal(has, entries(all))) {
			return fmt.Errorf("job %d/%d asks for %v and %q, and its class for %v and %q", b.Num, i, ask.share(), all, c.Share, has)
		}
	}
	return nil
}

// Jobs whose requests come to the same are of one class, however they are written
// and whosever they are: the job's own and the batch's are one list.
func TestOwnCapabilities(t *testing.T) {
	one := job.Resources{CPUs: 1}
	asks := func(own ...[]string) (all []Ask) {
		for _, o := range own {
			all = append(all, AskOf(one, o))
		}
		return all
	}
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 4, Spec: &job.Spec{Capabilities: []string{"a"}, Resources: one},
		Asks: asks([]string{"c", "b"}, []string{"b", "c", "a", "b"}, nil, []string{"a"})})
	r.apply(AddBatch{Batch: 2, Jobs: 1, Spec: &job.Spec{Capabilities: []string{"c", "b"}, Resources: one}, Asks: asks([]string{"a"})})
	if n := len(r.m.lab.Classes); n != 3 { // the batch's own of batch 2, too
		t.Errorf("%d classes", n)
	}
	if q := r.m.batches[1].Queues; len(q) != 2 || r.m.queueOf(Ref{2, 0}).Class != r.m.queueOf(Ref{1, 1}).Class {
		t.Errorf("%d queues of the first batch", len(q))
	}
	r.joins(1, "ws1", 8, "a")
	r.joins(2, "ws2", 2, "a", "b", "c")
	on := map[string]int{}
	r.m.Live(func(a Attempt) { on[jobName(a.Ref)+" "+string(a.Node)]++ })
	if len(on) != 4 || on["1/0 ws2"]+on["1/1 ws2"] != 2 || on["1/2 ws1"]+on["1/3 ws1"] != 2 {
		t.Errorf("they run at %v", on)
	}
	r.apply(BatchGone{1})
	r.apply(BatchGone{2})
	if len(r.m.lab.Classes) != 0 {
		t.Errorf("%d classes are left", len(r.m.lab.Classes))
	}
}

// What cannot be read is no node, whatever that says it is.
func TestUnreadableCapability(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.joins(1, "ws1", 8, "!")
	r.apply(AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Capabilities: []string{"!"}}})
	r.why(Ref{1, 0}, "none of 1 nodes has !")
}

// Ranks that mpirun is to start go to no node that would start each by itself, as those of an
// earlier release do, also with the capability mpirun.
func TestRanksByMPI(t *testing.T) {
	r := newRig(t, Config{})
	asks := job.Resources{CPUs: 1, Ranks: 2, MPI: true}
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Resources: asks}})
	r.apply(up(1, "ws1", 2, "mpirun"))
	r.apply(ListEnd{1})
	r.why(Ref{1, 0}, "none of 1 nodes has mpirun for ranks")
	for session, caps := range [][]string{{}, {"mpirun"}} {
		e := up(uint64(session+2), fmt.Sprint("ws", session+2), 2, caps...).(NodeUp)
		e.Offer.MPI = true
		r.apply(e)
		r.apply(ListEnd{e.Session})
		if n := r.row(e.Node); n.Jobs != len(caps) {
			t.Errorf("with %q %s has %d jobs", caps, e.Node, n.Jobs)
		}
	}
}
