package spool

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How keys/nodes is watched: whoever saves it need not do so at one stroke, and
// half a list must shut nobody out.
const (
	nodesEvery  = 500 * time.Millisecond // it is looked at, whatever the kernel tells
	nodesSettle = 100 * time.Millisecond // it is as it was for so long before it is read
	nodesTries  = 5                      // but it is not waited for longer
)

// WatchNodes sends when keys/nodes is another than it was, within a second, until
// ctx ends; then it closes the channel.
func (h *Head) WatchNodes(ctx context.Context) <-chan struct{} {
	news := make(chan struct{})
	last := stampOf(h.NodesFile())
	go func() {
		defer close(news)
		h.watchNodes(ctx, last, news)
	}()
	return news
}

func (h *Head) watchNodes(ctx context.Context, last stamp, news chan<- struct{}) {
	var hints chan fsnotify.Event
	var faults chan error
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		if w.Add(h.path("keys")) == nil {
			hints, faults = w.Events, w.Errors
		}
	}
	tick := time.NewTicker(nodesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-hints:
		case <-faults:
		case <-ctx.Done():
			return
		}
		now := stampOf(h.NodesFile())
		if now == last {
			continue
		}
		if last = h.settledNodes(ctx, now); ctx.Err() != nil {
			return
		}
		select {
		case news <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// settledNodes waits until keys/nodes stays as it is.
func (h *Head) settledNodes(ctx context.Context, was stamp) stamp {
	tick := time.NewTicker(nodesSettle)
	defer tick.Stop()
	for range nodesTries {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return was
		}
		now := stampOf(h.NodesFile())
		if now == was {
			break
		}
		was = now
	}
	return was
}

// A stamp is by what a file is told from what it was; that of none is zero.
type stamp struct {
	dev, ino      uint64
	size          int64
	mode, uid     uint32
	change, write syscall.Timespec
}

func stampOf(name string) stamp {
	info, err := os.Lstat(name)
	if err != nil {
		return stamp{}
	}
	st := info.Sys().(*syscall.Stat_t)
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mode, st.Uid, st.Ctim, st.Mtim}
}
