package head

import (
	"errors"
	"fmt"
	"io"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/unit"
	"distribute/lib/wire"
	"distribute/spool"
)

// maxSpec is how long the common part of a batch may be, as JSON.
const maxSpec = 16 << 20

// submit takes a batch in. Whatever is wrong with it, what the tool sends is
// read to the end of its turn, so that it reads the answer.
func (t *tool) submit(m *wire.Submit) error {
	defer t.tools.sending.begin(sendingOf{t.peer.UID, m.Ref}, t.c)()
	p := &promise{room: t.transfers.room, user: &t.peer.UID, yields: func() {
		t.log.Warn("submission cut off: others lacked the room promised to it; it was slow, or of a user who had more than half of the disk's", "user", t.peer.User)
		t.c.Close()
	}}
	defer p.end()
	var sub *spool.Submission
	var asked wishes
	mine := user{batches: 1}
	err := t.nameless()
	if err == nil {
		err = t.maySubmit(t.peer, m.Batch)
	}
	if err == nil {
		err = t.allow(t.peer.UID, mine)
	}
	if err == nil {
		defer func() { t.giveBack(t.peer.UID, mine) }()
		err = p.set(sizeOf(0, 0))
	}
	if err == nil {
		sub, err = t.store.Begin(m.Ref, m.Batch, t.peer.User, t.peer.UID)
	}
	if err == nil {
		defer sub.Abort()
		if m.Held {
			sub.Hold()
		}
	}
	parts := []string{wire.OfBatch, wire.OfSpec, wire.OfJobs}
	if m.Secrets {
		parts = append(parts, wire.OfSecrets)
	}
	for _, of := range parts {
		t.c.ReadWithin(wire.FrameWithin)
		s, serr := wire.Expect[*wire.Send](t.c)
		if serr != nil {
			return serr
		}
		r := t.c.RecvTransfer(s)
		if err == nil && s.Of != of {
			err = &wire.Error{Status: cli.Usage, Text: fmt.Sprintf("%.20q was sent, where %q belongs", s.Of, of)}
		}
		if err == nil {
			err = takePart(sub, &asked, of, meter{r, p})
		}
		if derr := t.skip(r); errors.Is(derr, errHungUp) {
			if err == nil {
				err = fmt.Errorf("%w: its %s does not end", spool.ErrInput, of)
			}
			return errors.Join(t.refused(m, err), derr)
		} else if derr != nil {
			return derr
		}
	}
	if err == nil {
		if err = t.allow(t.peer.UID, user{jobs: sub.Jobs()}); err == nil {
			mine.jobs = sub.Jobs()
		}
	}
	if err != nil {
		return t.refused(m, err)
	}
	return t.takeInputs(m, sub, &asked, p)
}

// maxRest is how much a tool may send of a part that is refused already.
const maxRest = 1 << 30

// skip reads what is left of a transfer, unless that goes on for ever.
func (h *Head) skip(r io.Reader) error {
	n, err := io.CopyN(io.Discard, r, h.tools.rest)
	switch {
	case n == h.tools.rest:
		return errHungUp
	case err == io.EOF:
		return nil
	}
	return err
}

// takePart takes one of the transfers that say what is asked for.
func takePart(sub *spool.Submission, asked *wishes, of string, r io.Reader) error {
	switch of {
	case wire.OfBatch:
		return sub.BatchFile(r)
	case wire.OfSpec:
		text, err := io.ReadAll(io.LimitReader(r, maxSpec+1))
		if err != nil {
			return err
		}
		if len(text) > maxSpec {
			return fmt.Errorf("%w: the common part of the batch has more than %d bytes, which is the limit", spool.ErrInput, maxSpec)
		}
		var spec job.Spec
		if err := line.Unmarshal(text, &spec); err != nil {
			return fmt.Errorf("%w: its common part: %w", spool.ErrInput, err)
		}
		asked.spec = spec
		return sub.Spec(spec)
	case wire.OfSecrets:
		var values []string
		if err := readSecrets(r, &values); err != nil {
			return err
		}
		return sub.Secrets(values)
	}
	lines := line.NewReader(r, spool.MaxLine)
	for {
		text, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var j job.Job
		if err := job.ReadJob(text, &j); err != nil {
			return fmt.Errorf("%w: a job: %w", spool.ErrInput, err)
		}
		if err := sub.AddJob(&j); err != nil {
			return err
		}
		asked.add(&j)
	}
}

// takeInputs says which inputs are lacking, takes them, and makes the batch
// durable.
func (t *tool) takeInputs(m *wire.Submit, sub *spool.Submission, asked *wishes, p *promise) error {
	there, err := sub.Check(m.Unique)
	adds := t.addsTo(m, there, err)
	if errors.Is(err, spool.ErrSame) {
		if err := t.renewSecrets(m, sub); err != nil {
			return t.refused(m, err)
		}
		return t.c.Send(&wire.Accepted{Ref: m.Ref, Batch: there.ID, Same: true, Jobs: there.Head.Jobs})
	} else if err != nil && !adds {
		return t.refused(m, err)
	}
	if !m.Queue {
		if err := t.impossible(asked); err != nil {
			return t.refused(m, err)
		}
	}
	if err := sub.Resume(); err != nil {
		return t.refused(m, err)
	}
	inputs, turns := sub.Lacks()
	if len(turns) == 0 {
		if err := t.c.Send(&wire.Lack{Ref: m.Ref, None: true}); err != nil {
			return err
		}
	}
	for ; len(turns) > 0; _, turns = sub.Lacks() {
		if err := p.set(sizeOfAll(inputs, turns)); err != nil {
			return t.refused(m, err)
		}
		for _, want := range turns {
			wrong, err := t.takeTurn(m, inputs, want, landing{sub.Sink(), p})
			if err != nil {
				return err
			}
			if wrong != nil {
				return t.refused(m, wrong)
			}
		}
	}
	if adds {
		answer, err := t.add(m, sub)
		if errors.Is(err, errEnding) {
			return errHungUp
		} else if err != nil {
			return t.refused(m, err)
		}
		return t.c.Send(answer)
	}
	b, err := sub.Finish(m.Unique)
	if errors.Is(err, spool.ErrSame) {
		return t.c.Send(&wire.Accepted{Ref: m.Ref, Batch: b.ID, Same: true, Jobs: b.Head.Jobs})
	}
	if err != nil {
		return t.refused(m, err)
	}
	if err := t.accept(b); errors.Is(err, errEnding) {
		return errHungUp // the tool asks the next dsched, which has the batch
	} else if err != nil {
		return t.refused(m, err)
	}
	return t.c.Send(&wire.Accepted{Ref: m.Ref, Batch: b.ID, Jobs: b.Jobs()})
}

