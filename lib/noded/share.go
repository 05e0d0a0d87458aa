package noded

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/unit"
)

// A share is what an attempt or a build has of the node while it runs.
type share struct {
	cpus   int
	memory int64 // bytes that it asked for; 0: it may take what there is
	grows  bool  // it may also take more
	gpus   job.GPUs

	never bool        // it is never to be started twice
	saves bool        // its batch says how it is asked to save what it has
	open  bool        // its batch is not private: every user may see its id
	batch job.BatchID // of an attempt

	pid   int   // of the attempt's supervisor; 0: not known yet
	begun int   // in which order the attempt was; 0: by an earlier daemon, or not yet
	uses  int64 // bytes of memory, as was seen last
	most  int64 // the most of it that was seen
	alone bool  // nobody else had a share when it was given back

	group string // the directory of the cgroups, of what an earlier daemon began or has ranks on other nodes

	ranks  int        // so many of the attempt's have it; 0: it has none
	beside []*portion // what the others have of other nodes
	guest  *guest     // whose ranks have it, of a node beside this one; nil: it is for this node's own

	port  int       // for its ranks to meet; 0: it has none
	on    []int     // numbers of its cpus; none: any
	cards job.Cards // which GPUs; of one that has none yet those that the head has chosen, or nothing
}

// measured says that it may take as much memory as there is.
func (s *share) measured() bool { return s.memory == 0 || s.grows }

// A tooMuchError says that a job wants more than the node has at all.
type tooMuchError struct{ why string }

func (e *tooMuchError) Error() string { return e.why }

// resources is what an attempt asked for.
func (a *attempt) resources(spec *job.Spec) job.Resources {
	r := spec.Resources
	if a.Work != nil && a.Work.Resources != nil {
		r = *a.Work.Resources
	}
	if a.Time != nil {
		r.Time = *a.Time
	}
	return r
}

// shareOf is what an attempt that asks for r gets with its cpus. The GPUs are those that
// the head has chosen, if it has; who says no number of them has all of these.
func (n *daemon) shareOf(cpus int, r job.Resources, chosen ...int) (share, error) {
	if r.GPUs == 0 {
		r.GPUs = job.GPUs(len(chosen)) * job.OneGPU
	}
	s := share{cpus: cpus, memory: r.Memory, grows: r.Grows, gpus: r.GPUs, cards: job.CardsOf(r.GPUs, chosen)}
	return s, n.beyond(&s)
}

// beyond says why a share can never be had of this node as it is now; nil if it
// can. It may be called from any goroutine.
func (n *daemon) beyond(s *share) error {
	o := &n.given().Offer
	if s.cpus > o.CPUs {
		return &tooMuchError{fmt.Sprintf("needs %s, and %s has %d", unit.Count(s.cpus, "cpu"), n.Name, o.CPUs)}
	}
	if o.Memory > 0 && s.memory > o.Memory {
		return &tooMuchError{fmt.Sprintf("needs %s of memory, and %s has %s", unit.FormatBytes(s.memory), n.Name, unit.FormatBytes(o.Memory))}
	}
	ok := usable(o.GPUs)
	switch {
	case s.gpus.Cards() > len(o.GPUs):
		return &tooMuchError{fmt.Sprintf("needs %s, and %s has %d", s.gpus.Words("GPU"), n.Name, len(o.GPUs))}
	case s.gpus.Cards() > len(ok):
		return &tooMuchError{fmt.Sprintf("needs %s, and %s has %d that nobody else uses", s.gpus.Words("GPU"), n.Name, len(ok))}
	}
	for _, i := range s.cards.Indexes() {
		if !ok[i] {
			return &tooMuchError{fmt.Sprintf("was given GPU %d, which %s does not offer, or somebody else uses", i, n.Name)}
		}
	}
	return nil
}

// memoryOf is the part of the node's memory that goes with cpus of it.
func (n *daemon) memoryOf(cpus int) int64 {
	return n.given().Offer.Memory / int64(max(1, n.given().Offer.CPUs)) * int64(cpus)
}

// A stock is what the node has that nobody has now. It is of the state.
type stock struct {
	memory int64 // bytes; less than nothing if what runs was given by other rules
	cpus   pool
	sized  bool // the node's memory is known
}

// newStock is all that a node offers: with the numbers of so many cpus of those
// that it may run on, so that the last ones are the person's at the machine. If it
// offers more than there are, or other nodes have the same, they cannot be told apart, and
// jobs may run on any.
func newStock(o node.Offer, cpus []int, shared bool) stock {
	s := stock{memory: o.Memory, sized: o.Memory > 0}
	if o.CPUs <= len(cpus) && !shared {
		core := map[int]string{}
		for _, c := range cpus {
			core[c] = siblings(c)
		}
		s.cpus = newPool(inCores(cpus, core)[:o.CPUs], core)
	}
	return s
}

// has says whether what w wants is there, and is not given back to a person.
func (n *daemon) has(w *want) bool {
	lent := &n.pause.give
	_, cards := n.cardsFor(&w.share)
	return !n.pause.frozen && w.cpus <= n.free-lent.CPUs && (!n.stock.sized || w.memory == 0 || w.memory <= n.stock.memory-lent.Memory) && cards
}

