package head

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/wire"
)

// A head that ends answers no tool that asks it then: the tool would take the answer for true, and
// not ask again when the head is back.
func TestEndingHeadAnswersNothing(t *testing.T) {
	for name, ask := range map[string]wire.Message{
		"jobs":    &wire.Query{Of: "jobs"},
		"batches": &wire.Query{Of: "batches"},
		"follow":  &wire.Query{Of: "jobs", Follow: true, Until: "over"},
		"nodes":   &wire.Query{Of: "nodes"},
		"log":     &wire.Log{ID: "ana/b/a"},
		"cancel":  &wire.Change{Ref: job.NewToken(), Verb: "cancel", Args: []string{"job=*"}},
		"taken":   &wire.Change{Ref: job.NewToken(), Verb: "claim", Node: "slurm:hpc", Folder: job.NewToken(), Dry: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newState(t)
				made(t, h, "ana/b", "a")
				ctx, stop := context.WithCancel(t.Context())
				go h.run(ctx)
				m, c, ended := serves(t, h)
				stop()
				<-h.over.Done()
				if err := c.Send(ask); err != nil {
					t.Fatal(err)
				}
				for {
					answer, err := c.Recv()
					if err != nil {
						break
					}
					switch answer := answer.(type) {
					case *wire.Send:
					default:
						t.Errorf("it answers %T %+v", answer, answer)
					}
				}
				m.Close()
				<-ended
			})
		})
	}
}

// A tool that comes to a head that ends is told nothing of limits.
func TestEndingHeadTakesNoSession(t *testing.T) {
	h := newState(t)
	h.stop()
	err := h.admit(dial.Peer{UID: os.Getuid(), User: "ana", Proven: true})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("it says %v", err)
	}
}
