package batchfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// source is a file on its way to being a Source. Its size is at first what stat said, then
// what was hashed; that of what was made of a template has its sum from the beginning.
type source struct {
	job.Source
	at   conf.Place // where it was first named
	mode uint32     // 0o755 or 0o644
	err  error
}

// hash reads every source with two goroutines and notes what is wrong.
func (c *collector) hash(ctx context.Context, progress func(n, total int64)) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for i := range c.sources {
		total += c.sources[i].Size
	}
	tell := func(n int64) {
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			progress(n, total)
		}
	}
	for range 2 {
		wg.Go(func() {
			buf, h := make([]byte, 256<<10), sha256.New()
			for i := next.Add(1) - 1; i < int64(len(c.sources)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				c.sources[i].read(ctx, h, buf, tell)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i := range c.sources {
		if err := c.sources[i].err; err != nil {
			c.errs.Errorf(c.sources[i].at, "%w", err)
		}
	}
	return nil
}

// read hashes a file. Its size, times and inode must be the same before and
// after, and be those of as many bytes as were read.
func (s *source) read(ctx context.Context, h hash.Hash, buf []byte, tell func(int64)) {
	if s.Data != nil {
		tell(s.Size)
		return
	}
	f, src, err := job.OpenSource(s.Path)
	if err != nil {
		s.err = err
		var path *fs.PathError
		if errors.As(err, &path) {
			s.err = cannot(s.Path, s.Path, err)
		}
		return
	}
	defer f.Close()
	h.Reset()
	n := int64(0)
	for ctx.Err() == nil {
		k, err := f.Read(buf)
		h.Write(buf[:k])
		n += int64(k)
		tell(int64(k))
		if err == io.EOF {
			break
		}
		if err != nil {
			s.err = cannot(s.Path, s.Path, err)
			return
		}
	}
	err = src.Unchanged(f)
	switch {
	case errors.Is(err, job.ErrChanged), err == nil && n != src.Size:
		s.err = fmt.Errorf("%s %w", msg.Quote(s.Path), job.ErrChanged)
	case err != nil:
		s.err = cannot(s.Path, s.Path, err)
	default:
		s.Source = src
		s.Sum = hex.EncodeToString(h.Sum(nil))
	}
}
