package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
	"distribute/spool"
)

// X99: whatever name a tool gives itself, who it is goes by the number that is
// proven: another name of it is the same user, and the same name of another
// number is another one.
func TestX99ForgedNames(t *testing.T) {
	s := newSite(t)
	s.stop()
	var uid atomic.Int64
	var name atomic.Value
	s.proven = func(c net.Conn) (dial.Peer, error) {
		p, err := dial.Proven(c)
		if n := uid.Load(); n > 0 && p.Proven {
			p.UID, p.User = int(n), name.Load().(string)
		}
		return p, err
	}
	s.start()
	as := func(number int64, called string) *wire.Conn {
		uid.Store(number)
		name.Store(called)
		c, hello, err := s.greet(s.dir, wire.Hello{Role: wire.RoleTool, Name: "root", User: "root"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if hello.User != called {
			t.Errorf("the head calls %q %q", called, hello.User)
		}
		return c
	}
	as(1<<20, "ana")
	s.submit("ns/b", "j")
	as(1<<20, "ana")
	for _, tt := range []struct {
		uid    int64
		name   string
		status int // 0: it is done
	}{
		{1<<20 + 1, "ana", 77}, {1<<20 + 1, "ben", 77}, {1<<20 + 1, "root", 77}, {1 << 20, "married", 0},
	} {
		lines, e := s.ask(as(tt.uid, tt.name), &wire.Change{Verb: "cancel", Args: []string{"ns/b"}, Dry: true})
		if e == nil != (tt.status == 0) || e != nil && e.Status != tt.status || e == nil && len(lines) != 1 {
			t.Errorf("%d as %s: %q, %v", tt.uid, tt.name, lines, e)
		}
		lines, e = s.ask(as(tt.uid, tt.name), &wire.Change{Verb: "cancel", Args: []string{"b"}, Dry: true})
		if e == nil != (tt.status == 0) || e != nil && e.Status != 66 {
			t.Errorf("%d as %s, a name of his own: %q, %v", tt.uid, tt.name, lines, e)
		}
		for id, meant := range map[string]string{"b/j": ` (did you mean "ns/b/j"?)`, "b/none": "", "c/j": ""} {
			if tt.status != 0 {
				meant = "" // which batches there are is not told to others
			}
			_, e = s.ask(as(tt.uid, tt.name), &wire.Change{Verb: "cancel", Args: []string{id}, Dry: true})
			if want := fmt.Sprintf("no batch %q%s", id, meant); e == nil || e.Status != 66 || e.Text != want {
				t.Errorf("%d as %s: %+v, want %s", tt.uid, tt.name, e, want)
			}
		}
	}
}

// What a job prints is not shown to who may not see it any more when it is
// opened.
func TestLogOfWhatBecamePrivate(t *testing.T) {
	s := newSite(t)
	s.stop()
	var other atomic.Bool
	s.proven = func(c net.Conn) (dial.Peer, error) {
		p, err := dial.Proven(c)
		if other.Load() && p.Proven {
			p.UID, p.User, p.Groups = 1<<20, "ana", nil
		}
		return p, err
	}
	s.start()
	s.submit("ns/b", "j")
	for _, dir := range []string{".", "batches", "batches/ns", "batches/ns/b"} {
		if err := os.Chmod(filepath.Join(s.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := s.desk("ws1", "b")
	start := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, &wire.Ping{N: 1})
	expect[*wire.Pong](t, d.c)
	other.Store(true)
	for _, private := range []bool{false, true} {
		c := s.tool()
		s.send(c, &wire.Log{Ref: job.NewToken(), ID: "ns/b/j", Lines: 1})
		tail := expect[*wire.Tail](t, d.c)
		if private {
			if err := os.Chmod(filepath.Join(s.dir, "batches/ns/b"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog})
		if !private {
			expect[*wire.Send](t, c)
			s.send(d.c, &wire.End{X: tail.X})
			continue
		}
		refused(t, c, 66, `no job "ns/b/j"`)
	}
}

// X100: what nodes and people say stands in the log as characters that are
// printed, a line for each thing that happened.
func TestX100HostileLog(t *testing.T) {
	const nasty = "a\x1b[2J\x1b]0;mine\a\r\nb\u202ec\u2028d\u009b31me\x7ff\ufeffg\th\u2066 level=ERROR"
	s := newSite(t)
	s.submit("ns/b", "j", "k")
	d := s.desk("ws1", nasty)
	start := next[*wire.Start](d)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: nasty}, &wire.Phase{Attempt: nasty, Phase: nasty})
	m, _ := result("hello\n")
	over := ended(start.Attempt, 1, m)
	over.Reason, over.Signal = nasty, nasty
	s.send(d.c, over)
	d.give(next[*wire.Grant](d), "hello\n")
	s.becomes(start.Job, job.Failed)
	s.send(s.tool(), &wire.Change{Ref: job.NewToken(), Verb: nasty})
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/b/k"}, Reason: nasty}); e != nil || len(lines) != 1 {
		t.Fatal(lines, e)
	}
	c, _, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: nasty, Boot: nasty, State: nasty})
	if err == nil {
		t.Error("a node of that name is let in")
		c.Close()
	}
	s.stop()
	text := s.log.String()
	if !strings.Contains(text, `mine`) {
		t.Errorf("nothing of it is in the log: %s", text)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, " level=ERROR msg=") {
			t.Errorf("the log has the line %q", line)
		}
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r == utf8.RuneError || !strconv.IsPrint(r) {
				t.Errorf("there is %U in the line %q", r, line)
				break
			}
		}
	}
}

