package presence

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	loadFrom = 0.5 // cpus that other work must use to count as somebody
	hertz    = 100 // ticks a second in /proc, on every Linux that Go runs on
)

// The source load measures the work of this machine that is not ours between two
// looks: what all cpus did, less what dnoded, its supervisors and all processes below
// them did. Supervisors reap the orphans of their jobs, so ended ones are counted.
type load struct {
	root string
	at   time.Duration    // when it was measured last
	busy int64            // ticks of all cpus
	ours map[string]int64 // ticks of each tree of ours; nil: never measured
}

func (l *load) look(_ context.Context, m Moment) (sighting, error) {
	busy, err := l.busyTicks()
	if err != nil {
		return sighting{}, err
	}
	ours, err := l.ourTicks()
	if err != nil {
		return sighting{}, err
	}
	before := *l
	l.at, l.busy, l.ours = m.Uptime, busy, ours
	if before.ours == nil {
		return sighting{what: "measured over a minute"}, nil
	}
	others := busy - before.busy
	for tree, n := range ours {
		others -= max(0, n-before.ours[tree])
	}
	for tree := range before.ours {
		if _, lives := ours[tree]; !lives {
			return sighting{}, nil // how much it did before it ended is not known
		}
	}
	if cpus := float64(others) / hertz / (l.at - before.at).Seconds(); cpus >= loadFrom {
		return sighting{m.Uptime, fmt.Sprintf("load of %.1f cpus that is not ours", cpus)}, nil
	}
	return sighting{}, nil
}

// busyTicks is what all cpus did for programs and for the kernel on their behalf.
func (l *load) busyTicks() (int64, error) {
	b, err := os.ReadFile(l.root + "/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d", &user, &nice, &system); err != nil {
		return 0, fmt.Errorf("/proc/stat does not begin with the ticks of all cpus: %w", err)
	}
	return user + nice + system, nil
}

// A process is what is needed of /proc/PID/stat.
type process struct {
	id     string // the pid and the start time: no other process has both
	parent string // the parent's pid
	ours   bool
	ticks  int64 // its own and those of the children that it has reaped
}

// ourTicks sums the ticks of each tree whose topmost process is ours.
func (l *load) ourTicks() (map[string]int64, error) {
	names, err := namesIn(l.root + "/proc")
	if err != nil {
		return nil, err
	}
	all := map[string]*process{}
	for _, pid := range names {
		if pid[0] < '1' || pid[0] > '9' {
			continue
		}
		if b, err := os.ReadFile(l.root + "/proc/" + pid + "/stat"); err == nil { // else it has ended
			all[pid] = parseStat(pid, string(b))
		}
	}
	trees := map[string]int64{}
	for _, p := range all {
		var top *process
		for q, depth := p, 0; q != nil && depth < len(all); q, depth = all[q.parent], depth+1 {
			if q.ours {
				top = q
			}
		}
		if top != nil {
			trees[top.id] += p.ticks
		}
	}
	return trees, nil
}

// parseStat reads a line of proc_pid_stat(5): PID (NAME) FIELD..., where the name may
// have parentheses in it. It returns nil for anything else.
func parseStat(pid, line string) *process {
	_, name, _ := strings.Cut(line, "(")
	end := strings.LastIndexByte(name, ')')
	f := strings.Fields(name[end+1:])
	if end < 0 || len(f) < 20 {
		return nil
	}
	p := &process{id: pid + " " + f[19], parent: f[1], ours: strings.HasPrefix(name, "dnoded")}
	for _, word := range f[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(word, 10, 64)
		p.ticks += n
	}
	return p
}
