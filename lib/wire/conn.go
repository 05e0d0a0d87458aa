// Package wire is the protocol between the head, its nodes and its tools:
// hello, messages and framed transfers over any stream of bytes. dwire(5) is
// its specification and has an example of every message.
//
// A message is one JSON object on one line. A transfer is a [Send], [Data]
// frames whose bytes follow their lines, and an [End] with their count and sum. A [Conn] may be written to from several goroutines and read from
// one.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"
	"time"

	"distribute/lib/line"
)

// Limits of what a peer may send.
const (
	MaxLine  = 1 << 20   // bytes of a message
	MaxFrame = 256 << 10 // bytes of one frame of data
	MaxHello = 8 << 10   // bytes of a message until who sends it is let in: hello and attach
)

// WriteWithin is how long a peer may take to read what is written to it.
const WriteWithin = time.Minute

// FrameWithin is how long each message of a transfer may take to come from a
// peer that is not there to be waited for; see [Conn.LimitFrames].
const FrameWithin = time.Minute

// Errors that Recv and the readers of transfers return.
var (
	// ErrUnknown is returned for a message of a kind that is not known. The
	// stream goes on: the receiver answers with an Error.
	ErrUnknown = errors.New("unknown message")
	// ErrCut is returned for a transfer that did not arrive whole.
	ErrCut = errors.New("transfer cut")
	// ErrGaveUp is returned when the sender of a transfer ended it with a reason.
	ErrGaveUp = errors.New("the sender gave up")
)

// A Conn is one stream of messages and transfers.
type Conn struct {
	rwc        io.ReadWriteCloser
	in         *line.Reader
	payload    []byte
	patient    time.Duration // limit of one write, 0: none
	frameLimit time.Duration // limit of each message of a transfer, 0: none
	frame      int           // limit of the bytes that follow a line

	mu  sync.Mutex // guards out
	out *bufio.Writer
}

// deadliner is what streams with deadlines implement.
type deadliner interface {
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// New makes a Conn of a stream of bytes.
func New(rwc io.ReadWriteCloser) *Conn {
	return &Conn{rwc: rwc, patient: WriteWithin, frame: MaxFrame, out: bufio.NewWriterSize(rwc, 64<<10),
		in: line.NewReader(bufio.NewReaderSize(rwc, 64<<10), MaxLine)}
}

// Close closes the stream below, which ends reads and writes under way.
func (c *Conn) Close() error { return c.rwc.Close() }

// ReadWithin sets how long reads may take from now on, all together; 0 takes
// the limit away. It does nothing on streams without deadlines.
func (c *Conn) ReadWithin(d time.Duration) {
	if s, ok := c.rwc.(deadliner); ok {
		var at time.Time
		if d > 0 {
			at = time.Now().Add(d)
		}
		s.SetReadDeadline(at)
	}
}

// Strange has the peer be one of whom nothing is known yet, or no longer so. From
// a stranger no message is taken that has more than [MaxHello] bytes, nor bytes
// that follow one.
func (c *Conn) Strange(is bool) {
	if is {
		c.in.Limit(MaxHello)
		c.frame = 0
		return
	}
	c.in.Limit(MaxLine)
	c.frame = MaxFrame
}

// LimitFrames sets how long each message within a transfer may take to come from now
// on; 0 takes the limit away. A transfer that takes longer is cut. Where output
// is followed there is no such limit: the next word may take a day.
func (c *Conn) LimitFrames(each time.Duration) { c.frameLimit = each }

// encode appends the message's line to b.
func encode(b []byte, m Message) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return b, err
	}
	j := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	b = append(b, `{"m":"`...)
	b = append(b, m.kind()...)
	b = append(b, '"')
	if len(j) > 2 {
		b = append(b, ',')
	}
	b = append(b, j[1:]...)
	if len(b) >= MaxLine {
		return b, fmt.Errorf("a message %q of %d bytes is over the limit of %d", m.kind(), len(b), MaxLine)
	}
	return append(b, '\n'), nil
}

// Send writes messages and flushes. After an error the stream is of no use.
func (c *Conn) Send(ms ...Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range ms {
		if err := c.write(m); err != nil {
			return err
		}
	}
	return c.flush()
}

