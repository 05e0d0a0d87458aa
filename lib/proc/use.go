package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
)

// A MemoryUse is who has how much of the main memory, in bytes.
type MemoryUse struct {
	Of   map[int]int64 // what is below each supervisor, by its process id
	Free int64         // that the machine could still give to processes
}

// Sum is what all have that are below supervisors.
func (u *MemoryUse) Sum() (sum int64) {
	for _, n := range u.Of {
		sum += n
	}
	return sum
}

// Memory looks who has how much memory: what is below the supervisors that were
// started for of, and the machine. It costs what [Trees] does, and a look at each
// process of these trees. What several processes of a tree share counts for each,
// unless that would be more than most together: then it counts once, as far as that
// may be known, and the kernel goes through all of their memory for it.
func Memory(of string, most int64) (*MemoryUse, error) {
	trees, _, err := Trees(of)
	if err != nil {
		return nil, err
	}
	u := &MemoryUse{Of: make(map[int]int64, len(trees))}
	if u.Free, err = available(); err != nil {
		return nil, err
	}
	below := make(map[int][]int, len(trees))
	for _, t := range trees {
		for _, n := range t.names {
			below[t.PID] = append(below[t.PID], n.pid)
		}
		u.Of[t.PID] = resident(below[t.PID])
	}
	if u.Sum() > most {
		for pid, pids := range below {
			u.Of[pid] = proportional(pids, u.Of[pid])
		}
	}
	return u, nil
}

// available is how much memory the machine could give to processes without taking
// some from others.
func available() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(in.Text(), "MemAvailable: %d kB", &kib); n == 1 && kib >= 0 && kib < 1<<43 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo does not say how much memory is available")
}
