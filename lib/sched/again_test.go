package sched

import (
	"fmt"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// trying is a batch of one job that is tried again so often, running on ws1, with ws2
// free.
func trying(times int) []step {
	return []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Retries: times}}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{0, phase(1, 1, job.PhaseRunning), ""},
		{0, up(2, "ws2", 4), "node ws2 s1"},
		{0, ListEnd{2}, ""},
	}
}

// reasoned is an attempt that was ended for a reason.
func reasoned(why string) Result {
	return Result{Outcome: job.Outcome{Signal: "SIGKILL", Reason: why, Runtime: 60}}
}

// sized is a node that offers so much memory.
func sized(session uint64, name string, memory int64) Event {
	return NodeUp{Session: session, Node: node.Name(name), Boot: "b1", State: "s1", Offer: node.Offer{CPUs: 4, Memory: memory}}
}

var again = ruleBook{
	{"on another node, then on the first, then it has failed", trying(2), []step{
		{1, ended(1, 1, exited(1, "m")), "GRANT 1 a1"},
		{2, staged(1, "m"), "back 1/0 a1 m failed; PUBLISH 1/0 a1 out=false; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{3, ended(2, 2, exited(2, "")), "back 1/0 a2 failed; HAVE 2 a2; start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
		{4, ended(1, 3, exited(3, "")), "failed 1/0 a3 (failed 3 times, on ws2 and ws1, the last time: exit 3); HAVE 1 a3"},
	}},
	{"also if a signal ended it", trying(1), []step{
		{1, ended(1, 1, Result{Outcome: job.Outcome{Signal: "SIGSEGV", Runtime: 60}}), "back 1/0 a1 failed; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
	}},
	{"it ends well elsewhere", trying(1), []step{
		{1, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{2, ended(2, 2, exited(0, "m")), "GRANT 2 a2"},
		{3, staged(2, "m"), "done 1/0 a2 m; PUBLISH 1/0 a2 out=true; HAVE 2 a2"},
	}},
	{"it waits for the other node, though that is paused and away for a moment", trying(3), []step{
		{1, offered(2, 4, &node.Pause{By: []string{"ana"}}), ""},
		{2, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1"},
		{3, NodeDown{2}, ""},
		{4, Tick{}, ""},
		{500, Heard{1}, ""},
		{899, Tick{}, ""},
		{900, Heard{1}, ""},
		{903, Tick{}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"}, // the lease of ws2 is over
		{904, up(3, "ws2", 4), ""},
		{904, ListEnd{3}, ""},
		{905, ended(1, 2, exited(1, "")), "back 1/0 a2 failed; HAVE 1 a2; start 1/0 a3~3 ws2/4; START 3 1/0 a3"},
	}},
	{"nobody waits for a node that is drained", trying(1), []step{
		{1, Drain{"ws2", "maria"}, ""},
		{2, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
	}},
	{"nor for one that was removed", trying(1), []step{
		{1, NodeDown{2}, ""},
		{2, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1"},
		{3, Removed{Node: "ws2"}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
	}},
	{"but for one that is let in again", trying(1), []step{
		{1, NodeDown{2}, ""},
		{1, Removed{Node: "ws2"}, ""},
		{1, Removed{Node: "ws2", Back: true}, ""},
		{2, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1"},
	}},
	{"nor for one on which the build fails", trying(1), []step{
		{1, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{2, ended(2, 2, buildFailed), "back 1/0 a2 build_failed (build failed); HAVE 2 a2; start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
	}},
	{"one without room for a moment is waited for", trying(2), []step{
		{1, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{2, ended(2, 2, noRoom), "back 1/0 a2 no_room (no room: needs 3G); FORGET 2 a2"},
		{11, Tick{}, ""},
		{12, Tick{}, "start 1/0 a3~3 ws2/4; START 2 1/0 a3"},
		{13, ended(2, 3, exited(1, "")), "back 1/0 a3 failed; HAVE 2 a3; start 1/0 a4~4 ws1/4; START 1 1/0 a4"},
	}},
	{"what is lost does not count", trying(1), []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{2, ended(1, 2, exited(1, "")), "back 1/0 a2 failed; HAVE 1 a2; start 1/0 a3~3 ws2/4; START 2 1/0 a3"},
	}},
	{"a time limit is the job's own", trying(5), []step{
		{1, ended(1, 1, reasoned(job.ReasonTime)), "failed 1/0 a1 (time limit); HAVE 1 a1"},
	}},
	{"and so is a limit of its memory", trying(5), []step{
		{1, ended(1, 1, reasoned("out of memory: it had 2G")), "failed 1/0 a1 (out of memory: it had 2G); HAVE 1 a1"},
	}},
	{"and what it said that it writes", trying(5), []step{
		{1, ended(1, 1, reasoned("stopped: it had written 3G, and 2G were asked for")), "failed 1/0 a1 (stopped: it had written 3G, and 2G were asked for); HAVE 1 a1"},
	}},
	{"a cancelled job is left alone", trying(5), []step{
		{1, cancel, "cancelled 1/0 (cancelled by u); STOP 1 a1"},
		{2, ended(1, 1, exited(1, "")), "late 1/0 a1; HAVE 1 a1"},
		{3, retry, "retry 1/0; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
	}},
	{"one that waits to be tried again is cancelled, and begins to count anew when it is retried", trying(1), []step{
		{1, Drain{"ws1", "maria"}, ""},
		{1, Drain{"ws2", "maria"}, ""},
		{2, ended(1, 1, exited(1, "")), "back 1/0 a1 failed; HAVE 1 a1"},
		{3, cancel, "cancelled 1/0 (cancelled by u)"},
		{4, retry, "retry 1/0"},
		{5, Drain{Node: "ws1"}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{6, ended(1, 2, exited(1, "")), "back 1/0 a2 failed; HAVE 1 a2; start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
		{7, ended(1, 3, exited(1, "")), "failed 1/0 a3 (failed 2 times, on ws1, the last time: exit 1); HAVE 1 a3"},
	}},
	{"a node that had no more memory: only where there is more", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Retries: 5, Resources: job.Resources{CPUs: 1}}}, ""},
		{0, sized(1, "ws1", 4<<30), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{0, sized(2, "ws2", 4<<30), "node ws2 s1"},
		{0, ListEnd{2}, ""},
		{0, sized(3, "ws3", 8<<30), "node ws3 s1"},
		{0, ListEnd{3}, ""},
	}, []step{
		{1, ended(1, 1, reasoned(job.ReasonNodeMemory)), "back 1/0 a1 failed (out of memory: its node had no more); HAVE 1 a1; start 1/0 a2~2 ws3/1; START 3 1/0 a2"},
		{2, ended(3, 2, reasoned(job.ReasonNodeMemory)),
			"failed 1/0 a2 (failed 2 times, on ws1 and ws3, the last time: out of memory: its node had no more, and no other has more than 8G); HAVE 3 a2"},
	}},
}

func TestAgain(t *testing.T) { again.run(t) }

// Each job is tried again as often as it says itself, and one that failed on all
// nodes but one waits for that while others of its batch start. What it waits for is
// told.
func TestAgainEach(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{Loaded{}, AddBatch{Batch: 1, Jobs: 3, Spec: &job.Spec{Kind: job.Command, Retries: 9}, Again: []uint8{0, 2, 1}},
		up(1, "ws1", 4), ListEnd{1}, up(2, "ws2", 4), ListEnd{2}} {
		r.apply(ev)
	}
	r.apply(ended(1, 1, exited(1, ""))) // job 0 is not tried again
	if s := r.m.State(Ref{1, 0}); s != job.Failed {
		t.Errorf("job 0 is %s", s)
	}
	r.apply(ended(2, 2, exited(1, ""))) // job 1 failed on ws2, where nothing else waits
	if s := r.m.State(Ref{1, 1}); s != job.Queued {
		t.Errorf("job 1 is %s", s)
	}
	r.why(Ref{1, 1}, "1 of 2 nodes can run it: ws1 busy, ws2 not tried, since it failed there")
	r.apply(NodeDown{1})
	const alone = "failed on ws2, and no other node is connected that can run it"
	r.why(Ref{1, 1}, alone+"; not connected: ws1")
	if got := r.m.Stuck(1)(1); got != alone {
		t.Errorf("stuck: %q, want %q", got, alone)
	}
}

// A node that has no room time and again is waited for no longer, also where
// something is removed in between.
func TestAgainWithoutRoom(t *testing.T) {
	for _, removed := range []bool{false, true} {
		r := newRig(t, Config{})
		for _, s := range trying(1) {
			r.apply(s.ev)
		}
		r.apply(ended(1, 1, exited(1, "")))
		for n := 2; ; n++ {
			a, _ := r.m.Current(Ref{1, 0})
			if n > 8 {
				t.Fatal("it still waits for a node without room")
			}
			if a.Node == "ws1" {
				if n != 8 {
					t.Errorf("it is back after %d attempts that found no room", n-2)
				}
				break
			}
			r.apply(ended(2, n, noRoom))
			if removed {
				r.m.retrySoon(r.m.named["ws2"])
			}
			for range 300 {
				if r.now += time.Second; r.m.State(Ref{1, 0}) == job.Queued {
					r.apply(Heard{1})
					r.apply(Heard{2})
					r.apply(Tick{})
				}
			}
		}
	}
}

// A head that starts anew waits a minute for other nodes before it tries a job again
// where that failed.
func TestAgainAfterAStart(t *testing.T) {
	r := newRig(t, Config{})
	for _, s := range trying(5) {
		r.apply(s.ev)
	}
	for _, ev := range []Event{Drain{"ws2", "maria"}, Drain{"ws1", "maria"}, ended(1, 1, exited(1, ""))} {
		r.apply(ev)
	}
	m, err := r.replayed()
	if err != nil {
		t.Fatal(err)
	}
	r.m = m
	for _, ev := range []Event{Loaded{}, up(3, "ws1", 4), ListEnd{3}} {
		r.apply(ev)
	}
	r.now = policy.SettleTime - time.Second
	if got := show(r.apply(Tick{})); got != "" {
		t.Errorf("before the minute is over: %s", got)
	}
	r.now = policy.SettleTime
	if got, want := show(r.apply(Tick{})), "start 1/0 a2~2 ws1/4; START 3 1/0 a2"; got != want {
		t.Errorf("then: %s, want %s", got, want)
	}
}

// What is kept of a job that fails again and again is bounded.
func TestAgainBounded(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(AddBatch{Batch: 1, Jobs: 1, Spec: &job.Spec{Kind: job.Command, Retries: job.MaxRetries}})
	at := map[node.Name]uint64{}
	for i := range 2 * maxShunned {
		name := fmt.Sprint("ws", i)
		at[node.Name(name)] = uint64(i + 1)
		r.apply(up(uint64(i+1), name, 4))
		r.apply(ListEnd{uint64(i + 1)})
	}
	for n := 1; r.m.State(Ref{1, 0}) == job.Running; n++ {
		r.apply(ended(at[r.m.live[must(tok(n))].peer.Name], n, exited(1, "")))
		if b := r.m.batches[1]; len(b.trials) == 1 && len(b.trials[0].on) > maxShunned || len(b.Avoiding) > 1 {
			t.Fatalf("after %d attempts: %+v", n, b.trials[0])
		}
	}
	if n := r.m.batches[1].tries[0]; n != job.MaxRetries+1 || r.m.State(Ref{1, 0}) != job.Failed || len(r.m.batches[1].Avoiding) > 0 {
		t.Errorf("%d attempts, %s", n, r.m.State(Ref{1, 0}))
	}
}

// Jobs that keep away from different nodes fail at once where their batch can be built on no
// other.
func TestDoomedQueues(t *testing.T) {
	r := newRig(t, Config{})
	for _, ev := range []Event{
		Loaded{}, AddBatch{Batch: 1, Jobs: 2, Spec: &job.Spec{Kind: job.Command, Retries: 3}},
		up(1, "ws1", 1), ListEnd{1}, up(2, "ws2", 1), ListEnd{2}, phase(1, 1, job.PhaseRunning), phase(2, 2, job.PhaseRunning),
		Drain{"ws1", "m"}, Drain{"ws2", "m"}, ended(1, 1, exited(1, "")), ended(2, 2, exited(1, "")), up(3, "ws3", 1), ListEnd{3},
	} {
		r.apply(ev)
	}
	want := "back 1/0 a3 build_failed (build failed); HAVE 3 a3; failed 1/0 (build failed on ws3); failed 1/1 (build failed on ws3)"
	if got := show(r.apply(ended(3, 3, buildFailed))); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
