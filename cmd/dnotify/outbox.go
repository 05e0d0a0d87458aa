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
	"strings"
	"sync"
	"time"

	"distribute/lib/matrix"
)

// A message is one thing to be told, once.
type message struct {
	event   string // over, failing, lost
	subject string // of which batch or node
	id      string // the same for the same thing, also after a crash
	to      string // a user of Matrix, or nobody
	lines   []string
	told    func(*memory) // puts down that it was told
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

// An outbox sends messages one after the other, each until it has been sent.
type outbox struct {
	way  way
	told *sent
	log  *slog.Logger
	wake chan struct{}

	mu    sync.Mutex // guards those below
	queue []*message
	due   map[string]bool // ids of what is in the queue
	ended bool
}

// put adds a message, if it is not there yet.
func (o *outbox) put(m *message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.due[m.id] {
		o.due[m.id] = true
		o.queue = append(o.queue, m)
		o.poke()
	}
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

// first is the message that is next, and whether there will be none.
func (o *outbox) first() (m *message, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil, o.ended
	}
	return o.queue[0], false
}

func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.due, o.queue[0].id)
	o.queue = o.queue[1:]
}

const (
	firstWait = time.Second
	lastWait  = 5 * time.Minute
)

// run sends until there is nothing more to be sent, or ctx ends.
func (o *outbox) run(ctx context.Context) error {
	for ctx.Err() == nil {
		m, over := o.first()
		switch {
		case over:
			return nil
		case m == nil:
			select {
			case <-ctx.Done():
			case <-o.wake:
			}
			continue
		}
		if err := o.deliver(ctx, m); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := o.told.change(m.told); err != nil {
			return err
		}
		o.drop()
	}
	return nil
}

// deliver sends one message, again until it is sent or given up.
func (o *outbox) deliver(ctx context.Context, m *message) error {
	said := ""
	for wait := firstWait; ; {
		err := o.way.send(ctx, m)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			o.log.Info("told", "event", m.event, "of", m.subject, "whom", m.to)
			return nil
		case errors.Is(err, errFinal):
			return err
		case errors.Is(err, errGivenUp):
			o.log.Error("a message is given up", "event", m.event, "of", m.subject, "whom", m.to, "why", err)
			return nil
		}
		pause := wait
		var e *matrix.Error
		if errors.As(err, &e) && e.After > 0 {
			pause = e.After // what fails else after that has failed once
		} else {
			wait = min(2*wait, lastWait)
		}
		if text := err.Error(); text != said {
			o.log.Warn("a message waits, and is tried again", "event", m.event, "of", m.subject, "whom", m.to, "why", text)
			said = text
		}
		if errors.Is(err, matrix.ErrRefused) || errors.Is(err, matrix.ErrCredentials) {
			o.way.changed(ctx)
			wait = firstWait
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
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
	tried     *message
	times     int
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
	if b.tried != m {
		b.tried, b.times = m, 0
	}
	if b.times++; err == nil || b.times < maxTries {
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
