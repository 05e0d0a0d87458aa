package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrKind is returned for a path that leads to something other than a regular file.
var ErrKind = errors.New("it is not a regular file")

// Open opens a regular file with the flags and the mode of [os.OpenFile]. Anything else at
// the path is [ErrKind]: Open follows no link there and does not wait for the other end of a
// FIFO. It is for directories in which others can replace files.
func Open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return regular(os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode))
}

// regular returns an opened file if it is a regular one, and else closes it.
func regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		for _, kind := range []error{unix.ELOOP, unix.ENXIO, unix.ENODEV, unix.EISDIR} {
			if e := (*fs.PathError)(nil); errors.Is(err, kind) && errors.As(err, &e) {
				e.Err = ErrKind
			}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: ErrKind}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile returns the content of a regular file, opened as by [Open]. More than most bytes
// are an error.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b, size := []byte(nil), info.Size()
	if size <= most {
		b, err = io.ReadAll(io.LimitReader(f, most+1))
		size = int64(len(b))
	}
	if err == nil && size > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d bytes", most)}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// OpenRoot is [os.OpenRoot], but does not wait for the other end of a FIFO.
func OpenRoot(path string) (*os.Root, error) { return os.OpenRoot(path + "/.") }
