package ask

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// fake is a head on a socket that answers every request alike.
type fake struct {
	addr string

	mu    sync.Mutex
	reply []wire.Message // nil closes the stream
	asked []wire.Message
}

func head(t *testing.T, reply ...wire.Message) *fake {
	t.Helper()
	f := &fake{addr: "unix:" + filepath.Join(t.TempDir(), "socket"), reply: reply}
	l, err := dial.Listen(f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(wire.New(s))
		}
	}()
	return f
}

// set changes the reply and returns what was asked until now.
func (f *fake) set(reply ...wire.Message) (asked []wire.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, f.asked, f.reply = f.asked, nil, reply
	return asked
}

func (f *fake) answer(m wire.Message) []wire.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, m)
	return f.reply
}

func (f *fake) serve(c *wire.Conn) {
	defer c.Close()
	for {
		m, err := c.Recv()
		if err != nil {
			return
		}
		if _, ok := m.(*wire.Hello); ok {
			c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, User: "me"})
			continue
		}
		ms := f.answer(m)
		if ms == nil {
			return
		}
		for _, m := range ms {
			switch m := m.(type) {
			case *lines:
				c.SendTransfer(&wire.Send{X: 1, Of: wire.OfRows}, m.write)
			case *inputs:
				c.SendTransfer(&wire.Send{X: 1, Of: wire.OfInputs}, m.write)
			default:
				c.Send(m)
			}
		}
	}
}

// lines is a transfer of these lines, of which the last one fails if cut.
type lines struct {
	*wire.Pong
	text []string
	err  error
}

func (l *lines) write(w io.Writer) error {
	for _, s := range l.text {
		if _, err := io.WriteString(w, s+"\n"); err != nil {
			return err
		}
	}
	return l.err
}

// inputs is a transfer of one input, which has these bytes for those of its sum.
type inputs struct {
	*wire.Pong
	pack.Entry
	text string
}

func (in *inputs) write(w io.Writer) error {
	m := pack.Blobs(map[string]int64{in.Sum: in.Size})
	return pack.Send(w, m, pack.Want{}, func(int, pack.Entry) (io.ReadCloser, error) { return asItIs{strings.NewReader(in.text)}, nil })
}

// An asItIs is a file that is sent as it is found.
type asItIs struct{ *strings.Reader }

func (asItIs) Close() error     { return nil }
func (asItIs) Unchanged() error { return nil }

func one(text ...string) []wire.Message { return []wire.Message{&lines{text: text}} }

// tool is a command in this process.
func tool(stdin string, args ...string) (*cli.Cmd, *strings.Builder) {
	var out strings.Builder
	return &cli.Cmd{Name: "dtest", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: io.Discard, Args: args,
		Getenv: func(string) string { return "" }}, &out
}

// run runs Alter as a command.
func run(t *testing.T, c *cli.Cmd) int {
	t.Helper()
	return c.Run(t.Context(), "usage: dtest [-nqv] [-H head] [operand ...]", func(ctx context.Context, c *cli.Cmd) error {
		return Alter(ctx, c, "retry", "tried again")
	})
}

func TestAlter(t *testing.T) {
	h := head(t, one("n/b/1", "n/b/2")...)
	c, out := tool("", "-H", h.addr, "n/b", "state=failed")
	if status := run(t, c); status != 0 || out.String() != "n/b/1\nn/b/2\n" {
		t.Errorf("status %d, %q", status, out)
	}
	asked := h.set(one("n/b/1")...)
	got := asked[0].(*wire.Change)
	if len(asked) != 1 || got.Verb != "retry" || got.Dry || got.Ref.Check() != nil || !slices.Equal(got.Args, []string{"state=failed", "n/b"}) {
		t.Errorf("asked %+v", got)
	}
	c, _ = tool("n/b/1\tfailed\nn/b/2\nn/b/1\n", "-H", h.addr, "-n")
	if status := run(t, c); status != 0 {
		t.Errorf("status %d", status)
	}
	if got := h.set()[0].(*wire.Change); !got.Dry || !slices.Equal(got.Args, []string{"n/b/1", "n/b/2"}) {
		t.Errorf("asked %+v", got)
	}
	for _, tt := range []struct {
		name   string
		reply  []wire.Message
		stdin  string
		args   []string
		status int
	}{
		{"nothing changed", one(), "", []string{"n/b"}, cli.No},
		{"the head refuses", []wire.Message{&wire.Error{Status: cli.NotAllowed, Text: "n/b is not yours"}}, "", []string{"n/b"}, cli.NotAllowed},
		{"the head dies", nil, "", []string{"n/b"}, cli.Unreachable},
		{"the head gives up", []wire.Message{&lines{err: errors.New("damaged")}}, "", []string{"n/b"}, cli.IO},
		{"what it says is no id", one("../../x"), "", []string{"n/b"}, cli.Unreachable},
		{"empty stdin is no work", nil, "", nil, cli.OK},
		{"a filter alone on empty stdin too", nil, "", []string{"-", "state=failed"}, cli.OK},
		{"a filter on stdin", nil, "n/b/1\nn=4\n", nil, cli.Input},
		{"stdin twice", nil, "n/b/1\n", []string{"-", "-"}, cli.Usage},
		{"a wrong filter", nil, "", []string{"sate=x"}, cli.Usage},
		{"a file that is not there", nil, "", []string{"nothing.yaml"}, cli.IO},
	} {
		h.set(tt.reply...)
		c, _ := tool(tt.stdin, append([]string{"-H", h.addr}, tt.args...)...)
		if status := run(t, c); status != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, status, tt.status)
		}
	}
}

