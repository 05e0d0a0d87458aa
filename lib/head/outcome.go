package head

import (
	"cmp"
	"fmt"
	"time"

	"distribute/lib/job"
)

// Limits of what a node says of the end of an attempt.
const (
	maxReason  = 1000    // bytes of its words that are kept
	maxSignal  = 20      // bytes of the name of a signal
	maxSeconds = 1e9     // of a length of time
	maxAmount  = 1 << 60 // of bytes or files

	clockSlack = time.Minute // by how much the clock of a node may differ before its times are kept, too
)

// checkResult makes what a node says of the end of an attempt fit for a log. The times
// become those of the head's clock, which is at now: the attempt ended when the head heard
// of it, and began as much earlier as the node has measured. The node's own times are kept
// beside, if they are others. An exit status that cannot be makes the attempt one that failed;
// lengths and amounts that cannot be are dropped.
func checkResult(r *job.Result, now time.Time) {
	r.Reason, r.Signal = r.Reason[:min(len(r.Reason), maxReason)], r.Signal[:min(len(r.Signal), maxSignal)]
	r.Skipped, r.Machine = r.Skipped[:min(len(r.Skipped), maxReason)], r.Machine[:min(len(r.Machine), maxReason)]
	if r.Exit != nil && (*r.Exit < 0 || *r.Exit > 255) {
		r.Reason = cmp.Or(r.Reason, fmt.Sprintf("its node reports exit status %d, which cannot be", *r.Exit))
		r.Exit = nil
	}
	if r.Rank != nil && (*r.Rank < 0 || *r.Rank >= job.MaxRanks) {
		r.Rank = nil
	}
	for _, s := range []*float64{&r.Runtime, &r.Paused, &r.CPUTime} {
		if !(*s >= 0 && *s < maxSeconds) {
			*s = 0
		}
	}
	for _, n := range []*int64{&r.MemoryPeak, &r.MemoryRank, &r.Cache, &r.Written, &r.Bytes} {
		if *n < 0 || *n > maxAmount {
			*n = 0
		}
	}
	for _, n := range []*int{&r.Entries, &r.Files} {
		*n = max(*n, 0)
	}
	if !r.Ended.IsZero() && r.Ended.Sub(now).Abs() > clockSlack {
		r.NodeStarted, r.NodeEnded = r.Started, r.Ended
	}
	if !r.Started.IsZero() {
		r.Started = now.Add(-seconds(r.Runtime + r.Paused))
	}
	if !r.Ended.IsZero() {
		r.Ended = now
	}
}
