package main

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// What strangers can make the head log: so many lines, and then no more for so
// long.
const (
	seldomLines = 10
	seldomEvery = time.Minute
	nodeLines   = 60 // what one node can, which was let in
)

// A seldom keeps strangers from filling the log. The zero value is ready.
type seldom struct {
	most int // lines; 0: seldomLines

	mu    sync.Mutex // guards the rest
	since time.Time
	lines int // said since
	left  int // not said, and not counted yet in what was said
}

// say says whether another line may be logged now, and how many were left out
// before it.
func (s *seldom) say(now time.Time) (left int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= seldomEvery {
		s.since, s.lines = now, 0
	}
	if s.lines == cmp.Or(s.most, seldomLines) {
		s.left++
		return 0, false
	}
	s.lines++
	left, s.left = s.left, 0
	return left, true
}

// A modest logs what one peer is the cause of, which is not to fill the log: not
// by lines, and not by long ones.
type modest struct {
	slog.Handler
	of *seldom
}

// Handle logs a line, unless there were too many of them.
func (m modest) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo { // who wants all, gets all
		return m.Handler.Handle(ctx, r)
	}
	left, ok := m.of.say(r.Time)
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
func (m modest) WithAttrs(as []slog.Attr) slog.Handler { return modest{m.Handler.WithAttrs(as), m.of} }

// WithGroup is as WithAttrs.
func (m modest) WithGroup(name string) slog.Handler { return modest{m.Handler.WithGroup(name), m.of} }
