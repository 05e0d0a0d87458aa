package noded

import (
	"context"
	"fmt"
)

// A Stand is how the pauses of a machine stand that a simulation brings.
type Stand struct {
	Frozen bool // nothing runs
	Out    bool // jobs are to leave
}

// standing is st as pauses that are read would say it.
func (st Stand) standing() standing {
	s := standing{frozen: st.Frozen, out: st.Out, until: -1, leave: -1}
	if st.Frozen {
		s.live, s.by = []string{fmt.Sprintf("simulated, out=%v", st.Out)}, []string{"ana"}
	}
	return s
}

// followStand goes by the pauses that a simulation brings.
func (n *daemon) followStand(ctx context.Context) {
	if n.Stand == nil {
		return
	}
	st, changed := n.Stand()
	n.setPause(st.standing())
	n.work.Go(func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			st, changed = n.Stand()
			if !n.do(func() { n.setPause(st.standing()) }) {
				return
			}
		}
	})
}
