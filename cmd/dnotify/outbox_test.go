package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeWay reaches everybody but some.
type fakeWay struct {
	mu   sync.Mutex
	away map[string]bool
	sent []string
}

func (w *fakeWay) send(_ context.Context, m *message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away[m.to] {
		return errors.New("nobody answers")
	}
	w.sent = append(w.sent, fmt.Sprint(m.to, " ", m.id))
	return nil
}

func (*fakeWay) changed(context.Context) {}

// Who cannot be reached keeps nobody else waiting, and a message for him is given up after
// a day, with what was said. Those to one recipient stay in their order.
func TestOneRecipientAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, err := openSent("")
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		way := &fakeWay{away: map[string]bool{"@ana:x": true}}
		o := &outbox{way: way, told: told, log: slog.New(slog.NewTextHandler(&log, nil)), wake: make(chan struct{}, 1), due: map[string]bool{}}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- o.run(ctx) }()
		put := func(to, id string) { o.put(&message{event: "over", to: to, id: id, told: func(*memory) {}}) }
		put("@ana:x", "1")
		put("@ana:x", "2")
		put("@ben:x", "3")
		put("@ben:x", "4")
		put("@ben:x", "4")
		synctest.Wait()
		if got := strings.Join(way.sent, ", "); got != "@ben:x 3, @ben:x 4" {
			t.Fatalf("sent %s", got)
		}
		time.Sleep(time.Hour)
		put("@ben:x", "5")
		synctest.Wait()
		if got := strings.Join(way.sent, ", "); got != "@ben:x 3, @ben:x 4, @ben:x 5" {
			t.Fatalf("after an hour sent %s", got)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := strings.Count(log.String(), `msg="a message is given up"`); n != 1 || !strings.Contains(log.String(), "nobody answers") {
			t.Errorf("after a day:\n%s", log.String())
		}
		way.mu.Lock()
		way.away = nil
		way.mu.Unlock()
		time.Sleep(lastWait)
		synctest.Wait()
		if got := way.sent[len(way.sent)-1]; got != "@ana:x 2" || len(o.due) > 0 {
			t.Errorf("at last sent %s, and %v are due", got, o.due)
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}
