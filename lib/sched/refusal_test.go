package sched

import (
	"testing"
	"time"
)

// A batch is kept from a node for longer each time that it is handed back, but not for
// ever.
func TestRefusalsAreBounded(t *testing.T) {
	r := newRig(t, Config{})
	for _, s := range begin {
		r.apply(s.ev)
	}
	b, p := r.m.batches[1], r.m.named["ws1"]
	for _, c := range []struct {
		refuse      func(*batch, *peer, string)
		first, most time.Duration
	}{
		{r.m.refuseRoom, 10 * time.Second, 5 * time.Minute},
		{r.m.bar, 10 * time.Second, time.Hour},
	} {
		delete(b.Refusals, p.Node)
		last := time.Duration(0)
		for n := range 20 {
			c.refuse(b, p, "")
			long := b.Refusals[p.Node].Long
			if n == 0 && long != c.first || long <= last && long != c.most || long > c.most {
				t.Errorf("time %d is %v, after %v", n+1, long, last)
			}
			last = long
		}
	}
}
