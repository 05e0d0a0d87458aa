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
	p := &Node{Name: node.Name(name), Session: 1, Listed: true, Boot: "b", Heard: s.Now, Facts: &capability.Facts{Node: name}}
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
	s.Offers(p, node.Offer{CPUs: 4, Memory: 8 << 30, Disk: 100 << 30, DiskSize: 1000 << 30, Capabilities: []string{string(name[0])}})
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
	b := &Batch{Num: uint32(len(s.Batches) + 1), Ready: true, Owner: s.Owners[owner], Pace: map[*Node]time.Duration{}, Refusals: map[*Node]Refusal{}}
	q := &Queue{Batch: b, Jobs: NewLine(b, 10), Says: &Declared{}}
	q.Class = &Class{Share: Share{CPUs: cpus}}
	q.Jobs.Add(0)
	for _, f := range change {
		f(q)
	}
	q.Class.Name = fmt.Sprint(q.Class.Share, q.Class.Ranks, q.Class.Wants, q.Class.Cards)
	q.Class = s.ClassFor(q.Class)
	b.Queues = []*Queue{q}
	s.AddBatch(b)
	return s
}

// with changes the lab.
func (s *sketch) with(change func(*sketch)) *sketch {
	change(s)
	return s
}

// offers has a node offer something else.
func (s *sketch) offers(on int, change func(*node.Offer)) *sketch {
	o := s.Nodes[on].Offer
	change(&o)
	s.Offers(s.Nodes[on], o)
	return s
}

// together has all nodes be one machine.
func (s *sketch) together() *sketch {
	for i := range s.Nodes {
		s.offers(i, func(o *node.Offer) { o.Machine = "m" })
	}
	return s
}

// lends has the owner of a node take so many cpus back.
func (s *sketch) lends(on, cpus int) *sketch {
	return s.offers(on, func(o *node.Offer) {
		o.CPUs -= cpus
		o.Pause = &node.Pause{By: []string{"ana"}, Give: &node.Give{CPUs: cpus}}
	})
}

// site has so much of what is counted, and some of it is taken.
func (s *sketch) site(has, taken job.Counts) *sketch {
	s.Site.Has, s.Site.Taken = has, taken
	for _, p := range s.Nodes {
		for _, c := range s.Classes {
			p.Judge(c)
		}
	}
	return s
}

// failed has the job of a batch have failed on a node.
func (s *sketch) failed(batch, on int) *sketch {
	b := s.Batches[batch]
	b.Queues[0].FailedOn = []*Node{s.Nodes[on]}
	b.Queues, b.Avoiding = nil, b.Queues
	return s
}

// running has a job of so many cpus run on a node, since so long.
func (s *sketch) running(on, cpus int, since time.Duration) *sketch {
	q := &Queue{Batch: &Batch{}, Class: &Class{}, Says: &Declared{}, Jobs: NewLine(&Batch{}, 1)}
	s.start(q, s.Nodes[on], Share{CPUs: cpus}, s.Now-since)
	return s
}

// part has a job of so many cpus run on a node that has half of its first GPU.
func (s *sketch) part(on, cpus int) *sketch {
	q := &Queue{Batch: &Batch{}, Class: &Class{}, Says: &Declared{}, Jobs: NewLine(&Batch{}, 1)}
	s.start(q, s.Nodes[on], Share{CPUs: cpus, GPUs: 500, Cards: job.CardsOf(500, []int{0})}, s.Now)
	return s
}

// of has so many jobs of a batch run on a node since an hour, which is quick there.
func (s *sketch) of(batch, on, n int) *sketch {
	b, p := s.Batches[batch], s.Nodes[on]
	b.Quick, b.Pace[p] = true, time.Second
	for range n {
		s.start(b.Queues[0], p, p.Given(b.Queues[0].Class, b.Queues[0].Class.ShareOf(p)), s.Now-time.Hour)
	}
	return s
}

// pace has the last job of a batch have run for so long on a node.
func (s *sketch) pace(batch, on int, ran time.Duration) *sketch {
	s.Batches[batch].Pace[s.Nodes[on]] = ran
	return s
}

func (s *sketch) start(q *Queue, p *Node, has Share, at time.Duration) {
	s.runs[p] = append(s.runs[p], &Run{Queue: q, Share: has, Active: true, Began: at})
	p.LastGiven = max(p.LastGiven, at)
	p.Used, p.Active = p.Used.Plus(has), p.Active+1
}

// waiting has a job of a batch wait on a node.
func (s *sketch) waiting(batch, on int) *sketch {
	s.wait(s.Batches[batch].Queues[0], s.Nodes[on])
	return s
}

func (s *sketch) wait(q *Queue, p *Node) {
	has := q.Class.ShareOf(p)
	s.runs[p] = append(s.runs[p], &Run{Queue: q, Share: has, Idle: true, Began: s.Now})
	p.LastGiven = s.Now
	p.Waits, p.Waiting = p.Waits.Plus(has), p.Waiting+1
}

// kept has a node be kept for a batch, since so long and for an hour.
func (s *sketch) kept(batch, on int, since time.Duration) *sketch {
	k := &Reservation{Of: s.Batches[batch].Queues[0].Class, On: s.Nodes[on], Standing: s.Batches[batch].Queues[0].Standing(), Since: s.Now - since, Patience: time.Hour}
	k.On.Kept, s.Kept, k.Of.Kept = k, append(s.Kept, k), append(k.Of.Kept, k)
	return s
}

