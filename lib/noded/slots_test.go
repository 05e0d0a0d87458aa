package noded

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/proc"
)

// A countedSlot is a supervisor without an order.
type countedSlot struct {
	pausedSlot
	open map[int]bool
	id   int
}

func (s countedSlot) Close() error {
	delete(s.open, s.id)
	return nil
}

// TestIdleSupervisorsEnd has many jobs end at once, and then one at a time: supervisors that
// are not used go, but one.
func TestIdleSupervisorsEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _, n := oneAttempt(t, dir)
		defer d.Close()
		open := map[int]bool{}
		put := func(ids ...int) {
			n.do(func() {
				for _, id := range ids {
					open[id] = true
					n.putSlot(countedSlot{open: open, id: id})
				}
			})
		}
		use := func() (id int) {
			n.do(func() {
				n.queue = []*want{{given: make(chan struct{}), share: share{cpus: 0}}}
				w := n.queue[0]
				n.pump()
				id = w.slot.(countedSlot).id
			})
			return id
		}
		wants := func(how string, ids ...int) {
			t.Helper()
			n.do(func() {
				var got []int
				for id := range open {
					got = append(got, id)
				}
				if slices.Sort(got); !slices.Equal(got, ids) {
					t.Errorf("%s there are %v, expected %v", how, got, ids)
				}
			})
		}
		put(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		wants("after many jobs", 1, 2, 3, 4, 5, 6, 7, 8)
		time.Sleep(idleFor + 1) // in which the first came, too
		wants("after a while", 3, 4, 5, 6, 7, 8)
		first, second := use(), use()
		if first != 8 || second != 7 {
			t.Errorf("supervisors %d and %d are used", first, second)
		}
		put(second, first)
		time.Sleep(idleFor)
		wants("after another while", 7, 8)
		time.Sleep(time.Hour)
		wants("at last", 8)
		put(11)
		time.Sleep(2*idleFor + 1)
		wants("after one more", 11)
		close(n.over)
		n.work.Wait()
	})
}

// TestKilledSupervisors has somebody kill two of three supervisors without an order: no order is
// given to them.
func TestKilledSupervisors(t *testing.T) {
	n := liveDaemon(t, nil)
	slots := make([]*proc.Slot, 3)
	n.do(func() {
		for i := range slots {
			var err error
			if slots[i], err = proc.NewSlot("idle"); err != nil {
				t.Error(err)
				return
			}
			n.putSlot(slots[i])
		}
	})
	for _, s := range slots[1:] {
		if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.Reports()
	}
	_, slot, err := n.acquire(t.Context(), 1, share{cpus: 1})
	if err != nil || slot != Slot(slots[0]) {
		t.Fatalf("supervisor %v, %v; expected the one that lives", slot, err)
	}
	slot.Close()
	for range slot.Reports() {
	}
}

// TestFewWatch has so many orders run that the supervisors of further ones poll.
func TestFewWatch(t *testing.T) {
	n := liveDaemon(t, nil)
	for i := range maxWatching + 2 {
		n.do(func() { n.held[&share{}] = true })
		o := &proc.Order{Pause: &proc.Pausing{}}
		n.supervise(t.Context(), pausedSlot{make(chan proc.Report, 1)}, o, "a job", nil)
		if want := i >= maxWatching; o.Pause.Poll != want {
			t.Errorf("supervisor %d polls: %v", i, o.Pause.Poll)
		}
	}
}
