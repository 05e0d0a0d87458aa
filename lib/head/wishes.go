package head

import (
	"errors"
	"fmt"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/sched"
	"distribute/lib/unit"
	"distribute/lib/wire"
	"distribute/spool"
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

// maxNeed is how long the text of what a job needs may be: the state reads it for each node.
const maxNeed = 16 << 10

// readNeed reads what a job needs, within the limits of a submission.
func readNeed(text string) (need wire.Need, err error) {
	if len(text) > maxNeed {
		return need, fmt.Errorf("it has %d bytes, and %d is the limit", len(text), maxNeed)
	}
	if err := line.Unmarshal([]byte(text), &need); err != nil {
		return need, err
	}
	return need, errors.Join(spool.CheckCapabilities(need.Capabilities), need.Resources.Check())
}

// queryAble answers how many nodes could meet each of some needs.
func (t *tool) queryAble(m *wire.Query) error {
	if len(m.Args) > job.MaxRequests {
		return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("what %d jobs need, and %d is the limit", len(m.Args), job.MaxRequests)}
	}
	rows := make([]wire.Able, len(m.Args))
	for i, text := range m.Args {
		need, err := readNeed(text)
		if err != nil {
			return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("what a job needs: %v", err)}
		}
		need.Resources.Time = 0
		spec := &job.Spec{Kind: need.Kind, Capabilities: need.Capabilities}
		ask := sched.AskOf(need.Resources, nil)
		if !t.do(func() {
			r := &rows[i]
			if r.Able, r.Nodes = t.machine.Able(spec, ask); r.Able == 0 && t.heardAll() {
				r.Why = t.machine.Impossible(spec, ask)
			}
		}) {
			return errEndingNow
		}
	}
	return sendRows(t, m.Ref, rows)
}

// heardAll says that every node on the list of nodes was here since the head was started. It is
// of the state's goroutine.
func (h *Head) heardAll() bool {
	list, _ := h.door.nodes()
	return !slices.ContainsFunc(list.Lines(), func(l spool.NodeLine) bool { return !l.Shut() && !h.machine.Knows(l.Node) })
}

// impossible is a refusal of what no node could ever run, as far as that is known:
// every node on the list of nodes has to have been here. It names one job.
func (h *Head) impossible(w *wishes) (err error) {
	first := ""
	h.do(func() {
		if !h.heardAll() {
			return
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