// More ids than one request holds are tried before they are changed.
func TestManyIDs(t *testing.T) {
	var ids strings.Builder
	for i := range 30000 {
		fmt.Fprintf(&ids, "namespace/batch/%d\n", i)
	}
	h := head(t, one("namespace/batch/0")...)
	c, _ := tool(ids.String(), "-H", h.addr)
	if status := run(t, c); status != 0 {
		t.Errorf("status %d", status)
	}
	asked, n := h.set(), 0
	for i, m := range asked {
		c := m.(*wire.Change)
		if c.Dry != (i < len(asked)/2) {
			t.Errorf("request %d of %d is dry: %v", i, len(asked), c.Dry)
		}
		if !c.Dry {
			n += len(c.Args)
		}
	}
	if n != 30000 || len(asked)%2 != 0 || len(asked) < 4 {
		t.Errorf("%d requests for %d ids", len(asked), n)
	}
}

func TestOperands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.yaml")
	text := "meta: {namespace: n, batch_name: b, capabilities: []}\npython:\n  initialize: {build_file: {path: x.py}}\n  jobs: []\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := tool("n/c/1\n", file, "-", "name", "state=failed", "n/c/2~3", "n/c/4")
	if err := c.Parse(); err != nil {
		t.Fatal(err)
	}
	ops, err := Read(c, true)
	if err != nil || !slices.Equal(ops.Args, []string{"n/b", "n/c/1", "name", "state=failed", "n/c/2~3", "n/c/4"}) {
		t.Fatalf("%v, %v", ops, err)
	}
	accepted := head(t, one(`{"id":"n/c/2","state":"done","attempt":3}`)...)
	h, err := Dial(t.Context(), c, accepted.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ops.Args = append(ops.Args, "n/c/2~1")
	if a, err := h.Attempts(t.Context(), ops); err != nil || !slices.Equal(a, []string{"n/c/2", "n/c/2~1"}) || len(ops.Args) != 5 {
		t.Errorf("attempts %q (%v), left %q", a, err, ops.Args)
	}
	ops.Args = []string{"n/c/2~1", "n/d/1~1", "state=done"}
	if a, err := h.Attempts(t.Context(), ops); err != nil || !slices.Equal(a, []string{"n/c/2~1"}) || len(ops.Args) != 0 {
		t.Errorf("attempts %q (%v), left %q", a, err, ops.Args)
	}
	for word, is := range map[string]bool{"re=1.yaml": true, "x/state=a.yml": true, "param.conf=a.yaml": false, "said~case.yml": false} {
		if IsFile(word) != is {
			t.Errorf("%s is a file: %v", word, !is)
		}
	}
	if err := os.WriteFile(file, []byte("jobs: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ = tool("", file)
	if err := c.Parse(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(c, true); cli.Status(err) != cli.Input {
		t.Errorf("a file that is no batch: %v", err)
	}
}

// A head that goes away after it answered is tried again; one that never
// answered is not.
func TestAgain(t *testing.T) {
	var said strings.Builder
	again := func(try func(tries int, progress, cancel func()) error) (tries, status int) {
		synctest.Test(t, func(t *testing.T) {
			c, _ := tool("")
			c.Stderr = &said
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			status = c.Run(ctx, "usage: dtest", func(ctx context.Context, c *cli.Cmd) error {
				return Again(ctx, c, func(progress func()) error {
					tries++
					return try(tries, progress, cancel)
				})
			})
		})
		return tries, status
	}
	lost := &Lost{"here", io.EOF, false}
	tries, status := again(func(tries int, progress, _ func()) error {
		switch tries {
		case 1:
			progress()
			return lost
		case 8:
			progress()
			return nil
		}
		return lost
	})
	if tries != 8 || status != 0 {
		t.Errorf("%d tries, status %d", tries, status)
	}
	if want := "dtest: lost the head at \"here\": the connection was closed; trying again in 1s\ndtest: the head answers again\n"; said.String() != want {
		t.Errorf("it says %q", said.String())
	}
	tries, status = again(func(tries int, progress, _ func()) error {
		progress()
		switch tries {
		case 1:
			return &Lost{"here", errors.New("other nonsense"), true}
		case 3:
			return lost
		}
		return &Lost{"here", errors.New("nonsense"), true}
	})
	if tries != 5 || status != cli.IO || !strings.Contains(said.String(), `giving up on the head at "here": the same invalid answer, 3 times: nonsense`) {
		t.Errorf("nonsense: %d tries, status %d, and says\n%s", tries, status, said.String())
	}
	tries, status = again(func(int, func(), func()) error { return lost })
	if tries != 1 || status != cli.Unreachable {
		t.Errorf("a head that never answered: %d tries, status %d", tries, status)
	}
	tries, status = again(func(_ int, progress, cancel func()) error { progress(); cancel(); return lost })
	if tries != 1 || status == 0 {
		t.Errorf("interrupted: %d tries, status %d", tries, status)
	}
	tries, status = again(func(_ int, progress, _ func()) error { progress(); return cli.Errorf(cli.NoSuch, "no") })
	if tries != 1 || status != cli.NoSuch {
		t.Errorf("another error: %d tries, status %d", tries, status)
	}
}

func TestLostInWords(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: %w", wire.ErrCut, io.EOF), "the connection was closed"},
		{syscall.EPIPE, "the connection was closed"},
		{fmt.Errorf("%w: %w", wire.ErrCut, errors.New("the network is away")), "the network is away"},
		{fmt.Errorf("%q: %w", "a/b/c/d", wire.ErrCut), `"a/b/c/d": transfer cut`},
	} {
		if got := (&Lost{"x", c.err, false}).Error(); got != `lost the head at "x": `+c.want {
			t.Errorf("%v is %s", c.err, got)
		}
	}
}

// What is wrong with an input, or with the disk here, does not mean that the head is lost.
func TestInputsThatDoNotCome(t *testing.T) {
	const right = "the right content"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(right)))
	b := &job.Batch{Namespace: "n", Name: "b", Sources: map[string]job.Source{}, Jobs: []job.Job{{Name: "1"}}}
	b.Spec.Inputs = []job.Input{{Path: "x", Sum: sum, Size: int64(len(right))}}
	for _, tt := range []struct {
		name, text, dir string
		want            error
	}{
		{"other bytes", "the wrong content", t.TempDir(), pack.ErrSum},
		{"no place for it", right, filepath.Join(t.TempDir(), "nowhere"), fs.ErrNotExist},
		{"all is well", right, t.TempDir(), nil},
	} {
		f := head(t, &inputs{Entry: pack.Entry{Sum: sum, Size: int64(len(right))}, text: tt.text})
		c, _ := tool("")
		h, err := Dial(t.Context(), c, f.addr)
		if err != nil {
			t.Fatal(err)
		}
		err = h.Inputs(t.Context(), c, b, tt.dir)
		h.Close()
		var lost *Lost
		if !errors.Is(err, tt.want) || errors.As(err, &lost) || err != nil && cli.Status(err) != cli.IO {
			t.Errorf("%s: %v (status %d)", tt.name, err, cli.Status(err))
		}
	}
}

