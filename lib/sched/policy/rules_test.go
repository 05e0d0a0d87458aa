package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/node"
)

// A sketch is a lab as the tests draw it: nodes with 4 cpus each unless it is said, and
// batches of one job, named by their numbers.
type sketch struct {
	*Lab
	runs map[*Node][]*Run
}

func draw() *sketch {
	return &sketch{&Lab{Site: &Site{}, Owners: map[int]*Owner{}, Lease: time.Hour, Now: 24 * time.Hour}, map[*Node][]*Run{}}
}

// node adds a node that is connected; others change what it is.
func (s *sketch) node(name string, change ...func(*Node)) *sketch {
	p := &Node{Name: node.Name(name), Session: 1, Listed: true, Boot: "b", Facts: &capability.Facts{Node: name}}
	s.AddNode(p)
	p.Runs = func(yield func(*Run) bool) {
		for _, r := range s.runs[p] {
			if !yield(r) {
				return
			}
		}
	}
	p.Back = func(yield func(*Run) bool) {
		for _, r := range slices.Backward(s.runs[p]) {
			if !yield(r) {
				return
			}
		}
	}
	s.Offers(p, node.Offer{CPUs: 4, Memory: 8 << 30, Disk: 100 << 30, DiskSize: 100 << 30, Capabilities: []string{string(name[0])}})
	for _, f := range change {
		f(p)
	}
	return s
}

// batch adds a batch of one job that asks for so many cpus.
func (s *sketch) batch(owner, cpus int, change ...func(*Queue)) *sketch {
	if s.Owners[owner] == nil {
		s.Owners[owner] = &Owner{At: s.Now}
	}
	b := &Batch{Num: uint32(len(s.Batches) + 1), Ready: true, Owner: s.Owners[owner]}
	b.Owner.Batches++
	q := &Queue{Batch: b, Jobs: NewSet(10), Says: &Declared{}}
	q.Class = &Class{Share: Share{CPUs: cpus}}
	q.Jobs.Add(0)
	for _, f := range change {
		f(q)
	}
	q.Class.Name = fmt.Sprint(q.Class.Share, q.Class.Wants)
	q.Class = s.ClassFor(q.Class)
	b.Queues = []*Queue{q}
	s.AddBatch(b)
	return s
}

// running has a job of so many cpus run on a node, since so long.
func (s *sketch) running(on, cpus int, since time.Duration) *sketch {
	p := s.Nodes[on]
	q := &Queue{Batch: &Batch{}, Class: &Class{}, Says: &Declared{}, Jobs: NewSet(1)}
	s.start(q, p, Share{CPUs: cpus}, s.Now-since)
	return s
}

func (s *sketch) start(q *Queue, p *Node, has Share, at time.Duration) {
	s.runs[p] = append(s.runs[p], &Run{Queue: q, Share: has, Active: true, Began: at})
	p.Used, p.Active = p.Used.Plus(has), p.Active+1
}

// decide is what is started, in order.
func (s *sketch) decide() string {
	var all []string
	for q, p := range s.Decide().Starts() {
		s.start(q, p, p.Given(q.Class.ShareOf(p)), s.Now)
		q.Jobs.Remove(q.Jobs.First())
		q.Batch.Running++
		q.Batch.Owner.Take(Weight(q.Class.Share, p.Could), s.Now)
		all = append(all, fmt.Sprintf("%d on %s", q.Batch.Num, p.Name))
	}
	for _, k := range s.Kept {
		all = append(all, fmt.Sprintf("%s is kept", k.On.Name))
	}
	return strings.Join(all, ", ")
}

