package head

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing/synctest"
	"time"

	"distribute/lib/check"
	"distribute/lib/pack"
	"distribute/spool"
)

// A simHead is the head, one incarnation after another.
type simHead struct {
	disk *simDisk
	own  *owner
	h    *Head // nil: down, or not yet up
	over chan struct{}
	old  string // an older copy of the spool
}

// startHead starts dsched on the disk as it is.
func (w *world) startHead() {
	s := &w.head
	if s.own != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	own, over, root := &owner{host: "head"}, make(chan struct{}), s.disk.root
	s.own, s.over = own, over
	w.cancel[own] = cancel
	w.set(func() { w.hurt = false })
	w.hands.Go(func() {
		defer close(over)
		h, err := Open(root, w.logger("head"))
		if err != nil {
			w.headEnded(own, err)
			return
		}
		if ctx.Err() != nil { // killed while it started
			h.store.Close()
			return
		}
		h.proven = w.net.proven
		h.wall = w.headTime
		h.store.SetClock(w.headTime, func() (time.Duration, error) { return w.at() + time.Hour, nil })
		if w.plan.long {
			h.transfers.large = pack.SmallBytes
		}
		w.mu.Lock()
		if s.own == own {
			s.h = h
		}
		w.mu.Unlock()
		l := w.net.listen(own)
		err = h.serveOn(ctx, []net.Listener{l}, func(ctx context.Context) { h.takeAll(w.incoming(ctx, root)) }, func() {})
		w.headEnded(own, err)
	})
}

// incoming names the files of incoming/, at the start and once a minute.
func (w *world) incoming(ctx context.Context, root string) <-chan string {
	names := make(chan string)
	go func() {
		defer close(names)
		for {
			list, _ := os.ReadDir(filepath.Join(root, "incoming"))
			for _, e := range list {
				if strings.HasPrefix(e.Name(), ".") {
					continue
				}
				select {
				case names <- e.Name():
				case <-ctx.Done():
				}
			}
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return
			}
		}
	}()
	return names
}

// headEnded takes in that dsched has ended by itself, which it may when its disk
// fails or is full.
func (w *world) headEnded(own *owner, err error) {
	w.mu.Lock()
	mine, hurt := w.head.own == own, w.hurt
	w.mu.Unlock()
	if !mine || err == nil {
		return
	}
	if !hurt {
		w.wrong("dsched ended by itself, and nothing is wrong with its disk: %v", err)
		return
	}
	if errors.Is(err, spool.ErrBroken) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) {
		return
	}
	w.wrong("dsched ended by itself: %v", err)
}

// haltHead kills dsched, or cuts the power of its machine.
func (w *world) haltHead(power bool) {
	s, to := &w.head, w.newRoot("head")
	next := (*simDisk)(nil)
	synctest.Wait() // the head stands still: asked for something, it would go on while its disk is copied
	if power {
		next = s.disk.cut(to, w.r)
	} else {
		next = s.disk.kill(to)
	}
	w.addDisk(next)
	w.set(func() { s.disk = next })
	if w.r.IntN(3) == 0 {
		w.inspect("head", to, check.Torn, check.Left)
	}
	w.stopHead(power) // last: what it does when it ends is not seen any more
}

func (w *world) stopHead(power bool) {
	s := &w.head
	w.mu.Lock()
	own := s.own
	s.own, s.h = nil, nil
	w.mu.Unlock()
	if own != nil {
		w.net.end(own, power)
		w.cancel[own]()
	}
}

// headOver says that dsched has ended by itself.
func (w *world) headOver() bool {
	if w.head.own == nil {
		return false
	}
	select {
	case <-w.head.over:
		return true
	default:
		return false
	}
}
