package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/capability"
	"distribute/lib/msg"
	"distribute/lib/unit"
)

// ResourceNames are the names of what jobs ask for but what is counted by its name.
var ResourceNames = []string{"cpus", "memory", "gpus", "disk", "time", "ranks", "mpi"}

// Resources is what a job needs of its node, and what it may use of it. Of a job of several
// ranks the cpus, the memory and the GPUs are what each has; see [Resources.Together].
type Resources struct {
	CPUs   int   `json:"cpus,omitempty"`   // 0: the whole node
	Disk   int64 `json:"disk,omitempty"`   // bytes that it writes at most; 0: nothing is said
	Memory int64 `json:"memory,omitempty"` // bytes that its processes have together at most; 0: nothing is said
	Time   int64 `json:"time,omitempty"`   // seconds that it runs at most, without paused time; 0: no limit
	GPUs   GPUs  `json:"gpus,omitempty"`   // that it has for itself, or the part of one
	Ranks  int   `json:"ranks,omitempty"`  // so many processes of its command run side by side; 0: one, which is no rank

	Counted Counts `json:"counted,omitempty"` // of what the site or its nodes count by name

	MPI   bool `json:"mpi,omitempty"`   // mpirun of the node starts the ranks
	Grows bool `json:"grows,omitempty"` // Memory is the least: the processes may have more, while there is
}

// Unsaid is what jobs of a batch of that kind ask for who say nothing: a command has one
// cpu, and the kinds of the original have the whole node.
func Unsaid(kind string) Resources {
	if kind == Command {
		return Resources{CPUs: 1}
	}
	return Resources{}
}

// The greatest and least that a job may ask for. They are wide: they catch slips
// of a unit, and keep sums of them from overflowing.
const (
	MaxCPUs   = 1 << 16
	MinMemory = 1 << 20
	MaxMemory = 1 << 50
	MaxTime   = MaxKeep // seconds
	MaxRanks  = 1024
)

// Together is what a job needs with all its ranks.
func (r Resources) Together() Resources {
	n := max(1, r.Ranks)
	r.CPUs, r.Memory, r.GPUs, r.Ranks = r.CPUs*n, r.Memory*int64(n), r.GPUs*GPUs(n), 0
	return r
}

// MostMemory returns how many bytes of memory the processes may have together; 0 is no limit of
// their own.
func (r Resources) MostMemory() int64 {
	if r.Grows {
		return 0
	}
	return r.Memory
}

// Check reports why no job can ask for r.
func (r Resources) Check() error {
	switch {
	case r.CPUs < 0 || r.CPUs > MaxCPUs:
		return fmt.Errorf("%d cpus make no sense", r.CPUs)
	case r.Disk < 0:
		return fmt.Errorf("%d bytes of disk make no sense", r.Disk)
	case r.Memory != 0 && (r.Memory < MinMemory || r.Memory > MaxMemory):
		return fmt.Errorf("%d bytes of memory make no sense", r.Memory)
	case r.Grows && r.Memory == 0:
		return errors.New("a job that may use more memory than it asks for has to ask for some")
	case r.Time < 0 || r.Time > MaxTime:
		return fmt.Errorf("a time of %d seconds makes no sense", r.Time)
	case r.Ranks < 0 || r.Ranks > MaxRanks:
		return fmt.Errorf("%d ranks make no sense", r.Ranks)
	case r.MPI && r.Ranks == 0:
		return errors.New("mpi starts ranks: say ranks, how many there are")
	case r.Ranks > 0:
		return cmp.Or(r.GPUs.check(), r.checkRanks())
	}
	return r.GPUs.check()
}

// checkRanks reports why what is asked for cannot be had by each of several ranks.
func (r Resources) checkRanks() error {
	all := r.Together()
	switch {
	case r.CPUs == 0:
		return errors.New("ranks: each needs a number of cpus, and a whole node has none: say cpus, which each rank gets")
	case r.GPUs.Part():
		return fmt.Errorf("ranks: each has whole GPUs of its own, and not %s of one", r.GPUs)
	case all.CPUs > MaxCPUs:
		return fmt.Errorf("%d ranks of %s have %d together, and %d is the limit", r.Ranks, unit.Count(r.CPUs, "cpu"), all.CPUs, MaxCPUs)
	case all.Memory > MaxMemory:
		return fmt.Errorf("%d ranks of %s of memory have more together than a machine: at most 1P", r.Ranks, unit.FormatBytes(r.Memory))
	}
	return all.GPUs.check()
}

