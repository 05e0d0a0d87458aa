package noded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// A depot has the inputs of a fakeHead, and stops in the middle of some of them.
type depot struct {
	text  map[string][]byte
	begun chan string // the sums of inputs in whose middle it stops

	mu    sync.Mutex               // guards stops and asked
	stops map[string]chan struct{} // by sum: what it waits for there
	asked []*wire.Fetch
}

// newDepot has the head answer with what is in the depot.
func (h *fakeHead) newDepot() *depot {
	d := &depot{text: map[string][]byte{}, begun: make(chan string, 10), stops: map[string]chan struct{}{}}
	h.answer = d.answer
	return d
}

// add adds an input of some bytes.
func (d *depot) add(path string, size int) job.Input {
	text := bytes.Repeat([]byte(path), size/len(path)+1)[:size]
	sum := sha256.Sum256(text)
	in := job.Input{Path: path, Sum: hex.EncodeToString(sum[:]), Size: int64(size)}
	d.text[in.Sum] = text
	return in
}

// stop has the depot stop in the middle of an input, each time, until the returned
// channel is closed.
func (d *depot) stop(in job.Input) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops[in.Sum] = make(chan struct{})
	return d.stops[in.Sum]
}

func (d *depot) questions() []*wire.Fetch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

func (d *depot) answer(c *wire.Conn, x uint64, f *wire.Fetch) bool {
	if f.Of != wire.OfInputs {
		return false
	}
	d.mu.Lock()
	d.asked = append(d.asked, f)
	d.mu.Unlock()
	sizes := map[string]int64{}
	for _, s := range f.Sums {
		sizes[s] = int64(len(d.text[s]))
	}
	c.SendTransfer(&wire.Send{X: x, Of: f.Of, Attempt: f.Attempt}, func(w io.Writer) error {
		m := pack.Blobs(sizes)
		return pack.SendStored(w, m, pack.Want{From: f.From}, func(_ int, e pack.Entry) (io.ReadCloser, error) {
			d.mu.Lock()
			until := d.stops[e.Sum]
			d.mu.Unlock()
			return &stopping{Reader: bytes.NewReader(d.text[e.Sum]), d: d, w: w.(*wire.Writer), sum: e.Sum, until: until}, nil
		})
	})
	return true
}

// A stopping reader stops in the middle, when what came before is sent.
type stopping struct {
	*bytes.Reader
	d     *depot
	w     *wire.Writer
	sum   string
	until chan struct{}
}

func (s *stopping) Read(p []byte) (int, error) {
	half := s.Size() / 2
	if s.until == nil {
		return s.Reader.Read(p)
	}
	if left := int64(s.Len()); left > half {
		return s.Reader.Read(p[:min(int64(len(p)), left-half)])
	}
	s.w.Flush()
	s.d.begun <- s.sum
	<-s.until
	s.until = nil
	return s.Reader.Read(p)
}

func (s *stopping) Unchanged() error { return nil }
func (s *stopping) Close() error     { return nil }

// with adds inputs to the job of a start.
func with(st *wire.Start, ins ...job.Input) *wire.Start {
	st.Work.Inputs = ins
	return st
}

const large = 3 * maxSmall

// A job whose large input does not come is stopped at once. Meanwhile, and after that,
// other jobs get what they need, also small inputs that it needs too, and another large one.
func TestDownloadIsCancelled(t *testing.T) {
	for _, pause := range []bool{false, true} {
		h := newFakeHead(t)
		d := h.newDepot()
		shared, own, huge := d.add("shared", 6), d.add("own", 6), d.add("huge", large)
		free := d.stop(huge)
		defer close(free)
		n := Stand{}
		changed := make(chan struct{})
		var mu sync.Mutex
		h.liveAs(filepath.Join(t.TempDir(), "node"), func(s *Settings) {
			s.Offer.CPUs = 4
			if pause {
				s.Stand = func() (Stand, <-chan struct{}) {
					mu.Lock()
					defer mu.Unlock()
					return n, changed
				}
			}
		})
		s, _ := h.session()
		slow := with(h.start("true"), huge, shared)
		s.say(slow)
		<-d.begun
		quick := with(h.start("cat own shared"), own, shared)
		s.say(quick)
		if e := awaited[*wire.Ended](s); e.Attempt != quick.Attempt || !e.OK() {
			t.Fatalf("beside a large input: %+v", e)
		}
		if pause {
			mu.Lock()
			was := changed
			n, changed = Stand{Frozen: true, Out: true}, make(chan struct{})
			mu.Unlock()
			close(was)
		} else {
			s.say(&wire.Stop{Attempt: slow.Attempt, Why: "cancelled by maria"})
		}
		e := awaited[*wire.Ended](s)
		if e.Attempt != slow.Attempt || pause && e.Fate != job.FateNodePaused || !pause && e.Fate != job.FateUnstarted {
			t.Fatalf("the stopped one: %+v", e)
		}
		if pause {
			continue
		}
		next := with(h.start("cat next"), d.add("next", large+1))
		s.say(next)
		if e := awaited[*wire.Ended](s); e.Attempt != next.Attempt || !e.OK() {
			t.Fatalf("after it: %+v", e)
		}
	}
}

