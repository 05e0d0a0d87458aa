package proc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
)

// Argv0 is the name under which a supervisor is started.
const Argv0 = "dnoded-slot"

// worthFrom is how long an order ran whose status is worth a sync.
const worthFrom = 2 * time.Second

// controlFD is where a supervisor finds its end of the socket pair.
const controlFD = 3

// IsSupervisor says whether this process was started as a supervisor. It asks
// the kernel, so that main can ask before anything else is set up.
func IsSupervisor() bool {
	b, err := os.ReadFile("/proc/self/cmdline")
	argv0, _, _ := strings.Cut(string(b), "\x00")
	return err == nil && argv0 == Argv0
}

// Supervise is the whole life of a supervisor: it runs the orders that come in
// on the control socket, one after the other, and returns when the socket has
// ended and the order at hand is over. MakeRoom gives something up where an order's
// directory is on a full disk, and says whether that made room.
//
// It ignores broken pipes; SIGUSR2 and SIGTERM stop the order at hand, and at
// SIGWINCH it looks for pauses.
func Supervise(makeRoom func(dir string, err error) bool) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	call(Argv0)
	// What is ignored stays ignored in jobs, what is noted does not.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGPIPE, unix.SIGXFSZ, unix.SIGTERM, unix.SIGUSR2, unix.SIGINT, unix.SIGHUP, barrier)
	keepToOurselves()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become the reaper of orphans: %w", err)
	}
	boot, err := Boot()
	if err != nil {
		return err
	}
	self, err := stat(os.Getpid())
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	s := &supervisor{
		boot: boot, start: self.start, makeRoom: makeRoom, null: null,
		control: os.NewFile(controlFD, "control"), heeded: make(chan struct{}, 1), autogroups: autogroups(),
		look: make(chan struct{}, 1),
	}
	go s.listen(signals)
	return s.serve()
}

// keepToOurselves marks every descriptor that came from whoever started this
// process, so that what it starts does not get it. Kernels before Linux 5.11
// cannot; there the control socket at least is marked.
func keepToOurselves() {
	if unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) != nil {
		unix.CloseOnExec(controlFD)
	}
}

// A supervisor runs one order at a time. The goroutine of serve runs it; that of
// listen stops it.
type supervisor struct {
	boot     string
	start    uint64
	makeRoom func(dir string, err error) bool
	null     *os.File
	control  *os.File
	heeded   chan struct{} // a barrier has come
	look     chan struct{} // the pauses are to be looked at

	autogroups bool     // the kernel weighs each session apart
	starter    *starter // of the first processes; nil: none was started yet

	parent, controllers string   // see controllersOf
	clock               runClock // of the order at hand
	out                 *lookout // of the last order; nil: it had no pauses

	mu      sync.Mutex
	token   string // of the order at hand
	orders  int    // that there were, with this one: what is to be done later is of one of them
	tied    bool   // it is stopped when the daemon goes
	firsts  []int  // its first processes that have not been waited for
	stopped string // who stopped it
	evicted bool   // it has been asked to save itself and go
	failed  bool   // one of its first processes has, and the others are asked to end
	frozen  bool   // a pause holds it, or is about to
	grace   time.Duration
	group   *group
	lock    *Lock // that is held

	killAt    time.Duration // by its clock, when it is to be killed if it was asked to end; 0: it was not
	killTimer *time.Timer   // of that
}

// serve reads words and runs orders. A stop is read by a goroutine of its own
// while an order runs, so the words pass through a channel.
func (s *supervisor) serve() error {
	words := make(chan word)
	go func() {
		defer func() { go s.forsaken() }()
		defer close(words)
		in := bufio.NewReader(s.control)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			var w word
			if json.Unmarshal(line, &w) != nil {
				return
			}
			switch {
			case w.Stop != "":
				s.stop(w.Stop, StoppedOrder)
			case w.Look:
				s.lookNow()
			case w.Order != nil:
				s.expect(w.Order)
				words <- w
			}
		}
	}()
	for w := range words {
		s.obey(w.Order)
	}
	return nil
}

