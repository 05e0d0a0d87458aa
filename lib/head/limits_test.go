package head

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"distribute/lib/conf"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/suite"
	"distribute/lib/wire"
	"distribute/spool"
)

// limits is what dwire(5) LIMITS says, and the test that goes beyond each.
var limits = map[string]struct {
	value int64
	test  string
}{
	"bytes of a message":                                     {wire.MaxLine, "TestT82Malformed"},
	"bytes of a message before the hello":                    {wire.MaxHello, "TestT79LongHello"},
	"bytes of a frame":                                       {wire.MaxFrame, "TestT82Malformed"},
	"objects and lists inside one another":                   {line.MaxDepth, "TestT82Deep"},
	"members of an object":                                   {line.MaxKeys, "TestT82Deep"},
	"bytes of a handshake over TLS":                          {dial.MaxHandshake, "TestX96HostilePeers"},
	"seconds until the hello":                                {int64(wire.HelloWithin.Seconds()), "TestT79SaysNothing"},
	"seconds between two pings":                              {int64(pingEvery.Seconds()), "TestT80FrozenNode"},
	"seconds of silence on a control stream":                 {int64(silentAfter.Seconds()), "TestT80FrozenNode"},
	"seconds for a message in a transfer":                    {int64(wire.FrameWithin.Seconds()), "TestT79SlowTransfer"},
	"seconds until what is sent is read; data streams: none": {int64(wire.WriteWithin.Seconds()), "TestT80NeverReads"},
	"seconds for rows or files if others wait":               {int64(answerWithin.Seconds()), "TestT79SlowReader"},
	"seconds between two words of a tool":                    {int64(toolWithin.Seconds()), "TestT79SilentTool"},
	"inputs in one fetch":                                    {wire.MaxSums, "TestTooManySums"},
	"bytes of a reason":                                      {maxReason, "TestLongReasons"},
	"connections without hello, a listener":                  {maxUnauthenticated, "TestT79Strangers"},
	"sessions of one user's tools":                           {maxTools, "TestI16Sessions"},
	"sessions of nodes":                                      {maxNodes, "TestI16Nodes"},
	"sessions of one node that have begun":                   {maxJoins, "TestI16SessionsOfOneNode"},
	"nodes that are known":                                   {sched.MaxNodes, "TestI16KnownNodes"},
	"clusters of one user":                                   {sched.MaxClusters, "TestAbroadOfTwo"},
	"GPUs of a node":                                         {job.MaxCards, "TestX98HugePause"},
	"new state ids of a node an hour":                        {sched.MaxStates, "TestI16StateIDs"},
	"nodes that wait to be accepted":                         {maxWaiters, "TestI14X100NothingOfStrangers"},
	"bytes of the list of nodes":                             {spool.MaxNodeList, "TestX97NodesOfOthers"},
	"data streams of a node":                                 {maxData, "TestI16DataStreams"},
	"logs followed on a node, shared by users":               {maxTails, "TestI16Tails"},
	"messages that wait for a node, or on it":                {maxOutbox, "TestI16Outbox"},
	"results asked of a node at a time":                      {maxAsked, "TestI16Asked"},
	"records that wait for all who follow":                   {maxBehind, "TestI16Behind"},
	"bytes kept of what a build printed":                     {maxBuildLog, "TestI16BuildLog"},
	"open batches of a user":                                 {maxOpen, "TestS11OpenBatches"},
	"jobs in these":                                          {maxWaiting, "TestS11OpenBatches"},
	"jobs":                                                   {spool.MaxJobs, "TestS11TooManyJobs"},
	"bytes of a job, as JSON":                                {spool.MaxLine, "TestS11LongLine"},
	"bytes of all jobs":                                      {spool.MaxText, "TestS11TooMuch"},
	"bytes of its common part":                               {maxSpec, "TestS11LongSpec"},
	"bytes of its file, as read":                             {conf.MaxSize, "TestReadFile"},
	"bytes of its file, as kept":                             {spool.MaxFile, "TestS11TooMuch"},
	"names that its needs are compared with":                 {job.MaxNeeds, "TestNeedsOfMany"},
	"different requests that its jobs may make":              {job.MaxRequests, "TestRequests"},
	"different input files":                                  {spool.MaxInputs, "TestS11TooMuch"},
	"bytes of these":                                         {spool.MaxBytes, "TestS11TooMuch"},
	"bytes of a submission in incoming/":                     {spool.MaxDrop, "TestS11HugeDrop"},
	"entries":                                                {int64(pack.DefaultLimits().Entries), "TestDecodeManifest"},
	"names in a path":                                        {int64(pack.DefaultLimits().Depth), "TestDecodeManifest"},
	"bytes of a path":                                        {int64(pack.DefaultLimits().PathBytes), "TestDecodeManifest"},
	"bytes of all paths":                                     {pack.DefaultLimits().Names, "TestDecodeManifest"},
	"bytes of all files":                                     {pack.DefaultLimits().Bytes, "TestDecodeManifest"},
	"bytes of a zstd window":                                 {pack.MaxWindow, "TestD93HostileFrames"},
}

