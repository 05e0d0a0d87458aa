package head

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// What peers that are not authenticated can make the head log: so many lines in a
// time.
const (
	peerLines  = 10
	linesEvery = time.Minute
	nodeLines  = 60 // what one node can, which was let in
)

// A logRate limits how many lines are logged of what peers do. The zero value is ready.
type logRate struct {
	most int // lines; 0: peerLines

	mu    sync.Mutex // guards the rest
	since time.Time
	lines int // logged since
	left  int // not logged, and not reported yet
}

// allow says whether another line may be logged now, and how many were left out
// before it.
func (s *logRate) allow(now time.Time) (left int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= linesEvery {
		s.since, s.lines = now, 0
	}
	if s.lines == cmp.Or(s.most, peerLines) {
		s.left++
		return 0, false
	}
	s.lines++
	left, s.left = s.left, 0
	return left, true
}

// A limitedLog is a handler that bounds the number of its lines and the length of their
// values.
type limitedLog struct {
	slog.Handler
	of *logRate
}

// Handle logs a line, unless there were too many of them.
func (m limitedLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo { // who wants all, gets all
		return m.Handler.Handle(ctx, r)
	}
	left, ok := m.of.allow(r.Time)
	if !ok {
		return nil
	}
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if text := a.Value.String(); len(text) > maxReason {
			a.Value = slog.StringValue(text[:maxReason])
		}
		line.AddAttrs(a)
		return true
	})
	if left > 0 {
		line.AddAttrs(slog.Int("lines_left_out", left))
	}
	return m.Handler.Handle(ctx, line)
}

// WithAttrs and WithGroup are those of the handler below.
func (m limitedLog) WithAttrs(as []slog.Attr) slog.Handler {
	return limitedLog{m.Handler.WithAttrs(as), m.of}
}

// WithGroup is as WithAttrs.
func (m limitedLog) WithGroup(name string) slog.Handler {
	return limitedLog{m.Handler.WithGroup(name), m.of}
}
