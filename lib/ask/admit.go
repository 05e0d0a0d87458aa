package ask

import (
	"context"
	"fmt"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// Admit asks that a node be let in that shows a fingerprint, or that the head is
// to start at an address, and tells what has become of it. With dry nothing
// does.
func (h *Head) Admit(ctx context.Context, node, by string, dry bool) (*wire.Admission, error) {
	var a *wire.Admission
	c := wire.Change{Verb: "accept", Dry: dry}
	err := h.changes(ctx, c, [][]string{{node, by}}, func(b []byte) error {
		a = new(wire.Admission)
		if err := line.Unmarshal(b, a); err != nil {
			return h.Odd(ctx, err)
		}
		return job.CheckName(string(a.Node))
	})
	if err == nil && a == nil {
		err = h.Failed(ctx, fmt.Errorf("%w: it does not say whom it has let in", line.ErrLine))
	}
	return a, err
}
