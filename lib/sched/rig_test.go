package sched

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/explain"
	"distribute/lib/sched/policy"
)

// A rig is a machine with the logs that its shell would keep, checked after
// every event.
type rig struct {
	t      testing.TB
	m      *Machine
	cfg    Config
	now    time.Duration
	drawn  int
	adds   []AddBatch
	more   map[uint32][]AddJobs
	logs   map[uint32][]entry
	begun  map[job.Token]bool   // Start actions seen
	quick  bool                 // replay only when asked
	again  bool                 // going a way again that was checked
	uses   map[int]*plainUse    // of owners
	keeps  []policy.Reservation // before the event
	places bool                 // compare with the plain decision
}

type entry struct {
	job uint32
	rec job.Record
}

func newRig(t testing.TB, cfg Config) *rig {
	r := &rig{t: t, cfg: cfg, logs: map[uint32][]entry{}, more: map[uint32][]AddJobs{}, begun: map[job.Token]bool{}, places: true, uses: map[int]*plainUse{}}
	r.cfg.Token = func() job.Token { r.drawn++; return tok(r.drawn) }
	r.m = New(r.cfg)
	return r
}

// step takes an event, and decides.
func (m *Machine) step(ev Event, now time.Duration) []Action {
	actions := slices.Clone(m.Apply(ev, now))
	return append(actions, m.Decide(now)...)
}

// tok is the n-th token that a rig's machine draws.
func tok(n int) job.Token { return job.Token(fmt.Sprintf("%032x", n)) }