// takeTurn says what is lacking of the inputs, and takes that. What is wrong with
// it is a reason to refuse the batch, and err is one to end the session.
func (t *tool) takeTurn(m *wire.Submit, inputs pack.Manifest, want pack.Want, to pack.Sink) (wrong, err error) {
	if err := t.c.Send(&wire.Lack{Ref: m.Ref, Want: wire.Want(want)}); err != nil {
		return nil, err
	}
	t.c.ReadWithin(wire.FrameWithin)
	s, err := wire.Expect[*wire.Send](t.c)
	if err != nil {
		return nil, err
	}
	r := t.c.RecvTransfer(s)
	wrong = errors.Join(pack.Receive(r, inputs, want, to), wire.Drain(r))
	if errors.Is(wrong, wire.ErrCut) {
		return nil, wrong
	}
	return wrong, nil
}

// sizeOfAll is sizeOf for what comes in several turns.
func sizeOfAll(inputs pack.Manifest, turns []pack.Want) (int64, int64) {
	bytes, entries := int64(0), 0
	for _, want := range turns {
		bytes, entries = bytes+want.Bytes(inputs), entries+want.Entries(inputs)
	}
	return sizeOf(bytes, entries)
}

// accept takes a batch that is durable into the state, which goes on while its jobs
// are read.
func (h *Head) accept(b *spool.Batch) error {
	read, err := readAsked(b)
	if err != nil {
		return err
	}
	ok := h.settled(func() {
		if err = h.takeIn(read); err == nil {
			h.log.Info("submitted", "batch", string(b.ID), "jobs", b.Jobs(), "owner", b.Head.Owner)
		}
	})
	if !ok {
		return errEnding
	}
	return err
}

// takeIn is enlist for a batch that was just made. Others can find it from when it has its
// name, before that is durable: who has changed it by now, or ended or deleted it, stays right.
func (h *Head) takeIn(read asked) error {
	b := read.Batch
	if _, there := h.byID[b.ID]; !there && !b.Unchanged() {
		err := b.Close()
		if h.store.Closed(b.ID) || h.store.Deleted(b.ID) {
			return err
		}
		_, nerr := h.number(b.ID)
		return errors.Join(err, nerr)
	}
	h.store.Made(b)
	_, err := h.enlist(read, false)
	return err
}

// errEnding is that dsched ends; a batch that is durable goes on when it is
// started again.
var errEnding = cli.Errorf(cli.Later, "dsched is ending")

// refused is the answer to a submission that is not taken.
func (t *tool) refused(m *wire.Submit, err error) error {
	if taken := (*spool.TakenError)(nil); errors.As(err, &taken) && !t.seesID(taken.Batch) {
		err = taken.Bare()
	}
	refusal := &wire.Error{Ref: m.Ref, Status: cli.Status(err), Text: err.Error()}
	switch {
	case errors.Is(err, spool.ErrTaken), errors.Is(err, spool.ErrInput), errors.Is(err, job.ErrName), errors.Is(err, line.ErrLine),
		errors.Is(err, pack.ErrFormat), errors.Is(err, pack.ErrLimit), errors.Is(err, pack.ErrSum), errors.Is(err, wire.ErrGaveUp):
		refusal.Status = cli.Input
	case errors.Is(err, spool.ErrFull):
		refusal.Status, refusal.Text = cli.Later, tooFull(err)
	case errors.Is(err, spool.ErrBroken):
		refusal.Status, refusal.Text = cli.Later, fmt.Sprintf("the head's disk has failed, and dsched ends: %v (submit it again when that is mended)", err)
	}
	if errors.Is(err, spool.ErrTaken) {
		refusal.Free = t.spool.FreeName(m.Batch)
	}
	if errors.Is(err, spool.ErrBroken) { // told before dsched ends
		defer t.broken(err)
		return errors.Join(t.c.Send(refusal), errHungUp)
	}
	return refusal
}

// tooFull tells a submitter that the disk has no room, and what to do.
func tooFull(err error) string {
	const remedy = "delete what is over with drm, or wait"
	var short *noRoom
	switch {
	case !errors.As(err, &short):
		return fmt.Sprintf("the head's disk is full: %v (%s)", err, remedy)
	case short.need <= short.has:
		return fmt.Sprintf("the head's disk has %d inodes left, this needs %d; %s", short.hasFiles, short.needFiles, remedy)
	}
	return fmt.Sprintf("the head's disk has %s above its reserve, this needs %s; %s", above(short.has), unit.FormatBytes(short.need), remedy)
}
