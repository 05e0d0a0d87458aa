package proc

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/pause"

	"golang.org/x/sys/unix"
)

// runOrder gives a new supervisor an order and returns how it ended.
func runOrder(t *testing.T, o *Order) *Status {
	t.Helper()
	s := newSlot(t)
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	return ended(t, s)
}

// Whatever opens its standard error or output anew loses nothing that was printed before.
func TestOutputIsOpenedAnew(t *testing.T) {
	t.Parallel()
	for name, as := range map[string]*Identity{"own": nil, "other": {UID: 65534, GID: 65534}} {
		t.Run(name, func(t *testing.T) {
			if as != nil && os.Geteuid() != 0 {
				t.Skip("only root runs what belongs to others")
			}
			o := order(newDir(t), `echo 1; echo 2 >/dev/stderr; echo 3 >&2; sh -c 'echo 4 >/dev/stdout'; echo 5 >/proc/self/fd/1; : >/dev/stderr`)
			o.As, o.Cwd = as, "/"
			if st := runOrder(t, o); st.Exit == nil || *st.Exit != 0 {
				t.Errorf("status %+v", st)
			}
			if got, err := os.ReadFile(o.Output); err != nil || string(got) != "1\n2\n3\n4\n5\n" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// All of a large output is in the file when the end is told, also what processes have
// printed that had to be killed.
func TestOutputIsWhole(t *testing.T) {
	t.Parallel()
	const size = 5<<20 + 17
	o := order(newDir(t), fmt.Sprintf("head -c %d /dev/urandom | tee copy; sleep 1000 & sleep 1000 & printf end", size))
	st := runOrder(t, o)
	want, err := os.ReadFile(o.Cwd + "/copy")
	if err != nil || len(want) != size {
		t.Fatal(len(want), err)
	}
	if got, err := os.ReadFile(o.Output); err != nil || !bytes.Equal(got, append(want, "end"...)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if st.Swept != 2 || st.Written < size {
		t.Errorf("status %+v", st)
	}
}

// A process that is none of the order's may have its output open: that is not waited for.
func TestOutputIsOpenElsewhere(t *testing.T) {
	t.Parallel()
	s, o := newSlot(t), order(newDir(t), "")
	open := newGate(t, o.Dir)
	o.Argv[2] = "echo 1; read _ <go; echo 2"
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", started(t, s)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	open()
	if st := ended(t, s); st.Exit == nil || *st.Exit != 0 {
		t.Errorf("status %+v", st)
	}
	if got, err := os.ReadFile(o.Output); err != nil || string(got) != "1\n2\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// An order fails if what it printed cannot be kept, even if it does not notice.
func TestOutputCannotBeKept(t *testing.T) {
	t.Parallel()
	s, o := newSlot(t), order(newDir(t), "trap '' PIPE; head -c 1M /dev/zero; exit 0")
	if err := unix.Prlimit(s.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 8192, Max: unix.RLIM_INFINITY}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	if st := ended(t, s); !strings.HasPrefix(st.Error, "what it printed cannot be kept: ") {
		t.Errorf("status %+v", st)
	}
	if info, err := os.Stat(o.Output); err != nil || info.Size() != 8192 {
		t.Errorf("%v, %v", info.Size(), err)
	}
}

// An order that had to leave has left also if what it printed cannot be kept, unless it ended
// well meanwhile: then it has failed, as else it would count as done without that.
func TestOutputOfEvictedCannotBeKept(t *testing.T) {
	t.Parallel()
	for exit, unkept := range map[int]bool{85: false, 4: false, 0: true} {
		d := &desk{T: t, place: t.TempDir(), slot: newSlot(t)}
		if err := unix.Prlimit(d.slot.Pid(), unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 8192, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf(`trap '' PIPE; trap 'head -c 1M /dev/zero; exit %d' USR1; echo up > said; while :; do (true); done`, exit)
		d.order = run(t, d.slot, "", script, func(o *Order) {
			o.Pause, o.Checkpoint, o.Grace = d.pausing(), &Checkpoint{Signal: int(unix.SIGUSR1), Grace: time.Hour}, time.Hour
		})
		d.put(pause.Pause{Out: true})
		st := ended(t, d.slot)
		if st.Exit == nil || *st.Exit != exit || !st.Evicted || strings.HasPrefix(st.Error, "what it printed cannot be kept: ") != unkept {
			t.Errorf("exit %d: status %+v", exit, st)
		}
	}
}

// What was printed waits for room on a full disk, and has that which is held back for ends
// when the processes have ended.
func TestOutputWaitsForRoom(t *testing.T) {
	dir := t.TempDir()
	out, over := fullOutput(t), make(chan struct{})
	room, err := os.Create(dir + "/room")
	if err != nil {
		t.Fatal(err)
	}
	s := &supervisor{makeRoom: func(of string, err error) bool {
		select {
		case <-over:
		default:
			t.Error("what still runs has the room for ends")
		}
		out.file = room
		return of == dir
	}}
	written := make(chan error)
	go func() { written <- s.appendOutput(&Order{Dir: dir}, out, []byte("kept")) }()
	for range 10 {
		unix.Poll(nil, 1)
	}
	close(over)
	close(out.over)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(room.Name()); err != nil || string(got) != "kept" {
		t.Errorf("%q, %v", got, err)
	}
}

// What a stopped order has printed does not keep it from its end where no room comes: what it
// has left may fill the disk.
func TestOutputOfStoppedHasNoRoom(t *testing.T) {
	for _, s := range []*supervisor{{stopped: StoppedOrder}, {evicted: true}} {
		s.makeRoom = func(string, error) bool { return false }
		out := fullOutput(t)
		close(out.over)
		if err := s.appendOutput(&Order{}, out, []byte("lost")); !durable.NoRoom(err) {
			t.Error(err)
		}
	}
}

// fullOutput returns an output whose file is on a full disk.
func fullOutput(t *testing.T) *output {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	return &output{file: full, over: make(chan struct{})}
}

// No more of what is printed goes to the disk than may be kept, also while nobody looks at it
// and stops the order.
func TestOutputDoesNotFillTheDisk(t *testing.T) {
	t.Parallel()
	o := order(newDir(t), "")
	o.Argv[2], o.Keep = "head -c 1M /dev/zero; wc -c <"+o.Output+" >size", 4096
	st := runOrder(t, o)
	size, err := os.ReadFile(o.Cwd + "/size")
	if err != nil || strings.TrimSpace(string(size)) != "4097" {
		t.Errorf("it has %s bytes while it runs, %v", size, err)
	}
	if info, err := os.Stat(o.Output); err != nil || info.Size() != o.Keep || st.Printed != o.Keep {
		t.Errorf("%v, %v, status %+v", info.Size(), err, st)
	}
}

// The status of an order that has printed too much says so also if it was stopped: who stopped
// it for that may not live when it has ended.
func TestPrintedAndStopped(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "", "head -c 8K /dev/zero; echo up >said; exec sleep 1000", func(o *Order) { o.Keep = 4096 })
	for { // until all that is kept has come
		if info, err := os.Stat(d.order.Output); err == nil && info.Size() > d.order.Keep {
			break
		}
		unix.Poll(nil, 1)
	}
	d.slot.Stop(d.order.Token)
	if st := ended(t, d.slot); st.Stopped != StoppedOrder || st.Printed != d.order.Keep {
		t.Errorf("%+v", st)
	}
}