// The page has every limit, as it is, and every limit has a test.
func TestLimitsAsThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../man/dwire.5")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), ".Sh LIMITS\n")
	text, _, _ = strings.Cut(text, ".Sh ")
	said := map[string]int64{}
	for l := range strings.Lines(text) {
		what, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(l), ".It "), " Ta ")
		if n, err := strconv.ParseInt(strings.ReplaceAll(value, ",", ""), 10, 64); ok && err == nil {
			said[what] = n
		} else if ok {
			t.Errorf("%q is no limit", l)
		}
	}
	out, err := exec.Command("grep", "-rhoE", "--include=*_test.go", "^func Test[A-Za-z0-9]+", "../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := strings.Fields(strings.ReplaceAll(string(out), "func ", ""))
	for what, l := range limits {
		if said[what] != l.value {
			t.Errorf("%s: the page says %d, and it is %d", what, said[what], l.value)
		}
		if !slices.Contains(tests, l.test) {
			t.Errorf("%s: there is no %s", what, l.test)
		}
	}
	for what := range said {
		if _, ok := limits[what]; !ok {
			t.Errorf("%s: the page says it, and nothing is known of it; known are %q", what, slices.Sorted(maps.Keys(limits)))
		}
	}
	if noded.MaxPiled != maxOutbox || noded.MaxTails != 2*maxTails {
		t.Errorf("a node has other limits: %d and %d", noded.MaxPiled, noded.MaxTails)
	}
}

// refused expects that the peer is told why not.
func refused(t *testing.T, c *wire.Conn, status int, words ...string) {
	t.Helper()
	e := expect[*wire.Error](t, c)
	if e.Status != status {
		t.Errorf("told %+v, want status %d", e, status)
	}
	for _, w := range words {
		if !strings.Contains(e.Text, w) {
			t.Errorf("told %q, which does not say %q", e.Text, w)
		}
	}
}

// One user's batches, however many, do not take what others need; and who has
// as many as may be is told the limit, also for what he leaves in incoming/.
func TestS11OpenBatches(t *testing.T) {
	s := newSite(t)
	uid := os.Getuid()
	submit := func(status int, words ...string) {
		t.Helper()
		c, ref := s.tool(), job.NewToken()
		s.send(c, &wire.Submit{Ref: ref, Batch: "ns/more", Jobs: 1})
		s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
		s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command","resources":{"cpus":1}}`)
		s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, `{"name":"j","run":["true"]}`+"\n")
		refused(t, c, status, words...)
	}
	s.h.do(func() { s.h.tools.count(uid, user{batches: maxOpen}) })
	submit(75, fmt.Sprint(maxOpen), "which is the limit")
	s.h.do(func() { s.h.tools.count(uid, user{batches: -maxOpen, jobs: maxWaiting}) })
	submit(75, fmt.Sprint(maxWaiting), "is the limit")
	s.h.do(func() {
		s.h.tools.count(uid, user{jobs: -maxWaiting})
		if u := s.h.tools.users[uid]; u != nil && (u.batches != 0 || u.jobs != 0) {
			t.Errorf("refused, and counted: %+v", *u)
		}
	})
	s.submit("ns/b", "j", "k")
	var u user
	for end := time.Now().Add(2 * time.Minute); u.batches != 1 || u.jobs != 2; runtime.Gosched() { // what it was promised is taken back soon
		s.h.do(func() { u = *s.h.tools.users[uid] })
		if time.Now().After(end) {
			t.Fatalf("counted are %+v", u)
		}
	}
}