// Read reads one of the resources as a person wrote it. The error says what to
// write; it does not name the key.
func (r *Resources) Read(key, s string) (err error) {
	switch key {
	case "cpus":
		if r.CPUs = 0; s != "all" {
			r.CPUs, err = wholeNumber(s, 1, MaxCPUs)
		}
	case "gpus":
		r.GPUs, err = ParseGPUs(s)
	case "disk":
		r.Disk, err = unit.WrittenBytes(s)
	case "memory":
		s, r.Grows = strings.CutSuffix(s, "+")
		r.Memory, err = parseMemory(s)
	case "time":
		r.Time, err = parseTime(s)
	case "mpi":
		if r.MPI = s == "true"; !r.MPI && s != "false" {
			err = errors.New("write true, if mpirun is to start the ranks, or leave it out")
		}
	case "ranks":
		r.Ranks, err = wholeNumber(s, 1, MaxRanks)
	default:
		return r.setCounted(key, s)
	}
	return err
}

// setCounted reads how much is asked for of what is counted by its name; 0 is none.
func (r *Resources) setCounted(name, s string) error {
	n, err := wholeNumber(s, 0, MaxCount)
	if err = cmp.Or(CheckCount(name), err); err != nil {
		return err
	}
	if r.Counted = r.Counted.With(name, n); len(r.Counted.Words()) > MaxCounts {
		return fmt.Errorf("more than %d names are asked for, which is the limit", MaxCounts)
	}
	return nil
}

func wholeNumber(s string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi || s[0] == '+' {
		return 0, fmt.Errorf("a whole number from %d to %d is wanted", lo, hi)
	}
	return n, nil
}

func parseMemory(s string) (int64, error) {
	n, err := unit.WrittenBytes(s)
	switch {
	case err == nil && n == 0:
		return 0, fmt.Errorf("no job runs in %s of memory: leave it out if there is to be no limit", msg.Quote(s))
	case err == nil && n < MinMemory:
		return 0, fmt.Errorf("%s is less than 1M, in which no job runs", msg.Quote(s))
	case err == nil && n > MaxMemory:
		return 0, fmt.Errorf("%s is more memory than a machine has: at most 1P", msg.Quote(s))
	}
	return n, err
}

func parseTime(s string) (int64, error) {
	d, err := unit.WrittenDuration(s)
	switch {
	case err == nil && d == 0:
		return 0, fmt.Errorf("%s is no time to run: leave it out if there is to be no limit", msg.Quote(s))
	case err == nil && d < time.Second:
		return 0, fmt.Errorf("%s is less than 1s", msg.Quote(s))
	case err == nil && d > MaxTime*time.Second:
		return 0, fmt.Errorf("%s is longer than 100 years", msg.Quote(s))
	}
	return int64((d + time.Second - 1) / time.Second), err
}

// gets says that key=value is what a job gets of its node, and not what that is to be.
func gets(key, value string) bool {
	if slices.Contains(ResourceNames, key) {
		return true
	}
	return !strings.ContainsAny(key, "<>!|") && !slices.Contains(capability.Keys(), key) && value != "" && strings.Trim(value, "0123456789") == ""
}

// ParseRequests reads what -R of dsubmit(1) says: cpus=N or cpus=all, memory=SIZE,
// gpus=N, disk=SIZE, time=LENGTH, ranks=N, mpi=true, NAME=N of what is counted by its name,
// and capabilities, joined by commas. What is written with an = and is no key of
// capabilities but one of these seven is what a job gets. Blanks around words count nothing.
// What is not said is as of a command.
func ParseRequests(requests []string) (res Resources, caps []string, err error) {
	res = Unsaid(Command)
	for _, r := range requests {
		for word := range strings.SplitSeq(r, ",") {
			key, value, ok := strings.Cut(word, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if !ok || !gets(key, value) {
				e, err := capability.Written(word)
				if err != nil {
					return res, nil, fmt.Errorf("request %w (cpus=N, memory=SIZE, gpus=N, disk=SIZE, time=LENGTH, ranks=N, and NAME=N of what is counted, are what a job gets; all else is what its node is to be)", err)
				}
				caps = append(caps, e.String())
				continue
			}
			err := res.Read(key, value)
			if key == "cpus" && err != nil {
				err = errors.New("cpus must be a whole number from 1 to " + strconv.Itoa(MaxCPUs) + ", or all")
			}
			if err != nil {
				return res, nil, fmt.Errorf("request %s: %w", msg.Quote(word), err)
			}
		}
	}
	return res, caps, res.Check()
}
