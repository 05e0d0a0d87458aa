package ask

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// Collect looks at the files that a batch file names, and shows how far that is.
func Collect(ctx context.Context, c *cli.Cmd, f *batchfile.File) (*job.Batch, error) {
	p := c.Progress("reading inputs", 0, unit.FormatBytes)
	defer p.Done()
	last := int64(0)
	return f.Collect(ctx, func(n, total int64) {
		p.Grow(total - last)
		last = total
		p.Add(n)
	})
}

// A submission is a batch on its way to the head.
type submission struct {
	c     *cli.Cmd
	h     *Head
	b     *job.Batch
	begun bool // a large input was begun to be sent
}

// Submit gives a batch to the head as what says, which needs no name and number of jobs:
// it sends the inputs that the head lacks, and when it returns an answer the batch is
// durable. Begun says that a large input was begun to be sent, of which the head keeps
// what it has. It tells c's user how far that is. Sources that are not here have no more
// than their sizes: if the head lacks any, the error is ErrNotHere.
func (h *Head) Submit(ctx context.Context, c *cli.Cmd, b *job.Batch, what wire.Submit) (answer *wire.Accepted, begun bool, err error) {
	what.Batch, what.Jobs = b.ID(), len(b.Jobs)
	if !h.mpi && !h.OnCluster && byMPI(b) {
		return nil, false, cli.Errorf(cli.Input, "the head at %q is of an earlier release, with which mpirun cannot start ranks: upgrade it, or take mpi out", h.Addr)
	}
	if !h.secrets && len(b.Spec.Secrets) > 0 {
		return nil, false, cli.Errorf(cli.Input, "the head at %q is of an earlier release, which keeps no secrets: upgrade it, or take secrets out", h.Addr)
	}
	what.Secrets = len(b.Secrets) > 0
	s := &submission{c: c, h: h, b: b}
	answer, err = s.offer(&what)
	if unreadable := (*inputError)(nil); errors.As(err, &unreadable) {
		return nil, s.begun, unreadable.error // the head's refusal says the same, from further away
	}
	if refusal := (*wire.Error)(nil); err != nil && !errors.As(err, &refusal) {
		h.ReadWithin(wire.FrameWithin)
		if _, why := wire.Expect[*wire.Accepted](h.Conn); errors.As(why, &refusal) {
			err = refusal // it was said while this side was still sending
		}
	}
	return answer, s.begun, h.Failed(ctx, err)
}

// byMPI reports whether mpirun is to start the ranks of some jobs of a batch.
func byMPI(b *job.Batch) bool {
	return b.Spec.Resources.MPI || slices.ContainsFunc(b.Jobs, func(j job.Job) bool { return j.Resources != nil && j.Resources.MPI })
}

// offer says what is submitted, and answers until it is accepted. The inputs that the head
// wants are the fourth transfer.
func (s *submission) offer(what *wire.Submit) (*wire.Accepted, error) {
	h, b := s.h, s.b
	if err := h.Send(what); err != nil {
		return nil, err
	}
	type part struct {
		of    string
		write func(io.Writer) error
	}
	parts := []part{
		{wire.OfBatch, func(w io.Writer) error { _, err := w.Write(b.Data); return err }},
		{wire.OfSpec, func(w io.Writer) error { return json.NewEncoder(w).Encode(b.Spec) }},
		{wire.OfJobs, func(w io.Writer) error { return writeJobs(w, b.Jobs, h.mtime, h.order) }},
	}
	if what.Secrets {
		parts = append(parts, part{wire.OfSecrets, func(w io.Writer) error { return json.NewEncoder(w).Encode([]string(b.Secrets)) }})
	}
	for i, p := range parts {
		if err := h.SendTransfer(&wire.Send{X: uint64(i + 1), Of: p.of, Ref: what.Ref}, p.write); err != nil {
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
				err = s.sendInputs(what.Ref, pack.Want(m.Want))
			}
			if err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: %T is no answer to a submission", line.ErrLine, m)
		}
	}
}

// writeJobs writes a line for each job, with the mtimes of inputs, and the priority of the job,
// if the head takes them.
func writeJobs(w io.Writer, jobs []job.Job, mtime, order bool) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var text []byte
	for i := range jobs {
		j := jobs[i]
		if !mtime {
			j.Inputs = slices.Clone(j.Inputs)
			for k := range j.Inputs {
				j.Inputs[k].MTime = nil
			}
		}
		if !order {
			j.Priority = 0 // lines of JSON stand in its order
		}
		text = append(job.AppendJob(text[:0], &j), '\n')
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
func (s *submission) sendInputs(ref job.Token, want pack.Want) error {
	h, b := s.h, s.b
	sizes := make(map[string]int64, len(b.Sources))
	for sum, src := range b.Sources {
		sizes[sum] = src.Size
	}
	m := pack.Blobs(sizes)
	if err := want.Check(m); err != nil {
		return err
	}
	for _, src := range b.Sources {
		if src.Path == "" {
			return unsendable(ErrNotHere)
		}
	}
	what := "sending inputs"
	if want.From > 0 {
		first := 0
		if want.Ranges != nil {
			first = want.Ranges[0][0]
		}
		src := b.Sources[m[first].Sum]
		what = "sending the rest of " + unit.Quote(src.Path)
		s.c.Talk("the head has %s of the %s of %s: going on there", unit.FormatBytes(want.From), unit.FormatBytes(src.Size), unit.Quote(src.Path))
	}
	p := s.c.Progress(what, want.Bytes(m), unit.FormatBytes)
	defer p.Done()
	var src job.Source
	err := h.SendTransfer(&wire.Send{X: 5, Of: wire.OfInputs, Ref: ref}, func(w io.Writer) error {
		return pack.Sender(dial.Local(h.Addr))(w, m, want, func(_ int, e pack.Entry) (io.ReadCloser, error) {
			src = b.Sources[e.Sum]
			f, err := src.Open()
			if err != nil {
				return nil, unsendable(err)
			}
			s.begun = s.begun || e.Size >= largeInput
			return counted{f, src, p}, nil
		})
	})
	if errors.Is(err, pack.ErrChanged) { // it has become shorter or longer
		err = unsendable(src.Changed())
	}
	return err
}

// ErrNotHere is that the head lacks inputs of a batch whose sources are not here.
var ErrNotHere = errors.New("the head lacks inputs that are not here")

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