// The rules of dsched(8), each by a lab in which nothing else decides.
func TestRules(t *testing.T) {
	jobs := func(n int) func(*Queue) {
		return func(q *Queue) {
			for i := range n {
				q.Jobs.Add(uint32(i))
			}
		}
	}
	wants := func(words ...string) func(*Queue) {
		return func(q *Queue) {
			for _, w := range words {
				e, err := capability.Parse(w)
				if err != nil {
					t.Fatal(err)
				}
				q.Class.Wants = append(q.Class.Wants, e)
			}
		}
	}
	for _, c := range []struct {
		rule string
		lab  *sketch
		want string
	}{
		// Which job goes first.
		{"max_running", draw().node("a").batch(1, 1, jobs(3), func(q *Queue) { q.Batch.Most = 1 }), "1 on a"},
		{"stop_after", draw().node("a").batch(1, 1, func(q *Queue) { q.Batch.Stopped = true }), ""},
		{"priority", draw().node("a").batch(1, 4).batch(1, 4, func(q *Queue) { q.Batch.Priority = 1 }), "2 on a"},
		{"turn", draw().node("a").batch(1, 4, func(q *Queue) { q.Batch.Owner.Used = 1e6 }).batch(2, 4), "2 on a"},
		{"turns of jobs that start at once", draw().node("a").batch(1, 1, jobs(4)).batch(2, 1, jobs(4)), "1 on a, 2 on a, 1 on a, 2 on a"},
		{"age", draw().node("a").batch(1, 4).batch(1, 4), "1 on a"},
		{"the first that has room", draw().node("a").running(0, 3, 0).batch(1, 1).batch(1, 1), "1 on a"},
		{"a node is kept for who asks for more", draw().node("a").running(0, 3, 0).batch(1, 4).batch(1, 1), "a is kept"},
		{"where enough comes free soonest", draw().node("a").node("b").running(0, 3, time.Hour).running(1, 3, time.Minute).batch(1, 4).batch(1, 1), "2 on a, b is kept"},
		{"not where nobody is passed over", draw().node("a").running(0, 4, 0).batch(1, 4), ""},
		{"beside the kept one", draw().node("a").running(0, 2, 0).batch(1, 3).batch(1, 1), "2 on a, a is kept"},

		// Which job goes where.
		{"capabilities", draw().node("a").node("b").batch(1, 1, wants("b")), "1 on b"},
		{"too small", draw().node("a").batch(1, 5), ""},
		{"the whole disk", draw().node("a").batch(1, 1, func(q *Queue) { q.Says.Ask(0, 200<<30) }), ""},
		{"what is left of the disk", draw().node("a", func(p *Node) { p.Offer.Disk = 1 << 30 }).node("b").batch(1, 1, func(q *Queue) { q.Says.Ask(0, 50<<30) }), "1 on b"},
		{"paused", draw().node("a", func(p *Node) { p.Offer.Pause = &node.Pause{} }).batch(1, 1), ""},
		{"drained", draw().node("a", func(p *Node) { p.Drained = "ana" }).batch(1, 1), ""},
		{"resting", draw().node("a", func(p *Node) { p.RestsUntil = 1 }).batch(1, 1), ""},
		{"not listed yet", draw().node("a", func(p *Node) { p.Listed = false }).batch(1, 1), ""},
		{"not beside what runs", draw().node("a").running(0, 4, 0).batch(1, 1), ""},
		{"whole nodes", draw().node("a").node("b").running(0, 1, 0).batch(1, 0), "1 on b"},
		{"first what waits there", draw().node("a", func(p *Node) { p.Waiting = 1 }).batch(1, 1), ""},

		// The best of these.
		{"pauses last", draw().node("a", func(p *Node) { p.PausesAt = 24*time.Hour + time.Minute }).node("b").batch(1, 1), "1 on b"},
		{"the fullest", draw().node("a").node("b").running(1, 1, 0).batch(1, 1), "1 on b"},
		{"the one known longest", draw().node("a").node("b").batch(1, 1), "1 on a"},
	} {
		c.lab.Now += time.Second
		if got := c.lab.decide(); got != c.want {
			t.Errorf("%s: %q, should be %q", c.rule, got, c.want)
		}
		r := c.lab.Inspect() // and nothing is said to be free that is not used
		for _, q := range r.queues {
			for _, p := range c.lab.Nodes {
				if v := r.Verdict(q, p); v == Free {
					t.Errorf("%s: nothing is in the way of %d on %s, and it is not started", c.rule, q.Batch.Num, p.Name)
				}
			}
		}
	}
	kept := draw().node("a").running(0, 3, 0).batch(1, 4).batch(1, 1)
	kept.runs[kept.Nodes[0]][0].Queue.Says.Ask(3600, 0)
	if got := kept.decide(); got != "a is kept" {
		t.Errorf("a node is kept: %q", got)
	}
	kept.batch(1, 1, func(q *Queue) { q.Says.Ask(3600, 0) }) // which ends a little later
	kept.Now += time.Second
	if got := kept.decide(); got != "a is kept" {
		t.Errorf("what ends too late: %q", got)
	}
	kept.batch(1, 1, func(q *Queue) { q.Says.Ask(60, 0) })
	if got := kept.decide(); got != "4 on a, a is kept" {
		t.Errorf("what ends in time: %q", got)
	}
	kept.running(0, -1, 0).batch(1, 1, func(q *Queue) { q.Batch.Priority = 1 })
	if got := kept.decide(); got != "5 on a, a is kept" {
		t.Errorf("a higher priority on the kept one: %q", got)
	}
	refused := draw().node("a").batch(1, 1)
	refused.Batches[0].Refusals = map[*Node]Refusal{refused.Nodes[0]: {Until: time.Minute, Long: time.Minute}}
	if got := refused.decide(); got != "" {
		t.Errorf("where it was given back: %q", got)
	}
	unbuilt := draw().node("a").batch(1, 1)
	unbuilt.Batches[0].FailedBuilds = map[*Node]struct{}{unbuilt.Nodes[0]: {}}
	if got := unbuilt.decide(); got != "" {
		t.Errorf("where it could not be built: %q", got)
	}
	built := draw().node("a").node("b").batch(1, 1)
	built.Batches[0].Pace = map[*Node]time.Duration{built.Nodes[1]: NoPace}
	if got := built.decide(); got != "1 on b" {
		t.Errorf("built already: %q", got)
	}
	failed := draw().node("a").node("b").batch(1, 1)
	failed.Batches[0].Queues[0].FailedOn = []*Node{failed.Nodes[0]}
	if got := failed.decide(); got != "1 on b" {
		t.Errorf("where it failed: %q", got)
	}
	counted := draw().node("a").batch(1, 1, func(q *Queue) { q.Class.Share.Counts = job.Counts("").With("seat", 2) }).
		batch(1, 1, func(q *Queue) { q.Class.Share.Counts = job.Counts("").With("seat", 1) })
	counted.Site.Has = job.Counts("").With("seat", 2)
	counted.Site.Taken = job.Counts("").With("seat", 1)
	for _, c := range counted.Classes {
		counted.Nodes[0].Judge(c)
	}
	if got := counted.decide(); got != "" {
		t.Errorf("a seat for who waits for two: %q", got)
	}
}

