package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// A Ran is an attempt that ran where no dnoded is, as on a cluster.
type Ran struct {
	Attempt job.Token
	Result  *job.Result     // how it ended; nil: it has not
	For     float64         // seconds that one which runs has run; 0: not known
	Waits   bool            // one that has not ended waits there, as it does again when a machine failed
	Left    *Left           // what it left; nil: nothing comes home
	Over    func(have bool) // is called when the head has all that it wants, or has not taken it
}

// A Left is the directory of a job that is over: what it has written is below work/ in it.
type Left struct {
	Job     string
	Open    func() (*os.Root, error)
	Printed map[string]string // the files with what it has printed, by their paths at home
	Kind    string            // of its batch
	Outputs []string          // what comes home; none: everything
	Inputs  []string          // paths below work/ that were there before it began, once for each time that one may have,
	MTimes  []int64           // with these times in nanoseconds since 1970,
	Started time.Time         // or older than this where they are not known
	Cleared bool              // of the inputs only those are there that the job has changed
}

var (
	// ErrLost is that the session with the head ended too early.
	ErrLost = errors.New("lost the head")
	// ErrStuck is that the head takes no result for a long time.
	ErrStuck = fmt.Errorf("the head takes no result for %v (is its disk full?)", stuckAfter)
)

// How many results may be under way, and how long the head may take for the next step of
// any of them.
const (
	underWay   = 16
	stuckAfter = 5 * time.Minute
)

