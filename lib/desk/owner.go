package desk

import (
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/durable"
)

// An Owner is the user whose an attempt's or a build's own files are, where that
// is another than the daemon's.
type Owner struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"` // that he has, too
}

// passable is the mode of directories that others go through to what is theirs,
// and cannot list.
const passable = 0o711

// Give makes what lies below top the owner's, but for inputs that are shared
// with the cache, which nobody may change. It costs a look at each file. Nobody
// else must be able to enter top yet: that is what [Open] is for.
func (o *Owner) Give(top string) error {
	if o == nil {
		return nil
	}
	return eachBelow(top, func(e durable.Entry) error {
		if st, ok := e.Info.Sys().(*syscall.Stat_t); ok && e.Info.Mode().IsRegular() && st.Nlink > 1 {
			return nil
		}
		return e.Dir.Lchown(e.Name, o.UID, o.GID)
	})
}

// Open lets the owner into directories below dir, an attempt's or a build's,
// whose content is his already. Dir itself stays the daemon's: the owner goes
// through it, and can neither list it nor change what it has.
func (o *Owner) Open(dir string, below ...string) error {
	if o == nil {
		return nil
	}
	for _, name := range below {
		if err := os.Lchown(filepath.Join(dir, name), o.UID, o.GID); err != nil {
			return err
		}
	}
	return os.Chmod(dir, passable)
}
