package noded

import (
	"context"
	"time"

	"distribute/lib/node"
	"distribute/lib/wire"
)

// How often it is looked whether what is free of the disk has changed, and by which part
// of it, for the head to be told.
const (
	spaceEvery = 10 * time.Second
	spaceMark  = 16
)

// tellSpace tells the head what is free of the disk when that has changed: where there is
// too little it starts nothing.
func (n *daemon) tellSpace(ctx context.Context) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	var told node.Offer
	n.do(func() { told = n.offer() })
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n.do(func() {
			if now := n.offer(); now.Space() > told.Space()+told.Space()/spaceMark || now.Space() < told.Space()-told.Space()/spaceMark {
				told = now
				n.link.tell(&wire.Offer{Offer: now})
			}
		})
	}
}
