package noded

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/desk"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// Attempts that wait go on in the order in which they were given, and those
// that are given later come after them.
func TestTakeOverInOrder(t *testing.T) {
	d, err := desk.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var notes []desk.Note
	for i := range 20 {
		notes = append(notes, desk.Note{Order: i + 5, Token: job.NewToken(), Job: job.ID(fmt.Sprintf("lab/b/j%d", i)),
			Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)})
	}
	if _, errs := d.Begin(notes); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
	if err := n.takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, note := range notes {
		if a := n.attempts[note.Token]; a == nil || a.Order != i+5 {
			t.Errorf("attempt %d is %+v", i, a)
		}
	}
	if n.noted != 24 {
		t.Errorf("the last one was number %d", n.noted)
	}
	n.goOn()
	close(n.over)
	for _, a := range n.attempts {
		a.cancel(nil)
	}
	n.work.Wait()
}

// An attempt whose supervisor died before it had begun with it has not started:
// it is deleted when the head says so, although its order had been given.
func TestN55GivenBackByADeadSupervisor(t *testing.T) {
	d, err := desk.Open(t.TempDir(), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	note := desk.Note{Order: 1, Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}
	as, errs := d.Begin([]desk.Note{note})
	if errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
	a := n.add(as[0])
	a.stage, a.result = stageOver, &job.Result{Fate: job.FateUnstarted}
	n.forget(note.Token)
	if n.attempts[note.Token] != nil {
		t.Error("it is kept")
	}
	close(n.over)
	n.work.Wait()
}

// What is damaged in attempts/, or a file that is no attempt, keeps no daemon from its work,
// also where it is alone. The head is told of an attempt whose note is damaged that it is lost,
// until it has heard of it: a job that is not to be started twice may have run there. Then it is
// out of the way of the next daemon.
func TestTakeOverDamaged(t *testing.T) {
	dir := t.TempDir()
	d, err := desk.Open(dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	token := job.NewToken()
	for name, text := range map[string]string{"mine": "a note", string(token) + "/" + proc.RecordFile: "{}\n", "odd/" + proc.RecordFile: "{}\n"} {
		name = filepath.Join(dir, "attempts", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: slog.New(slog.DiscardHandler)}, d)
	if err := n.takeOver(t.Context()); err != nil || len(n.attempts) > 0 {
		t.Errorf("it takes over %v, %v", n.attempts, err)
	}
	list := n.list()
	if len(list) != 1 || list[0].(*wire.Item).Attempt != token || list[0].(*wire.Item).Result.Fate != job.FateLost {
		t.Errorf("the list is %+v", list)
	}
	n.have(token)
	if list := n.list(); len(list) != 0 {
		t.Errorf("when the head has heard of it the list is %+v", list)
	}
	n.work.Wait()
	if as, err := d.Attempts(); err != nil || len(as) > 0 {
		t.Errorf("the next daemon finds %v, %v", as, err)
	}
	for _, name := range []string{string(token), "odd"} {
		if text, err := os.ReadFile(filepath.Join(dir, "found", "attempts", name, proc.RecordFile)); err != nil || string(text) != "{}\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// oneAttempt is a daemon whose state acts, and an attempt that was noted and is not known
// to it yet.
func oneAttempt(t *testing.T, dir string) (*desk.Desk, *desk.Attempt, *daemon) {
	t.Helper()
	d, err := desk.Open(dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	note := desk.Note{Order: 1, Token: job.NewToken(), Job: "lab/b/j", Try: 1, CPUs: 1, Spec: strings.Repeat("0", 64)}
	as, errs := d.Begin([]desk.Note{note})
	if errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	n := newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
	n.work.Go(func() {
		for {
			select {
			case act := <-n.acts:
				act()
			case <-n.over:
				return
			}
		}
	})
	return d, as[0], n
}

// An attempt that never began is given back when there is room again, though
// there was none to write that down at first.
func TestN62GivenBackOnAFullDisk(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT} { // the disk is full, or its user's quota reached
		givenBack(t, errno)
	}
}

// givenBack has an attempt given back whose end cannot be written down at first.
func givenBack(t *testing.T, errno error) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, da, n := oneAttempt(t, dir)
		defer d.Close()
		var room atomic.Bool
		defer durable.Observe(&durable.Observer{Step: func(name string) error {
			if name == "attempt.result" && !room.Load() {
				return errno
			}
			return nil
		}})()
		var a *attempt
		n.do(func() {
			a = n.add(da)
			n.begin(a)
			a.cancel(errStopped)
		})
		<-time.After(10 * time.Second)
		n.do(func() {
			if a.result != nil {
				t.Errorf("over although that could not be kept: %+v", a.result)
			}
		})
		room.Store(true)
		select {
		case <-a.done:
			if !a.result.Fate.Unstarted() {
				t.Errorf("it is over as %+v", a.result)
			}
		case <-time.After(time.Hour):
			t.Error("it is never given back")
		}
		close(n.over)
		n.work.Wait()
	})
}

// N66: where nothing can be kept, however often the directory is made anew, that has an
// end, too: a job of the daemon's user has put a file in the place of all attempts.
func TestN66NothingCanBeKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, da, n := oneAttempt(t, dir)
		defer d.Close()
		attempts := filepath.Dir(da.Dir)
		if err := errors.Join(os.RemoveAll(attempts), os.WriteFile(attempts, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		var a *attempt
		n.do(func() {
			a = n.add(da)
			n.begin(a)
			a.cancel(errStopped)
		})
		select {
		case <-a.done:
			if !a.result.Fate.Unstarted() || !strings.HasPrefix(a.result.Reason, "nothing of it can be kept on its node: ") {
				t.Errorf("it is over as %+v", a.result)
			}
		case <-time.After(time.Hour):
			t.Error("it is never over")
		}
		close(n.over)
		n.work.Wait()
	})
}

// A result is not given up for what passes.
func TestN65ResultIsKept(t *testing.T) {
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		a := &attempt{result: &job.Result{Manifest: "x"}}
		if err := (&daemon{}).spoiled(a, &fs.PathError{Op: "open", Path: "x", Err: errno}); !errors.Is(err, errno) || a.result.Fate == job.FateLost {
			t.Errorf("%v: got %v, the result is %+v", errno, err, a.result)
		}
	}
}