// newSiteOfMany is newSite, where who comes is the user whose number is in uid,
// unless that is 0.
func newSiteOfMany(t *testing.T) (*site, *atomic.Int64) {
	t.Helper()
	s, uid := newSite(t), new(atomic.Int64)
	s.stop()
	s.proven = func(c net.Conn) (dial.Peer, error) {
		p, err := dial.Proven(c)
		if n := uid.Load(); n > 0 && p.Proven {
			p.UID, p.User = int(n), "user"
		}
		return p, err
	}
	s.start()
	return s, uid
}

// X99: who follows everybody's jobs is told nothing of a private batch, from
// whenever it is; its owner and an operator are, and he can read it by the name.
func TestX99FollowedPrivate(t *testing.T) {
	s, uid := newSiteOfMany(t)
	const ana, ben, spec = 1 << 20, 1<<20 + 1, `{"kind":"command","resources":{"cpus":1},"private":true}`
	follow := func() func() *job.Row {
		_, row := s.follows(wire.Query{Args: []string{"job=*"}})
		return row
	}
	uid.Store(ana)
	s.submitAs("ns/before", spec, "j")
	hers := follow()
	uid.Store(0)
	operators := follow()
	uid.Store(ben)
	his := follow()
	uid.Store(ana)
	s.submitAs("ns/after", spec, "j")
	s.submit("ns/open", "j")
	uid.Store(ben)
	s.submitAs("ns/his", spec, "j")
	uid.Store(ana)
	for _, id := range []string{"ns/before", "ns/after", "ns/open"} { // a record of each
		if lines, e := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{id}}); e != nil || len(lines) != 1 {
			t.Fatal(lines, e)
		}
	}
	uid.Store(ben)
	if lines, e := s.ask(s.tool(), &wire.Change{Verb: "cancel", Args: []string{"ns/his"}}); e != nil || len(lines) != 1 {
		t.Fatal(lines, e)
	}
	told := func(row func() *job.Row, last job.BatchID) map[job.BatchID]bool {
		all := map[job.BatchID]bool{}
		for !all[last] {
			all[row().ID.Batch()] = true
		}
		return all
	}
	if all := told(his, "ns/his"); all["ns/before"] || all["ns/after"] || !all["ns/open"] {
		t.Errorf("another user is told of %v", all)
	}
	if all := told(hers, "ns/open"); !all["ns/before"] || !all["ns/after"] {
		t.Errorf("she is told of %v", all)
	}
	if all := told(operators, "ns/his"); len(all) != 4 {
		t.Errorf("the operator is told of %v", all)
	}
}

