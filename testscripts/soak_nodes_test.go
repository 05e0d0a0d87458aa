package testscripts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/proc"
	"distribute/lib/suite"
)

const (
	soakNodes  = 1000
	soakJobs   = 5 * soakNodes   // jobs
	backWithin = 2 * time.Minute // as dwire(5) promises
)

// T86, at the size that the head is made for: a thousand nodes, whose jobs are
// no processes and everything else is as on a desk, lose their head at once and
// come back, while the head answers who asks.
func TestSoakNodes(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		suite.Long(t, "make soak")
	}
	l := newLab(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	nodes := idleNodes(t, ctx, l, soakNodes)
	defer nodes.Wait()
	defer stop()
	l.within(backWithin, func() bool { return l.connected() == soakNodes })
	t.Logf("%d nodes: the head has %.0f MiB", soakNodes, resident(t, l.head.Process.Pid, "VmRSS")/(1<<20))

	c := l.command("dsubmit", "-qw", "-R", "cpus=1", "-b", "ns/all", "--", "true", "{}")
	c.Stdin = strings.NewReader(numbers(soakJobs))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if err := l.head.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l.head.Wait()
	l.startHead()
	began, asked, slowest := time.Now(), 0, time.Duration(0)
	l.within(backWithin, func() bool {
		at := time.Now()
		n := l.connected() // it fails the test if the head does not answer
		asked, slowest = asked+1, max(slowest, time.Since(at))
		return n == soakNodes
	})
	t.Logf("all are back after %.1f s; %d queries meanwhile, the slowest took %v", time.Since(began).Seconds(), asked, slowest.Round(time.Millisecond))
	if got := strings.Count(l.run("dquery", "ns/all", "state=done"), "\n"); got != soakJobs {
		t.Errorf("%d of %d jobs are done", got, soakJobs)
	}
}

// idleNodes starts n nodes, which end with ctx.
func idleNodes(tb testing.TB, ctx context.Context, l *lab, n int) *sync.WaitGroup {
	var nodes sync.WaitGroup
	for i := range n {
		name := fmt.Sprintf("n%04d", i)
		nodes.Go(func() {
			if err := noded.Run(ctx, noded.Settings{Addr: l.spool(), Name: node.Name(name), Offer: node.Offer{CPUs: 1},
				Dir: filepath.Join(l.dir, name), Log: slog.New(slog.DiscardHandler), Machine: idleMachine{}}); err != nil {
				tb.Errorf("%s: %v", name, err)
			}
		})
	}
	return &nodes
}

// connected is how many nodes are there, as the head says.
func (l *lab) connected() int {
	l.tb.Helper()
	c := l.command("dquery", "-N", "state=idle,busy")
	var talk strings.Builder
	c.Stderr = &talk
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: none yet
		l.tb.Fatalf("the head does not answer: %v: %s", err, talk.String())
	}
	return strings.Count(string(out), "\n")
}

// idleMachine is a machine on which a job is over as soon as it is given, with
// exit status 0 and nothing printed.
type idleMachine struct{}

func (idleMachine) Boot() (string, error)                        { return "boot", nil }
func (idleMachine) ID() string                                   { return "" }
func (idleMachine) Stays(string) bool                            { return false }
func (idleMachine) Cgroup(string, string) (string, error)        { return "", errors.ErrUnsupported }
func (idleMachine) Alive(string) (bool, error)                   { return false, nil }
func (idleMachine) Holder(string) (int, error)                   { return 0, errors.ErrUnsupported }
func (idleMachine) Memory([]int, int64) (*proc.MemoryUse, error) { return &proc.MemoryUse{}, nil }
func (idleMachine) AwaitFree(context.Context, string) error      { return nil }
func (idleMachine) Still(string, string, bool) error             { return nil }
func (idleMachine) Leave(string, string) error                   { return nil }
func (idleMachine) StopHeld(string) error                        { return nil }
func (idleMachine) NewSlot() (noded.Slot, error)                 { return &idleSlot{make(chan proc.Report, 1)}, nil }
func (idleMachine) Reclaim(context.Context, string, string, string) (func() error, int, error) {
	return func() error { return nil }, 0, nil
}

// An idleSlot is its supervisor.
type idleSlot struct{ reports chan proc.Report }

func (s *idleSlot) Reports() <-chan proc.Report { return s.reports }
func (s *idleSlot) Pid() int                    { return 0 }
func (s *idleSlot) Stop(string) error           { return nil }
func (s *idleSlot) Close() error                { return nil }

func (s *idleSlot) Run(o *proc.Order) error {
	zero := 0
	st := &proc.Status{Token: o.Token, Boot: "boot", Exit: &zero, Started: time.Now(), Ended: time.Now(), Contained: proc.BestEffort}
	err := errors.Join(os.WriteFile(o.Output, nil, 0o600), proc.Append(o.Dir, proc.Line{Ended: st}))
	s.reports <- proc.Report{Ended: st}
	return err
}