// hold notes which lock is held; nil: none.
func (s *supervisor) hold(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock = l
}

// forsakenEvery is how often a supervisor whose daemon has gone looks whether its lock
// can be found.
const forsakenEvery = time.Second

// forsaken stops the order at hand if it is tied to the daemon, or when the next daemon
// could not find it, since what runs has removed its directory.
func (s *supervisor) forsaken() {
	for range time.Tick(forsakenEvery) {
		s.mu.Lock()
		lost := s.tied || s.lock != nil && !s.lock.there()
		s.mu.Unlock()
		if lost {
			s.stop("", StoppedSignal)
			return
		}
	}
}

func (s *supervisor) listen(signals <-chan os.Signal) {
	for sig := range signals {
		switch sig {
		case unix.SIGTERM:
			s.stop("", StoppedSignal)
		case unix.SIGUSR2:
			s.stop("", StoppedOrder)
		case barrier:
			select {
			case s.heeded <- struct{}{}:
			default:
			}
			s.lookNow()
		}
	}
}

// lookNow has the pauses looked at that the order at hand goes by.
func (s *supervisor) lookNow() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// barrier is a signal that comes after the others which are pending with it: both
// the kernel and Go's runtime go by their numbers.
const barrier = unix.SIGWINCH

// lateBy is how much later than a job a supervisor may notice a SIGTERM to both.
const lateBy = 100 * time.Millisecond

// heed returns when the signals have been obeyed that this process was sent
// before: at a shutdown it is told to end together with the job, which may be over
// first. It costs some 20 microseconds. The kernel may have given SIGTERM to a
// thread that has not come to it yet, so a job that ended of one that nobody here
// sent is waited for a little.
func (s *supervisor) heed(st *Status) {
	told := st.Signal == int(unix.SIGTERM) || st.Exit != nil && *st.Exit == 128+int(unix.SIGTERM)
	select {
	case <-s.heeded: // of a barrier that was taken for lost
	default:
	}
	for deadline := time.Now().Add(lateBy); ; {
		unix.Kill(os.Getpid(), barrier)
		select {
		case <-s.heeded:
		case <-time.After(lateBy / 10): // it was lost among many
			continue
		}
		s.mu.Lock()
		stopped := s.stopped
		s.mu.Unlock()
		if !told || stopped != "" || st.Evicted || time.Now().After(deadline) {
			return
		}
		time.Sleep(lateBy / 100)
	}
}

// expect makes o the order at hand, so that a stop that comes before its start
// is not lost.
func (s *supervisor) expect(o *Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.tied, s.firsts, s.stopped, s.grace, s.group = o.Token, o.Tied, nil, "", o.Grace, nil
	s.evicted, s.failed, s.frozen, s.killAt = false, false, false, 0
	s.orders++
}

// report writes to the daemon. That it is gone is no concern here.
func (s *supervisor) report(r Report) {
	if b, err := json.Marshal(r); err == nil {
		s.control.Write(append(b, '\n'))
	}
}

// obey runs one order and reports what came of it, when its lock is free again:
// whoever hears of the end may look at the directory at once. It tells how the order
// ended also where that cannot be kept: what ran may have removed the directory.
func (s *supervisor) obey(o *Order) {
	st, err := s.carryOut(o)
	if st == nil {
		var before *notBegunError
		s.report(Report{Refused: err.Error(), Passing: errors.As(err, &before), Paused: errors.Is(err, errPaused)})
		return
	}
	s.report(Report{Ended: st})
}

// A notBegunError says that nothing of an order ran, for want of something that
// may be there later: the order can be given again.
type notBegunError struct{ error }

func (e *notBegunError) Unwrap() error { return e.error }

