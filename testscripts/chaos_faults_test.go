package testscripts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A fault is something that happens to machines. It returns when it is over, or
// leaves its healing to h.faults.
type fault struct {
	name   string
	weight int
	do     func(h *hosts, ctx context.Context, r *rand.Rand, longest time.Duration)
}

// all are the faults. Each is made once, in some order, and then those that the
// weights and the dice say.
var all = []fault{
	{"kill dsched", 4, killing("dsched", true)},
	{"kill dnoded", 5, killing("dnoded", false)},
	{"kill a supervisor", 3, killing("supervisor", false)},
	{"kill a job", 2, killing("job", false)},
	{"kill a tool", 3, killing("tool", true)},
	{"stop dsched", 2, stopping("dsched", true)},
	{"stop dnoded", 3, stopping("dnoded", false)},
	{"stop a supervisor", 1, stopping("supervisor", false)},
	{"stop a job", 1, stopping("job", false)},
	{"partition", 3, parting("partition", "policy drop;", "policy drop;")},
	{"partition, in only", 1, parting("partition, one way", "policy drop;", "")},
	{"partition, out only", 1, parting("partition, one way", "", "policy drop;")},
	{"loss", 2, parting("network that loses", "numgen random mod 100 < 30 drop;", "numgen random mod 100 < 30 drop;")},
	{"reset", 2, parting("network that resets", "meta l4proto tcp reject with tcp reset;", "meta l4proto tcp reject with tcp reset;")},
	{"full disk of the head", 2, filling(true)},
	{"full disk of a node", 2, filling(false)},
	{"power cut of the head", 2, cutting(true)},
	{"power cut of a node", 3, cutting(false)},
	{"pause of a desk", 4, (*hosts).pauseDesk},
	{"a part of a desk given back", 2, (*hosts).giveBack},
}

// trouble makes faults until ctx ends.
func (h *hosts) trouble(ctx context.Context) {
	r := h.random("faults")
	longest := 8 * time.Second
	if end, _ := ctx.Deadline(); time.Until(end) > 3*time.Minute {
		longest = 90 * time.Second
	}
	var bag []fault
	for _, f := range all {
		for range f.weight {
			bag = append(bag, f)
		}
	}
	first := r.Perm(len(all))
	for wait(ctx, between(r, 200*time.Millisecond, 2500*time.Millisecond)) {
		f := bag[r.IntN(len(bag))]
		if len(first) > 0 {
			f, first = all[first[0]], first[1:]
		}
		f.do(h, ctx, rand.New(rand.NewPCG(r.Uint64(), 0)), longest)
	}
}

// later does what heals a fault after a while, or when ctx ends.
func (h *hosts) later(ctx context.Context, r *rand.Rand, longest time.Duration, heal func()) {
	d := between(r, 200*time.Millisecond, longest/4)
	if r.IntN(4) == 0 {
		d = between(r, longest/4, longest)
	}
	h.faults.Go(func() {
		wait(ctx, d)
		heal()
	})
}

func (h *hosts) node(r *rand.Rand) *machine { return h.nodes[r.IntN(len(h.nodes))] }

func (h *hosts) target(r *rand.Rand, head bool) *machine {
	if head {
		return h.head
	}
	return h.node(r)
}

// victim is a process of that kind, after a short while of looking for one.
func (h *hosts) victim(ctx context.Context, r *rand.Rand, head bool, kind string) (prey, *machine, bool) {
	for range 20 {
		m := h.target(r, head)
		var found []prey
		for _, p := range m.processes() {
			if p.kind == kind {
				found = append(found, p)
			}
		}
		if len(found) > 0 {
			return found[r.IntN(len(found))], m, true
		}
		if !wait(ctx, 50*time.Millisecond) {
			break
		}
	}
	return prey{}, nil, false
}

