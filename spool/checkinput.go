package spool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"distribute/lib/check"
	"distribute/lib/job"
)

// A jobLook is one look at one jobs.jsonl.
type jobLook struct {
	b       *batchLook
	d       damages
	name    string
	common  places
	content hash.Hash
	text    []byte
	lines   int
	read    int64
	needs   bool // some job needs others
	told    int  // jobs that the log tells of; 0: as its first line says, or nobody has looked
}

// errTail is that what follows is of an addition that came to nothing, or is under
// way.
var errTail = errors.New("what follows belongs to no job")

// beyond says that the log tells of no job with that number, from 0.
func (j *jobLook) beyond(i int) bool {
	h := j.b.about
	if h == nil || i < h.Jobs {
		return false
	}
	if j.told == 0 {
		j.told = h.Jobs
		b := &Batch{ID: j.b.id, dir: j.b.batchDir(j.b.id)}
		j.b.events(b, 0, -1, func(_ *logReader, rec *job.Record) error { // what is wrong with it is told of elsewhere
			if rec.Kind == job.KindAdded {
				j.told += rec.Jobs
			}
			return nil
		})
	}
	return i >= j.told
}

// begin takes what the jobs have in common, if that can be read.
func (j *jobLook) begin() {
	h := j.b.about
	if h == nil {
		return
	}
	if err := j.common.add(h.Spec.Inputs); err != nil {
		j.d.add(check.Finding{Kind: check.Damaged, Path: j.b.name("log.jsonl"), Line: 1, What: err.Error(), Cure: noLogCure})
	}
	j.text = appendSpec(j.text[:0], &h.Spec)
	j.content.Write(j.text)
	inputs := h.Spec.Inputs
	if h.Spec.Image != nil {
		inputs = append(slices.Clone(inputs), *h.Spec.Image)
	}
	for i := range inputs {
		if why := j.b.wants(&inputs[i]); why != "" {
			j.d.add(check.Finding{Kind: check.Damaged, Path: j.b.name("log.jsonl"), Line: 1, What: why, Cure: noLogCure})
		}
	}
}

func (j *jobLook) line(i int, at int64, text []byte) error {
	if j.beyond(i) {
		return errTail
	}
	j.lines++
	j.read += int64(len(text)) + 1
	if why := j.judge(text); why != "" {
		j.b.badJobs = true
		j.d.add(check.Finding{Kind: check.Damaged, Path: j.name, Line: i + 1, Byte: at, What: why, Cure: noLogCure})
	}
	return nil
}

func (j *jobLook) judge(text []byte) string {
	var one job.Job
	if err := readJob(text, job.JobLine, &one); err != nil {
		return err.Error()
	}
	if h := j.b.about; h != nil {
		if err := checkJob(&h.Spec, &j.common, &one); err != nil {
			return err.Error()
		}
	} else if err := job.CheckName(one.Name); err != nil {
		return err.Error()
	}
	if !j.b.index.add([]byte(one.Name), len(text)+1) {
		return fmt.Sprintf("the name %.100q stands twice", one.Name)
	}
	for k := range one.Inputs {
		if why := j.b.wants(&one.Inputs[k]); why != "" {
			return why
		}
	}
	j.needs = j.needs || len(one.Needs) > 0
	if h := j.b.about; h == nil || j.lines <= h.Jobs {
		j.text = appendContent(j.text[:0], &one)
		j.content.Write(j.text)
	}
	return ""
}

// needed looks at who needs whom in the lines of the jobs, if those are whole.
func (j *jobLook) needed(lines io.ReaderAt) error {
	if !j.needs || j.b.badJobs {
		return nil
	}
	_, wrong, err := needsIn(lines, j.read)
	for _, e := range wrong {
		j.b.badJobs = true
		at, _ := j.b.index.line(e.Job)
		j.d.add(check.Finding{Kind: check.Damaged, Path: j.name, Line: e.Job + 1, Byte: at, What: e.Error(), Cure: noLogCure})
	}
	return err
}

// end compares the jobs with what the log's first line says of them.
func (j *jobLook) end() {
	h := j.b.about
	if h == nil || j.b.badJobs {
		return
	}
	switch got := hex.EncodeToString(j.content.Sum(nil)); {
	case j.lines < h.Jobs:
		j.b.badJobs = true
		j.d.add(check.Finding{Kind: check.Damaged, Path: j.name, Cure: noLogCure,
			What: fmt.Sprintf("it has %d lines, and the log says %d", j.lines, h.Jobs)})
	case got != h.Content:
		j.d.add(check.Finding{Kind: check.Damaged, Path: j.name, Cure: noLogCure,
			What: "it is whole, but not what the log says was asked for"})
	}
}

