package pause

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// told waits until the channel says that something has changed.
func told(t *testing.T, news <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-news:
	case <-time.After(2 * time.Minute):
		t.Fatalf("nothing was told of %s", what)
	}
}

// until reads at each news until the state is as wanted.
func until(t *testing.T, news <-chan struct{}, read func() State, frozen bool, what string) {
	t.Helper()
	for read().Frozen() != frozen {
		told(t, news, what)
	}
}

// P70: who watches hears of a pause and of its end, whatever place it is in and
// however that comes to be there.
func TestP70Watch(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "node")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	machine, own := filepath.Join(top, "var", "lib", "pause"), OwnPlace(dir)
	places := []string{machine, own}
	ctx, stop := context.WithCancel(t.Context())
	news := Watch(ctx, places, EndedOf(dir))
	read := func() State {
		t.Helper()
		s, err := (&Reader{Places: places, Ended: EndedOf(dir)}).readAt(clock(t))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, place := range places {
		for range 2 {
			if err := os.MkdirAll(place, 0o755); err != nil {
				t.Fatal(err)
			}
			p := put(t, place, For(clock(t), time.Hour))
			until(t, news, read, true, "a pause in "+place)
			if err := Remove(p); err != nil {
				t.Fatal(err)
			}
			until(t, news, read, false, "its end in "+place)
			put(t, place, For(clock(t), time.Hour))
			until(t, news, read, true, "another in "+place)
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
			until(t, news, read, false, "the removal of "+place)
		}
	}
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	p := put(t, own, For(clock(t), time.Hour))
	until(t, news, read, true, "a pause")
	if err := Cease(EndedOf(dir), places, []string{p.ID}); err != nil {
		t.Fatal(err)
	}
	until(t, news, read, false, "its end by an operator")
	stop()
	for range news {
	}
}

// A watch that the kernel does not grant is a look four times a second, which tells a change
// twice: a second one may have the time of the first.
func TestPoll(t *testing.T) {
	place, _ := here(t)
	ctx, stop := context.WithCancel(t.Context())
	news, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		poll(ctx, []string{filepath.Join(place, "absent"), place}, func() { note(news) })
	}()
	<-news // it has begun to look
	<-news
	put(t, place, For(clock(t), time.Hour))
	<-news
	<-news
	stop()
	<-over
}

// One that changes a place all the time is not heard each time.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(chan struct{}, 1)
		tell, begin := meter(t.Context(), out), time.Now()
		for range burst {
			tell()
			<-out
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("the first ones took %v", took)
		}
		tell()
		if took := time.Since(begin); took != perEvent {
			t.Errorf("one more took %v", took)
		}
		<-out
	})
}