// I16: where dsched may have few descriptors, one user leaves some to others, and all together
// some to what runs.
func TestSharesOfDescriptors(t *testing.T) {
	for files, want := range map[uint64]fairShare{
		1024:    {user{128, 192, maxWaiting}, 256},
		1 << 16: {user{maxTools, maxOpen, maxWaiting}, 1 << 14},
		1 << 62: {user{maxTools, maxOpen, maxWaiting}, 1 << 18},
	} {
		if got := shareOf(files); got != want {
			t.Errorf("of %d descriptors: %+v", files, got)
		}
	}
	h := newState(t)
	h.background(t)
	h.tools.most = shareOf(64) // 16 open batches, 12 of a user
	for i := range 12 {
		if err := h.allow(1, user{batches: 1}); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	if err := h.allow(1, user{batches: 1}); err == nil || !strings.Contains(err.Error(), "12 batches of yours are not over, which is the limit") {
		t.Errorf("one more of the same: %v", err)
	}
	for i := range 4 {
		if err := h.allow(2, user{batches: 1}); err != nil {
			t.Fatalf("batch %d of another: %v", i, err)
		}
	}
	if err := h.allow(3, user{batches: 1}); err == nil || !strings.Contains(err.Error(), "16 batches are not over, and dsched has descriptors for no more") {
		t.Errorf("one more: %v", err)
	}
}

// What the same user leaves in incoming/ waits there.
func TestS11OpenBatchesLeft(t *testing.T) {
	h := newState(t)
	h.background(t)
	d := spool.Drop{Submission: job.NewToken(), Batch: "ns/b", Jobs: 1}
	jobs := slices.Values([]*job.Job{{Name: "j", Run: []string{"true"}}})
	if err := h.spool.Leave(d, nil, &job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}, jobs, nil); err != nil {
		t.Fatal(err)
	}
	for _, has := range []user{{batches: maxOpen}, {jobs: maxWaiting}} {
		h.do(func() { h.tools.count(h.uid, has) })
		if err := h.takeOne(string(d.Submission), h.log); err == nil || !strings.Contains(err.Error(), "is the limit") {
			t.Errorf("with %+v: %v", has, err)
		}
		h.do(func() { h.tools.count(h.uid, user{batches: -has.batches, jobs: -has.jobs}) })
	}
	if err := h.takeOne(string(d.Submission), h.log); err != nil {
		t.Error(err)
	}
	h.do(func() {
		if u := h.tools.users[h.uid]; u == nil || *u != (user{batches: 1, jobs: 1}) {
			t.Errorf("counted are %+v", u)
		}
	})
}

func TestS11LongSpec(t *testing.T) {
	s := newSite(t)
	c := s.tool()
	s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command","x":"`+strings.Repeat("x", maxSpec)+`"}`)
	s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, "")
	refused(t, c, 65, fmt.Sprint(maxSpec), "which is the limit")
}

// A job of a quarter of a gigabyte, on one line, is refused in words, and costs no memory.
func TestS11LongLine(t *testing.T) {
	s := newSite(t)
	c := s.tool()
	s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command","resources":{"cpus":1}}`)
	used := allocated(func() {
		part := []byte(strings.Repeat("x", 1<<20))
		err := c.SendTransfer(&wire.Send{X: 3, Of: wire.OfJobs}, func(w io.Writer) (err error) {
			for n := 0; n < 1<<28 && err == nil; n += len(part) {
				_, err = w.Write(part)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		refused(t, c, 65, "line", fmt.Sprint(spool.MaxLine), "which is the limit")
	})
	if used > 256<<20 {
		t.Errorf("it took %d MiB", used>>20)
	}
}

// A part that is refused and does not end is read for a while, and no longer.
func TestD90NeverEnds(t *testing.T) {
	s := newSite(t)
	s.h.tools.rest = 8 << 20
	c := s.tool()
	s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "../b", Jobs: 1})
	sent := make(chan int, 1)
	go func() {
		part, n := []byte(strings.Repeat("x", 1<<20)), 0
		c.SendTransfer(&wire.Send{X: 1, Of: wire.OfBatch}, func(w io.Writer) (err error) {
			for err == nil && int64(n) < 40*s.h.tools.rest {
				_, err = w.Write(part)
				n += len(part)
			}
			return err
		})
		sent <- n
	}()
	refused(t, c, 65, "bad name")
	if n := <-sent; int64(n) > 4*s.h.tools.rest {
		t.Errorf("%d bytes were read of what is refused", n)
	}
}

// allocated is how many bytes f allocates in all.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What comes before a hello, and the hello itself, is short, or the peer is told
// the limit and let go before all of it is read.
func TestT79LongHello(t *testing.T) {
	s := newSite(t)
	hello := func(n int) []byte {
		text := fmt.Sprintf(`{"m":"hello","proto":[1,1],"role":"tool","version":"%s"}`+"\n", strings.Repeat("x", n))
		return []byte(text)
	}
	rest := len(hello(0))
	for _, tt := range []struct {
		text []byte
		ok   bool
	}{
		{hello(wire.MaxHello - rest), true},
		{hello(wire.MaxHello - rest + 1), false},
		{hello(wire.MaxLine - rest - 1), false},
		{[]byte(`{"m":"data","x":1,"n":1}` + "\nx"), false},
	} {
		stream, err := dial.Dial(t.Context(), s.dir)
		if err != nil {
			t.Fatal(err)
		}
		go stream.Write(tt.text)
		c := wire.New(stream)
		c.ReadWithin(2 * time.Minute)
		_, err = wire.Expect[*wire.Hello](c)
		if e := (*wire.Error)(nil); errors.As(err, &e) == tt.ok || !tt.ok && e.Status != 65 {
			t.Errorf("%.60q of %d bytes: %v", tt.text, len(tt.text), err)
		}
		c.Close()
	}
}

func TestI16Nodes(t *testing.T) {
	s := newSite(t)
	var made []job.Token
	s.h.do(func() {
		for range maxNodes {
			made = append(made, job.NewToken())
			s.h.nodes.joins[made[len(made)-1]] = &session{}
		}
	})
	hello := wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"}
	if _, _, err := s.greet(s.addr, hello); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxNodes)+" nodes are connected, which is the limit") {
		t.Errorf("told %v", err)
	}
	s.h.do(func() {
		for _, j := range made {
			delete(s.h.nodes.joins, j)
		}
	})
	s.desk("ws1", "b")
}