// wants takes an input that a job reads.
func (b *batchLook) wants(in *job.Input) (why string) {
	var sum [32]byte
	if _, err := hex.Decode(sum[:], []byte(in.Sum)); err != nil || len(in.Sum) != 64 {
		return fmt.Sprintf("%.100q is no sum", in.Sum)
	}
	is := inputAt{in.Size, -1}
	if in.At != nil {
		if is.at = *in.At; is.at < tarBlock || is.at%tarBlock != 0 {
			return fmt.Sprintf("no input starts at byte %d of files.tar", is.at)
		}
	}
	if was, ok := b.inputs[sum]; ok && was != is {
		return fmt.Sprintf("the input %s is in two places, or of two sizes", in.Sum)
	}
	b.inputs[sum] = is
	return ""
}

// inputFiles looks for the content of every input.
func (b *batchLook) inputFiles(ctx context.Context) error {
	sums := slices.SortedFunc(maps.Keys(b.inputs), func(x, y [32]byte) int {
		return cmp.Or(cmp.Compare(b.inputs[x].at, b.inputs[y].at), bytes.Compare(x[:], y[:]))
	})
	small := slices.IndexFunc(sums, func(sum [32]byte) bool { return b.inputs[sum].at >= 0 })
	if small < 0 {
		small = len(sums)
	}
	d := damages{u: b.u}
	for _, sum := range sums[:small] {
		if err := b.wantsBlob(&d, hex.EncodeToString(sum[:]), b.inputs[sum].size); err != nil {
			return err
		}
	}
	if len(sums) == small {
		return nil
	}
	return b.filesTar(ctx, sums[small:])
}

// wantsBlob looks whether a blob is there. Those of a batch that is over may
// have been collected.
func (b *batchLook) wantsBlob(d *damages, sum string, size int64) error {
	name := "blobs/" + sum[:2] + "/" + sum
	const cure = "nothing: put it back from a copy, or submit the batch again under another name, which brings it"
	info, err := os.Lstat(b.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && (!b.open || b.listed[b.id].again || b.blind && b.listed[b.id].kind == ""):
	case errors.Is(err, fs.ErrNotExist):
		d.add(check.Finding{Kind: check.Damaged, Path: name, What: fmt.Sprintf("it is missing, and %s reads it", b.id), Cure: cure})
	case err != nil:
		return b.unreadable(b.u, name, err, cure)
	case info.Mode().IsRegular() && info.Size() != size:
		d.add(check.Finding{Kind: check.Damaged, Path: name, Cure: cure,
			What: fmt.Sprintf("it has %d bytes, and %s reads it as one of %d", info.Size(), b.id, size)})
	}
	return nil
}

// filesTar looks at each small input where it should lie.
func (b *batchLook) filesTar(ctx context.Context, sums [][32]byte) error {
	name := b.name("files.tar")
	const cure = "nothing: put it back from a copy, or submit the batch again under another name"
	f, err := check.Open(b.path(name))
	if err != nil {
		return b.unreadable(b.u, name, err, cure)
	}
	defer f.Close()
	d := damages{u: b.u, cure: cure}
	block := make([]byte, tarBlock)
	for _, raw := range sums {
		in, sum := b.inputs[raw], hex.EncodeToString(raw[:])
		why, err := b.small(ctx, f, block, sum, in)
		if err != nil {
			return b.unreadable(b.u, name, err, cure)
		}
		if why != "" {
			d.add(check.Finding{Kind: check.Damaged, Path: name, What: fmt.Sprintf("byte %d: %s", in.at, why), Cure: cure})
		}
	}
	return nil
}

func (b *batchLook) small(ctx context.Context, f *os.File, block []byte, sum string, in inputAt) (why string, err error) {
	_, err = f.ReadAt(block, in.at-tarBlock)
	if err == io.EOF {
		return "the input " + sum + " would be behind its end", nil
	}
	if err != nil {
		return "", err
	}
	if !sameTarHeader(block, sum, in.size) {
		return "the header of the input " + sum + " is another", nil
	}
	if !b.run.Sums {
		return "", nil
	}
	b.u.Files++
	got, err := b.u.Hash(ctx, f, in.at, in.size)
	if err == nil && got != sum {
		return "the input " + sum + " has another sum: it has rotted", nil
	}
	return "", err
}