// What another job waits for is fetched for that when the first one is stopped, and goes
// on where it was.
func TestDownloadPassesOn(t *testing.T) {
	h := newFakeHead(t)
	d := h.newDepot()
	huge := d.add("huge", large)
	free := d.stop(huge)
	dir := filepath.Join(t.TempDir(), "node")
	h.liveWith(dir, 4, nil)
	s, _ := h.session()
	first, second := with(h.start("true"), huge), with(h.start("cat huge"), huge)
	s.say(first)
	<-d.begun
	for part := filepath.Join(dir, "cache", huge.Sum[:2], ".part-"+huge.Sum); ; time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(part); err == nil && info.Size() > 0 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("nothing of it comes")
		}
	}
	s.say(second)
	for p := awaited[*wire.Phase](s); p.Attempt != second.Attempt || p.Phase != job.PhaseSending; p = awaited[*wire.Phase](s) {
	}
	s.say(&wire.Stop{Attempt: first.Attempt, Why: "cancelled by maria"})
	if e := awaited[*wire.Ended](s); e.Attempt != first.Attempt {
		t.Fatalf("%+v", e)
	}
	<-d.begun
	close(free)
	if e := awaited[*wire.Ended](s); e.Attempt != second.Attempt || !e.OK() || e.Bytes != int64(large) {
		t.Errorf("%+v", e)
	}
	if asked := d.questions(); len(asked) != 2 || asked[1].Attempt != second.Attempt || asked[1].From == 0 {
		t.Errorf("it asked %v", asked)
	}
}

// From a head of an earlier release all comes on one stream: a stopped job ends there as
// soon as something more comes, and the others get what they need after that.
func TestDownloadOnOneStream(t *testing.T) {
	h := newFakeHead(t)
	h.narrow = true
	d := h.newDepot()
	huge, own := d.add("huge", large), d.add("own", 6)
	free := d.stop(huge)
	h.liveWith(filepath.Join(t.TempDir(), "node"), 4, nil)
	s, _ := h.session()
	slow, quick := with(h.start("true"), huge), with(h.start("cat own"), own)
	s.say(slow)
	<-d.begun
	s.say(quick, &wire.Stop{Attempt: slow.Attempt, Why: "cancelled by maria"})
	for p := awaited[*wire.Phase](s); p.Attempt != quick.Attempt || p.Phase != job.PhaseSending; p = awaited[*wire.Phase](s) {
	}
	close(free)
	ended := map[job.Token]*wire.Ended{}
	for range 2 {
		e := awaited[*wire.Ended](s)
		ended[e.Attempt] = e
	}
	if e := ended[slow.Attempt]; e == nil || e.Fate != job.FateUnstarted || !strings.Contains(e.Reason, "cancelled by maria") {
		t.Errorf("the stopped one: %+v", e)
	}
	if e := ended[quick.Attempt]; e == nil || !e.OK() {
		t.Errorf("the other one: %+v", e)
	}
	next := with(h.start("cat next"), d.add("next", large+1))
	s.say(next)
	if e := awaited[*wire.Ended](s); e.Attempt != next.Attempt || !e.OK() {
		t.Errorf("after it: %+v", e)
	}
}

// A head may notice late that the node has closed the stream of a stopped download. The
// next large input waits for its stream, and small ones do not wait for that.
func TestDownloadAfterLateClose(t *testing.T) {
	h := newFakeHead(t)
	h.late = 20
	d := h.newDepot()
	huge, next, own := d.add("huge", large), d.add("next", large+1), d.add("own", 6)
	free := d.stop(huge)
	defer close(free)
	then := d.stop(next)
	h.liveWith(filepath.Join(t.TempDir(), "node"), 4, nil)
	s, _ := h.session()
	slow := with(h.start("true"), huge)
	s.say(slow)
	<-d.begun
	s.say(&wire.Stop{Attempt: slow.Attempt, Why: "cancelled by maria"})
	if e := awaited[*wire.Ended](s); e.Attempt != slow.Attempt {
		t.Fatalf("the stopped one: %+v", e)
	}
	second := with(h.start("cat next"), next)
	s.say(second)
	<-d.begun
	quick := with(h.start("cat own"), own)
	s.say(quick)
	if e := awaited[*wire.Ended](s); e.Attempt != quick.Attempt || !e.OK() {
		t.Fatalf("beside a large input: %+v", e)
	}
	close(then)
	if e := awaited[*wire.Ended](s); e.Attempt != second.Attempt || !e.OK() {
		t.Errorf("the large one: %+v", e)
	}
}

