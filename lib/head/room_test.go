package head

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
	"distribute/spool"
)

// a disk of a test: what is free is what the test says.
func roomOf(sp *spool.Space, reserve int64) *room {
	return newRoom(func() (spool.Space, error) { return *sp, nil }, reserve)
}

// What is promised to one transfer is not promised to another, what lies on the
// disk is not counted twice, and what is given back may be promised again.
func TestI17PromisedOnce(t *testing.T) {
	disk := spool.Space{Free: 1000, Size: 2000, Files: 100}
	r := roomOf(&disk, 100)
	a, b := promise{room: r}, promise{room: r}
	if err := a.set(600, 10); err != nil {
		t.Fatal(err)
	}
	var short *noRoom
	if err := b.set(301, 1); !errors.As(err, &short) || short.has != 300 || !errors.Is(err, spool.ErrFull) {
		t.Errorf("more than there is: %v", err)
	}
	if err := b.set(300, 91); !errors.As(err, &short) || err.Error() != "head's disk: needs 91 inodes, has 90" {
		t.Errorf("more inodes than there are: %v", err)
	}
	if err := b.set(300, 90); err != nil {
		t.Error(err)
	}
	if err := b.set(301, 90); !errors.As(err, &short) || b.bytes != 300 {
		t.Errorf("a promise that grows: %v, %d", err, b.bytes)
	}
	if err := b.set(10, 1); err != nil {
		t.Error(err)
	}
	disk.Free -= 500
	a.landed(500, 5)
	if err := b.set(300, 1); err != nil {
		t.Errorf("what has landed is counted twice: %v", err)
	}
	a.landed(1<<40, 1<<40)
	a.end()
	b.end()
	b.end()
	if r.bytes != 0 || r.files != 0 {
		t.Errorf("%d bytes and %d inodes stay promised", r.bytes, r.files)
	}
	disk.Free = 50
	if err := a.set(1, 0); err == nil || !strings.HasSuffix(err.Error(), "needs 1, has nothing above its reserve") {
		t.Errorf("below the reserve: %v", err)
	}
	if err := a.set(0, 0); err != nil {
		t.Errorf("nothing needs no room: %v", err)
	}
}

// A transfer that is slow for a while yields its room to others who lack it, and one that is
// quick, or new, or must not, keeps it.
func TestSlowOnesYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := spool.Space{Free: 1 << 30, Size: 2 << 30, Files: 1000}
		r := roomOf(&disk, 0)
		var ended []string
		named := func(name string) *promise { return &promise{room: r, yields: func() { ended = append(ended, name) }} }
		trickle, idle, quick, kept, late := named("trickle"), named("idle"), named("quick"), &promise{room: r}, named("late")
		for _, p := range []*promise{trickle, idle, quick, kept} {
			if err := p.set(250<<20, 1); err != nil {
				t.Fatal(err)
			}
		}
		asks := named("asks")
		lacks := func(bytes int64, want string) {
			t.Helper()
			err := asks.set(bytes, 1)
			synctest.Wait()
			if got := strings.Join(ended, " "); got != want || (err == nil) != (want != "") {
				t.Errorf("ended are %q, want %q: %v", got, want, err)
			}
		}
		lacks(100<<20, "")
		time.Sleep(slowAfter - time.Second)
		lacks(100<<20, "")
		time.Sleep(time.Second)
		trickle.landed(1<<20, 0)
		quick.landed(leastRate*60, 0)
		disk.Free -= 1<<20 + leastRate*60
		if err := late.set(1<<20, 1); err != nil {
			t.Error(err)
		}
		lacks(100<<20, "idle")
		if bytes, _ := idle.left(); bytes != 0 {
			t.Errorf("%d bytes are promised to who has yielded", bytes)
		}
		err := asks.set(900<<20, 1)
		synctest.Wait()
		if err == nil || len(ended) != 1 {
			t.Errorf("more than can be had: %v, ended are %q", err, ended)
		}
		lacks(400<<20, "idle trickle")
		for _, p := range []*promise{trickle, idle, quick, kept, late, asks} {
			p.landed(1000, 0)
			p.end()
		}
		if r.bytes != 0 || r.files != 0 || len(r.may) != 0 {
			t.Errorf("%d bytes, %d inodes and %d promises are left", r.bytes, r.files, len(r.may))
		}
	})
}

// A user who is promised more than half of what there is yields to another who asks for less.
func TestSharesOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := spool.Space{Free: 1000 << 20, Size: 2 << 30, Files: 1000}
		r := roomOf(&disk, 0)
		var ended []string
		ana, ben := 1, 2
		of := func(user *int, name string) *promise {
			return &promise{room: r, user: user, yields: func() { ended = append(ended, name) }}
		}
		set := func(p *promise, mib int64, ok bool, want string) {
			t.Helper()
			err := p.set(mib<<20, 1)
			synctest.Wait()
			if got := strings.Join(ended, " "); got != want || (err == nil) != ok {
				t.Errorf("ended are %q, want %q: %v", got, want, err)
			}
		}
		first, second, third := of(&ana, "first"), of(&ana, "second"), of(&ben, "third")
		set(first, 300, true, "")
		set(second, 600, true, "")
		set(of(&ana, "fourth"), 200, false, "") // her own do not yield to her
		set(third, 501, false, "")              // he would have more than half
		set(third, 200, true, "second")
		set(of(nil, "result"), 600, false, "second") // she has less than half now
		set(first, 790, true, "second")
		set(&promise{room: r}, 100, true, "second first")
	})
}