// decide is what is started, in order.
func (s *sketch) decide() string {
	var all []string
	for q, p := range s.Decide().Starts() {
		on := []string{}
		for _, o := range p.Portions(q.Class) {
			s.start(q, o.On, o.On.Given(q.Class, o.Share), s.Now)
			on = append(on, string(o.On.Name))
		}
		q.Jobs.Remove(q.Jobs.First())
		q.Batch.Running++
		q.Batch.Owner.Take(Weight(q.Class.Share, p.Could), s.Now)
		s.Site.Taken = s.Site.Taken.Plus(q.Class.Share.Counts)
		all = append(all, fmt.Sprintf("%d on %s", q.Batch.Num, strings.Join(on, "+")))
	}
	for _, k := range s.Kept {
		kept := string(k.On.Name)
		for _, p := range k.Beside {
			kept += "+" + string(p.Name)
		}
		all = append(all, kept+" is kept")
	}
	return strings.Join(all, ", ")
}

// ahead is what is sent ahead.
func (s *sketch) ahead() string {
	var all []string
	for q, p := range s.Inspect().Aheads() {
		s.wait(q, p)
		q.Jobs.Remove(q.Jobs.First())
		q.Batch.Running++
		all = append(all, fmt.Sprintf("%d on %s", q.Batch.Num, p.Name))
	}
	return strings.Join(all, ", ")
}

// recalled is what is asked back, and for which nodes.
func (s *sketch) recalled() string {
	var all []string
	for a, p := range s.Decide().Recalls() {
		all = append(all, fmt.Sprintf("%d for %s", a.Queue.Batch.Num, p.Name))
	}
	return strings.Join(all, ", ")
}

// What jobs ask for, and nodes are.
func jobs(n int) func(*Queue) {
	return func(q *Queue) {
		for i := range n {
			q.Jobs.Add(uint32(i))
		}
	}
}

func wants(words ...string) func(*Queue) {
	return func(q *Queue) {
		for _, w := range words {
			e, err := capability.Parse(w)
			if err != nil {
				panic(err)
			}
			q.Class.Wants = append(q.Class.Wants, e)
		}
	}
}

func asks(seconds, gib int64) func(*Queue) { return func(q *Queue) { q.Says.Ask(seconds, gib<<30) } }

func counts(text job.Counts) func(*Queue) { return func(q *Queue) { q.Class.Share.Counts = text } }

func gpus(n int) func(*Queue) {
	return func(q *Queue) { q.Class.Share.GPUs = job.GPUs(n) * job.OneGPU }
}

// ranks has a job be of so many that each ask for what it did.
func ranks(n int) func(*Queue) {
	return func(q *Queue) {
		c := q.Class
		c.Ranks, c.Each = n, c.Share
		c.Share = Share{CPUs: n * c.Each.CPUs, Memory: int64(n) * c.Each.Memory, GPUs: job.GPUs(n) * c.Each.GPUs}
	}
}

func part(q *Queue) { q.Class.Share.GPUs = 500 }

func priority(n int) func(*Queue) { return func(q *Queue) { q.Batch.Priority = n } }

// forAll says that an operator has set the priority of a batch.
func forAll(q *Queue) { q.Batch.ForAll = true }

// first gives the job of a batch a priority of its own.
func first(n int16) func(*Queue) {
	return func(q *Queue) {
		q.Jobs.Remove(0)
		q.Batch.Own = []int16{n}
		q.Jobs.Add(0)
	}
}

// owns gives the first job of the first batch a priority of its own.
func owns(n int16) func(*sketch) { return func(s *sketch) { s.Batches[0].Own = []int16{n} } }

func disk(gib int64) func(*Node) { return func(p *Node) { p.Offer.Disk = gib << 30 } }

func away(p *Node) { p.Session, p.Listed = 0, false }

func paused(p *Node) { p.Offer.Pause = &node.Pause{} }

func has(gpus int) func(*node.Offer) {
	return func(o *node.Offer) {
		for i := range gpus {
			o.GPUs = append(o.GPUs, node.GPU{Index: i})
		}
	}
}

func cpus(n int) func(*node.Offer) { return func(o *node.Offer) { o.CPUs = n } }

// refused has a node have given a job of a batch back.
func refused(batch, on int, r Refusal) func(*sketch) {
	return func(s *sketch) { s.Batches[batch].Refusals[s.Nodes[on]] = r }
}

// unbuilt has the build of a batch have failed on a node.
func unbuilt(batch, on int) func(*sketch) {
	return func(s *sketch) { s.Batches[batch].FailedBuilds = map[*Node]struct{}{s.Nodes[on]: {}} }
}

