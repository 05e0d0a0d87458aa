package noded

import (
	"context"
	"time"

	"distribute/lib/pause"
	"distribute/lib/proc"
)

// A Machine is what a node is on: the boot it lives in, and the supervisors of
// its jobs, which outlive the daemon. The real one is lib/proc; a simulation
// brings its own, whose jobs are no processes. What an order's directory holds
// (dspool(5)) is the same with both.
type Machine interface {
	Boot() (string, error)                                                                           // [proc.Boot]
	ID() string                                                                                      // [proc.MachineID]
	Stays(dir string) bool                                                                           // [proc.Stays]
	Cgroup(node, dir string) (string, error)                                                         // [proc.CgroupParent]
	NewSlot() (Slot, error)                                                                          // [proc.NewSlot]
	Alive(dir string) (bool, error)                                                                  // [proc.Alive]
	AwaitFree(ctx context.Context, dir string) error                                                 // [proc.AwaitFree]
	Holder(dir string) (pid int, err error)                                                          // [proc.HolderPid]
	Memory(supervisors []int, most int64) (*proc.MemoryUse, error)                                   // [proc.Memory]
	StopHeld(dir string) error                                                                       // [proc.StopHeld]
	Still(place, token string, still bool) error                                                     // [pause.PutFor], and what ends that
	Leave(place, token string) error                                                                 // [pause.PutFor] with Out
	Reclaim(ctx context.Context, dir, token, cgroup string) (release func() error, n int, err error) // [proc.Reclaim]
}

// A Slot is a supervisor, as [proc.Slot] is one.
type Slot interface {
	Run(*proc.Order) error
	Stop(token string) error
	Reports() <-chan proc.Report
	Pid() int
	Close() error
}

// thisMachine is the one that the program runs on.
type thisMachine struct {
	dir string // the node's, absolute: its supervisors are known by it
}

func (thisMachine) Boot() (string, error)                   { return proc.Boot() }
func (thisMachine) ID() string                              { return proc.MachineID() }
func (thisMachine) Stays(dir string) bool                   { return proc.Stays(dir) }
func (thisMachine) Cgroup(node, dir string) (string, error) { return proc.CgroupParent(node, dir) }
func (thisMachine) Alive(dir string) (bool, error)          { return proc.Alive(dir) }
func (thisMachine) Holder(dir string) (int, error)          { return proc.HolderPid(dir) }
func (thisMachine) Memory(supervisors []int, most int64) (*proc.MemoryUse, error) {
	return proc.Memory(supervisors, most)
}

func (thisMachine) StopHeld(dir string) error                       { return proc.StopHeld(dir) }
func (thisMachine) AwaitFree(ctx context.Context, dir string) error { return proc.AwaitFree(ctx, dir) }

func (thisMachine) Still(place, token string, still bool) error {
	if !still {
		return pause.RemoveFor(place, token)
	}
	return pause.PutFor(place, pause.Pause{Made: time.Now(), Attempt: token})
}

func (thisMachine) Leave(place, token string) error {
	return pause.PutFor(place, pause.Pause{Made: time.Now(), Attempt: token, Out: true})
}

func (m thisMachine) NewSlot() (Slot, error) {
	s, err := proc.NewSlot(proc.Absolute(m.dir)) // which may not have been there before
	if err != nil {
		return nil, err // and no Slot that holds a nil
	}
	return s, nil
}

func (thisMachine) Reclaim(ctx context.Context, dir, token, cgroup string) (func() error, int, error) {
	lock, n, err := proc.Reclaim(ctx, dir, token, cgroup)
	if err != nil {
		return nil, n, err
	}
	return lock.Release, n, nil
}
