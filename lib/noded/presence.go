package noded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"distribute/lib/durable"
	"distribute/lib/hours"
	"distribute/lib/pause"
	"distribute/lib/presence"
)

// presenceEvery is how often a node looks whether it is to pause by itself.
var presenceEvery = 2 * time.Second

// A presenceWatcher pauses the node while somebody is at the machine, and at the
// hours that the node's file names.
type presenceWatcher struct {
	n        *daemon
	reader   pause.Reader    // of all places, as owners may end the pauses from any
	config   presence.Config // that watcher was made for
	watcher  *presence.Watcher
	somebody ownReason // somebody is at the machine
	hours    ownReason // it is one of the hours
	kept     []byte    // what is in the file of keepOwn; nil: it is not there
	failed   string    // the error that was logged last
}

// An ownReason is one of the reasons for which a node pauses itself. It has one
// pause, in a file, while the reason holds.
type ownReason struct {
	prefix    string    // of the Why of its pauses, by which they are recognized
	id        string    // of its pause; empty: it has none
	until     time.Time // when that ends by itself; zero: it does not
	overruled bool      // somebody has ended the pause while the reason held
	last      ownPaused // its last pause, while the reason holds, also if somebody has ended that
}

// An ownPaused is what is kept of a pause that the node has made, so that the next daemon
// knows whether somebody has ended it.
type ownPaused struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until,omitzero"` // when it ends by itself; zero: it does not
	Boot  string    `json:"boot"`
}

// name returns the name of the reason.
func (r *ownReason) name() string { return strings.TrimRight(r.prefix, ": ") }

func newPresenceWatcher(n *daemon) *presenceWatcher {
	dir := n.desk.Dir()
	return &presenceWatcher{n: n, reader: pause.Reader{Places: pause.PlacesOf(dir), Ended: pause.EndedOf(dir), Owners: pause.OwnersOf(dir)},
		somebody: ownReason{prefix: "somebody "}, hours: ownReason{prefix: "hours: "}}
}

// beginWatch looks whether the node is to pause by itself, before anything is
// started, and again every presenceEvery.
func (n *daemon) beginWatch(ctx context.Context) {
	if !n.Pauses {
		return
	}
	w := newPresenceWatcher(n)
	w.readOwn()
	w.look(ctx)
	n.work.Go(func() {
		for {
			wait := presenceEvery
			if c := n.given().Presence; !c.Any() && w.failed == "" {
				wait = never
			}
			select {
			case <-time.After(wait):
			case <-n.presenceNews:
			case <-ctx.Done():
				return
			}
			w.look(ctx)
		}
	})
}

// nextHours is in how many seconds the node pauses by its hours next, 0 if it has none.
func (n *daemon) nextHours() float64 {
	next := hours.Next(n.given().Presence.Hours, hours.Local(time.Now()))
	if !n.Pauses || next.IsZero() {
		return 0
	}
	return time.Until(next).Seconds()
}

// look looks, makes and removes the node's own pauses, and logs an error once.
func (w *presenceWatcher) look(ctx context.Context) {
	text := ""
	if err := w.update(ctx); err != nil {
		if text = err.Error(); text != w.failed {
			w.n.Log.Error("cannot update the node's own pauses; trying again", "why", err)
		}
	}
	w.failed = text
}

// update makes the node's own pauses whose reasons hold, and removes the others.
func (w *presenceWatcher) update(ctx context.Context) error {
	s, err := w.reader.Read()
	if err != nil {
		return err
	}
	c := w.n.given().Presence
	if w.watcher == nil || c.AutoPause != w.config.AutoPause || !slices.Equal(c.Sources, w.config.Sources) {
		h := w.n.Host
		h.Log = w.n.Log
		w.config, w.watcher = c, presence.New(c, h)
		if len(w.somebody.pauses(s, w.place())) > 0 { // an earlier daemon, or the earlier watcher, saw somebody
			w.watcher.Assume()
		}
	}
	until, text, in := hours.Within(c.Hours, hours.Local(s.At.Now))
	if in {
		text = w.hours.prefix + text
	}
	why := w.watcher.Look(ctx)
	if ctx.Err() != nil {
		return nil // dnoded ends: a source that was interrupted says nothing
	}
	passed := !w.hours.until.IsZero() && !s.At.Now.Before(w.hours.until)
	return errors.Join(w.updatePause(&w.hours, s, text, until, passed), w.updatePause(&w.somebody, s, why, time.Time{}, w.watcher.Returned()), w.keepOwn())
}

