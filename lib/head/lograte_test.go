package head

import (
	"testing"
	"time"
)

func TestLogRate(t *testing.T) {
	var s logRate
	at := time.Unix(1e9, 0)
	for i := range 3 * peerLines {
		if left, ok := s.allow(at); ok != (i < peerLines) || left != 0 {
			t.Fatalf("line %d: %v, %d left out", i, ok, left)
		}
	}
	if left, ok := s.allow(at.Add(linesEvery)); !ok || left != 2*peerLines {
		t.Errorf("after a minute: %v, %d left out", ok, left)
	}
	if left, ok := s.allow(at.Add(linesEvery)); !ok || left != 0 {
		t.Errorf("and again: %v, %d left out", ok, left)
	}
}
