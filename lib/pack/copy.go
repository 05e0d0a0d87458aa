package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"distribute/lib/durable"
)

// Copy copies the tree below src into dst, which has to be empty: files with
// their permission bits and times, directories, and links as they stand, wherever
// they point, since none is followed. Where the file system can share blocks
// between files (btrfs, XFS), the kernel does that and no content is copied.
// Holes of files stay holes. Special files are left out and named. Set-id bits are dropped. Owners are those
// of any file that the caller makes.
//
// The error is syscall.ENAMETOOLONG if a directory has a path of more than 16 KiB: a copy holds the
// paths of all directories above the one that it is in, which are gigabytes in very deep trees.
//
// If as is not nil, files of src are opened by a function that it is given, so
// that the caller can do that with the rights of whoever may change that tree.
func Copy(ctx context.Context, dst, src *os.Root, as func(func() error) error) ([]Skipped, error) {
	if as == nil {
		as = func(f func() error) error { return f() }
	}
	c := &copier{as: as}
	if err := c.dir(ctx, dst, src, ""); err != nil {
		return nil, err
	}
	return c.named(), nil
}

// A CopyError is returned by Copy when something in the tree cannot be copied.
type CopyError struct {
	Path string // relative to the top
	Err  error
}

func (e *CopyError) Error() string { return fmt.Sprintf("copy %q: %v", e.Path, e.Err) }

func (e *CopyError) Unwrap() error { return e.Err }

// copyError returns err as that of path, unless it names a path below that already.
func copyError(path string, err error) error {
	if deeper := (*CopyError)(nil); errors.As(err, &deeper) {
		return err
	}
	return &CopyError{path, err}
}

// maxCopied limits the length of the paths of directories in a tree that is copied.
const maxCopied = 1 << 14

type copier struct {
	as func(func() error) error
	skips
}

func (c *copier) dir(ctx context.Context, dst, src *os.Root, path string) error {
	d, err := src.Open(".")
	if err != nil {
		return copyError(path, err)
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.one(ctx, dst, src, name, path+name); err != nil {
				return copyError(path+name, err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return copyError(path, err)
		}
	}
}

func (c *copier) one(ctx context.Context, dst, src *os.Root, name, path string) error {
	info, err := src.Lstat(name)
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		err = c.sub(ctx, dst, src, name, path)
	case fs.ModeSymlink:
		target, err := src.Readlink(name)
		if err != nil {
			return err
		}
		return dst.Symlink(target, name)
	case 0:
		err = c.file(dst, src, name, info)
	default:
		c.skip(path, "a "+kind(info.Mode()))
		return nil
	}
	if err != nil {
		return err
	}
	if err := dst.Chmod(name, info.Mode().Perm()); err != nil {
		return err
	}
	at := info.ModTime()
	if at.After(maxTime) { // Chtimes would make it one of centuries ago
		at = maxTime
	}
	return dst.Chtimes(name, at, at)
}

func (c *copier) sub(ctx context.Context, dst, src *os.Root, name, path string) error {
	if len(path) > maxCopied {
		return syscall.ENAMETOOLONG
	}
	from, err := openDir(src, name)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := dst.Mkdir(name, 0o700); err != nil {
		return err
	}
	to, err := openDir(dst, name)
	if err != nil {
		return err
	}
	defer to.Close()
	return c.dir(ctx, to, from, path+"/")
}

func (c *copier) file(dst, src *os.Root, name string, info fs.FileInfo) error {
	var from *os.File
	err := c.as(func() (err error) {
		from, err = openFile(src, name, info, os.O_RDONLY)
		return err
	})
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(copyData(to, from, info.Size()), to.Close()); err != nil {
		return err
	}
	if info.Mode()&0o111 != 0 {
		durable.AwaitWriters(dst, name)
	}
	return nil
}

// copyData copies the data of a file of that size to an empty one, and leaves its holes
// out. What the file grows by meanwhile is not copied.
func copyData(to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := from.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) { // a hole up to the end
			break
		}
		end := size
		if err == nil {
			end, err = from.Seek(data, seekHole)
		} else if errors.Is(err, syscall.EINVAL) { // the file system does not tell
			data, err = at, nil
		}
		if err != nil {
			return err
		}
		if end = min(end, size); data >= end {
			break
		}
		if _, err := from.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(data, io.SeekStart); err != nil {
			return err
		}
		// copy_file_range(2), which shares blocks where it can
		if n, err := io.CopyN(to, from, end-data); err == io.EOF && n < end-data {
			break // it was cut meanwhile
		} else if err != nil {
			return err
		}
		at = end
	}
	return to.Truncate(size)
}

// seekData and seekHole are SEEK_DATA and SEEK_HOLE of lseek(2).
const (
	seekData = 3
	seekHole = 4
)
