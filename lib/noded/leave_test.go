package noded

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// The head is told that an attempt is gone when it cannot be back after a power
// cut, and a session that begins before that waits with its list. Else the head
// would have closed the batch and not know what comes back.
func TestI03GoneIsDurable(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, err := desk.Open(dir, "boot")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		note := desk.Note{Order: 1, Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}
		as, errs := d.Begin([]desk.Note{note})
		if errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		hold := make(chan struct{})
		defer durable.Observe(&durable.Observer{Sync: func(f *os.File, _ bool) error {
			if filepath.Base(f.Name()) == "attempts" {
				<-hold
			}
			return nil
		}})()
		n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
		var state, hands = make(chan struct{}), make(chan struct{})
		go func() {
			defer close(state)
			for {
				select {
				case act := <-n.acts:
					act()
				case <-n.over:
					return
				}
			}
		}()
		go func() { n.takeLeave(); close(hands) }()
		first := newOutbox()
		n.do(func() {
			n.link.out = first
			a := n.add(as[0])
			a.result = &job.Result{Fate: job.FateUnstarted}
			n.have(a.Token)
		})
		synctest.Wait()
		if _, err := os.Stat(as[0].Dir); err == nil || len(first.take()) > 0 {
			t.Errorf("it is there: %v, or gone was said too early", err == nil)
		}
		n.do(func() { n.have(note.Token) }) // said again
		next := &session{out: newOutbox()}
		attached := make(chan error, 1)
		go func() { attached <- n.link.attach(t.Context(), next, &wire.Hello{}) }()
		synctest.Wait()
		if ms := append(first.take(), next.out.take()...); len(ms) > 0 {
			t.Errorf("said too early: %v", ms)
		}
		close(hold)
		synctest.Wait()
		if ms := first.take(); len(ms) != 1 || ms[0].(*wire.Gone).Attempt != note.Token {
			t.Errorf("said: %v", ms)
		}
		if err := <-attached; err != nil || len(next.out.take()) != 3 {
			t.Errorf("the list: %v", err)
		}
		close(n.over)
		<-state
		<-hands
		n.work.Wait()
	})
}