func killing(kind string, head bool) func(*hosts, context.Context, *rand.Rand, time.Duration) {
	return func(h *hosts, ctx context.Context, r *rand.Rand, _ time.Duration) {
		if p, m, ok := h.victim(ctx, r, head, kind); ok && syscall.Kill(p.pid, syscall.SIGKILL) == nil {
			h.note("killed: "+kind, "%d on %s", p.pid, m.name)
		}
	}
}

func stopping(kind string, head bool) func(*hosts, context.Context, *rand.Rand, time.Duration) {
	return func(h *hosts, ctx context.Context, r *rand.Rand, longest time.Duration) {
		p, m, ok := h.victim(ctx, r, head, kind)
		if !ok {
			return
		}
		fd, err := unix.PidfdOpen(p.pid, 0)
		if err != nil {
			return
		}
		if unix.PidfdSendSignal(fd, syscall.SIGSTOP, nil, 0) != nil {
			unix.Close(fd)
			return
		}
		h.note("stopped: "+kind, "%d on %s", p.pid, m.name)
		h.later(ctx, r, longest, func() {
			h.goneOn.Add(1)
			unix.PidfdSendSignal(fd, syscall.SIGCONT, nil, 0)
			h.goneOn.Add(1)
			unix.Close(fd)
			h.note("continued", "%s %d on %s", kind, p.pid, m.name)
		})
	}
}

func parting(kind, in, out string) func(*hosts, context.Context, *rand.Rand, time.Duration) {
	return func(h *hosts, ctx context.Context, r *rand.Rand, longest time.Duration) {
		m := h.target(r, r.IntN(4) == 0)
		h.check(m.filter(in, out))
		h.note(kind, "%s: in %q, out %q", m.name, in, out)
		h.later(ctx, r, longest, func() {
			h.check(m.filter("", ""))
			h.note("healed", "network of %s", m.name)
		})
	}
}

// filling makes a file beside the daemon's that takes what room there is.
func filling(head bool) func(*hosts, context.Context, *rand.Rand, time.Duration) {
	return func(h *hosts, ctx context.Context, r *rand.Rand, longest time.Duration) {
		m := h.target(r, head)
		if !m.fill() {
			return
		}
		h.note("full disk: "+role(head), "%s", m.name)
		h.later(ctx, r, longest, func() {
			m.empty()
			h.note("healed", "disk of %s", m.name)
		})
	}
}

func role(head bool) string {
	if head {
		return "head"
	}
	return "node"
}

// fill leaves nothing free on the disk of m, if its power is on.
func (m *machine) fill() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return false
	}
	f, err := os.Create(m.see(filepath.Join(m.disk, "filler")))
	if err != nil {
		return false
	}
	defer f.Close()
	for size, step := int64(0), int64(32<<20); step >= 4096; {
		if unix.Fallocate(int(f.Fd()), 0, size, step) == nil {
			size += step
		} else {
			step /= 2
		}
	}
	return true
}

func (m *machine) empty() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		os.Remove(m.see(filepath.Join(m.disk, "filler")))
	}
}

func cutting(head bool) func(*hosts, context.Context, *rand.Rand, time.Duration) {
	return func(h *hosts, ctx context.Context, r *rand.Rand, longest time.Duration) {
		m, late := h.target(r, head), r.IntN(2) == 0
		if r.IntN(2) == 0 {
			h.user.awaitSubmit(ctx) // right after somebody was told that it is safe
		}
		h.check(m.cut(late))
		h.note("power cut: "+role(head), "%s, with processes seeing it: %t", m.name, late)
		h.later(ctx, r, longest/2, func() {
			h.check(m.switchOn())
			h.note("healed", "power of %s", m.name)
		})
	}
}

// heal undoes every fault.
func (h *hosts) heal() {
	for _, m := range h.machines() {
		h.check(m.switchOn())
		h.check(m.filter("", ""))
		m.empty()
		for _, p := range m.processes() {
			syscall.Kill(p.pid, syscall.SIGCONT)
		}
	}
	for _, m := range h.nodes {
		h.endPauses(m)
	}
	h.note("healed", "everything, after %s", fmt.Sprint(time.Since(h.began).Round(time.Second)))
}
