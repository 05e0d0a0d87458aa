package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"distribute/lib/line"
	"distribute/lib/wire"
)

// sharing calls f within a bubble with both sides of a stream that is shared,
// of which near begins the parts. The bubble ends only when no goroutine is
// left.
func sharing(t *testing.T, f func(t *testing.T, near, far *Shared)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		near, far := Share(wire.New(a), true), Share(wire.New(b), false)
		defer near.Close()
		defer far.Close()
		f(t, near, far)
	})
}

// both is a new part, as both sides have it, of which the peer has heard.
func both(t *testing.T, near, far *Shared) (ours, theirs net.Conn) {
	t.Helper()
	ours, err := near.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte("!")); err != nil {
		t.Fatal(err)
	}
	if theirs, err = far.Accept(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// Every part carries its own bytes, both ways at once, whatever sizes they are
// written and read in.
func TestPartsCarry(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		var all sync.WaitGroup
		carry := func(seed uint64, from, to net.Conn) {
			want := make([]byte, 3<<20+int(seed))
			r := rand.New(rand.NewPCG(seed, 1))
			for i := range want {
				want[i] = byte(r.Uint32())
			}
			all.Go(func() {
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 1+r.IntN(400<<10))
					if _, err := from.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				from.(interface{ CloseWrite() error }).CloseWrite()
			})
			all.Go(func() {
				got, err := io.ReadAll(to)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes came of %d, %v", len(got), len(want), err)
				}
			})
		}
		for i := range uint64(MaxParts) {
			ours, theirs := both(t, near, far)
			carry(2*i, ours, theirs)
			carry(2*i+1, theirs, ours)
		}
		all.Wait()
	})
}

// Who reads one part slowly, or never, stops that part only, and what was sent
// of it is bounded.
func TestT79PartThatIsNotRead(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		stuck, _ := both(t, near, far)
		live, theirs := both(t, near, far)
		sent := make(chan int)
		go func() {
			n, err := stuck.Write(make([]byte, 2*credit))
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			sent <- n
		}()
		synctest.Wait()
		for i := range 10 {
			word := fmt.Appendf(nil, "word %d", i)
			if _, err := live.Write(word); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(word))
			if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, word) {
				t.Fatalf("%q, %v", got, err)
			}
		}
		stuck.Close()
		if n := <-sent; n != credit-1 {
			t.Errorf("%d bytes were sent that nobody reads, where %d may be", n, credit)
		}
	})
}

func TestPartDeadlines(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		ours, theirs := both(t, near, far)
		check := func(what string, began time.Time, err error) {
			t.Helper()
			if timeout := net.Error(nil); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("%s: %v", what, err)
			}
			if passed := time.Since(began); passed != time.Second {
				t.Errorf("%s: after %v", what, passed)
			}
		}
		began := time.Now()
		ours.SetReadDeadline(began.Add(time.Second))
		_, err := ours.Read(make([]byte, 1))
		check("read", began, err)

		began = time.Now()
		ours.SetReadDeadline(began.Add(time.Hour)) // moved while somebody reads
		go func() {
			synctest.Wait()
			ours.SetReadDeadline(began.Add(time.Second))
		}()
		_, err = ours.Read(make([]byte, 1))
		check("read under way", began, err)

		began = time.Now()
		ours.SetDeadline(began.Add(time.Second))
		n, err := ours.Write(make([]byte, 2*credit))
		check("write", began, err)
		if n != credit-1 {
			t.Errorf("%d bytes were sent", n)
		}

		ours.SetDeadline(time.Time{}) // nothing of it is left
		go io.Copy(io.Discard, theirs)
		if _, err := ours.Write([]byte("more")); err != nil {
			t.Error(err)
		}
	})
}

// What one side ends the other hears of, and nothing of it is left: the number
// of parts is bounded at a time only.
func TestPartsEnd(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		for range 3 * MaxParts {
			ours, theirs := both(t, near, far)
			theirs.Write([]byte("last words"))
			theirs.Close()
			if got, err := io.ReadAll(ours); err != nil || string(got) != "last words" {
				t.Fatalf("%q, %v", got, err)
			}
			synctest.Wait()
			if _, err := ours.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Fatal("what nobody reads is written:", err)
			}
			ours.Close()
			if _, err := ours.Read(nil); !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if len(near.parts)+len(far.parts) != 0 {
			t.Errorf("%d and %d parts are kept that have ended", len(near.parts), len(far.parts))
		}
		for range MaxParts { // one that the peer has not heard of counts, and can be ended
			if p, err := near.Begin(); err != nil {
				t.Fatal(err)
			} else {
				defer p.Close()
			}
		}
		if _, err := near.Begin(); err == nil {
			t.Error("there is no limit")
		}
	})
}

