package job

import (
	"fmt"

	"distribute/lib/line"
)

// A Fate is how an attempt came to be over, as its node says it in a [Result], and as
// the head writes it into a back or a failed. A back with [FateEnded] says that the
// attempt failed and its job is tried again; with Memory in it, since its node had no
// more. An attempt whose record has [FateLost] may still be there.
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

// UnmarshalText reads a fate. An unknown one is an error.
func (f *Fate) UnmarshalText(b []byte) error {
	switch fate := Fate(b); fate {
	case FateEnded, FateUnstarted, FateNoRoom, FateBarred, FateNodePaused, FateBuildFailed, FateEvicted, FateNoMemory, FateLost:
		*f = fate
		return nil
	}
	return fmt.Errorf("unknown fate %.40q", b)
}

// AppendJSON appends a fate as a text.
func (f Fate) AppendJSON(b []byte) []byte { return line.AppendText(b, string(f)) }

// ScanJSON reads that.
func (f *Fate) ScanJSON(from *line.Scan) bool {
	b, ok := from.Text()
	return ok && f.UnmarshalText(b) == nil
}

// Unstarted says that the attempt never ran, and never will, for other reasons than that
// its build failed.
func (f Fate) Unstarted() bool {
	return f == FateUnstarted || f == FateNoRoom || f == FateBarred || f == FateNodePaused
}

// Evicted says that the attempt was asked to leave its node.
func (f Fate) Evicted() bool { return f == FateEvicted || f == FateNoMemory }

// CheckFate says what of a record does not go with the fate in it.
func (rec *Record) CheckFate() error {
	back := rec.Kind == KindBack
	switch {
	case rec.Fate != FateEnded && !back && (rec.Kind != KindFailed || rec.Attempt == ""):
		return fmt.Errorf("fate %s in a %s without an attempt that is over", rec.Fate, rec.Kind)
	case rec.Saved && !(back && rec.Fate.Evicted() && rec.Manifest != ""):
		return fmt.Errorf("saved in a %s with the fate %q and the manifest %q: only an evicted attempt saves files", rec.Kind, rec.Fate, rec.Manifest)
	case rec.Disk != 0 && !(back && rec.Fate == FateNoRoom):
		return fmt.Errorf("disk in a %s with the fate %q: only with no_room the disk is too small", rec.Kind, rec.Fate)
	}
	return nil
}
