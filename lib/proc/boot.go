package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
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
	pid, parent, session int
	state                byte
	start                uint64 // clock ticks after boot: with the pid, it names the process
}

// gone says that the process has ended, even if nobody has waited for it yet.
func (p process) gone() bool { return p.state == 'Z' || p.state == 'X' }

// stat reads what is known of pid; fs.ErrNotExist or ESRCH if there is none.
func stat(pid int) (process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, b)
}

// parseStat takes the fields after the last parenthesis: the name of the
// program stands before it and may hold anything.
func parseStat(pid int, b []byte) (process, error) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return process{}, fmt.Errorf("/proc/%d/stat: not understood", pid)
	}
	p := process{pid: pid, state: f[0][0]}
	var e1, e2, e3 error
	p.parent, e1 = strconv.Atoi(string(f[1]))
	p.session, e2 = strconv.Atoi(string(f[3]))
	p.start, e3 = strconv.ParseUint(string(f[19]), 10, 64)
	return p, errors.Join(e1, e2, e3)
}

// processes is every process that can be seen. One that ends meanwhile may be
// missing.
func processes() ([]process, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	var ps []process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid <= 1 {
			continue
		}
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
