package noded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
)

// Batches that build the same have one directory for that. One that is to be built anew gets
// another, as do batches that come later; the old one stays for as long as an attempt that has it
// is there.
func TestShare(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{Cache: 1 << 30})
	spec := []byte(`{"kind":"command","build":["make"]}`)
	sum := sha256.Sum256(spec)
	come := func(id job.BatchID, user string, anew int) *desk.Build {
		t.Helper()
		b, err := n.desk.NewBuild(id, "", hex.EncodeToString(sum[:]), spec)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(n.share(b, &attempt{Attempt: &desk.Attempt{Note: desk.Note{User: user, Anew: anew}}}), n.desk.SetBuild(b, spec))
		if err == nil && !n.desk.Ready(b) {
			err = errors.Join(n.desk.BeginBuild(b), os.Mkdir(b.Tree(), 0o700), n.desk.SetReady(b))
		}
		if err != nil {
			t.Fatal(err)
		}
		n.do(func() {
			n.batches[b.Note()] = &batch{Build: b}
			if n.builds[b.Dir] == nil {
				n.builds[b.Dir] = &build{Build: b}
			}
		})
		return b
	}
	one := come("lab/one", "ana", 0)
	if two := come("lab/two", "ana", 0); two.Dir != one.Dir {
		t.Error("the same is built twice")
	}
	if ben := come("lab/ben", "ben", 0); ben.Dir == one.Dir {
		t.Error("a batch has what another user has built")
	}
	note := desk.Note{Job: "lab/one/j", Try: 1, CPUs: 1, Spec: one.Sum, Work: &job.Job{Name: "j", Run: []string{"true"}}}
	notes := []desk.Note{note, note}
	notes[0].Token, notes[1].Token = job.NewToken(), job.NewToken()
	as, errs := n.desk.Begin(notes)
	if err := errors.Join(append(errs, as[0].SetStarted(&desk.Started{Kind: job.Command, Build: one.Name()}))...); err != nil {
		t.Fatal(err)
	}
	var started, prepared *attempt
	n.do(func() { started, prepared = n.add(as[0]), n.add(as[1]) })
	if b, err := n.knownBuild(prepared); err != nil || b.Dir != one.Dir {
		t.Fatal(b, err)
	}
	anew := come("lab/one", "ana", 1)
	if again := come("lab/one", "ana", 1); anew.Dir == one.Dir || again.Dir != anew.Dir {
		t.Errorf("anew in %s, and then in %s; it was in %s", anew.Dir, again.Dir, one.Dir)
	}
	if three := come("lab/three", "ana", 0); three.Dir != anew.Dir {
		t.Error("a later batch has what was built before")
	}
	there := func() bool {
		_, err := os.Stat(one.Dir)
		return err == nil
	}
	n.do(func() { n.forgetBuild("lab/two") })
	for _, a := range []*attempt{started, prepared} {
		if !there() {
			t.Errorf("what an attempt has is gone, started: %v", a == started)
		}
		n.do(func() {
			delete(n.attempts, a.Token)
			n.clear()
		})
	}
	if there() {
		t.Error("what no batch may take stays")
	}
	bs, err := n.desk.Builds()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bs {
		if b.IsBatch() && b.Batch == "lab/one" && b.Dir != anew.Dir {
			t.Error("after a new start the batch has what was built before")
		}
	}
	four := come("lab/four", "ana", 2)
	if four.Dir == anew.Dir {
		t.Error("a second time it is not built anew")
	}
	if one := come("lab/one", "ana", 1); one.Dir != four.Dir {
		t.Error("what was built anew later is built again")
	}
}