// I16: who brings back what he took to clusters has one more session, and keeps no node out.
func TestI16Clusters(t *testing.T) {
	s := newSite(t)
	uid := os.Getuid()
	s.h.do(func() {
		s.h.tools.count(uid, user{tools: maxTools})
		for i := range maxNodes {
			s.h.nodes.joins[job.NewToken()] = &session{name: node.Abroad(fmt.Sprint(i))}
		}
	})
	hello := wire.Hello{Role: wire.RoleNode, Name: "slurm:hpc", Boot: "-", State: "-"}
	if _, _, err := s.greet(s.dir, hello); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxTools)+" sessions with this head already") {
		t.Errorf("told %v", err)
	}
	s.desk("ws1", "b")
	s.h.do(func() { s.h.tools.count(uid, user{tools: -maxTools}) })
	c, _, err := s.greet(s.dir, hello)
	if err != nil {
		t.Fatal(err)
	}
	s.h.do(func() {
		if u := s.h.tools.users[uid]; u == nil || u.tools != 1 {
			t.Errorf("counted are %+v", u)
		}
	})
	c.Close()
	await(t, func() (over bool) {
		s.h.do(func() { over = s.h.tools.users[uid] == nil })
		return over
	})
}

// I16, X98: a node that begins sessions without end keeps itself out, and no other.
func TestI16SessionsOfOneNode(t *testing.T) {
	s := newSite(t)
	var made []job.Token
	s.h.do(func() {
		for range maxJoins {
			made = append(made, job.NewToken())
			s.h.nodes.joins[made[len(made)-1]] = &session{name: "ws1"}
		}
	})
	hello := wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"}
	if _, _, err := s.greet(s.addr, hello); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxJoins)+" sessions") {
		t.Errorf("told %v", err)
	}
	s.desk("ws2", "b")
	s.h.do(func() { delete(s.h.nodes.joins, made[0]) })
	s.desk("ws1", "b")
}

// Of names that nodes made up no more are kept than the limit, in memory and in
// the spool; nodes that are known come and go as before.
func TestI16KnownNodes(t *testing.T) {
	h := newState(t)
	up := func(name string) *session {
		a, b := pipe(t)
		defer b.Close()
		s := &session{name: node.Name(name), out: newQueue[wire.Message](10), log: h.log, conn: wire.New(a)}
		h.nodeUp(s, &wire.Hello{Boot: "b", State: "s"}, node.Offer{CPUs: 8})
		return s
	}
	for i := range sched.MaxNodes {
		h.apply(sched.NodeUp{Session: uint64(i + 1000), Node: node.Name(fmt.Sprint("made-up-", i)), Boot: "b", State: "s"})
		h.apply(sched.NodeDown{Session: uint64(i + 1000)})
	}
	h.ticks.actions = nil
	up("one-more")
	if len(h.ticks.actions) != 1 || !strings.Contains(fmt.Sprint(h.ticks.actions[0]), "which is the limit") {
		t.Errorf("the machine says %v", h.ticks.actions)
	}
	if _, err := os.Lstat(filepath.Join(h.spool.Dir(), "nodes", "one-more.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is left of it: %v", err)
	}
	h.ticks.actions = nil
	up("made-up-7")
	if len(h.ticks.actions) != 0 {
		t.Errorf("one that is known: %v", h.ticks.actions)
	}
}

