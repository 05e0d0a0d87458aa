package head

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// A head.jsonl of deleted batches becomes small while dsched runs. Where that fails dsched
// goes on, and says so once.
func TestCompactsWhileItRuns(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fails), func(t *testing.T) {
			h := newState(t)
			var log sheet
			h.log = slog.New(slog.NewTextHandler(&log, nil))
			for i := range 10000 {
				h.store.AppendHead(&job.Record{Kind: job.KindDeleted, Batch: job.BatchID(fmt.Sprint("ns/gone", i)), By: "ana", Request: job.NewToken(), First: uint64(i + 1)})
			}
			if err := h.store.Commit(); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(h.spool.Dir(), "head.jsonl")
			old, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if fails {
				undo := durable.Observe(&durable.Observer{Step: func(step string) error {
					if step == "compact.rename" {
						return syscall.EIO
					}
					return nil
				}})
				defer undo()
			}
			ended := h.background(t)
			await(t, func() bool {
				now, err := os.Stat(name)
				if err != nil {
					t.Fatal(err)
				}
				return fails && strings.Contains(log.String(), "cannot compact head.jsonl") || now.Size() < old.Size()/4
			})
			if !h.settled(func() { h.store.Drain("ws1", "ana", false) }) {
				t.Fatalf("it ended: %v", <-ended)
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
			if !strings.Contains(lines[len(lines)-1], `"drained"`) || (len(lines) == 10001) != fails || (len(lines) == 1001) == fails {
				t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
			}
			if n := strings.Count(log.String(), "level=WARN"); (n == 1) != fails {
				t.Errorf("the log:\n%s", log.String())
			}
		})
	}
}