// The rules of dsched(8), each by a lab in which nothing else decides.
func TestRules(t *testing.T) {
	limited := func(s *sketch) { s.runs[s.Nodes[0]][0].Queue.Says.Ask(3600, 0) } // what runs first on the first node
	kept := func() *sketch { return draw().node("a").running(0, 3, 0).batch(1, 4).batch(1, 1).with(limited) }
	for _, c := range []struct {
		rule string
		lab  *sketch
		want string
	}{
		// Which job goes first.
		{"max_running", draw().node("a").node("b").batch(1, 1, jobs(3), func(q *Queue) { q.Batch.Most = 1 }), "1 on a"},
		{"stop_after", draw().node("a").batch(1, 1, func(q *Queue) { q.Batch.Stopped = true }), ""},
		{"as many classes as may be", draw().node("a").batch(1, 1, func(q *Queue) { q.Index = MaxClasses - 1 }), "1 on a"},
		{"too many classes", draw().node("a").batch(1, 1, func(q *Queue) { q.Index, q.Batch.Mixed = MaxClasses-1, true }), ""},
		{"priority", draw().node("a").batch(1, 4).batch(1, 4, priority(1)), "2 on a"},
		{"priority before turn", draw().node("a").batch(1, 4).batch(2, 4, priority(1), forAll, func(q *Queue) { q.Batch.Owner.Used = 1e6 }), "2 on a"},
		{"which is among the jobs of one owner", draw().node("a").batch(1, 4, func(q *Queue) { q.Batch.Owner.Used = 1e6 }).batch(1, 4, priority(2)).batch(2, 4).batch(2, 4, priority(1)), "4 on a"},
		{"but for one that lets others go first", draw().node("a").batch(1, 4, priority(-1)).batch(2, 4, func(q *Queue) { q.Batch.Owner.Used = 1e6 }), "2 on a"},
		{"also a job of a batch that an operator has set", draw().node("a").batch(1, 4, priority(1), forAll, first(-2)).batch(2, 4, func(q *Queue) { q.Batch.Owner.Used = 1e6 }), "2 on a"},
		{"whose jobs lift themselves above none of others", draw().node("a").batch(1, 4, priority(-1), forAll, first(5)).batch(2, 4, func(q *Queue) { q.Batch.Owner.Used = 1e6 }), "2 on a"},
		{"or all may", draw().node("a").batch(1, 4).batch(2, 4, priority(1), func(q *Queue) { q.Batch.Owner.Used = 1e6 }).with(func(s *sketch) { s.ForAll = true }), "2 on a"},
		{"turn", draw().node("a").batch(1, 4, func(q *Queue) { q.Batch.Owner.Used = 1e6 }).batch(2, 4), "2 on a"},
		{"turns of jobs that start at once", draw().node("a").batch(1, 1, jobs(4)).batch(2, 1, jobs(4)), "1 on a, 2 on a, 1 on a, 2 on a"},
		{"age, and of owners that of the oldest batch that waits", draw().node("a").batch(1, 4, wants("b")).batch(2, 4).batch(1, 4, priority(1)), "3 on a"},
		{"of one that may start", draw().node("a").batch(1, 4, func(q *Queue) { q.Batch.Most, q.Batch.Running = 1, 1 }).batch(2, 4).batch(1, 4, priority(1)), "2 on a"},
		{"age", draw().node("a").batch(1, 4).batch(1, 4), "1 on a"},
		{"the order of the file", draw().node("a").node("b").batch(1, 1, wants("a"), jobs(3)).batch(1, 1, wants("b")).with(func(s *sketch) {
			b, q := s.Batches[0], s.Batches[1].Queues[0]
			b.Queues[0].Jobs.Remove(1)
			q.Jobs.Remove(0)
			q.Jobs.Add(1)
			q.Batch, b.Queues = b, append(b.Queues, q)
			s.Batches = s.Batches[:1]
		}), "1 on a, 1 on b, 1 on a"},
		{"the first that has room", draw().node("a").running(0, 3, 0).batch(1, 1).batch(1, 1), "1 on a"},

		// For which jobs a node is kept, and which.
		{"a node is kept for who asks for more", draw().node("a").running(0, 3, 0).batch(1, 4).batch(1, 1), "a is kept"},
		{"where enough comes free soonest", draw().node("a").node("b").running(0, 3, time.Hour).running(1, 3, time.Minute).batch(1, 4).batch(1, 1), "2 on a, b is kept"},
		{"not where something waits that was given since", draw().node("a").node("b").node("c").
			batch(1, 4).running(0, 4, time.Hour).waiting(0, 0).running(1, 4, 10*time.Minute).running(2, 3, 5*time.Hour).batch(1, 1), "2 on c, b is kept"},
		{"not where nobody is passed over", draw().node("a").running(0, 4, 0).batch(1, 4), ""},
		{"not where too little is offered", draw().node("a").lends(0, 2).running(0, 1, 0).batch(1, 4).batch(1, 1), "2 on a"},
		{"not where nothing is offered", draw().node("a").node("b").lends(0, 4).running(1, 3, 0).batch(1, 0).batch(1, 1), "b is kept"},
		{"not for who asks for the same", draw().node("a").node("b").running(0, 3, 0).running(1, 4, time.Hour).with(limited).
			batch(1, 4).batch(1, 1).batch(1, 3).batch(1, 1, asks(60, 0)), "4 on a, a is kept, b is kept"},
		{"not twice", draw().node("a").node("b").running(0, 3, 10*time.Second).running(1, 4, 20*time.Hour).
			batch(1, 2).batch(1, 3).batch(1, 1).kept(0, 0, 0).kept(1, 1, 2*time.Hour), "3 on a, a is kept, b is kept"},
		{"no more than jobs that wait", draw().node("a").node("b").running(0, 3, 0).running(1, 3, 0).
			batch(1, 4).batch(1, 1).kept(0, 0, 0).kept(0, 1, 0), "2 on b, a is kept"},
		{"no more than jobs that may run", draw().node("a").node("b").running(0, 3, 0).running(1, 3, 0).
			batch(1, 4, jobs(5), func(q *Queue) { q.Batch.Most = 1 }).batch(1, 1).kept(0, 0, 0).kept(0, 1, 0), "2 on b, a is kept"},
		{"also where some of these failed", draw().node("a").node("b").running(0, 3, 0).running(1, 3, 0).
			batch(1, 4, func(q *Queue) { q.Batch.Most = 1 }).batch(1, 1).with(func(s *sketch) {
			q := *s.Batches[0].Queues[0]
			q.Jobs, q.Index = NewLine(q.Batch, 10), MaxClasses
			q.Jobs.Add(1)
			s.Batches[0].Avoiding = append(s.Batches[0].Avoiding, &q)
		}).kept(0, 0, 0).kept(0, 1, 0), "2 on b, a is kept"},
		{"another that is much better, for the worst", draw().node("a").node("b").node("c").
			running(0, 4, time.Hour).running(1, 4, 10*time.Hour).running(2, 3, 40*time.Minute).
			batch(1, 4, jobs(2)).batch(1, 1).kept(0, 0, 2*time.Hour).kept(0, 1, 2*time.Hour), "a is kept, c is kept"},

		// What starts on a node that is kept.
		{"beside the kept one", draw().node("a").running(0, 2, 0).batch(1, 3).batch(1, 1), "2 on a, a is kept"},
		{"beside the kept one, as far as there is room", draw().node("a").offers(0, cpus(8)).running(0, 5, 0).
			batch(1, 6).batch(1, 1).batch(1, 1).batch(1, 1), "2 on a, 3 on a, a is kept"},
		{"beside the kept one, but for its GPUs", draw().node("a").offers(0, cpus(8)).offers(0, has(2)).running(0, 6, 0).
			batch(1, 4, gpus(2)).batch(1, 1, gpus(1)), "a is kept"},
		{"beside the kept one, which gets a part of a GPU that has one", draw().node("a").offers(0, cpus(8)).offers(0, has(2)).
			running(0, 6, 0).part(0, 1).batch(1, 4, part).batch(1, 1, gpus(1)), "2 on a, a is kept"},
		{"nothing else", kept(), "a is kept"},
		{"not what may end too late", kept().batch(1, 1, asks(3600, 0)), "a is kept"},
		{"what ends in time", kept().batch(1, 1, asks(60, 0)), "3 on a, a is kept"},
		{"nothing before what was begun before the head", draw().with(func(s *sketch) { s.Now = 10 * time.Minute }).node("a").
			running(0, 3, 10*time.Minute).with(limited).batch(1, 4).batch(1, 1, asks(60, 0)), "a is kept"},
		{"a higher priority than that of one of them", draw().node("a").node("b").running(0, 3, 0).running(1, 3, 0).batch(1, 4).
			batch(1, 4, priority(5), func(q *Queue) { q.Class.Share.Memory = 1 }).batch(1, 1, priority(3)).kept(0, 0, 0).kept(1, 1, 0), "3 on a, a is kept, b is kept"},
		{"a higher priority", kept().kept(0, 0, 0).batch(1, 1, priority(1)), "3 on a, a is kept"},
		{"not one of another owner", kept().kept(0, 0, 0).batch(2, 1, priority(1)), "a is kept"},
		{"but one that counts for all", kept().kept(0, 0, 0).batch(2, 1, priority(1), forAll), "3 on a, a is kept"},
		{"it stays kept when another owner's turn comes", draw().node("a").node("b").running(0, 3, 0).running(1, 3, time.Minute).batch(1, 4).batch(2, 4, priority(3), func(q *Queue) { q.Batch.Owner.Used = 9 }).
			batch(3, 1, func(q *Queue) { q.Batch.Owner.Used = 99 }).kept(1, 0, 0), "3 on b, a is kept"},
		{"also in one decision", draw().node("a").running(0, 1, 0).batch(1, 4).batch(2, 4, func(q *Queue) { q.Batch.Owner.Used = 9 }).
			batch(1, 1, priority(1), jobs(3)).kept(0, 0, 0), "3 on a, a is kept"},

		// What the site counts.
		{"for who waits for more", draw().node("a").batch(1, 1, counts("seat=2")).batch(1, 1, counts("seat=1")).site("seat=2", "seat=1"), ""},
		{"not for who waits for more and for a node that is not there", draw().node("a").
			batch(1, 1, counts("seat=2"), wants("b")).batch(1, 1, counts("seat=1")).site("seat=2", "seat=1"), "2 on a"},
		{"not for who waits for a node", draw().node("a").node("b").running(0, 4, 0).
			batch(1, 1, counts("seat=1"), wants("a")).batch(1, 1, counts("seat=1")).site("seat=1", ""), "2 on b"},
		{"for who waits for a node that is kept", draw().node("a").node("b").running(0, 4, 0).
			batch(1, 1, counts("seat=1"), wants("a")).batch(1, 1, counts("seat=1")).site("seat=1", "").kept(0, 0, 0), "a is kept"},
		{"not for who asks for the same", draw().node("a").node("b").running(1, 4, 0).
			batch(1, 4, counts("seat=1")).batch(1, 4, counts("seat=1")).failed(0, 0).site("seat=1", "").with(func(s *sketch) {
			s.Batches[0].Queues = s.Batches[1].Queues
			s.kept(0, 0, 0)
			s.Batches[0].Queues = nil
		}), "2 on a"},
		{"not what only nodes count", draw().node("a").node("b").running(0, 3, 0).
			batch(1, 4, counts("tape=2"), wants("a")).batch(1, 1, counts("tape=1")).kept(0, 0, 0).
			offers(0, func(o *node.Offer) { o.Counted = "tape=2" }).offers(1, func(o *node.Offer) { o.Counted = "tape=2" }), "2 on b, a is kept"},

		// Which job goes where.
		{"capabilities", draw().node("a").node("b").batch(1, 1, wants("b")), "1 on b"},
		{"measured ones of what the node has when nothing is lent back", draw().node("a").lends(0, 2).batch(1, 1, wants("cpus>=4")), "1 on a"},
		{"measured ones of what it has when nothing runs", draw().node("a").running(0, 2, 0).batch(1, 1, wants("cpus>=4")), "1 on a"},
		{"too small", draw().node("a").batch(1, 5), ""},
		{"the whole disk", draw().node("a").batch(1, 1, asks(0, 2000)), ""},
		{"what is left of the disk", draw().node("a", disk(1)).node("b").batch(1, 1, asks(0, 50)), "1 on b"},
		{"a disk of which nothing is known", draw().node("a", disk(0)).node("b").batch(1, 1, asks(0, 150)), "1 on a"},
		{"enough is left of the disk", draw().node("c", disk(1)).node("a", disk(10)).node("b").batch(1, 1, asks(0, 5)), "1 on a"},
		{"a little more than it said", draw().node("a", disk(96)).node("b", disk(200)).batch(1, 1, asks(0, 100)), "1 on a"},
		{"less of the disk than one that is away", draw().node("a", disk(1)).node("b", away).batch(1, 1, asks(0, 50)), "1 on a"},
		{"than one that is paused", draw().node("a", disk(1)).node("b", paused).batch(1, 1, asks(0, 50)), "1 on a"},
		{"than one that offers too little", draw().node("a", disk(1)).node("b").lends(1, 3).batch(1, 2, asks(0, 50)), "1 on a"},
		{"than one where it failed", draw().node("a", disk(1)).node("b").batch(1, 1, asks(0, 50)).failed(0, 1), "1 on a"},
		{"paused", draw().node("a", paused).batch(1, 1), ""},
		{"drained", draw().node("a", func(p *Node) { p.Drained = "ana" }).batch(1, 1), ""},
		{"resting", draw().node("a", func(p *Node) { p.RestsUntil = 1 }).batch(1, 1), ""},
		{"not listed yet", draw().node("a", func(p *Node) { p.Listed = false }).batch(1, 1), ""},
		{"not beside what runs", draw().node("a").running(0, 4, 0).batch(1, 1), ""},
		{"whole nodes", draw().node("a").node("b").running(0, 1, 0).batch(1, 0), "1 on b"},
		{"what is short and not asked for", draw().node("a").offers(0, func(o *node.Offer) { o.GPUs = []node.GPU{{Busy: true}} }).running(0, 1, 0).with(func(s *sketch) {
			s.Nodes[0].Used.Memory = 9 << 30
		}).batch(1, 1), "1 on a"},
		{"first what waits there", draw().node("a", func(p *Node) { p.Waiting = 1 }).batch(1, 1), ""},
		{"where it was given back", draw().node("a").batch(1, 1).with(refused(0, 0, Refusal{Until: time.Minute})), ""},
		{"where it could not be built", draw().node("a").batch(1, 1).with(unbuilt(0, 0)), ""},
		{"where it has just not been built", draw().node("a").batch(1, 1).with(func(s *sketch) {
			s.Batches[0].Suspect = map[*Node]struct{}{s.Nodes[0]: {}}
		}), ""},

		// Where it failed, unless no other node could run it.
		{"where it failed", draw().node("a").node("b").batch(1, 1).failed(0, 0), "1 on b"},
		{"others are not what it wants", draw().node("a").node("b").batch(1, 1, wants("a")).failed(0, 0), "1 on a"},
		{"others have no cpu", draw().node("a").node("b").offers(1, cpus(0)).batch(1, 0).failed(0, 0), "1 on a"},
		{"another was not heard of", draw().node("a").node("b", away, func(p *Node) { p.Boot = "" }).batch(1, 1).failed(0, 0), "1 on a"},
		{"another is away for a moment", draw().node("a").node("b", away).batch(1, 1).failed(0, 0), ""},
		{"another does not run it for whose it is", draw().node("a").node("b").batch(1, 1).failed(0, 0).
			with(refused(0, 1, Refusal{Until: 25 * time.Hour, Barred: true})), "1 on a"},
		{"another had no room once", draw().node("a").node("b").batch(1, 1).failed(0, 0).
			with(refused(0, 1, Refusal{Long: LongestRefusal})), "1 on b"},

		// Ranks, on several nodes of a machine.
		{"ranks where all have room", draw().node("a").node("b").together().running(0, 1, 0).batch(1, 2, ranks(2)), "1 on b"},
		{"ranks where all have room, though it is not built there", draw().node("a").node("b").together().running(0, 1, 0).batch(1, 2, ranks(2)).
			with(func(s *sketch) { s.Batches[0].Pace[s.Nodes[0]] = NoPace }), "1 on b"},
		{"ranks on two", draw().node("a").node("b").together().batch(1, 2, ranks(4)), "1 on a+b"},
		{"ranks beside what runs", draw().node("a").node("b").together().running(0, 2, 0).batch(1, 2, ranks(3)), "1 on a+b"},
		{"ranks whose node is the one with a licence", draw().node("a").node("b").together().
			offers(1, func(o *node.Offer) { o.Counted = "seat=1" }).batch(1, 2, ranks(4), counts("seat=1")), "1 on b+a"},
		{"no rank on parts of two nodes", draw().node("a").node("b").together().batch(1, 3, ranks(3)), ""},
		{"none on a node with no room for one", draw().node("a").node("b").node("c").together().running(0, 3, 0).batch(1, 2, ranks(4)), "1 on b+c"},
		{"ranks as far as there is memory", draw().node("a").node("b").together().batch(1, 1, func(q *Queue) { q.Class.Share.Memory = 5 << 30 }, ranks(2)), "1 on a+b"},
		{"ranks with GPUs", draw().node("a").node("b").together().offers(0, has(1)).offers(1, has(1)).batch(1, 1, gpus(1), ranks(2)), "1 on a+b"},
		{"ranks on two machines", draw().node("a").node("b").batch(1, 2, ranks(4)), ""},
		{"one job of many cpus", draw().node("a").node("b").together().batch(1, 8), ""},
		{"ranks beside a node that is another", draw().node("a").node("b").together().batch(1, 2, ranks(4), wants("a")), ""},
		{"one that is paused", draw().node("a").node("b").together().offers(1, func(o *node.Offer) { o.Pause = &node.Pause{} }).batch(1, 2, ranks(4)), ""},
		{"one that rests", draw().node("a").node("b").together().with(func(s *sketch) { s.Nodes[1].RestsUntil = 1 }).batch(1, 2, ranks(4)), ""},
		{"one where something waits", draw().node("a").node("b").together().with(func(s *sketch) { s.Nodes[1].Waiting = 1 }).batch(1, 2, ranks(4)), ""},
		{"one that is of another machine now", draw().node("a").node("b").together().offers(1, func(o *node.Offer) { o.Machine = "n" }).batch(1, 2, ranks(4)), ""},
		{"one that was of another machine", draw().node("a").node("b").batch(1, 2, ranks(4)).together(), "1 on a+b"},
		{"a machine is kept for ranks", draw().node("a").node("b").together().running(0, 1, 0).running(1, 1, 0).
			batch(1, 2, ranks(4)).batch(1, 1), "a+b is kept"},
		{"nothing beside ranks for which it is kept", draw().node("a").node("b").together().running(0, 1, 0).with(limited).running(1, 1, 0).
			batch(1, 2, ranks(4)).batch(1, 1, asks(60, 0)), "a+b is kept"},
		{"where the oldest runs for the least", draw().node("a").node("b").node("c").node("d").
			offers(0, func(o *node.Offer) { o.Machine = "m" }).offers(1, func(o *node.Offer) { o.Machine = "m" }).
			offers(2, func(o *node.Offer) { o.Machine = "n" }).offers(3, func(o *node.Offer) { o.Machine = "n" }).
			running(0, 1, time.Minute).running(1, 1, time.Hour).running(2, 1, 10*time.Minute).running(3, 4, 10*time.Minute).
			batch(1, 2, ranks(4)).batch(1, 1), "2 on a, d+c is kept"},
		{"but for one that is kept for another", draw().node("a").node("b").node("c").together().running(0, 1, 0).running(1, 1, 0).running(2, 3, 0).
			batch(1, 4, wants("c")).batch(1, 2, ranks(4)).batch(1, 1).kept(0, 2, 0), "c is kept, a+b is kept"},
		{"a machine for the older one of two that need all of it", draw().node("a").node("b").node("c").together().running(2, 1, 0).
			batch(1, 2, ranks(6)).batch(1, 2, ranks(5)).kept(0, 1, time.Hour).kept(1, 0, 0), "b+a+c is kept"},
		{"until it starts", draw().node("a").node("b").together().batch(1, 2, ranks(4)).batch(1, 1).kept(0, 0, 0), "1 on a+b"},

		// The best of these.
		{"pauses last", draw().node("a", func(p *Node) { p.PausesAt = 24*time.Hour + time.Minute }).node("b").batch(1, 1), "1 on b"},
		{"one that pauses after an hour is as good", draw().node("a", func(p *Node) { p.PausesAt = 25*time.Hour + time.Minute }).node("b").batch(1, 1), "1 on a"},
		{"built already", draw().node("a").node("b").batch(1, 1).with(func(s *sketch) { s.Batches[0].Pace[s.Nodes[1]] = NoPace }), "1 on b"},
		{"one without GPUs", draw().node("a").offers(0, has(1)).node("b").batch(1, 1), "1 on b"},
		{"a GPU that others have parts of", draw().node("a").offers(0, has(1)).running(0, 2, 0).node("b").offers(1, has(1)).part(1, 1).batch(1, 1, part), "1 on b"},
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
				if v := r.Verdict(q, p); v == Free && r.Yields(q) == "" {
					t.Errorf("%s: nothing is in the way of %d on %s, and it is not started", c.rule, q.Batch.Num, p.Name)
				}
			}
		}
	}
}

