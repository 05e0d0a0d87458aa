package noded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

func manifest(paths ...string) pack.Manifest {
	var m pack.Manifest
	for _, p := range paths {
		e := pack.Entry{Path: p, Type: pack.File}
		if p[len(p)-1] == '/' {
			e = pack.Entry{Path: p[:len(p)-1], Type: pack.Dir}
		}
		m = append(m, e)
	}
	return m
}

func paths(m pack.Manifest) []string {
	var out []string
	for _, e := range m {
		p := e.Path
		if e.Type == pack.Dir {
			p += "/"
		}
		out = append(out, p)
	}
	return out
}

func TestMerge(t *testing.T) {
	tests := []struct{ m, over, want, lost []string }{
		{nil, []string{"a"}, []string{"a"}, nil},
		{[]string{"a", "c"}, []string{"b"}, []string{"a", "b", "c"}, nil},
		{[]string{"a/", "a/x"}, []string{"a/", "a/y"}, []string{"a/", "a/x", "a/y"}, nil},
		{[]string{"a"}, []string{"a"}, []string{"a"}, []string{"a"}},
		{[]string{"a/", "a/x"}, []string{"a"}, []string{"a"}, []string{"a"}},
		{[]string{"a"}, []string{"a/", "a/x"}, []string{"a/", "a/x"}, []string{"a"}},
		{[]string{"a-b", "a/", "a/x"}, []string{"a!"}, []string{"a/", "a/x", "a!", "a-b"}, nil},
	}
	for _, tt := range tests {
		got, lost := merge(manifest(tt.m...), manifest(tt.over...))
		var names []string
		for _, l := range lost {
			names = append(names, l.Path)
		}
		if !slices.Equal(paths(got), tt.want) || !slices.Equal(names, tt.lost) {
			t.Errorf("%v over %v: %v, lost %v", tt.over, tt.m, paths(got), names)
		}
	}
}

func TestPruned(t *testing.T) {
	was := map[string]bool{"old": true, "old/sub": true, "used": true}
	got := manifest("new/", "old/", "old/sub/", "used/", "used/x").Pruned(func(p string) bool { return was[p] })
	if want := []string{"new/", "used/", "used/x"}; !slices.Equal(paths(got), want) {
		t.Errorf("got %v", paths(got))
	}
}

// testDaemon is a daemon of that many cpus whose state is the test's.
func testDaemon(cpus int) *daemon {
	s := &Settings{Offer: node.Offer{CPUs: cpus}, Addr: "tcp://127.0.0.1:1", Log: strictLog(slog.DiscardHandler)}
	n := newDaemon(s, nil)
	return n
}

func waits(n *daemon, cpus int) (*attempt, *want) {
	a := n.add(&desk.Attempt{Note: desk.Note{Order: len(n.attempts) + 1, Token: job.NewToken(), CPUs: cpus}})
	return a, &want{order: a.Order, share: share{cpus: a.cpus}, given: make(chan struct{})}
}

func given(w *want) bool {
	select {
	case <-w.given:
		return true
	default:
		return false
	}
}

func TestOrderOfCPUs(t *testing.T) {
	n := testDaemon(4)
	a, wa := waits(n, 1)
	b, wb := waits(n, 0) // the whole node
	c, wc := waits(n, 1)
	if b.cpus != 4 {
		t.Errorf("the whole node is %d cpus", b.cpus)
	}
	// The third is ready first and is not let past the others.
	n.queue = []*want{wc}
	if n.pump(); given(wc) {
		t.Error("the third went first")
	}
	n.queue = []*want{wa, wc}
	if n.pump(); !given(wa) || given(wc) {
		t.Error("the first did not go, or the third did")
	}
	a.stage = stageRunning
	n.setStage(b, stageFetching)
	if !given(wc) || n.free != 2 {
		t.Errorf("the third did not pass the second; %d cpus are free", n.free)
	}
	c.stage = stageRunning
	n.setStage(b, stageReady)
	n.queue = []*want{wb}
	if n.pump(); given(wb) {
		t.Error("more cpus were given than there are")
	}
	n.free += 2
	if n.pump(); !given(wb) || n.free != 0 {
		t.Errorf("the second did not go; %d cpus are free", n.free)
	}
}

func TestClaims(t *testing.T) {
	c := claims{on: map[string]chan struct{}{}}
	mine, others := c.take([]string{"a", "b"})
	if len(mine) != 2 || len(others) != 0 {
		t.Fatalf("%v, %d others", mine, len(others))
	}
	second, others := c.take([]string{"b", "c"})
	if !slices.Equal(second, []string{"c"}) || len(others) != 1 {
		t.Fatalf("%v, %d others", second, len(others))
	}
	c.giveUp(mine)
	<-others[0]
	if again, _ := c.take([]string{"a"}); len(again) != 1 {
		t.Error("what was given up cannot be claimed")
	}
}

func TestWaitForTheHead(t *testing.T) {
	refusal := &wire.Error{Status: 77}
	tests := []struct {
		addr string
		wait time.Duration
		err  error
		want time.Duration
	}{
		{"tcp://127.0.0.1:1", 0, errAway, 200 * time.Millisecond},
		{"/spool", 0, errAway, 200 * time.Millisecond},
		{"/spool", 4 * time.Second, errAway, 5 * time.Second},
		{"tls://head", 0, errAway, time.Second},
		{"tls://head", time.Second, errAway, 2 * time.Second},
		{"tls://head", 50 * time.Second, errAway, time.Minute},
		{"tls://head", time.Second, errors.Join(errAway, refusal), 5 * time.Second},
	}
	for _, tt := range tests {
		l := &link{n: &daemon{Settings: &Settings{Addr: tt.addr}}}
		if got := l.next(tt.wait, tt.err); got != tt.want {
			t.Errorf("%s after %v, %v: %v, want %v", tt.addr, tt.wait, tt.err, got, tt.want)
		}
	}
	// What this node ended of its own accord.
	if got := newLink(testDaemon(1)).next(slowest, errSlept); got > time.Second {
		t.Errorf("after a sleep: %v", got)
	}
}

func TestClean(t *testing.T) {
	if got := clean("a\x1b[31m\nb\u0085"); got != "a [31m b " {
		t.Errorf("%q", got)
	}
}

func TestAtEnd(t *testing.T) {
	n := testDaemon(1)
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(errStopped)
	ended, cancel2 := context.WithCancelCause(t.Context())
	cancel2(nil)
	if n.atEnd(t.Context()) || n.atEnd(stopped) || !n.atEnd(ended) {
		t.Error("a stop and the daemon's end are not told apart")
	}
}

// A question for inputs is for many small ones, or for a few large ones.
func TestQuestionsForInputs(t *testing.T) {
	n := testDaemon(1)
	var err error
	if n.desk, err = desk.Open(t.TempDir(), "boot"); err != nil {
		t.Fatal(err)
	}
	defer n.desk.Close()
	for size, want := range map[int64]int{1: 20, 100 << 10: 10, 10 << 20: 6, 1 << 30: 1} {
		var sums []string
		sizes := map[string]int64{}
		for i := range 20 {
			s := fmt.Sprintf("%064x", i)
			sums, sizes[s] = append(sums, s), size
		}
		if q := n.nextQuestion(sums, sizes); len(q.inputs) != want || q.upTo != want || q.size != size*int64(want) {
			t.Errorf("of %d bytes each: %d, up to %d, of %d bytes", size, len(q.inputs), q.upTo, q.size)
		}
	}
}
