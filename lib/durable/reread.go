package durable

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Reread makes what is read of the log path from now on come from the disk, where the
// kernel can: it writes what is still to be written and drops what is cached. After a
// sync that failed, the cache calls pages clean that the disk never got, and shows them
// until they are dropped; so a program that starts reads its logs after Reread. All of
// a log may have been written since the last sync. It costs a sync, and the reading.
func Reread(path string) error {
	if err := SyncFile(path); err != nil {
		return err
	}
	return forget(os.OpenFile(path, readPlain, 0))
}

// RereadTree is Reread for every regular file below root. Links are not
// followed.
func RereadTree(root string) error {
	if err := SyncTree(root); err != nil {
		return err
	}
	top, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer top.Close()
	return Walk(top, func(e Entry, err error) error {
		if err != nil || !e.Info.Mode().IsRegular() {
			return err
		}
		return forget(openEntry(e))
	}, nil)
}

// forget drops what is cached of a file that was synced, and closes it. One that may not
// be read is none that anybody reads.
func forget(f *os.File, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		err = &fs.PathError{Op: "fadvise", Path: f.Name(), Err: err}
	}
	return errors.Join(err, f.Close())
}
