package proc

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Ticks tells every so often by the clock of [Uptime], so that it tells at once when
// the machine wakes from a sleep in which a tick was due. It ends with ctx; the
// channel is not closed. Of several ticks that nobody took one is left.
func Ticks(ctx context.Context, every time.Duration) <-chan struct{} {
	out := make(chan struct{}, 1)
	tell := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	f := bootTimer(every)
	if f == nil {
		go tickOver(ctx, every, tell)
		return out
	}
	stop := context.AfterFunc(ctx, func() { f.Close() })
	go func() {
		defer stop()
		defer f.Close()
		for buf := make([]byte, 8); ; tell() {
			if _, err := f.Read(buf); err != nil {
				return
			}
		}
	}()
	return out
}

// tickOver is [Ticks] by a clock that stands still while the machine sleeps.
func tickOver(ctx context.Context, every time.Duration, tell func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			tell()
		case <-ctx.Done():
			return
		}
	}
}

// bootTimer is a timer of the kernel that expires so often; nil if there is none.
func bootTimer(every time.Duration) *os.File {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	ts := unix.NsecToTimespec(int64(every))
	if unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: ts, Value: ts}, nil) != nil {
		f.Close()
		return nil
	}
	return f
}
