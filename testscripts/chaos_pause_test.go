package testscripts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// pauseDesk is a person who sits down at a node and gets up again.
func (h *hosts) pauseDesk(ctx context.Context, r *rand.Rand, longest time.Duration) {
	h.sitDown(ctx, r, longest, "1h")
}

// giveBack is a person who wants one of its two cpus.
func (h *hosts) giveBack(ctx context.Context, r *rand.Rand, longest time.Duration) {
	h.sitDown(ctx, r, longest, "-g", "1", "1h")
}

// sitDown pauses a node, and ends that later. When dpause says that nothing runs
// there, that is held against what the jobs use.
func (h *hosts) sitDown(ctx context.Context, r *rand.Rand, longest time.Duration, args ...string) {
	m := h.node(r)
	status, talk := h.dpause(ctx, m, args...)
	said := fmt.Sprintf("%s on %s: status %d: %s", strings.Join(args, " "), m.name, status, talk)
	switch {
	case status == 0, status == 75: // 75: a supervisor has been stopped, which holds nothing so
		h.note("pauses", "%s", said)
	case status < 0, status > 128, status == 69, status == 74: // the power went, or the disk; or nothing has begun there yet
		h.note("pauses that failed", "%s", said)
		return
	default:
		h.violation("dpause %s", said)
	}
	if status == 0 && len(args) == 1 {
		h.judgeStill(ctx, m)
	}
	h.later(ctx, r, longest, func() {
		if status, talk := h.dpause(ctx, m, "-r"); status > 1 {
			h.note("pauses that did not end", "on %s: status %d: %s", m.name, status, talk)
		}
	})
}

// dpause runs the tool on a node, once its power is on; -1 if that goes meanwhile.
func (h *hosts) dpause(ctx context.Context, m *machine, args ...string) (status int, talk string) {
	init := m.power(ctx)
	if init == nil {
		return -1, ""
	}
	out, err := m.command(context.Background(), init, append([]string{"dpause", "-q", "-D", nodeDir(m)}, args...)...).CombinedOutput()
	return exitStatus(err), strings.TrimSpace(string(out))
}

// judgeStill sees that no job's process on a paused node uses a processor, unless one
// that was stopped by itself is let go on at this time, or its supervisor is gone.
func (h *hosts) judgeStill(ctx context.Context, m *machine) {
	goneOn, before := h.goneOn.Load(), m.used()
	if !wait(ctx, 300*time.Millisecond) {
		return
	}
	after := m.used()
	maps.DeleteFunc(before, func(who string, _ uint64) bool { _, there := after[who]; return !there })
	for who, used := range before {
		// A tick may have been begun before.
		if after[who] > used+1 && h.goneOn.Load() == goneOn {
			h.violation("%s of %s runs, though dpause has said that nothing does: %d ticks, then %d", who, m.name, used, after[who])
		}
	}
	h.note("pauses that were looked at", "%s: %d processes", m.name, len(before))
}

// endPauses ends what is paused on a node when everything is healed.
func (h *hosts) endPauses(m *machine) {
	dir, err := os.ReadDir(m.see(nodeDir(m) + "/pause"))
	if errors.Is(err, fs.ErrNotExist) {
		return // it has never been up
	}
	h.check(err)
	if status, talk := h.dpause(context.Background(), m, "-r"); status != 0 {
		h.violation("dpause -r on %s: status %d: %s; there was %v", m.name, status, talk, dir)
	}
}

// used is the CPU time, in ticks, of each process of a job below a supervisor.
func (m *machine) used() map[string]uint64 {
	all := map[string]uint64{}
	found := m.processes()
	for _, p := range found {
		f := statOf(p.pid)
		if p.kind != "job" || f == nil || !slices.ContainsFunc(found, func(s prey) bool { return s.kind == "supervisor" && fmt.Sprint(s.pid) == f[1] }) {
			continue
		}
		var user, system uint64
		fmt.Sscan(f[11], &user)
		fmt.Sscan(f[12], &system)
		all[fmt.Sprintf("process %d of tick %s", p.pid, f[19])] = user + system
	}
	return all
}

// statOf is the fields of /proc/PID/stat from the state on; nil if there are none.
func statOf(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 {
		return nil
	}
	return f
}
