package durable

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// poolSize is how many syncs run at once. They wait for the disk and not for a
// processor, and a disk merges those that wait together.
const poolSize = 16

// each calls do for 0 … n-1 from at most poolSize goroutines and returns when
// all are done.
func each(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, poolSize) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// SyncAll syncs the files together. The result is nil when all went well and
// otherwise has as many members as files, nil for each that is durable.
func SyncAll(files []*os.File) []error {
	return gather(len(files), func(i int) error { return Sync(files[i]) })
}

// SyncLogs is [Log.Sync] of all the logs together, with errors as from SyncAll.
func SyncLogs(logs []*Log) []error {
	return gather(len(logs), func(i int) error { return logs[i].Sync() })
}

func gather(n int, do func(i int) error) []error {
	errs := make([]error, n)
	each(n, func(i int) { errs[i] = do(i) })
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// SyncTree syncs every regular file and every directory below root, and root
// itself, together. Links are not followed and special files not opened. Where
// something may not be opened for reading, the whole file system is synced
// instead. The names of root itself in its parent are the caller's. Whoever owns
// what is in the tree may change it meanwhile: nothing outside of it is opened.
func SyncTree(root string) error {
	top, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer top.Close()
	t := &treeSync{todo: make(chan *os.File)}
	var wg sync.WaitGroup
	for range poolSize {
		wg.Go(func() {
			for f := range t.todo {
				t.note(syncAndClose(f, nil))
			}
		})
	}
	walk := Walk(top, func(e Entry, err error) error {
		if err != nil || !e.Info.IsDir() && !e.Info.Mode().IsRegular() {
			t.note(err)
			return nil
		}
		f, err := openEntry(e)
		if err != nil {
			t.note(err)
			return nil
		}
		t.todo <- f
		return nil
	}, nil)
	close(t.todo)
	wg.Wait()
	if err := errors.Join(walk, t.err); err != nil {
		return err
	}
	if t.shut {
		return SyncFS(root)
	}
	return nil
}

// treeSync is what the goroutines of one SyncTree share.
type treeSync struct {
	todo chan *os.File

	mu   sync.Mutex // guards what follows
	err  error      // the first, but one for want of descriptors gives way to any other
	shut bool       // something could not be opened
}

func (t *treeSync) note(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, fs.ErrPermission):
		t.shut = true
	case t.err == nil || errors.Is(t.err, unix.EMFILE) || errors.Is(t.err, unix.ENFILE):
		t.err = err
	}
}

// readPlain opens what there is, and waits for nobody.
const readPlain = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK

func syncPath(path string) error { return syncAndClose(os.OpenFile(path, readPlain, 0)) }

func syncAndClose(f *os.File, err error) error {
	if err != nil {
		return err
	}
	err = Sync(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// SyncFS makes everything durable that was written to the file system of a directory, also
// by others.
func SyncFS(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = Syncfs(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
