package noded

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"distribute/lib/account"
	"distribute/lib/hours"
	"distribute/lib/pause"
	"distribute/lib/presence"
	"distribute/lib/proc"
)

// How often it is looked whether somebody is there, by what there is to lose, and
// how much time passes at least for the time of a cpu that a look has cost.
var (
	lookBusy = 2 * time.Second  // jobs run, and might stand still
	lookHeld = 10 * time.Second // they stand still, and might run
)

const (
	lookIdle = 30 * time.Second // there is nothing to run
	lookCost = 1000
)

// What a pause of the node's own begins to say, by which it is known again.
const (
	whySomebody = "somebody "
	whyHours    = "hours: "
)

// A presenceWatcher pauses the node by itself while somebody is at the machine, and at the
// hours that the node's file names.
type presenceWatcher struct {
	n      *daemon
	place  string
	ended  string
	looked atomic.Int64                 // when it looked last, after the machine's start
	rests  atomic.Bool                  // it looks rarely
	begun  chan struct{}                // there may be more to lose
	spans  atomic.Pointer[[]hours.Span] // of the config

	mu      sync.Mutex // held while it looks; guards what follows
	config  presence.Config
	watcher *presence.Watcher
	active  ownReason     // somebody is there
	closed  ownReason     // it is one of the hours
	cost    time.Duration // of a cpu, of the last look
	left    time.Duration // after that look, until somebody counts as gone
	failed  string        // what was complained of last
}

// An ownReason is a pause that the watcher makes for one reason.
type ownReason struct {
	pause     pause.Pause
	on        bool // it is there
	overruled bool // somebody has ended it while the reason held
}

// beginWatch looks whether somebody is there, before anything is started, and goes
// on with that. What an earlier daemon has put there is taken up.
func (n *daemon) beginWatch(ctx context.Context) {
	if !n.Pauses {
		return
	}
	dir := n.desk.Dir()
	w := &presenceWatcher{n: n, place: pause.OwnPlace(dir), ended: pause.EndedOf(dir), begun: make(chan struct{}, 1)}
	n.watcher = w
	w.set(n.Presence)
	w.takeUp()
	w.look(ctx, true)
	n.work.Go(func() { w.run(ctx) })
}

// watchOver sets anew when the node pauses by itself.
func (n *daemon) watchOver(c presence.Config) {
	if w := n.watcher; w != nil {
		w.mu.Lock()
		w.set(c)
		w.mu.Unlock()
		n.do(n.tellOffer) // with the next of the hours
		w.looked.Store(0)
		tell(w.begun) // and look at once
	}
}

// set has the watcher go by c.
func (w *presenceWatcher) set(c presence.Config) {
	h := w.n.Host
	if h.Name == nil {
		names := map[int]string{}
		h.Name = func(uid int) string {
			if names[uid] == "" {
				names[uid] = account.UserName(uid)
			}
			return names[uid]
		}
	}
	if h.Path == "" {
		h.Path = w.n.Path
	}
	h.Log = func(source string, err error) {
		if errors.Is(err, presence.ErrAbsent) {
			w.n.Log.Info("this source of presence is not available on this machine", "source", source, "why", err)
		} else {
			w.n.Log.Warn("cannot read a source of presence", "source", source, "why", err)
		}
	}
	w.config, w.watcher = c, presence.New(c, h)
	w.spans.Store(&c.Hours)
}

// soon is in how many seconds the node pauses by its hours next, 0 if it has none.
func (w *presenceWatcher) soon() float64 {
	if w == nil {
		return 0
	}
	now := time.Now()
	next := hours.Next(*w.spans.Load(), now)
	if next.IsZero() {
		return 0
	}
	return next.Sub(now).Seconds()
}

// takeUp takes up the pauses of an earlier daemon on this directory. Whoever was
// there when that saw him counts as there now.
func (w *presenceWatcher) takeUp() {
	own, err := w.own()
	w.complain(err)
	for _, p := range own {
		into := &w.active
		if strings.HasPrefix(p.Why, whyHours) {
			into = &w.closed
		}
		if into.on {
			w.complain(pause.Remove(p))
			continue
		}
		into.pause, into.on = p, true
	}
	if w.active.on {
		w.watcher.Recall(proc.Uptime())
	}
}

// own is the node's own pauses that hold.
func (w *presenceWatcher) own() ([]pause.Pause, error) {
	s, err := (&pause.Reader{Places: []string{w.place}, Ended: w.ended}).Read()
	return slices.DeleteFunc(s.Live, func(p pause.Pause) bool {
		return p.UID != os.Geteuid() || !strings.HasPrefix(p.Why, whySomebody) && !strings.HasPrefix(p.Why, whyHours)
	}), err
}

