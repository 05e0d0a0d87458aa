package noded

import (
	"context"
	"slices"
	"strings"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/node"
	"distribute/lib/presence"
	"distribute/lib/proc"
)

// A Given is what of a node's settings may change while it runs.
type Given struct {
	Offer    node.Offer // Containment and Pause are found by the daemon, and which GPUs are busy
	Measured bool       // jobs that say nothing of memory are admitted by what they use
	Most     int64      // bytes of memory that all jobs together get; 0: fifteen sixteenths of what is offered
	Caps     *desk.Caps // nil: the disk is not looked at
	As       func(ctx context.Context, submitter string) (*account.Account, error)
	Pausers  []int  // nil: all
	Ports    [2]int // the first and the last that jobs of several ranks get; 0: the usual ones

	Presence presence.Config // when the node pauses by itself

	cpus []int // the numbers of the cpus that are offered, if they are told apart
}

// given is how things stand now. It is not changed. It may be called from any
// goroutine.
func (n *daemon) given() *Given {
	if g := n.now.Load(); g != nil {
		return g
	}
	s := n.Settings
	return &Given{Offer: s.Offer, Most: s.Most, Measured: s.Measured, Caps: s.Caps, As: s.As, Pausers: s.Pausers, Ports: s.Ports, Presence: s.Presence}
}

// most is how much memory all jobs together get.
func (g *Given) most() int64 {
	if g.Most > 0 {
		return g.Most
	}
	return g.Offer.Memory - g.Offer.Memory/16
}

// printed is how many bytes of what a job or a build prints are kept; 0: all.
func (g *Given) printed() int64 {
	if g.Caps == nil {
		return 0
	}
	return g.Caps.Output
}

// change has the node go by other settings from now on. What runs goes on with what
// it has; what waits and would never begin is given back. It is called by the state.
func (n *daemon) change(g Given) {
	was := n.given()
	g.Offer.Containment, g.Offer.Machine = was.Offer.Containment, was.Offer.Machine
	g.Offer.GPUs = slices.Clone(g.Offer.GPUs)
	for i, c := range g.Offer.GPUs {
		if at := slices.IndexFunc(was.Offer.GPUs, func(o node.GPU) bool { return o.Index == c.Index }); at >= 0 {
			g.Offer.GPUs[i].Busy, g.Offer.GPUs[i].Why = was.Offer.GPUs[at].Busy, was.Offer.GPUs[at].Why
		}
	}
	n.free, n.stock = g.Offer.CPUs, newStock(g.Offer, n.cpuIDs, n.sharesCPUs())
	g.cpus = n.stock.cpus.all
	n.now.Store(&g)
	for s := range n.held {
		n.free -= s.cpus
		n.stock.memory -= s.memory
		n.stock.cpus.retake(s.on)
	}
	n.rebound()
	n.tellOffer()
	n.refuse()
	n.pump()
	n.roomChanged()
	n.trim()
	n.watchDisk()
	n.watchMemory()
	n.watchCards()
	tell(n.presenceNews)
	tell(n.patienceNews) // the pauses are read again, by who may pause now
	tell(n.nowNews)
}

// sharesCPUs says that its cpus are those of other nodes, too.
func (s *Settings) sharesCPUs() bool { return s.Part != nil && s.Part.Same }

// refuse gives up the waiting of those who can get nothing of the node as it is now.
func (n *daemon) refuse() {
	n.queue = slices.DeleteFunc(n.queue, func(w *want) bool {
		if w.refused = n.never(w); w.refused == nil {
			return false
		}
		close(w.given)
		return true
	})
}

// bound bounds what all jobs together take of the machine, as far as the kernel
// can, and says what it cannot.
func (s *Settings) bound() {
	missing := []string{"processes", "memory"}
	if s.cgroup != "" {
		missing = proc.Bound(s.cgroup, s.mostProcesses(), (&Given{Offer: s.Offer, Most: s.Most}).most())
	}
	s.bounds = !slices.Contains(missing, "memory")
	if len(missing) > 0 {
		s.Log.Info("the kernel does not enforce the limits of jobs", "of", strings.Join(missing, ", "))
	}
}

// mostProcesses is how many processes all jobs of the node may have together: its part
// of three quarters of what the machine can have.
func (s *Settings) mostProcesses() int64 {
	return max(256, 3*proc.MaxThreads()/4/int64(max(1, s.Nodes)))
}

// rebound bounds the jobs anew. Where the new bound could be less than what runs
// has, and the kernel would kill for it, that is done when nothing runs.
func (n *daemon) rebound() {
	most := n.given().most()
	if n.cgroup == "" || !n.bounds || most == n.bounded {
		return
	}
	if most > n.bounded || len(n.held) == 0 {
		n.bounded = most
		proc.Bound(n.cgroup, n.mostProcesses(), most)
	}
}
