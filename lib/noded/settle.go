package noded

import (
	"slices"
	"time"
)

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
	if n.loose = append(n.loose, a); n.settling {
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
			n.do(func() { waited = n.here(waited) })
			if len(waited) > 0 {
				began := time.Now()
				if err := n.desk.Sync(); err != nil {
					n.Log.Warn("cannot make results durable; trying again", "why", err)
				} else {
					waited = nil
				}
				wait = max(wait, settleCost*time.Since(began))
			}
			n.do(func() {
				waited, n.loose = n.here(append(waited, n.loose...)), nil
				n.settling = len(waited) > 0
			})
			if len(waited) == 0 {
				return
			}
		}
	})
}

// here is those of attempts that are not deleted.
func (n *daemon) here(as []*attempt) []*attempt {
	return slices.DeleteFunc(as, func(a *attempt) bool { return n.attempts[a.Token] != a })
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