// What is sent ahead to a node on which four jobs of a quick batch run.
func TestAheads(t *testing.T) {
	quick := func(change ...func(*Node)) *sketch {
		return draw().node("a", change...).batch(1, 1, jobs(5)).of(0, 0, 4)
	}
	for _, c := range []struct {
		rule string
		lab  *sketch
		want string
	}{
		{"one for each that runs", quick(), "1 on a, 1 on a, 1 on a, 1 on a"},
		{"as many as are over soon", draw().node("a").batch(1, 1, jobs(9)).of(0, 0, 1).pace(0, 0, 40*time.Millisecond), "1 on a, 1 on a"},
		{"one where they take less than five seconds", draw().node("a").batch(1, 1, jobs(9)).of(0, 0, 1).pace(0, 0, 4999*time.Millisecond), "1 on a"},
		{"none where they take as long", draw().node("a").batch(1, 1, jobs(9)).of(0, 0, 1).pace(0, 0, 5*time.Second), ""},
		{"eight at most", draw().node("a").batch(1, 1, jobs(9)).of(0, 0, 1).pace(0, 0, 0), strings.Repeat("1 on a, ", 7) + "1 on a"},
		{"so often what the node has", draw().node("a").batch(1, 3, jobs(9)).of(0, 0, 1).pace(0, 0, 50*time.Millisecond), "1 on a, 1 on a"},
		{"also of memory", draw().node("a").batch(1, 1, jobs(9), func(q *Queue) { q.Class.Share.Memory = 8 << 30 }).of(0, 0, 4).pace(0, 0, 50*time.Millisecond), "1 on a, 1 on a"},
		{"no more than there are", draw().node("a").batch(1, 1).of(0, 0, 4), "1 on a"},
		{"not while another runs", draw().node("a").batch(1, 1, jobs(5)).of(0, 0, 3).running(0, 1, 0), ""},
		{"nor one of which nothing is known", quick(func(p *Node) { p.Unknown = true }), ""},
		{"only what goes next", quick().batch(1, 1, priority(1)), ""},
		{"which what lacks a seat does not", quick().batch(1, 1, priority(1), counts("seat=1")).site("seat=1", "seat=1"), "1 on a, 1 on a, 1 on a, 1 on a"},
		{"paused", quick(paused), ""},
		{"resting", quick(func(p *Node) { p.RestsUntil = 1 }), ""},
		{"what is counted", draw().node("a").batch(1, 1, jobs(5), counts("seat=1")).of(0, 0, 4).site("seat=9", "seat=4"), ""},
		{"GPUs", draw().node("a").offers(0, has(1)).batch(1, 1, jobs(5), gpus(1)).of(0, 0, 1), ""},
		{"all GPUs", draw().node("a").offers(0, has(1)).batch(1, 0, jobs(5), func(q *Queue) { q.Class.Cards = true }).of(0, 0, 1), ""},
		{"whole nodes", draw().node("a").batch(1, 0, jobs(5)).of(0, 0, 1), "1 on a"},
		{"whole nodes, where nothing is offered", draw().node("a").batch(1, 0, jobs(5)).of(0, 0, 1).lends(0, 4), ""},
		{"what needs what is lent back", draw().node("a").batch(1, 1, jobs(5)).of(0, 0, 1).batch(1, 4, jobs(5), priority(1)).of(1, 0, 0).
			pace(1, 0, 40*time.Millisecond).lends(0, 2), ""},
		{"no more than the node has", draw().node("a").batch(1, 1, jobs(5)).of(0, 0, 4).batch(1, 3, jobs(5), priority(1)).of(1, 0, 0), "2 on a"},
		{"not where it is kept for others", quick().batch(1, 0).kept(1, 0, 0), ""},
		{"but for what has room beside these", draw().node("a").offers(0, cpus(8)).batch(1, 4).batch(1, 1, jobs(5)).of(0, 0, 2).of(1, 0, 0).
			batch(1, 7).with(func(s *sketch) { s.Batches[0].Queues[0].Jobs.Remove(0) }).kept(2, 0, 0), "2 on a"},
	} {
		if got := c.lab.ahead(); got != c.want {
			t.Errorf("%s: %q, should be %q", c.rule, got, c.want)
		}
	}
}

