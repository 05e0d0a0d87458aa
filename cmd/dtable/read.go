package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"distribute/lib/ask"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/reading"
	"distribute/lib/wire"
)

// A value is what was read, or why it is missing.
type value struct {
	text string
	why  error
}

// A result is read as a [pack.Sink].
type result struct {
	row      *job.Row
	readings []*reading.Reading
	values   []value       // of the readings
	files    map[int][]int // by the entry of the manifest those that read it
}

// read reads the values of a job that is done. An error is one of the session. A file
// that cannot be read on the head keeps no value of another file from being read.
func read(ctx context.Context, h *ask.Head, row *job.Row, readings []*reading.Reading) ([]value, error) {
	values, err := readResult(ctx, h, row, readings)
	if errors.Is(err, wire.ErrGaveUp) && len(readings) > 1 {
		values = nil
		for i := range readings {
			one, err := read(ctx, h, row, readings[i:i+1])
			if err != nil {
				return nil, err
			}
			values = append(values, one...)
		}
		return values, nil
	}
	if refused := (*wire.Error)(nil); errors.As(err, &refused) || errors.Is(err, wire.ErrGaveUp) {
		return slices.Repeat([]value{{why: err}}, len(readings)), nil
	}
	return values, err
}

func readResult(ctx context.Context, h *ask.Head, row *job.Row, readings []*reading.Reading) ([]value, error) {
	left, err := h.Result(ctx, string(row.ID))
	if err != nil {
		return nil, err
	}
	r := &result{row, readings, make([]value, len(readings)), map[int][]int{}}
	for i := range r.readings {
		entry, err := r.find(left.Manifest, i)
		if r.values[i].why = err; err == nil {
			r.files[entry] = append(r.files[entry], i)
		}
	}
	if len(r.files) == 0 {
		return r.values, left.Leave(ctx)
	}
	return r.values, left.Take(ctx, pack.WantOf(slices.Collect(maps.Keys(r.files))...), r)
}

// find finds the entry of a manifest that is the file of a reading.
func (r *result) find(m pack.Manifest, i int) (int, error) {
	file, err := r.readings[i].File(r.row.ID.Name(), func(name string) (string, bool) { return job.ParamOf(r.row.Param, name) })
	if err != nil {
		return 0, err
	}
	entry, there := m.Find(file)
	switch {
	case !there:
		return 0, fmt.Errorf("it left no %.300q", file)
	case m[entry].Type != pack.File:
		return 0, fmt.Errorf("%.300q is a directory or a link, and a file is wanted", file)
	}
	return entry, nil
}

// Put reads a file once for all values that are wanted of it.
func (r *result) Put(entry int, e pack.Entry, _ int64, in io.Reader) error {
	sum, parsers := sha256.New(), map[int]reading.Parser{}
	readers := []io.Writer{sum}
	for _, i := range r.files[entry] {
		parsers[i] = r.readings[i].NewParser()
		readers = append(readers, parsers[i])
	}
	if _, err := io.Copy(io.MultiWriter(readers...), in); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != e.Sum {
		for i := range parsers {
			r.values[i].why = ask.Damaged(path.Join(string(r.row.ID), e.Path))
		}
		return nil
	}
	for i, p := range parsers {
		text, err := p.Value()
		if err != nil {
			err = fmt.Errorf("%.300q %w", e.Path, err)
		}
		r.values[i] = value{text, err}
	}
	return nil
}
