package noded

import "time"

// How results are looked after that nobody takes, since the head is away or
// full. Those of short attempts are not synced as soon as they are over: most are
// home a moment later.
const (
	settleEvery = 5 * time.Second
	settleCost  = 20 // so many times what a sync cost passes before the next
)

// settleLater sees to it that a result which still waits after settleEvery is
// made durable, by one sync for all. Nobody wakes up for it when none waits.
func (n *daemon) settleLater(a *attempt) {
	if a.loose = true; n.settling {
		return
	}
	n.settling = true
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		var waited []*attempt // since the last look
		for wait := settleEvery; ; {
			if linger(ctx, wait); ctx.Err() != nil {
				return
			}
			wait = settleEvery
			if n.anyLoose(waited) {
				began := time.Now()
				if err := n.desk.Sync(); err != nil {
					n.Log.Warn("cannot make results durable; trying again", "why", err)
				} else {
					n.do(func() {
						for _, a := range waited {
							a.loose = false
						}
					})
				}
				wait = max(wait, settleCost*time.Since(began))
			}
			waited = nil
			n.do(func() {
				for _, a := range n.attempts {
					if a.loose {
						waited = append(waited, a)
					}
				}
				n.settling = len(waited) > 0
			})
			if len(waited) == 0 {
				return
			}
		}
	})
}

// settleNow makes a result durable, unless it is home before. When the disk does
// not take it now, that is tried again with the others.
func (n *daemon) settleNow(a *attempt) {
	n.work.Go(func() {
		err := a.Settle()
		for n.desk.MakeRoom(err) {
			err = a.Settle()
		}
		n.do(func() {
			if err == nil || n.attempts[a.Token] != a {
				return
			}
			n.Log.Error("cannot make a result durable; trying again", "job", a.Job, "attempt", a.Token, "why", err)
			n.settleLater(a)
		})
	})
}

// anyLoose says whether one of them is still here and not durable.
func (n *daemon) anyLoose(as []*attempt) (loose bool) {
	n.do(func() {
		for _, a := range as {
			loose = loose || a.loose && n.attempts[a.Token] == a
		}
	})
	return loose
}