// A node that comes with ever new state ids is refused for a while, and the log
// of the head does not grow by it; with the id that it had it is let in.
func TestI16StateIDs(t *testing.T) {
	s := newSite(t)
	come := func(state string) error {
		c, _, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: state})
		if err != nil {
			return err
		}
		defer func() {
			c.Close()
			for there := true; there; runtime.Gosched() {
				s.h.do(func() { there = s.h.nodes.byName["ws1"] != 0 })
			}
		}()
		s.send(c, &wire.Offer{Offer: node.Offer{CPUs: 1}}, &wire.List{}, &wire.ListEnd{}, &wire.Ping{N: 1})
		c.ReadWithin(2 * time.Minute)
		for {
			m, err := c.Recv()
			if e, ok := m.(*wire.Error); ok {
				return e
			}
			if err != nil {
				return err
			}
			switch p, _ := m.(*wire.Pong); {
			case p == nil:
			case p.N == 2:
				return nil
			default: // what becomes of its hello is said when it is durable
				s.h.settled(func() {})
				c.Send(&wire.Ping{N: 2})
			}
		}
	}
	for i := range sched.MaxStates {
		if err := come(fmt.Sprint("state-", i)); err != nil {
			t.Fatal(err)
		}
	}
	var e *wire.Error
	if err := come("one-more"); !errors.As(err, &e) || e.Status != 75 || !strings.Contains(e.Text, fmt.Sprint(sched.MaxStates)+" new state ids") {
		t.Errorf("told %v", err)
	}
	if err := come(fmt.Sprint("state-", sched.MaxStates-1)); err != nil {
		t.Errorf("with the one that it had: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "head.jsonl"))
	if n := strings.Count(string(text), `"state-`); err != nil || n != sched.MaxStates || strings.Contains(string(text), "one-more") {
		t.Errorf("%d are logged, %v:\n%s", n, err, text)
	}
	s.h.do(func() { s.h.now += time.Hour })
	if err := come("one-more"); err != nil {
		t.Errorf("an hour later: %v", err)
	}
}

func TestI16DataStreams(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "b")
	d.data("down")
	_, _, err := d.greet(d.addr, wire.Hello{Role: wire.RoleData, Name: d.name, Join: d.join, State: "up"})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d data streams at most", maxData)) {
		t.Errorf("the fourth stream is told %v", err)
	}
}

// The data streams of a session that comes to nothing end with it.
func TestI16DataStreamsOfNoSession(t *testing.T) {
	s := newSite(t)
	c, head, err := s.greet(s.addr, wire.Hello{Role: wire.RoleNode, Name: "ws1", Boot: "b", State: "s"})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{site: s, name: "ws1", c: c, join: head.Join}
	up := d.data("up")
	c.Close()
	up.ReadWithin(2 * time.Minute)
	if _, err := up.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("its data stream: %v", err)
	}
}

func TestI16Tails(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	d := s.desk("ws1", "b")
	start := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.send(d.c, &wire.Ping{N: 1})
	expect[*wire.Pong](t, d.c) // it knows the phase by now
	follow := func() *wire.Conn {
		c := s.tool()
		s.send(c, &wire.Log{Ref: job.NewToken(), ID: "ns/b/j", Follow: true})
		return c
	}
	for range maxTails {
		expect[*wire.Send](t, follow())
	}
	refused(t, follow(), 75, fmt.Sprintf("%d logs", maxTails), "which is the limit")
}

// I16: what one build printed is asked for once at a time, however often it is said to be over.
func TestI16BuildLogOnce(t *testing.T) {
	s, d, start := givenJob(t)
	for range 100 {
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	}
	s.send(d.c, &wire.Ping{N: 1})
	var tails []*wire.Tail
	for answered := false; !answered; {
		switch m := d.received().(type) {
		case *wire.Tail:
			tails = append(tails, m)
		case *wire.Pong:
			answered = true
		}
	}
	if len(tails) != 1 || !tails[0].Build {
		t.Fatalf("it is asked for %d times", len(tails))
	}
	s.send(d.c, &wire.Send{X: tails[0].X, Of: wire.OfLog}, &wire.Data{X: tails[0].X, N: 3, Payload: []byte("one")}, &wire.End{X: tails[0].X})
	again := next[*wire.Tail](d) // another build had begun before that came
	if got := s.file("ns/b/build/ws1.log"); got != "one\n(what it printed then is not here: it was built again meanwhile)\n" {
		t.Errorf("kept is %q", got)
	}
	s.send(d.c, &wire.Send{X: again.X, Of: wire.OfLog}, &wire.Data{X: again.X, N: 3, Payload: []byte("two")}, &wire.End{X: again.X}, &wire.Ping{N: 2})
	for answered := false; !answered; {
		switch m := d.received().(type) {
		case *wire.Tail:
			t.Errorf("it is asked for once more: %+v", m)
		case *wire.Pong:
			answered = true
		}
	}
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "two" {
		t.Errorf("kept is %q", got)
	}
}

