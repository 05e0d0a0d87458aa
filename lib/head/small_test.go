package head

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
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
	e.List, e.Data = m.List(), data.Bytes()
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
	s.comesUnasked(d, m)
	s.resultIs("hello\n")
	await(t, s.nothingPromised)
}

// A small result whose names have letters that JSON may write otherwise is not asked for
// either: its manifest comes, and is kept, as it stands.
func TestSmallResultOfOddNames(t *testing.T) {
	s, d, start := givenJob(t)
	text := "hello\n"
	m := pack.Manifest{{Path: "a&b <c>\u2028.csv", Type: pack.File, Size: int64(len(text)), Mode: 0o644, Time: time.Unix(1, 0).UTC(), Sum: sumOf(text)}}
	var data bytes.Buffer
	err := pack.Send(&data, m, pack.Want{}, func(int, pack.Entry) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
	if err != nil {
		t.Fatal(err)
	}
	e := ended(start.Attempt, 0, m)
	e.List, e.Data = m.List(), data.Bytes()
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, e)
	s.comesUnasked(d, m)
	if got := s.file("ns/b/out/j/" + m[0].Path); got != text {
		t.Errorf("it is %q", got)
	}
}

// comesUnasked waits until the head has the result of ns/b/j, with this manifest, which it does
// not ask for.
func (s *site) comesUnasked(d *desk, m pack.Manifest) {
	s.t.Helper()
	for got := d.received(); ; got = d.received() {
		if _, ok := got.(*wire.Grant); ok {
			s.t.Fatal("it is asked for")
		}
		if _, ok := got.(*wire.Have); ok {
			break
		}
	}
	s.becomes("ns/b/j", job.Done)
	kept, root, err := s.h.spool.Result("ns/b/j", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	root.Close()
	if kept.Sum() != m.Sum() {
		s.t.Errorf("its manifest is %v", kept)
	}
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
		"another manifest": func(t *testing.T, e *wire.Ended) { e.List = withResult(t, &wire.Ended{}, "HELLO\n").List },
		"no manifest":      func(_ *testing.T, e *wire.Ended) { e.List = nil },
		"no list":          func(_ *testing.T, e *wire.Ended) { e.List = []byte(`{"path":"out.txt"}`) },
		"cut":              func(_ *testing.T, e *wire.Ended) { e.Data = e.Data[:len(e.Data)-3] },
		"no stream":        func(_ *testing.T, e *wire.Ended) { e.Data = []byte("hello") },
	} {
		t.Run(name, func(t *testing.T) {
			s, d, start := givenJob(t)
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
			s.resultIs("hello\n")
			if got := s.file("ns/b/manifests/j.jsonl"); len(got) < 100 {
				t.Errorf("its manifest is %q", got)
			}
		})
	}
}

// A small result is being made durable when its node loses its session and comes back: the
// grant of the new session waits for that, and removes nothing.
func TestSmallResultOverSessions(t *testing.T) {
	sealing, seal := make(chan struct{}, 8), make(chan struct{})
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "seal.small" {
			sealing <- struct{}{}
			<-seal
		}
		return nil
	}, Sync: func(f *os.File, _ bool) error { return f.Sync() }})()
	s, d, start := givenJob(t)
	m, _ := result("hello\n")
	end := withResult(t, ended(start.Attempt, 0, m), "hello\n")
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, end)
	<-sealing
	d.c.Close()
	s.becomes("ns/b/j", job.Unreachable)
	d = s.desk("ws1", "boot1", listed(start, job.PhaseReturning, &end.Result))
	await(t, func() (waits bool) { // its grant waits for what the first session has begun
		s.h.transfers.staging.mu.Lock()
		defer s.h.transfers.staging.mu.Unlock()
		return len(s.h.transfers.staging.of[start.Attempt]) > 0
	})
	close(seal)
	next[*wire.Have](d)
	s.becomes("ns/b/j", job.Done)
	s.resultIs("hello\n")
	await(t, s.nothingPromised)
}

// What an earlier transfer has left of an attempt is no part of a small result.
func TestSmallResultBesideLeftovers(t *testing.T) {
	s, d, start := givenJob(t)
	left := filepath.Join(s.dir, "batches/ns/b/staging", string(start.Attempt), "tree")
	if err := errors.Join(os.MkdirAll(left, 0o750), os.WriteFile(filepath.Join(left, "foreign"), []byte("x"), 0o640)); err != nil {
		t.Fatal(err)
	}
	m, _ := result("hello\n")
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, withResult(t, ended(start.Attempt, 0, m), "hello\n"))
	d.give(d.granted(), "hello\n")
	s.becomes("ns/b/j", job.Done)
	if list, err := os.ReadDir(filepath.Join(s.dir, "batches/ns/b/out/j")); err != nil || len(list) != 1 {
		t.Errorf("the result holds %v, %v", list, err)
	}
}

// A FIFO in the place of a file of a result is refused; the head does not wait for its
// other end.
func TestFIFOInResult(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "x.csv"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if f, err := openRegular(root, "x.csv"); f != nil || err == nil {
		t.Errorf("it is opened: %v, %v", f, err)
	}
}
