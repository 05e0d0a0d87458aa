package testscripts

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// nasty is what moves a cursor, sets a title, ends a line, turns the direction of
// writing, hides, or is another's field.
const nasty = "a\x1b[2J\x1b]0;mine\a\r\nb\u202ec\u2028d\u009b31me\x7ff\ufeffg\th\u2066"

// A liar is a head that says nasty things wherever it may say a text.
type liar struct {
	t   *testing.T
	dir string
}

// startLiar has one listen as the head of the directory.
func startLiar(t *testing.T) *liar {
	l := &liar{t, t.TempDir()}
	if err := os.Mkdir(filepath.Join(l.dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(l.dir, "run", "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		for {
			c, err := socket.Accept()
			if err != nil {
				return
			}
			go l.serve(wire.New(c))
		}
	}()
	return l
}

// serve answers a tool until it goes, or has been told an error.
func (l *liar) serve(c *wire.Conn) {
	defer c.Close()
	if _, err := wire.Expect[*wire.Hello](c); err != nil {
		return
	}
	err := c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, Spool: string(job.NewToken()), User: nasty, Name: nasty})
	for x := uint64(1); err == nil; x++ {
		var m wire.Message
		if m, err = c.Recv(); err == nil {
			err = l.answer(c, m, x)
		}
	}
}

func (l *liar) answer(c *wire.Conn, m wire.Message, x uint64) error {
	switch m := m.(type) {
	case *wire.Query:
		if len(m.Args) > 0 && m.Args[0] == "job=wrong" {
			return c.Send(&wire.Error{Ref: m.Ref, Status: 66, Text: nasty})
		}
		rows := []any{l.row(m.Of)}
		if len(m.Args) > 0 && m.Args[0] == "job=up" {
			rows = []any{job.Row{ID: "lab/b/../../x", State: job.Done}}
		}
		if len(m.Args) > 0 && m.Args[0] == "id=*" { // two that wait, as a batch
			waits := job.Row{ID: nasty + "/b/j", State: job.Queued, Reason: nasty}
			rows = []any{waits, waits}
		}
		return l.rows(c, &wire.Send{X: x, Of: wire.OfRows, Ref: m.Ref}, rows...)
	case *wire.Change:
		of := map[string]string{"delete": wire.OfRows, "accept": wire.OfRows}[m.Verb]
		switch {
		case len(m.Args) > 0 && m.Args[0] == "job=wrong":
			return c.Send(&wire.Error{Ref: m.Ref, Status: 77, Text: nasty})
		case m.Verb == "delete":
			return l.rows(c, &wire.Send{X: x, Of: of, Ref: m.Ref}, wire.Deletion{Batch: nasty, Why: nasty})
		case m.Verb == "accept":
			return l.rows(c, &wire.Send{X: x, Of: of, Ref: m.Ref}, wire.Admission{Node: nasty, As: nasty})
		}
		return c.SendTransfer(&wire.Send{X: x, Of: wire.OfIDs, Ref: m.Ref}, func(w io.Writer) error {
			_, err := io.WriteString(w, strings.ReplaceAll(nasty, "\n", "")+"\n")
			return err
		})
	case *wire.Pull:
		return c.Send(&wire.Error{Ref: m.Ref, Status: 74, Text: nasty})
	case *wire.Log:
		return c.Send(&wire.Error{Ref: m.Ref, Status: 66, Text: nasty})
	case *wire.Submit:
		return c.Send(&wire.Error{Ref: m.Ref, Status: 65, Text: nasty, Free: nasty})
	}
	return nil
}

