package head

import (
	"fmt"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/unit"
)

// when is the time of day of a moment that the machine knows, as long as dsched
// is not stopped.
func (h *Head) when(moment time.Duration) time.Time {
	return h.wall().Add(moment - h.clock.tell())
}

// clockTime is when, for a person near the head: the nearest minute.
func (h *Head) clockTime(moment time.Duration) string {
	t := h.when(moment).Add(30 * time.Second).Local()
	if time.Until(t) > 20*time.Hour {
		return t.Format("2 Jan 15:04")
	}
	return t.Format("15:04")
}

// why tells why an attempt is stranded or paused, or what becomes of one whose node is
// away.
func (h *Head) why(a sched.Attempt) string {
	switch {
	case a.State == job.Stranded:
		return a.Note
	case a.State == job.Paused:
		return pausedWhy(h, &a)
	case a.State == job.Queued && a.Node.Abroad():
		return fmt.Sprintf("taken to %s, where it waits as far as is known", a.Node)
	case a.State == job.Queued:
		return sched.ReasonAhead
	case a.State != job.Unreachable:
		return ""
	case a.Until == 0:
		return fmt.Sprintf("waits for %s, since it must not be started twice", a.Node)
	}
	return fmt.Sprintf("goes to another node at %s if %s is not back", h.clockTime(a.Until), a.Node)
}

// awayNote tells for how long a node has been away, and what its jobs wait for.
func (h *Head) awayNote(n *sched.Node) string {
	note := []string{"silent " + unit.FormatDuration(max(0, h.clock.tell()-n.Heard))}
	if n.Unheard {
		note[0] = "not back since dsched started"
	}
	if n.Wait > 0 && n.State == node.Silent {
		note = append(note, some(n.Wait, "job moves", "jobs move")+" at "+h.clockTime(n.Until))
	}
	if n.Stay > 0 {
		note = append(note, some(n.Stay, "job waits", "jobs wait")+" for it")
	}
	return strings.Join(note, "; ")
}

func some(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
