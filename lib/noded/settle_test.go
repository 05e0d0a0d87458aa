package noded

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"

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
		n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: slog.New(slog.DiscardHandler)}, d)
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
			if as[1].loose || as[2].loose || n.settling {
				t.Error("not noted")
			}
		})
		close(end)
	})
}
