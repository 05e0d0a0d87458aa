package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/cli"
	"distribute/lib/durable"
	"distribute/lib/matrix"
	"distribute/lib/suite"
)

// A lab has a sender that reaches everybody but some.
type lab struct {
	*sender
	ctx  context.Context
	log  bytes.Buffer
	away map[string]error // why; by recipient
	sent []string
}

func newLab(t *testing.T, dir string) *lab {
	t.Helper()
	c, err := openCursor(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{away: map[string]error{}}
	ctx, stop := context.WithCancel(t.Context())
	l.ctx = ctx
	l.sender = &sender{cursor: c, log: slog.New(slog.NewTextHandler(&l.log, nil)), last: map[string]chan struct{}{},
		stop: func(error) { stop() },
		send: func(_ context.Context, m *message) error {
			if l.away[m.to] == nil {
				l.sent = append(l.sent, m.to+" "+m.of)
			}
			return l.away[m.to]
		}}
	return l
}

// over is the message that a batch is over.
func over(of, to string) *message { return &message{"over", of, time.Unix(1, 0), to, "x"} }

func (l *lab) put(to, of string) { l.add(l.ctx, over(of, to)) }

// now is what was sent.
func (l *lab) now() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.sent, ", ")
}

func (l *lab) reach(to string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away[to] = err
}

// Who cannot be reached keeps nobody else waiting, and a message for him is given up after
// a day, with what was said, however many wait before it. Those to one recipient stay in
// their order.
func TestOneRecipientAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "")
		l.reach("@ana:x", errors.New("nobody answers"))
		l.put("@ana:x", "1")
		l.put("@ana:x", "2")
		l.put("@ben:x", "3")
		l.put("@ben:x", "4")
		if got := l.now(); got != "@ben:x 3, @ben:x 4" {
			t.Fatalf("sent %s", got)
		}
		time.Sleep(time.Hour)
		l.put("@ben:x", "5")
		l.put("@ana:x", "6")
		if got := l.now(); got != "@ben:x 3, @ben:x 4, @ben:x 5" {
			t.Fatalf("after an hour sent %s", got)
		}
		time.Sleep(23*time.Hour + 2*lastWait)
		synctest.Wait()
		if n := strings.Count(l.log.String(), `msg="a message is given up"`); n != 2 || !strings.Contains(l.log.String(), "nobody answers") {
			t.Errorf("after a day:\n%s", &l.log)
		}
		l.reach("@ana:x", nil)
		time.Sleep(lastWait)
		if got := l.now(); !strings.HasSuffix(got, ", @ana:x 6") || strings.Count(got, "@ana:x") != 1 || len(l.cursor.told) != 6 {
			t.Errorf("at last sent %s, and told is %v", got, l.cursor.told)
		}
		l.sending.Wait()
	})
}

// A message waits as long as the server asks for; is given up when the server refuses it;
// and is never given up for bad credentials, which are logged once.
func TestServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "")
		l.reach("@ana:x", &matrix.Error{Status: 429, After: time.Hour})
		l.reach("@ben:x", &matrix.Error{Status: 403, Code: "M_FORBIDDEN"})
		l.put("@ana:x", "1")
		l.put("@ben:x", "2")
		synctest.Wait()
		l.reach("@ana:x", nil)
		l.reach("@ben:x", nil)
		time.Sleep(time.Hour - time.Second)
		if got := l.now(); got != "" {
			t.Errorf("sent %s", got)
		}
		time.Sleep(time.Second)
		if got := l.now(); got != "@ana:x 1" || strings.Count(l.log.String(), "M_FORBIDDEN") != 1 {
			t.Errorf("sent %s", got)
		}
		l.reach("@cleo:x", matrix.ErrCredentials)
		l.put("@cleo:x", "3")
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		if n := strings.Count(l.log.String(), "bad credentials"); n != 1 {
			t.Errorf("%d times: %s", n, &l.log)
		}
		l.reach("@cleo:x", nil)
		time.Sleep(lastWait)
		if got := l.now(); got != "@ana:x 1, @cleo:x 3" {
			t.Errorf("sent %s", got)
		}
	})
}