// run looks as often as there is something to lose.
func (w *presenceWatcher) run(ctx context.Context) {
	for {
		timer := time.NewTimer(w.every())
		select {
		case <-timer.C:
			w.look(ctx, false)
		case <-w.begun:
			w.look(ctx, true)
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// every is how long to wait for the next look.
func (w *presenceWatcher) every() time.Duration {
	busy := false
	w.rests.Store(true)
	w.n.do(func() { busy = !w.n.pause.frozen && len(w.n.allRunning()) > 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.config.Any() && !w.active.on && !w.closed.on {
		return never
	}
	d := lookIdle
	switch {
	case w.active.on:
		d = min(lookHeld, w.left)
	case busy && w.config.AutoPause > 0:
		w.rests.Store(false)
		d = max(lookBusy, min(lookHeld, lookCost*w.cost))
	}
	now := time.Now()
	if next := hours.Next(w.config.Hours, now); !next.IsZero() {
		d = min(d, next.Sub(now))
	}
	if until, _, in := hours.Within(w.config.Hours, now); in {
		d = min(d, until.Sub(now))
	}
	return max(d, time.Millisecond)
}

// stir has the watcher look more often, if something runs.
func (w *presenceWatcher) stir() {
	if w != nil && w.rests.Swap(false) {
		tell(w.begun)
	}
}

// lookFirst looks before something is started, if that has not just been done.
func (w *presenceWatcher) lookFirst(ctx context.Context) {
	if w == nil || proc.Uptime()-time.Duration(w.looked.Load()) < lookBusy {
		return
	}
	w.look(ctx, true)
}

// look looks, and sees to the node's own pauses.
func (w *presenceWatcher) look(ctx context.Context, fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if fresh && proc.Uptime()-time.Duration(w.looked.Load()) < lookBusy && w.looked.Load() > 0 {
		return // somebody else did meanwhile
	}
	defer func() { w.looked.Store(int64(proc.Uptime())) }()
	w.missed()
	now := time.Now()
	until, text, in := hours.Within(w.config.Hours, now)
	w.see(&w.closed, in, whyHours+text, until)
	v := presence.Verdict{}
	if w.config.AutoPause > 0 {
		var err error
		if v, err = w.watcher.Look(ctx, fresh); err != nil {
			w.complain(err)
			return
		}
	}
	w.left, w.cost = v.Left, v.Cost
	w.see(&w.active, v.Here, v.What, time.Time{})
}

// missed notes which of the watcher's pauses somebody has ended.
func (w *presenceWatcher) missed() {
	if !w.active.on && !w.closed.on {
		return
	}
	own, err := w.own()
	if w.complain(err); err != nil {
		return
	}
	for _, x := range []*ownReason{&w.active, &w.closed} {
		if x.on && !slices.ContainsFunc(own, func(p pause.Pause) bool { return p.ID == x.pause.ID }) {
			x.on = false
			if end := x.pause.Until; end.IsZero() || time.Now().Before(end) {
				x.overruled = true
				w.n.Log.Info("the node's own pause was ended by somebody; jobs run until its reason is over", "why", x.pause.Why)
			}
		}
	}
}

// see makes a pause while its reason holds, and ends it after.
func (w *presenceWatcher) see(x *ownReason, holds bool, why string, until time.Time) {
	switch {
	case holds && !x.overruled && (!x.on || !x.pause.Until.Equal(until)):
		c, err := pause.Here()
		if err != nil {
			w.complain(err)
			return
		}
		p := pause.To(c, until)
		p.Why = why
		put, err := pause.Put(w.place, p)
		if err != nil && w.n.desk.MakeRoom(err) {
			put, err = pause.Put(w.place, p)
		}
		if w.complain(err); err != nil {
			return
		}
		if x.on {
			w.complain(pause.Remove(x.pause))
		}
		x.pause, x.on = put, true
	case !holds:
		if x.overruled {
			x.overruled = false
			w.n.Log.Info("reason of the node's own pause is over", "why", x.pause.Why)
		}
		if x.on {
			err := pause.Remove(x.pause)
			if w.complain(err); err == nil {
				x.on = false
			}
		}
	}
}

// complain says once what is wrong.
func (w *presenceWatcher) complain(err error) {
	if err == nil {
		return
	}
	if text := err.Error(); text != w.failed {
		w.failed = text
		w.n.Log.Error("cannot update the node's own pauses; trying again", "why", err)
	}
}
