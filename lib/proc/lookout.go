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
	of      []Pausing // of each node on which the order is
	readers []*pause.Reader
	states  []pause.State   // as they were read last, for the order at hand
	news    <-chan struct{} // something may have changed
	close   context.CancelFunc
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
		s.out = &lookout{close: cancel}
		var places, files []string
		for _, p := range o.Pause.nodes() {
			s.out.readers = append(s.out.readers, &pause.Reader{Places: p.Places, Ended: p.Ended, Owners: p.Owners, Seen: p.Seen})
			places, files = append(places, p.Places...), append(files, p.Ended, p.Owners, p.Seen, p.Offer)
		}
		slices.Sort(places)
		follow := pause.Watch
		if o.Pause.Poll {
			follow = pause.Poll
		}
		s.out.news = follow(ctx, slices.Compact(places), files...)
	}
	if s.out == nil {
		return nil
	}
	s.out.of = o.Pause.nodes()
	// What was told until now is seen by whoever reads now.
	for _, told := range []<-chan struct{}{s.out.news, s.look} {
		select {
		case <-told:
		default:
		}
	}
	return s.out
}

// same says whether the places of p are those that are looked at, in its way.
func (l *lookout) same(p *Pausing) bool {
	return slices.EqualFunc(l.of, p.nodes(), func(p, q Pausing) bool {
		return p.Poll == q.Poll && p.Ended == q.Ended && p.Owners == q.Owners && p.Seen == q.Seen && p.Offer == q.Offer && slices.Equal(p.Places, q.Places)
	})
}

// read reads the pauses that count for the order at hand. With an error something of them
// could not be read.
func (l *lookout) read() error {
	var all []error
	l.states = l.states[:0]
	for i, r := range l.readers {
		state, err := r.Read()
		l.states, all = append(l.states, state.For(l.of[0].Attempt)), append(all, err)
		l.of[i].renew()
	}
	return errors.Join(all...)
}

// renew takes in what the node offers now, which can have changed since the order began.
func (p *Pausing) renew() {
	if o, err := pause.ReadOffer(p.Offer); err == nil {
		p.CPUs, p.Memory, p.Part = o.CPUs, o.Memory, o.Part
	}
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
// that nothing runs. Jobs that are all to leave have all memory for that. An order that
// is to leave alone leaves while nothing has the jobs of its nodes frozen.
func (l *lookout) demand() demand {
	var d demand
	left, leaves := []int{}, false
	for i, o := range l.of {
		s := l.states[i]
		alone := func(p pause.Pause) bool { return p.Out && p.Attempt != "" }
		leaves = leaves || slices.ContainsFunc(s.Live, alone)
		s.Live = slices.DeleteFunc(slices.Clone(s.Live), alone)
		d.frozen, d.out = d.frozen || s.Frozen(), d.out || s.Out()
		if next, ok := s.Next(); ok && (d.stays == 0 || next < d.stays) {
			d.stays = max(next, time.Millisecond)
		}
		give, cpus := o.Part.Gives(s), o.CPUs
		if n := o.Part.Loses(s); n > 0 && len(cpus) > 0 {
			cpus = cpus[:max(0, len(cpus)-n)]
			d.frozen = d.frozen || len(cpus) == 0 || o.Part.Whole(give)
		}
		if left = append(left, cpus...); len(cpus) < len(o.CPUs) || d.cpus != nil {
			d.cpus = left
		}
		if give.Memory > 0 && o.Memory > 0 {
			d.memory = max(1, o.Memory-give.Memory)
			d.frozen = d.frozen || d.memory == 1
		}
	}
	switch {
	case d.out:
		d.memory = 0
	case leaves && !d.frozen:
		d.frozen, d.out = true, true
	}
	return d
}

// same says whether two demands ask for the same.
func (d demand) same(e demand) bool {
	d.stays = e.stays
	return reflect.DeepEqual(d, e)
}
