package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

// work is what a node may fetch for one of its attempts.
type work struct {
	batch *spool.Batch
	spec  []byte
	job   job.Job
}

// serveDown answers what a node fetches, on its down stream.
func (h *head) serveDown(s *session, c *wire.Conn, local bool) error {
	for x := uint64(1); ; x++ {
		f, err := wire.Expect[*wire.Fetch](c)
		if err != nil {
			return err
		}
		w, err := h.work(s, f.Attempt)
		if err == nil {
			err = w.send(c, &wire.Send{X: x, Of: f.Of, Attempt: f.Attempt}, f, local)
		}
		if refusal := asRefusal(err); refusal != nil {
			s.log.Warn("refused what the node asked for", "attempt", f.Attempt, "why", refusal.Text)
			err = c.Send(refusal)
		}
		if err != nil {
			return err
		}
	}
}

// work is what belongs to an attempt, if it is given to this node.
func (h *head) work(s *session, t job.Token) (*work, error) {
	var w *work
	var ref sched.Ref
	there := h.do(func() {
		a, known := h.machine.Attempt(t)
		if b := h.batches[a.Ref.Batch]; known && a.Node == s.name && b != nil {
			ref, w = a.Ref, &work{batch: b.Batch, spec: b.spec}
		}
	})
	if !there {
		return nil, net.ErrClosed // dsched ends: the node asks the next one
	}
	if w == nil {
		return nil, &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf("the attempt %.40q is not given to this node", string(t))}
	}
	var err error
	w.job, err = w.batch.Job(int(ref.Job))
	return w, err
}

// send answers one fetch.
func (w *work) send(c *wire.Conn, s *wire.Send, f *wire.Fetch, local bool) error {
	switch f.Of {
	case wire.OfSpec:
		return c.SendTransfer(s, func(out io.Writer) error {
			_, err := out.Write(w.spec)
			return err
		})
	case wire.OfJob:
		return c.SendTransfer(s, func(out io.Writer) error { return json.NewEncoder(out).Encode(w.job) })
	case wire.OfInputs:
		m, inputs, err := w.inputs(f.Sums)
		if err != nil {
			return err
		}
		return c.SendTransfer(s, func(out io.Writer) error {
			return pack.Sender(local)(out, m, pack.Want{From: f.From}, func(_ int, e pack.Entry) (io.ReadCloser, error) {
				r, _, err := w.batch.OpenInput(inputs[e.Sum])
				return r, err
			})
		})
	}
	return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("nothing is known of %.20q", f.Of)}
}

// inputs finds the inputs of the attempt that have these sums.
func (w *work) inputs(sums []string) (pack.Manifest, map[string]job.Input, error) {
	if len(sums) == 0 || len(sums) > wire.MaxSums {
		return nil, nil, &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("a fetch names 1 to %d inputs", wire.MaxSums)}
	}
	all := map[string]job.Input{}
	for _, list := range [][]job.Input{w.batch.Head.Spec.Inputs, w.job.Inputs} {
		for _, in := range list {
			all[in.Sum] = in
		}
	}
	if in := w.batch.Head.Spec.Image; in != nil {
		all[in.Sum] = *in
	}
	sizes := map[string]int64{}
	for _, sum := range sums {
		in, ok := all[sum]
		if !ok {
			return nil, nil, &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf("%.70q is no input of that attempt", sum)}
		}
		sizes[sum] = in.Size
	}
	return pack.Blobs(sizes), all, nil
}
