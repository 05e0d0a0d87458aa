package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/unit"
	"distribute/lib/wire"
	"distribute/spool"
)

// submit gives the batch to the head, or leaves it in the spool's incoming/ if
// no dsched serves it. When it returns an id the batch is durable. When the head
// is lost it goes on as soon as there is one again, or leaves it there: the
// submission's id stays, so that one which was accepted and not answered is
// there already.
func (s *submission) submit(ctx context.Context, b *job.Batch) (id job.BatchID, err error) {
	ref := job.NewToken()
	err = ask.Again(ctx, s.Cmd, func(reached func()) error {
		id, err = s.try(ctx, b, ref, reached)
		if unreached := (*dial.Error)(nil); errors.As(err, &unreached) {
			if dir, ok := dial.Spool(unreached.Addr); ok {
				id, err = s.drop(b, ref, dir, unreached)
			}
		}
		return err
	})
	if ctx.Err() != nil && s.begun {
		s.talk("the head keeps for a day what it has of the inputs: the same again goes on there")
	}
	return id, err
}

// try is submit over one session with the head.
func (s *submission) try(ctx context.Context, b *job.Batch, ref job.Token, reached func()) (job.BatchID, error) {
	h, err := ask.Dial(ctx, s.Cmd, *s.head)
	if err != nil {
		return "", err
	}
	defer h.Close()
	reached()
	answer, err := s.ask(h, b, ref)
	if unreadable := (*inputError)(nil); errors.As(err, &unreadable) {
		return "", unreadable.error // the head's refusal says the same, from further away
	}
	if refusal := (*wire.Error)(nil); err != nil && !errors.As(err, &refusal) {
		h.ReadWithin(wire.FrameWithin)
		if _, why := wire.Expect[*wire.Accepted](h.Conn); errors.As(why, &refusal) {
			err = refusal // it was said while this side was still sending
		}
	}
	if err != nil {
		return "", s.otherwise(h.Failed(ctx, err))
	}
	switch {
	case answer.Same && *s.adds:
		s.talk("%s has all of these already", answer.Batch)
	case answer.Same:
		s.talk("%s is there already, with %s", answer.Batch, unit.Count(answer.Jobs, "job"))
	case answer.Added > 0:
		s.talk("%s: %s more, %d in all", answer.Batch, unit.Count(answer.Added, "job"), answer.Jobs)
	default:
		s.talk("%s: %s", answer.Batch, sized(b))
	}
	return answer.Batch, nil
}

// sized is how many jobs a batch has, and how much of a machine each is given.
func sized(b *job.Batch) string {
	least, most, whole := job.MaxCPUs, 0, 0
	for i := range b.Jobs {
		r := b.Spec.Resources
		if own := b.Jobs[i].Resources; own != nil {
			r = *own
		}
		if r.CPUs == 0 {
			whole++
			continue
		}
		least, most = min(least, r.CPUs), max(most, r.CPUs)
	}
	jobs := unit.Count(len(b.Jobs), "job")
	switch {
	case len(b.Jobs) == 0:
		return jobs
	case whole == 1 && len(b.Jobs) == 1:
		return jobs + ", a whole machine"
	case whole == len(b.Jobs):
		return jobs + ", each a whole machine"
	case least == most:
		jobs += " of " + unit.Count(least, "cpu")
	default:
		jobs += fmt.Sprintf(" of %d to %d cpus", least, most)
	}
	if whole > 0 {
		jobs += fmt.Sprintf(", %d of them a whole machine", whole)
	}
	return jobs
}

// ask says what is submitted, and sends the inputs that the head lacks.
func (s *submission) ask(h *ask.Head, b *job.Batch, ref job.Token) (*wire.Accepted, error) {
	if err := h.Send(&wire.Submit{Ref: ref, Batch: b.ID(), Unique: *s.unique, Queue: *s.queue, Held: *s.held, Add: *s.adds, Jobs: len(b.Jobs)}); err != nil {
		return nil, err
	}
	parts := []struct {
		of    string
		write func(io.Writer) error
	}{
		{wire.OfBatch, func(w io.Writer) error { _, err := w.Write(b.Data); return err }},
		{wire.OfSpec, func(w io.Writer) error { return json.NewEncoder(w).Encode(b.Spec) }},
		{wire.OfJobs, func(w io.Writer) error { return writeJobs(w, b.Jobs) }},
	}
	for i, p := range parts {
		if err := h.SendTransfer(&wire.Send{X: uint64(i + 1), Of: p.of, Ref: ref}, p.write); err != nil {
			return nil, err
		}
	}
	for {
		m, err := h.Recv()
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *wire.Accepted:
			return m, nil
		case *wire.Error:
			return nil, m
		case *wire.Lack:
			if !m.None {
				err = s.sendInputs(h, b, ref, pack.Want(m.Want))
			}
			if err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: %T is no answer to a submission", line.ErrLine, m)
		}
	}
}

func writeJobs(w io.Writer, jobs []job.Job) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var text []byte
	for i := range jobs {
		text = append(job.AppendJob(text[:0], &jobs[i]), '\n')
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return out.Flush()
}

// largeInput is from how many bytes on it may be that the head keeps a part of
// an input; see dwire(5).
const largeInput = 1 << 20

