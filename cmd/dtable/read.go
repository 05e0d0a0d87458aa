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

// read reads the values of a job that is done, empty where one is missing. An error is one of
// the session.
func (t *table) read(ctx context.Context, h *ask.Head, row *job.Row) ([]string, error) {
	values, errs := make([]string, len(t.readings)), make([]error, len(t.readings))
	ref := job.NewToken()
	in, err := h.Answer(ctx, &wire.Pull{Ref: ref, ID: string(row.ID)})
	if refused := (*wire.Error)(nil); errors.As(err, &refused) {
		t.tellMissing(row.ID, slices.Repeat([]error{err}, len(errs)))
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
		return nil, wrong(ctx, h, row.ID, err)
	}
	files, parsers, entries := sink{}, make([]reading.Parser, len(errs)), make([]int, len(errs))
	for i, r := range t.readings {
		if entries[i], errs[i] = find(m, r, row); errs[i] == nil {
			parsers[i] = r.NewParser()
			files[entries[i]] = append(files[entries[i]], parsers[i])
		}
	}
	if len(files) == 0 {
		t.tellMissing(row.ID, errs)
		return values, h.Failed(ctx, h.Send(&wire.Pick{Ref: ref, None: true}))
	}
	want := pack.WantOf(slices.Collect(maps.Keys(files))...)
	if in, err = h.Answer(ctx, &wire.Pick{Ref: ref, Want: wire.Want(want)}); err != nil {
		return nil, err
	}
	if err := pack.Receive(in, m, want, files); err != nil {
		return nil, wrong(ctx, h, row.ID, err)
	}
	if err := h.Failed(ctx, wire.Drain(in)); err != nil {
		return nil, err
	}
	for i, p := range parsers {
		if p == nil {
			continue
		}
		if values[i], err = p.Value(); err != nil {
			errs[i] = fmt.Errorf("%.300q %w", m[entries[i]].Path, err)
		}
	}
	t.tellMissing(row.ID, errs)
	return values, nil
}

// find finds the entry of a manifest that is the file of a reading.
func find(m pack.Manifest, r *reading.Reading, row *job.Row) (int, error) {
	path, err := r.File(row.ID.Name(), func(name string) (string, bool) { return job.ParamOf(row.Param, name) })
	if err != nil {
		return 0, err
	}
	i, there := m.Find(path)
	switch {
	case !there:
		return 0, fmt.Errorf("it left no %.300q", path)
	case m[i].Type != pack.File:
		return 0, fmt.Errorf("%.300q is a directory or a link, and a file is wanted", path)
	}
	return i, nil
}

// A sink is a [pack.Sink] that writes a file to all who read it, by the entry of the manifest.
type sink map[int][]io.Writer

func (s sink) Put(i int, e pack.Entry, _ int64, in io.Reader) error {
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(append(s[i], sum)...), in); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != e.Sum {
		return fmt.Errorf("%w: %.300q", pack.ErrSum, e.Path)
	}
	return nil
}

// wrong tells what was sent wrong from a head that went away.
func wrong(ctx context.Context, h *ask.Head, id job.ID, err error) error {
	if errors.Is(err, pack.ErrSum) || errors.Is(err, pack.ErrFormat) || errors.Is(err, pack.ErrLimit) {
		return cli.Errorf(cli.IO, "%s: what the head sent is wrong: %w", id, err)
	}
	return h.Failed(ctx, err)
}
