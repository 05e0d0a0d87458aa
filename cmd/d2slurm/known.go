package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"path/filepath"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/query"
	"distribute/lib/slurm"
	"distribute/lib/wire"
)

// A batch that no head knew when it went to the cluster becomes known with its jobs held,
// from its first moment on: none can begin at home before it is taken to the cluster.

// dial makes a session with the head, and has it know the batch; fresh is as make says. The
// inputs that the head lacks come between two sessions, since that may take hours.
func (b *back) dial(ctx context.Context) (h *ask.Head, fresh bool, err error) {
	for {
		if h, err = ask.Dial(ctx, b.c, b.head); err != nil {
			return nil, false, err
		}
		if fresh, err = b.make(ctx, h); err == nil {
			return h, fresh, nil
		}
		h.Close()
		if b.inputs || !errors.Is(err, ask.ErrNotHere) {
			return nil, false, err
		}
		if err := b.p.copy(ctx, []string{slurm.InputsDir}, "-r"); err != nil {
			return nil, false, err
		}
		b.inputs = true
	}
}

// make submits the batch of the folder, if the head does not know it. Whether it was
// submitted for the cluster, now or by what was cut then, is fresh: its jobs are to be
// taken there, and that is to be marked.
func (b *back) make(ctx context.Context, h *ask.Head) (fresh bool, err error) {
	known, err := knows(ctx, h, b.folder.Batch)
	if err != nil || known && b.dry {
		return false, err
	}
	mark, err := b.p.read(slurm.KnownFile, maxList)
	if b.renamed {
		mark = nil
	}
	switch {
	case err != nil:
		return false, err
	case known && mark == nil:
		b.mark(ctx, "") // where that cannot be, the folder is another's, who does so
		return false, nil
	case known:
		return len(mark) > 0, nil
	case mark != nil && len(mark) == 0:
		return false, cli.Errorf(cli.NoSuch, "the head does not know %s any more: it was deleted, or another head has it", b.folder.Batch)
	}
	batch, err := b.readBatch()
	if err != nil {
		return false, err
	}
	if b.dry {
		b.c.Talk("the head does not know %s: it would be submitted, and its jobs be taken", b.folder.Batch)
		return true, nil
	}
	if err := b.mark(ctx, "submitting"); err != nil {
		return false, err
	}
	if err := b.submit(ctx, h, batch); err != nil {
		if refused := (*wire.Error)(nil); errors.As(err, &refused) || errors.Is(err, ask.ErrNotHere) {
			err = errors.Join(err, b.unmark(ctx)) // a batch of this name is from now on another one
		}
		return false, err
	}
	b.c.Talk("%s: submitted, for the cluster", b.folder.Batch)
	return true, nil
}

// knows says whether the head has a batch of that id.
func knows(ctx context.Context, h *ask.Head, id job.BatchID) (bool, error) {
	b, err := known(ctx, h, id)
	return b != nil, err
}

// known is what the head says of a batch, nil if it has none of that id.
func known(ctx context.Context, h *ask.Head, id job.BatchID) (known *query.Batch, err error) {
	ops := &ask.Operands{Args: []string{string(id)}}
	err = ask.Rows(ctx, h, wire.Query{Of: "batches"}, ops, func(b *query.Batch) error {
		one := *b
		known = &one
		return nil
	})
	if refusal := (*wire.Error)(nil); errors.As(err, &refusal) && refusal.Status == cli.NoSuch {
		return nil, nil
	}
	if err == nil && known == nil {
		known = &query.Batch{ID: id}
	}
	return known, err
}

// maxPart is how long what is common to a batch, or a job, may be as JSON.
const maxPart = 16 << 20

// mark notes that the batch is known: one that is deleted does not come again. With a
// text it may be known, and its jobs are to be taken.
func (b *back) mark(ctx context.Context, text string) error {
	_, err := b.p.shell(ctx, "printf %s '"+text+"' >"+slurm.KnownFile+"\n")
	return err
}

// unmark removes the mark.
func (b *back) unmark(ctx context.Context) error {
	_, err := b.p.shell(ctx, "rm -f "+slurm.KnownFile+"\n")
	return err
}

// readBatch reads what the folder has of a batch that is to be submitted.
func (b *back) readBatch() (*job.Batch, error) {
	batch := &job.Batch{Namespace: b.folder.Batch.Namespace(), Name: b.folder.Batch.Name(), Sources: map[string]job.Source{}}
	text, err := b.p.read(slurm.BatchFile, maxList)
	if err == nil && text == nil {
		err = cli.Errorf(cli.NoSuch, "the head does not know %s, and the folder has nothing to submit: was it another head, or deleted there?", b.folder.Batch)
	}
	if err == nil {
		batch.Data, err = b.p.read(slurm.SourceFile, maxList)
	}
	in := line.NewReader(bytes.NewReader(text), maxPart)
	for n := 1; err == nil; n++ {
		var l []byte
		switch l, err = in.Next(); {
		case err == io.EOF:
			return batch, nil
		case err == nil && n == 1:
			err = line.Unmarshal(l, &batch.Spec)
		case err == nil:
			j := job.Job{}
			err = line.Unmarshal(l, &j)
			batch.Jobs = append(batch.Jobs, j)
		}
		if err != nil {
			err = cli.Errorf(cli.Input, "%w: %s:%d: %w", slurm.ErrFolder, slurm.BatchFile, n, err)
		}
	}
	return nil, err
}

// submit submits a batch, whose inputs the folder has.
func (b *back) submit(ctx context.Context, h *ask.Head, batch *job.Batch) error {
	add := func(list ...job.Input) {
		for _, in := range list {
			batch.Sources[in.Sum] = job.Source{Size: in.Size}
		}
	}
	add(batch.Spec.Inputs...)
	if batch.Spec.Image != nil {
		add(*batch.Spec.Image)
	}
	for i := range batch.Jobs {
		add(batch.Jobs[i].Inputs...)
	}
	if b.inputs {
		for sum := range batch.Sources {
			src, err := job.SourceOf(filepath.Join(b.p.dir, slurm.InputsDir, path.Base(sum)), sum)
			if err != nil {
				return err
			}
			batch.Sources[sum] = src
		}
	}
	what := wire.Submit{Ref: b.folder.ID, Queue: true, Held: true} // the same again is the same batch
	h.OnCluster = true
	_, _, err := h.Submit(ctx, b.c, batch, what)
	if err == nil {
		b.p.drop(slurm.InputsDir)
	}
	return err
}