// The log of the last build is asked for also when that of an earlier one could not be kept.
func TestBuildLogAfterOneThatWasNotKept(t *testing.T) {
	s, d, start := givenJob(t)
	building, running := &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}
	s.send(d.c, building, running)
	tail := next[*wire.Tail](d)
	s.send(d.c, building, running, &wire.Ping{N: 1})
	next[*wire.Pong](d)
	s.free(0)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 3, Payload: []byte("one")})
	tail = next[*wire.Tail](d)
	s.free(1 << 40)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 3, Payload: []byte("two")}, &wire.End{X: tail.X})
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "two" {
		t.Errorf("kept is %q", got)
	}
}

// A log that a node has and does not send at first, as it sends too many, comes later.
func TestBuildLogOfBusyNode(t *testing.T) {
	s, d, start := givenJob(t)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	tail := expect[*wire.Tail](t, d.c)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.End{X: tail.X, Error: "64 logs are followed on this node, which is the limit"})
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	await(t, func() (gone bool) {
		s.h.do(func() { gone = len(s.h.transfers.copying) == 0 })
		return gone
	})
	m, _ := result("hello\n")
	s.send(d.c, ended(start.Attempt, 0, m))
	tail = next[*wire.Tail](d)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 3, Payload: []byte("one")}, &wire.End{X: tail.X})
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "one" {
		t.Errorf("kept is %q", got)
	}
}

// What has come of a build's log before the head was stopped or killed does not count as the whole
// for the next one, which asks for it again.
func TestPartOfBuildLogAfterRestart(t *testing.T) {
	s := newSite(t)
	s.submitAs("ns/b", `{"kind":"command","build":["make"],"resources":{"cpus":1}}`, "j")
	d := s.desk("ws1", "boot1")
	start := next[*wire.Start](d)
	running := &wire.Item{Attempt: start.Attempt, Job: "ns/b/j", Try: 1, CPUs: 1, Phase: job.PhaseRunning}
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	tail := next[*wire.Tail](d)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 3, Payload: []byte("one")})
	d.c.Close()
	await(t, func() bool { return strings.Contains(s.file("ns/b/build/ws1.log"), "not here") })
	s.again()
	d = s.desk("ws1", "boot1", running)
	tail = next[*wire.Tail](d)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 7, Payload: []byte("one two")}, &wire.End{X: tail.X})
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "one two" {
		t.Errorf("kept is %q", got)
	}

	s.stop()
	dir := filepath.Join(s.dir, "batches/ns/b/build")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, ".ws1.tmp~"), []byte("on"), 0o640), os.WriteFile(filepath.Join(dir, ".no name.tmp~"), nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	s.start()
	if got := s.file("ns/b/build/ws1.log"); got != "on\n(what it printed then is not here: dsched ended while it came)\n" {
		t.Errorf("kept is %q", got)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("there is %v, %v", list, err)
	}
	d = s.desk("ws1", "boot1", running)
	next[*wire.Tail](d)
}

// A node that does not read loses its session when too much waits for it.
func TestI16Outbox(t *testing.T) {
	a, b := pipe(t)
	s := &session{conn: wire.New(a), out: newQueue[wire.Message](maxOutbox)}
	ping := &wire.Ping{}
	for range maxOutbox {
		s.tell(ping)
	}
	if s.out.put(ping) {
		t.Error("more is taken than the limit")
	}
	s.tell(ping)
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the stream: %v", err)
	}
}

// However many results a node has, the head has asked for no more than the limit.
func TestI16Asked(t *testing.T) {
	s := newSite(t)
	names := make([]string, maxAsked+3)
	for i := range names {
		names[i] = fmt.Sprint("j", i)
	}
	s.submit("ns/b", names...)
	m, _ := result("hello\n")
	d := s.desk("ws1", "b")
	started, granted := 0, 0
	for started < len(names) || granted < maxAsked {
		d.c.ReadWithin(2 * time.Minute)
		got, err := d.c.Recv()
		if err != nil {
			t.Fatal(started, granted, err)
		}
		switch got := got.(type) {
		case *wire.Start:
			started++
			s.send(d.c, &wire.Phase{Attempt: got.Attempt, Phase: job.PhaseRunning}, ended(got.Attempt, 0, m))
		case *wire.Grant:
			granted++
		}
	}
	s.send(d.c, &wire.Ping{N: 1})
	if m := expect[*wire.Pong](t, d.c); m.N != 1 {
		t.Errorf("got %+v", m)
	}
	s.h.do(func() {
		for _, n := range s.h.nodes.sessions {
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.grants) != maxAsked {
				t.Errorf("%d results are asked for", len(n.grants))
			}
		}
	})
}

// A follower who is too far behind is let go.
func TestI16Behind(t *testing.T) {
	h := newState(t)
	most := suite.Size(10_000, maxBehind)
	w := &watcher{records: newQueue[logged](most)}
	h.tools.watchers[w] = true
	h.tellWatchers(make([]logged, most))
	if !h.tools.watchers[w] {
		t.Fatal("he is let go too early")
	}
	h.tellWatchers(make([]logged, 1))
	if h.tools.watchers[w] || len(w.records.take()) != most || w.records.take() != nil {
		t.Error("he is told more")
	}
}