// notBegun makes err a notBegunError if it is of that kind.
func notBegun(err error) error {
	passes := durable.NoRoom(err)
	for _, errno := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		passes = passes || errors.Is(err, errno)
	}
	if passes && !errors.Is(err, ErrHeld) {
		return &notBegunError{err}
	}
	return err
}

// carryOut runs one order from lock to status, which is nil if nothing of it ran. With a
// status and an error it ended so, and the status is not on disk.
func (s *supervisor) carryOut(o *Order) (*Status, error) {
	lock, err := TakeLock(o.Dir)
	if err != nil {
		return nil, notBegun(err)
	}
	defer lock.Release()
	s.hold(lock)
	defer s.hold(nil)
	switch run, err := ReadRun(o.Dir, o.Token); {
	case err != nil:
		return nil, notBegun(err)
	case run.Ended != nil:
		return run.Ended, nil
	case run.Void:
		return nil, errors.New(o.Dir + ": was given up")
	}
	s.clock.start(Uptime())
	if err := s.recordSupervised(lock, o.Token); err != nil {
		return nil, notBegun(err)
	}
	st := &Status{Token: o.Token, Boot: s.boot, Started: time.Now().UTC(), Contained: BestEffort}
	if err := s.run(o, st); err != nil {
		var before *notBegunError
		if err = notBegun(err); errors.As(err, &before) {
			return nil, errors.Join(err, appendTo(lock.f, Line{Unbegun: o.Token}))
		}
		st.Error = err.Error()
	}
	st.Wall, st.Paused = s.clock.times(Uptime())
	st.Ended = time.Now().UTC()
	// Nobody else knows how it ended, so a full disk is waited for.
	err = s.record(lock, st)
	for durable.NoRoom(err) {
		if !s.makeRoom(o.Dir, err) {
			time.Sleep(time.Second)
		}
		err = s.record(lock, st)
	}
	return st, err
}

// recordSupervised writes down that this supervisor has the order, and its clock.
func (s *supervisor) recordSupervised(l *Lock, token string) error {
	return appendTo(l.f, Line{Supervised: &Holder{Token: token, Pid: os.Getpid(), Start: s.start, Boot: s.boot, Clock: s.clock.read()}})
}

// recordClock is recordSupervised for the order at hand, whose clock stands still or goes on. Nothing
// depends on it but what the next daemon says of how long the order has run.
func (s *supervisor) recordClock(token string) {
	s.mu.Lock()
	lock := s.lock
	s.mu.Unlock()
	if lock != nil {
		s.recordSupervised(lock, token)
	}
}

// record writes down how an order ended. That of an order that ran for less than
// worthFrom is not made durable: after a power cut it is quickly run again.
func (s *supervisor) record(l *Lock, st *Status) error {
	if err := appendTo(l.f, Line{Ended: st}); err != nil || st.Wall < worthFrom {
		return err
	}
	return l.f.Sync()
}

