package noded

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
)

// Results of short attempts that nobody takes are made durable, all by one sync,
// and nobody wakes up for it when none waits: a node that waits for its head for
// hours does not lose them with its power, which would be the end of a job that
// must not be started twice.
func TestL36WaitingIsMadeDurable(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, err := desk.Open(dir, "boot")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		synced := make(chan bool)
		defer durable.Observe(&durable.Observer{Sync: func(_ *os.File, all bool) error {
			synced <- all
			return nil
		}})()
		n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
		end := make(chan struct{})
		go func() {
			for {
				select {
				case act := <-n.acts:
					act()
				case <-end:
					return
				}
			}
		}()
		var as []*attempt
		n.do(func() {
			for range 3 {
				a := n.add(&desk.Attempt{Note: desk.Note{Token: job.NewToken(), CPUs: 1}})
				a.result = &job.Result{}
				n.settleLater(a)
				as = append(as, a)
			}
			delete(n.attempts, as[0].Token) // home at once
		})
		if all := <-synced; !all {
			t.Error("not all is synced")
		}
		n.work.Wait() // there is nothing to wake up for any more, and no second sync
		n.do(func() {
			if len(n.loose) > 0 || n.settling {
				t.Error("not noted")
			}
			n.settleLater(as[1])
		})
		time.Sleep(settleEvery + 1) // it is looked at, and then comes home
		n.do(func() { delete(n.attempts, as[1].Token) })
		n.work.Wait() // without a sync
		close(end)
	})
}

// What an attempt of some seconds left is made durable at once, and tried again
// if the disk does not take it.
func TestL36LongIsMadeDurableAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, err := desk.Open(dir, "boot")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		as, errs := d.Begin([]desk.Note{{Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var seen []string
		broken := true
		defer durable.Observe(&durable.Observer{Sync: func(f *os.File, all bool) error {
			mu.Lock()
			defer mu.Unlock()
			if seen = append(seen, strings.TrimPrefix(f.Name(), as[0].Dir)); broken {
				return syscall.EIO
			}
			return nil
		}})()
		n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
		end := make(chan struct{})
		go func() {
			for {
				select {
				case act := <-n.acts:
					act()
				case <-end:
					return
				}
			}
		}()
		var a *attempt
		n.do(func() { a = n.add(as[0]) })
		began := time.Now()
		if err := n.keep(&attemptRun{attempt: a}, &job.Result{}, nil, true); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		if time.Since(began) > 0 || !slices.Contains(seen, "/attempt.jsonl") {
			t.Errorf("after %v %q is synced", time.Since(began), seen)
		}
		broken, seen = false, nil
		mu.Unlock()
		n.work.Wait()
		if len(seen) == 0 || len(n.loose) > 0 {
			t.Errorf("it was not tried again: %q", seen)
		}
		close(end)
	})
}
