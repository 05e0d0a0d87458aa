package proc

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
)

// Unlinked returns the bytes and inodes on the device dev of files without a name, as
// stat(2) has it, that the supervisor that was started at start and the processes below it
// have open. Each file counts once. It costs a look at each open file, and ends early with ctx.
// Files of processes that may not be looked at do not count.
func Unlinked(ctx context.Context, supervisor int, start, dev uint64) (bytes, inodes int64) {
	if !Lives(supervisor, start) {
		return 0, 0
	}
	seen := map[uint64]bool{}
	for _, pid := range append(pidsBelow(supervisor), supervisor) {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		d, err := os.Open(dir)
		if err != nil {
			continue
		}
		names, _ := d.Readdirnames(-1)
		d.Close()
		for _, name := range names {
			if ctx.Err() != nil {
				return bytes, inodes
			}
			// The link tells without a word of the file system, which may be the job's own and
			// never answer; nor is it asked then for what the kernel knows.
			fd := filepath.Join(dir, name)
			if to, err := os.Readlink(fd); err != nil || !strings.HasSuffix(to, " (deleted)") {
				continue
			}
			var st unix.Statx_t
			err := unix.Statx(unix.AT_FDCWD, fd, unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st)
			if err != nil || st.Nlink > 0 || unix.Mkdev(st.Dev_major, st.Dev_minor) != dev || seen[st.Ino] {
				continue
			}
			seen[st.Ino] = true
			bytes += durable.Takes(uint32(st.Mode), int64(st.Blocks), int64(st.Size), func() (*os.File, error) {
				return os.OpenFile(fd, os.O_RDONLY|unix.O_NONBLOCK, 0)
			})
			inodes++
		}
	}
	return bytes, inodes
}
