package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/reading"
	"distribute/lib/wire"
)

// A result is what is read of one job. It is a [pack.Sink] of its files.
type result struct {
	*table
	id      job.ID
	of      map[int][]int // which readings an entry of the manifest is for
	parsers []reading.Parser
}

// read reads the values of a job that is done, empty where one is missing. An error
// is one of the session.
func (t *table) read(ctx context.Context, h *ask.Head, row *job.Row) ([]string, error) {
	values := make([]string, len(t.readings))
	r := &result{table: t, id: row.ID, of: map[int][]int{}, parsers: make([]reading.Parser, len(t.readings))}
	ref := job.NewToken()
	in, err := h.Answer(ctx, &wire.Pull{Ref: ref, ID: string(row.ID)})
	if refused := (*wire.Error)(nil); errors.As(err, &refused) {
		for _, w := range t.readings {
			t.lacks(row.ID, w.Name, err)
		}
		return values, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := pack.DecodeManifest(in, pack.DefaultLimits())
	if err == nil {
		err = wire.Drain(in)
	}
	if err != nil {
		return nil, r.wrong(ctx, h, err)
	}
	want := r.find(m, row)
	if len(want.Ranges) == 0 {
		return values, h.Failed(ctx, h.Send(&wire.Pick{Ref: ref, None: true}))
	}
	if in, err = h.Answer(ctx, &wire.Pick{Ref: ref, Want: wire.Want(want)}); err != nil {
		return nil, err
	}
	if err := pack.Receive(in, m, want, r); err != nil {
		return nil, r.wrong(ctx, h, err)
	}
	if err := h.Failed(ctx, wire.Drain(in)); err != nil {
		return nil, err
	}
	for i, parser := range r.parsers {
		if parser == nil {
			continue
		}
		if values[i], err = parser.Value(); err != nil {
			path, _ := t.readings[i].File(row.ID.Name(), param(row))
			t.lacks(row.ID, t.readings[i].Name, fmt.Errorf("%.300q %w", path, err))
		}
	}
	return values, nil
}

// find finds the files in a manifest.
func (r *result) find(m pack.Manifest, row *job.Row) pack.Want {
	for i, w := range r.readings {
		path, err := w.File(row.ID.Name(), param(row))
		if err != nil {
			r.lacks(r.id, w.Name, err)
			continue
		}
		k, there := m.Find(path)
		switch {
		case !there:
			r.lacks(r.id, w.Name, fmt.Errorf("it left no %.300q", path))
			continue
		case m[k].Type != pack.File:
			r.lacks(r.id, w.Name, fmt.Errorf("%.300q is a directory or a link, and a file is wanted", path))
			continue
		}
		r.parsers[i] = w.NewParser()
		r.of[k] = append(r.of[k], i)
	}
	return pack.WantOf(slices.Collect(maps.Keys(r.of))...)
}

// Put reads a file for all who want it.
func (r *result) Put(i int, e pack.Entry, _ int64, in io.Reader) error {
	sum := sha256.New()
	to := []io.Writer{sum}
	for _, k := range r.of[i] {
		to = append(to, r.parsers[k])
	}
	if _, err := io.Copy(io.MultiWriter(to...), in); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != e.Sum {
		return fmt.Errorf("%w: %.300q", pack.ErrSum, e.Path)
	}
	return nil
}

// wrong tells what was sent wrong from a head that went away.
func (r *result) wrong(ctx context.Context, h *ask.Head, err error) error {
	for _, own := range []error{pack.ErrSum, pack.ErrFormat, pack.ErrLimit} {
		if errors.Is(err, own) {
			return cli.Errorf(cli.IO, "%s: what the head sent is wrong: %w", r.id, err)
		}
	}
	return h.Failed(ctx, err)
}

// param tells the parameters of a job.
func param(row *job.Row) func(string) (string, bool) {
	return func(name string) (string, bool) { return job.ParamOf(row.Param, name) }
}