// Rows come decoded; a row that is none ends the session.
func TestRows(t *testing.T) {
	f := head(t, one(`{"id":"n/b/1","namespace":"n","batch":"b","job":"1","owner":"me","state":"done","exit":0}`)...)
	c, _ := tool("")
	rows := func() (n int, err error) {
		h, err := Dial(t.Context(), c, f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		err = Rows(t.Context(), h, wire.Query{Of: "jobs"}, &Operands{}, func(r *job.Row) error {
			if n++; r.ID != "n/b/1" || r.State != job.Done || *r.Exit != 0 {
				t.Errorf("row %+v", r)
			}
			return nil
		})
		return n, err
	}
	if n, err := rows(); n != 1 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	for _, bad := range []string{`{"id":"n/b/1","id":"n/b/2"}`, `{"state":"maybe"}`, "x", `[]`} {
		f.set(one(bad)...)
		if n, err := rows(); n != 0 || cli.Status(err) != cli.Unreachable {
			t.Errorf("%s: %d rows, %v", bad, n, err)
		}
	}
}

// A head of release 0.1.0, which does not say that it takes the times of inputs, and priorities of jobs, gets none.
func TestJobsWithoutTimes(t *testing.T) {
	ns := int64(-1500000001)
	jobs := []job.Job{{Name: "j", Priority: 3, Inputs: []job.Input{{Path: "a", Sum: strings.Repeat("0", 64), MTime: &ns}}}}
	for _, takes := range []bool{false, true} {
		var out strings.Builder
		if err := writeJobs(&out, jobs, takes, takes); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), `"mtime":-1500000001`); got != takes {
			t.Errorf("takes times %v: %s", takes, out.String())
		}
		var j job.Job
		if err := job.ReadJob([]byte(strings.TrimSpace(out.String())), &j); err != nil || (j.Inputs[0].MTime != nil) != takes || (j.Priority == 3) != takes {
			t.Errorf("%v: %+v", err, j)
		}
	}
	if jobs[0].Inputs[0].MTime != &ns {
		t.Error("the job itself has lost the time")
	}
}
