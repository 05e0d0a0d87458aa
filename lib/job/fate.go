package job

import "fmt"

// A Fate is how an attempt came to be over, as its node says it.
type Fate string

// The fates of attempts.
const (
	FateEnded       Fate = ""             // it ran, and ended as its [Outcome] tells
	FateUnstarted   Fate = "unstarted"    // it never ran, and never will
	FateNoRoom      Fate = "no_room"      // and its node has no room for it
	FateBarred      Fate = "barred"       // and its node does not run jobs of who has submitted it
	FateNodePaused  Fate = "node_paused"  // and its node is paused
	FateBuildFailed Fate = "build_failed" // it never ran because its batch's build failed on that node
	FateEvicted     Fate = "evicted"      // it was asked to leave its node
	FateNoMemory    Fate = "no_memory"    // likewise, because the memory of its node was used up
	FateLost        Fate = "lost"         // its supervisor or its machine went down under it: how it ended is not known
)

// UnmarshalText reads a fate. One that is none of ours is an error.
func (f *Fate) UnmarshalText(b []byte) error {
	switch fate := Fate(b); fate {
	case FateEnded, FateUnstarted, FateNoRoom, FateBarred, FateNodePaused, FateBuildFailed, FateEvicted, FateNoMemory, FateLost:
		*f = fate
		return nil
	}
	return fmt.Errorf("unknown fate %.40q", b)
}

// Unstarted says that the attempt never ran, and never will, for other reasons than that
// of its build.
func (r *Result) Unstarted() bool {
	return r.Fate == FateUnstarted || r.Fate == FateNoRoom || r.Fate == FateBarred || r.Fate == FateNodePaused
}

// Evicted says that the attempt was asked to leave its node.
func (r *Result) Evicted() bool { return r.Fate == FateEvicted || r.Fate == FateNoMemory }
