package head

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
	"distribute/spool"
)

// The values of a batch's secrets are in a file of the spool that only dsched can read. The head gives
// them to the nodes of its jobs, and to nobody else. What nodes say of the ends of jobs, and what jobs
// print last, it hides them in before anything else sees that: rows, logs and reasons have none.

// maxSecrets is the greatest length in bytes of the values of secrets as JSON.
const maxSecrets = 6*job.MaxArgv + 64<<10

// readSecrets reads the values of secrets from a transfer. The error has none of them.
func readSecrets(r io.Reader, values *[]string) error {
	text, err := io.ReadAll(io.LimitReader(r, maxSecrets+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxSecrets:
		return fmt.Errorf("%w: its secrets have more than %d bytes, which is the limit", spool.ErrInput, maxSecrets)
	case json.Unmarshal(text, values) != nil:
		return fmt.Errorf("%w: its secrets are not a list of texts", spool.ErrInput)
	}
	return nil
}

// sendSecrets sends a node the values of the secrets of its attempt's batch.
func (h *Head) sendSecrets(w *work, c *wire.Conn, s *wire.Send) error {
	values, err := w.batch.Secrets()
	if err != nil {
		h.log.Error("cannot read the secrets of a batch", "batch", w.batch.ID, "why", err)
		return &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf(job.ReasonSecrets+
			"are missing or damaged on the head: submit them again with dsubmit -a, then dretry %s", w.batch.ID)}
	}
	return c.SendTransfer(s, func(out io.Writer) error { return json.NewEncoder(out).Encode([]string(values)) })
}

// renewSecrets replaces the values of a batch that is submitted again, with -a.
func (t *tool) renewSecrets(m *wire.Submit, sub *spool.Submission) error {
	if !m.Add || !sub.HasSecrets() {
		return nil
	}
	n, b, err := t.toAdd(m.Batch)
	if err != nil {
		return err
	}
	defer t.settled(func() { t.endAdd(n) })
	return t.putSecrets(b, sub)
}

// putSecrets replaces the values of the secrets of a batch by those of a submission, if it has some.
// Attempts that have the old ones may go on to print them.
func (t *tool) putSecrets(b *batch, sub *spool.Submission) error {
	if !sub.HasSecrets() {
		return nil
	}
	old, _ := b.Secrets()
	t.do(func() { b.hidden = replaced(append(b.hidden, old...)) })
	return b.RenewSecrets(sub)
}

// maxReplaced is the greatest length in bytes of the replaced values that a batch has hidden.
const maxReplaced = 2 * job.MaxArgv

// replaced returns the last of some values, each once, that are to be hidden after others have replaced
// them.
func replaced(values job.Secrets) (last job.Secrets) {
	size := 0
	for _, v := range slices.Backward(values) {
		if slices.Contains(last, v) {
			continue
		}
		if size += len(v); size > maxReplaced || len(last) == 2*job.MaxSecrets {
			break
		}
		last = append(last, v)
	}
	slices.Reverse(last)
	return last
}

// masks returns the values of a batch's secrets that are hidden: those that it has, and those that they
// have replaced since dsched started. It is of the state's goroutine.
func (h *Head) masks(n uint32) (job.Secrets, error) {
	b := h.batches[n]
	if b == nil || len(b.Head.Spec.Secrets) == 0 {
		return nil, nil
	}
	values, err := b.Secrets()
	return append(values, b.hidden...), err
}

// maskResult hides secrets in what a node says of the end of an attempt. It is of the state's goroutine.
func (h *Head) maskResult(t job.Token, r *job.Result) {
	if a, known := h.machine.Attempt(t); known {
		values, err := h.masks(a.Ref.Batch)
		if err != nil && r.Skipped != "" { // names of files may have one
			r.Skipped = "not all that it left was kept: see its list of skipped files"
		}
		values.MaskOutcome(r)
	}
}

// maskTail hides the secrets of a batch in the end of what one of its jobs has printed. If the values
// are not known, nothing of it is returned: it may have one.
func (h *Head) maskTail(b *spool.Batch, tail []byte) []byte {
	if len(b.Head.Spec.Secrets) == 0 || len(tail) == 0 {
		return tail
	}
	var values job.Secrets
	var err error
	if !h.do(func() { values, err = h.masks(h.byID[b.ID]) }) || err != nil || len(values) == 0 {
		return nil
	}
	return []byte(values.Mask(string(tail)))
}
