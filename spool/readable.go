package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// A Reader is a user who is not the spool's owner and asks to read, as the
// kernel knows him.
type Reader struct {
	UID    int
	Groups []int
}

// Readable says whether the modes of the spool let r read a batch: he may list
// and search batches/, the batch's namespace and the batch itself, and search
// the spool's directory. Nothing is remembered, so that what the modes are now
// is what counts; it costs four system calls. What is not there is not readable.
// ACLs are not looked at, as dspool(5) says.
func (s *Spool) Readable(id job.BatchID, r Reader) bool {
	batch := s.batchDir(id)
	space := filepath.Dir(batch)
	return r.may(s.dir, search) && r.may(filepath.Dir(space), list|search) && r.may(space, list|search) && r.may(batch, list|search)
}

// namespace makes the directory of a namespace, unless it is there and can be read, as the next
// start has to. A crash leaves one that the group may list and search at least: whoever finds it
// does not look at its mode.
func (h *Head) namespace(dir string) error {
	err := os.Mkdir(dir, 0o750)
	if errors.Is(err, fs.ErrExist) {
		d, err := openDir(dir)
		if err != nil {
			return err
		}
		return d.Close()
	}
	if err == nil {
		err = durable.Step("submit.namespace")
	}
	if err != nil {
		return err
	}
	return likeAbove(dir)
}

// likeAbove opens a directory that was made for its owner alone to the group,
// and to others as the directory above is: nobody gets to it who may not list
// and search that.
func likeAbove(dir string) error {
	above, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(dir, info.Mode()&fs.ModeSetgid|above.Mode()&0o005|0o750)
}

// Bits of a mode.
const (
	search = 0o1
	list   = 0o4
)

// may says whether owner, group and mode of a directory let r do what wants.
func (r Reader) may(dir string, want uint32) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st := info.Sys().(*syscall.Stat_t)
	mode := st.Mode
	switch {
	case int(st.Uid) == r.UID:
		mode >>= 6
	case slices.Contains(r.Groups, int(st.Gid)):
		mode >>= 3
	}
	return mode&want == want
}
