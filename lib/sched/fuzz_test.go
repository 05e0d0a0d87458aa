package sched

import (
	"errors"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/suite"
)

// A tape turns the bytes of a fuzz input into events, most of them near to
// what can be meant, all of them possible on the wire.
type tape struct {
	bytes []byte
}

func (t *tape) next(n int) int {
	if len(t.bytes) == 0 {
		return 0
	}
	b := int(t.bytes[0])
	t.bytes = t.bytes[1:]
	return b % n
}

func (t *tape) token() job.Token {
	switch n := t.next(20); n {
	case 0:
		return "../x"
	case 1:
		return ""
	default:
		return tok(n)
	}
}

// fates are those that nodes say, with one of them twice.
var fates = []job.Fate{job.FateEnded, job.FateUnstarted, job.FateEnded, job.FateNodePaused, job.FateBuildFailed, job.FateEvicted, job.FateNoMemory, job.FateLost}

func (t *tape) result() Result {
	flags := t.next(256)
	r := Result{Fate: fates[flags&7], Saved: flags&64 != 0}
	if flags&8 == 0 {
		r.Exit = new(int)
	}
	if flags&16 == 0 {
		r.Manifest = "m"
	}
	r.Runtime = float64(t.next(8)) - 1
	return r
}

func (t *tape) offer() node.Offer {
	o := node.Offer{CPUs: t.next(6) - 1, Memory: int64(t.next(3)), GPUs: make([]node.GPU, t.next(2))}
	switch t.next(8) {
	case 0:
		o.Pause = &node.Pause{Left: float64(t.next(3)) - 1}
	case 1:
		o.Pause = &node.Pause{Give: &node.Give{CPUs: t.next(4) - 1}}
	}
	return o
}

var phases = []job.Phase{job.PhasePaused, job.PhaseWaiting, job.PhaseSending, job.PhaseBuilding, job.PhaseRunning, job.PhaseReturning, "", "x"}

func (t *tape) event() Event {
	session := uint64(t.next(5))
	ref := Ref{uint32(t.next(4)), uint32(t.next(5))}
	request := job.Token(string(rune('a' + t.next(4))))
	switch t.next(24) {
	case 23:
		return AddJobs{Batch: ref.Batch, Jobs: t.next(4), Spec: &job.Spec{Kind: job.Command}}
	case 0:
		b := AddBatch{Batch: ref.Batch, Jobs: t.next(5), Once: t.next(4) == 0, Replay: t.next(4) == 0, Closed: t.next(8) == 0,
			Spec: &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: t.next(4)}}}
		if t.next(2) == 0 {
			b.Asks = []Ask{{CPUs: uint16(t.next(4)), GPUs: []uint32{0, 400, 1000}[t.next(3)]}, {CPUs: uint16(t.next(4)), Memory: int64(t.next(3))}}
		}
		if t.next(4) == 0 {
			b.Own = []int16{int16(t.next(3)), -1}
		}
		b.Spec.Canary, b.Spec.StopAfter = t.next(8)/5, t.next(8)/6
		if !b.Once {
			b.Spec.Retries = b.Jobs % 3
		}
		if needs := t.next(8); needs < 3 && b.Jobs > needs {
			list := make([][]string, b.Jobs)
			list[needs] = []string{"j[!" + string(rune('0'+needs)) + "]"}
			b.Needs, _ = job.ResolveNeeds([]string{"j0", "j1", "j2", "j3"}[:b.Jobs], list)
		}
		return b
	case 1:
		return Ready{ref.Batch}
	case 2, 3:
		return NodeUp{Session: session, Node: node.Name([]string{"ws1", "ws2"}[t.next(2)]), Boot: []string{"b1", "b2"}[t.next(2)],
			State: []string{"s1", "s2"}[t.next(8)/7], Offer: t.offer()}
	case 4:
		it := Item{Session: session, Attempt: t.token(), Phase: phases[t.next(len(phases))], CPUs: t.next(4) - 1}
		if t.next(2) == 0 {
			r := t.result()
			it.Ended = &r
		}
		return it
	case 5, 6, 7:
		return ListEnd{session}
	case 8:
		return NodeDown{session}
	case 9:
		return NodeGone{Node: "ws1"}
	case 10:
		return Built{session, ref.Batch}
	case 11:
		return Phase{session, t.token(), phases[t.next(len(phases))], 0}
	case 12, 13:
		return Ended{session, t.token(), t.result()}
	case 14:
		s := Staged{Attempt: t.token(), Manifest: "m", Permanent: t.next(4) == 0, NoRoom: t.next(2) == 0}
		if t.next(3) == 0 {
			s.Err = errors.New("cut")
		}
		return s
	case 15:
		return Gone{session, t.token()}
	case 16:
		return Cancel{ref, "u", request, ""}
	case 17:
		return Retry{ref, "u", request, t.next(2)}
	case 21:
		priority, most := t.next(4)-1, t.next(3)
		return SetBatch{Batch: ref.Batch, Set: job.Set{Priority: &priority, MaxRunning: &most, ForAll: t.next(2) == 0}, Timed: []uint32{ref.Job}, By: "u", Request: request}
	case 20:
		return HoldJobs{Batch: ref.Batch, Jobs: [][]uint32{{ref.Job}, {0, 1, 2, 3, 4}, {3, 1, 3}}[t.next(3)], By: "u", Request: request, Release: t.next(2) == 0, Freeze: t.next(2) == 0}
	case 19:
		return Offered{session, t.offer().Bounded()}
	case 18:
		if t.next(16) == 0 {
			return BatchGone{ref.Batch}
		}
		return Loaded{}
	}
	return Tick{}
}

// FuzzMachine: whatever nodes and people say, the machine does not panic and
// its invariants and its log hold.
func FuzzMachine(f *testing.F) {
	f.Add([]byte("start"))
	f.Add([]byte{0, 0, 0, 18, 1, 0, 1, 0, 0, 3, 1, 1, 1, 1, 1, 0, 0, 2, 0, 0, 0, 5, 1, 0, 0, 0, 5})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &tape{bytes: data}
		r := newRig(t, Config{Lease: 10 * time.Second, CrashLimit: 2})
		if in.next(4) > 0 {
			r.apply(Loaded{})
		}
		for n := 0; len(in.bytes) > 0 && n < 200; n++ {
			r.now += time.Duration(in.next(4)) * time.Second
			r.apply(in.event())
		}
	})
}

// TestNonsense runs the fuzz target's body over random tapes, so that every run
// of the tests sees some.
func TestNonsense(t *testing.T) {
	for seed := range suite.Size[uint64](20, 400) {
		s := newSim(t, seed)
		s.quick = false
		in := &tape{}
		for range 150 {
			for len(in.bytes) < 16 {
				in.bytes = append(in.bytes, byte(s.rand.IntN(256)))
			}
			s.now += time.Duration(in.next(3)) * time.Second
			s.apply(in.event())
		}
	}
}
