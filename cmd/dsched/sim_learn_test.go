package main

import (
	"fmt"
	"strings"

	"distribute/lib/job"
)

// simMemory is how much memory an attempt of the simulation has at most.
func simMemory(attempt string) int64 { return int64(len(strings.Trim(attempt, "01234567"))) << 27 }

// learns checks that the head knows of each open batch what its log says that jobs
// needed which ended well, whether it was there then or has read it.
func (w *world) learns(h *head) {
	knows := map[job.BatchID][2]int64{} // how many, and the greatest
	var id job.BatchID
	for l := range strings.Lines(h.machine.Snapshot()) {
		var class int
		var most, of int64
		if f := strings.Fields(l); f[0] == "batch" {
			id = job.BatchID(f[2])
		} else if k, _ := fmt.Sscanf(l, " learnt %d {{%d %d}", &class, &most, &of); k == 3 {
			knows[id] = [2]int64{knows[id][0] + of, max(knows[id][1], most)}
		}
	}
	for id, n := range h.byID {
		says := [2]int64{}
		err := h.batches[n].Replay(func(_ int, rec *job.Record) error {
			if own := rec.MemoryPeak - rec.Cache; rec.Kind == job.KindDone && own > 0 {
				says = [2]int64{says[0] + 1, max(says[1], own)}
			}
			return nil
		})
		if err != nil {
			w.wrong("I8: the log of %s cannot be read: %v", id, err)
		}
		if knows[id] != says {
			w.wrong("I8: %s has %d jobs that needed %d at most by its log, and %v in memory", id, says[0], says[1], knows[id])
		}
	}
}