// Small inputs come before large ones, and a question for small ones is small.
func TestSmallInputsFirst(t *testing.T) {
	h := newFakeHead(t)
	d := h.newDepot()
	var ins []job.Input
	for _, size := range []int{large, 300 << 10, 6, maxSmall - 10} {
		ins = append(ins, d.add("in"+strings.Repeat("x", len(ins)), size))
	}
	dir := filepath.Join(t.TempDir(), "node")
	h.live(dir, nil)
	s, _ := h.session()
	st := with(h.start("cat in*"), ins...)
	s.say(st)
	if e := awaited[*wire.Ended](s); !e.OK() {
		t.Fatalf("%+v", e)
	}
	var got [][]string
	for _, f := range d.questions() {
		got = append(got, f.Sums)
	}
	first := []string{ins[2].Sum, ins[1].Sum}
	slices.Sort(first)
	want := [][]string{first, {ins[3].Sum}, {ins[0].Sum}}
	if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("it asked for %v, should have for %v", got, want)
	}
	out, err := os.ReadFile(filepath.Join(dir, "attempts", string(st.Attempt), "output"))
	if all := slices.Concat(d.text[ins[0].Sum], d.text[ins[1].Sum], d.text[ins[2].Sum], d.text[ins[3].Sum]); err != nil || !bytes.Equal(out, all) {
		t.Errorf("%v, it has %d bytes of %d", err, len(out), len(all))
	}
}

// A job whose input has rotted on the head, or is lost there, fails and says so. The node keeps
// its name as one that begins what it is given.
func TestInputOfNoUse(t *testing.T) {
	for _, lost := range []bool{false, true} {
		h := newFakeHead(t)
		d := h.newDepot()
		good, bad := d.add("input/good", 6), d.add("input/bad", 600)
		d.text[bad.Sum] = bytes.Repeat([]byte{'x'}, 600)
		reason := `the head sent other content than the sum of its input "input/bad" says: see dfsck(8)`
		if lost {
			reason = "is lost"
			h.answer = func(c *wire.Conn, x uint64, f *wire.Fetch) bool {
				if slices.Contains(f.Sums, bad.Sum) {
					c.Send(&wire.Error{Status: lostInput, Text: reason})
					return true
				}
				return d.answer(c, x, f)
			}
		}
		h.live(filepath.Join(t.TempDir(), "node"), nil)
		s, _ := h.session()
		s.say(with(h.start("true"), good, bad))
		if e := awaited[*wire.Ended](s); e.Fate != job.FateEnded || e.Reason != reason || e.Exit != nil {
			t.Errorf("lost %v: it says %q, %s", lost, e.Fate, e.Reason)
		}
		s.say(with(h.start("true"), good))
		if e := awaited[*wire.Ended](s); !e.OK() {
			t.Errorf("another job: %q, %s", e.Fate, e.Reason)
		}
	}
}

// A lateStream notes the limit of the last write.
type lateStream struct {
	net.Conn
	limited atomic.Bool
}

func (s *lateStream) SetWriteDeadline(at time.Time) error {
	s.limited.Store(!at.IsZero())
	return s.Conn.SetWriteDeadline(at)
}

// What a node writes to a data stream may wait for long: the head may be at work with what
// came before. Only the control stream has a limit.
func TestDataStreamsWriteLate(t *testing.T) {
	h := newFakeHead(t)
	d := h.newDepot()
	var mu sync.Mutex
	var streams []*lateStream
	h.liveAs(filepath.Join(t.TempDir(), "node"), func(s *Settings) {
		s.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := s.Terms.Dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			streams = append(streams, &lateStream{Conn: c})
			return streams[len(streams)-1], nil
		}
	})
	s, _ := h.session()
	s.say(with(h.start("true"), d.add("small", 6), d.add("huge", large)))
	awaited[*wire.Ended](s)
	<-s.up
	mu.Lock()
	defer mu.Unlock()
	limited := 0
	for _, c := range streams {
		if c.limited.Load() {
			limited++
		}
	}
	if len(streams) != 4 || limited > 2 { // the one for results may have said no more than its hello
		t.Errorf("%d streams of %d have a limit", limited, len(streams))
	}
}

// An answer that belongs to the question of another job ends the session, and is given to
// nobody.
func TestAnswerOfAnother(t *testing.T) {
	h := newFakeHead(t)
	var wrong atomic.Bool
	wrong.Store(true)
	h.answer = func(c *wire.Conn, x uint64, f *wire.Fetch) bool {
		if f.Of != wire.OfSpec || !wrong.CompareAndSwap(true, false) {
			return false
		}
		c.SendTransfer(&wire.Send{X: x, Of: wire.OfSpec, Attempt: job.NewToken()}, func(w io.Writer) error {
			_, err := io.WriteString(w, h.spec)
			return err
		})
		return true
	}
	h.live(filepath.Join(t.TempDir(), "node"), nil)
	s, _ := h.session()
	st := h.start("true")
	s.say(st)
	s, _ = h.session()
	if e := awaited[*wire.Ended](s); e.Attempt != st.Attempt || !e.OK() {
		t.Errorf("%+v", e)
	}
}
