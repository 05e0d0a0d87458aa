package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"distribute/lib/matrix"
	"distribute/lib/timing"
)

// A message is one thing to be told, once.
type message struct {
	event   string // over, failing, lost
	subject string // of which batch or node
	id      string // the same for the same thing, also after a crash
	to      string // a user of Matrix, or nobody
	lines   []string
	told    func(*memory) // puts down that it was told
	times   int           // that a command has failed with it
}

// text is the message as it is read.
func (m *message) text() string { return strings.Join(m.lines, "\n") + "\n" }

// A way is how messages leave. An error of send passes, if it is none of [errGivenUp]
// and [errFinal].
type way interface {
	send(ctx context.Context, m *message) error
	// changed waits until a way that is refused may be taken after all.
	changed(ctx context.Context)
}

var (
	errGivenUp = errors.New("it is not sent again") // the message is left
	errFinal   = errors.New("nothing can be sent")  // nor any other
)

// An outbox sends messages, those to one recipient one after the other, each until it has
// been sent. Who cannot be reached keeps nobody else waiting.
type outbox struct {
	way  way
	told *sent
	log  *slog.Logger
	wake chan struct{}

	mu     sync.Mutex // guards those below
	queues []*queue   // that are not empty, in the order of their first messages
	due    map[string]bool
	after  time.Time // the server takes nothing before
	ended  bool
}

// A queue is what is to be sent to one recipient.
type queue struct {
	to       string
	messages []*message
	wait     time.Duration // after the next failure
	at       time.Time     // when the first message is tried again
	since    time.Time     // when it was tried first
	said     string        // why that failed
}

// put adds a message, if it is not there yet.
func (o *outbox) put(m *message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.due[m.id] {
		return
	}
	o.due[m.id] = true
	defer o.poke()
	for _, q := range o.queues {
		if q.to == m.to {
			q.messages = append(q.messages, m)
			return
		}
	}
	o.queues = append(o.queues, &queue{to: m.to, messages: []*message{m}, wait: firstWait})
}

// end says that nothing more comes.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.poke()
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// next is the queue whose turn it is, or else when to look again, if that is known; over:
// nothing is to be sent, nor will be.
func (o *outbox) next() (q *queue, until time.Time, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, other := range o.queues {
		if q == nil || other.at.Before(q.at) {
			q = other
		}
	}
	if q == nil {
		return nil, time.Time{}, o.ended
	}
	if until = q.at; o.after.After(until) {
		until = o.after
	}
	if time.Now().Before(until) {
		return nil, until, false
	}
	return q, until, false
}

// drop takes the first message off a queue.
func (o *outbox) drop(q *queue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.due, q.messages[0].id)
	q.messages = q.messages[1:]
	q.wait, q.at, q.since, q.said = firstWait, time.Time{}, time.Time{}, ""
	if len(q.messages) == 0 {
		o.queues = slices.DeleteFunc(o.queues, func(other *queue) bool { return other == q })
	}
}

const (
	firstWait = time.Second
	lastWait  = 5 * time.Minute
)

// giveUpAfter is for how long a message is tried.
var giveUpAfter = timing.Wait(24 * time.Hour)

// run sends until there is nothing more to be sent, or ctx ends.
func (o *outbox) run(ctx context.Context) error {
	for ctx.Err() == nil {
		q, until, over := o.next()
		if over {
			return nil
		}
		if q == nil {
			o.sleep(ctx, until)
			continue
		}
		done, err := o.try(ctx, q)
		if err != nil {
			return err
		}
		if !done || ctx.Err() != nil {
			continue
		}
		if err := o.told.change(q.messages[0].told); err != nil {
			return err
		}
		o.drop(q)
	}
	return nil
}

// sleep waits until then, for ever if it is not known, or until there is something new.
func (o *outbox) sleep(ctx context.Context, until time.Time) {
	var at <-chan time.Time
	if !until.IsZero() {
		at = time.After(time.Until(until))
	}
	select {
	case <-ctx.Done():
	case <-o.wake:
	case <-at:
	}
}

