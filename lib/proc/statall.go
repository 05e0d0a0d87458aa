package proc

import (
	"runtime"
	"slices"
	"sync"
)

// A named is a process with the name of its program.
type named struct {
	process
	comm string
}

// Bounds of a look at many processes.
const (
	manyStats = 256 // from so many on several processors look
	lookers   = 4   // at most so many of them
)

// statAll looks at each of these processes that is there, on several processors if
// they are many: a look costs some 15 microseconds in the kernel. In their order,
// but what has lost its parent meanwhile is looked at again, and has another.
func statAll(pids []int) []named {
	parts := 1
	if len(pids) >= manyStats {
		parts = min(lookers, runtime.GOMAXPROCS(0))
	}
	found := make([][]named, parts)
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() {
			for _, pid := range pids[i*len(pids)/parts : (i+1)*len(pids)/parts] {
				if p, comm, err := statNamed(pid); err == nil {
					found[i] = append(found[i], named{p, comm})
				}
			}
		})
	}
	all.Wait()
	list := slices.Concat(found...)
	there := map[int]bool{}
	for _, p := range list {
		there[p.pid] = true
	}
	for i, p := range list {
		if p.parent > 1 && !there[p.parent] {
			if again, err := stat(p.pid); err == nil {
				list[i].process = again
			}
		}
	}
	return list
}
