package noded

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// A savedFile is one of what an attempt has saved: a directory if its path ends in
// a slash, a link if it has a target.
type savedFile struct{ path, text, link string }

// savedOf is the manifest of files, in the order of their paths.
func savedOf(files ...savedFile) (m pack.Manifest, text map[string]string) {
	text = map[string]string{}
	for _, f := range files {
		e := pack.Entry{Path: strings.TrimSuffix(f.path, "/"), Type: pack.File, Mode: 0o400, Size: int64(len(f.text)), Time: time.Unix(7, 0).UTC()}
		sum := sha256.Sum256([]byte(f.text))
		e.Sum = hex.EncodeToString(sum[:])
		switch {
		case f.link != "":
			e = pack.Entry{Path: f.path, Type: pack.Link, Link: f.link}
		case e.Path != f.path:
			e = pack.Entry{Path: e.Path, Type: pack.Dir, Mode: 0o500, Time: e.Time}
		}
		m, text[e.Path] = append(m, e), f.text
	}
	return m, text
}

// gives has the head give these files to who asks for what is saved. The first
// cut times the stream ends in the middle of them, each time when listed says that
// the list of the session has been read: the session is cut with it.
func (h *fakeHead) gives(m pack.Manifest, text map[string]string, cut int, listed <-chan struct{}) {
	h.answer = func(c *wire.Conn, x uint64, f *wire.Fetch) bool {
		send := &wire.Send{X: x, Of: f.Of, Attempt: f.Attempt}
		switch f.Of {
		case wire.OfManifest:
			c.SendTransfer(send, m.Encode)
		case wire.OfSaved:
			h.asked = append(h.asked, f.Want)
			c.SendTransfer(send, func(w io.Writer) error {
				if cut--; cut >= 0 {
					<-listed
					w = &cutWriter{w, c}
				}
				return pack.Send(w, m, pack.Want(f.Want), func(_ int, e pack.Entry) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader(text[e.Path])), nil
				})
			})
		default:
			return false
		}
		return true
	}
}

// A cutWriter ends the stream after some bytes.
type cutWriter struct {
	w io.Writer
	c *wire.Conn
}

func (w *cutWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b[:len(b)/2])
	if f, ok := w.w.(*wire.Writer); ok {
		f.Flush()
	}
	w.c.Close()
	return n, err
}

// runsWith runs a command on a node with files that an earlier attempt saved, and
// returns how it ended and what it printed.
func runsWith(t *testing.T, spec, command string, cut int, files ...savedFile) (*wire.Ended, string, *fakeHead) {
	t.Helper()
	h := newFakeHead(t)
	if spec != "" {
		h.spec = spec
	}
	m, text := savedOf(files...)
	listed := make(chan struct{}, cut+1)
	h.gives(m, text, cut, listed)
	dir := filepath.Join(t.TempDir(), "node")
	h.live(dir, nil)
	s, _ := h.session()
	listed <- struct{}{}
	st := h.start(command)
	st.Saved, st.Try = job.NewToken(), 2
	s.say(st)
	for range cut { // each cut takes the session with it
		s, _ = h.session()
		listed <- struct{}{}
	}
	e := awaited[*wire.Ended](s)
	out, err := os.ReadFile(filepath.Join(dir, "attempts", string(st.Attempt), "output"))
	if err != nil && !e.Fate.Unstarted() {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "attempts", string(st.Attempt), "saved")); err == nil && !e.Fate.Unstarted() {
		t.Error("what came is there twice")
	}
	return e, string(out), h
}

// What was saved lies in the job's directory when it starts, with its times, and
// can be changed; what the node had added does not.
func TestSavedIsLaid(t *testing.T) {
	e, out, _ := runsWith(t, "", `find . | sort; cat a/b step; test -w step && echo $(stat -c %Y step); echo x >>a/b; readlink l; grep -o '"saved_files":[0-9]*' ../attempt.jsonl`, 0,
		savedFile{path: "a/"}, savedFile{path: "a/b", text: "of b\n"}, savedFile{path: "distribute_save/"},
		savedFile{path: "distribute_save/c", text: "c"}, savedFile{path: "j_output.txt", text: "printed"}, savedFile{path: "j_skipped.txt", text: "none"},
		savedFile{path: "l", link: "a/b"}, savedFile{path: "step", text: "7\n"})
	want := ".\n./a\n./a/b\n./distribute_save\n./distribute_save/c\n./l\n./step\nof b\n7\n7\na/b\n\"saved_files\":8\n"
	if out != want || !e.OK() {
		t.Errorf("it prints %q, should be %q; %+v", out, want, e.Result)
	}
	if e.Files != 4 || e.Entries != 6 { // also those that it did not touch: they are its result
		t.Errorf("%d files come home: %+v", e.Files, e.Result)
	}
}

