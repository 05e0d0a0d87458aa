package ask

import (
	"context"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// Claim has those of the jobs that ops means which are queued or held taken to a cluster
// in a folder: from then on each is one attempt there, and runs nowhere else. It calls
// each for every attempt of these jobs that is there in that folder, also if it was
// before. A job that is over, runs, or waits for others is left.
func (h *Head) Claim(ctx context.Context, cluster string, folder job.Token, ops *Operands, each func(*wire.Claimed) error) error {
	return h.claim(ctx, wire.Change{Verb: "claim", Node: cluster, Folder: folder}, ops.Parts(), each)
}

// Claims calls each for every attempt that is on a cluster in a folder and whose result
// has not come home.
func (h *Head) Claims(ctx context.Context, cluster string, folder job.Token, each func(*wire.Claimed) error) error {
	return h.claim(ctx, wire.Change{Verb: "claim", Node: cluster, Folder: folder, Dry: true}, [][]string{{}}, each)
}

func (h *Head) claim(ctx context.Context, c wire.Change, parts [][]string, each func(*wire.Claimed) error) error {
	return h.changes(ctx, c, parts, func(b []byte) error {
		var got wire.Claimed
		if err := line.Unmarshal(b, &got); err != nil {
			return h.Odd(ctx, err)
		}
		if _, name, try, err := job.ParseID(string(got.Job)); err != nil || name == "" || try != 0 || got.Attempt.Check() != nil {
			return h.Odd(ctx, line.ErrLine)
		}
		return each(&got)
	})
}
