package proc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"time"

	"distribute/lib/pause"
)

// A lookout is how a supervisor learns of pauses. It is kept from one order to the
// next, as long as they go by the same places.
type lookout struct {
	of    Pausing
	news  <-chan struct{} // something may have changed
	close context.CancelFunc
	last  pause.State // as far as it could be read
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
	}
	if s.out == nil {
		return nil
	}
	s.out.of, s.out.last = *o.Pause, pause.State{}
	// What was told until now is seen by whoever reads now.
	select {
	case <-s.out.news:
	default:
	}
	select {
	case <-s.look:
	default:
	}
	return s.out
}

// same says whether the places of p are those that are looked at.
func (l *lookout) same(p *Pausing) bool {
	return l.of.Ended == p.Ended && l.of.Owners == p.Owners && slices.Equal(l.of.Places, p.Places)
}

// read is what the places say now. With an error something of it could not be
// read: then what was known of that before holds on until its time is over.
func (l *lookout) read() (pause.State, error) {
	now, err := pause.Here()
	if err != nil {
		return l.last.For(l.of.Attempt), err
	}
	unknown := l.learnOwners()
	var may func(int) bool
	if l.of.Pausers != nil {
		may = func(uid int) bool { return slices.Contains(l.of.Pausers, uid) }
	}
	state, err := pause.Read(now, l.of.Places, l.of.Ended, may)
	err = errors.Join(unknown, err)
	if err != nil {
		state = state.Keep(l.last)
	}
	l.last = state
	return state.For(l.of.Attempt), err
}

// learnOwners has the order go by who may pause now. With an error those may who
// were known before.
func (l *lookout) learnOwners() error {
	if l.of.Owners == "" {
		return nil
	}
	uids, err := pause.ReadOwners(l.of.Owners)
	switch {
	case err == nil:
		l.of.Pausers = uids
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// errPaused is why an order is not begun: it can be given again.
var errPaused = errors.New("paused")

// ArgvStarting is the name of a supervisor, as /proc/PID/comm has it, while it
// starts an order: it may have looked for pauses and found none, and not started
// yet what it then sees to. Who wants to know that nothing runs, or will run, waits
// until it has its usual name again.
const ArgvStarting = Argv0 + "+"

// ArgvHeld is the name of a supervisor while it holds its tree for a pause, from
// when most of it has stopped, or will not for a while. To look at the tree is worth
// while then, and not before: who looks takes the processor on which jobs are to
// stop.
const ArgvHeld = Argv0 + "="

// supervises says whether a process of this name is a supervisor, or calls itself one.
func supervises(comm string) bool {
	return comm == Argv0 || comm == ArgvStarting || comm == ArgvHeld
}

// call sets what this process is called.
func call(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// mayStart says whether the machine is paused as far as the order goes.
func (l *lookout) mayStart() error {
	if l == nil {
		return nil
	}
	state, err := l.read()
	wants := l.demand(state)
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
func (l *lookout) demand(state pause.State) demand {
	d := demand{frozen: state.Frozen(), out: state.Out()}
	if next, ok := state.Next(); ok {
		d.stays = max(next, time.Millisecond)
	}
	give := l.of.Part.Gives(state)
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