// What waits on node b, where another runs, is asked back for node a.
func TestRecalls(t *testing.T) {
	waits := func(cpus int, change ...func(*Queue)) *sketch {
		return draw().node("a").node("b").running(1, 4, time.Second).batch(1, cpus, change...).waiting(0, 1).with(func(s *sketch) { s.Batches[0].Queues[0].Jobs.Remove(0) })
	}
	for _, c := range []struct {
		rule string
		lab  *sketch
		want string
	}{
		{"a node that has nothing to do", waits(1), "1 for a"},
		{"it runs something", waits(1).running(0, 1, 0), ""},
		{"one is asked back for it already", waits(1).with(func(s *sketch) { s.Nodes[0].Expects = s.runs[s.Nodes[1]][1] }), ""},
		{"it has begun, or is not wanted", waits(1).with(func(s *sketch) { s.runs[s.Nodes[1]][1].Idle = false }), ""},
		{"it could not run there", waits(1, wants("b")), ""},
		{"there is no room", waits(2).lends(0, 3), ""},
		{"another has more of the disk", waits(1, asks(0, 50)).with(func(s *sketch) { disk(1)(s.Nodes[0]) }), ""},
		{"nothing is offered", waits(0).lends(0, 4), ""},
		{"it is kept for others", waits(1).batch(1, 4).kept(1, 0, 0), ""}, // it would be sent ahead and asked back for ever
		{"and they have a higher priority than the job", waits(1).batch(1, 4, priority(-2)).kept(1, 0, 0).with(owns(-3)), ""},
		{"or the job has a higher one", waits(1).batch(1, 4, priority(2)).kept(1, 0, 0).with(owns(3)), "1 for a"},
	} {
		if got := c.lab.recalled(); got != c.want {
			t.Errorf("%s: %q, should be %q", c.rule, got, c.want)
		}
	}
}

