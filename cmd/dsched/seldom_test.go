package main

import (
	"testing"
	"time"
)

func TestSeldom(t *testing.T) {
	var s seldom
	at := time.Unix(1e9, 0)
	for i := range 3 * seldomLines {
		if left, ok := s.say(at); ok != (i < seldomLines) || left != 0 {
			t.Fatalf("line %d: %v, %d left out", i, ok, left)
		}
	}
	if left, ok := s.say(at.Add(seldomEvery)); !ok || left != 2*seldomLines {
		t.Errorf("after a minute: %v, %d left out", ok, left)
	}
	if left, ok := s.say(at.Add(seldomEvery)); !ok || left != 0 {
		t.Errorf("and again: %v, %d left out", ok, left)
	}
}
