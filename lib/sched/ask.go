package sched

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/sched/policy"
)

// An Ask is what a job asks of its node. What it does not ask for it has no
// share of, as far as is counted here: 0 bytes of memory are counted of a job
// that does not say how much it needs.
type Ask struct {
	CPUs   uint16 // 0: a whole node
	GPUs   uint32 // thousandths
	Memory int64  // bytes
	Wants  string // what its node must be besides, as [AskOf] writes it
	Time   int64  // seconds that it may run; 0: no limit. It makes no other class.
	Disk   int64  // bytes that it writes at most; 0: nothing is said. Nor does this.

	Counts job.Counts // of what is counted by its name
	Ranks  uint16     // among which the cpus, the GPUs and the memory are dealt out; 0: it has none
}

// AskOf is what a job asks for that needs r and has those capabilities of its own.
func AskOf(r job.Resources, own []string) Ask {
	ranks := r.Ranks
	if r.MPI {
		own = append(slices.Clip(own), capability.RanksByMPI)
	}
	r = r.Together()
	count := func(n int) uint16 { return uint16(min(max(0, n), math.MaxUint16)) }
	return Ask{CPUs: count(r.CPUs), GPUs: uint32(min(max(0, r.GPUs), math.MaxUint32)), Memory: max(0, r.Memory), Wants: strings.Join(entries(own), "\x00"), Time: max(0, r.Time), Disk: max(0, r.Disk), Counts: r.Counted, Ranks: count(ranks)}
}

// entries is a list of capabilities in order, each once.
func entries(caps []string) []string {
	caps = slices.Clone(caps)
	slices.Sort(caps)
	return slices.Compact(caps)
}

func (a Ask) share() policy.Share {
	return policy.Share{CPUs: int(a.CPUs), GPUs: job.GPUs(a.GPUs), Memory: a.Memory, Counts: a.Counts}
}

// wants is what a batch asks of a node in words.
func wants(spec *job.Spec) []string {
	caps := slices.Clone(spec.Capabilities)
	switch spec.Kind {
	case job.Python:
		caps = append(caps, "python3")
	case job.Apptainer:
		caps = append(caps, "apptainer")
	}
	if len(spec.Secrets) > 0 {
		caps = append(caps, capability.TakesSecrets)
	}
	return caps
}

// A wish is what a job asks of a node, by which classes are known.
type wish struct {
	caps []string // of the batch and its own, in order, each once
	ask  Ask
}

// wishOf is what a job asks whose batch has those capabilities.
func wishOf(common []string, ask Ask) wish {
	if ask.Wants != "" {
		common = append(slices.Clip(common), strings.Split(ask.Wants, "\x00")...)
	}
	return wish{entries(common), ask}
}

// class is a class for it of which nobody knows.
func (w wish) class() *policy.Class {
	s := w.ask.share()
	cards := s.CPUs == 0 && s.GPUs == 0 && slices.Contains(w.caps, "gpu")
	c := &policy.Class{Name: fmt.Sprint(s, w.ask.Ranks) + "\x00" + strings.Join(w.caps, "\x00"), Wants: parsed(w.caps), Share: s, Cards: cards}
	if n := int(w.ask.Ranks); n > 0 {
		c.Ranks, c.Each = n, policy.Share{CPUs: s.CPUs / n, GPUs: s.GPUs / job.GPUs(n), Memory: s.Memory / int64(n)}
	}
	return c
}

// parsed reads what was checked when it was submitted. What cannot be read all the same
// holds nowhere.
func parsed(caps []string) (all []capability.Expr) {
	for _, c := range caps {
		e, err := capability.Parse(c)
		if err != nil {
			e = capability.Unknown(c)
		}
		all = append(all, e)
	}
	return all
}
