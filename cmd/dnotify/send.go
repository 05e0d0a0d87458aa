package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"distribute/lib/cli"
	"distribute/lib/matrix"
	"distribute/lib/timing"
	"distribute/lib/unit"
)

const (
	firstWait = time.Second     // after a failure
	lastWait  = 5 * time.Minute // after many
	maxTries  = 8               // of a command: about four minutes
)

var (
	giveUpAfter   = timing.Wait(24 * time.Hour)   // for so long a message is tried
	commandWithin = timing.Wait(10 * time.Minute) // a command that hangs would hold all up
)

// A sender sends messages, those to one recipient one after the other, each until it was
// sent and the cursor says so. A recipient who cannot be reached delays no other.
type sender struct {
	send  func(context.Context, *message) error // by one goroutine at a time
	tries int                                   // that a message has; 0: no limit
	stop  func(error)                           // ends all: the cursor cannot be written
	log   *slog.Logger

	last    map[string]chan struct{} // of each recipient: closed when the last message is done with
	sending sync.WaitGroup

	mu     sync.Mutex // guards the cursor, and send
	cursor *cursor
}

// add sends a message behind those to the same recipient.
func (s *sender) add(ctx context.Context, m *message) {
	before, done := s.last[m.to], make(chan struct{})
	s.last[m.to] = done
	since := time.Now()
	s.sending.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if m.text == "" || s.deliver(ctx, m, since) {
			s.advance(m.moves())
		}
	})
}

// advance moves the cursor.
func (s *sender) advance(by told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cursor.advance(by); err != nil {
		s.stop(err)
	}
}

// deliver tries a message that came at since until it is sent or given up. It returns false
// when ctx ends.
func (s *sender) deliver(ctx context.Context, m *message, since time.Time) bool {
	log, said := s.log.With("event", m.event, "of", m.of, "whom", m.to), ""
	for try, wait := 1, firstWait; ctx.Err() == nil; try++ {
		s.mu.Lock()
		err := s.send(ctx, m)
		s.mu.Unlock()
		e := matrix.Answer(err)
		switch {
		case err == nil:
			log.Info("told")
			return true
		case ctx.Err() != nil:
			return false
		case e.Lasting(), try == s.tries, time.Since(since) > giveUpAfter && !errors.Is(err, matrix.ErrCredentials):
			log.Error("a message is given up", "since", since, "why", err)
			return true
		case err.Error() != said:
			said = err.Error()
			log.Warn("a message waits, and is tried again", "why", said)
		}
		pause := e.After
		if pause == 0 {
			pause, wait = wait, min(2*wait, lastWait)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return false
}

// byCommand gives a message to a command.
func byCommand(ctx context.Context, c *cli.Cmd, m *message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, commandWithin, fmt.Errorf("it took longer than %s, and was killed", unit.FormatDuration(commandWithin)))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(m.text), c.Stdout, c.Stderr
	cmd.Env = append(os.Environ(), "D_EVENT="+m.event, "D_OF="+m.of, "D_ID="+m.id(), "D_USER="+m.to)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it has started ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it exited with 0, and left a process that has its output open
		return nil
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}
