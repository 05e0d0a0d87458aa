package pack

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
)

// digestWorkers is how many files are hashed at once.
const digestWorkers = 2

// digester hashes open files while others are being looked for.
type digester struct {
	todo chan digestion
	wg   sync.WaitGroup
}

// digestion is one file to be hashed. The file is closed before done is called,
// from another goroutine than the one that asked.
type digestion struct {
	file *os.File
	done func(sum string, info os.FileInfo, err error)
}

func newDigester(ctx context.Context) *digester {
	d := &digester{todo: make(chan digestion)}
	for range digestWorkers {
		d.wg.Go(func() {
			buf := buffers.Get().(*buffer)
			defer buffers.Put(buf)
			for job := range d.todo {
				sum, info, err := digest(ctx, job.file, buf)
				if cerr := job.file.Close(); err == nil {
					err = cerr
				}
				job.done(sum, info, err)
			}
		})
	}
	return d
}

// wait returns when everything asked for is done.
func (d *digester) wait() {
	close(d.todo)
	d.wg.Wait()
}

// digest hashes a file. If the file changes meanwhile it is hashed once more,
// and if that happens again the error is ErrChanged. The info is that of the
// file as it was hashed.
func digest(ctx context.Context, f *os.File, buf *buffer) (string, os.FileInfo, error) {
	for range 2 {
		before, err := f.Stat()
		if err != nil {
			return "", nil, err
		}
		sum, n, err := digestOnce(ctx, f, before.Size(), buf)
		if err != nil {
			return "", nil, err
		}
		after, err := f.Stat()
		if err != nil {
			return "", nil, err
		}
		if n == before.Size() && n == after.Size() && before.ModTime().Equal(after.ModTime()) {
			return sum, after, nil
		}
	}
	return "", nil, fmt.Errorf("%w while it was read", ErrChanged)
}

// digestOnce hashes the first size bytes, and counts one more if there are more.
// Of a large file a part is hashed while the next is read.
func digestOnce(ctx context.Context, f *os.File, size int64, buf *buffer) (string, int64, error) {
	h := newHash()
	defer hashes.Put(h)
	var behind sync.WaitGroup
	var more turns
	defer func() {
		behind.Wait()
		more.release()
	}()
	part := buf[:]
	var at int64
	for at <= size {
		if err := ctx.Err(); err != nil {
			return "", 0, err
		}
		n, err := f.ReadAt(part[:min(int64(len(part)), size-at+1)], at)
		behind.Wait()
		at += int64(n)
		if err == nil && at <= size { // there is more
			full := part
			behind.Go(func() { h.Write(full) })
			part = more.take()
			continue
		}
		h.Write(part[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", 0, err
		}
	}
	return sumOf(h), at, nil
}
