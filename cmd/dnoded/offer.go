package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/inventory"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/proc"
	"distribute/lib/unit"
)

// A taken is what is found of this machine, with what its disk may be used for.
type taken struct {
	*inventory.Inventory
	parts []*inventory.Inventory // of the nodes that it is by its file
	caps  desk.Caps
}

// take looks at this machine and at what the node's file says of it.
func take(ctx context.Context, s *inventory.Source, f *inventory.File, dir string) (*taken, error) {
	in, err := s.Take(ctx, f)
	if err != nil {
		return nil, err
	}
	t := &taken{Inventory: in}
	if t.parts, err = in.Parts(f); err != nil {
		return nil, err
	}
	for _, p := range t.parts {
		in.Facts = append(in.Facts, inventory.Fact{What: "node", Value: string(p.Name), Why: p.Words()})
	}
	return t, t.disk(f, dir)
}

// disk is how much of its disk the node may use, as the node's file says or by
// the size of the file system.
func (t *taken) disk(f *inventory.File, dir string) (err error) {
	if t.caps, err = desk.DefaultCaps(dir); err != nil {
		return err
	}
	free, err := desk.SpaceAt(dir)
	if err != nil {
		return err
	}
	var facts []inventory.Fact
	for _, c := range []struct {
		what string
		said *int64
		cap  *int64
		why  string
	}{
		{"reserve", f.Reserve, &t.caps.Reserve, "5 % of the file system, at most 1 GiB"},
		{"cache", f.Cache, &t.caps.Cache, "10 % of the file system, at most 20 GiB"},
		{"output", f.Output, &t.caps.Output, "what one job may print"},
	} {
		if c.said != nil {
			*c.cap, c.why = *c.said, "node.yaml"
		}
		facts = append(facts, inventory.Fact{What: c.what, Value: unit.FormatBytes(*c.cap), Why: c.why})
	}
	left := max(0, free.Free-t.caps.Reserve)
	t.Facts = append(t.Facts, inventory.Fact{What: "disk", Value: unit.FormatBytes(left), Why: "free in " + dir + ", less reserve"})
	t.Facts = append(t.Facts, facts...)
	return nil
}

// tellLacks logs what keeps the node from offering more.
func (t *taken) tellLacks(log *slog.Logger) {
	for _, l := range t.Lacks {
		if l.What == "python3" {
			continue // many nodes are without; the head says whom that keeps waiting
		}
		log.Warn("a resource is not offered", "what", l.What+" "+l.Value, "why", l.Why)
	}
}

// admits is how jobs are admitted, if it is not by what they ask for alone.
func admits(f *inventory.File) []inventory.Fact {
	if !f.Measured {
		return nil
	}
	return []inventory.Fact{{What: "admit", Value: "measured", Why: "who says nothing of memory is begun if there is some, by what jobs use"}}
}

// printOffer prints what this node would offer, and why, a line each, and after that
// what is missing and what to do about it.
func printOffer(ctx context.Context, c *cli.Cmd, t *taken, s *inventory.Source, f *inventory.File, dir string) error {
	facts := slices.Concat(t.Facts, admits(f), []inventory.Fact{runsAs(f, os.Geteuid(), dir)}, busy(ctx, t, s, dir))
	more, lacks := contained(string(t.Name), dir)
	facts = slices.Concat(facts, more, pausedBy(ctx, f, dir), presenceFacts(ctx, f))
	lacks = append(t.Lacks, lacks...)
	if _, err := account.UIDs(ctx, f.Owners); err != nil {
		lacks = append(lacks, inventory.Fact{What: "owners", Why: strings.ReplaceAll(err.Error(), "\n", ", ") + ": correct owners in node.yaml"})
	}
	var wide [2]int
	for i := range lacks {
		if l := &lacks[i]; l.Value != "" {
			l.Why = l.Value + ": " + l.Why
		}
		lacks[i].What, lacks[i].Value = "missing", lacks[i].What
	}
	facts = append(facts, lacks...)
	for _, l := range facts {
		wide[0] = max(wide[0], utf8.RuneCountInString(l.What))
		wide[1] = min(max(wide[1], utf8.RuneCountInString(l.Value)), 12)
	}
	var out bytes.Buffer
	for _, l := range facts {
		indent := fmt.Sprintf("%-*s  %-*s  ", wide[0], l.What, wide[1], l.Value)
		if utf8.RuneCountInString(l.Value) > wide[1] && l.What == "missing" {
			fmt.Fprintln(&out, strings.TrimRight(indent, " "))
			indent = fmt.Sprintf("%-*s  %-*s  ", wide[0], "", wide[1], "")
		}
		wrap(&out, indent, l.Why)
	}
	_, err := c.Stdout.Write(out.Bytes())
	return err
}

// columns is how wide what is printed may be.
const columns = 80