// I16: what all followers are behind is bounded, and who is furthest behind is let go: nobody
// for what another does.
func TestBehindTogether(t *testing.T) {
	h := newState(t)
	follow := func(uid, behind int) *watcher {
		w := &watcher{newQueue[logged](maxBehind), uid}
		h.tools.watchers[w] = true
		w.records.put(make([]logged, behind)...)
		return w
	}
	hers, slow, quick, most := follow(1, 40), follow(2, 30), follow(2, 5), follow(2, 31)
	h.cutOff(106)
	if len(h.tools.watchers) != 4 {
		t.Fatalf("%d of 4 are left", len(h.tools.watchers))
	}
	h.cutOff(105)
	if h.tools.watchers[most] || len(h.tools.watchers) != 3 {
		t.Errorf("%v are left, without the one furthest behind", h.tools.watchers)
	}
	h.cutOff(40)
	if h.tools.watchers[hers] || !h.tools.watchers[slow] || !h.tools.watchers[quick] {
		t.Errorf("%v are left", h.tools.watchers)
	}
	if len(most.records.take()) != 31 || most.records.take() != nil {
		t.Error("who is let go is told no end")
	}
}

// What a build prints comes whole also if its node was not connected when the build ended, or
// when its output was on the way. What is there of it then says that it is a part.
func TestBuildLogOfNodeThatWasAway(t *testing.T) {
	s, d, start := givenJob(t)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding})
	await(t, func() bool { return s.state("ns/b/j").Phase == job.PhaseBuilding })
	d.c.Close()
	back := func() *wire.Tail {
		d = s.desk("ws1", "boot1", &wire.Item{Attempt: start.Attempt, Job: "ns/b/j", Try: 1, CPUs: 1, Phase: job.PhaseRunning})
		for {
			if tail, ok := d.received().(*wire.Tail); ok {
				return tail
			}
		}
	}
	tail := back()
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 3, Payload: []byte("one")})
	d.c.Close()
	await(t, func() bool { return strings.Contains(s.file("ns/b/build/ws1.log"), "not here") })
	if got := s.file("ns/b/build/ws1.log"); got != "one\n(what it printed then is not here: the node is not connected any more)\n" {
		t.Errorf("kept is %q", got)
	}
	tail = back()
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 7, Payload: []byte("one two")}, &wire.End{X: tail.X})
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "one two" {
		t.Errorf("kept is %q", got)
	}
}

// That a build printed nothing is kept; that a node has no output of a build is not, and what is
// there of an earlier one stays.
func TestBuildLogOfNothing(t *testing.T) {
	s, d, start := givenJob(t)
	for _, c := range []struct {
		from    int64 // -1: the node has no output
		printed string
		kept    string
	}{{-1, "", "none"}, {0, "", ""}, {0, "one", "one"}, {-1, "", "one"}, {0, "", ""}} {
		s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
		tail := next[*wire.Tail](d)
		s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog, From: c.from})
		if c.printed != "" {
			s.send(d.c, &wire.Data{X: tail.X, N: len(c.printed), Payload: []byte(c.printed)})
		}
		s.send(d.c, &wire.End{X: tail.X})
		await(t, func() (over bool) {
			s.h.do(func() { over = len(s.h.transfers.copying) == 0 })
			return over
		})
		kept := "none"
		if f, err := s.h.spool.OpenBuildLog("ns/b", "ws1"); err == nil {
			kept = s.file("ns/b/build/ws1.log")
			f.Close()
		}
		if kept != c.kept {
			t.Errorf("%+v: kept is %q", c, kept)
		}
	}
}

// A node that was away is not asked for the output of a build where its batch has none.
func TestNoBuildLogOfNodeThatWasAway(t *testing.T) {
	s, d, start := givenJob(t)
	d.c.Close()
	d = s.desk("ws1", "boot1", &wire.Item{Attempt: start.Attempt, Job: "ns/b/j", Try: 1, CPUs: 1, Phase: job.PhaseRunning})
	s.send(d.c, &wire.Ping{N: 1})
	for {
		switch m := d.received().(type) {
		case *wire.Tail:
			t.Fatalf("got %+v", m)
		case *wire.Pong:
			return
		}
	}
}

