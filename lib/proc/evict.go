package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// setEvicted notes that the order at hand has to go. It has begun to only if it had
// not before, and if nobody has stopped it.
func (s *supervisor) setEvicted() (begun, stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped != "" {
		return false, true
	}
	begun = !s.evicted
	s.evicted = true
	return begun, false
}

func (s *supervisor) isEvicted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicted
}

// isStopped reports whether the order at hand was stopped, or asked to go.
func (s *supervisor) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped != "" || s.evicted
}

// askToSave sends the signal to those processes of the tree that catch it, and
// says how many do. Others would die of it, with what they have not saved. The
// mpirun of a job catches it to pass it on to each rank, also to one that does not.
func askToSave(sig unix.Signal) (asked int) {
	for _, p := range descendants(os.Getpid()) {
		if catches(p.pid, sig) && !startsRanks(p.pid) && signalSame(p.pid, p.start, sig) == nil {
			asked++
		}
	}
	return asked
}

// catches says whether a process has something to do at the signal.
func catches(pid int, sig unix.Signal) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && sig > 0 && signals(b, "SigCgt:")&(1<<(sig-1)) != 0
}

// startsRanks reports whether a process is mpirun, or one of what it starts the ranks by: the
// ranks of lib/mpi do not have this variable any more.
func startsRanks(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00DISTRIBUTE_MPIRUN="))
}

// expel ends the order at hand as a stop does, unless that is done already.
func (s *supervisor) expel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped == "" && len(s.firsts) > 0 {
		s.terminate()
	}
}

// servesFiles says whether a process serves a file system to others, as that of a
// container's image is. It has to be there for as long as they are, and is killed
// with what is left when the first process is over.
func servesFiles(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && to == "/dev/fuse" {
			return true
		}
	}
	return false
}

// terminate asks the tree to end, and kills it when its grace time is over. What
// is held by a pause has no time that it could use, and does not run again for it:
// it is killed at once. The caller has the lock.
func (s *supervisor) terminate() {
	if s.frozen {
		s.kill()
		return
	}
	for _, p := range descendants(os.Getpid()) {
		if !slices.Contains(s.firsts, p.pid) && servesFiles(p.pid) {
			continue
		}
		signalSame(p.pid, p.start, unix.SIGTERM)
		signalSame(p.pid, p.start, unix.SIGCONT)
	}
	wall, _ := s.clock.times(Uptime())
	s.killAt = wall + s.grace
	s.armKill()
}

// armKill has the tree killed when its grace time is over, unless a pause holds it then: it is
// called again after the pause. The caller has the lock.
func (s *supervisor) armKill() {
	if s.killTimer != nil {
		s.killTimer.Stop()
	}
	wall, _ := s.clock.times(Uptime())
	orders := s.orders
	s.killTimer = time.AfterFunc(s.killAt-wall, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case len(s.firsts) == 0 || s.orders != orders:
		case s.graceOver():
			s.kill()
		case !s.frozen:
			s.armKill()
		}
	})
}

// graceOver reports whether a tree that was asked to end is to be killed now. A pause does not
// count in its grace time; but one that somebody stopped is not kept until the end of the pause.
// The caller has the lock.
func (s *supervisor) graceOver() bool {
	if s.frozen && (s.stopped == StoppedOrder || s.stopped == StoppedSignal) {
		return true
	}
	wall, _ := s.clock.times(Uptime())
	return wall >= s.killAt
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