// take takes a share.
func (n *daemon) take(s *share) {
	n.free -= s.cpus
	n.stock.memory -= s.memory
	s.on = n.stock.cpus.take(s.cpus)
	s.cards, _ = n.cardsFor(s)
	n.held[s] = true
	n.tellGuest(s, true)
}

// give gives it back.
func (n *daemon) give(s *share) {
	n.free += s.cpus
	n.stock.memory += s.memory
	n.stock.cpus.give(s.on)
	ports.releasePort(s.port)
	n.meter.correct(s.batch, s.most)
	delete(n.held, s)
	n.tellGuest(s, false)
	if s.alone = len(n.held) == 0; s.alone {
		n.rebound()
	}
}

// retake takes the share of what was started by an earlier daemon.
func (n *daemon) retake(s *share) {
	n.free -= s.cpus
	n.stock.memory -= s.memory
	s.on = n.stock.cpus.retake(s.on)
	ports.claimPort(s.port)
	n.held[s] = true
}

// shareIn is the share that an attempt was started with by an earlier daemon, as far as
// is known. What its batch says is not, so that it counts as never to be started twice.
func (a *attempt) shareIn(s *desk.Started) *share {
	if s == nil {
		s = &desk.Started{}
	}
	gpus := s.Part
	if gpus == 0 {
		gpus = job.GPUs(len(s.GPUs)) * job.OneGPU
	}
	return &share{cpus: a.cpus, memory: s.Memory, grows: s.Grows, gpus: gpus, on: s.CPUs, cards: job.CardsOf(gpus, s.GPUs), group: s.Cgroup, port: s.Port,
		batch: a.Job.Batch(), never: true}
}

// setBatch notes what counts of the batch of an attempt.
func (s *share) setBatch(batch job.BatchID, spec *job.Spec) {
	s.batch, s.never, s.saves, s.open = batch, spec.Retry == job.Never, spec.Checkpoint != nil, !spec.Private
}

// note keeps the share for the daemon that may take the attempt over.
func (s *share) note(to *desk.Started) {
	to.CPUs, to.GPUs, to.Memory, to.Grows, to.Port = s.on, s.cards.Indexes(), s.memory, s.grows, s.port
	if s.gpus.Part() {
		to.Part = s.gpus
	}
	if s.group != "" {
		to.Cgroup = s.group
	}
	for _, p := range s.beside {
		to.Also = append(to.Also, desk.Portion{Portion: job.Portion{Node: string(p.on.Name), Ranks: p.share.ranks},
			CPUs: p.share.cpus, On: p.share.on, GPUs: p.share.cards.Indexes(), Memory: p.share.memory})
	}
}

// limits is what the kernel, or the supervisor, holds the attempt to. A job may
// have so many processes that no sensible one misses any, and few enough that a
// person at the machine can still start his own.
func (s *share) limits(r job.Resources) proc.Limits {
	return proc.Limits{CPUs: s.on, Memory: r.Memory, Pids: 1024 + 256*s.cpus, Time: time.Duration(r.Time) * time.Second}
}

// env tells of the share. CUDA orders GPUs by speed unless it is told to take
// them as nvidia-smi does. Who has none finds none.
func (s *share) env() []string {
	if s.gpus == 0 {
		return []string{"DISTRIBUTE_GPUS=0", "CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES="}
	}
	var list []string
	for _, c := range s.cards.Indexes() {
		list = append(list, strconv.Itoa(c))
	}
	cards := strings.Join(list, ",")
	return []string{"DISTRIBUTE_GPUS=" + s.gpus.String(), "CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"CUDA_VISIBLE_DEVICES=" + cards, "HIP_VISIBLE_DEVICES=" + cards}
}

// offeredCPUs is the numbers of all cpus that jobs may run on, those that a person gets
// back first at the end: the offered ones, or all that there are if more are offered;
// nil if they are not known.
func (n *daemon) offeredCPUs() []int {
	if own := n.given().cpus; len(own) > 0 {
		return slices.Clone(own)
	}
	return slices.Clone(n.cpuIDs)
}

// realCPUs is how many cpus jobs may run on, which is fewer than are offered where
// jobs share them.
func (n *daemon) realCPUs() int {
	offered := n.given().Offer.CPUs
	if all := len(n.cpuIDs); all > 0 && all < offered {
		return all
	}
	return offered
}

// limitReached is the reason that a status gives by itself: which limit it was.
func limitReached(st *proc.Status) string {
	switch {
	case st.NoMemory && st.Had > 0:
		return job.ReasonMemory + ": it had " + unit.FormatBytes(st.Had)
	case st.NoMemory:
		return job.ReasonNodeMemory
	case st.Stopped == proc.StoppedTime:
		return job.ReasonTime
	case st.Crowded > 0:
		return fmt.Sprintf("it wanted more than %d processes, and may have no more", st.Crowded)
	case st.Printed > 0:
		return job.ReasonPrinted + unit.FormatBytes(st.Printed)
	}
	return ""
}
