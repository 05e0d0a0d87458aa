package main

import (
	"bytes"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// withResult has the message of an end bring a small result.
func withResult(t *testing.T, e *wire.Ended, text string) *wire.Ended {
	t.Helper()
	m, open := result(text)
	var data bytes.Buffer
	if err := pack.Send(&data, m, pack.Want{}, open); err != nil {
		t.Fatal(err)
	}
	e.Tree, e.Data = m.List(), data.Bytes()
	return e
}

// A small result that comes with the end of its attempt is not asked for, and its manifest
// is in its record.
func TestSmallResult(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j", "k")
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	m, _ := result("hello\n")
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, withResult(t, ended(start.Attempt, 0, m), "hello\n"))
	for got := d.received(); ; got = d.received() {
		if _, ok := got.(*wire.Grant); ok {
			t.Fatal("it is asked for")
		}
		if _, ok := got.(*wire.Have); ok {
			break
		}
	}
	s.becomes("ns/b/j", job.Done)
	if got := s.file("ns/b/out/j/out.txt"); got != "hello\n" {
		t.Errorf("the result is %q", got)
	}
	manifest, root, err := s.h.spool.Result("ns/b/j", 0)
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	if manifest.Sum() != m.Sum() {
		t.Errorf("its manifest is %v", manifest)
	}
	await(t, s.nothingPromised)
}

// received is the next message from the head.
func (d *desk) received() wire.Message {
	d.t.Helper()
	d.c.ReadWithin(2 * time.Minute)
	m, err := d.c.Recv()
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// What comes with an end and is not what was announced is asked for, as what does not come
// with it.
func TestWrongSmallResult(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *wire.Ended){
		"another content":  func(t *testing.T, e *wire.Ended) { *e = *withResult(t, ended(e.Attempt, 0, nil), "HELLO\n") },
		"another manifest": func(t *testing.T, e *wire.Ended) { e.Tree = withResult(t, &wire.Ended{}, "HELLO\n").Tree },
		"no manifest":      func(_ *testing.T, e *wire.Ended) { e.Tree = nil },
		"no list":          func(_ *testing.T, e *wire.Ended) { e.Tree = []byte(`{"path":"out.txt"}`) },
		"cut":              func(_ *testing.T, e *wire.Ended) { e.Data = e.Data[:len(e.Data)-3] },
		"no stream":        func(_ *testing.T, e *wire.Ended) { e.Data = []byte("hello") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.submit("ns/b", "j")
			d := s.desk("ws1", "boot1")
			start := expect[*wire.Start](t, d.c)
			m, _ := result("hello\n")
			e := withResult(t, ended(start.Attempt, 0, m), "hello\n")
			announced := e.Result
			spoil(t, e)
			e.Result = announced
			s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, e)
			g := d.granted()
			if !g.Manifest {
				t.Error("its manifest is not asked for")
			}
			d.give(g, "hello\n")
			s.becomes("ns/b/j", job.Done)
			if got := s.file("ns/b/out/j/out.txt"); got != "hello\n" {
				t.Errorf("the result is %q", got)
			}
			if got := s.file("ns/b/manifests/j.jsonl"); len(got) < 100 {
				t.Errorf("its manifest is %q", got)
			}
		})
	}
}
