// Package node holds what is said of nodes: their names, what they offer, and
// how they are shown. A node is a workstation that runs dnoded(8).
package node

import (
	"fmt"
	"slices"
	"time"

	"distribute/lib/capability"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// A Name names a node, by the rule of names of dspool(5).
type Name string

// An Offer is what a node has for jobs, as it tells the head when it connects.
type Offer struct {
	CPUs         int      `json:"cpus"`                   // for all jobs together, at least 1
	Memory       int64    `json:"memory,omitempty"`       // bytes; informational
	Disk         int64    `json:"disk,omitempty"`         // bytes free where jobs work
	DiskSize     int64    `json:"disk_size,omitempty"`    // bytes there, free or not; 0: it is not known
	Kept         int64    `json:"kept,omitempty"`         // bytes of inputs there that it removes when jobs need the room
	Arch         string   `json:"arch,omitempty"`         // as x86_64
	Capabilities []string `json:"capabilities,omitempty"` // plain names
	Containment  string   `json:"containment,omitempty"`  // how trees of processes are held: cgroup or session
	GPUs         []GPU    `json:"gpus,omitempty"`         //
	Pause        *Pause   `json:"pause,omitempty"`        // what is taken back for a while; the rest of the offer is less by that
	Soon         float64  `json:"soon,omitempty"`         // seconds from when it is said, until it pauses by its hours; 0: it does not

	Counted job.Counts `json:"counted,omitempty"` // by a name, as licences
	MPI     bool       `json:"mpi,omitempty"`     // mpirun starts ranks there, if there is one; false: an earlier release starts each by itself
	Secrets bool       `json:"secrets,omitempty"` // it gives jobs their secrets; false: an earlier release does not
	Machine string     `json:"machine,omitempty"` // the same of all nodes that one process is: ranks of a job may be on several; "": it is the only one
}

// What is kept of an offer.
const (
	maxWord = 100 // bytes
	maxCaps = 1000

	maxSpace = 1 << 60 // bytes
)

// Space is how many bytes there can be made room for where jobs work; 0: it is not known.
func (o *Offer) Space() int64 { return o.Disk + o.Kept }

// Bounded is an offer less what no node says: it is kept, logged and shown to
// all, and whoever has the key of a node can say anything.
func (o Offer) Bounded() Offer {
	o.Memory, o.Disk, o.Kept = max(0, o.Memory), min(max(0, o.Disk), maxSpace), min(max(0, o.Kept), maxSpace)
	o.DiskSize = min(max(0, o.DiskSize), maxSpace)
	o.Arch, o.Containment, o.Machine = word(o.Arch), word(o.Containment), word(o.Machine)
	o.Capabilities = slices.DeleteFunc(slices.Clone(o.Capabilities), func(c string) bool { return CheckCapability(c) != nil })
	o.Capabilities = o.Capabilities[:min(len(o.Capabilities), maxCaps)]
	var there [job.MaxCards]bool
	o.GPUs = slices.DeleteFunc(slices.Clone(o.GPUs), func(g GPU) bool {
		if g.Index < 0 || g.Index >= job.MaxCards || there[g.Index] {
			return true
		}
		there[g.Index] = true
		return false
	})
	for i := range o.GPUs {
		g := &o.GPUs[i]
		g.Model, g.UUID, g.Why, g.Memory = word(g.Model), word(g.UUID), word(g.Why), max(0, g.Memory)
	}
	o.Pause, o.Soon = o.Pause.bounded(), span(o.Soon)
	return o
}

// A State is how a node is shown.
type State string

const (
	Idle     State = "idle"     // connected, nothing to do
	Busy     State = "busy"     // connected, with attempts
	Paused   State = "paused"   // connected, and stopped by a person at it
	Draining State = "draining" // connected, and given nothing by an operator's word
	Resting  State = "resting"  // connected, and given nothing for a while
	Silent   State = "silent"   // not connected; what it was given waits for it
	Lost     State = "lost"     // not connected for longer than its lease
	Site     State = "site"     // no node: a row of what is counted over all of them
	Pending  State = "pending"  // it asks to be let in, and nobody has accepted it yet
)

// States are the names of all states, in this order.
func States() []string {
	var names []string
	for _, s := range [...]State{Idle, Busy, Paused, Draining, Resting, Silent, Lost, Site, Pending} {
		names = append(names, string(s))
	}
	return names
}

// A Row is everything that is shown of a node. Members are named here for
// JSON, filters and columns.
type Row struct {
	Node        Name       `json:"node"`
	State       State      `json:"state"`
	Jobs        int        `json:"jobs"`      // attempts given to it
	CPUs        int        `json:"cpus"`      // offered
	CPUsUsed    int        `json:"cpus_used"` // given to attempts
	Memory      int64      `json:"memory,omitempty" is:"bytes"`
	MemoryUsed  int64      `json:"memory_used,omitempty" is:"bytes"` // asked for by attempts
	GPUs        int        `json:"gpus"`                             // offered
	GPUsUsed    job.GPUs   `json:"gpus_used"`                        // given to attempts
	Counted     job.Counts `json:"counted,omitempty"`                // offered, by name
	CountedUsed job.Counts `json:"counted_used,omitempty"`           // given to attempts, also of what the site counts
	Arch        string     `json:"arch,omitempty"`
	Seen        time.Time  `json:"seen,omitzero"` // last message
	Containment string     `json:"containment,omitempty"`
	Capability  []string   `json:"capabilities,omitempty"`
	Note        string     `json:"note,omitempty"`
}

// Facts are what of the offer a batch can go by, of the node of that name.
func (o *Offer) Facts(name Name) *capability.Facts {
	f := &capability.Facts{Node: string(name), CPUs: o.CPUs, Memory: o.Memory, Disk: o.Disk, Arch: o.Arch, Capabilities: o.Capabilities, MPI: o.MPI, Secrets: o.Secrets}
	for _, g := range o.GPUs {
		f.GPUs = append(f.GPUs, capability.GPU{Index: g.Index, Model: g.Model, Memory: g.Memory})
	}
	return f
}

// MaxCPUs is how many cpus a node's file may offer.
const MaxCPUs = 65536

// Submitter, as RunAs, is each job's own.
const Submitter = "submitter"

// CheckCapability reports why s cannot be a capability: it is a plain word.
func CheckCapability(s string) error {
	if err := job.CheckName(s); err != nil {
		return fmt.Errorf("capability %s: %w", msg.Quote(s), err)
	}
	return nil
}