// row is a row of what is asked for, all of whose texts are nasty.
func (l *liar) row(of string) any {
	one := 1
	switch of {
	case "nodes":
		return node.Row{Node: nasty, State: nasty, Note: nasty, Arch: nasty, Containment: nasty, Capability: []string{nasty}}
	case "batches":
		return map[string]any{"id": nasty, "namespace": nasty, "batch": nasty, "owner": nasty, "jobs": 1, "failed": 1}
	}
	return job.Row{ID: "lab/b/j", Namespace: nasty, Batch: nasty, Job: nasty, Owner: nasty, State: job.Failed, Phase: nasty,
		Node: nasty, Attempt: 1, Exit: &one, Signal: nasty, Reason: nasty}
}

func (l *liar) rows(c *wire.Conn, s *wire.Send, rows ...any) error {
	return c.SendTransfer(s, func(w io.Writer) error {
		for _, r := range rows {
			if err := json.NewEncoder(w).Encode(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// X100: whatever a head says, what a tool prints is lines of characters that are
// printed, as many on stdout as there are records, and its own name before each
// that it says on stderr.
func TestX100HostileHead(t *testing.T) {
	l := startLiar(t)
	tests := []struct {
		line string
		out  int // lines on stdout, at most
	}{
		{"dquery", 1}, {"dquery -a job=*", 1}, {"dquery -t job=*", 2}, {"dquery -j job=*", 1}, {"dquery -f job=*", 1}, {"dquery job=wrong", 0},
		{"dquery -c id,namespace,batch,job,owner,phase,node,signal,reason job=*", 1},
		{"dquery -t -c id,namespace,batch,job,owner,phase,node,signal,reason job=*", 2},
		{"dquery id=*", 2}, {"dquery -t id=*", 3}, {"dquery -t state=queued", 3}, {"dquery -j id=*", 2},
		{"dlog id=*", 0},
		{"dquery -s", 1}, {"dquery -st", 2}, {"dquery -sj", 1},
		{"dquery -N", 1}, {"dquery -Nt", 4}, {"dquery -Nj", 1}, {"dquery -N -c node,state,arch,containment,capabilities,note", 1},
		{"dwait job=*", 1}, {"dwait -v job=*", 1}, {"dwait job=wrong", 0},
		{"dcancel job=*", 1}, {"dcancel -n job=*", 1}, {"dcancel job=wrong", 0},
		{"dretry job=*", 1}, {"dretry -n job=*", 1}, {"dretry job=wrong", 0},
		{"dhold job=*", 1}, {"dhold -r job=*", 1}, {"dhold -n -p job=*", 1}, {"dset -p 1 job=*", 1}, {"dset -p 1 job=wrong", 0},
		{"drm lab/b", 1}, {"drm -n lab/b", 1}, {"drm job=wrong", 0},
		{"dpull job=*", 1}, {"dpull -n lab/b/j", 1}, {"dpull job=wrong", 0},
		{"dtable job=* e=x:.e", 2}, {"dtable -j job=* e=x:1", 1}, {"dtable -a -c id,job,owner,node,reason job=*", 2}, {"dtable job=wrong", 1},
		{"dlog lab/b/j", 0}, {"dlog job=*", 0}, {"dlog -B lab/b/j", 0},
		{"dsubmit -b lab/b -- true", 0}, {"dsubmit -u -b lab/b -- true", 0},
		{"dadm lost ws1", 1}, {"dadm accept ws1 SHA256:kX3f9", 1}, {"dadm remove ws1", 1},
	}
	for _, tt := range tests {
		args := strings.Fields(tt.line)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Dir, c.Env = t.TempDir(), append(os.Environ(), "DHEAD="+l.dir, "HOME="+t.TempDir())
		var out, talk strings.Builder
		c.Stdout, c.Stderr = &out, &talk
		if err := c.Run(); err != nil && c.ProcessState.ExitCode() < 0 {
			t.Errorf("%s: %v", tt.line, err)
		}
		cancel()
		if out.Len()+talk.Len() == 0 {
			t.Errorf("%s says nothing at all", tt.line)
		}
		if n := strings.Count(out.String(), "\n"); n > tt.out {
			t.Errorf("%s prints %d lines, want %d: %q", tt.line, n, tt.out, out.String())
		}
		printed(t, tt.line, out.String()+talk.String())
		for said := range strings.Lines(talk.String()) {
			if !strings.HasPrefix(said, args[0]+": ") {
				t.Errorf("%s says %q", tt.line, said)
			}
		}
	}
}

// An id that leads out of where results go is not believed.
func TestPullOfAnIDThatLeadsUp(t *testing.T) {
	l := startLiar(t)
	c := exec.CommandContext(t.Context(), "dpull", "job=up")
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), "DHEAD="+l.dir)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "the same invalid answer, 3 times") {
		t.Errorf("dpull says %s, %v", out, err)
	}
}

// printed finds what a terminal would do something else with than show it.
func printed(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%q: %q is not UTF-8", what, text)
	}
	for i, r := range text {
		if !strconv.IsPrint(r) && r != '\n' && r != '\t' {
			t.Errorf("%q: there is %U in %q", what, r, text[max(0, i-40):min(len(text), i+40)])
			return
		}
	}
}

// X100: whatever files and batch files are called and hold, what is said of them
// is lines that are printed.
func TestX100HostileNames(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Dir, c.Env = dir, append(os.Environ(), "DHEAD="+filepath.Join(dir, "spool"), "HOME="+dir)
		out, err := c.CombinedOutput()
		if err != nil && c.ProcessState.ExitCode() < 0 {
			t.Fatalf("%q: %v", args, err)
		}
		return string(out)
	}
	run("dadm", "init", "spool")
	bad := nasty + "\xff\xfe"
	for _, below := range []string{"", "batches", "incoming", "rejected", "blobs", "nodes", "run", "batches/lab"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "spool", below), 0o750), os.WriteFile(filepath.Join(dir, "spool", below, bad), []byte(bad), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "spool/batches/lab/b"), 0o750), os.WriteFile(filepath.Join(dir, "spool/batches/lab/b/log.jsonl"), []byte(bad), 0o640)); err != nil {
		t.Fatal(err)
	}
	quoted := strconv.Quote(nasty)
	for name, text := range map[string]string{
		"raw":   bad,
		"key":   "meta: {namespace: lab, batch_name: b, " + quoted + ": 1}\ncommand: {jobs: []}\n",
		"name":  "meta: {namespace: lab, batch_name: " + quoted + ", capabilities: []}\ncommand: {jobs: [{name: " + quoted + ", run: ['true']}]}\n",
		"input": "meta: {namespace: lab, batch_name: b, capabilities: []}\ncommand: {jobs: [{name: j, run: ['true'], required_files: [" + quoted + "]}]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := 0
	for _, args := range [][]string{
		{"dfsck", "-S", "spool"}, {"dfsck", "-s", "-S", "spool"}, {"dfsck", "-j", "-S", "spool"}, {"dfsck", "-v", "-S", bad}, {"dquery", "-a"}, {"dquery", bad}, {"dquery", "owner=" + bad},
		{"dsubmit", "raw.yaml"}, {"dsubmit", "key.yaml"}, {"dsubmit", "name.yaml"}, {"dsubmit", "input.yaml"}, {"dsubmit", bad + ".yaml"},
		{"dsubmit", "-b", "lab/c", "-i", bad, "--", "true"}, {"dsubmit", "-b", bad, "--", "true"}, {"dpull", bad}, {"dlog", bad}, {"dadm", "init", filepath.Join("spool", bad)},
		{"dadm", bad}, {"dnew", bad}, {"dsched", "-S", bad}, {"dsched", "-S", "spool", "-l", bad}, {"dnoded", "raw.yaml"},
	} {
		text := run(args...)
		printed(t, strings.Join(args, " "), text)
		if strings.Contains(text, "mine") {
			said++
		}
	}
	if said < 10 {
		t.Errorf("only %d of them say anything of it", said)
	}
}
