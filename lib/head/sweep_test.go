package head

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A sheet is what is written to it, by whomever.
type sheet struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *sheet) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *sheet) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// What is in trash/ goes at once. The rest is collected an hour after the start,
// every day, and after deletions, but not after each of many.
func TestWhenItSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newState(t)
		var log sheet
		h.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		trash := func() {
			if err := os.MkdirAll(filepath.Join(h.spool.Dir(), "trash/x/y"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		trash()
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			h.sweeper.run(ctx, h)
			close(over)
		}()
		for _, look := range []struct {
			after  time.Duration
			delete bool
			times  int
		}{
			{0, false, 0},
			{59 * time.Minute, false, 0},
			{time.Minute, false, 1},
			{23 * time.Hour, false, 1},
			{time.Hour, false, 2},
			{time.Hour, true, 3},
			{time.Minute, true, 3},
			{time.Minute, true, 3},
			{7 * time.Minute, false, 3},
			{time.Minute, false, 4},
			{24 * time.Hour, false, 5},
		} {
			<-time.After(look.after)
			if look.delete {
				trash()
				h.sweeper.wake()
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "collecting"); n != look.times {
				t.Errorf("%v later it has collected %d times, want %d", look.after, n, look.times)
			}
			if left, _ := os.ReadDir(filepath.Join(h.spool.Dir(), "trash")); len(left) > 0 {
				t.Errorf("%v later trash/ has %v", look.after, left)
			}
		}
		stop()
		<-over
	})
}
