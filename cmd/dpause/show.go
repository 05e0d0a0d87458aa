package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"distribute/lib/account"
	"distribute/lib/msg"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/unit"
)

// A holder is one pause that counts, and the nodes that it is for.
type holder struct {
	p     pause.Pause
	nodes []string
}

// holders is every pause that counts for one of the nodes, the oldest first.
func (m *machine) holders() (all []holder) {
	for _, n := range m.nodes {
		for _, p := range n.state.Live {
			i := slices.IndexFunc(all, func(h holder) bool { return h.p.ID == p.ID && h.p.Place == p.Place })
			if i < 0 {
				i = len(all)
				all = append(all, holder{p: p})
			}
			all[i].nodes = append(all[i].nodes, unit.Quote(n.name))
		}
	}
	slices.SortStableFunc(all, func(a, b holder) int { return a.p.Made.Compare(b.p.Made) })
	return all
}

// who holds the pause, in words.
func (h holder) who() string {
	if h.p.Why != "" {
		return unit.Quote(h.p.Why)
	}
	return account.UserName(h.p.UID)
}

// words says of a pause whose it is and until when.
func (h holder) words(c pause.Clock) string {
	what := "paused"
	switch {
	case h.p.Give != nil:
		what = giveWords(*h.p.Give)
	case h.p.Out:
		what = "paused, jobs leave,"
	}
	from := nearest(c.Now, h.p.Made)
	end, forever := h.p.End(c)
	when := "since " + from
	if !forever {
		when = from + " to " + nearest(c.Now, end)
	}
	if h.p.Why != "" {
		return fmt.Sprintf("%s: %s %s: %s", names(h.nodes), what, when, h.who())
	}
	by := "by"
	if h.p.Give != nil {
		by = "to"
	}
	return fmt.Sprintf("%s: %s %s %s, %s", names(h.nodes), what, by, h.who(), when)
}

// whoEnds says who can end the pause before its time, and how, after dpause -r did not.
func (m *machine) whoEnds(h holder) string {
	if uid := os.Geteuid(); uid == h.p.UID || slices.ContainsFunc(m.nodesOf(h), func(n node) bool { return n.owns(uid) }) { // it is in another place than that of -D
		words := []string{"dpause", "-r"}
		if h.p.Place != pause.MachinePlace && h.p.Place != pause.RunPlace {
			words = append(words, "-D", filepath.Dir(h.p.Place))
		}
		return msg.Shell(words...) + " ends that"
	}
	who := []string{account.UserName(h.p.UID)}
	for _, n := range m.nodesOf(h) {
		if n.now != nil {
			for _, uid := range append([]int{n.now.UID}, n.now.Owners...) {
				who = append(who, account.UserName(uid))
			}
		}
	}
	root := account.UserName(0)
	who = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(who))), func(name string) bool { return name == root })
	return "only " + strings.Join(append(who, root), " or ") + " can end that here (dpause -r), or an operator from the head (dadm resume)"
}

// nodesOf returns the nodes that a pause is for.
func (m *machine) nodesOf(h holder) []node {
	return slices.DeleteFunc(slices.Clone(m.nodes), func(n node) bool { return !n.has(h.p) })
}

// has reports whether a pause counts for the node.
func (n *node) has(p pause.Pause) bool {
	return slices.ContainsFunc(n.state.Live, func(q pause.Pause) bool { return q.ID == p.ID && q.Place == p.Place })
}

