package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"path"
	"syscall"

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
	saved int // the number of the attempt with whose saved files it goes on; 0: of none
}

// serveDown answers what a node fetches, on a down stream.
func (h *Head) serveDown(s *session, c *wire.Conn, local bool) error {
	for x := uint64(1); ; x++ {
		f, err := wire.Expect[*wire.Fetch](c)
		if err != nil {
			return err
		}
		w, err := h.work(s, f.Attempt)
		if err == nil {
			err = h.send(w, c, &wire.Send{X: x, Of: f.Of, Attempt: f.Attempt}, f, local, s.log)
		}
		if refusal := asRefusal(err); refusal != nil {
			s.log.Warn("request of a node refused", "attempt", f.Attempt, "why", refusal.Text)
			err = c.Send(refusal)
		}
		if err != nil {
			return err
		}
	}
}

// work is what belongs to an attempt, if it is given to this node. Of what was taken to a
// cluster a tool pulls that.
func (h *Head) work(s *session, t job.Token) (*work, error) {
	var w *work
	var ref sched.Ref
	there := h.do(func() {
		a, known := h.machine.Attempt(t)
		if b := h.batches[a.Ref.Batch]; known && a.Node == s.name && b != nil && !s.abroad {
			ref, w = a.Ref, &work{batch: b.Batch, spec: b.spec, saved: a.SavedTry}
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

// send answers one fetch. What cannot be read it tells log.
func (h *Head) send(w *work, c *wire.Conn, s *wire.Send, f *wire.Fetch, local bool, log *slog.Logger) error {
	switch f.Of {
	case wire.OfManifest, wire.OfSaved:
		return h.sendSaved(w, c, s, f, local)
	case wire.OfSpec:
		return c.SendTransfer(s, func(out io.Writer) error {
			_, err := out.Write(w.spec)
			return err
		})
	case wire.OfSecrets:
		return h.sendSecrets(w, c, s)
	case wire.OfJob:
		return c.SendTransfer(s, func(out io.Writer) error { return json.NewEncoder(out).Encode(w.job) })
	case wire.OfInputs:
		m, inputs, err := w.inputs(f.Sums)
		if err != nil {
			return err
		}
		want := pack.Want{From: f.From}
		if err := want.Check(m); err != nil {
			return &wire.Error{Status: cli.Usage, Text: err.Error()}
		}
		for _, e := range m {
			if in := inputs[e.Sum]; w.batch.Lost(in) {
				return &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf(job.ReasonInput+"%q is missing on the head: see dfsck(8)", in.Path)}
			}
		}
		err = c.SendTransfer(s, func(out io.Writer) error {
			return pack.Sender(local)(out, m, want, func(_ int, e pack.Entry) (io.ReadCloser, error) {
				r, _, err := w.batch.OpenInput(inputs[e.Sum])
				return unhashed{r}, err
			})
		})
		if asRefusal(err) != nil {
			log.Error("cannot send an input", "job", w.batch.ID.Job(w.job.Name), "why", err)
		}
		return onlyStream(err)
	}
	return &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("nothing is known of %.20q", f.Of)}
}

// An unhashed is a file that is sent as it is found: who gets it compares it with
// its sum, which a node has in its name and dpull in the manifest, and hashing it
// here too would cost as much as sending it.
type unhashed struct{ io.ReadSeekCloser }

// Unchanged leaves that to who gets the file.
func (unhashed) Unchanged() error { return nil }

// sendSaved sends what an earlier attempt has saved, or its manifest, when it is
// in its place: a start may be told before that.
func (h *Head) sendSaved(w *work, c *wire.Conn, s *wire.Send, f *wire.Fetch, local bool) error {
	if w.saved == 0 {
		return &wire.Error{Status: cli.NotAllowed, Text: "that attempt goes on with nothing that was saved"}
	}
	if !h.settled(func() {}) {
		return net.ErrClosed // dsched ends: the node asks the next one
	}
	m, root, err := h.store.Result(w.batch.ID.Job(w.job.Name), w.saved)
	if err != nil {
		h.unreadable(w, f.Attempt, err)
		return &wire.Error{Status: cli.IO, Text: fmt.Sprintf("what attempt %d has saved cannot be read on the head", w.saved)}
	}
	defer root.Close()
	if f.Of == wire.OfManifest {
		return c.SendTransfer(s, m.Encode)
	}
	if err := pack.Want(f.Want).Check(m); err != nil {
		return &wire.Error{Status: cli.Usage, Text: err.Error()}
	}
	var bad error
	err = c.SendTransfer(s, func(out io.Writer) error {
		err := pack.Sender(local)(out, m, pack.Want(f.Want), func(_ int, e pack.Entry) (r io.ReadCloser, err error) {
			r, bad = openRegular(root, e.Path)
			return r, bad
		})
		if errors.Is(err, pack.ErrChanged) {
			bad = err
		}
		if bad != nil { // before the node hears of it
			h.unreadable(w, f.Attempt, bad)
		}
		return err
	})
	return onlyStream(err)
}

// unreadable tells the machine that what an attempt goes on with cannot be read,
// unless that may be for want of descriptors or memory.
func (h *Head) unreadable(w *work, t job.Token, err error) {
	h.log.Error("cannot read the saved files of a job", "job", w.batch.ID.Job(w.job.Name), "attempt", w.saved, "why", err)
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, passing) {
			return
		}
	}
	why := err.Error()
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		why = fmt.Sprintf("%q: %v", path.Base(of.Path), of.Err)
	}
	h.do(func() { h.apply(sched.Unreadable{Attempt: t, Why: why}) })
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