// write needs c.mu.
func (c *Conn) write(m Message) error {
	b, err := encode(nil, m)
	if err != nil {
		return err
	}
	c.arm()
	if _, err := c.out.Write(b); err != nil {
		return err
	}
	if d, ok := m.(*Data); ok {
		_, err = c.out.Write(d.Payload)
	}
	return err
}

func (c *Conn) flush() error {
	c.arm()
	return c.out.Flush()
}

// NoWriteLimit takes away the limit of [WriteWithin]: of a stream whose reader may be at
// work for long with what has come, and which is closed when the peer is gone.
func (c *Conn) NoWriteLimit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patient = 0
	if s, ok := c.rwc.(deadliner); ok {
		s.SetWriteDeadline(time.Time{})
	}
}

func (c *Conn) arm() {
	if s, ok := c.rwc.(deadliner); ok && c.patient > 0 {
		s.SetWriteDeadline(time.Now().Add(c.patient))
	}
}

// Recv reads the next message. It returns io.EOF when the peer closed the
// stream between messages, and an error that is [ErrUnknown], after which the
// stream goes on, for a message of a kind it does not know.
func (c *Conn) Recv() (Message, error) {
	m, err := c.recvLine()
	if d, ok := m.(*Data); ok {
		d.Payload, err = c.readPayload(d.N)
	}
	return m, err
}

