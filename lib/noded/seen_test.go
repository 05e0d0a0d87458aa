package noded

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// aged waits until the clock that the times of files go by has gone on since one
// was changed.
func aged(t *testing.T, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	for other := name + ".other"; ; {
		create(t, other)
		if now, err := os.Lstat(other); err != nil || now.ModTime().After(info.ModTime()) {
			return info
		}
	}
}

// What was done to a file shows, though its size and time are what they were.
func TestSeen(t *testing.T) {
	for what, harm := range map[string]func(name string, info fs.FileInfo) error{
		"nothing": func(string, fs.FileInfo) error { return nil },
		"written": func(name string, info fs.FileInfo) error {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("x"), 1000)
			}
			return errors.Join(err, f.Close(), os.Chtimes(name, info.ModTime(), info.ModTime()))
		},
		"replaced": func(name string, info fs.FileInfo) error {
			return errors.Join(os.Rename(name, name+".old"), os.WriteFile(name, make([]byte, seenFrom), 0o600),
				os.Chtimes(name, info.ModTime(), info.ModTime()))
		},
	} {
		name := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(name, make([]byte, seenFrom), 0o600); err != nil {
			t.Fatal(err)
		}
		s, info := seen{}, aged(t, name)
		s.note(info)
		if err := harm(name, info); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if s.same(f) != (what == "nothing") {
			t.Errorf("%s: it is the same: %v", what, s.same(f))
		}
	}
}

// A file of which nothing can be told by its times is not noted.
func TestSeenIsNotNoted(t *testing.T) {
	dir := t.TempDir()
	s := seen{}
	small, linked := filepath.Join(dir, "small"), filepath.Join(dir, "linked")
	if err := errors.Join(os.WriteFile(small, make([]byte, seenFrom-1), 0o600), os.WriteFile(linked, make([]byte, seenFrom), 0o600),
		os.Link(linked, linked+"2")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{small, linked, dir} {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		s.note(info)
	}
	if len(s) > 0 {
		t.Errorf("noted: %v", s)
	}
}

// A large file that somebody has been at since it was hashed does not come to
// the head as what the manifest says, though its size and time are the same.
func TestLargeFileIsChanged(t *testing.T) {
	h := newFakeHead(t)
	dir := filepath.Join(t.TempDir(), "node")
	h.live(dir, nil)
	s, _ := h.session()
	start := h.start("head -c 3000000 /dev/zero >big")
	s.say(start)
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Fatalf("it ended as %+v", e)
	}
	take := func() (err error) {
		s.say(&wire.Grant{Attempt: start.Attempt, Manifest: true})
		up := <-s.up
		defer func() { s.up <- up }()
		for range 2 {
			send, err := wire.Expect[*wire.Send](up)
			if err == nil {
				err = wire.Drain(up.RecvTransfer(send))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := take(); err != nil {
		t.Fatalf("as it was left it does not come: %v", err)
	}
	name := filepath.Join(dir, "attempts", string(start.Attempt), "work", "big")
	info, err := os.Stat(name)
	if err == nil {
		err = errors.Join(os.WriteFile(name, slices.Concat(make([]byte, 2999999), []byte("x")), 0o600), os.Chtimes(name, info.ModTime(), info.ModTime()))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := take(); !errors.Is(err, wire.ErrGaveUp) || !strings.Contains(err.Error(), "big") {
		t.Errorf("it is sent: %v", err)
	}
	if e := awaited[*wire.Ended](s); e.Attempt != start.Attempt || e.Fate != job.FateLost || !strings.Contains(e.Reason, "damaged") {
		t.Errorf("in its session, which goes on, it says %+v", e)
	}
}

// What was left alone since it was hashed is sent without being hashed again, once: the
// head has found out that it is not what the manifest says if it asks again.
func TestSeenIsTrustedOnce(t *testing.T) {
	d, da, n := oneAttempt(t, t.TempDir())
	defer d.Close()
	big := filepath.Join(da.WorkDir(), "big")
	if err := errors.Join(os.MkdirAll(da.WorkDir(), 0o700), os.WriteFile(big, make([]byte, seenFrom), 0o600)); err != nil {
		t.Fatal(err)
	}
	m, _, err := scan(t.Context(), nil, da.WorkDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var a *attempt
	n.do(func() { a = n.add(da) })
	if err := n.keep(&attemptRun{attempt: a}, &job.Result{}, m, false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(big, append(make([]byte, seenFrom-1), 'x'), 0o600), os.Chtimes(big, m[0].Time, m[0].Time)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(big)
	if err != nil {
		t.Fatal(err)
	}
	a.seen = seen{} // as if that had been within one step of the clock
	a.seen.note(info)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go io.Copy(io.Discard, theirs)
	c, x := wire.New(ours), uint64(0)
	defer c.Close()
	for _, want := range []job.Fate{"", job.FateLost} {
		if err := n.deliver(c, &x, &wire.Grant{Attempt: a.Token, Manifest: true}); err != nil && want == "" {
			t.Error(err)
		}
		n.do(func() {
			if a.result.Fate != want {
				t.Errorf("its result is %+v, should be %q", a.result, want)
			}
		})
	}
	close(n.over)
	n.work.Wait()
}