// A job is not asked back for a node that it may not have, as one that is kept for others:
// it would be sent ahead and asked back for ever.
func TestNotRecalledForAKeptNode(t *testing.T) {
	s := draw().node("a").node("b").batch(1, 4).batch(1, 1)
	s.running(1, 4, time.Second)
	s.runs[s.Nodes[1]] = append(s.runs[s.Nodes[1]], &Run{Token: "t", Queue: s.Batches[1].Queues[0], Share: Share{CPUs: 1}, Idle: true})
	s.Nodes[1].Waiting = 1
	s.Batches[1].Queues[0].Jobs.Remove(0)
	s.Batches[0].Queues[0].Jobs.Remove(0)
	recalled := func() (all []job.Token) {
		for a := range s.Inspect().Recalls() {
			all = append(all, a.Token)
		}
		return all
	}
	if got := recalled(); len(got) != 1 {
		t.Errorf("for an idle node: %q", got)
	}
	k := &Reservation{Of: s.Batches[0].Queues[0].Class, On: s.Nodes[0]}
	s.Nodes[0].Kept, s.Kept, k.Of.Kept = k, []*Reservation{k}, []*Reservation{k}
	if got := recalled(); len(got) != 0 {
		t.Errorf("for a node that is kept whole: %q", got)
	}
}

// The slot of a class that is gone is another's, and what nodes were able to run of the one
// says nothing of the other.
func TestSlots(t *testing.T) {
	s := draw().node("a").batch(1, 1).batch(1, 5).batch(1, 2)
	s.DropBatch(s.Batches[0])
	s.batch(1, 9)
	seen := map[int]bool{}
	for _, c := range s.Classes {
		if seen[c.slot] {
			t.Errorf("two classes have the slot %d", c.slot)
		}
		seen[c.slot] = true
		if got := s.Nodes[0].Able(c); got != (c.Share.CPUs <= 4) {
			t.Errorf("a node of 4 cpus, and %d: %v", c.Share.CPUs, got)
		}
	}
}
