package proc

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// A MemoryUse is who has how much of the memory, in bytes.
type MemoryUse struct {
	Of   map[int]int64 // what is below each supervisor, by its process id; in swap space, too
	Free int64         // main memory that the machine could still give to processes
}

// Sum is what all have that are below supervisors.
func (u *MemoryUse) Sum() (sum int64) {
	for _, n := range u.Of {
		sum += n
	}
	return sum
}

// Memory looks who has how much memory: what is below each of these supervisors, and the
// machine. It costs some files of /proc for each process of these trees. What several
// processes of a tree share counts for each, unless that would be more than most together:
// then it counts once, as far as that may be known, and the kernel goes through all of
// their memory for it.
func Memory(supervisors []int, most int64) (*MemoryUse, error) {
	u := &MemoryUse{Of: make(map[int]int64, len(supervisors))}
	var swaps bool
	var err error
	if u.Free, swaps, err = available(); err != nil {
		return nil, err
	}
	below, swap := make(map[int][]int, len(supervisors)), map[int]int64{}
	for _, pid := range supervisors {
		below[pid] = pidsBelow(pid)
		if swaps {
			swap[pid] = swapped(below[pid])
		}
		u.Of[pid] = resident(below[pid]) + swap[pid]
	}
	if u.Sum() > most {
		for pid, pids := range below {
			u.Of[pid] = proportional(pids, u.Of[pid]-swap[pid]) + swap[pid]
		}
	}
	return u, nil
}

// available is how much memory the machine could give to processes without taking
// some from others. Swaps says that some of what they have is in swap space.
func available() (free int64, swaps bool, err error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false, err
	}
	return availableIn(string(b))
}

func availableIn(meminfo string) (free int64, swaps bool, err error) {
	free, ok := kibOf(meminfo, "MemAvailable")
	if !ok {
		return 0, false, errors.New("/proc/meminfo does not say how much memory is available")
	}
	all, _ := kibOf(meminfo, "SwapTotal")
	unused, _ := kibOf(meminfo, "SwapFree")
	return free, all > unused, nil
}

// swapped is what processes have in swap space, in bytes, but for memory that is shared
// by its name.
func swapped(pids []int) (sum int64) {
	for _, pid := range pids {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		n, _ := kibOf(string(b), "VmSwap")
		sum += n
	}
	return sum
}

// kibOf is what a file of the kernel says of name in KiB, in bytes: "name: n kB" on a
// line that is not the first.
func kibOf(text, name string) (bytes int64, ok bool) {
	_, rest, ok := strings.Cut(text, "\n"+name+":")
	f := strings.Fields(rest)
	if !ok || len(f) == 0 {
		return 0, false
	}
	kib, err := strconv.ParseInt(f[0], 10, 64)
	return kib << 10, err == nil && kib >= 0 && kib < 1<<43
}