// A result is not slow as long as others come on the stream of its node, and yields to none of
// these.
func TestResultsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := spool.Space{Free: 1000 << 20, Size: 2 << 30, Files: 1000}
		r := roomOf(&disk, 0)
		ended, landed := 0, int64(0)
		result := func() *promise { return &promise{room: r, stream: &landed, yields: func() { ended++ }} }
		waits, comes, other := result(), result(), &promise{room: r}
		if err := errors.Join(waits.set(500<<20, 1), comes.set(400<<20, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(slowAfter)
		comes.landed(leastRate*60, 0)
		if err := other.set(200<<20, 1); err == nil || ended > 0 {
			t.Errorf("a result behind another one has yielded: %v, %d", err, ended)
		}
		time.Sleep(slowAfter)
		if err := result().set(200<<20, 1); err == nil || ended > 0 {
			t.Errorf("a result has yielded to one of its node: %v, %d", err, ended)
		}
		err := other.set(200<<20, 1)
		synctest.Wait()
		if err != nil || ended != 1 {
			t.Errorf("no result has yielded: %v, %d", err, ended)
		}
	})
}

// A session of which several results yield ends once, and the node is told why.
func TestSessionYieldsOnce(t *testing.T) {
	log := &strings.Builder{}
	s := &session{out: newQueue[wire.Message](10), log: slog.New(slog.NewTextHandler(log, nil))}
	s.yield()
	s.yield()
	if told := s.out.take(); len(told) != 1 || s.out.take() != nil || strings.Count(log.String(), "results cut off") != 1 {
		t.Errorf("the node is told %v, and the log has\n%s", told, log)
	}
}

// What a node claims is bounded, so that sums of it are.
func TestClaimsAreBounded(t *testing.T) {
	for _, c := range []struct {
		bytes   int64
		entries int
	}{{-1, -1}, {1 << 62, 1 << 62}, {-1 << 63, -1 << 63}} {
		if size, files := sizeOf(c.bytes, c.entries); size < 0 || size > 1<<41 || files < 0 || files > 1<<21 {
			t.Errorf("%+v: %d bytes, %d files", c, size, files)
		}
	}
}

// A stream of unknown length is read as far as there is room.
func TestS04StreamOfUnknownLength(t *testing.T) {
	disk := spool.Space{Free: 3 << 20, Files: -1}
	p := promise{room: roomOf(&disk, 0)}
	in := strings.NewReader(strings.Repeat("x", 8<<20))
	m := meter{in, &p}
	n := int64(0)
	var err error
	for b := make([]byte, 64<<10); err == nil; {
		var k int
		k, err = m.Read(b)
		n += int64(k)
		disk.Free -= int64(k)
	}
	if !errors.Is(err, spool.ErrFull) || n != 3<<20 {
		t.Errorf("after %d bytes: %v", n, err)
	}
	disk.Free = 1 << 40
	if rest, err := io.Copy(io.Discard, m); err != nil || n+rest != 8<<20 {
		t.Errorf("with room: %d bytes, %v", rest, err)
	}
}

// Of large results a few come at a time; those that wait have their turn in
// order, except where another of their node's must end first.
func TestLargeOnesTakeTurns(t *testing.T) {
	r := roomOf(&spool.Space{}, 0)
	var turns []string
	enter := func(n, name string) bool {
		return r.enter(node.Name(n), name, func() { turns = append(turns, name) })
	}
	if !enter("a", "a1") || !enter("a", "a2") || enter("a", "a3") {
		t.Fatal("one node has more than its share")
	}
	for _, n := range []string{"b", "c", "d"} {
		if !enter(n, n+"1") || !enter(n, n+"2") {
			t.Fatalf("%s has none of eight places", n)
		}
	}
	if enter("e", "e1") || enter("f", "f1") {
		t.Fatal("there are more than eight")
	}
	r.leave("b")
	r.leave("a")
	if got := strings.Join(turns, " "); got != "e1 a3" {
		t.Errorf("turns %q", got)
	}
	r.abandon("f1")
	for _, n := range []string{"a", "a", "b", "c", "c", "d", "d", "e"} {
		r.leave(node.Name(n))
	}
	if len(turns) != 2 || r.enough != 0 || len(r.large) != 0 || len(r.parked) != 0 {
		t.Errorf("left: %v, %d, %v, %v", turns, r.enough, r.large, r.parked)
	}
}

func TestHoldsOneAtATime(t *testing.T) {
	x := holds{of: map[job.Token][]func(){}}
	token, called := job.NewToken(), 0
	if !x.take(token, nil) || x.take(token, func() { called++ }) || x.take(token, func() { called++ }) {
		t.Fatal("two have hold of one thing")
	}
	if !x.take(job.NewToken(), nil) {
		t.Error("another thing cannot be held")
	}
	x.give(token)
	if called != 2 || !x.take(token, nil) {
		t.Errorf("called %d times", called)
	}
}