// wrap writes words behind an indent, and on more lines if they do not fit.
func wrap(out *bytes.Buffer, indent, text string) {
	at := utf8.RuneCountInString(indent)
	line := indent
	begun := false
	for word := range strings.FieldsSeq(text) {
		if begun && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns {
			fmt.Fprintln(out, line)
			line, begun = strings.Repeat(" ", at), false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	fmt.Fprintln(out, strings.TrimRight(line, " "))
}

// busy is which GPUs would not be given out now.
func busy(ctx context.Context, t *taken, s *inventory.Source, dir string) (facts []inventory.Fact) {
	if len(t.Offer.GPUs) == 0 {
		return nil
	}
	users, unknown := s.Cards().Users(ctx)
	nodes := []nodeDir{{t.Name, dir}} // also of what ran before the machine was several nodes
	for _, p := range t.parts {
		nodes = append(nodes, nodeDir{p.Name, filepath.Join(dir, pause.Parts, string(p.Name))})
	}
	for _, g := range t.Offer.GPUs {
		if err := unknown[g.Index]; err != nil {
			facts = append(facts, inventory.Fact{What: "busy", Value: "gpu " + strconv.Itoa(g.Index), Why: "nobody knows who uses it: " + err.Error()})
		}
		for _, pid := range users[g.Index] {
			if !slices.ContainsFunc(nodes, func(n nodeDir) bool { return n.runs(pid) }) {
				facts = append(facts, inventory.Fact{What: "busy", Value: "gpu " + strconv.Itoa(g.Index), Why: fmt.Sprintf("process %d, which is no job's, uses it", pid)})
			}
		}
	}
	return facts
}

// A nodeDir is a node of this machine and its directory.
type nodeDir struct {
	name node.Name
	dir  string
}

// runs reports whether a process is of a job of the node.
func (n nodeDir) runs(pid int) bool {
	cgroup, _, _ := proc.WouldContain(string(n.name), n.dir)
	in, _ := proc.InTree(pid, cgroup, n.dir)
	return in
}

// contained is how jobs would be held together and limited, and what is missing.
func contained(name, dir string) (facts, lacks []inventory.Fact) {
	group, has, err := proc.WouldContain(name, dir)
	if err != nil {
		facts = append(facts, inventory.Fact{What: "containment", Value: proc.BestEffort, Why: "no cgroup of version 2: " + err.Error()})
		lacks = append(lacks, inventory.Fact{What: "cgroup", Why: "run dnoded as a unit of systemd, which delegates one (dnoded(8), As a unit), by dlocal(1) where the user has a systemd, or as root"})
		return facts, lacks
	}
	facts = append(facts, inventory.Fact{What: "containment", Value: proc.ByCgroup, Why: "below " + filepath.Dir(filepath.Dir(group))})
	if len(has) > 0 {
		facts = append(facts, inventory.Fact{What: "controllers", Value: strings.Join(has, " "), Why: "what the kernel limits and counts by"})
	}
	var without, means []string
	for _, w := range []struct{ controller, means string }{
		{"cpuset", "jobs can leave their cpus"},
		{"memory", "memory is watched, not limited"},
		{"pids", "processes are not limited"},
	} {
		if !slices.Contains(has, w.controller) {
			without, means = append(without, w.controller), append(means, w.means)
		}
	}
	if without != nil {
		lacks = append(lacks, inventory.Fact{What: strings.Join(without, " "), Why: "no such controllers of version 2, so " + strings.Join(means, ", ") +
			"; boot with systemd.unified_cgroup_hierarchy=1"})
	}
	return facts, lacks
}

// pausedBy is who may pause the node, and where.
func pausedBy(ctx context.Context, f *inventory.File, dir string) []inventory.Fact {
	owners := inventory.Fact{What: "owners", Value: "everybody", Why: "no owners in node.yaml: each user of this machine may pause"}
	if f.Owners != nil {
		owners.Value, owners.Why = strings.Join(f.Owners, " "), "node.yaml; and root, and the user of dnoded"
	}
	place := pause.OwnPlace(dir)
	if _, err := os.Stat(pause.MachinePlace); err == nil {
		place = pause.MachinePlace
	}
	sessions := inventory.Fact{What: "sessions", Value: "known", Why: "logind: a pause by who has none, and is no owner, ends within an hour"}
	if !pause.KnowsSessions() {
		sessions.Value, sessions.Why = "not known", "no logind: a pause by who is no owner lasts as long as he says"
	}
	return []inventory.Fact{owners, sessions, jobPauses(ctx, f), {What: "pauses", Value: "dpause", Why: "writes to " + place}}
}

// jobPauses says whether a job could pause the node.
func jobPauses(ctx context.Context, f *inventory.File) inventory.Fact {
	fact := inventory.Fact{What: "job pauses", Value: "possible", Why: "jobs run as the user of dnoded, so that nobody can tell a pause by a job from one by that user: see run_as in dnode(5)"}
	if f.RunAs == "" {
		return fact
	}
	gid, err := account.GroupID(ctx, pause.JobGroup)
	if err != nil {
		fact.Why = "no group " + pause.JobGroup + ", to tell jobs from people: run systemd-sysusers, and start dnoded again"
		return fact
	}
	return placesClosed(fact, gid)
}

// placesClosed says whether the group of jobs can write into the places of the machine.
func placesClosed(fact inventory.Fact, gid int) inventory.Fact {
	for _, place := range []string{pause.MachinePlace, pause.RunPlace} {
		if !pause.IsClosedTo(place, gid) {
			fact.Why = place + " lets the group " + pause.JobGroup + " write: run systemd-tmpfiles --create distribute-node.conf"
			return fact
		}
	}
	fact.Value, fact.Why = "impossible", "jobs have the group "+pause.JobGroup+", which cannot write where pauses are"
	return fact
}

// baseEnv is what jobs get of the daemon's environment.
func baseEnv(getenv func(string) string) []string {
	var env []string
	for _, k := range []string{"PATH", "HOME", "LANG", "USER"} {
		if v := getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	return env
}
