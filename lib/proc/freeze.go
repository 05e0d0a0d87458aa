package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A tree is the processes of an order, which pauses hold and let go: by the
// freezer of their group, which holds all at one instant however fast they fork,
// and by signals those that are in no group, or have left it.
type tree struct {
	group *group // nil: there is none
	halt  *halt
	told  func() // called in hold when it is worth while to look at the tree; nil: nobody
}

func newTree(g *group) *tree { return &tree{group: g, halt: newHalt(os.Getpid())} }

// hold holds every process of the tree, and says how many run on, which was tried
// for patientFor: those are in the kernel, and do not run a program's instructions
// once they come out of it, or may not be signalled. It can be called again, and
// is cheap then. It returns early when over is closed.
func (t *tree) hold(over <-chan struct{}) (running int, err error) {
	t.halt.other, t.halt.few, t.halt.told = nil, manyPasses, t.told
	if t.group == nil {
		return t.halt.hold(over)
	}
	running, err = t.group.freeze(over)
	if err != nil {
		// The group is gone, or not ours any more. What there is can be stopped.
		return t.halt.hold(over)
	}
	if t.told != nil {
		t.told()
	}
	members := t.group.members()
	t.halt.other = func(pid int) bool { return members[pid] }
	t.halt.few = 2
	strays, err := t.halt.hold(over)
	return running + strays, err
}

// release lets every process of the tree go on that hold has held, but for those
// that were stopped before.
func (t *tree) release() error {
	var err error
	if t.group != nil {
		if err = t.group.thaw(); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			err = nil // what was in it has moved
		}
	}
	t.halt.release()
	return err
}

// freeze has the kernel hold what is in the group and below it: no process comes
// back to its program from then on. It returns how many still run in the kernel
// after patientFor.
func (g *group) freeze(over <-chan struct{}) (running int, err error) {
	if err := command(g.dir, "cgroup.freeze", "1"); err != nil {
		return 0, err
	}
	f, err := os.Open(filepath.Join(g.dir, "cgroup.events"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	spent, boost := lastRuntimes{}, boost{}
	defer boost.lower()
	for begin := time.Now(); ; {
		var b [256]byte
		n, err := f.ReadAt(b[:], 0)
		switch {
		case bytes.Contains(b[:n], []byte("frozen 1")):
			return 0, nil
		case n == 0:
			return 0, err
		}
		select {
		case <-over:
			return 1, nil
		default:
		}
		if waited := time.Since(begin); waited > idleFor {
			if running = g.busy(spent, &boost); running == 0 || waited > patientFor {
				return running, nil
			}
		}
		// The kernel says so when that changes.
		unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}, 10)
	}
}

// stands says whether what hold has held stands still, as far as a glance at what
// was there then tells. It costs a file of /proc for each process that no group
// holds.
func (t *tree) stands() bool {
	if t.group != nil && t.halt.other != nil && !GroupFrozen(t.group.dir) {
		return false
	}
	return t.halt.stands()
}

// thaw has the kernel let go what freeze held.
func (g *group) thaw() error {
	return command(g.dir, "cgroup.freeze", "0")
}

// members is the processes in the group and in those below it.
func (g *group) members() map[int]bool {
	pids := map[int]bool{}
	filepath.WalkDir(g.dir, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // a group of threads has none
		for f := range bytes.FieldsSeq(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				pids[pid] = true
			}
		}
		return nil
	})
	return pids
}

// busy is how many processes of the group run, though they are to be held. What
// waits for a processor is helped to one.
func (g *group) busy(spent lastRuntimes, boost *boost) (n int) {
	for pid := range g.members() {
		p, err := stat(pid)
		if err != nil || p.gone() || spent.idle(p) {
			continue
		}
		if n++; p.state == 'R' {
			boost.raise(pid)
		}
	}
	return n
}
