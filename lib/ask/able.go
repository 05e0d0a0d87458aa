package ask

import (
	"context"
	"fmt"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/wire"
)

// Able returns how many nodes could ever meet each of some needs, which are the JSON of a
// [wire.Need]. It costs a request for each need.
func (h *Head) Able(ctx context.Context, needs []string) (rows []wire.Able, err error) {
	for _, need := range needs {
		r, err := h.Answer(ctx, &wire.Query{Ref: job.NewToken(), Of: "able", Args: []string{need}})
		if err != nil {
			return nil, err
		}
		of := len(rows)
		err = h.lines(ctx, r, func(b []byte) error {
			var row wire.Able
			if err := line.Unmarshal(b, &row); err != nil {
				return h.Odd(ctx, err)
			}
			rows = append(rows, row)
			return nil
		})
		if err == nil && len(rows) != of+1 {
			err = h.Odd(ctx, fmt.Errorf("%d answers to one question", len(rows)-of))
		}
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}