// show says what is paused and what is here.
func (m *machine) show() error {
	if !m.c.StdoutTTY() {
		return m.records()
	}
	var b strings.Builder
	holders := m.holders()
	for _, h := range holders {
		fmt.Fprintln(&b, h.words(m.clock))
	}
	if len(holders) == 0 {
		fmt.Fprintln(&b, "nothing is paused")
	}
	jobs := 0
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, n := range m.nodes {
		for _, j := range n.here() {
			if jobs++; jobs == 1 {
				fmt.Fprintln(w, "JOB\tUSER\tCPUS\tSTATE")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", dash(unit.Quote(j.id), j.id), dash(unit.Quote(j.user), j.user), dash(strconv.Itoa(j.cpus), j.cpus), j.state())
		}
	}
	w.Flush()
	_, err := io.WriteString(m.c.Stdout, b.String())
	m.dead()
	m.bestEffort()
	return err
}

// dash is shown, or - if what it shows is nothing.
func dash[T comparable](shown string, of T) string {
	var none T
	if of == none {
		return "-"
	}
	return shown
}

// records is show for a pipe.
func (m *machine) records() error {
	var b strings.Builder
	for _, h := range m.holders() {
		what, until := "all", "-"
		switch {
		case h.p.Out:
			what = "out"
		case h.p.Give != nil && h.p.Give.Memory > 0:
			what = fmt.Sprintf("%d,%d", h.p.Give.CPUs, h.p.Give.Memory)
		case h.p.Give != nil:
			what = strconv.Itoa(h.p.Give.CPUs)
		}
		if end, forever := h.p.End(m.clock); !forever {
			until = end.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(&b, "pause\t%s\t%s\t%s\t%s\t%s\t%s\n", unit.Quote(account.UserName(h.p.UID)), h.p.Made.UTC().Format(time.RFC3339), until, what,
			dash(unit.Quote(h.p.Why), h.p.Why), strings.Join(h.nodes, ","))
	}
	for _, n := range m.nodes {
		for _, j := range n.here() {
			fmt.Fprintf(&b, "job\t%s\t%s\t%s\t%s\t%s\n", dash(unit.Quote(j.id), j.id), dash(unit.Quote(j.user), j.user), dash(strconv.Itoa(j.cpus), j.cpus), j.state(), unit.Quote(n.name))
		}
	}
	_, err := io.WriteString(m.c.Stdout, b.String())
	return err
}

// state is how a job is shown.
func (j job) state() string {
	switch {
	case j.still():
		return "paused"
	case j.group == "" && concealed(j.pid), j.does == proc.Hidden:
		return "-"
	}
	return "running"
}

// what names a job.
func (j job) what() string {
	switch {
	case j.id != "":
		return unit.Quote(j.id)
	case j.user != "":
		return "a job of " + unit.Quote(j.user)
	}
	return "a job"
}

// whatRuns names the job that has, or the processes of it that have, not stopped.
func (j job) whatRuns() string {
	var all []string
	for _, l := range j.loose {
		all = append(all, fmt.Sprintf("%d (%s)", l.PID, unit.Quote(l.Name)))
	}
	switch len(all) {
	case 0:
		return j.what() + " has"
	case 1:
		return "process " + all[0] + " of " + j.what() + " has"
	}
	return "processes " + names(all) + " of " + j.what() + " have"
}

// sentence is jobs with their users, and what they do.
func sentence(jobs []job, one, many string) string {
	var users []string
	for _, j := range jobs {
		if j.user != "" {
			users = append(users, unit.Quote(j.user))
		}
	}
	s := count(len(jobs), "job")
	if len(users) > 0 {
		s += " of " + names(users)
	}
	if len(jobs) == 1 {
		many = one
	}
	return strings.TrimSpace(s + " " + many)
}

// oneLine is a line for who logs in, if jobs are here.
func (m *machine) oneLine() error {
	var jobs []job
	for _, n := range m.nodes {
		jobs = append(jobs, n.here()...)
	}
	if len(jobs) == 0 {
		return nil
	}
	line := sentence(jobs, "", "")
	cores := 0
	for _, j := range jobs {
		cores += j.cpus
	}
	if cores > 0 {
		line += ", " + count(cores, "core")
	}
	hint := "dpause 2h"
	for _, h := range m.holders() {
		if h.p.Full() {
			hint = "paused by " + h.who()
			if end, forever := h.p.End(m.clock); !forever {
				hint += " until " + nearest(m.clock.Now, end)
			}
		}
	}
	_, err := io.WriteString(m.c.Stdout, line+"; "+hint+"\n")
	return err
}