// X99: what nodes are doing tells others nothing of a private batch: not how many
// of its jobs run, move or wait, and not what a node has said of one.
func TestX99NodesOfPrivate(t *testing.T) {
	s, uid := newSiteOfMany(t)
	const ana, ben, spec = 1 << 20, 1<<20 + 1, `{"kind":"command","resources":{"cpus":1},"private":true}`
	shown := func(to int64, name string, state node.State) (r node.Row) {
		t.Helper()
		uid.Store(to)
		for end := time.Now().Add(2 * time.Minute); r.State != state; {
			if time.Now().After(end) {
				t.Fatalf("%s is shown as %+v, and not %s", name, r, state)
			}
			for _, text := range s.nodeRows(t) {
				var row node.Row
				if err := json.Unmarshal([]byte(text), &row); err != nil {
					t.Fatal(err)
				}
				if string(row.Node) == name {
					r = row
				}
			}
		}
		return r
	}
	uid.Store(ana)
	s.submitAs("ns/a", spec, "j")
	d := s.desk("ws1", "b")
	start := next[*wire.Start](d)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/a/j", job.Running)
	for to, jobs := range map[int64]int{ana: 1, ben: 0, 0: 1} {
		if r := shown(to, "ws1", node.Busy); r.Jobs != jobs {
			t.Errorf("to %d %d jobs are shown", to, r.Jobs)
		}
	}
	d.c.Close()
	for to, told := range map[int64]bool{ana: true, ben: false, 0: true} {
		if r := shown(to, "ws1", node.Silent); strings.Contains(r.Note, "job") != told {
			t.Errorf("to %d it is said: %s", to, r.Note)
		}
	}
	uid.Store(ana)
	s.submitAs("ns/b", spec, "j")
	d = s.desk("ws2", "b")
	start = next[*wire.Start](d)
	s.send(d.c, &wire.Ended{Attempt: start.Attempt, Result: job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "no secret.txt"}}})
	for to, told := range map[int64]bool{ben: false, 0: true} {
		if r := shown(to, "ws2", node.Resting); strings.Contains(r.Note, "secret") != told || !strings.Contains(r.Note, "hands back") {
			t.Errorf("to %d it is said: %s", to, r.Note)
		}
	}
}

// What a job is and reads goes to who may see it, one answer for each question, and
// what cannot be asked so is refused.
func TestWorkOfJobs(t *testing.T) {
	s, uid := newSiteOfMany(t)
	const ana, ben, spec = 1 << 20, 1<<20 + 1, `{"kind":"command","resources":{"cpus":1},"private":true}`
	uid.Store(ana)
	s.submitAs("ns/hers", spec, "j")
	hers := s.tool()
	uid.Store(ben)
	his := s.tool()
	ask := func(c *wire.Conn, of, id string, sums ...string) {
		s.send(c, &wire.Pull{Ref: job.NewToken(), ID: id, Of: of, Sums: sums})
	}
	for _, of := range []string{wire.OfSpec, wire.OfJob, wire.OfInputs} {
		ask(his, of, "ns/hers/j", strings.Repeat("0", 64))
		refused(t, his, 66, `no job "ns/hers/j"`)
	}
	ask(hers, wire.OfSpec, "ns/hers/j")
	if text, err := io.ReadAll(hers.RecvTransfer(expect[*wire.Send](t, hers))); err != nil || !strings.Contains(string(text), `"private":true`) {
		t.Errorf("its owner is told %s, %v", text, err)
	}
	ask(hers, wire.OfJob, "ns/hers/j~3")
	if text, err := io.ReadAll(hers.RecvTransfer(expect[*wire.Send](t, hers))); err != nil || !strings.Contains(string(text), `"name":"j"`) {
		t.Errorf("its owner is told %s, %v", text, err)
	}
	ask(hers, wire.OfInputs, "ns/hers/j", strings.Repeat("0", 64))
	refused(t, hers, 77, `"`+strings.Repeat("0", 64)+`" is no input of that attempt`)
	ask(hers, wire.OfInputs, "ns/hers/j")
	refused(t, hers, 64, "a fetch names 1 to 8192 inputs")
	ask(hers, wire.OfJob, "ns/hers/k")
	refused(t, hers, 66, `no job "ns/hers/k"`)
	ask(hers, wire.OfJob, "ns/hers")
	refused(t, hers, 64, `"ns/hers" is not the id of a job or an attempt`)
	ask(hers, wire.OfTree, "ns/hers/j")
	refused(t, hers, 64, `nothing is known of "tree"`)
	ask(hers, wire.OfJob, "ns/none/j")
	refused(t, hers, 66, `no job "ns/none/j"`)
}