// A part that both sides have ended makes room at once: the peer's next one may
// come in its place with the next bytes, before anything more can be sent from
// here.
func TestPartInThePlaceOfAnother(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		var first, its net.Conn
		for range MaxParts {
			first, its = both(t, near, far)
		}
		its.(interface{ CloseWrite() error }).CloseWrite()
		synctest.Wait() // near has heard its end
		far.turn <- struct{}{}
		first.Close()
		synctest.Wait()
		next, err := near.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next.Write([]byte("next")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		<-far.turn
		if err := far.Err(); err != nil {
			t.Fatal(err)
		}
		theirs, err := far.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(theirs, got); err != nil || string(got) != "next" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// What is dialled while a part ends has its place; who dials waits no longer than
// he likes.
func TestDialInThePlaceOfAnother(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		streams := &Streams{addr: "ssh://desk", shared: near}
		var first net.Conn
		for range MaxParts {
			first, _ = both(t, near, far)
		}
		if _, err := streams.Dial(t.Context()); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		far.turn <- struct{}{} // its answers wait
		first.Close()
		ctx, cancel := context.WithCancel(t.Context())
		dialled := make(chan error)
		go func() {
			_, err := streams.Dial(ctx)
			dialled <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-dialled; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		go func() {
			_, err := streams.Dial(t.Context())
			dialled <- err
		}()
		synctest.Wait()
		<-far.turn
		if err := <-dialled; err != nil {
			t.Fatal(err)
		}
	})
}

// That the peer has closed the stream is told apart from all else that ends it,
// whether it is read or written then.
func TestPartsOver(t *testing.T) {
	for _, c := range []struct {
		err  error
		over bool
	}{
		{io.EOF, true}, {&net.OpError{Err: os.NewSyscallError("write", syscall.EPIPE)}, true}, {os.NewSyscallError("read", syscall.ECONNRESET), true},
		{io.ErrUnexpectedEOF, false}, {net.ErrClosed, false}, {os.ErrDeadlineExceeded, false}, {&wire.Error{Status: 77, Text: "not you"}, false},
	} {
		if err := over(c.err); errors.Is(err, ErrOver) != c.over {
			t.Errorf("%v is %v", c.err, err)
		}
	}
	sharing(t, func(t *testing.T, near, far *Shared) {
		ours, _ := both(t, near, far)
		far.Close()
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, ErrOver) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		if _, err := near.Begin(); !errors.Is(err, ErrOver) {
			t.Error(err)
		}
	})
}

// With the stream all parts end, and what had come can still be read.
func TestPartsEndWithTheStream(t *testing.T) {
	sharing(t, func(t *testing.T, near, far *Shared) {
		ours, theirs := both(t, near, far)
		ours.Write([]byte("here"))
		synctest.Wait()
		blocked := make(chan error, 2)
		go func() {
			_, err := ours.Read(make([]byte, 1))
			blocked <- err
		}()
		go func() {
			_, err := ours.Write(make([]byte, 2*credit))
			blocked <- err
		}()
		synctest.Wait()
		near.Close()
		for range 2 {
			if err := <-blocked; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		synctest.Wait()
		got, err := io.ReadAll(theirs)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(string(got), "here") {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if _, err := far.Accept(); err == nil {
			t.Error("a part comes on a stream that has ended")
		}
	})
}

// I16, T82: who breaks the rules of parts loses the stream.
func TestI16T82OddParts(t *testing.T) {
	full := make([]byte, wire.MaxFrame)
	part := func(s uint64, b []byte) wire.Message { return &wire.Part{S: s, N: len(b), Payload: b} }
	many := func() (ms []wire.Message) {
		for s := range uint64(MaxParts + 1) {
			ms = append(ms, part(s+1, full[:1]))
		}
		return ms
	}
	for _, c := range []struct {
		name   string
		begins bool
		say    []wire.Message
	}{
		{"number 0", false, []wire.Message{part(0, full[:1])}},
		{"a number too early", false, []wire.Message{part(2, full[:1])}},
		{"a part that this side begins", true, []wire.Message{part(1, full[:1])}},
		{"too many", false, many()},
		{"too much", false, []wire.Message{part(1, full), part(1, full), part(1, full), part(1, full), part(1, full[:1])}},
		{"after its end", false, []wire.Message{part(1, full[:1]), part(1, nil), part(1, full[:1])}},
		{"more of nothing", false, []wire.Message{&wire.More{S: 1, N: 1}}},
		{"more than there is", false, []wire.Message{part(1, full[:1]), &wire.More{S: 1, N: 1}}},
		{"less", false, []wire.Message{part(1, full[:1]), &wire.More{S: 1, N: -1}}},
		{"another message", false, []wire.Message{&wire.Ping{N: 1}}},
		{"attach again", false, []wire.Message{&wire.Attach{Node: "ws9", Parts: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				s := Share(wire.New(a), c.begins)
				defer s.Close()
				go io.Copy(io.Discard, b)
				wire.New(b).Send(c.say...)
				<-s.Over()
				if err := s.Err(); !errors.Is(err, line.ErrLine) {
					t.Error(err)
				}
			})
		})
	}
}

// I16: parts that are over before anybody has taken them are not collected, and
// hold nobody up.
func TestI16PartsNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		s := Share(wire.New(a), false)
		defer s.Close()
		go io.Copy(io.Discard, b)
		peer := wire.New(b)
		for n := range uint64(MaxParts + 1) {
			peer.Send(&wire.Part{S: n + 1, N: 1, Payload: []byte("x")}, &wire.More{S: n + 1}, &wire.Part{S: n + 1})
			synctest.Wait()
		}
		<-s.Over()
		if err := s.Err(); !errors.Is(err, line.ErrLine) {
			t.Error(err)
		}
	})
}

// A refusal of the whole stream is what its parts say.
func TestPartsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		s := Share(wire.New(a), true)
		defer s.Close()
		p, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		wire.New(b).Send(&wire.Error{Status: 77, Text: "not you"})
		_, err = p.Read(make([]byte, 1))
		if refusal := (*wire.Error)(nil); !errors.As(err, &refusal) || refusal.Status != 77 {
			t.Error(err)
		}
	})
}