// Of several things that are in the way of a job on a node, the one that passes last is told.
func TestVerdicts(t *testing.T) {
	one := func(change ...func(*Node)) *sketch { return draw().node("a", change...).batch(1, 1) }
	for want, lab := range map[Verdict]*sketch{
		Away:          one(away, paused),
		Lacking:       draw().node("a").batch(1, 5, wants("b")),
		TooSmall:      draw().node("a").batch(1, 5, asks(0, 2000)),
		SmallDisk:     draw().node("a").batch(1, 1, asks(0, 2000), func(q *Queue) { q.Memory = 8 << 30 }),
		LessMemory:    draw().node("a").batch(1, 1, func(q *Queue) { q.Memory = 8 << 30 }).failed(0, 0),
		FailedThere:   one().failed(0, 0).with(refused(0, 0, Refusal{Until: time.Minute})),
		Refused:       one().with(unbuilt(0, 0)).with(refused(0, 0, Refusal{Until: time.Minute})),
		NotBuilt:      one(paused).with(unbuilt(0, 0)),
		Paused:        one(paused, func(p *Node) { p.RestsUntil = 1 }),
		Lent:          one(func(p *Node) { p.RestsUntil = 1 }).lends(0, 4),
		Resting:       one(func(p *Node) { p.RestsUntil = 1 }).batch(1, 4).kept(1, 0, 0),
		KeptForOthers: draw().node("a", disk(1)).node("b").batch(1, 1, asks(0, 50)).batch(1, 4).kept(1, 0, 0),
		DiskFull:      draw().node("a", disk(1)).node("b").running(0, 4, 0).batch(1, 1, asks(0, 50)),
		Busy:          one().running(0, 4, 0),
		Free:          one(),
	} {
		r := lab.Inspect()
		lab.survey()
		q := slices.Collect(lab.Batches[0].All())[0]
		if got := r.Verdict(q, lab.Nodes[0]); got != want {
			t.Errorf("verdict %d, should be %d", got, want)
		}
	}
}