// A python job finds it where it had saved it.
func TestSavedOfPython(t *testing.T) {
	spec := `{"kind":"python","resources":{"cpus":1}}`
	h := newFakeHead(t)
	h.spec = spec
	m, text := savedOf(savedFile{path: "step", text: "7\n"})
	h.gives(m, text, 0, nil)
	dir := filepath.Join(t.TempDir(), "node")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\nexec sh -c \"$1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	h.live(dir, nil)
	s, _ := h.session()
	st := h.start("")
	st.Work.Run = []string{"cat distribute_save/step; ls"}
	st.Saved = job.NewToken()
	s.say(st)
	e := awaited[*wire.Ended](s)
	out, err := os.ReadFile(filepath.Join(dir, "attempts", string(st.Attempt), "output"))
	if err != nil || string(out) != "7\ndistribute_save\ninitial_files\ninput\n" {
		t.Errorf("it prints %q, %v; %+v", out, err, e.Result)
	}
}

// D88: what is cut on the way goes on where it was.
func TestD88SavedIsCut(t *testing.T) {
	files := []savedFile{{path: "a", text: strings.Repeat("a", 300_000)}}
	for i := range 20 {
		files = append(files, savedFile{path: fmt.Sprintf("b%02d", i), text: fmt.Sprint(strings.Repeat("b", 1000*i))})
	}
	e, out, h := runsWith(t, "", "cat a b* | wc -c; ls | wc -l", 2, files...)
	if want := "490000\n21\n"; out != want || !e.OK() {
		t.Errorf("it prints %q, should be %q; %+v", out, want, e.Result)
	}
	if len(h.asked) < 2 || h.asked[0].Ranges != nil {
		t.Errorf("it was asked for %v", h.asked)
	}
}

// A head that sends what is no tree starts nothing, and nothing of it lies outside
// of the attempt's directory.
func TestSavedIsNoTree(t *testing.T) {
	for _, files := range [][]savedFile{
		{{path: "../x", text: "x"}},
		{{path: "/x", text: "x"}},
		{{path: "l", link: "../../../.."}},
		{{path: "l", link: "/etc"}, {path: "l/passwd", text: "x"}},
	} {
		t.Run(files[0].path, func(t *testing.T) {
			t.Parallel() // each is tried several times, with waits between
			e, _, _ := runsWith(t, "", "echo ran", 0, files...)
			if !e.Fate.Unstarted() || e.Reason == "" {
				t.Errorf("%v: %+v", files, e.Result)
			}
		})
	}
}

// What was saved takes the place of what is there, whatever that is, and follows
// no link that a build or an input has left.
func TestSavedTakesThePlace(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	attempt := filepath.Join(dir, "attempt")
	for _, d := range []string{outside, filepath.Join(attempt, "work/d/e"), filepath.Join(attempt, "saved")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(attempt, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("work/f", "old")
	write("work/d/e/g", "old")
	if err := os.Symlink(outside, filepath.Join(attempt, "work/out")); err != nil {
		t.Fatal(err)
	}
	m, text := savedOf(savedFile{path: "d", text: "a file now"}, savedFile{path: "f/"}, savedFile{path: "f/g", text: "below"},
		savedFile{path: "out/"}, savedFile{path: "out/x", text: "inside"})
	var tar bytes.Buffer
	if err := pack.Send(&tar, m, pack.Want{}, func(_ int, e pack.Entry) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text[e.Path])), nil
	}); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(attempt, "saved"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree := pack.NewTree(root, ownFiles)
	if err := pack.Receive(&tar, m, pack.Want{}, tree); err != nil || tree.Close() != nil {
		t.Fatal(err)
	}
	top, err := os.OpenRoot(attempt)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for i := range m {
		if err := layOne(top, "saved/"+m[i].Path, "work/"+m[i].Path, &m[i]); err != nil {
			t.Errorf("%s: %v", m[i].Path, err)
		}
	}
	for name, want := range map[string]string{"d": "a file now", "f/g": "below", "out/x": "inside"} {
		if b, err := os.ReadFile(filepath.Join(attempt, "work", name)); string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("something lies outside: %v, %v", list, err)
	}
}

// TestSavedFetchedAfterFullDisk has the disk fill up once everything of an attempt is there: the
// node removes an input that no job needs, fetches the saved files again, and runs the job.
func TestSavedFetchedAfterFullDisk(t *testing.T) {
	h := newFakeHead(t)
	d := h.newDepot()
	old, in := d.add("old", 600), d.add("in", 6)
	m, text := savedOf(savedFile{path: "state", text: "half"})
	h.gives(m, text, 0, nil)
	saved := h.answer
	h.answer = func(c *wire.Conn, x uint64, f *wire.Fetch) bool { return d.answer(c, x, f) || saved(c, x, f) }
	h.live(filepath.Join(t.TempDir(), "node"), nil)
	s, _ := h.session()
	first := with(h.start("true"), old)
	s.say(first)
	awaited[*wire.Ended](s)
	s.say(&wire.Have{Attempt: first.Attempt})
	awaited[*wire.Gone](s)
	var full atomic.Bool
	defer durable.Observe(&durable.Observer{Step: func(name string) error {
		if name == "cache.read" && full.CompareAndSwap(false, true) {
			return syscall.ENOSPC
		}
		return nil
	}})()
	next := with(h.start("cat in state"), in)
	next.Saved = job.NewToken()
	s.say(next)
	if e := awaited[*wire.Ended](s); !e.OK() || !full.Load() {
		t.Errorf("disk was full: %v; it ended as %q, %s", full.Load(), e.Fate, e.Reason)
	}
	if len(h.asked) != 2 {
		t.Errorf("its saved files were fetched %d times, expected 2", len(h.asked))
	}
}
