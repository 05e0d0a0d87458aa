package noded

import (
	"testing"

	"distribute/lib/desk"
	"distribute/lib/wire"
)

// What is free of the disk is compared with what the head was told last, whatever
// that was told for.
func TestSpaceToldLast(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	space, err := n.desk.Space()
	if err != nil {
		t.Fatal(err)
	}
	out := &outbox{news: make(chan struct{}, 1)}
	n.link.out = out
	reserve := func(b int64) {
		g := *n.given()
		caps := *g.Caps
		caps.Reserve = b
		g.Caps = &caps
		n.now.Store(&g)
	}
	told := func(f func()) (disk []int64) {
		n.do(f)
		for _, m := range out.take() {
			disk = append(disk, m.(*wire.Offer).Offer.Disk)
		}
		return disk
	}
	if got := told(n.tellSpaceChanged); len(got) != 1 {
		t.Errorf("at first it tells %d", got)
	}
	reserve(space.Free / 2)
	if got := told(n.tellOffer); len(got) != 1 {
		t.Errorf("for another reason it tells %d", got)
	}
	reserve(0)
	for i, want := range []int{1, 0} {
		if got := told(n.tellSpaceChanged); len(got) != want || want > 0 && got[0] < space.Free*3/4 {
			t.Errorf("look %d, where %d bytes are free: %d are told", i, space.Free, got)
		}
	}
}
