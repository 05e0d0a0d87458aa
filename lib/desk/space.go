package desk

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"distribute/lib/durable"
)

// Caps is how much of its disk a node may use. The members are bytes.
type Caps struct {
	Reserve int64 // that jobs leave free
	Cache   int64 // of inputs and builds that are kept after use
	Output  int64 // that one job or one build may print
}

// DefaultCaps is what dnoded(8) says for a node's directory, by the size of the
// file system that it is on, or will be.
func DefaultCaps(dir string) (Caps, error) {
	st, err := statfsAt(dir)
	if err != nil {
		return Caps{}, err
	}
	size := int64(st.Blocks) * fragment(st)
	return Caps{Reserve: min(size/20, 1<<30), Cache: min(size/10, 20<<30), Output: 1 << 30}, nil
}

// SpaceAt is what is left of the file system that a directory is on, or will be.
func SpaceAt(dir string) (Space, error) {
	st, err := statfsAt(dir)
	if err != nil {
		return Space{}, err
	}
	return spaceOf(st), nil
}

// statfsAt looks at the file system of a directory, or of the one in which it would
// be made.
func statfsAt(dir string) (*syscall.Statfs_t, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var st syscall.Statfs_t
	for err = syscall.Statfs(dir, &st); errors.Is(err, fs.ErrNotExist) && dir != "/"; err = syscall.Statfs(dir, &st) {
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return &st, nil
}

// Space is what is left of a file system.
type Space struct {
	Free      int64 // bytes
	Size      int64 // bytes, those that are in use included
	Inodes    int64
	AllInodes int64 // those in use included; 0: the file system does not count them
}

// Space is what is left of the directory's file system.
func (d *Desk) Space() (Space, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &st); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: d.dir, Err: err}
	}
	return spaceOf(&st), nil
}

func spaceOf(st *syscall.Statfs_t) Space {
	size := max(0, int64(st.Blocks)-int64(st.Bfree)+int64(st.Bavail)) // without what only root can use
	return Space{int64(st.Bavail) * fragment(st), size * fragment(st), int64(st.Ffree), int64(st.Files)}
}

// fragment is what a statfs(2) counts in, of which a block, as files are best
// read, may have several.
func fragment(st *syscall.Statfs_t) int64 {
	if st.Frsize == 0 {
		return int64(st.Bsize)
	}
	return int64(st.Frsize)
}

// block is what the least file takes, as far as is counted here.
const block = 4096

// Rounded is how many bytes of disk a file of that size takes.
func Rounded(size int64) int64 { return (size + block - 1) / block * block }

// Use is how many bytes and inodes a tree has on the disk; of a file with
// several names a part for each, and of the shared inputs nothing: they are the cache's. It
// costs a look at every file, and ends early with ctx. What vanishes meanwhile, or may not be
// looked at, is not counted, nor is what is in directories with paths of maxWalked bytes and
// more. Nor is what is mounted in it, of which nothing is asked: a file
// system of the job's own may never answer, as that of a paused job.
func Use(ctx context.Context, dir string, shared ...SharedFile) (bytes, inodes int64) {
	return use(ctx, dir, func(st *syscall.Stat_t, _ int64) int64 {
		if st.Nlink > 1 && slices.ContainsFunc(shared, func(f SharedFile) bool { return f.Inode == st.Ino }) {
			return 0
		}
		return max(1, int64(st.Nlink))
	})
}

// CopyUse is Use, and says how many bytes a copy of the tree has, in which each name is a file of
// its own.
func CopyUse(ctx context.Context, dir string) (bytes, copied, inodes int64) {
	bytes, inodes = use(ctx, dir, func(st *syscall.Stat_t, takes int64) int64 {
		in := max(1, int64(st.Nlink))
		copied += takes - takes/in
		return in
	})
	return bytes, bytes + copied, inodes
}

// use is Use with a part of what each file takes, one in so many; 0: nothing.
func use(ctx context.Context, dir string, part func(st *syscall.Stat_t, takes int64) int64) (bytes, inodes int64) {
	mounts, err := Mounts(dir)
	if err != nil || slices.Contains(mounts, ".") {
		return 0, 0
	}
	root, err := durable.OpenRoot(dir)
	if err != nil {
		return 0, 0
	}
	defer root.Close()
	durable.WalkExcept(root, mounts, func(e durable.Entry, err error) error {
		if err != nil || ctx.Err() != nil {
			return ctx.Err()
		}
		st, ok := e.Info.Sys().(*syscall.Stat_t)
		in, takes := int64(1), e.Takes()
		if ok && !e.Info.IsDir() {
			in = part(st, takes)
		}
		if in == 0 {
			return nil
		}
		inodes++
		bytes += takes / in
		if e.Info.IsDir() && len(e.Path) >= maxWalked {
			return fs.SkipDir
		}
		return nil
	}, nil)
	return bytes, inodes
}