// reasons returns the reasons for which the node pauses itself.
func (w *presenceWatcher) reasons() []*ownReason { return []*ownReason{&w.hours, &w.somebody} }

// maxKept is the size in bytes of the largest file of these pauses that is read.
const maxKept = 1 << 20

// readOwn reads what an earlier daemon has kept of its pauses. Of one without an end it counts
// only in the same boot: nobody knows how long its reason held.
func (w *presenceWatcher) readOwn() {
	b, err := durable.ReadFile(pause.MadeOf(w.n.desk.Dir()), maxKept)
	if err != nil {
		return
	}
	var all map[string]ownPaused
	if err := json.Unmarshal(b, &all); err != nil {
		w.n.Log.Warn("cannot read which pauses the node has made", "why", err)
	}
	w.kept = b
	for _, r := range w.reasons() {
		if p := all[r.name()]; !p.Until.IsZero() || p.Boot == w.n.boot {
			r.id, r.until, r.last = p.ID, p.Until, p
		}
	}
}

// keepOwn keeps durably which pauses the node has made, if that has changed.
func (w *presenceWatcher) keepOwn() error {
	all := map[string]ownPaused{}
	for _, r := range w.reasons() {
		if r.last.ID != "" {
			all[r.name()] = r.last
		}
	}
	name := pause.MadeOf(w.n.desk.Dir())
	if len(all) == 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		w.kept = nil
		return nil
	}
	b, err := json.Marshal(all)
	if b = append(b, '\n'); err != nil || bytes.Equal(b, w.kept) {
		return err
	}
	err = durable.WriteFile(name, b, 0o644)
	if err != nil && w.n.desk.MakeRoom(err) {
		err = durable.WriteFile(name, b, 0o644)
	}
	if err == nil {
		w.kept = b
	}
	return err
}

// place returns the node's own place.
func (w *presenceWatcher) place() string { return pause.OwnPlace(w.n.desk.Dir()) }

// pauses returns the pauses in its own place that the node has made for the reason.
func (r *ownReason) pauses(s pause.State, place string) (mine []pause.Pause) {
	for _, p := range s.Live {
		// On a full disk a pause is kept without its Why.
		if p.UID == os.Geteuid() && p.Place == place && (p.ID == r.id || strings.HasPrefix(p.Why, r.prefix)) {
			mine = append(mine, p)
		}
	}
	return mine
}

// updatePause makes the pause of a reason that holds, which why says, and removes it if
// why is empty. It does not make one again that somebody has ended while the reason
// holds. Again says that the reason was over since the last look, and has come again, as while
// the machine slept.
func (w *presenceWatcher) updatePause(r *ownReason, s pause.State, why string, until time.Time, again bool) error {
	mine := r.pauses(s, w.place())
	if why != "" && r.id != "" && len(mine) == 0 && !again {
		r.overruled = true
		w.n.Log.Info("the node's own pause was ended by somebody; jobs run until its reason is over", "why", why)
	}
	if r.overruled && (why == "" || again) {
		r.overruled = false
		w.n.Log.Info("reason of the node's own pause is over", "reason", r.name())
	}
	id := ""
	if why != "" && !r.overruled {
		i := slices.IndexFunc(mine, func(p pause.Pause) bool { return p.Until.Equal(until) })
		if i >= 0 {
			id = mine[i].ID
			mine = slices.Delete(mine, i, i+1)
		} else {
			p := pause.To(s.At, until)
			p.Why = why
			put, err := w.n.putPause(p)
			if err != nil {
				return err
			}
			id = put.ID
		}
	}
	for _, p := range mine {
		if err := pause.Remove(p); err != nil {
			return err
		}
	}
	r.id, r.until = id, until
	switch {
	case id != "":
		r.last = ownPaused{id, until.UTC(), w.n.boot}
	case why == "":
		r.last = ownPaused{}
	}
	return nil
}

// putPause puts a pause into the node's own place. If the disk is full it gives up
// the ballast and tries again.
func (n *daemon) putPause(p pause.Pause) (pause.Pause, error) {
	place := pause.OwnPlace(n.desk.Dir())
	put, err := pause.Put(place, p)
	if err != nil && n.desk.MakeRoom(err) {
		put, err = pause.Put(place, p)
	}
	return put, err
}
