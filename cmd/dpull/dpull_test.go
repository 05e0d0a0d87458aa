package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// archive is a head that has a few results.
type archive struct {
	addr    string
	results map[string]string // a directory for each id that can be pulled
	rows    []job.Row

	mu    sync.Mutex
	cut   int64 // the next tree breaks off after so many bytes; 0: none does
	moved int   // entries that were picked
	evil  bool  // the manifest is not the tree's
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	a := &archive{addr: "unix:" + filepath.Join(t.TempDir(), "socket"), results: map[string]string{}}
	l, err := dial.Listen(a.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			go a.serve(wire.New(s))
		}
	}()
	return a
}

// add makes a job with these files.
func (a *archive) add(t *testing.T, name string, s job.State, try int, files map[string]string) {
	t.Helper()
	id := job.ID("n/b/" + name)
	a.rows = append(a.rows, job.Row{ID: id, Namespace: "n", Batch: "b", Job: name, Owner: "me", State: s, Attempt: try})
	if files == nil {
		return
	}
	dir := t.TempDir()
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if s == job.Done {
		a.results[string(id)] = dir
	} else {
		a.results[id.Try(try)] = dir
	}
}

func (a *archive) serve(c *wire.Conn) {
	defer c.Close()
	for {
		m, err := c.Recv()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *wire.Hello:
			err = c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, User: "me"})
		case *wire.Query:
			err = a.query(c, m)
		case *wire.Pull:
			err = a.pull(c, m)
		}
		if err != nil {
			return
		}
	}
}

func (a *archive) query(c *wire.Conn, m *wire.Query) error {
	return c.SendTransfer(&wire.Send{X: 1, Of: wire.OfRows}, func(w io.Writer) error {
		for _, r := range a.rows {
			if slices.Contains(m.Args, string(r.ID)) || slices.Contains(m.Args, "n/b") {
				json.NewEncoder(w).Encode(r)
			}
		}
		return nil
	})
}

func (a *archive) pull(c *wire.Conn, m *wire.Pull) error {
	dir, ok := a.results[m.ID]
	if !ok {
		return c.Send(&wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: "there is no result"})
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	manifest, _, err := pack.Scan(context.Background(), root, nil, pack.Limits{})
	if err != nil {
		return err
	}
	a.mu.Lock()
	cut, evil := a.cut, a.evil
	a.mu.Unlock()
	said := slices.Clone(manifest)
	if evil {
		said[len(said)-1].Sum = strings.Repeat("0", 64)
	}
	if err := c.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest}, said.Encode); err != nil {
		return err
	}
	pick, err := wire.Expect[*wire.Pick](c)
	if err != nil || pick.None {
		return err
	}
	a.mu.Lock()
	for _, r := range pick.Want.Ranges {
		a.moved += r[1] - r[0]
	}
	a.cut = 0
	a.mu.Unlock()
	return c.SendTransfer(&wire.Send{X: 1, Of: wire.OfTree}, func(w io.Writer) error {
		if cut > 0 {
			var b bytes.Buffer
			err := pack.Send(&b, manifest, pack.Want(pick.Want), open(root))
			w.Write(b.Bytes()[:cut])
			w.(interface{ Flush() error }).Flush()
			c.Close()
			return err
		}
		return pack.Send(w, manifest, pack.Want(pick.Want), open(root))
	})
}

func open(root *os.Root) func(int, pack.Entry) (io.ReadCloser, error) {
	return func(_ int, e pack.Entry) (io.ReadCloser, error) { return root.Open(e.Path) }
}

// dpull runs the command.
func (a *archive) dpull(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	c := &cli.Cmd{Name: "dpull", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &talk,
		Args: append([]string{"-H", a.addr}, args...), Getenv: func(string) string { return "" }}
	status = c.Run(t.Context(), usage, run)
	return status, out.String(), talk.String()
}

