package sched

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A step gives an event and says what must come of it. at is the time in
// seconds, if it passes.
type step struct {
	at   int
	ev   Event
	want string
}

// take gives the events of some steps, of which must come what these say.
func (r *rig) take(steps ...[]step) {
	r.t.Helper()
	for i, s := range slices.Concat(steps...) {
		r.now = max(r.now, time.Duration(s.at)*time.Second)
		if got := show(r.apply(s.ev)); got != s.want {
			r.t.Fatalf("step %d: %T%+v\ngot  %s\nwant %s", i, s.ev, s.ev, got, s.want)
		}
	}
}

// A ruleBook is what comes of steps, each after others.
type ruleBook []struct {
	name         string
	after, steps []step
}

func (b ruleBook) run(t *testing.T) {
	for _, rule := range b {
		t.Run(rule.name, func(t *testing.T) { newRig(t, Config{}).take(rule.after, rule.steps) })
	}
}

var (
	whole  = AddBatch{Batch: 1, ID: "u/b", Jobs: 1}
	two    = AddBatch{Batch: 1, ID: "u/b", Jobs: 2}
	single = &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}
	py     = &job.Spec{Kind: job.Python, Capabilities: []string{"gpu"}}
	cancel = Cancel{Ref: Ref{1, 0}, By: "u", Request: "q1", Reason: "cancelled by u"}
	retry  = Retry{Ref: Ref{1, 0}, By: "u", Request: "q2"}
)

