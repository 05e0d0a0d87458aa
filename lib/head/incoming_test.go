package head

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/durable"
)

// The log says once why a file of incoming/ stays there, however often it is looked at.
func TestIncomingStaysLoggedOnce(t *testing.T) {
	h := newState(t)
	var log sheet
	h.log = slog.New(slog.NewTextHandler(&log, nil))
	if err := os.WriteFile(filepath.Join(h.spool.Dir(), "incoming", "x"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	h.background(t)
	names, ended := make(chan string), make(chan bool)
	go func() {
		defer close(ended)
		h.takeAll(names)
	}()
	defer func() { close(names); <-ended }()
	look := func(times int) {
		for range times {
			names <- "x"
		}
		names <- "none" // which is received when x was looked at
	}
	fail := syscall.EACCES
	undo := durable.Observe(&durable.Observer{Step: func(step string) error {
		if step == "reject.rename" {
			return fail
		}
		return nil
	}})
	defer undo()
	look(3)
	if text := log.String(); strings.Count(text, `file=x`) != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "too short") {
		t.Errorf("of a file that cannot be moved the log has:\n%s", text)
	}
	fail = syscall.EPERM
	look(3)
	if text := log.String(); strings.Count(text, `file=x`) != 2 || !strings.Contains(text, fail.Error()) {
		t.Errorf("of a file that stays for another reason the log has:\n%s", text)
	}
	undo()
	look(1)
	if text := log.String(); strings.Count(text, `file=x`) != 3 || !strings.Contains(text, `msg="submission in incoming/ refused"`) {
		t.Errorf("after it was moved the log has:\n%s", text)
	}
}
