package ask

import (
	"context"
	"errors"
	"fmt"
	"io"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// A Result is what a job or an attempt left, of which the head has sent the manifest. It
// waits to be told what is wanted of it: one of Take, TakePart and Leave has to be called.
type Result struct {
	Manifest pack.Manifest

	h   *Head
	id  string
	ref job.Token
}

// Result asks for the result of a job or of an attempt.
func (h *Head) Result(ctx context.Context, id string) (*Result, error) {
	r := &Result{h: h, id: id, ref: job.NewToken()}
	in, err := h.Answer(ctx, &wire.Pull{Ref: r.ref, ID: id})
	if err != nil {
		return nil, err
	}
	if r.Manifest, err = pack.DecodeManifest(in, pack.DefaultLimits()); err != nil {
		return nil, h.wrong(ctx, id, in, err)
	}
	return r, h.Failed(ctx, wire.Drain(in))
}

// Take gives to sink what is wanted, which is something. An error of the sink is returned
// as it is.
func (r *Result) Take(ctx context.Context, want pack.Want, sink pack.Sink) error {
	return r.take(ctx, want, sink, false)
}

// TakePart is Take, after which the head waits to be told what else is wanted, also if it gave
// up: TakePart or Leave has to be called. It does not if more is false, as that of an early
// release.
func (r *Result) TakePart(ctx context.Context, want pack.Want, sink pack.Sink) (more bool, err error) {
	return r.h.picks, r.take(ctx, want, sink, r.h.picks)
}

func (r *Result) take(ctx context.Context, want pack.Want, sink pack.Sink, more bool) error {
	in, err := r.h.Answer(ctx, &wire.Pick{Ref: r.ref, Want: wire.Want(want), More: more})
	if err != nil {
		return err
	}
	if err := pack.Receive(in, r.Manifest, want, sink); err != nil {
		return r.h.wrong(ctx, r.id, in, err)
	}
	return r.h.Failed(ctx, wire.Drain(in))
}

// Leave says that nothing is wanted.
func (r *Result) Leave(ctx context.Context) error {
	return r.h.Failed(ctx, r.h.Send(&wire.Pick{Ref: r.ref, None: true}))
}

// wrong tells what of the job or attempt did not arrive as it should have from an error of
// the sink and from a head that went away, which in still knows.
func (h *Head) wrong(ctx context.Context, id string, in io.Reader, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if _, rerr := in.Read(make([]byte, 1)); rerr != nil && rerr != io.EOF {
			return h.Failed(ctx, rerr)
		}
	}
	switch {
	case errors.Is(err, wire.ErrCut), errors.Is(err, wire.ErrGaveUp):
		return h.Failed(ctx, err)
	case errors.Is(err, pack.ErrSum):
		return damaged(err)
	case errors.Is(err, pack.ErrFormat), errors.Is(err, pack.ErrLimit), errors.Is(err, io.ErrUnexpectedEOF):
		return cli.Errorf(cli.IO, "%s: what the head sent is wrong: %w", id, err)
	}
	return err
}

// Damaged is that a file of a result has come and is not what its manifest says, and what
// can be done.
func Damaged(path string) error { return damaged(fmt.Errorf("%.300q: %w", path, pack.ErrSum)) }

func damaged(err error) error {
	return cli.Errorf(cli.IO, "%w (try again: if that is wrong too the file is damaged on the head, which dfsck -s shows there)", err)
}