// begin is a batch of one job, running on ws1.
var begin = []step{
	{0, Loaded{}, ""},
	{0, whole, ""},
	{0, up(1, "ws1", 4), "node ws1 s1"},
	{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
	{0, phase(1, 1, job.PhaseRunning), ""},
}

// silent goes on from begin: the lease of ws1 ends, ws2 gets the job.
var silent = append(begin[:len(begin):len(begin)],
	step{1, NodeDown{1}, ""},
	step{1, up(2, "ws2", 4), "node ws2 s1"},
	step{1, ListEnd{2}, ""},
	step{600, Heard{2}, ""},
	step{899, Tick{}, ""},
	step{900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s); start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
	step{901, phase(2, 2, job.PhaseRunning), ""},
)

// sleeps goes on from begin: ws1 sleeps longer than its lease, so many times, and each
// time has the job still when it wakes.
func sleeps(times int) (all []step) {
	for i := 1; i <= times; i++ {
		at, next := 1000*i, uint64(i+1)
		all = append(all,
			step{at, Heard{uint64(i)}, ""},
			step{at, NodeDown{uint64(i)}, ""},
			step{at + 900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
			step{at + 901, up(next, "ws1", 4), ""},
			step{at + 901, item(next, 1, job.PhaseRunning), fmt.Sprintf("adopt 1/0 a1; KEEP %d a1", next)},
			step{at + 901, ListEnd{next}, ""})
	}
	return all
}

var rules = ruleBook{
	{"a job from start to end", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, ended(1, 1, exited(0, "m")), ""},
		{3, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 1 a1"},
		{3, staged(1, "m"), ""},
		{4, ended(1, 1, exited(0, "m")), "HAVE 1 a1"},
		{5, gone(1, 1), "CLOSED 1"},
		{6, gone(1, 1), ""},
		{7, BatchGone{1}, ""},
		{8, ended(1, 1, exited(0, "m")), "HOLD 1 a1"},
	}},
	{"a job that fails", begin, []step{
		{1, ended(1, 1, exited(3, "m")), "GRANT 1 a1"},
		{2, staged(1, "m"), "failed 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 1 a1"},
		{3, gone(1, 1), "CLOSED 1"},
	}},
	{"a job that fails and leaves nothing", begin, []step{
		{1, ended(1, 1, exited(3, "")), "failed 1/0 a1; HAVE 1 a1"},
	}},
	{"success without a result is none", begin, []step{
		{1, ended(1, 1, exited(0, "")), "failed 1/0 a1 (it ended well, but its node has no result of it); HAVE 1 a1"},
	}},
	{"an attempt that is handed back does not count, and its node rests", begin, []step{
		{1, ended(1, 1, unstarted), "back 1/0 a1 unstarted (not started); FORGET 1 a1"},
		{2, Tick{}, ""},
		{11, Tick{}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{11, gone(1, 1), ""},
	}},
	{"a node without room for a job does others meanwhile", begin, []step{
		{1, AddBatch{Batch: 2, ID: "u/c", Jobs: 2}, ""},
		{1, ended(1, 1, noRoom), "back 1/0 a1 no_room (no room: needs 3G); FORGET 1 a1; start 2/0 a2~1 ws1/4; START 1 2/0 a2"},
		{2, phase(1, 2, job.PhaseRunning), ""},
		{10, Tick{}, ""},
		{12, Tick{}, ""},
		{13, ended(1, 2, exited(0, "")), "failed 2/0 a2 (it ended well, but its node has no result of it); HAVE 1 a2; start 1/0 a3~2 ws1/4; START 1 1/0 a3"},
		{14, ended(1, 3, noRoom), "back 1/0 a3 no_room (no room: needs 3G); FORGET 1 a3; start 2/1 a4~1 ws1/4; START 1 2/1 a4"},
		{15, phase(1, 4, job.PhaseRunning), ""},
		{16, ended(1, 4, exited(0, "m")), "GRANT 1 a4"},
		{17, staged(4, "m"), "done 2/1 a4 m; PUBLISH 2/1 a4 out=true; HAVE 1 a4"},
		{18, Tick{}, "start 1/0 a5~3 ws1/4; START 1 1/0 a5"},
		{18, ended(1, 5, noRoom), "back 1/0 a5 no_room (no room: needs 3G); FORGET 1 a5"},
		{57, Tick{}, ""},
		{58, Tick{}, "start 1/0 a6~4 ws1/4; START 1 1/0 a6"},
		{59, ended(1, 6, noRoom), "back 1/0 a6 no_room (no room: needs 3G); FORGET 1 a6"},
		{138, Tick{}, ""},
		{139, Tick{}, "start 1/0 a7~5 ws1/4; START 1 1/0 a7"},
	}},
	{"who was ended for want of memory has not made room for the next of its batch", begin, []step{
		{1, ended(1, 1, Result{Fate: job.FateNoMemory, Outcome: job.Outcome{Reason: "low"}}), "back 1/0 a1 no_memory (low); HAVE 1 a1"},
		{3, Tick{}, ""},
		{10, Tick{}, ""},
		{11, Tick{}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
	}},
	{"a node that does not run jobs of who submitted one is spared it, for longer and longer", begin, []step{
		{1, AddBatch{Batch: 2, ID: "v/c", Jobs: 2}, ""},
		{1, ended(1, 1, barred), "back 1/0 a1 barred (does not run jobs of u); FORGET 1 a1; start 2/0 a2~1 ws1/4; START 1 2/0 a2"},
		{2, phase(1, 2, job.PhaseRunning), ""},
		{11, Tick{}, ""},
		{12, ended(1, 2, exited(0, "")), "failed 2/0 a2 (it ended well, but its node has no result of it); HAVE 1 a2; start 1/0 a3~2 ws1/4; START 1 1/0 a3"},
		{12, ended(1, 3, barred), "back 1/0 a3 barred (does not run jobs of u); FORGET 1 a3; start 2/1 a4~1 ws1/4; START 1 2/1 a4"},
		{13, ended(1, 4, exited(0, "")), "failed 2/1 a4 (it ended well, but its node has no result of it); HAVE 1 a4"},
		{13, gone(1, 4), ""},
		{31, Tick{}, ""},
		{32, Tick{}, "start 1/0 a5~3 ws1/4; START 1 1/0 a5"},
		{32, ended(1, 5, barred), "back 1/0 a5 barred (does not run jobs of u); FORGET 1 a5"},
		{33, up(2, "ws2", 4), "node ws2 s1"},
		{33, ListEnd{2}, "start 1/0 a6~4 ws2/4; START 2 1/0 a6"},
	}},
	{"a node that does not run jobs of a user is tried again in its next session", begin, []step{
		{1, ended(1, 1, barred), "back 1/0 a1 barred (does not run jobs of u); FORGET 1 a1"},
		{2, gone(1, 1), ""},
		{2, NodeDown{1}, ""},
		{3, up(2, "ws1", 4), ""},
		{3, ListEnd{2}, "start 1/0 a2~2 ws1/4; START 2 1/0 a2"},
	}},
	{"it is tried again when it offers something else, but not each time that it does", begin, []step{
		{1, ended(1, 1, barred), "back 1/0 a1 barred (does not run jobs of u); FORGET 1 a1"},
		{2, offered(1, 4, nil), ""},
		{3, offered(1, 4, nil), ""},
		{10, Tick{}, ""},
		{11, Tick{}, "start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{11, ended(1, 2, barred), "back 1/0 a2 barred (does not run jobs of u); FORGET 1 a2"},
		{20, offered(1, 4, nil), ""},
		{22, offered(1, 4, nil), "start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
	}},
	{"another result than the one announced is not taken", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, staged(1, "n"), ""},
		{11, Tick{}, ""},
		{12, Tick{}, "GRANT 1 a1"},
	}},
	{"a transfer that fails is granted again", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, Staged{Attempt: tok(1), Err: errors.New("no room"), NoRoom: true}, ""},
		{12, Tick{}, "GRANT 1 a1"},
		{13, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 1 a1"},
	}},
	{"a result that cannot be taken fails the job and stays", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, Staged{Attempt: tok(1), Err: errors.New("bad"), Permanent: true},
			"failed 1/0 a1 lost (its result could not be brought home: bad); HOLD 1 a1"},
		{3, NodeDown{1}, ""},
		{4, up(2, "ws1", 4), ""},
		{4, itemEnded(2, 1, exited(0, "m")), "GRANT 2 a1"},
		{4, ListEnd{2}, ""},
		{5, staged(1, "m"), "late 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 2 a1"},
	}},
	{"a session that breaks in a transfer", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, NodeDown{1}, ""},
		{3, up(2, "ws1", 4), ""},
		{3, itemEnded(2, 1, exited(0, "m")), "GRANT 2 a1"},
		{3, ListEnd{2}, ""},
		{4, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 2 a1"},
	}},
	{"a transfer that ends after its session", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, NodeDown{1}, ""},
		{4, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true"},
		{5, up(2, "ws1", 4), ""},
		{5, itemEnded(2, 1, exited(0, "m")), "HAVE 2 a1"},
		{5, ListEnd{2}, ""},
		{6, gone(2, 1), "CLOSED 1"},
	}},
	{"a node whose list lacks what is settled has let it go", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{4, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 1 a1"},
		{5, NodeDown{1}, ""},
		{5, up(2, "ws1", 4), ""},
		{5, ListEnd{2}, "CLOSED 1"},
	}},
	{"lease ends, the node returns, both run, the first result wins", silent, []step{
		{902, up(3, "ws1", 4), ""},
		{902, item(3, 1, job.PhaseRunning), "KEEP 3 a1"},
		{902, ListEnd{3}, ""},
		{903, ended(3, 1, exited(0, "m")), "GRANT 3 a1"},
		{903, staged(1, "m"), "done 1/0 a1 m; STOP 2 a2; PUBLISH 1/0 a1 out=true; HAVE 3 a1"},
		{904, ended(2, 2, exited(0, "n")), "GRANT 2 a2"},
		{904, staged(2, "n"), "late 1/0 a2 n; PUBLISH 1/0 a2 out=false; HAVE 2 a2"},
		{905, gone(2, 2), ""},
		{905, gone(3, 1), "CLOSED 1"},
	}},
	{"the attempt that was given up fails: its job does not", silent, []step{
		{902, up(3, "ws1", 4), ""},
		{902, itemEnded(3, 1, exited(1, "m")), "GRANT 3 a1"},
		{903, staged(1, "m"), "late 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 3 a1"},
		{904, ended(2, 2, exited(0, "n")), "GRANT 2 a2"},
		{904, staged(2, "n"), "done 1/0 a2 n; PUBLISH 1/0 a2 out=true; HAVE 2 a2"},
	}},
	{"the new attempt fails: the job fails, and the old one stops", silent, []step{
		{902, up(3, "ws1", 4), ""},
		{902, item(3, 1, job.PhaseRunning), "KEEP 3 a1"},
		{902, ListEnd{3}, ""},
		{903, ended(2, 2, exited(1, "")), "failed 1/0 a2; STOP 3 a1; HAVE 2 a2"},
		{904, retry, "retry 1/0; start 1/0 a3~3 ws2/4; START 2 1/0 a3"},
		{905, ended(3, 1, exited(0, "m")), "GRANT 3 a1"},
		{906, staged(1, "m"), "late 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 3 a1"},
	}},
	{"an attempt that returns unstarted while its job runs elsewhere", silent, []step{
		{902, up(3, "ws1", 4), ""},
		{902, item(3, 1, job.PhaseWaiting), "STOP 3 a1"},
		{902, ListEnd{3}, ""},
		{903, ended(3, 1, unstarted), "late 1/0 a1; FORGET 3 a1"},
	}},
	{"an attempt that returns while its job waits is adopted", begin, []step{
		{1, NodeDown{1}, ""},
		{900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
		{902, up(3, "ws1", 4), ""},
		{902, item(3, 1, job.PhaseRunning), "adopt 1/0 a1; KEEP 3 a1"},
		{902, ListEnd{3}, ""},
	}},
	{"an attempt that returns each time is not lost in a row", slices.Concat(begin, sleeps(6)), []step{
		{7000, ended(7, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 7 a1; start 1/0 a2~2 ws1/4; START 7 1/0 a2"},
	}},
	{"an attempt whose machine was restarted while it was lost is not adopted", begin, []step{
		{1, NodeDown{1}, ""},
		{900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
		{902, NodeUp{Session: 2, Node: "ws1", Boot: "b2", State: "s1"}, ""},
		{902, item(2, 1, job.PhaseWaiting), "STOP 2 a1"},
		{902, ListEnd{2}, ""},
		{903, ended(2, 1, unstarted), "late 1/0 a1; FORGET 2 a1"},
	}},
	{"a result that returns while its job waits is adopted too", begin, []step{
		{1, NodeDown{1}, ""},
		{900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s)"},
		{902, up(3, "ws1", 4), ""},
		{902, itemEnded(3, 1, exited(0, "m")), "adopt 1/0 a1; GRANT 3 a1"},
		{902, ListEnd{3}, ""},
	}},
	{"a machine that restarts", begin, []step{
		{1, NodeDown{1}, ""},
		{2, NodeUp{Session: 2, Node: "ws1", Boot: "b2", State: "s1"}, ""},
		{2, item(2, 1, job.PhaseRunning), "back 1/0 a1 lost (ws1 was restarted under it); STOP 2 a1"},
		{2, ListEnd{2}, ""},
		{3, ended(2, 1, lost), "late 1/0 a1; HAVE 2 a1"},
	}},
	{"a machine that restarts and had not kept that it was over", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{1, NodeDown{1}, ""},
		{2, NodeUp{Session: 2, Node: "ws1", Boot: "b2", State: "s1"}, ""},
		{2, item(2, 1, job.PhaseRunning), "back 1/0 a1 lost (ws1 was restarted under it); STOP 2 a1"},
	}},
	{"an attempt that had ended, and runs", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{1, NodeDown{1}, ""},
		{2, up(2, "ws1", 4), ""},
		{2, item(2, 1, job.PhaseRunning), "ODD 2 a1; KEEP 2 a1"},
	}},
	{"a machine that restarts and says itself what is lost", begin, []step{
		{1, NodeDown{1}, ""},
		{2, NodeUp{Session: 2, Node: "ws1", Boot: "b2", State: "s1"}, ""},
		{2, itemEnded(2, 1, Result{Fate: job.FateLost, Manifest: "m", Outcome: job.Outcome{Reason: "restarted"}}), "GRANT 2 a1"},
		{2, ListEnd{2}, ""},
		{3, staged(1, "m"), "back 1/0 a1 lost (restarted); late 1/0 a1 m (restarted); PUBLISH 1/0 a1 out=false; HAVE 2 a1"},
	}},
	{"a node that has lost its directory", begin, []step{
		{1, NodeDown{1}, ""},
		{2, NodeUp{Session: 2, Node: "ws1", Boot: "b1", State: "s2"},
			"node ws1 s2; back 1/0 a1 lost (ws1 lost its directory); late 1/0 a1 (ws1 lost its directory)"},
		{2, ListEnd{2}, ""},
	}},
	{"a node that comes back without what it ran", begin, []step{
		{1, NodeDown{1}, ""},
		{2, up(2, "ws1", 0), ""},
		{2, ListEnd{2}, "back 1/0 a1 lost (ws1 came back without it); late 1/0 a1 (ws1 came back without it)"},
	}},
	{"a start that never arrived does not count", begin[:4], []step{
		{1, NodeDown{1}, ""},
		{2, up(2, "ws1", 0), ""},
		{2, ListEnd{2}, "back 1/0 a1 unstarted (ws1 came back without it)"},
	}},
	{"a node given up by an operator", begin, []step{
		{1, NodeGone{Node: "ws1"}, ""},
		{1, NodeDown{1}, ""},
		{2, NodeGone{Node: "ws1"}, "back 1/0 a1 lost (ws1 was given up); late 1/0 a1 (ws1 was given up)"},
		{3, up(2, "ws1", 4), ""},
		{3, itemEnded(2, 1, exited(0, "m")), "HOLD 2 a1"},
		{3, ListEnd{2}, "start 1/0 a2~2 ws1/4; START 2 1/0 a2"},
	}},
	{"cancel of a job that waits", begin[:2], []step{
		{1, cancel, "cancelled 1/0 (cancelled by u); CLOSED 1"},
		{2, cancel, ""},
		{3, retry, "REOPENED 1; retry 1/0"},
		{4, retry, ""},
		{5, cancel, ""},
	}},
	{"cancel of a job that runs", begin, []step{
		{1, cancel, "cancelled 1/0 (cancelled by u); STOP 1 a1"},
		{2, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{3, staged(1, "m"), "late 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 1 a1"},
		{4, gone(1, 1), "CLOSED 1"},
	}},
	{"cancel of a job whose result is on its way", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, cancel, "cancelled 1/0 (cancelled by u)"},
		{3, staged(1, "m"), "late 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 1 a1"},
	}},
	{"cancel of a job whose node is away", begin, []step{
		{1, NodeDown{1}, ""},
		{2, cancel, "cancelled 1/0 (cancelled by u)"},
		{3, up(2, "ws1", 4), ""},
		{3, item(2, 1, job.PhaseRunning), "STOP 2 a1"},
		{3, ListEnd{2}, ""},
		{4, ended(2, 1, exited(0, "m")), "GRANT 2 a1"},
	}},
	{"cancel of a job that is done", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 1 a1"},
		{3, cancel, ""},
		{3, retry, ""},
	}},
	{"a retried job takes no result from before", begin, []step{
		{1, cancel, "cancelled 1/0 (cancelled by u); STOP 1 a1"},
		{2, retry, "retry 1/0"},
		{3, ended(1, 1, exited(0, "m")), "GRANT 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{4, staged(1, "m"), "late 1/0 a1 m; PUBLISH 1/0 a1 out=false; HAVE 1 a1"},
	}},
	{"what no node of ours says", begin, []step{
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, item(2, 9, job.PhaseRunning), "HOLD 2 a9"},
		{1, item(2, 1, job.PhaseRunning), "ODD 2 a1"},
		{1, Item{Session: 2, Attempt: "x", Phase: job.PhaseRunning}, `ODD 2 "x"`},
		{1, ListEnd{2}, ""},
		{1, item(2, 1, job.PhaseRunning), "ODD 2 a1"},
		{1, ended(2, 1, exited(0, "m")), "ODD 2 a1"},
		{1, gone(2, 1), "ODD 2 a1"},
		{1, phase(1, 1, "flying"), "ODD 1 a1"},
		{1, phase(7, 1, job.PhaseRunning), ""},
		{1, ended(7, 1, exited(0, "m")), ""},
		{1, staged(8, "m"), ""},
		{1, staged(1, "m"), ""},
		{1, NodeDown{7}, ""},
		{1, up(3, "ws1", 4), "REFUSE 3"},
		{1, up(2, "ws3", 4), `ODD 2 ""`},
	}},
	{"cpus of attempts that the head does not know are not given away", begin[:3], []step{
		{1, Item{Session: 1, Attempt: tok(9), Phase: job.PhaseRunning, CPUs: 4}, "HOLD 1 a9"},
		{1, ListEnd{1}, ""},
		{2, ended(1, 9, exited(0, "m")), "HOLD 1 a9; start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
	}},
	{"of a node that got another name runs on, counted, until its job is lost, and is stopped then", begin, []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, Item{Session: 2, Attempt: tok(1), Phase: job.PhaseRunning, CPUs: 4}, "STRAYED 2 a1 of ws1"},
		{1, ListEnd{2}, ""},
		{2, phase(2, 1, job.PhasePaused), ""},
		{3, asks(2, 1, 1, 1, 0), ""}, // all cpus of ws2 are in use
		{800, Tick{}, ""},
		{800, Heard{2}, ""},
		{901, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s); STOP 2 a1"},
		{902, Tick{}, ""},
		{903, ended(2, 1, exited(-1, "m")), "HOLD 2 a1; start 2/0 a2~1 ws2/1; START 2 2/0 a2"},
		{904, gone(2, 1), "ODD 2 a1"},
	}},
	{"and of a node that gets its former name back, its result is taken", begin, []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, item(2, 1, job.PhaseRunning), "STRAYED 2 a1 of ws1"},
		{1, ListEnd{2}, ""},
		{2, ended(2, 1, exited(0, "m")), "HOLD 2 a1"},
		{3, NodeDown{2}, ""},
		{3, up(3, "ws2", 4), ""},
		{3, itemEnded(3, 1, exited(0, "m")), "STRAYED 3 a1 of ws1; HOLD 3 a1"},
		{3, ListEnd{3}, ""},
		{4, NodeDown{3}, ""},
		{4, up(4, "ws1", 4), ""},
		{4, itemEnded(4, 1, exited(0, "m")), "GRANT 4 a1"},
	}},
	{"and one that has not begun comes back at once", begin[:4], []step{
		{1, NodeDown{1}, ""},
		{1, upIn(2, "ws2", 4, "s2"), "node ws2 s2"},
		{1, item(2, 1, job.PhaseSending), "STRAYED 2 a1 of ws1; STOP 2 a1"},
		{1, ListEnd{2}, ""},
		{2, ended(2, 1, unstarted), "FORGET 2 a1"},
		{2, gone(2, 1), ""},
		{3, gone(2, 1), "ODD 2 a1"},
		{900, Tick{}, "back 1/0 a1 lost (ws1 was silent for 15m0s); start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
	}},
	{"and of one that shows the same directory it is known at once that it never began", begin[:4], []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, item(2, 1, job.PhaseSending), "STRAYED 2 a1 of ws1; STOP 2 a1"},
		{1, ListEnd{2}, ""},
		{2, ended(2, 1, unstarted), "back 1/0 a1 unstarted (lost by ws1); FORGET 2 a1; start 1/0 a2~2 ws2/4; START 2 1/0 a2"},
		{3, NodeDown{2}, ""},
		{3, up(3, "ws1", 4), ""},
		{3, itemEnded(3, 1, unstarted), "FORGET 3 a1"},
	}},
	{"or that it was lost, which fails a job that is never started twice", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 1, Once: true, Spec: single}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
		{0, phase(1, 1, job.PhaseRunning), ""},
	}, []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, itemEnded(2, 1, lost), "STRAYED 2 a1 of ws1; failed 1/0 a1 lost (lost by ws1; it is never started twice); late 1/0 a1; HAVE 2 a1"},
		{1, ListEnd{2}, ""},
		{2, gone(2, 1), "CLOSED 1"},
	}},
	{"but not while the former name is connected: the directory is a copy", begin[:4], []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, item(2, 1, job.PhaseSending), "STRAYED 2 a1 of ws1; STOP 2 a1"},
		{1, ListEnd{2}, ""},
		{2, up(3, "ws1", 4), ""},
		{2, item(3, 1, job.PhaseRunning), "KEEP 3 a1"},
		{2, ListEnd{3}, ""},
		{3, ended(2, 1, unstarted), "FORGET 2 a1"},
	}},
	{"but not of one that shows another", begin, []step{
		{1, NodeDown{1}, ""},
		{1, upIn(2, "ws2", 4, "s2"), "node ws2 s2"},
		{1, itemEnded(2, 1, lost), "STRAYED 2 a1 of ws1; HOLD 2 a1"},
	}},
	{"and one that is cancelled meanwhile is stopped", begin, []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws2", 4), "node ws2 s1"},
		{1, item(2, 1, job.PhaseRunning), "STRAYED 2 a1 of ws1"},
		{1, ListEnd{2}, ""},
		{2, cancel, "cancelled 1/0 (cancelled by u)"},
		{3, Tick{}, "STOP 2 a1"},
	}},
	{"one that says no number of cpus has all of its node's, also those that are lent back", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 1, Spec: single}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, offered(1, 1, &node.Pause{Give: &node.Give{CPUs: 3}}), ""},
	}, []step{
		{1, item(1, 9, job.PhaseRunning), "HOLD 1 a9"},
		{1, ListEnd{1}, ""},
		{2, offered(1, 4, nil), ""},
		{3, ended(1, 9, exited(0, "m")), "HOLD 1 a9; start 1/0 a1~1 ws1/1; START 1 1/0 a1"},
	}},
	{"and one where its node offers none", []step{
		{0, Loaded{}, ""},
		{0, whole, ""},
		{0, up(1, "ws1", 0), "node ws1 s1"},
	}, []step{
		{1, item(1, 9, job.PhaseRunning), "HOLD 1 a9"},
		{1, ListEnd{1}, ""},
		{2, offered(1, 4, nil), ""},
		{3, ended(1, 9, exited(0, "m")), "HOLD 1 a9; start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
	}},
	{"a build that fails goes elsewhere, then fails the batch", []step{
		{0, Loaded{}, ""},
		{0, two, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, up(2, "ws2", 4), "node ws2 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{0, ListEnd{2}, "start 1/1 a2~1 ws2/4; START 2 1/1 a2"},
	}, []step{
		{1, ended(1, 1, buildFailed), "back 1/0 a1 build_failed (build failed); HAVE 1 a1"},
		{2, ended(2, 2, buildFailed), "back 1/1 a2 build_failed (build failed); HAVE 2 a2; " +
			"failed 1/0 (build failed on ws1, ws2); failed 1/1 (build failed on ws1, ws2)"},
		{3, gone(1, 1), ""},
		{3, gone(2, 2), "CLOSED 1"},
		{4, retry, "REOPENED 1; retry 1/0; start 1/0 a3~2 ws1/4; START 1 1/0 a3"},
	}},
	{"what a failed build printed comes home before its job waits again", begin, []step{
		{1, ended(1, 1, Result{Fate: job.FateBuildFailed, Manifest: "m"}), "GRANT 1 a1"},
		{2, staged(1, "m"), "back 1/0 a1 m build_failed (build failed); PUBLISH 1/0 a1 out=false; HAVE 1 a1; " +
			"failed 1/0 (build failed on ws1)"},
	}},
	{"lost five times in a row", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, ended(1, 2, lost), "back 1/0 a2 lost (lost by ws1); late 1/0 a2; HAVE 1 a2; start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
		{1, ended(1, 3, lost), "back 1/0 a3 lost (lost by ws1); late 1/0 a3; HAVE 1 a3; start 1/0 a4~4 ws1/4; START 1 1/0 a4"},
		{1, ended(1, 4, lost), "back 1/0 a4 lost (lost by ws1); late 1/0 a4; HAVE 1 a4; start 1/0 a5~5 ws1/4; START 1 1/0 a5"},
		{1, ended(1, 5, lost), "failed 1/0 a5 lost (lost 5 times in a row, the last time: lost by ws1); late 1/0 a5; HAVE 1 a5"},
	}},
	{"what is handed back is not lost, however often the job was lost", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, ended(1, 2, lost), "back 1/0 a2 lost (lost by ws1); late 1/0 a2; HAVE 1 a2; start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
		{1, ended(1, 3, lost), "back 1/0 a3 lost (lost by ws1); late 1/0 a3; HAVE 1 a3; start 1/0 a4~4 ws1/4; START 1 1/0 a4"},
		{1, ended(1, 4, lost), "back 1/0 a4 lost (lost by ws1); late 1/0 a4; HAVE 1 a4; start 1/0 a5~5 ws1/4; START 1 1/0 a5"},
		{1, ended(1, 5, unstarted), "back 1/0 a5 unstarted (not started); FORGET 1 a5"},
	}},
	{"what ends while the list is sent is there, though the list lacks it", begin, []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws1", 4), ""},
		{1, ended(2, 1, exited(0, "m")), "GRANT 2 a1"},
		{1, ListEnd{2}, ""},
		{2, staged(1, "m"), "done 1/0 a1 m; PUBLISH 1/0 a1 out=true; HAVE 2 a1"},
	}},
	{"an item said twice is granted once", begin, []step{
		{1, NodeDown{1}, ""},
		{1, up(2, "ws1", 4), ""},
		{1, itemEnded(2, 1, exited(0, "m")), "GRANT 2 a1"},
		{1, itemEnded(2, 1, exited(0, "m")), ""},
		{1, ListEnd{2}, ""},
	}},
	{"a result of what its node had said is lost is kept there", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, ended(1, 1, exited(0, "m")), "HOLD 1 a1"},
		{1, ended(1, 1, lost), "HAVE 1 a1"},
	}},
	{"a result that its node was told to keep is let go when another attempt is done", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, NodeDown{1}, ""},
		{2, up(2, "ws1", 4), ""},
		{2, itemEnded(2, 1, exited(0, "m")), "HOLD 2 a1"}, // its disk has lost that the files are damaged
		{2, item(2, 2, job.PhaseRunning), "KEEP 2 a2"},
		{2, ListEnd{2}, ""},
		{3, ended(2, 2, exited(0, "m")), "GRANT 2 a2"},
		{4, staged(2, "m"), "done 1/0 a2 m; HAVE 2 a1; PUBLISH 1/0 a2 out=true; HAVE 2 a2"},
		{5, gone(2, 2), ""},
		{5, gone(2, 1), "CLOSED 1"},
	}},
	{"a result that its node was told to keep is let go when its job is cancelled", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, ended(1, 1, exited(0, "m")), "HOLD 1 a1"},
		{1, ended(1, 1, exited(0, "m")), "HOLD 1 a1"},
		{2, cancel, "cancelled 1/0 (cancelled by u); STOP 1 a2; HAVE 1 a1"},
		{3, gone(1, 1), ""},
	}},
	{"a result that its node was told to keep is there as long as its job failed", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, ended(1, 1, exited(0, "m")), "HOLD 1 a1"},
		{2, ended(1, 2, exited(3, "m")), "GRANT 1 a2"},
		{2, staged(2, "m"), "failed 1/0 a2 m; PUBLISH 1/0 a2 out=false; HAVE 1 a2"},
		{3, gone(1, 2), ""},
		{4, retry, "retry 1/0; start 1/0 a3~3 ws1/4; START 1 1/0 a3"},
		{5, ended(1, 3, exited(0, "m")), "GRANT 1 a3"},
		{5, staged(3, "m"), "done 1/0 a3 m; HAVE 1 a1; PUBLISH 1/0 a3 out=true; HAVE 1 a3"},
		{6, gone(1, 3), ""},
		{6, gone(1, 1), "CLOSED 1"},
	}},
	{"a result that cannot be taken is let go when another attempt is done", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, Staged{Attempt: tok(1), Err: errors.New("bad"), Permanent: true},
			"failed 1/0 a1 lost (its result could not be brought home: bad); HOLD 1 a1"},
		{3, retry, "retry 1/0; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{4, ended(1, 2, exited(0, "m")), "GRANT 1 a2"},
		{5, staged(2, "m"), "done 1/0 a2 m; late 1/0 a1; HAVE 1 a1; PUBLISH 1/0 a2 out=true; HAVE 1 a2"},
		{6, gone(1, 1), ""},
		{6, gone(1, 2), "CLOSED 1"},
	}},
	{"an attempt whose result cannot be taken runs again, as its node has lost power, and its job is cancelled", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, Staged{Attempt: tok(1), Err: errors.New("bad"), Permanent: true},
			"failed 1/0 a1 lost (its result could not be brought home: bad); HOLD 1 a1"},
		{3, retry, "retry 1/0; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{4, NodeDown{1}, ""},
		{5, up(2, "ws1", 4), ""},
		{5, item(2, 1, job.PhaseRunning), "ODD 2 a1; STOP 2 a1"},
		{5, item(2, 2, job.PhaseRunning), "KEEP 2 a2"},
		{5, ListEnd{2}, ""},
		{6, cancel, "cancelled 1/0 (cancelled by u); STOP 2 a2"},
		{7, ended(2, 1, exited(0, "m")), "GRANT 2 a1"},
	}},
	{"a result that cannot be taken of a job that is cancelled is let go", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{2, cancel, "cancelled 1/0 (cancelled by u)"},
		{3, Staged{Attempt: tok(1), Err: errors.New("bad"), Permanent: true}, "late 1/0 a1; HAVE 1 a1"},
		{4, gone(1, 1), "CLOSED 1"},
	}},
	{"what has no room and is unwanted is let go", begin, []step{
		{1, ended(1, 1, exited(0, "m")), "GRANT 1 a1"},
		{1, Unwanted{1}, ""},
		{2, cancel, "cancelled 1/0 (cancelled by u)"},
		{2, Unwanted{1}, ""},
		{3, Staged{Attempt: tok(1), Err: errors.New("full"), NoRoom: true}, ""},
		{3, Unwanted{1}, "late 1/0 a1; HAVE 1 a1"},
		{3, Unwanted{1}, ""},
		{4, gone(1, 1), "CLOSED 1"},
		{5, Unwanted{1}, ""},
		{5, Unwanted{2}, ""},
	}},
	{"what its node keeps, since the head took it for lost, is let go when it is unwanted", begin, []step{
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
		{1, ended(1, 1, exited(0, "m")), "HOLD 1 a1"},
		{1, Unwanted{1}, ""},
		{2, ended(1, 2, exited(3, "m")), "GRANT 1 a2"},
		{2, staged(2, "m"), "failed 1/0 a2 m; PUBLISH 1/0 a2 out=false; HAVE 1 a2"},
		{3, gone(1, 2), ""},
		{4, Unwanted{1}, "HAVE 1 a1"},
		{4, Unwanted{1}, ""},
		{4, ended(1, 1, exited(0, "m")), "HAVE 1 a1"},
		{5, gone(1, 1), "CLOSED 1"},
	}},
	{"what did not run does not tell how long jobs run", begin[:1], []step{
		{0, AddBatch{Batch: 1, Jobs: 3}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{1, ended(1, 1, lost), "back 1/0 a1 lost (lost by ws1); late 1/0 a1; HAVE 1 a1; start 1/0 a2~2 ws1/4; START 1 1/0 a2"},
	}},
	{"retry: never", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 2, Once: true, Spec: single}, ""},
		{0, up(1, "ws1", 2), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/1; START 1 1/0 a1; start 1/1 a2~1 ws1/1; START 1 1/1 a2"},
		{0, phase(1, 1, job.PhaseRunning), ""},
	}, []step{
		{1, NodeDown{1}, ""},
		{2000, Tick{}, ""},
		{2001, up(2, "ws1", 2), ""},
		{2001, item(2, 1, job.PhaseRunning), "KEEP 2 a1"},
		{2001, ListEnd{2}, "back 1/1 a2 unstarted (ws1 came back without it); start 1/1 a3~2 ws1/1; START 2 1/1 a3"},
		{2002, ended(2, 1, lost), "failed 1/0 a1 lost (lost by ws1; it is never started twice); late 1/0 a1; HAVE 2 a1"},
		{2003, retry, "retry 1/0; start 1/0 a4~2 ws1/1; START 2 1/0 a4"},
	}},
	{"oldest batch first, in the order of the file, as many as fit", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 2, Jobs: 2, Spec: single}, ""},
		{0, AddBatch{Batch: 1, Jobs: 3, Asks: []Ask{{CPUs: 3}, {CPUs: 2}, {CPUs: 1}}}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
	}, []step{
		{1, ListEnd{1}, "start 1/0 a1~1 ws1/3; START 1 1/0 a1; start 1/2 a2~1 ws1/1; START 1 1/2 a2"},
		{2, ended(1, 1, exited(1, "")), "failed 1/0 a1; HAVE 1 a1; start 1/1 a3~1 ws1/2; START 1 1/1 a3; start 2/0 a4~1 ws1/1; START 1 2/0 a4"},
	}},
	{"capabilities", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 1, Spec: py}, ""},
		{0, up(1, "ws1", 4, "python3"), "node ws1 s1"},
		{0, ListEnd{1}, ""},
		{0, up(2, "ws2", 4, "gpu", "python3"), "node ws2 s1"},
	}, []step{
		{1, ListEnd{2}, "start 1/0 a1~1 ws2/4; START 2 1/0 a1"},
	}},
	{"a node that has built the batch is preferred", []step{
		{0, Loaded{}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, ""},
		{0, up(2, "ws2", 4), "node ws2 s1"},
		{0, ListEnd{2}, ""},
		{0, AddBatch{Batch: 1, Jobs: 1, Replay: true}, ""},
		{0, Built{2, 1}, ""},
	}, []step{
		{1, Ready{1}, "start 1/0 a1~1 ws2/4; START 2 1/0 a1"},
	}},
	{"short jobs are sent ahead, and recalled for an idle node", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 4}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{0, phase(1, 1, job.PhaseRunning), ""},
	}, []step{
		{1, ended(1, 1, quickly(exited(0, "m"))), "GRANT 1 a1; start 1/1 a2~1 ws1/4; START 1 1/1 a2; start 1/2 a3~1 ws1/4; START 1 1/2 a3"},
		{1, ended(1, 2, quickly(exited(0, "m"))), "GRANT 1 a2; start 1/3 a4~1 ws1/4; START 1 1/3 a4"},
		{2, up(2, "ws2", 4), "node ws2 s1"},
		{2, ListEnd{2}, "RECALL 1 a4"},
		{3, ended(1, 4, unstarted), "back 1/3 a4 unstarted (not started); FORGET 1 a4; start 1/3 a5~2 ws2/4; START 2 1/3 a5"},
	}},
	{"what is over at once is sent ahead in numbers, but not where it fails", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 7}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{1, ended(1, 1, ran(0.04, exited(0, "m"))), "GRANT 1 a1; start 1/1 a2~1 ws1/4; START 1 1/1 a2; start 1/2 a3~1 ws1/4; START 1 1/2 a3; start 1/3 a4~1 ws1/4; START 1 1/3 a4"},
		{1, ended(1, 2, ran(0.001, exited(1, ""))), "failed 1/1 a2; HAVE 1 a2"},
		{1, ended(1, 3, ran(0.001, exited(1, ""))), "failed 1/2 a3; HAVE 1 a3; start 1/4 a5~1 ws1/4; START 1 1/4 a5"},
	}, []step{
		{1, ended(1, 4, ran(0.05, exited(0, "m"))), "GRANT 1 a4; start 1/5 a6~1 ws1/4; START 1 1/5 a6; start 1/6 a7~1 ws1/4; START 1 1/6 a7"},
	}},
	{"a recall that comes too late", []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1, Jobs: 3}, ""},
		{0, up(1, "ws1", 4), "node ws1 s1"},
		{0, ListEnd{1}, "start 1/0 a1~1 ws1/4; START 1 1/0 a1"},
		{1, ended(1, 1, quickly(exited(1, ""))), "failed 1/0 a1; HAVE 1 a1; start 1/1 a2~1 ws1/4; START 1 1/1 a2; start 1/2 a3~1 ws1/4; START 1 1/2 a3"},
		{2, up(2, "ws2", 4), "node ws2 s1"},
		{2, ListEnd{2}, "RECALL 1 a3"},
	}, []step{
		{3, ended(1, 2, quickly(exited(1, ""))), "failed 1/1 a2; HAVE 1 a2"},
		{3, phase(1, 3, job.PhaseRunning), ""},
	}},
	{"a retry has all jobs of a batch tried again where its build failed", []step{
		{0, Loaded{}, ""},
		{0, up(1, "ws1", 2), "node ws1 s1"},
		{0, ListEnd{1}, ""},
		{0, up(2, "ws2", 2), "node ws2 s1"},
		{0, ListEnd{2}, ""},
		{0, AddBatch{Batch: 1, Jobs: 3, Asks: []Ask{{CPUs: 2}, {CPUs: 1}, {CPUs: 1}}},
			"start 1/0 a1~1 ws1/2; START 1 1/0 a1; start 1/1 a2~1 ws2/1; START 2 1/1 a2; start 1/2 a3~1 ws2/1; START 2 1/2 a3"},
		{1, ended(1, 1, buildFailed), "back 1/0 a1 build_failed (build failed); HAVE 1 a1"},
		{2, Cancel{Ref: Ref{1, 2}, By: "u"}, "cancelled 1/2; STOP 2 a3"},
	}, []step{
		{3, Retry{Ref: Ref{1, 2}, By: "u"}, "retry 1/2; start 1/0 a4~2 ws1/2; START 1 1/0 a4"},
	}},
	{"a head that has not read its logs refuses nodes", nil, []step{
		{0, up(1, "ws1", 4), "REFUSE 1"},
	}},
	{"a session whose lease ends is refused", begin, []step{
		{900, Tick{}, "REFUSE 1; back 1/0 a1 lost (ws1 was silent for 15m0s)"},
		{901, ended(1, 1, exited(0, "m")), ""},
	}},
	{"a batch without jobs is closed at once", nil, []step{
		{0, Loaded{}, ""},
		{0, AddBatch{Batch: 1}, "CLOSED 1"},
		{0, AddBatch{Batch: 1, Jobs: 3}, ""},
	}},
}

func TestRules(t *testing.T) { rules.run(t) }
