package noded

import (
	"context"
	"slices"
	"sync"
)

// A Disk is one on which several nodes of a machine have their directories: none of them
// promises its attempts what another has promised already. The zero value has no nodes.
type Disk struct {
	deciding sync.Mutex // held by who sees how much is promised, and promises

	mu    sync.Mutex // guards what follows
	nodes []*daemon  // whose state answers
	news  chan struct{}
}

// join makes a node one of those that share the disk. The others wait for its state, which
// has to answer, or to be over.
func (d *Disk) join(n *daemon) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes = append(d.nodes, n)
}

// leave takes a node out that is at its end: what it has promised is given up.
func (d *Disk) leave(n *daemon) {
	d.mu.Lock()
	d.nodes = slices.DeleteFunc(d.nodes, func(o *daemon) bool { return o == n })
	d.mu.Unlock()
	d.changed()
}

// promised is how much of what is free the attempts of the other nodes may still take,
// and whether some of them will give room back. It waits for the state of each of these
// nodes, so that no state may call it.
func (d *Disk) promised(ctx context.Context, to *daemon) (bytes int64, more bool) {
	d.mu.Lock()
	nodes := slices.Clone(d.nodes)
	d.mu.Unlock()
	for _, n := range nodes {
		if n == to {
			continue
		}
		answered := make(chan struct{})
		answer := func() {
			for _, a := range n.attempts {
				bytes += a.claim()
				more = more || a.givesRoom()
			}
			close(answered)
		}
		select {
		case n.acts <- answer:
			<-answered
		case <-n.over:
		case <-ctx.Done():
		}
	}
	return bytes, more
}

// next is closed when there may be more room than now.
func (d *Disk) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.news == nil {
		d.news = make(chan struct{})
	}
	return d.news
}

// changed tells those who wait for room that there may be more.
func (d *Disk) changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.news != nil {
		close(d.news)
		d.news = nil
	}
}
