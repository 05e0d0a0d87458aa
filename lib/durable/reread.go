package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rereadTail is how much of a log's end Reread drops from the cache: more than
// is ever appended between two syncs.
const rereadTail = 64 << 20

// Reread makes what is read of the end of the log path from now on come from the
// disk, where the kernel can: it writes what is still to be written and drops
// what is cached of the last 64 MiB. After a sync that failed, the cache calls
// pages clean that the disk never got, and shows them until they are dropped; so
// a program that starts reads its logs after Reread. What an earlier sync has
// covered, further up, is on the disk. It costs a sync, and the reading.
func Reread(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = Sync(f)
	}
	if err == nil {
		err = unix.Fadvise(int(f.Fd()), max(0, info.Size()-rereadTail), 0, unix.FADV_DONTNEED)
		if err != nil {
			err = &fs.PathError{Op: "fadvise", Path: path, Err: err}
		}
	}
	return errors.Join(err, f.Close())
}

// RereadTree is Reread for all of every regular file below root. Links are not
// followed.
func RereadTree(root string) error {
	if err := SyncTree(root); err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return forget(path)
	})
}

// forget drops what is cached of a file that was synced. One that may not be
// read is none that anybody reads.
func forget(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		err = &fs.PathError{Op: "fadvise", Path: path, Err: err}
	}
	return errors.Join(err, f.Close())
}
