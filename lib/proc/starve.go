package proc

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What has been told to stop does so when it gets a processor the next time. At the
// priority of jobs that may take many seconds on a machine which is busy with
// something else. A boost raises these threads above all others for the microseconds that
// they need, which root may do.
type boost struct {
	was  map[name]*unix.SchedAttr // threads that were raised
	vain bool                     // this process may not
}

// raise raises the threads of a process that has been told to stop.
func (h *boost) raise(pid int) {
	if h.vain {
		return
	}
	if h.was == nil {
		h.was = map[name]*unix.SchedAttr{}
	}
	for tid, start := range threads(pid) {
		who := name{tid, start}
		if _, raised := h.was[who]; raised {
			continue
		}
		was, err := unix.SchedGetAttr(tid, 0)
		if err != nil {
			continue
		}
		high := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
		switch unix.SchedSetAttr(tid, &high, 0) {
		case nil:
			h.was[who] = was
		case unix.EPERM:
			h.vain = true
			return
		}
	}
}

// lower gives the threads back what they had.
func (h *boost) lower() {
	for who, was := range h.was {
		if t, err := stat(who.pid); err == nil && t.start == who.start {
			was.Size = unix.SizeofSchedAttr
			unix.SchedSetAttr(who.pid, was, 0)
		}
	}
	clear(h.was)
}

// lastRuntimes is how much processes had run when they were last looked at.
type lastRuntimes map[name]spell

type spell struct {
	used uint64
	at   time.Time
}

// idleFor is for how long a process must not have run to count as one that does
// not get a processor.
const idleFor = 10 * time.Millisecond

// idle says whether a process has not run for idleFor.
func (s lastRuntimes) idle(p process) bool {
	used, now := p.used(), time.Now()
	was, ok := s[p.name()]
	if !ok || was.used != used {
		s[p.name()] = spell{used, now}
		return false
	}
	return now.Sub(was.at) >= idleFor
}

// used is how long the threads of a process ran, in nanoseconds where the kernel
// counts them, else in ticks.
func (p process) used() uint64 {
	dir := "/proc/" + strconv.Itoa(p.pid)
	if p.threads <= 1 {
		if ns, ok := ranFor(dir); ok {
			return ns
		}
		return p.cpu
	}
	var sum uint64
	for tid := range threads(p.pid) {
		ns, ok := ranFor(dir + "/task/" + strconv.Itoa(tid))
		if !ok {
			return p.cpu
		}
		sum += ns
	}
	return sum
}

// ranFor reads schedstat in the directory of a process or thread.
func ranFor(dir string) (ns uint64, ok bool) {
	b, err := os.ReadFile(dir + "/schedstat")
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err = strconv.ParseUint(string(first), 10, 64)
	return ns, err == nil
}

// bound says whether a process is bound to stop before it comes back to its
// program: SIGSTOP waits for it. Of several threads one may be given the signal
// while the others run, so that says nothing of them.
func (p process) bound() bool { return p.threads <= 1 && pending(p.pid, unix.SIGSTOP) }

// pending says whether a signal was sent to a process that it, or its first thread,
// has not come to yet. One that is stopped comes to none but SIGKILL and SIGCONT.
func pending(pid int, sig unix.Signal) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	return (signals(b, "SigPnd:")|signals(b, "ShdPnd:"))&(1<<(sig-1)) != 0
}

// signals is a set of signals in /proc/PID/status.
func signals(status []byte, what string) uint64 {
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte(what)); ok {
			set, _ := strconv.ParseUint(string(bytes.TrimSpace(v)), 16, 64)
			return set
		}
	}
	return 0
}
