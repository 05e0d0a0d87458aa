package noded

import (
	"context"
	"time"

	"distribute/lib/node"
	"distribute/lib/timing"
	"distribute/lib/wire"
)

// How often it is looked whether what is free of the disk has changed, and by which part
// of it, for the head to be told.
const spaceMark = 16

var spaceEvery = timing.Wait(10 * time.Second)

// tellSpace tells the head what is free of the disk when that has changed: where there is
// too little it starts nothing.
func (n *daemon) tellSpace(ctx context.Context) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.do(n.tellSpaceChanged)
		case <-ctx.Done():
			return
		}
	}
}

// tellSpaceChanged tells the head what the node offers if much more or less is free of
// the disk than it was told last. It is called by the state.
func (n *daemon) tellSpaceChanged() {
	o := n.offer()
	if now, mark := o.Space(), n.spaceTold/spaceMark; now > n.spaceTold+mark || now < n.spaceTold-mark {
		n.link.tell(n.telling(o))
	}
}

// tellOffer tells the head what the node offers now. It is called by the state.
func (n *daemon) tellOffer() { n.link.tell(n.telling(n.offer())) }

// telling is the message with which the head is told of an offer. What is free is
// compared with that from then on.
func (n *daemon) telling(o node.Offer) *wire.Offer {
	n.spaceTold = o.Space()
	return &wire.Offer{Offer: o}
}
