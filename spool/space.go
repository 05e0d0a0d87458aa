package spool

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// Space is what a file system has left for the user who asks.
type Space struct {
	Free  int64 // bytes
	Size  int64 // bytes in all
	Files int64 // inodes that are free; less than 0: it does not count them
}

// Space looks at the file system that the spool is on. It costs one system call.
func (s *Spool) Space() (Space, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &st); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: s.dir, Err: err}
	}
	return spaceOf(&st), nil
}

// spaceOf is what a statfs(2) tells. It counts in fragments, of which a block,
// as files are best read, may have several.
func spaceOf(st *syscall.Statfs_t) Space {
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	sp := Space{Free: int64(st.Bavail) * unit, Size: int64(st.Blocks) * unit, Files: int64(st.Ffree)}
	if st.Files == 0 {
		sp.Files = -1
	}
	return sp
}

// Reserve is how many bytes of a file system of that size are left to others
// unless the site says otherwise: a twentieth, and at most 1 GiB.
func (sp Space) Reserve() int64 { return min(sp.Size/20, 1<<30) }

// StagedBytes is how many bytes of files an earlier transfer has left in
// staging/ of an attempt. It looks at sizes only, and costs a look at each file.
func (h *Head) StagedBytes(b *Batch, attempt job.Token) (n int64, err error) {
	if err := attempt.Check(); err != nil {
		return 0, err
	}
	err = eachBelow(filepath.Join(b.dir, "staging", string(attempt), "tree"), func(e durable.Entry) error {
		if e.Info.Mode().IsRegular() {
			n += e.Info.Size()
		}
		return nil
	})
	return n, err
}

// takes is how many bytes of the disk a file takes.
func takes(name string) int64 {
	info, err := os.Lstat(name)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// drop gives up the ballast. It reports whether there was one.
func (h *Head) drop() bool {
	h.ballast.Lock()
	defer h.ballast.Unlock()
	h.bare.Store(true)
	return os.Remove(h.path("ballast")) == nil
}

// Bare says that the ballast may be gone: Restock is worth a call.
func (h *Head) Bare() bool { return h.bare.Load() }

// Restock makes the ballast anew if it was given up and there is plenty of
// room: with it more than reserve is left free. It does nothing else, and
// costs nothing while the ballast is there. It is safe for concurrent use.
func (h *Head) Restock(reserve int64) error {
	h.ballast.Lock()
	defer h.ballast.Unlock()
	name := h.path("ballast")
	if !h.Bare() {
		return nil
	}
	if takes(name) >= ballastSize { // else a crash was quicker than its making, or a copy has left it out
		h.bare.Store(false)
		return nil
	}
	sp, err := h.Space()
	if err != nil || sp.Free < max(8*ballastSize, reserve+2*ballastSize) {
		return err
	}
	if err := makeBallast(name); err != nil {
		return full(err)
	}
	h.bare.Store(false)
	return nil
}
