package sched

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/suite"
)

// A hostile is a rig with few jobs on a few nodes that say anything of the newest attempts.
type hostile struct {
	*rig
	rand     *rand.Rand
	sessions uint64
	batches  uint32
	boots    int
	states   int
	shared   bool // all nodes have one directory
	ranks    bool // jobs have several
	gate     int  // makes jobs of a batch depend on others
}

// TestHostileNodes has nodes list, end, end again, run again and delete a few attempts in any order,
// while results are brought home or refused, jobs are cancelled, retried, held and deleted, nodes
// reboot, lose their directories and are given up, and the head restarts.
func TestHostileNodes(t *testing.T) {
	for seed := range suite.Size[uint64](150, 6000) {
		h := &hostile{rig: newRig(t, Config{Lease: 10 * time.Second, CrashLimit: 3}), rand: rand.New(rand.NewPCG(seed, 7))}
		h.places = false // others compare where jobs go
		h.shared, h.ranks, h.gate = h.some(6), h.some(4), h.rand.IntN(5)
		ok := false
		defer func() {
			if !ok {
				t.Logf("seed %d", seed)
			}
		}()
		h.apply(Loaded{})
		h.add()
		for range 50 + h.rand.IntN(100) {
			h.step()
			h.checkRefused()
		}
		ok = true
	}
}

// some is true once in n times.
func (h *hostile) some(n int) bool { return h.rand.IntN(n) == 0 }

// checkRefused holds that an attempt whose result is refused has one, which a job may need.
func (h *hostile) checkRefused() {
	for _, a := range h.m.live {
		if s := h.m.State(a.ref); a.refused && (a.result == nil || a.moving || s == job.Done || s == job.Cancelled) {
			h.t.Fatalf("attempt %s of a job that is %s is refused, with result %v, moving %v", a.Token, s, a.result, a.moving)
		}
	}
}

func (h *hostile) add() {
	h.batches++
	b := AddBatch{Batch: h.batches, Jobs: 2, Once: h.some(6), Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}}
	switch h.gate {
	case 0:
		b.Spec.Canary = 1
	case 1:
		b.Spec.StopAfter = 1
	case 2:
		b.Needs = needing(h.t, [][]string{nil, {"j0"}})
	}
	if h.ranks {
		b.Spec.Resources.Ranks = 2
	}
	if !b.Once {
		b.Spec.Retries = h.rand.IntN(3)
	}
	h.apply(b)
}

// token is that of one of the newest attempts.
func (h *hostile) token() job.Token { return tok(max(1, h.drawn-h.rand.IntN(6))) }

func (h *hostile) result() *Result {
	r := Result{Fate: job.FateEnded, Saved: h.some(6)}
	if h.some(4) {
		r.Fate = fates[h.rand.IntN(len(fates))]
	}
	if !h.some(4) {
		r.Exit = new([]int{0, 0, 0, 1, job.ExitSaved}[h.rand.IntN(5)])
	}
	if !h.some(5) {
		r.Manifest = h.manifest()
	}
	r.Runtime = float64(h.rand.IntN(3))
	return &r
}

func (h *hostile) manifest() string { return []string{"m", "m", "m", "n"}[h.rand.IntN(4)] }

func (h *hostile) item(session uint64, t job.Token) {
	it := Item{Session: session, Attempt: t, Phase: phases[h.rand.IntN(len(phases))], CPUs: 1}
	if h.some(2) {
		it.Phase, it.Ended = job.PhaseReturning, h.result()
	}
	h.apply(it)
}

// comes has a node connect, most often with a list of much that it was given, and some more.
func (h *hostile) comes(name node.Name) {
	if h.some(5) {
		h.boots++
	}
	if h.some(12) {
		h.states++
	}
	h.sessions++
	session, state := h.sessions, fmt.Sprint("s", h.states)
	if !h.shared {
		state += string(name)
	}
	o := node.Offer{CPUs: 1 + h.rand.IntN(2)}
	if h.ranks {
		o.Machine = "m"
	}
	h.apply(NodeUp{Session: session, Node: name, Boot: fmt.Sprint("b", h.boots), State: state, Offer: o})
	var given []job.Token
	if p := h.m.named[name]; p != nil {
		for a := p.first; a != nil; a = a.after {
			given = append(given, a.Token)
		}
	}
	for range h.rand.IntN(3) {
		given = append(given, h.token())
	}
	for _, t := range given {
		if !h.some(5) {
			h.item(session, t)
		}
	}
	if !h.some(6) {
		h.apply(ListEnd{session})
	}
}

// step does something at random.
func (h *hostile) step() {
	name, session, ref := node.Name(fmt.Sprint("ws", 1+h.rand.IntN(3))), uint64(0), Ref{1 + uint32(h.rand.IntN(int(h.batches))), uint32(h.rand.IntN(2))}
	if a := h.m.live[must(h.token())]; a != nil && h.some(2) {
		name, ref = a.peer.Name, a.ref
	}
	if p := h.m.named[name]; p != nil {
		session = p.Session
	}
	switch k := h.rand.IntN(30); {
	case session == 0 && k < 18:
		h.comes(name)
	case k < 1:
		h.apply(ListEnd{session})
	case k < 2:
		h.item(session, h.token())
	case k < 4:
		h.apply(Phase{session, h.token(), phases[h.rand.IntN(len(phases))], 0})
	case k < 9:
		t := h.token()
		if a := h.m.live[must(t)]; a != nil && !h.some(4) {
			session = a.peer.Session
		}
		h.apply(Ended{session, t, *h.result()})
	case k < 15:
		if s := (Staged{Attempt: h.token(), Manifest: h.manifest()}); h.m.live[must(s.Attempt)] != nil && h.m.live[must(s.Attempt)].moving {
			if h.some(2) {
				s.Err, s.Permanent, s.NoRoom = errors.New("bad"), !h.some(4), h.some(3)
			}
			h.apply(s)
		}
	case k < 17:
		h.apply(Gone{session, h.token()})
	case k < 19:
		h.apply(Cancel{Ref: ref, By: "u"})
	case k < 22:
		h.apply(Retry{Ref: ref, By: "u"})
	case k < 24:
		h.apply(NodeDown{session})
	case k < 25:
		h.manage(name, ref)
	case k < 26:
		h.apply(HoldJobs{Batch: ref.Batch, Jobs: []uint32{0, 1}, By: "u", Release: h.some(2), Freeze: h.some(2)})
	case k < 27:
		if h.some(6) {
			h.restart()
		}
	default:
		h.now += time.Duration(h.rand.IntN(9000)) * time.Millisecond
		h.apply(Tick{})
	}
}

// manage does what operators and users do rarely.
func (h *hostile) manage(name node.Name, ref Ref) {
	switch h.rand.IntN(6) {
	case 0:
		h.apply(NodeGone{name})
	case 1:
		if h.batches < 4 {
			h.add()
		}
	case 2:
		h.apply(Unwanted{ref.Batch})
	case 3:
		h.apply(BatchGone{ref.Batch})
	case 4:
		h.apply(Drain{name, []string{"", "u"}[h.rand.IntN(2)]})
	case 5:
		h.apply(Removed{name, h.some(2)})
	}
}

// restart has another head go on with the logs.
func (h *hostile) restart() {
	m, err := h.replayed()
	if err != nil {
		h.t.Fatal(err)
	}
	h.m, h.begun = m, map[job.Token]bool{}
	clear(h.uses)
	h.apply(Loaded{})
}
