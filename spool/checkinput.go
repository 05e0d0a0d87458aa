package spool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"distribute/lib/check"
	"distribute/lib/job"
)

// addInput takes in that a job reads an input, or reports why it cannot.
func (b *batchCheck) addInput(in *job.Input) error {
	var sum [32]byte
	if _, err := hex.Decode(sum[:], []byte(in.Sum)); err != nil || len(in.Sum) != 64 {
		return fmt.Errorf("%.100q is no sum", in.Sum)
	}
	is := inputAt{in.Size, -1}
	if in.At != nil {
		if is.at = *in.At; is.at < tarBlock || is.at%tarBlock != 0 {
			return fmt.Errorf("no input starts at byte %d of files.tar", is.at)
		}
	}
	if was, ok := b.inputs[sum]; ok && was != is {
		return fmt.Errorf("the input %s is in two places, or of two sizes", in.Sum)
	}
	b.inputs[sum] = is
	return nil
}

// checkInputs looks for the content of every input: of blobs first, and then of those in
// files.tar, in their order.
func (b *batchCheck) checkInputs(ctx context.Context) error {
	sums := slices.SortedFunc(maps.Keys(b.inputs), func(x, y [32]byte) int {
		return cmp.Or(cmp.Compare(b.inputs[x].at, b.inputs[y].at), bytes.Compare(x[:], y[:]))
	})
	blobs := damages{u: b.u, cure: "nothing: put it back from a copy, or submit the batch again under another name, which brings it"}
	for i, sum := range sums {
		if b.inputs[sum].at >= 0 {
			return b.checkFilesTar(ctx, sums[i:])
		}
		if err := b.checkBlobOf(&blobs, hex.EncodeToString(sum[:]), b.inputs[sum].size); err != nil {
			return err
		}
	}
	return nil
}

// checkBlobOf looks whether a blob that jobs read is there. Those of a batch that is over
// may have been collected. Of one that was over, or of which head.jsonl does not tell, only
// what its other jobs read must be there.
func (b *batchCheck) checkBlobOf(d *damages, sum string, size int64) error {
	name := "blobs/" + sum[:2] + "/" + sum
	switch info, err := os.Lstat(b.path(name)); {
	case errors.Is(err, fs.ErrNotExist):
		if !b.open && !b.early {
			return nil
		}
		if said := b.listed[b.Batch.ID]; said.kind == job.KindOpened && !said.again || b.isAwaited(sum) {
			d.damaged(name, fmt.Sprintf("it is missing, and %s reads it", b.Batch.ID))
		}
	case err != nil:
		return b.unreadable(b.u, name, err, d.cure)
	case info.Mode().IsRegular() && info.Size() != size:
		d.damaged(name, fmt.Sprintf("it has %d bytes, and %s reads it as one of %d", info.Size(), b.Batch.ID, size))
	}
	return nil
}

// isAwaited reports whether a job that is not over reads the blob.
func (b *batchCheck) isAwaited(sum string) bool {
	if b.awaited == nil {
		b.awaited = map[string]bool{}
		if !b.badLog && !b.badJobs {
			b.addAwaited()
		}
	}
	return b.awaited[sum]
}

// addAwaited notes the blobs that jobs read which are not over. The lines of jobs.jsonl
// have been checked; one that cannot be read now has changed meanwhile.
func (b *batchCheck) addAwaited() {
	add := func(in []job.Input) {
		for i := range in {
			b.awaited[in[i].Sum] = true
		}
	}
	var bad *Problem
	if b.lines, bad = b.openFile("jobs.jsonl"); bad != nil {
		return
	}
	defer b.lines.Close()
	var j job.Job
	for i, s := range b.history.States {
		if s.Over() || i >= b.Batch.Jobs() {
			continue
		}
		if len(b.awaited) == 0 {
			add(b.about.Spec.Inputs)
			if b.about.Spec.Image != nil {
				add([]job.Input{*b.about.Spec.Image})
			}
		}
		if text, err := b.JobLine(i); err == nil && readJob(text, job.JobLine(), &j) == nil {
			add(j.Inputs)
		}
	}
}

// checkFilesTar looks at each small input where it should lie.
func (b *batchCheck) checkFilesTar(ctx context.Context, sums [][32]byte) error {
	name := b.name("files.tar")
	d := damages{u: b.u, cure: "nothing: put it back from a copy, or submit the batch again under another name"}
	f, err := check.Open(b.path(name))
	if err != nil {
		return b.unreadable(b.u, name, err, d.cure)
	}
	defer f.Close()
	for _, sum := range sums {
		in := b.inputs[sum]
		why, err := b.checkSmall(ctx, f, hex.EncodeToString(sum[:]), in)
		if err != nil {
			return b.unreadable(b.u, name, err, d.cure)
		}
		if why != "" {
			d.damaged(name, fmt.Sprintf("byte %d: %s", in.at, why))
		}
	}
	return nil
}

// checkSmall says what is wrong with one input in files.tar.
func (b *batchCheck) checkSmall(ctx context.Context, f *os.File, sum string, in inputAt) (why string, err error) {
	block, want := make([]byte, tarBlock), make([]byte, tarBlock)
	_, err = f.ReadAt(block, in.at-tarBlock)
	switch {
	case err == io.EOF:
		return "the input " + sum + " would be behind its end", nil
	case err != nil:
		return "", err
	case tarHeader(want, sum, in.size) != nil || !bytes.Equal(block, want):
		return "the header of the input " + sum + " is another", nil
	case !b.run.Sums:
		return "", nil
	}
	b.u.Files++
	got, err := b.u.Hash(ctx, f, in.at, in.size)
	if err == nil && got != sum {
		return "the input " + sum + " has another sum: it has rotted", nil
	}
	return "", err
}
