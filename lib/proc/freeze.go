package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A Standing is what the processes of a cgroup, and of those below it, do.
type Standing int

// What they do.
const (
	Gone     Standing = iota // there is no such group
	Empty                    // no process is in it: the first is about to be started, or the last has ended
	Frozen                   // nothing runs, as the kernel says
	InKernel                 // the group is being frozen, and waits for what is in the kernel, as for a disk
	Hidden                   // this process may not look into the group, nor see whether it is there
	Runs
)

// StandingOf looks at a cgroup. The directory may be what a stranger says is one: what is
// not in a cgroup file system is Gone. It costs one file, and one for each process of a
// group that is being frozen.
func StandingOf(dir string) Standing {
	events, err := openEvents(dir)
	switch {
	case errors.Is(err, fs.ErrPermission) && isCgroup(dir):
		return Hidden
	case err != nil:
		return Gone
	}
	defer events.Close()
	switch said := readEvents(events); {
	case said == nil:
		return Gone
	case bytes.Contains(said, []byte("populated 0")):
		return Empty
	case bytes.Contains(said, []byte("frozen 1")):
		return Frozen
	}
	g := &group{dir: dir}
	if freezing, _ := g.number("cgroup.freeze"); freezing == 1 && len(g.running()) == 0 {
		return InKernel
	}
	return Runs
}

// openEvents opens the file in which the kernel says how a group stands.
func openEvents(dir string) (*os.File, error) {
	fd, err := unix.Open(filepath.Join(dir, "cgroup.events"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var of unix.Statfs_t
	if err := unix.Fstatfs(fd, &of); err != nil || of.Type != unix.CGROUP2_SUPER_MAGIC {
		unix.Close(fd)
		return nil, fs.ErrInvalid
	}
	return os.NewFile(uintptr(fd), "cgroup.events"), nil
}

// isCgroup says whether a path leads into a cgroup file system, by the part of it that this
// process may follow.
func isCgroup(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		var of unix.Statfs_t
		if err := unix.Statfs(dir, &of); err == nil || dir == filepath.Dir(dir) {
			return err == nil && of.Type == unix.CGROUP2_SUPER_MAGIC
		}
	}
}

// readEvents is what that file says; nil if the group is gone.
func readEvents(events *os.File) []byte {
	b := make([]byte, 256)
	n, _ := events.ReadAt(b, 0)
	if n == 0 {
		return nil
	}
	return b[:n]
}

// freeze has the kernel hold what is in the group and below it: no process comes back to
// its program from then on. It returns how many run still after patientFor.
func (g *group) freeze(over <-chan struct{}) (running int, err error) {
	if err := command(g.dir, "cgroup.freeze", "1"); err != nil {
		return 0, err
	}
	events, err := openEvents(g.dir)
	if err != nil {
		return 0, err
	}
	defer events.Close()
	for begin := time.Now(); ; {
		if said := readEvents(events); bytes.Contains(said, []byte("frozen 1")) || bytes.Contains(said, []byte("populated 0")) {
			return 0, nil
		}
		select {
		case <-over:
			return 1, nil
		default:
		}
		if time.Since(begin) > patientFor {
			return len(g.running()), nil
		}
		unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, 10) // the kernel says so when that changes
	}
}

// thaw has the kernel let go what freeze held.
func (g *group) thaw() error { return command(g.dir, "cgroup.freeze", "0") }

// running is the processes of a group that is being frozen which run still: one that is
// frozen sleeps.
func (g *group) running() []int {
	return slices.DeleteFunc(g.members(), func(pid int) bool {
		p, err := stat(pid)
		return err != nil || p.all(func(state byte) bool { return state != 'R' })
	})
}

// members is the processes in the group and in those below it.
func (g *group) members() (pids []int) {
	filepath.WalkDir(g.dir, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // a group of threads has none
		for f := range bytes.FieldsSeq(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}