func TestPull(t *testing.T) {
	a := newArchive(t)
	a.add(t, "1", job.Done, 1, map[string]string{"x.csv": "1\n", "f/y.vtk": "2\n"})
	a.add(t, "2", job.Failed, 2, map[string]string{"x.csv": "3\n"})
	a.add(t, "3", job.Running, 1, nil)
	a.add(t, "4", job.Cancelled, 0, nil)
	a.add(t, "5", job.Cancelled, 1, nil) // and its node has not brought anything yet
	dir := filepath.Join(t.TempDir(), "new")
	status, out, talk := a.dpull(t, "", "-o", dir, "n/b")
	if status != 0 || out != "n/b/1\nn/b/2~2\n" {
		t.Errorf("status %d, %q", status, out)
	}
	if talk != "dpull: jobs that are not over, and not pulled: 1\ndpull: jobs that left nothing: 2\n" {
		t.Errorf("it says %q", talk)
	}
	for path, want := range map[string]string{"n/b/1/x.csv": "1\n", "n/b/1/f/y.vtk": "2\n", "n/b/2~2/x.csv": "3\n"} {
		if b, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	moved := a.moved
	if status, out, _ = a.dpull(t, "n/b/1\tdone\nn/b/2~2\n", "-o", dir); status != 0 || strings.Join(slices.Sorted(strings.Lines(out)), "") != "n/b/1\nn/b/2~2\n" || a.moved != moved {
		t.Errorf("again: status %d, %q, %d entries moved", status, out, a.moved-moved)
	}
	if status, out, talk := a.dpull(t, "", "-o", dir, "n/b/2~1"); status != cli.NoSuch || out != "" || talk != "dpull: n/b/2~1: there is no result\n" {
		t.Errorf("an attempt that is not there: %d, %q, %q", status, out, talk)
	}
	if _, err := os.Stat(filepath.Join(dir, "n/b/2~1")); err == nil {
		t.Error("there is a directory for an attempt that is not there")
	}
	if status, _, talk := a.dpull(t, "", "-n", "-o", filepath.Join(dir, "none"), "n/b/1"); status != 0 || talk != "dpull: would move 2 files, 4\n" {
		t.Errorf("dry: %d, %q", status, talk)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a dry run made a directory")
	}
	if status, out, talk := a.dpull(t, "", "-n", "-o", dir, "n/b/1"); status != 0 || out != "n/b/1\n" || talk != "dpull: would move 0 files, 0\n" {
		t.Errorf("dry, when all is here: %d, %q, %q", status, out, talk)
	}
}

// A head that goes away in the middle of a file is waited for, and the file
// goes on where it was.
func TestLostHead(t *testing.T) {
	a := newArchive(t)
	var noise strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&noise, "%x", i*i*2654435761)
	}
	a.add(t, "1", job.Done, 1, map[string]string{"a": "a\n", "b": noise.String()})
	a.add(t, "2", job.Done, 1, map[string]string{"a": "a\n"})
	a.cut = 400_000
	dir := t.TempDir()
	status, out, talk := a.dpull(t, "", "-o", dir, "n/b")
	if status != 0 || out != "n/b/1\nn/b/2\n" || !strings.Contains(talk, "lost the head") || !strings.Contains(talk, "trying again") {
		t.Errorf("status %d, %q, %q", status, out, talk)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "n/b/1/b")); err != nil || string(b) != noise.String() {
		t.Errorf("the file has %d bytes, %v", len(b), err)
	}
	if a.moved != 4 {
		t.Errorf("%d entries were asked for, not a and b, b again, and a", a.moved)
	}
}

// A head whose rows are no rows is asked three times, and then given up with what
// it said.
func TestNonsense(t *testing.T) {
	a := newArchive(t)
	a.add(t, "../../x", job.Done, 1, nil)
	status, out, talk := a.dpull(t, "", "-o", t.TempDir(), "n/b")
	if status != cli.IO || out != "" || !strings.Contains(talk, "has said 3 times") || !strings.Contains(talk, "n/b/../../x") {
		t.Errorf("status %d, %q:\n%s", status, out, talk)
	}
}

// A link where a directory has to be is named; the other jobs are pulled.
func TestInTheWay(t *testing.T) {
	a := newArchive(t)
	a.add(t, "1", job.Done, 1, map[string]string{"a": "a\n"})
	a.add(t, "2", job.Done, 1, map[string]string{"a": "a\n"})
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "n/b"), 0o755), os.Symlink(outside, filepath.Join(dir, "n/b/1"))); err != nil {
		t.Fatal(err)
	}
	status, out, talk := a.dpull(t, "", "-o", dir, "n/b")
	if status != cli.No || out != "n/b/2\n" || talk != "dpull: \"n/b/1\": something else is where a directory has to be\n" {
		t.Errorf("status %d, %q, %q", status, out, talk)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 0 {
		t.Errorf("outside is %v, %v", names, err)
	}
}

// What is not what the manifest says is refused, and not kept.
func TestWrongContent(t *testing.T) {
	a := newArchive(t)
	a.add(t, "1", job.Done, 1, map[string]string{"a": "a\n"})
	a.evil = true
	dir := t.TempDir()
	status, out, talk := a.dpull(t, "", "-o", dir, "n/b")
	if status != cli.IO || out != "" || !strings.Contains(talk, "the content is not what the manifest says") {
		t.Errorf("status %d, %q, %q", status, out, talk)
	}
	if names, err := os.ReadDir(filepath.Join(dir, "n/b/1")); err != nil || len(names) != 0 {
		t.Errorf("there is %v, %v", names, err)
	}
}
