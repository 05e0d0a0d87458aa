package head

import (
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/unit"
)

// wishes are what a submission asks of nodes.
type wishes struct {
	spec job.Spec
	of   map[sched.Ask]string // the name of the first job that asks for that
}

// add takes in what a job asks for. There are more different asks than may be only
// in a batch that is refused for that.
func (w *wishes) add(j *job.Job) {
	r := w.spec.Resources
	if j.Resources != nil {
		r = *j.Resources
	}
	r.Time = 0 // of which no node has too little
	ask := sched.AskOf(r, j.Capabilities)
	if _, there := w.of[ask]; there || len(w.of) > sched.MaxClasses {
		return
	}
	if w.of == nil {
		w.of = map[sched.Ask]string{}
	}
	w.of[ask] = j.Name
}

// impossible is a refusal of what no node could ever run, as far as that is known:
// every node on the list of nodes has to have been here. It names one job.
func (h *Head) impossible(w *wishes) (err error) {
	first := ""
	h.do(func() {
		list, _ := h.door.nodes()
		for _, l := range list.Lines() {
			if !l.Shut() && !h.machine.Knows(l.Node) {
				return
			}
		}
		for ask, name := range w.of {
			why := h.machine.Impossible(&w.spec, ask)
			if why == "" || first != "" && name >= first {
				continue
			}
			what, elsewhere := "", ""
			if first = name; ask.Ranks > 0 {
				what = fmt.Sprintf("with all of its %s, ", unit.Count(int(ask.Ranks), "rank"))
				elsewhere = "; d2slurm takes it to a cluster"
			}
			err = cli.Errorf(cli.Input, "no node could ever run %q: %s%s (dsubmit -Q queues it all the same%s)", first, what, why, elsewhere)
		}
	})
	return err
}
