package proc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Boot is the id of this boot of the machine, as 8-4-4-4-12 hexadecimal digits.
func Boot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// machineIDFile names the machine; systemd makes it, once.
const machineIDFile = "/etc/machine-id"

// MachineID returns an id of the machine that stays over boots, as 32 hexadecimal digits: a
// hash of /etc/machine-id. It returns "" if there is none, or none that stays.
func MachineID() string {
	if !Stays(machineIDFile) {
		return ""
	}
	f, err := os.Open(machineIDFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 100))
	id := strings.TrimSpace(string(b))
	if err != nil || len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	sum := sha256.Sum256([]byte("distribute node " + id))
	return hex.EncodeToString(sum[:16])
}

// passing are the file systems that may begin anew with each boot: of a system in memory, or in
// a container.
var passing = []int64{unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, aufsMagic, unix.FUSE_SUPER_MAGIC}

const aufsMagic = 0x61756673

// Stays reports whether a file or directory is on a file system that stays as it is over boots, as
// far as its type tells.
func Stays(path string) bool {
	var on unix.Statfs_t
	return unix.Statfs(path, &on) == nil && !slices.Contains(passing, int64(on.Type))
}

// Uptime is the time since the machine was started, the time it slept included.
func Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// process is what /proc/PID/stat says of a process.
type process struct {
	pid, parent int

	state   byte   // of its first thread
	threads int    // that have not ended, the first one counted always
	start   uint64 // clock ticks after boot: with the pid, it names the process
	cpu     uint64 // clock ticks that it ran, in all threads
}

// gone says that the process has ended, even if nobody has waited for it yet. One
// whose first thread has ended goes on while it has others.
func (p process) gone() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// stat reads what is known of pid; fs.ErrNotExist or ESRCH if there is none.
func stat(pid int) (process, error) {
	return statFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/stat", pid)
}

// statFile reads the stat file of a process or of a thread, relative to a
// directory.
func statFile(dir int, name string, pid int) (process, error) {
	var buf statBuffer
	b, err := buf.read(dir, name)
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, b)
}

// statNamed is stat with the name of the program.
func statNamed(pid int) (p process, comm string, err error) {
	var buf statBuffer
	b, err := buf.read(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/stat")
	if err != nil {
		return p, "", err
	}
	if p, err = parseStat(pid, b); err != nil {
		return p, "", err
	}
	return p, string(b[bytes.IndexByte(b, '(')+1 : bytes.LastIndexByte(b, ')')]), nil
}

// A statBuffer has room for a stat file: a name of 64 bytes and 52 numbers.
type statBuffer [2048]byte

// read reads such a file. It is asked for a thousand processes at a time, so it makes
// no more system calls than it must.
func (buf *statBuffer) read(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	n, err := unix.Read(fd, buf[:])
	unix.Close(fd)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return buf[:n], nil
}

// parseStat takes the fields after the last parenthesis: the name of the
// program stands before it and may hold anything.
func parseStat(pid int, b []byte) (process, error) {
	p := process{pid: pid}
	n := 0
	var err error
	number := func(f []byte) uint64 {
		v, e := strconv.ParseUint(string(f), 10, 64)
		err = errors.Join(err, e)
		return v
	}
	for f := range bytes.FieldsSeq(b[bytes.LastIndexByte(b, ')')+1:]) {
		switch n {
		case 0:
			if len(f) == 1 {
				p.state = f[0]
			}
		case 1:
			p.parent = int(number(f))
		case 11, 12:
			p.cpu += number(f)
		case 17:
			p.threads = int(number(f))
		case 19:
			p.start = number(f)
		}
		if n++; n == 20 {
			break // there are as many again
		}
	}
	if n < 20 || p.state == 0 {
		return process{}, fmt.Errorf("/proc/%d/stat: not understood", pid)
	}
	return p, err
}

// pids is the numbers of all processes that can be seen, but for the first, in
// the order in which the kernel goes through them: upwards.
func pids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, n := range names {
		if n[0] < '1' || n[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(n); err == nil && pid > 1 {
			ids = append(ids, pid)
		}
	}
	return ids, nil
}

// processes is every process that can be seen. One that ends meanwhile may be
// missing.
func processes() ([]process, error) {
	ids, err := pids()
	if err != nil {
		return nil, err
	}
	ps := make([]process, 0, len(ids))
	for _, pid := range ids {
		if p, err := stat(pid); err == nil {
			ps = append(ps, p)
		}
	}
	return ps, nil
}

// errNotSame says that a pid is no longer the process it was.
var errNotSame = errors.New("no such process any more")

// signalSame sends sig to the process pid that was started at start, and to no
// other: the process is opened, then compared, then signalled by what was
// opened.
func signalSame(pid int, start uint64, sig unix.Signal) error {
	fd, err := openSame(pid, start)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// openSame opens the process pid that was started at start as a pidfd.
func openSame(pid int, start uint64) (int, error) {
	if pid <= 1 {
		return -1, fmt.Errorf("pid %d: %w", pid, errNotSame)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("pid %d: %w", pid, err)
	}
	if p, err := stat(pid); err != nil || p.start != start || p.gone() {
		unix.Close(fd)
		return -1, fmt.Errorf("pid %d: %w", pid, errNotSame)
	}
	return fd, nil
}

// StartOf is when a process was started, in ticks after boot.
func StartOf(pid int) (uint64, error) {
	p, err := stat(pid)
	return p.start, err
}

// Lives says whether the process pid that was started at start lives.
func Lives(pid int, start uint64) bool {
	p, err := stat(pid)
	return err == nil && p.start == start && !p.gone()
}