// sendInputs sends those of the inputs that the head wants.
func (s *submission) sendInputs(h *ask.Head, b *job.Batch, ref job.Token, want pack.Want) error {
	sizes := make(map[string]int64, len(b.Sources))
	for sum, src := range b.Sources {
		sizes[sum] = src.Size
	}
	m := pack.Blobs(sizes)
	if err := want.Check(m); err != nil {
		return err
	}
	what := "sending inputs"
	if want.From > 0 {
		first := 0
		if want.Ranges != nil {
			first = want.Ranges[0][0]
		}
		src := b.Sources[m[first].Sum]
		what = "sending the rest of " + unit.Quote(src.Path)
		s.talk("the head has %s of the %s of %s: going on there", unit.FormatBytes(want.From), unit.FormatBytes(src.Size), unit.Quote(src.Path))
	}
	p := s.Progress(what, want.Bytes(m), unit.FormatBytes)
	defer p.Done()
	return h.SendTransfer(&wire.Send{X: 4, Of: wire.OfInputs, Ref: ref}, func(w io.Writer) error {
		return pack.Sender(dial.Local(h.Addr))(w, m, want, func(_ int, e pack.Entry) (io.ReadCloser, error) {
			src := b.Sources[e.Sum]
			f, err := src.Open()
			if err != nil {
				return nil, unsendable(err)
			}
			s.begun = s.begun || e.Size >= largeInput
			return counted{f, src, p}, nil
		})
	})
}

// unsendable is why a file cannot be sent.
func unsendable(err error) error {
	if errors.Is(err, job.ErrChanged) {
		err = cli.Errorf(cli.Input, "%w", err)
	}
	return &inputError{err}
}

// An inputError is that a file of the batch cannot be sent.
type inputError struct{ error }

// Unwrap returns the cause.
func (e *inputError) Unwrap() error { return e.error }

// counted is a file whose reading is shown.
type counted struct {
	file *os.File
	src  job.Source
	p    *cli.Progress
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.file.Read(b)
	c.p.Add(int64(n))
	return n, err
}

// Seek makes it that what the head has is not read.
func (c counted) Seek(offset int64, whence int) (int64, error) { return c.file.Seek(offset, whence) }

// Unchanged saves hashing the file once more.
func (c counted) Unchanged() error {
	if err := c.src.Unchanged(c.file); err != nil {
		return unsendable(err)
	}
	return nil
}

func (c counted) Close() error { return c.file.Close() }

// drop leaves the batch where dsched will find it when it is started.
func (s *submission) drop(b *job.Batch, ref job.Token, dir string, unreached error) (job.BatchID, error) {
	sp, err := spool.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return "", cli.Errorf(cli.NotAllowed, "%w", unreached)
	}
	if err != nil {
		return "", cli.Errorf(cli.Unreachable, "%w; and %w", unreached, err)
	}
	if *s.adds && !errors.Is(statBatch(dir, b.ID()), fs.ErrNotExist) {
		return "", cli.Errorf(cli.Unreachable, "%w: -a adds to a batch that is there only with its help (start it: dsched -S %s)", unreached, dir)
	}
	if *s.waiting {
		return "", cli.Errorf(cli.Unreachable, "%w: there is nothing to wait for (start it: dsched -S %s)", unreached, dir)
	}
	if *s.held {
		return "", cli.Errorf(cli.Unreachable, "%w: -k holds jobs only with its help (start it: dsched -S %s)", unreached, dir)
	}
	d := spool.Drop{Submission: ref, Batch: b.ID(), Free: *s.unique, Jobs: len(b.Jobs)}
	open := func(sum string) (io.ReadCloser, error) { return b.Sources[sum].Open() }
	err = sp.Leave(d, b.Data, &b.Spec, each(b.Jobs), open)
	switch {
	case errors.Is(err, spool.ErrSame):
		s.talk("%s is there already", b.ID())
		return b.ID(), nil
	case errors.Is(err, spool.ErrTaken):
		return "", s.otherwise(&wire.Error{Status: cli.Input, Text: err.Error(), Free: sp.FreeName(b.ID())})
	case errors.Is(err, spool.ErrPrivate):
		return "", cli.Errorf(cli.Unreachable, "%w, and the batch is private: in incoming/ others could read it (start dsched: dsched -S %s)", unreached, dir)
	case errors.Is(err, spool.ErrFull):
		return "", cli.Errorf(cli.Later, "the batch could not be left in %q: %w (make room there, and submit it again)", dir, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EIO):
		return "", cli.Errorf(cli.Later, "the batch could not be left in %q: %w (the disk has failed: submit it again when that is mended)", dir, err)
	case err != nil:
		return "", fmt.Errorf("the batch could not be left in %q: %w", dir, err)
	}
	name := ""
	if *s.unique {
		name = ", and then gets the next free name"
	}
	s.talk("no dsched serves %q: the batch waits in its incoming/ until one does%s", dir, name)
	return b.ID(), nil
}

// each yields the address of each job.
func each(jobs []job.Job) iter.Seq[*job.Job] {
	return func(yield func(*job.Job) bool) {
		for i := range jobs {
			if !yield(&jobs[i]) {
				return
			}
		}
	}
}

// statBatch is fs.ErrNotExist if a spool has no batch of that name.
func statBatch(dir string, id job.BatchID) error {
	_, err := os.Stat(filepath.Join(dir, "batches", string(id)))
	return err
}
