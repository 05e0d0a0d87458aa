package proc

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"time"

	"distribute/lib/pause"
)

// A lookout is how a supervisor learns of pauses. It is kept from one order to the
// next, as long as they go by the same places.
type lookout struct {
	of Pausing
	pause.Reader
	news  <-chan struct{} // something may have changed
	close context.CancelFunc
	state pause.State // as it was read last, for the order at hand
}

// lookFrom has the supervisor look where the order's pauses are. It must be called
// before they are read the first time, so that nothing is missed in between. Nil
// is for an order that is never paused.
func (s *supervisor) lookFrom(o *Order) *lookout {
	if s.out != nil && (o.Pause == nil || !s.out.same(o.Pause)) {
		s.out.close()
		s.out = nil
	}
	if s.out == nil && o.Pause != nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.out = &lookout{news: pause.Watch(ctx, o.Pause.Places, o.Pause.Ended, o.Pause.Owners), close: cancel}
		s.out.Reader = pause.Reader{Places: o.Pause.Places, Ended: o.Pause.Ended, Owners: o.Pause.Owners}
	}
	if s.out == nil {
		return nil
	}
	s.out.of = *o.Pause
	// What was told until now is seen by whoever reads now.
	for _, told := range []<-chan struct{}{s.out.news, s.look} {
		select {
		case <-told:
		default:
		}
	}
	return s.out
}

// same says whether the places of p are those that are looked at.
func (l *lookout) same(p *Pausing) bool {
	return l.of.Ended == p.Ended && l.of.Owners == p.Owners && slices.Equal(l.of.Places, p.Places)
}

// read reads the pauses that count for the order at hand. With an error something of them
// could not be read.
func (l *lookout) read() error {
	state, err := l.Read()
	l.state = state.For(l.of.Attempt)
	return err
}

// errPaused is why an order is not begun: it can be given again.
var errPaused = errors.New("paused")

// ArgvHeld is the name of a supervisor, as /proc/PID/comm has it, while it holds the whole
// of a tree that is in no cgroup: nobody else can tell.
const ArgvHeld = Argv0 + "="

// HoldsTree says whether the process pid, which was started at start, is a supervisor that
// holds its tree, or lives no more.
func HoldsTree(pid int, start uint64) bool {
	p, comm, err := statNamed(pid)
	return err != nil || p.start != start || p.gone() || comm == ArgvHeld
}

// call sets what this process is called.
func call(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// mayStart says whether the machine is paused as far as the order goes.
func (l *lookout) mayStart() error {
	if l == nil {
		return nil
	}
	err := l.read()
	wants := l.demand()
	switch {
	case wants.frozen || wants.out:
		return &notBegunError{errPaused}
	case err != nil:
		return notBegun(err)
	}
	return nil
}

// A demand is what the pauses of a moment mean for an order.
type demand struct {
	frozen bool
	out    bool
	cpus   []int         // what of the machine's is left to jobs; nil: all
	memory int64         // bytes, likewise; 0: all
	stays  time.Duration // how long that is so by itself; 0: for ever
}

// demand works out what the pauses want. The cpus that are given back are the last
// ones that the node offers; who wants all of them, or all of the memory, wants
// that nothing runs.
func (l *lookout) demand() demand {
	d := demand{frozen: l.state.Frozen(), out: l.state.Out()}
	if next, ok := l.state.Next(); ok {
		d.stays = max(next, time.Millisecond)
	}
	give := l.of.Part.Gives(l.state)
	if give.CPUs > 0 && len(l.of.CPUs) > 0 {
		if d.cpus = l.of.CPUs[:max(0, len(l.of.CPUs)-give.CPUs)]; len(d.cpus) == 0 {
			d.frozen = true
		}
	}
	if give.Memory > 0 && l.of.Memory > 0 {
		if d.memory = l.of.Memory - give.Memory; d.memory <= 0 {
			d.frozen = true
		}
	}
	return d
}

// same says whether two demands ask for the same.
func (d demand) same(e demand) bool {
	d.stays = e.stays
	return reflect.DeepEqual(d, e)
}