// apply gives an event, keeps what is logged, and checks.
func (r *rig) apply(ev Event) []Action {
	r.t.Helper()
	if e, more := ev.(AddJobs); more {
		e.Spec = r.whole(e.Batch).Spec
		ev = e
	}
	add, fresh := ev.(AddBatch)
	if fresh = fresh && r.m.batches[add.Batch] == nil; fresh {
		r.adds = append(r.adds, add)
	}
	r.keeps = keepsOf(r.m)
	got := r.m.step(ev, r.now)
	if e, more := ev.(AddJobs); more && r.m.batches[e.Batch] != nil && e.Jobs > 0 {
		r.more[e.Batch] = append(r.more[e.Batch], e)
		r.logs[e.Batch] = append(r.logs[e.Batch], entry{AllJobs, job.Record{Kind: job.KindAdded, Jobs: e.Jobs}})
		add = r.whole(e.Batch)
		fresh = true
	}
	for _, a := range got {
		if l, ok := a.(Log); ok {
			r.logs[l.Ref.Batch] = append(r.logs[l.Ref.Batch], entry{l.Ref.Job, l.Rec})
		}
	}
	if gone, ok := ev.(BatchGone); ok {
		delete(r.logs, gone.Batch)
		delete(r.more, gone.Batch)
		r.adds = slices.DeleteFunc(r.adds, func(a AddBatch) bool { return a.Batch == gone.Batch })
	}
	if fresh {
		if add.Jobs != len(r.m.batches[add.Batch].States) {
			r.t.Fatalf("batch %d has %d jobs, and was given %d", add.Batch, len(r.m.batches[add.Batch].States), add.Jobs)
		}
		if err := checkAsks(r.m.batches[add.Batch], &add); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.check(ev, got); err != nil {
		r.t.Fatalf("after %T%+v: %v\nactions: %s", ev, ev, err, show(got))
	}
	return got
}

// Snapshot is all of the state that lasts, as text with one line for each
// thing in a fixed order: what a replay of the log must give again.
func (m *Machine) Snapshot() string {
	var s strings.Builder
	for b := range m.every() {
		fmt.Fprintf(&s, "batch %d %s open=%d priority=%d most=%d failedbuilds=%s said=%q\n", b.Num, b.id, b.open, b.Priority, b.Most, names(b.FailedBuilds), b.Said)
		if b.gates != nil {
			fmt.Fprintf(&s, " fails=%d\n", b.gates.fails)
		}
		for i, q := range b.Queues {
			if *q.Says != (policy.Declared{}) {
				fmt.Fprintf(&s, " declared %d limit=%d disk=%d\n", i, q.Says.Limit, q.Says.Disk)
			}
		}
		for i, state := range b.States {
			fmt.Fprintf(&s, " job %d %s tries=%d losses=%d\n", i, state, b.tries[i], b.losses[uint32(i)])
		}
		var lines []string
		for i, t := range b.trials {
			lines = append(lines, fmt.Sprintf(" failed %d times=%d on=%s memory=%d disk=%d\n", i, t.fails, explain.Nodes(t.on), t.memory, t.disk))
		}
		for i, f := range b.frozen {
			lines = append(lines, fmt.Sprintf(" frozen %d by %s\n", i, f.by))
		}
		for i, v := range b.saved {
			lines = append(lines, fmt.Sprintf(" saved %d %s try=%d\n", i, v.token, v.try))
		}
		for r := range b.asked {
			lines = append(lines, fmt.Sprintf(" asked %d %s\n", r.job, r.id))
		}
		for _, first := range b.of {
			for a := first; a != nil; a = a.next {
				lines = append(lines, fmt.Sprintf(" attempt %s job=%d try=%d node=%s cpus=%d current=%v void=%v\n",
					a.Token, a.ref.Job, a.try, a.peer.Name, a.Share.CPUs, a.current, a.void))
				for _, g := range a.beside {
					lines = append(lines, fmt.Sprintf(" attempt %s has %d ranks and %d cpus of %s\n", a.Token, g.ranks, g.Share.CPUs, g.on.Name))
				}
				if a.from.try != 0 {
					lines = append(lines, fmt.Sprintf(" attempt %s goes on with %s\n", a.Token, a.from.token))
				}
			}
		}
		slices.Sort(lines)
		s.WriteString(strings.Join(lines, ""))
	}
	return s.String()
}

func names(peers map[*policy.Node]struct{}) string {
	var all []string
	for p := range peers {
		all = append(all, string(p.Name))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Why tells why a job waits; "" if it does not wait.
func (m *Machine) Why(ref Ref) string {
	if m.State(ref) != job.Queued {
		return ""
	}
	return m.Reasons(ref.Batch)(int(ref.Job)).Why
}

// why holds that a job waits for what is told.
func (r *rig) why(ref Ref, want string) {
	r.t.Helper()
	if got := r.m.Why(ref); got != want {
		r.t.Errorf("why %s: %q, should be %q", jobName(ref), got, want)
	}
}

// joins has a node come that has nothing.
func (r *rig) joins(session uint64, name string, cpus int, caps ...string) {
	r.t.Helper()
	r.apply(up(session, name, cpus, caps...))
	r.apply(ListEnd{session})
}

func (r *rig) check(ev Event, got []Action) error {
	used := r.compareUse()
	if r.again {
		for _, a := range got {
			if s, ok := a.(Start); ok {
				r.begun[s.Attempt] = true
			}
		}
		return nil
	}
	if err := errors.Join(used, consistent(r.m), r.checkActions(got), notOverdrawn(r.m, got), lawful(r.logs), r.checkEnded(), r.checkDeclared()); err != nil {
		return err
	}
	if r.places && r.m.loaded {
		if err := comparePlain(r.m, r.keeps, got); err != nil {
			return err
		}
	}
	if r.quick {
		return nil
	}
	return r.checkReplay()
}

// checkReplay replays the logs into a fresh machine (I8).
func (r *rig) checkReplay() error {
	fresh, err := r.replayed()
	if err != nil {
		return err
	}
	if want, got := r.m.Snapshot(), fresh.Snapshot(); want != got {
		return fmt.Errorf("replayed state differs\nin memory:\n%s\nreplayed:\n%s", want, got)
	}
	return consistent(fresh)
}

// replayed is a fresh machine fed with the logs.
func (r *rig) replayed() (*Machine, error) {
	m := New(r.cfg)
	for _, add := range r.adds {
		more := r.more[add.Batch]
		add.Replay, add.Needs = true, r.whole(add.Batch).Needs
		m.step(add, r.now)
		for _, e := range r.logs[add.Batch] {
			if e.rec.Kind == job.KindAdded {
				next := more[0]
				next.Needs, more = add.Needs, more[1:]
				m.step(next, r.now)
			} else if err := m.Replay(Ref{add.Batch, e.job}, &e.rec); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// whole is a batch as if all of its jobs had been there from the start.
func (r *rig) whole(batch uint32) (b AddBatch) {
	for _, add := range r.adds {
		if add.Batch == batch {
			b = add
		}
	}
	b.Jobs = max(0, b.Jobs)
	b.Asks, b.Again = b.Asks[:min(len(b.Asks), b.Jobs)], b.Again[:min(len(b.Again), b.Jobs)]
	usual, often := Ask{}, uint8(0)
	if b.Spec != nil {
		usual, often = AskOf(b.Spec.Resources, nil), uint8(b.Spec.Retries)
	}
	for _, e := range r.more[batch] {
		if b.Asks != nil || e.Asks != nil {
			b.Asks = padded(padded(b.Asks, b.Jobs, usual), b.Jobs+e.Jobs, usual, e.Asks...)
		}
		if b.Again != nil || e.Again != nil {
			b.Again = padded(padded(b.Again, b.Jobs, often), b.Jobs+e.Jobs, often, e.Again...)
		}
		b.Jobs += e.Jobs
		b.Needs = e.Needs
	}
	return b
}

// padded is a list with more at its end, and then others, so that it is so long.
func padded[T any](list []T, length int, other T, more ...T) []T {
	list = append(slices.Clip(list), more...)
	for len(list) < length {
		list = append(list, other)
	}
	return list
}

// checkActions holds what the machine says to what nodes may rely on.
func (r *rig) checkActions(got []Action) error {
	for i, a := range got {
		switch a := a.(type) {
		case Start:
			if r.begun[a.Attempt] {
				return fmt.Errorf("attempt %s is given away twice (I5)", a.Attempt)
			}
			r.begun[a.Attempt] = true
			p := r.m.session[a.Session]
			if p == nil || !p.Listed {
				return fmt.Errorf("a start for a node that has not ended its list")
			}
			if l := r.last(a.Ref, a.Attempt); l == nil || l.Kind != job.KindStart || l.Node != string(p.Name) {
				return fmt.Errorf("attempt %s is given away without a record", a.Attempt)
			}
			at := r.m.live[must(a.Attempt)]
			if asks := plainShare(r.m.queueOf(a.Ref).Class, p.Node); at.all().CPUs != asks.CPUs || at.all().GPUs != asks.GPUs || at.all().Memory != asks.Memory {
				return fmt.Errorf("attempt %s is given %+v, and asks for %+v", a.Attempt, at.all(), asks)
			}
			if at.Active && !plainRoom(p.Node, p.Used.Minus(at.Share), at.Share) {
				return fmt.Errorf("%s is given %+v of %+v (I9)", p.Name, p.Used, p.Has)
			}
			for _, g := range at.beside {
				if !plainOpen(g.on.Node) || g.on.Offer.Machine != p.Offer.Machine || !plainRoom(g.on.Node, g.on.Used.Minus(g.Share), g.Share) {
					return fmt.Errorf("%s is given %+v of %+v beside %s (I9)", g.on.Name, g.on.Used, g.on.Has, p.Name)
				}
			}
			if err := r.checkAgain(a.Ref, p); err != nil {
				return err
			}
			if p.Offer.Pause.Full() {
				return fmt.Errorf("attempt %s is given to %s, which is paused (P73)", a.Attempt, p.Name)
			}
		case Have:
			if r.m.live[must(a.Attempt)] != nil {
				return fmt.Errorf("have of attempt %s, which is not settled (I3)", a.Attempt)
			}
		case Publish:
			l := r.last(a.Ref, a.Attempt)
			if l == nil || a.Out != (l.Kind == job.KindDone) || l.Manifest == "" {
				return fmt.Errorf("publish of attempt %s without its record", a.Attempt)
			}
			if i+1 == len(got) {
				continue
			}
		}
	}
	return nil
}

// checkAgain holds that a job is started on a node once more, or another time, only if
// it may be, by what is in the log.
func (r *rig) checkAgain(ref Ref, p *peer) error {
	var t trial
	for _, e := range r.logs[ref.Batch] {
		switch {
		case e.job != ref.Job:
		case e.rec.Kind == job.KindRetry:
			t = trial{}
		case e.rec.Kind == job.KindBack && e.rec.Fate == job.FateEnded:
			t.fails++
			t.memory = max(t.memory, e.rec.Memory)
			t.on = with(t.on, r.m.peerOf(node.Name(e.rec.Node), r.m.batches[ref.Batch].uid).Node)
		default:
			t.disk = max(t.disk, e.rec.Disk)
		}
	}
	b := r.m.batches[ref.Batch]
	may := 0
	if add := r.whole(ref.Batch); add.Spec != nil {
		may = add.Spec.Retries
		if add.Again != nil {
			may = int(add.Again[ref.Job])
		}
	}
	switch {
	case t.fails > may || t.fails > 0 && b.once:
		return fmt.Errorf("job %s is started after %d attempts that failed, and may be tried again %d times", jobName(ref), t.fails, may)
	case p.DiskBelow(t.disk):
		return fmt.Errorf("job %s is given to %s, whose disk is too small for it", jobName(ref), p.Name)
	case t.memory > 0 && p.Could.Memory <= t.memory:
		return fmt.Errorf("job %s is given to %s, which has no more memory than was too little", jobName(ref), p.Name)
	case slices.Contains(t.on, p.Node) && plainElsewhere(r.m, ref, &t, b.trials[ref.Job].q.Old):
		return fmt.Errorf("job %s failed on %s and is given to it, though another node could run it", jobName(ref), p.Name)
	}
	return nil
}

func must(t job.Token) key {
	k, _ := t.Key()
	return k
}

// last is the last record about an attempt.
func (r *rig) last(ref Ref, t job.Token) *job.Record {
	log := r.logs[ref.Batch]
	for i := len(log) - 1; i >= 0; i-- {
		if log[i].job == ref.Job && log[i].rec.Attempt == t {
			return &log[i].rec
		}
	}
	return nil
}

// lawful checks that the logs alone hold the invariants.
func lawful(logs map[uint32][]entry) error {
	for b, log := range logs {
		done := map[uint32]job.Token{}
		started := map[job.Token]string{}
		for _, e := range log {
			switch e.rec.Kind {
			case job.KindDone:
				if done[e.job] != "" {
					return fmt.Errorf("job %d/%d is done twice (I1)", b, e.job)
				}
				if e.rec.Manifest == "" {
					return fmt.Errorf("job %d/%d is done without a result (I2)", b, e.job)
				}
				done[e.job] = e.rec.Attempt
			case job.KindStart:
				if started[e.rec.Attempt] != "" {
					return fmt.Errorf("attempt %s starts twice (I5)", e.rec.Attempt)
				}
				started[e.rec.Attempt] = e.rec.Node
			}
			if done[e.job] != "" && e.rec.Kind != job.KindDone && e.rec.Kind != job.KindLate {
				return fmt.Errorf("job %d/%d is %s after done (I7)", b, e.job, e.rec.Kind)
			}
			if e.rec.Attempt != "" && started[e.rec.Attempt] != e.rec.Node {
				return fmt.Errorf("attempt %s of %s moves to %s (I5)", e.rec.Attempt, started[e.rec.Attempt], e.rec.Node)
			}
		}
	}
	return nil
}

// consistent counts again what a machine keeps count of.
func consistent(m *Machine) error {
	live := 0
	for _, b := range m.batches {
		counts, open, waiting := [job.Cancelled + 1]int{}, 0, 0
		for i, s := range b.States {
			counts[s]++
			if !s.Over() {
				open++
			}
			q := m.queueOf(Ref{b.Num, uint32(i)})
			if q.Jobs.Has(uint32(i)) != (s == job.Queued && !plainGated(b, i)) {
				return fmt.Errorf("job %d/%d is %s and queued=%v", b.Num, i, s, q.Jobs.Has(uint32(i)))
			}
			if g := b.gates; g != nil && g.shut.Has(uint32(i)) != (s == job.Queued && plainGated(b, i)) {
				return fmt.Errorf("job %d/%d is %s and waits for others=%v", b.Num, i, s, plainGated(b, i))
			}
			current := 0
			for a := b.of[uint32(i)]; a != nil; a = a.next {
				live++
				if a.current {
					current++
				}
				if a.current && a.void || a.void != s.Over() && s.Over() || a.dead || m.live[a.key] != a {
					return fmt.Errorf("attempt %s of job %d/%d, which is %s: current=%v void=%v dead=%v", a.Token, b.Num, i, s, a.current, a.void, a.dead)
				}
			}
			if f, frozen := b.frozen[uint32(i)]; frozen && s != job.Running {
				return fmt.Errorf("job %d/%d is %s and stands still by %q", b.Num, i, s, f.by)
			}
			if (current == 1) != (s == job.Running) || current > 1 {
				return fmt.Errorf("job %d/%d is %s and has %d current attempts (I6)", b.Num, i, s, current)
			}
		}
		trials := map[*policy.Queue]int{}
		for i, t := range b.trials {
			if trials[t.q]++; b.States[i].Over() {
				return fmt.Errorf("job %d/%d is over, and it is kept how often it failed", b.Num, i)
			}
		}
		if !maps.Equal(trials, b.tried) || len(b.Avoiding) != len(trials) {
			return fmt.Errorf("of batch %d so many jobs that failed have each of %d queues: %v, should be %v", b.Num, len(b.Avoiding), b.tried, trials)
		}
		for q := range b.All() {
			waiting += q.Jobs.N
		}
		if g := b.gates; g != nil {
			waiting += g.shut.N
		}
		if counts != b.counts || open != b.open || waiting != counts[job.Queued] {
			return fmt.Errorf("batch %d: counts %v, open %d, waiting %d; should be %v, %d", b.Num, b.counts, b.open, waiting, counts, open)
		}
	}
	if live != len(m.live) {
		return fmt.Errorf("%d live attempts, %d in the batches", len(m.live), live)
	}
	return errors.Join(consistentPeers(m), consistentOwners(m), consistentCounts(m))
}

// consistentCounts counts again what is in use of what is counted.
func consistentCounts(m *Machine) error {
	taken := job.Counts("")
	for _, a := range m.live {
		if plainCounted(a) {
			taken = taken.Plus(a.Share.Counts)
		}
	}
	if taken != m.lab.Site.Taken {
		return fmt.Errorf("%q is in use, should be %q", m.lab.Site.Taken, taken)
	}
	return nil
}

// notOverdrawn holds that what an event started is not more than there is of what is
// counted.
func notOverdrawn(m *Machine, got []Action) error {
	for _, s := range got {
		s, ok := s.(Start)
		if !ok {
			continue
		}
		a := m.live[must(s.Attempt)]
		for name, n := range a.Share.Counts.All() {
			all, here := m.lab.Site.Has.Of(name), a.peer.Offer.Counted.Of(name)
			if all+here == 0 || all > 0 && m.lab.Site.Taken.Of(name) > all || here > 0 && a.peer.Used.Counts.Of(name) > here {
				return fmt.Errorf("attempt %s has %d %s: %q of %q is in use, %q of %q on %s", a.Token, n, name,
					m.lab.Site.Taken, m.lab.Site.Has, a.peer.Used.Counts, a.peer.Offer.Counted, a.peer.Name)
			}
		}
	}
	return nil
}

// consistentOwners counts again what runs of each batch and what owners have of nodes.
func consistentOwners(m *Machine) error {
	running, rates := map[uint32]int{}, map[*policy.Owner]int64{}
	for _, a := range m.live {
		if a.current && a.result == nil && !a.peer.abroad {
			running[a.ref.Batch]++
		}
		rates[m.batches[a.ref.Batch].Owner] += plainWeight(m, a)
	}
	for n, b := range m.batches {
		if b.Running != running[n] {
			return fmt.Errorf("batch %d: %d jobs run, should be %d", n, b.Running, running[n])
		}
	}
	for uid, o := range m.lab.Owners {
		if o.Rate != rates[o] {
			return fmt.Errorf("owner %d: rate %d, should be %d", uid, o.Rate, rates[o])
		}
	}
	return nil
}

func consistentPeers(m *Machine) error {
	unacked := map[uint32]int{}
	listed := 0
	for p := range m.everyone() {
		for _, note := range p.gone {
			unacked[note.ref.Batch]++
		}
		used, active, waiting, waits := policy.Share{}, 0, 0, policy.Share{}
		for _, u := range p.held {
			used = used.Plus(u.own)
			active++
		}
		for _, s := range p.lodged {
			used = used.Plus(s)
			active++
		}
		for _, a := range m.live {
			for _, g := range a.beside {
				if g.on == p && a.result == nil {
					used = used.Plus(g.Share)
					active++
				}
			}
		}
		for a := p.first; a != nil; a = a.after {
			listed++
			if a.after == nil && p.last != a {
				return fmt.Errorf("the list of %s has a loose end", p.Name)
			}
			switch {
			case a.Active && a.result != nil:
				return fmt.Errorf("attempt %s has ended and takes room", a.Token)
			case a.Active:
				used = used.Plus(a.Share)
				active++
			case a.result == nil && !p.abroad:
				waiting++
				waits = waits.Plus(a.Share)
			}
		}
		if p.Listed && (used != p.Used || active != p.Active || waiting != p.Waiting || waits != p.Waits) {
			return fmt.Errorf("%s: used %v, active %d, waiting %d with %v; should be %v, %d, %d, %v",
				p.Name, p.Used, p.Active, p.Waiting, p.Waits, used, active, waiting, waits)
		}
		if p.Expects != nil && (m.live[must(p.Expects.Token)] == nil || !m.live[must(p.Expects.Token)].recalled) {
			return fmt.Errorf("%s waits for an attempt that nobody recalls", p.Name)
		}
		if r := p.Kept; r != nil && (r.On != p.Node && !slices.Contains(r.Beside, p.Node) || !slices.Contains(m.lab.Kept, r) || !slices.Contains(r.Of.Kept, r)) {
			return fmt.Errorf("%s is kept for a class that keeps none", p.Name)
		}
		if (p.Session != 0) != (m.session[p.Session] == p) {
			return fmt.Errorf("%s has session %d", p.Name, p.Session)
		}
	}
	if listed != len(m.live) {
		return fmt.Errorf("%d live attempts, %d on nodes", len(m.live), listed)
	}
	for n, b := range m.batches {
		if b.unacked != unacked[n] {
			return fmt.Errorf("batch %d: %d settled attempts are not let go, should be %d", n, b.unacked, unacked[n])
		}
	}
	return nil
}

// show is actions as the tables of the tests write them.
func show(actions []Action) string {
	var all []string
	for _, a := range actions {
		all = append(all, showOne(a))
	}
	return strings.Join(all, "; ")
}

func short8(t job.Token) string {
	s := strings.TrimLeft(string(t), "0")
	if len(t) != 32 {
		return fmt.Sprintf("%q", t)
	}
	return "a" + s
}

func showOne(a Action) string {
	switch a := a.(type) {
	case Log:
		r := a.Rec
		s := fmt.Sprintf("%s %s", r.Kind, jobName(a.Ref))
		if r.Attempt != "" {
			s += " " + short8(r.Attempt)
		}
		if r.Kind == job.KindStart {
			s += fmt.Sprintf("~%d %s/%d", r.Try, r.Node, r.CPUs)
		}
		if r.Manifest != "" {
			s += " " + r.Manifest
		}
		switch {
		case r.Fate != job.FateEnded:
			s += " " + string(r.Fate)
		case r.Kind == job.KindBack:
			s += " failed"
		}
		if r.Saved {
			s += " saved"
		}
		if r.Reason != "" {
			s += " (" + r.Reason + ")"
		}
		return s
	case LogNode:
		return fmt.Sprintf("node %s %s", a.Node, a.State)
	case Start:
		s := fmt.Sprintf("START %d %s %s", a.Session, jobName(a.Ref), short8(a.Attempt))
		if a.Saved != "" {
			s += " from " + short8(a.Saved)
		}
		return s
	case Stop:
		return fmt.Sprintf("STOP %d %s", a.Session, short8(a.Attempt))
	case Grant:
		return fmt.Sprintf("GRANT %d %s", a.Session, short8(a.Attempt))
	case Publish:
		return fmt.Sprintf("PUBLISH %s %s out=%v", jobName(a.Ref), short8(a.Attempt), a.Out)
	case Drop:
		return fmt.Sprintf("DROP %s %s", jobName(a.Ref), short8(a.Attempt)) + map[bool]string{true: " whole"}[a.Nothing]
	case Keep:
		return fmt.Sprintf("KEEP %d %s", a.Session, short8(a.Attempt)) + map[bool]string{true: " still"}[a.Still]
	case Recall:
		return fmt.Sprintf("RECALL %d %s", a.Session, short8(a.Attempt))
	case Have:
		return fmt.Sprintf("HAVE %d %s", a.Session, short8(a.Attempt))
	case Forget:
		return fmt.Sprintf("FORGET %d %s", a.Session, short8(a.Attempt))
	case Hold:
		return fmt.Sprintf("HOLD %d %s", a.Session, short8(a.Attempt))
	case Refuse:
		return fmt.Sprintf("REFUSE %d", a.Session)
	case Odd:
		return fmt.Sprintf("ODD %d %s", a.Session, short8(a.Attempt))
	case Strayed:
		return fmt.Sprintf("STRAYED %d %s of %s", a.Session, short8(a.Attempt), a.Of)
	case Closed:
		return fmt.Sprintf("CLOSED %d", a.Batch)
	case Reopened:
		return fmt.Sprintf("REOPENED %d", a.Batch)
	}
	return fmt.Sprintf("%T", a)
}

func jobName(r Ref) string {
	if r.Job == AllJobs {
		return fmt.Sprintf("%d/all", r.Batch)
	}
	return fmt.Sprintf("%d/%d", r.Batch, r.Job)
}

// Short ways to write events.

func up(session uint64, name string, cpus int, caps ...string) Event {
	return NodeUp{Session: session, Node: node.Name(name), Boot: "b1", State: "s1", Offer: node.Offer{CPUs: cpus, Capabilities: caps}}
}

// upIn is up of a node with that directory.
func upIn(session uint64, name string, cpus int, state string) Event {
	e := up(session, name, cpus).(NodeUp)
	e.State = state
	return e
}

func item(session uint64, n int, phase job.Phase) Event {
	return Item{Session: session, Attempt: tok(n), Phase: phase}
}

func itemEnded(session uint64, n int, res Result) Event {
	return Item{Session: session, Attempt: tok(n), Phase: job.PhaseReturning, Ended: &res}
}

func ended(session uint64, n int, res Result) Event {
	return Ended{Session: session, Attempt: tok(n), Result: res}
}

func phase(session uint64, n int, p job.Phase) Event {
	return Phase{Session: session, Attempt: tok(n), Phase: p}
}

func staged(n int, manifest string) Event { return Staged{Attempt: tok(n), Manifest: manifest} }

func gone(session uint64, n int) Event { return Gone{Session: session, Attempt: tok(n)} }

// exited is a result with a manifest "m", or none.
func exited(status int, manifest string) Result {
	return Result{Outcome: job.Outcome{Exit: &status, Runtime: 60}, Manifest: manifest, Files: 1, Bytes: 10}
}

func quickly(r Result) Result { return ran(0.1, r) }

func ran(seconds float64, r Result) Result { r.Runtime = seconds; return r }

var (
	unstarted   = Result{Fate: job.FateUnstarted}
	noRoom      = Result{Fate: job.FateNoRoom, Outcome: job.Outcome{Reason: "no room: needs 3G"}}
	barred      = Result{Fate: job.FateBarred, Outcome: job.Outcome{Reason: "does not run jobs of u"}}
	lost        = Result{Fate: job.FateLost}
	buildFailed = Result{Fate: job.FateBuildFailed, Outcome: job.Outcome{Reason: "make: no rule"}}
)
