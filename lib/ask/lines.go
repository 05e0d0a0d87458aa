package ask

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/wire"
)

// Lines is what an attempt or its build prints, as talk: each line behind a name.
type Lines struct {
	Cmd  *cli.Cmd
	Head string // as for [Dial]
	Name string
	Over bool // all of it was shown, or there is nothing

	mu   sync.Mutex // of who shows it
	seen int64      // bytes of it
	rest []byte     // of the last line, as far as it has come
}

// Follow shows what the build prints, and then what an attempt does, as it comes, until all
// was shown or ctx ends.
func (p *Lines) Follow(ctx context.Context, build *Lines, attempt string) {
	for again := time.Millisecond; ctx.Err() == nil; again = min(2*again, time.Second/5) {
		if build.show(ctx, wire.Log{ID: attempt, Build: true, Follow: true}) && p.show(ctx, wire.Log{ID: attempt, Follow: true}) {
			return
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// Rest shows what is left of both when the attempt is over.
func (p *Lines) Rest(ctx context.Context, build *Lines, attempt string) {
	build.show(ctx, wire.Log{ID: attempt, Build: true})
	p.show(ctx, wire.Log{ID: attempt})
}

// show shows what the head has of it, by what it is asked for, and says whether that was
// all. There may be nothing yet.
func (p *Lines) show(ctx context.Context, l wire.Log) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Over {
		return true
	}
	h, err := Dial(ctx, &cli.Cmd{Getenv: p.Cmd.Getenv}, p.Head) // which says nothing of it
	if err != nil {
		return false
	}
	defer h.Close()
	l.Ref, l.From = job.NewToken(), p.seen
	if h.Send(&l) != nil {
		return false
	}
	s, err := wire.Expect[*wire.Send](h.Conn)
	if err == nil {
		_, err = io.Copy((*shown)(p), h.RecvTransfer(s))
	}
	if p.Over = err == nil; p.Over && len(p.rest) > 0 {
		p.Cmd.Talk("%s: %s", p.Name, p.rest)
	}
	return p.Over
}

// maxShown is how many bytes of a line are shown at once.
const maxShown = 64 << 10

// shown is Lines to which is written what they are.
type shown Lines

// Write shows the lines that are whole.
func (p *shown) Write(text []byte) (int, error) {
	p.seen += int64(len(text))
	p.rest = append(p.rest, text...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte{'\n'})
		if !whole && len(p.rest) < maxShown {
			return len(text), nil
		}
		p.Cmd.Talk("%s: %s", p.Name, line)
		p.rest = rest
	}
}