// recvLine is Recv without the bytes that follow the message's line.
func (c *Conn) recvLine() (Message, error) {
	b, err := c.in.Next()
	if err != nil {
		return nil, err
	}
	if err := line.Check(b); err != nil {
		return nil, err
	}
	var head struct {
		M string `json:"m"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%w: it has no kind %q", line.ErrLine, "m")
	}
	m := blank(head.M)
	if m == nil {
		return nil, fmt.Errorf("%w %.40q", ErrUnknown, head.M)
	}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%w: %s message: %v", line.ErrLine, head.M, err)
	}
	return m, nil
}

// checkFrame reports a frame that is longer than it may be.
func (c *Conn) checkFrame(n int) error {
	if n < 0 || n > c.frame {
		return fmt.Errorf("%w: a frame of %d bytes", line.ErrLine, n)
	}
	return nil
}

func (c *Conn) readPayload(n int) ([]byte, error) {
	if err := c.checkFrame(n); err != nil {
		return nil, err
	}
	if cap(c.payload) < n {
		c.payload = make([]byte, max(n, 4096))
	}
	if _, err := io.ReadFull(c.in.Buffered(), c.payload[:n]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCut, err)
	}
	return c.payload[:n], nil
}

// SendTransfer sends one transfer: its Send, all that write writes, in frames,
// and its End. If write fails the transfer is ended with the reason, and the
// error is returned; the stream goes on. The writer that write is given is a
// [*Writer]: transfers that go on as something happens flush it. A Cut that write sets is sent
// with the End.
func (c *Conn) SendTransfer(s *Send, write func(io.Writer) error) error {
	if err := c.Send(s); err != nil {
		return err
	}
	f := &framer{c: c, x: s.X, sum: s.digest(), last: time.Now()}
	w := &Writer{bufio.NewWriterSize(f, MaxFrame), f}
	err := cmp.Or(write(w), w.Flush()) // what was written before an error is of use, too
	if f.err != nil {
		return f.err
	}
	end := &End{X: s.X, Bytes: f.n, Sum: hex.EncodeToString(f.sum.Sum(nil)), Cut: s.Cut}
	if err != nil {
		end.Error = err.Error()
	}
	return errors.Join(err, c.Send(end))
}

// digest is what the bytes of a transfer are summed up by: SHA-256, but for
// contents that have their own, and are compared with them, CRC-32C.
func (s *Send) digest() hash.Hash {
	if s.Of == OfTree || s.Of == OfInputs {
		return crc32.New(castagnoli)
	}
	return sha256.New()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Writer collects what is written into frames.
type Writer struct {
	*bufio.Writer
	f *framer
}

// Write adds to the frame, which is sent when it is full, or when the receiver
// would soon take the sender for one that has stopped.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err == nil && time.Since(w.f.last) > FrameWithin/4 {
		err = w.Flush()
	}
	return n, err
}

// Flush sends everything written so far.
func (w *Writer) Flush() error {
	if err := w.Writer.Flush(); err != nil {
		return err
	}
	w.f.c.mu.Lock()
	defer w.f.c.mu.Unlock()
	return w.f.c.flush()
}

// A framer sends what is written to it as frames.
type framer struct {
	c   *Conn
	x   uint64
	n   int64
	sum hash.Hash
	err error // of the stream

	last time.Time // when a frame was made
}

func (f *framer) Write(p []byte) (n int, err error) {
	f.last = time.Now()
	for n < len(p) {
		part := p[n:min(len(p), n+MaxFrame)]
		f.sum.Write(part)
		f.c.mu.Lock()
		err := f.c.write(&Data{X: f.x, N: len(part), Payload: part})
		f.c.mu.Unlock()
		if err != nil {
			f.err = err
			return n, err
		}
		n += len(part)
		f.n += int64(len(part))
	}
	return n, nil
}

// RecvTransfer gives the bytes of the transfer whose Send has just been
// received. Reading ends with io.EOF only when the End has come and its count
// and sum are right; otherwise with an error that is [ErrCut] or [ErrGaveUp].
// Nothing else may be received until then. The reader must be read to its end
// (see [Drain]), or the Conn closed. A Cut that comes with the End is in s then.
func (c *Conn) RecvTransfer(s *Send) io.Reader {
	return &transfer{c: c, x: s.X, send: s, sum: s.digest()}
}

// A transfer is the receiving end of one transfer. Its frames are read into what
// the caller has, and lie nowhere else.
type transfer struct {
	c    *Conn
	x    uint64
	send *Send // with which it began
	n    int64
	sum  hash.Hash
	left int           // bytes of the frame at hand that are to be read
	wait time.Duration // how long may still be waited for them
	err  error
}

func (t *transfer) Read(p []byte) (n int, err error) {
	for t.left == 0 && t.err == nil {
		t.wait = t.c.frameLimit
		t.err = t.within(t.next)
	}
	if t.err != nil || len(p) == 0 {
		return 0, t.err
	}
	p = p[:min(len(p), t.left)]
	err = t.within(func() (err error) {
		n, err = io.ReadFull(t.c.in.Buffered(), p)
		return err
	})
	t.sum.Write(p[:n])
	t.n, t.left = t.n+int64(n), t.left-n
	if err != nil {
		t.err = fmt.Errorf("%w: %w", ErrCut, err)
	}
	return n, t.err
}

// within reads of the stream, for as long as the message at hand may still take.
// The time that the caller takes with it does not count.
func (t *transfer) within(read func() error) error {
	if t.c.frameLimit == 0 {
		return read()
	}
	began := time.Now()
	t.c.ReadWithin(max(t.wait, 1))
	err := read()
	t.c.ReadWithin(0)
	t.wait -= time.Since(began)
	return err
}

// next reads the line of a message of the transfer, and returns io.EOF for its
// end.
func (t *transfer) next() error {
	m, err := t.c.recvLine()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCut, err)
	}
	switch m := m.(type) {
	case *Data:
		if m.X != t.x {
			return fmt.Errorf("%w: a frame of transfer %d within transfer %d", ErrCut, m.X, t.x)
		}
		if err := t.c.checkFrame(m.N); err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		t.left = m.N
		return nil
	case *End:
		switch {
		case m.X != t.x || m.Error == "" && (m.Bytes != t.n || m.Sum != hex.EncodeToString(t.sum.Sum(nil))):
			return fmt.Errorf("%w: its count or sum is wrong", ErrCut)
		case m.Error != "":
			return fmt.Errorf("%w: %q", ErrGaveUp, m.Error)
		}
		t.send.Cut = cmp.Or(m.Cut, t.send.Cut)
		return io.EOF
	}
	return fmt.Errorf("%w: a message %q within a transfer", ErrCut, m.kind())
}

// Drain reads the transfer to its end and returns nil if it was whole.
func Drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// Expect receives one message of type T; an Error from the peer becomes an
// error of type *Error.
func Expect[T Message](c *Conn) (T, error) {
	var none T
	m, err := c.Recv()
	if err != nil {
		return none, err
	}
	switch m := m.(type) {
	case T:
		return m, nil
	case *Error:
		return none, m
	}
	return none, fmt.Errorf("%w: %q came where %q belongs", line.ErrLine, m.kind(), none.kind())
}

// Error is the text, so that an Error that was received can be returned as one.
func (e *Error) Error() string { return e.Text }

// ExitStatus is the status with which a tool ends that got this Error.
func (e *Error) ExitStatus() int { return e.Status }