// A batch that could be built on none of the nodes that could run it has failed.
func TestDoomed(t *testing.T) {
	early := func(s *sketch) { s.Batches[0].Early, s.Loaded = true, s.Now-10*time.Second }
	for _, c := range []struct {
		rule string
		lab  *sketch
		want bool
	}{
		{"on all", draw().node("a").batch(1, 1).with(unbuilt(0, 0)), true},
		{"not on another", draw().node("a").node("b").batch(1, 1).with(unbuilt(0, 0)), false},
		{"another is not what it wants", draw().node("a").node("b").batch(1, 1, wants("a")).with(unbuilt(0, 0)), true},
		{"another is drained", draw().node("a").node("b", func(p *Node) { p.Drained = "ana" }).batch(1, 1).with(unbuilt(0, 0)), true},
		{"another is paused", draw().node("a").node("b", paused).batch(1, 1).with(unbuilt(0, 0)), false},
		{"none is connected", draw().node("a", away).batch(1, 1).with(unbuilt(0, 0)), false},
		{"others may still come", draw().node("a").batch(1, 1).with(unbuilt(0, 0)).with(early), false},
	} {
		if got, _ := c.lab.Doomed(c.lab.Batches[0].Queues[0]); got != c.want {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}

// What a node offers is believed as far as it can be, and says all about its pauses.
func TestOffers(t *testing.T) {
	s := draw().node("a", func(p *Node) { p.HaltedUntil, p.PausesAt = time.Hour, 25*time.Hour })
	p := s.Nodes[0]
	for says, want := range map[int]int{-7: 0, 1 << 40: MaxCPUs} {
		if s.offers(0, cpus(says)); p.Has.CPUs != want || p.Paused() || p.PausesAt != 0 {
			t.Errorf("who says %d cpus has %d, is paused: %v, will be at %v", says, p.Has.CPUs, p.Paused(), p.PausesAt)
		}
	}
}

// When a node that is kept, or busy, has room is known if enough of what runs there says
// how long it takes.
func TestOpens(t *testing.T) {
	lab := func(first, second int64) (*sketch, time.Duration) {
		s := draw().node("a").batch(1, 2, asks(first, 0)).batch(1, 2, asks(second, 0)).batch(1, 2).kept(2, 0, 0).of(0, 0, 1).of(1, 0, 1)
		return s, s.Inspect().Opens(s.Nodes[0])
	}
	for _, c := range []struct{ first, second, want int64 }{{7200, 10800, 3600}, {10800, 7200, 3600}, {0, 7200, 3600}, {0, 0, 0}} {
		if s, got := lab(c.first, c.second); got != s.Now+time.Duration(c.want)*time.Second && (c.want != 0 || got != 0) {
			t.Errorf("%d and %d seconds: at %v", c.first, c.second, got-s.Now)
		}
	}
	s, _ := lab(7200, 10800)
	s.waiting(0, 0)
	if got := s.Inspect().Opens(s.Nodes[0]); got != s.Now+2*time.Hour {
		t.Errorf("where another waits: at %v", got-s.Now)
	}
	s.waiting(0, 0)
	if got := s.Inspect().Opens(s.Nodes[0]); got != 0 {
		t.Errorf("where others wait that may take as long as they like: at %v", got-s.Now)
	}
}

// What a job takes of a node is the greatest of the parts that it has of it, as cpus.
func TestWeight(t *testing.T) {
	of := Share{CPUs: 16, Memory: 64, GPUs: 4 * job.OneGPU}
	for want, s := range map[int64]Share{3000: {CPUs: 3}, 8000: {CPUs: 1, Memory: 32}, 4000: {CPUs: 1, Memory: 1, GPUs: job.OneGPU}} {
		if got := Weight(s, of); got != want {
			t.Errorf("%v weighs %d, should be %d", s, got, want)
		}
	}
	if got := Weight(Share{CPUs: 1, GPUs: job.OneGPU}, Share{CPUs: 16}); got != 1000 {
		t.Errorf("of a node whose GPUs are gone: %d", got)
	}
}

// For the start of a job no node is looked at that could never run it.
func TestPlaces(t *testing.T) {
	s := draw().node("a").node("b").batch(1, 1, wants("b"))
	if nodes := s.Decide().place(s.Classes[0]); len(nodes.free) != 1 {
		t.Errorf("%d nodes are", len(nodes.free))
	}
}

// The slot of a class that is gone is another's, and what nodes were able to run of the one
// says nothing of the other.
func TestSlots(t *testing.T) {
	s := draw().node("a").batch(1, 1).batch(1, 5).batch(1, 2).batch(1, 2)
	s.DropBatch(s.Batches[0])
	s.DropBatch(s.Batches[2])
	s.batch(1, 9).batch(1, 8)
	if len(s.Classes) != 4 {
		t.Errorf("%d classes", len(s.Classes))
	}
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
