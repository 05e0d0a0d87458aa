package proc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"distribute/lib/timing"
)

// A Slot is a supervisor, seen from the daemon. One goroutine may use it at a
// time; Reports is read by any.
type Slot struct {
	cmd     *exec.Cmd
	control *os.File
	reports chan Report
}

// NewSlot starts a supervisor: this binary again, of this version even if the
// file has been replaced. It costs a millisecond and about 4 MiB, so slots are
// started ahead and used again. The supervisor is in a session of its own, so
// that no terminal's signal reaches it, and has neither standard input nor
// output. The words stand after the name with which it is started, for all to see;
// the first is what it is for, as [Trees] has it.
func NewSlot(words ...string) (*Slot, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot start a supervisor: %w", err)
	}
	keepToOurselves()
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{Argv0}, words...), Dir: "/",
		Env:         append(timing.Environ(), "HOME="+os.Getenv("HOME")), // tells whose it is
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("cannot start a supervisor: %w", err)
	}
	s := &Slot{cmd: cmd, control: ours, reports: make(chan Report, 4)}
	go s.listen()
	return s, nil
}

// Pid is the supervisor's.
func (s *Slot) Pid() int { return s.cmd.Process.Pid }

// Reports is what the supervisor says. The channel is closed when the
// supervisor has exited; if it had an order, that one is over or lost, which
// its directory tells.
func (s *Slot) Reports() <-chan Report { return s.reports }

func (s *Slot) listen() {
	defer close(s.reports)
	defer s.cmd.Wait()
	in := bufio.NewReader(s.control)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r Report
		if json.Unmarshal(line, &r) == nil {
			s.reports <- r
		}
	}
}

// Run gives the supervisor an order. It must have reported the end of the one
// before. An error says that it is gone. For what this process has written, and the order may
// run, [durable.AwaitWriters] must have been called.
func (s *Slot) Run(o *Order) error { return s.say(word{Order: o}) }

// Stop asks the supervisor to end the order of that token, with the order's
// grace time; said again, without it. Without effect if that order is not the
// one that runs.
func (s *Slot) Stop(token string) error { return s.say(word{Stop: token}) }

// Look asks the supervisor to look at the pauses that its order goes by. It watches
// them itself; this is for when the kernel grants it no watch.
func (s *Slot) Look() error { return s.say(word{Look: true}) }

func (s *Slot) say(w word) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if _, err := s.control.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("supervisor %d is gone: %w", s.Pid(), err)
	}
	return nil
}

// Close lets the supervisor go: it finishes what it has and exits. Reports ends
// then.
func (s *Slot) Close() error {
	return s.control.Close()
}