// run starts the first processes, waits for them, and ends their trees.
func (s *supervisor) run(o *Order, st *Status) error {
	name, err := lookPath(o.Argv, o.Path, o.Cwd, o.As)
	if err != nil {
		return err
	}
	if err := checkScript(name, o); err != nil {
		return fmt.Errorf("cannot start %q: %w", o.Argv[0], err)
	}
	outs, err := openOutputs(o)
	defer func() {
		for _, out := range outs {
			out.close()
		}
	}()
	if err != nil {
		return err
	}
	g, pids, where, err := s.begin(o, name, outs)
	if err != nil && len(pids) == 0 {
		return err
	}
	if g != nil {
		st.Contained = ByCgroup
		defer g.remove()
	}
	if len(pids) == 0 {
		st.Stopped = s.stopped
		return nil
	}
	for _, out := range outs {
		out.write.Close()
		out.write = nil
		go s.copyOutput(o, out)
	}
	s.report(Report{Started: pids[0]})
	w := s.watchOver(o, g, pids)
	k := s.mind(o, g, where)
	s.await(o, pids, st)
	w.over()
	k.end()
	st.Evicted = s.isEvicted()
	s.sweep(g, st)
	printed, size := false, int64(0)
	var unkept error
	for _, out := range outs {
		unkept = errors.Join(unkept, s.finishOutput(o, out))
		size += out.size
		if info, err := out.file.Stat(); err == nil && o.Keep > 0 && info.Size() > o.Keep {
			printed = true
			out.file.Truncate(o.Keep) // if that fails all of it is kept
		}
	}
	s.heed(st)
	s.mu.Lock()
	s.token, s.group, st.Stopped = "", nil, s.stopped
	s.mu.Unlock()
	if printed && (st.Stopped == "" || st.Stopped == StoppedOrder) && !st.Evicted {
		st.Printed = o.Keep
	}
	st.judge(o, g, w)
	st.measure(o, g, w)
	st.Written += size // by this process
	// An order that was stopped or had to leave has ended for that reason.
	if err == nil && unkept != nil && st.Stopped == "" && !(st.Evicted && st.failed()) {
		st.Error = "what it printed cannot be kept: " + unkept.Error()
	}
	if err != nil { // who had been started before was killed for that
		st.Rank, st.Exit, st.Signal = nil, nil, 0
	}
	return err
}

// await waits until the first processes have ended. When one of them fails the others are
// asked to end, as by a stop. Orphans that end before are waited for on the way. A process
// is a zombie while it is taken out of s.firsts, so that a stop never meets a pid that is
// used again.
func (s *supervisor) await(o *Order, pids []int, st *Status) {
	for left := len(pids); left > 0; {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil); err != nil && err != unix.EINTR {
			return
		}
		s.mu.Lock()
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WALL, &ru)
		if err == nil && got > 0 {
			st.add(&ru)
			if rank := slices.Index(pids, got); rank >= 0 {
				left--
				s.firsts = slices.DeleteFunc(s.firsts, func(pid int) bool { return pid == got })
				failed := st.rankEnded(o, rank, ws, s.evicted)
				st.Frozen = st.Frozen || failed && s.frozen
				if failed && len(s.firsts) > 0 && s.stopped == "" && !s.evicted {
					s.failed = true
					s.terminate()
				}
			}
		}
		s.mu.Unlock()
	}
}

// stop asks the tree of the order to end, and kills it when the grace time is
// over, or at once if it was asked before or is held by a pause. An empty token
// means the order at hand, whichever it is. It reports false if a limit of time is reached
// in the moment in which a pause begins: the order is to be stopped after that.
func (s *supervisor) stop(token, who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || token != "" && token != s.token {
		return true
	}
	limit := who == StoppedTime || who == StoppedMemory
	switch {
	case limit && (s.stopped == StoppedMemory || len(s.firsts) == 0):
		return true // it is being killed, or over
	case who == StoppedTime && s.stopped == "" && s.frozen:
		return false
	case who == StoppedTime && (s.evicted || s.failed):
		return true // it ends anyhow, and saves what it has
	case s.stopped != "" && who != StoppedTime:
		s.kill()
		return true
	case s.stopped != "":
		return true // it has its grace time
	}
	s.stopped = who
	if len(s.firsts) == 0 {
		return true // not started yet, or its sweep is under way
	}
	if who == StoppedMemory {
		s.kill()
		return true
	}
	s.terminate()
	return true
}

// kill kills the order at hand; its sweep has the rest. The caller has the lock.
func (s *supervisor) kill() {
	if len(s.firsts) == 0 {
		return // not started yet, or over
	}
	if s.group != nil {
		s.group.kill()
	}
	for _, pid := range s.firsts {
		unix.Kill(-pid, unix.SIGKILL)
		unix.Kill(pid, unix.SIGKILL)
	}
	orders := s.orders
	time.AfterFunc(stuckAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.firsts) > 0 && s.orders == orders {
			s.report(Report{Stuck: 1})
		}
	})
}