// When the power goes at any step, no message is lost: what the cursor says was sent, and
// what it does not say is sent again, as the same message.
func TestPowerCutAtEachStep(t *testing.T) {
	for cut, whole := 1, false; !whole; cut++ {
		dir := filepath.Join(t.TempDir(), "d")
		var sent []string
		life := func(upto int) {
			l, steps := newLab(t, dir), 0
			defer l.cursor.close()
			l.send = func(_ context.Context, m *message) error {
				sent = append(sent, m.id())
				return nil
			}
			end := durable.Observe(&durable.Observer{Step: func(string) error {
				if steps++; steps < upto {
					return nil
				}
				return durable.ErrStep
			}})
			defer end()
			for key := range l.cursor.told {
				if id := over(strings.TrimPrefix(key, "over "), "").id(); !slices.Contains(sent, id) {
					t.Errorf("cut at %d: %s is told and was not sent", cut, key)
				}
			}
			known := maps.Clone(l.cursor.told)
			for _, of := range []string{"lab/a", "lab/b", "lab/c"} {
				if known["over "+of].IsZero() {
					l.put("", of)
				}
			}
			l.sending.Wait()
			whole = steps < upto
		}
		life(cut)
		left := filepath.Join(dir, ".cursor.json.0.tmp~")
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		done := whole
		life(1000)
		once := slices.Compact(slices.Sorted(slices.Values(sent)))
		if len(once) != 3 || len(sent) > 4 {
			t.Errorf("cut at %d: sent %q", cut, sent)
		}
		life(1000)
		if _, err := os.Stat(left); len(sent) > 4 || len(once) != 3 || err == nil {
			t.Errorf("cut at %d: sent %q; what a crash left: %v", cut, sent, err)
		}
		if whole = done; whole && cut < 10 {
			t.Errorf("%d steps are too few", cut)
		}
	}
}

// A command that fails is run eight times.
func TestCommandFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "")
		l.tries = maxTries
		n := 0
		l.send = func(context.Context, *message) error {
			n++
			return errors.New("exit 1")
		}
		l.put("", "1")
		l.sending.Wait()
		if n != 8 || !strings.Contains(l.log.String(), "given up") {
			t.Errorf("it was run %d times: %s", n, &l.log)
		}
	})
}

// A command that hangs is killed with what it has started, and has failed.
func TestCommandHangs(t *testing.T) {
	usual := commandWithin
	if usual != 10*time.Minute {
		t.Errorf("a command may take %v", usual)
	}
	commandWithin = 50 * time.Millisecond
	defer func() { commandWithin = usual }()
	var child bytes.Buffer
	c := &cli.Cmd{Command: []string{"sh", "-c", "sleep 1000 & echo $!; wait"}, Stdout: &child, Stderr: io.Discard}
	err := byCommand(t.Context(), c, &message{text: "x"})
	if err == nil || !strings.Contains(err.Error(), "it took longer than") {
		t.Errorf("%v", err)
	}
	suite.Gone(t, child.String())
	commandWithin = usual
	if err := byCommand(t.Context(), &cli.Cmd{Command: []string{"false"}, Stdout: io.Discard, Stderr: io.Discard}, &message{}); err == nil || strings.Contains(err.Error(), "longer") {
		t.Errorf("of one that fails: %v", err)
	}
}

// A command that exits with 0 has sent its message, also when it leaves a process that has its
// output open.
func TestCommandLeavesProcess(t *testing.T) {
	var out bytes.Buffer
	c := &cli.Cmd{Command: []string{"sh", "-c", "sleep 1000 & echo $!"}, Stdout: &out, Stderr: io.Discard}
	err := byCommand(t.Context(), c, &message{text: "x"})
	pid, perr := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil || perr != nil {
		t.Fatalf("%v; it printed %q", err, &out)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what it left was ended: %v", err)
	}
}
