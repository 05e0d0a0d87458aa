package batchfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// resources reads what is asked for; what is not named is as in outer.
func (r *reader) resources(n conf.Node, outer job.Resources) job.Resources {
	res := outer
	for _, p := range n.AnyMap().Pairs() {
		key, v := p.Name, p.Node
		known := slices.Contains(job.ResourceNames, key)
		if v.Absent() || !v.IsText() {
			v.Text() // for its mistake
			continue
		}
		err := res.Read(key, v.Text())
		switch {
		case err == nil:
		case !known && job.CheckCount(key) != nil:
			p.Key.Errorf("%w", err)
		case !known:
			v.Errorf("%s: %w", key, err)
		case key == "cpus" && strings.Trim(v.Text(), "0123456789") != "":
			v.Errorf(`"cpus" must be a whole number, or "all" for the whole machine, not %s`, msg.Quote(v.Text()))
		case key == "cpus":
			v.Int(1, job.MaxCPUs)
		case key == "disk":
			v.Errorf("%v", err)
		default:
			v.Errorf("%s: %v", key, err)
		}
	}
	if res.Ranks > 0 || res.MPI {
		if err := res.Check(); err != nil {
			n.Errorf("%w", err)
		}
	}
	return res
}

// leastOf is the memory that is asked for, with a sign if that is the least.
func leastOf(r job.Resources) string {
	if r.Grows {
		return fmt.Sprint(r.Memory, "+")
	}
	return fmt.Sprint(r.Memory)
}

// resourcesYAML is the value of resources. What is as in outer is left out, but
// for the cpus: those are always said.
func resourcesYAML(r, outer job.Resources) string {
	cpus := "all"
	if r.CPUs > 0 {
		cpus = strconv.Itoa(r.CPUs)
	}
	text := "{cpus: " + cpus
	if r.Ranks != outer.Ranks {
		text += fmt.Sprintf(", ranks: %d", r.Ranks)
	}
	if r.MPI != outer.MPI {
		text += fmt.Sprintf(", mpi: %v", r.MPI)
	}
	for name := range r.Counted.Plus(outer.Counted).All() {
		if n := r.Counted.Of(name); n != outer.Counted.Of(name) {
			text += fmt.Sprintf(", %s: %d", name, n)
		}
	}
	for _, k := range []struct {
		key      string
		n, outer any
		unit     string
	}{
		{"memory", leastOf(r), leastOf(outer), ""}, {"gpus", r.GPUs, outer.GPUs, ""},
		{"disk", r.Disk, outer.Disk, ""}, {"time", r.Time, outer.Time, "s"},
	} {
		if k.n != k.outer {
			text += fmt.Sprintf(", %s: %v%s", k.key, k.n, k.unit)
		}
	}
	return text + "}"
}