// While the name of a user cannot be looked up nothing is submitted by a number, which
// nodes would take for its name ever after.
func TestNameless(t *testing.T) {
	s := newSite(t)
	s.stop()
	var fails atomic.Bool
	s.proven = func(c net.Conn) (dial.Peer, error) {
		return dial.ProvenAs(c, func(uid int) (string, error) {
			if fails.Load() {
				return "uid7", errors.New("no descriptors")
			}
			return "ana", nil
		})
	}
	s.start()
	fails.Store(true)
	c := s.tool()
	s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command"}`)
	s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, "")
	refused(t, c, 75, "no descriptors", "try again")
	fails.Store(false)
	s.submit("ns/b", "j")
	s.stop()
	list, _, err := s.h.spool.Batches(nil)
	if err != nil || len(list) != 1 || list[0].Head.Owner != "ana" {
		t.Errorf("there is %+v, %v", list, err)
	}

	h := newState(t)
	h.background(t)
	d := spool.Drop{Submission: job.NewToken(), Batch: "ns/b", Jobs: 1}
	jobs := slices.Values([]*job.Job{{Name: "j", Run: []string{"true"}}})
	if err := h.spool.Leave(d, nil, &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}, jobs, nil); err != nil {
		t.Fatal(err)
	}
	was := h.names.Ask
	h.names.Ask = func(int) named { return named{"uid7", errors.New("no descriptors")} }
	if err := h.takeOne(string(d.Submission), h.log); err == nil || !strings.Contains(err.Error(), "no descriptors") {
		t.Errorf("of incoming/: %v", err)
	}
	h.names.Ask = was
	if err := h.takeOne(string(d.Submission), h.log); err != nil {
		t.Errorf("later, of incoming/: %v", err)
	}
}

// Who may read a batch is not told of a private one that gets its name while it is read.
func TestPrivateBatchGetsTheName(t *testing.T) {
	s := newSite(t)
	s.over(s.desk("ws1", "boot1"), "ns/b", 0)
	ben := &tool{Head: s.h, peer: dial.Peer{User: "ben", UID: os.Getuid() + 1, Groups: []int{os.Getgid()}}}
	q, err := ben.parse([]string{"ns/b"}, true)
	if err != nil {
		t.Fatal(err)
	}
	var snap *snapshot
	s.h.do(func() { snap = s.h.snapshot() })
	read := func(id job.BatchID, _ int64, f func(*job.Row) error) error {
		if lines, e := s.ask(s.tool(), &wire.Change{Verb: "delete", Args: []string{"ns/b"}}); e != nil || len(lines) != 1 {
			t.Errorf("%q, %v", lines, e)
		}
		s.submitAs("ns/b", `{"kind":"command","resources":{"cpus":1},"private":true}`, "secret")
		return s.h.spool.Read(id, -1, f)
	}
	err = ben.rowsWhy(snap, q, read, ben.stuck, func(r, _ *job.Row, _ time.Time) error {
		t.Errorf("he is told of %s", r.ID)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
