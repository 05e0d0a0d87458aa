package head

import (
	"errors"
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// maxGone is how many jobs whose inputs are gone are told of by name.
const maxGone = 10

// canRetry makes sure that the inputs of jobs that are to be tried again are
// there, and holds them: that of all, or an error that says of which not.
func (h *Head) canRetry(hold *spool.Hold, ids []job.ID, refs []sched.Ref) error {
	var gone []error
	common := map[uint32]bool{} // batches, and whether what their jobs share is there
	for i, id := range ids {
		b := h.batches[refs[i].Batch]
		there, looked := common[refs[i].Batch]
		if !looked {
			shared := b.Head.Spec.Inputs
			if image := b.Head.Spec.Image; image != nil {
				shared = append([]job.Input{*image}, shared...)
			}
			var err error
			if there, err = allThere(hold, shared); err != nil {
				return err
			}
			common[refs[i].Batch] = there
		}
		j, err := b.Job(int(refs[i].Job))
		if err == nil && there {
			there, err = allThere(hold, j.Inputs)
		}
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if len(gone) == maxGone {
			gone = append(gone, errors.New("and perhaps of others"))
			break
		}
		gone = append(gone, fmt.Errorf("the input files of %q are gone: its batch was over for longer than it keeps them (submit it again)", id))
	}
	if gone == nil {
		return nil
	}
	return &wire.Error{Status: cli.Input, Text: errors.Join(gone...).Error()}
}

func allThere(hold *spool.Hold, inputs []job.Input) (bool, error) {
	for i := range inputs {
		if there, err := hold.There(&inputs[i]); !there || err != nil {
			return false, err
		}
	}
	return true, nil
}
