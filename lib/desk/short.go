package desk

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxTmp is how long a TMPDIR may be so that sockets can be made in it: the kernel takes
// 107 bytes, of which Python's multiprocessing appends 32.
const maxTmp = 107 - 32

// shortPlace is where links with short names to long directories are made.
const shortPlace = "/tmp"

// ShortTmp returns the TMPDIR in the directory of an attempt or a build. If that is too
// long it goes by a link in /tmp, which lasts as long as the directory. Without one, as when
// somebody else has taken its name, it is the long one.
func ShortTmp(dir string) string {
	tmp := filepath.Join(dir, "tmp")
	if len(tmp) <= maxTmp {
		return tmp
	}
	link := shortName(dir)
	if os.Symlink(dir, link) != nil && !isShort(link, dir) {
		return tmp
	}
	return filepath.Join(link, "tmp")
}

// KeepShort keeps the link that ShortTmp made from being removed by what cleans /tmp of all
// that is old, and makes it again if it is gone. Meanwhile what ran there may have ended: its
// TMPDIR is removed first then, and the link after it.
func KeepShort(dir string) {
	if tmp := ShortTmp(dir); tmp != filepath.Join(dir, "tmp") {
		unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Dir(tmp), nil, unix.AT_SYMLINK_NOFOLLOW) // now
	}
	if _, err := os.Lstat(filepath.Join(dir, "tmp")); errors.Is(err, fs.ErrNotExist) {
		dropShort(dir)
	}
}

// dropShort removes the link that ShortTmp made.
func dropShort(dir string) {
	if len(filepath.Join(dir, "tmp")) > maxTmp && isShort(shortName(dir), dir) {
		os.Remove(shortName(dir))
	}
}

// shortName returns the name of the link to a directory: always the same, so that the next
// daemon finds it.
func shortName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(shortPlace, "d-"+hex.EncodeToString(sum[:6]))
}

// isShort reports whether a link is this user's, and to that directory. In /tmp nobody else
// can replace it then.
func isShort(link, dir string) bool {
	info, err := os.Lstat(link)
	if err != nil {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	to, err := os.Readlink(link)
	return err == nil && to == dir
}