// What a build prints comes whole however slowly it is written.
func TestBuildLogThatComesFast(t *testing.T) {
	s, d, start := givenJob(t)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	tail := expect[*wire.Tail](t, d.c)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 2, Payload: []byte("al")}, &wire.Ping{N: 1})
	expect[*wire.Pong](t, d.c)
	var node *session
	s.h.do(func() { node = s.h.nodes.sessions[s.h.nodes.byName["ws1"]] })
	node.endTail(tail.X, errSlow)
	if tail = expect[*wire.Tail](t, d.c); tail.From != 2 {
		t.Errorf("it is asked for from byte %d", tail.From)
	}
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 1, Payload: []byte("l")}, &wire.End{X: tail.X})
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "all" {
		t.Errorf("kept is %q", got)
	}
}

// The rest of what a build printed is not asked for when another build has begun meanwhile: it
// would be of that.
func TestBuildLogThatComesFastOfAnEarlierBuild(t *testing.T) {
	s, d, start := givenJob(t)
	building, running := &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseBuilding}, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}
	s.send(d.c, building, running)
	tail := expect[*wire.Tail](t, d.c)
	s.send(d.c, &wire.Send{X: tail.X, Of: wire.OfLog}, &wire.Data{X: tail.X, N: 2, Payload: []byte("al")}, building, &wire.Ping{N: 1})
	expect[*wire.Pong](t, d.c)
	s.h.do(func() { s.h.nodes.sessions[s.h.nodes.byName["ws1"]].endTail(tail.X, errSlow) })
	s.h.awaitLog(t.Context(), buildOf{"ns/b", "ws1"})
	if got := s.file("ns/b/build/ws1.log"); got != "al\n(what it printed then is not here: it was built again meanwhile)\n" {
		t.Errorf("kept is %q", got)
	}
	await(t, func() (gone bool) {
		s.h.do(func() { gone = len(s.h.transfers.copying) == 0 })
		return gone
	})
	s.send(d.c, running)
	if tail = expect[*wire.Tail](t, d.c); tail.From != 0 {
		t.Errorf("it is asked for from byte %d", tail.From)
	}
}

// What a build prints does not fill the head's disk.
func TestI16BuildLog(t *testing.T) {
	h := newState(t)
	b := made(t, h, "ns/b", "j")
	defer b.Close()
	if err := h.copyLog(b, "ws1", bytes.NewReader(make([]byte, maxBuildLog+2*wire.MaxFrame))); err != nil {
		t.Fatal(err)
	}
	f, err := h.spool.OpenBuildLog("ns/b", "ws1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil || len(text) > maxBuildLog+200 || !strings.HasSuffix(string(text), fmt.Sprintf("more than %d bytes, which is the limit of what is kept)\n", maxBuildLog)) {
		t.Errorf("%d bytes are kept, %v", len(text), err)
	}
}

func TestTooManySums(t *testing.T) {
	w := &work{batch: &spool.Batch{}}
	_, _, err := w.inputs(make([]string, wire.MaxSums+1))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(wire.MaxSums)) {
		t.Errorf("told %v", err)
	}
}

// A log that comes faster than it is read is read whole all the same, and what
// waits of it meanwhile is bounded.
func TestI16SlowReader(t *testing.T) {
	s := newSite(t)
	s.submit("ns/b", "j")
	d := s.desk("ws1", "b")
	start := expect[*wire.Start](t, d.c)
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning})
	s.becomes("ns/b/j", job.Running)
	const frames = 3 * maxTail
	printed := make([]byte, frames*wire.MaxFrame)
	for i := range printed {
		printed[i] = byte(i >> 10)
	}
	asked, over := make(chan int64, 100), make(chan bool)
	go func() { // the node
		defer close(over)
		for {
			d.c.ReadWithin(2 * time.Minute)
			m, err := d.c.Recv()
			if err != nil {
				return
			}
			if m, ok := m.(*wire.Tail); ok {
				asked <- m.From
				d.c.Send(&wire.Send{X: m.X, Of: wire.OfLog, Attempt: m.Attempt})
				for part := range slices.Chunk(printed[m.From:], wire.MaxFrame) {
					d.c.Send(&wire.Data{X: m.X, N: len(part), Payload: part})
				}
				d.c.Send(&wire.End{X: m.X}, &wire.Ping{N: 1})
			}
		}
	}()
	c := s.tool()
	s.send(c, &wire.Log{Ref: job.NewToken(), ID: "ns/b/j"})
	r := c.RecvTransfer(expect[*wire.Send](t, c))
	<-asked // and it sends all that it has before anything is read
	for sent := false; !sent; runtime.Gosched() {
		s.h.do(func() {
			for _, n := range s.h.nodes.sessions {
				n.mu.Lock()
				defer n.mu.Unlock()
				sent = len(n.tails) == 0
			}
		})
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, printed) {
		t.Errorf("%d bytes of %d came: %v", len(got), len(printed), err)
	}
	if len(asked) == 0 {
		t.Error("it was asked once only")
	}
	d.c.Close()
	<-over
}