// Tell tells the head of attempts that ran elsewhere as those of the node of that name,
// and sends what they left. Of the settings it uses those of the session. It returns when
// the head has all that it wants. The error is [ErrStuck], [ErrLost], a *[wire.Error] of
// the head, or one of reading what was left, which is [pack.ErrChanged] if that has changed
// meanwhile.
func Tell(ctx context.Context, s Settings, all []*Ran) error {
	s.fill()
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &results{n: &s, all: all, fail: cancel, room: make(chan struct{}, underWay), answered: make(chan struct{}), sending: map[job.Token]*sending{}}
	r.late = time.AfterFunc(stuckAfter, func() { cancel(ErrStuck) })
	defer r.late.Stop()
	up, err := s.session(ctx, r)
	for _, w := range r.sending {
		w.close()
	}
	switch why := context.Cause(ctx); {
	case why != nil:
		return why
	case up && err != nil:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// results is the holder of attempts that ran elsewhere.
type results struct {
	n        *Settings
	all      []*Ran
	c        *wire.Conn // control
	fail     func(error)
	late     *time.Timer
	room     chan struct{} // is full when so many are under way as may be
	answered chan struct{} // is closed when the head has answered lastPing
	heard    sync.Once

	mu      sync.Mutex             // guards sending
	sending map[job.Token]*sending // what is under way
}

// A sending is an attempt that the head is told of, with what of it is to be sent.
type sending struct {
	*Ran
	tree *tree         // nil: nothing
	use  chan struct{} // is full while tree is sent, or closed: a transfer may take long
}

func (w *sending) close() {
	w.use <- struct{}{}
	defer func() { <-w.use }()
	if w.tree != nil {
		w.tree.root.Close()
		w.tree = nil
	}
}

func (r *results) hello() wire.Hello { return wire.Hello{Boot: "-", State: "-", Batch: r.n.Batch} }

// attach says that the node offers nothing; what it has follows.
func (r *results) attach(_ context.Context, s *session, _ *wire.Hello) error {
	r.c = s.c
	return r.c.Send(&wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{})
}

func (r *results) detach() {}

func (r *results) beside(*session) []func(context.Context) error {
	return []func(context.Context) error{r.tell}
}

// lastPing is the number of the ping behind all that is told; those of the session are
// far less.
const lastPing = 1 << 62

// tell tells of all attempts, and waits until the head has answered.
func (r *results) tell(ctx context.Context) error {
	take := func() error {
		select {
		case r.room <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, a := range r.all {
		if a.Result == nil {
			phase := job.PhaseRunning
			if a.Waits {
				phase = job.PhaseWaiting
			}
			if err := r.c.Send(&wire.Phase{Attempt: a.Attempt, Phase: phase, Ran: a.For}); err != nil {
				return err
			}
			continue
		}
		if err := take(); err != nil {
			return err
		}
		w := &sending{Ran: a, use: make(chan struct{}, 1)}
		r.restartTimer()
		ended, err := r.read(ctx, w)
		if err != nil {
			r.fail(err)
			return err
		}
		r.mu.Lock()
		r.sending[a.Attempt] = w
		r.mu.Unlock()
		r.restartTimer()
		if err := r.c.Send(ended); err != nil {
			return err
		}
	}
	for range underWay {
		if err := take(); err != nil {
			return err
		}
	}
	r.late.Reset(stuckAfter)
	if err := r.c.Send(&wire.Ping{N: lastPing}); err != nil {
		return err
	}
	select {
	case <-r.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restartTimer gives the head its time for the next step anew, if it has one to take. What is read
// here meanwhile is none of its time.
func (r *results) restartTimer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sending) == 0 {
		r.late.Stop()
	} else {
		r.late.Reset(stuckAfter)
	}
}

// read reads what an attempt has left, and makes the message that tells of it. What can
// never come home is the reason of its end.
func (r *results) read(ctx context.Context, w *sending) (*wire.Ended, error) {
	ended := &wire.Ended{Attempt: w.Attempt, Result: *w.Result}
	if w.Left == nil {
		return ended, nil
	}
	t, err := w.Left.read(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, pack.ErrLimit), errors.Is(err, pack.ErrFormat), errors.Is(err, fs.ErrNotExist):
		if ended.Reason == "" {
			ended.Reason = clean("what it left cannot be brought home: " + err.Error())
		}
		return ended, nil
	case err != nil:
		return nil, err
	}
	w.tree = t
	noteManifest(&ended.Result, t.m)
	ended.Skipped = clean(strings.Trim(ended.Skipped+"; "+pack.InWords(t.skipped), "; "))
	var data bytes.Buffer
	if len(t.m) > 0 && t.m.Small() && r.writeTree(&data, t, pack.Want{}) == nil {
		ended.List, ended.Data = t.m.List(), data.Bytes()
	}
	return ended, nil
}

func (r *results) writeTree(out io.Writer, t *tree, want pack.Want) error {
	return pack.Sender(dial.Local(r.n.Addr))(out, t.m, want, t.open)
}

func (r *results) now(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Error:
		r.fail(m)
	case *wire.Pong:
		if m.N == lastPing {
			r.heard.Do(func() { close(r.answered) })
		}
	default:
		return false
	}
	return true
}

// obey lets go of what the head has, or does not want.
func (r *results) obey(_ context.Context, _ *session, ms []wire.Message) {
	for _, m := range ms {
		switch m := m.(type) {
		case *wire.Have:
			r.gone(m.Attempt)
		case *wire.Forget:
			r.gone(m.Attempt)
		case *wire.Hold:
			r.over(m.Attempt, false)
		}
	}
}

func (r *results) gone(t job.Token) {
	if err := r.c.Send(&wire.Gone{Attempt: t}); err == nil {
		r.over(t, true)
	}
}

func (r *results) over(t job.Token, have bool) {
	r.mu.Lock()
	w := r.sending[t]
	delete(r.sending, t)
	r.mu.Unlock()
	if w == nil {
		return
	}
	w.close()
	w.Over(have)
	r.restartTimer()
	<-r.room
}

// deliver sends one result.
func (r *results) deliver(c *wire.Conn, x *uint64, g *wire.Grant) error {
	r.mu.Lock()
	w := r.sending[g.Attempt]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	w.use <- struct{}{}
	defer func() { <-w.use }()
	if w.tree == nil {
		return nil
	}
	r.late.Reset(stuckAfter)
	if err := pack.Want(g.Want).Check(w.tree.m); err != nil {
		return fmt.Errorf("it wants what is not there: %w", err)
	}
	var own error
	err := sendResult(c, x, g, w.tree.m, func(out io.Writer) error {
		own = r.writeTree(moving{out, r.late}, w.tree, pack.Want(g.Want))
		return own
	})
	if damaged(own) {
		r.fail(fmt.Errorf("%s: %w", w.Left.Job, own))
	}
	return err
}

// moving is a transfer that is seen to move.
type moving struct {
	io.Writer
	late *time.Timer
}

func (m moving) Write(p []byte) (int, error) {
	m.late.Reset(stuckAfter)
	return m.Writer.Write(p)
}

// A tree is what a job has left, as it comes home.
type tree struct {
	of      *Left
	root    *os.Root
	m       pack.Manifest
	skipped []pack.Skipped // what does not come home, which a file names
}

// read reads what a job has left, as gather does on a node.
func (l *Left) read(ctx context.Context) (*tree, error) {
	root, err := l.Open()
	if err != nil {
		return nil, err
	}
	t := &tree{of: l, root: root}
	if err := t.read(ctx); err != nil {
		root.Close()
		return nil, err
	}
	return t, nil
}

func (t *tree) read(ctx context.Context) error {
	var err error
	if t.m, t.skipped, err = t.work(ctx); err != nil {
		return err
	}
	for path, name := range t.of.Printed {
		info, err := t.root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := openSame(t.root, name, info)
		if err != nil && ofOwner(err) {
			t.skipped = append(t.skipped, pack.Skipped{Path: path, Why: reason(err)})
			continue
		}
		if err != nil {
			return err
		}
		e, err := printedEntry(f, path)
		f.Close()
		if err != nil {
			return err
		}
		m, lost := merge(t.m, pack.Manifest{e})
		t.m, t.skipped = m, append(t.skipped, lost...)
	}
	if len(t.skipped) > 0 {
		text := skippedText(t.skipped)
		sum, size, _ := hashed(bytes.NewReader(text), int64(len(text)))
		t.m, _ = merge(t.m, pack.Manifest{{Path: job.SkippedName(t.of.Job), Type: pack.File, Size: size, Mode: 0o644, Time: time.Unix(0, 0).UTC(), Sum: sum}})
	}
	return t.m.Check(pack.DefaultLimits())
}

// work reads the directory in which the job ran.
func (t *tree) work(ctx context.Context) (pack.Manifest, []pack.Skipped, error) {
	if why := pack.Gone(t.root.Lstat("work")); why != "" {
		return nil, pack.NothingOf(why), nil
	}
	info, err := t.root.Lstat(path.Join("work", saveDir))
	l := &left{kind: t.of.Kind, outputs: t.of.Outputs, before: t.of.inputs(), saves: err == nil && info.IsDir()}
	l.scan = func(dir string, keep func(string, fs.FileInfo) bool) (pack.Manifest, []pack.Skipped, error) {
		root, err := t.root.OpenRoot(path.Join("work", dir) + "/.")
		return scanRoot(ctx, path.Base(path.Join("work", dir)), root, err, keep)
	}
	return l.gather()
}

// inputs are those that were placed before the job began.
type inputs struct {
	files   map[string][]time.Time // the times that each may have; none: not known
	dirs    map[string]bool
	started time.Time
	cleared bool
}

func (l *Left) inputs() *inputs {
	in := &inputs{map[string][]time.Time{}, map[string]bool{}, l.Started, l.Cleared}
	for i, p := range l.Inputs {
		times := in.files[p]
		if i < len(l.MTimes) {
			times = append(times, time.Unix(0, l.MTimes[i]))
		}
		in.files[p] = times
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			in.dirs[d] = true
		}
	}
	return in
}

// WasDir reports whether a path is of a directory above an input.
func (in *inputs) WasDir(p string) bool { return in.dirs[p] }

// Changed says that a file is no input, or that the job has changed it: one with another time than it
// had, which may be an older one, as of cp -p. An input may be younger than the job, by the clock of
// the submitter's machine; some disks cut times to whole seconds. Where its time is not known, that of
// the job's start counts; what the files of a disk are told is a little behind the clock.
func (in *inputs) Changed(p string, info fs.FileInfo) bool {
	if in.cleared {
		return true
	}
	had, is := in.files[p]
	if slices.ContainsFunc(had, func(t time.Time) bool {
		less := t.Sub(info.ModTime())
		return less >= 0 && less < time.Second
	}) {
		return false
	}
	return !is || len(had) > 0 || !in.started.IsZero() && !info.ModTime().Before(in.started.Add(-time.Second))
}

// open opens a file of the result. That it is still as it was is seen on the way.
func (t *tree) open(_ int, e pack.Entry) (io.ReadCloser, error) {
	if e.Path == job.SkippedName(t.of.Job) && len(t.skipped) > 0 {
		return io.NopCloser(bytes.NewReader(skippedText(t.skipped))), nil
	}
	return openHome(t.root, t.of.Printed, e, nil)
}