// try sends the first message of a queue, and says whether it is done with: sent, or
// given up.
func (o *outbox) try(ctx context.Context, q *queue) (done bool, err error) {
	m := q.messages[0]
	if q.since.IsZero() {
		q.since = time.Now()
	}
	log := o.log.With("event", m.event, "of", m.subject, "whom", m.to)
	err = o.way.send(ctx, m)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err == nil:
		log.Info("told")
		return true, nil
	case errors.Is(err, errFinal):
		return false, err
	case errors.Is(err, errGivenUp):
		log.Error("a message is given up", "why", err)
		return true, nil
	}
	if text := err.Error(); text != q.said {
		log.Warn("a message waits, and is tried again", "why", text)
		q.said = text
	}
	if errors.Is(err, matrix.ErrRefused) || errors.Is(err, matrix.ErrCredentials) {
		o.way.changed(ctx)
		q.wait = firstWait
		return false, nil
	}
	if time.Since(q.since) > giveUpAfter {
		log.Error("a message is given up", "since", q.since, "why", err)
		return true, nil
	}
	var e *matrix.Error
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.As(err, &e) && e.After > 0 {
		o.after = time.Now().Add(e.After) // what fails else after that has failed once
		return false, nil
	}
	q.at = time.Now().Add(q.wait)
	q.wait = min(2*q.wait, lastWait)
	return false, nil
}

// byPrint prints messages, with an empty line behind each.
type byPrint struct{ w io.Writer }

func (p *byPrint) send(_ context.Context, m *message) error {
	if _, err := io.WriteString(p.w, m.text()+"\n"); err != nil {
		return fmt.Errorf("%w: %w", errFinal, err)
	}
	return nil
}

func (*byPrint) changed(context.Context) {}

// byCommand gives each message to a command.
type byCommand struct {
	argv      []string
	out, talk io.Writer
}

// maxTries is how often a command is tried with the same message: about four
// minutes.
const maxTries = 8

func (b *byCommand) send(ctx context.Context, m *message) error {
	cmd := exec.CommandContext(ctx, b.argv[0], b.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(m.text()), b.out, b.talk
	cmd.Env = append(os.Environ(), "D_EVENT="+m.event, "D_OF="+m.subject, "D_ID="+m.id, "D_USER="+m.to)
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if m.times++; err == nil || m.times < maxTries {
		return err
	}
	return fmt.Errorf("%w: %w", errGivenUp, err)
}

func (*byCommand) changed(context.Context) {}

// byMatrix sends messages to users of Matrix.
type byMatrix struct {
	file   string
	device string
	told   *sent
	was    []byte // of the file, when it was read
	client *matrix.Client
}

// read reads the file of credentials.
func (b *byMatrix) read() error {
	b.close()
	c, err := matrix.Read(b.file)
	if err != nil {
		return err
	}
	b.was, b.client = b.look(), matrix.New(c, b.device)
	return nil
}

// look is what tells the file from another of its name.
func (b *byMatrix) look() []byte {
	info, err := os.Stat(b.file)
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "%v %v %v", info.ModTime().UnixNano(), info.Size(), info.Mode())
}

func (b *byMatrix) close() {
	if b.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		b.client.Close(ctx)
		b.client = nil
	}
}

func (b *byMatrix) changed(ctx context.Context) {
	for now := time.NewTicker(firstWait); ; {
		if !bytes.Equal(b.look(), b.was) {
			now.Stop()
			b.close()
			return
		}
		select {
		case <-ctx.Done():
			now.Stop()
			return
		case <-now.C:
		}
	}
}

func (b *byMatrix) send(ctx context.Context, m *message) error {
	if b.client == nil {
		b.was = b.look()
		if err := b.read(); err != nil {
			return fmt.Errorf("%w: %w", matrix.ErrCredentials, err)
		}
	}
	err := b.sendTo(ctx, m)
	var e *matrix.Error
	switch {
	case errors.Is(err, matrix.ErrRefused):
		return fmt.Errorf("%w (change %s: it is read again then)", err, b.file)
	case errors.As(err, &e) && e.Lasting():
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return err
}

// sendTo sends to the room of the user that is known, and if it is his no more, to
// another.
func (b *byMatrix) sendTo(ctx context.Context, m *message) error {
	room := b.told.room(m.to)
	if room != "" {
		in, err := b.client.In(ctx, room, m.to)
		if err != nil {
			return err
		}
		if !in {
			room = ""
		}
	}
	if room == "" {
		var err error
		if room, err = b.client.Room(ctx, m.to); err != nil {
			return err
		}
		if err := b.told.change(func(was *memory) { was.Rooms[m.to] = room }); err != nil {
			return fmt.Errorf("%w: %w", errFinal, err)
		}
	}
	return b.client.Send(ctx, room, m.id, strings.TrimSuffix(m.text(), "\n"), m.html())
}
