package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/wire"
)

// A fakeHead answers requests for logs, and counts its sessions.
type fakeHead struct {
	addr string

	mu       sync.Mutex
	sessions int
	asked    []string
	ends     func(session, request int, id string) wire.Message // how a session ends instead of an answer; nil: it goes on
}

// hungUpSilently ends a session without a word.
var hungUpSilently wire.Message = &wire.Pong{}

func newFakeHead(t *testing.T, ends func(session, request int, id string) wire.Message) *fakeHead {
	t.Helper()
	f := &fakeHead{addr: "unix:" + filepath.Join(t.TempDir(), "socket"), ends: ends}
	l, err := dial.Listen(f.addr)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.sessions++
			n := f.sessions
			f.mu.Unlock()
			all.Go(func() { f.serve(wire.New(s), n) })
		}
	})
	return f
}

func (f *fakeHead) serve(c *wire.Conn, session int) {
	defer c.Close()
	for request := 0; ; {
		m, err := c.Recv()
		if err != nil {
			return
		}
		log, ok := m.(*wire.Log)
		if !ok {
			c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, User: "me"})
			continue
		}
		request++
		f.mu.Lock()
		f.asked = append(f.asked, log.ID)
		f.mu.Unlock()
		switch end := f.ends(session, request, log.ID); {
		case end == hungUpSilently:
			return
		case end != nil:
			c.Send(end)
			if end.(*wire.Error).Status == cli.Later {
				return
			}
		default:
			c.SendTransfer(&wire.Send{X: uint64(request), Of: wire.OfLog, Ref: log.Ref, Try: 1}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, "of", log.ID)
				return err
			})
		}
	}
}

// Jobs are asked for over one session. Where the head ended it, the job is asked for again over a
// new one, once: a head that does not answer there either is lost.
func TestOneSession(t *testing.T) {
	for name, tt := range map[string]struct {
		ends     func(session, request int, id string) wire.Message
		sessions int
		asked    string
		printed  string
		problem  string
	}{
		"all answered": {func(int, int, string) wire.Message { return nil }, 1, "1 2 3", "1 2 3", ""},
		"one refused": {func(_, _ int, id string) wire.Message {
			if id == "n/b/2" {
				return &wire.Error{Status: cli.NoSuch, Text: "nothing is printed yet"}
			}
			return nil
		}, 1, "1 2 3", "1 3", "n/b/2: nothing is printed yet"},
		"hung up after each": {func(_, request int, _ string) wire.Message {
			if request > 1 {
				return hungUpSilently
			}
			return nil
		}, 3, "1 2 2 3 3", "1 2 3", ""},
		"idle for too long": {func(_, request int, _ string) wire.Message {
			if request > 1 {
				return &wire.Error{Status: cli.Later, Text: "nothing more was heard for too long"}
			}
			return nil
		}, 3, "1 2 2 3 3", "1 2 3", ""},
		"lost": {func(_, _ int, id string) wire.Message {
			if id == "n/b/2" {
				return hungUpSilently
			}
			return nil
		}, 2, "1 2 2", "1", "n/b/2: lost the head"},
		"lost at once": {func(int, int, string) wire.Message { return hungUpSilently }, 1, "1", "", "n/b/1: lost the head"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeHead(t, tt.ends)
			c := &cli.Cmd{Name: "dlog", Stderr: io.Discard, Getenv: func(string) string { return "" }}
			heads, err := ask.NewSessions(c, f.addr)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			in, out := &session{heads: heads}, &output{w: &b}
			err = each([]string{"n/b/1", "n/b/2", "n/b/3"}, func(id string) error {
				return newLog(id, wire.Log{}).show(t.Context(), c, in, out)
			})
			in.close()
			f.mu.Lock()
			defer f.mu.Unlock()
			short := func(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "n/b/", "") }
			asked, printed := short(strings.Join(f.asked, " ")), short(strings.ReplaceAll(strings.ReplaceAll(b.String(), "of ", ""), "\n", " "))
			if f.sessions != tt.sessions || asked != tt.asked || printed != tt.printed {
				t.Errorf("%d sessions, asked for %q, printed %q; want %d, %q, %q", f.sessions, asked, printed, tt.sessions, tt.asked, tt.printed)
			}
			if (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%v, want %q", err, tt.problem)
			}
		})
	}
}
