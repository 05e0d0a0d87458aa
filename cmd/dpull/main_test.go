package main

import (
	"strconv"
	"testing"
)

// Ids that have come while others were pulled are asked for at once: each request has the head read
// the logs of their batches.
func TestGather(t *testing.T) {
	ids := newIDs()
	const all = 20_000
	for i := range all {
		select {
		case ids <- strconv.Itoa(i):
		default:
			t.Fatalf("there is room for %d ids, want %d", i, all)
		}
	}
	close(ids)
	if group := gather(ids); len(group) != all {
		t.Errorf("%d ids are pulled at once, want %d", len(group), all)
	}
	if group := gather(ids); group != nil {
		t.Errorf("after the last id come %d", len(group))
	}
}
