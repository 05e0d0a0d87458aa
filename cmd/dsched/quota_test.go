package main

import (
	"runtime"
	"testing"
)

// waits is how many wait.
func (q *quota) waits() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.line)
}

func TestQuota(t *testing.T) {
	q := newQuota(10)
	never := make(chan struct{})
	six := q.take(6, never)
	all := make(chan func())
	go func() { all <- q.take(99, never) }() // as if it were 10
	for q.waits() != 1 {
		runtime.Gosched()
	}
	gone, left := make(chan struct{}), make(chan func())
	go func() { left <- q.take(1, gone) }() // would fit, and is behind
	for q.waits() != 2 {
		runtime.Gosched()
	}
	close(gone)
	if <-left != nil {
		t.Error("who has gone got a turn")
	}
	six()
	back := <-all
	if q.free != 0 {
		t.Errorf("%d are free", q.free)
	}
	back()
	if q.free != 10 || q.waits() != 0 {
		t.Errorf("%d are free and %d wait in the end", q.free, q.waits())
	}
}
