package noded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// A build that was asked to leave may have ended well, and is done again all the same.
func TestBuildThatLeft(t *testing.T) {
	h := newFakeHead(t)
	h.spec = `{"kind":"command","build":["true"],"resources":{"cpus":1}}`
	st := h.start("true")
	boot, err := proc.Boot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "node")
	d, err := desk.Open(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.SetBuild(st.Job.Batch(), "", st.Spec, []byte(h.spec))
	if err != nil {
		t.Fatal(err)
	}
	run, exit := job.NewToken(), 0
	if err := errors.Join(os.Mkdir(b.Tree(), 0o700), b.SetStarted(&desk.Started{Kind: job.Command, Token: run}),
		proc.Append(b.Dir, proc.Line{Ended: &proc.Status{Token: string(run), Boot: boot, Exit: &exit, Evicted: true}}), d.Close()); err != nil {
		t.Fatal(err)
	}
	h.live(dir, nil)
	s, _ := h.session()
	s.say(st)
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
}

// dpause is told of a build that an earlier dnoded began.
func TestOldBuildIsTold(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	b := built(t, n, "lab/old", time.Now())
	if err := b.SetStarted(&desk.Started{Kind: job.Command, Token: job.NewToken()}); err != nil {
		t.Fatal(err)
	}
	if done, err := n.oldBuild(b.Build, &buildRun{}); done || err != nil {
		t.Fatal(done, err)
	}
	select {
	case <-n.nowNews:
	default:
		t.Error("nobody is told")
	}
}

// A build that failed although it ended well is done again for an attempt that comes later.
func TestBuildFailedIsDoneAgain(t *testing.T) {
	h := newFakeHead(t)
	top := t.TempDir()
	mended := filepath.Join(top, "mended")
	h.spec = fmt.Sprintf(`{"kind":"command","build":["sh","-c","test -e %s || rmdir ../tree"],"resources":{"cpus":1}}`, mended)
	h.live(filepath.Join(top, "node"), nil)
	s, _ := h.session()
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); e.Fate != job.FateBuildFailed {
		t.Fatalf("it says %s, %s", e.Fate, e.Reason)
	}
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.say(h.start("true"))
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Errorf("it says %s, %s", e.Fate, e.Reason)
	}
}
