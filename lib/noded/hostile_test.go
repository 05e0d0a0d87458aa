package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// bareMachine is one on which nothing runs.
type bareMachine struct{}

func (bareMachine) ID() string                                   { return "" }
func (bareMachine) Stays(string) bool                            { return false }
func (bareMachine) Boot() (string, error)                        { return "boot", nil }
func (bareMachine) Cgroup(string, string) (string, error)        { return "", errors.New("none") }
func (bareMachine) NewSlot() (Slot, error)                       { return nil, errors.New("none") }
func (bareMachine) Alive(string) (bool, error)                   { return false, nil }
func (bareMachine) Holder(string) (int, error)                   { return 0, errors.New("none") }
func (bareMachine) Memory([]int, int64) (*proc.MemoryUse, error) { return &proc.MemoryUse{}, nil }
func (bareMachine) AwaitFree(context.Context, string) error      { return nil }
func (bareMachine) Still(string, string, bool) error             { return nil }
func (bareMachine) Leave(string, string) error                   { return nil }
func (bareMachine) StopHeld(string) error                        { return nil }
func (bareMachine) Reclaim(context.Context, string, string, string) (func() error, int, error) {
	return nil, 0, errors.New("none")
}

// A head that takes everything and says nothing is given up after three pings
// that it has not answered, and the node dials again.
func TestT80FrozenHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		calls := make(chan *wire.Conn, 10)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Settings{Addr: "/spool", Name: "ws1", Offer: node.Offer{CPUs: 1}, Dir: filepath.Join(t.TempDir(), "node"),
				Log: strictLog(slog.DiscardHandler), Machine: bareMachine{}, Uptime: func() time.Duration { return time.Since(began) },
				Dial: func(context.Context, string) (net.Conn, error) {
					a, b := net.Pipe()
					calls <- wire.New(b)
					return a, nil
				}})
		}()
		nodes := make(chan time.Duration, 10)
		var pings atomic.Int64
		go func() {
			for c := range calls {
				go func() {
					defer c.Close()
					h, err := wire.Expect[*wire.Hello](c)
					if err != nil {
						return
					}
					if h.Role == wire.RoleNode {
						nodes <- time.Since(began)
					}
					if c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, Join: job.NewToken(), Spool: "s"}) != nil {
						return
					}
					for { // and from now on not a word
						m, err := c.Recv()
						if err != nil {
							return
						}
						if _, ok := m.(*wire.Ping); ok && len(nodes) == 0 {
							pings.Add(1)
						}
					}
				}()
			}
		}()
		first := <-nodes
		second := <-nodes
		if d := second - first; d < silentAfter || d > silentAfter+10*time.Second {
			t.Errorf("it dials again after %v", d)
		}
		if n := pings.Load(); n < 2 || n > 3 {
			t.Errorf("it pinged %d times", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(calls)
	})
}

// A head of versions that the node does not know is refused in words that name
// both, and the jobs run on; the next head gets their results.
func TestT85SkewedHead(t *testing.T) {
	h := newFakeHead(t)
	dir := t.TempDir()
	h.live(filepath.Join(dir, "node"), nil)
	s, _ := h.session()
	gate := filepath.Join(dir, "gate")
	start := h.start(fmt.Sprintf("until test -e %s; do sleep 0.02; done", gate))
	s.say(start)
	for awaited[*wire.Phase](s).Phase != job.PhaseRunning {
	}
	h.skew.Store(true)
	s.c.Close()
	<-h.sessions // and lets it go
	create(t, gate)
	h.skew.Store(false)
	s, items := h.session()
	if len(items) != 1 || items[0].Attempt != start.Attempt {
		t.Fatalf("it lists %+v", items)
	}
	if items[0].Result == nil {
		if e := awaited[*wire.Ended](s); !e.OK() {
			t.Errorf("it says %+v", e)
		}
	} else if !items[0].Result.OK() {
		t.Errorf("it lists %+v", items[0].Result)
	}
}

// reading is a session that reads what a head has sent.
func reading(t *testing.T, text io.Reader) *session {
	a, b := net.Pipe()
	go func() {
		io.Copy(b, text)
		b.Close()
	}()
	t.Cleanup(func() { a.Close() })
	n := &daemon{Settings: &Settings{Log: strictLog(slog.DiscardHandler)}}
	n.fill()
	n.link = newLink(n)
	return &session{n: n.Settings, of: n.link, c: wire.New(a), in: newOutbox(), out: newOutbox(), grants: newOutbox(), watch: newWatch(n.Uptime, nil)}
}

// Of a message that is cut anywhere nothing is obeyed; of those before it, all.
func TestT81CutOrders(t *testing.T) {
	token := job.NewToken()
	keep := fmt.Sprintf(`{"m":"keep","attempt":%q}`+"\n", token)
	stop := fmt.Sprintf(`{"m":"stop","attempt":%q,"why":"cancelled by maria"}`+"\n", token)
	for cut := range len(stop) + 1 {
		s := reading(t, strings.NewReader(keep+stop[:cut]))
		if err := s.read(t.Context()); err == nil {
			t.Fatal("it reads on")
		}
		want := 1
		if cut == len(stop) {
			want = 2
		}
		if got := s.in.take(); len(got) != want {
			t.Errorf("cut after %d of %d bytes: %d messages", cut, len(stop), len(got))
		}
	}
}

// A line without end, and a head that says more than can be obeyed, cost the
// session and little memory.
func TestT79EndlessHead(t *testing.T) {
	for name, text := range map[string]string{
		"a line":   strings.Repeat("x", 4096),
		"messages": `{"m":"hold","attempt":"00112233445566778899aabbccddeeff"}` + "\n",
		"pings":    `{"m":"ping","n":1}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := reading(t, &again{text: text})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := s.read(t.Context())
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "limit") {
				t.Errorf("it ends with %v", err)
			}
			if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 256<<20 {
				t.Errorf("it holds %d MiB", held>>20)
			}
		})
	}
}

// again is a text that is repeated for ever.
type again struct {
	text string
	left bytes.Reader
}

func (a *again) Read(p []byte) (int, error) {
	if a.left.Len() == 0 {
		a.left.Reset([]byte(strings.Repeat(a.text, 1000)))
	}
	return a.left.Read(p)
}
