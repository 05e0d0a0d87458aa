package presence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What counts as somebody's work: so many cpus during so long, measured when one
// looks, but not over longer than that.
const (
	loadFrom   = 0.5 // cpus
	loadWindow = time.Minute
	loadOldest = 3 * time.Minute
	loadCost   = 2000 // so many times what measuring cost passes before the next
	hertz      = 100  // of the times in /proc, on every Linux that Go runs on
)

// A load measures the work of the machine that is not ours: all that its cpus do,
// less what dnoded, supervisors and all below them do, also when that has ended:
// supervisors reap every orphan of their jobs.
type load struct {
	root string
	at   time.Duration // when it was measured; 0: never
	cost time.Duration // of a cpu, to measure
	busy uint64        // ticks of all cpus
	ours map[string]uint64
	said string // of the last minute
	buf  [4096]byte
}

func (l *load) look(_ context.Context, m Moment) Reading {
	passed := m.Uptime - l.at
	if l.at > 0 && passed < max(loadWindow, min(loadOldest/2, loadCost*l.cost)) {
		return Reading{What: l.said}
	}
	began := threadTime()
	defer func() { l.cost = threadTime() - began }()
	busy, err := l.busyTicks()
	if err != nil {
		return Reading{Err: err}
	}
	ours, err := l.oursTicks()
	if err != nil {
		return Reading{Err: err}
	}
	first, was, oursWas := l.at == 0, l.busy, l.ours
	l.at, l.busy, l.ours = max(1, m.Uptime), busy, ours
	l.said = "measured for a minute"
	if first || passed > loadOldest || busy < was {
		return Reading{What: l.said}
	}
	others := int64(busy - was)
	for id, n := range ours {
		others -= int64(n - min(n, oursWas[id]))
	}
	for id := range oursWas {
		if _, lives := ours[id]; !lives {
			return Reading{What: l.said} // what it did since is not known
		}
	}
	cpus := float64(others) / hertz / passed.Seconds()
	if cpus < loadFrom {
		l.said = fmt.Sprintf("%.1f cpus of work that is not ours", max(0, cpus))
		return Reading{What: l.said}
	}
	return Reading{Seen: true, Last: m.Uptime, What: fmt.Sprintf("load of %.1f cpus that is not ours", cpus)}
}

// busyTicks is what all cpus have done for programs and for the kernel that serves
// them; not interrupts, waits, or what was stolen.
func (l *load) busyTicks() (uint64, error) {
	b, err := l.read("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	if len(f) < 4 || f[0] != "cpu" {
		return 0, errors.New("/proc/stat does not begin with what the cpus do")
	}
	var all uint64
	for _, word := range f[1:4] { // user, nice, system
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		all += n
	}
	return all, nil
}

// A process is what counts of /proc/PID/stat.
type process struct {
	id     string // its pid and its start, which no other has
	parent string // the pid
	ours   bool   // by its name
	ticks  uint64 // its own and of those that it has reaped
}

// oursTicks is what each topmost process of ours, with all below it, has done.
func (l *load) oursTicks() (map[string]uint64, error) {
	names, err := namesIn(l.root + "/proc")
	if err != nil {
		return nil, err
	}
	all := map[string]*process{}
	for _, pid := range names {
		if pid[0] < '1' || pid[0] > '9' {
			continue
		}
		if b, err := l.read("/proc/" + pid + "/stat"); err == nil {
			if p, ok := parseStat(pid, b); ok {
				all[pid] = p
			}
		}
	}
	ticks := map[string]uint64{}
	for _, p := range all {
		var top *process
		for q, depth := p, 0; q != nil && depth < len(all); q, depth = all[q.parent], depth+1 {
			if q.ours {
				top = q
			}
		}
		if top != nil {
			ticks[top.id] += p.ticks
		}
	}
	return ticks, nil
}

// parseStat reads a line of proc_pid_stat(5). The name may have anything in it.
func parseStat(pid string, b []byte) (*process, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return nil, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 {
		return nil, false
	}
	p := &process{id: pid + " " + string(f[19]), parent: string(f[1]), ours: bytes.HasPrefix(b[open+1:end], []byte("dnoded"))}
	for _, word := range f[11:15] {
		n, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil {
			return nil, false
		}
		p.ticks += n
	}
	return p, true
}

// read is the beginning of a file of the kernel.
func (l *load) read(name string) ([]byte, error) {
	fd, err := unix.Open(l.root+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, l.buf[:])
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: name, Err: err}
	}
	return l.buf[:n], nil
}

// here is this moment on this machine.
func here() (Moment, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return Moment{}, fmt.Errorf("clock of the boot: %w", err)
	}
	return Moment{time.Now(), time.Duration(ts.Nano())}, nil
}
