// Package line reads and checks lines of JSON that come from elsewhere: from a
// peer, from a file that somebody may have written, from an archive.
//
// Package encoding/json takes what no writer of ours makes and what two readers
// could understand in two ways: keys that stand twice or in another case, and
// text that is not valid UTF-8. [Check] refuses those; [Reader] gives whole
// lines of a bounded length. Every format of the project that is lines of JSON
// (dwire(5), dspool(5)) is read through here.
package line

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Limits of one line's structure, far above what any writer of ours makes.
const (
	MaxDepth = 16  // objects and lists inside one another
	MaxKeys  = 128 // members of one object
)

// ErrLine is what every error of a malformed line is.
var ErrLine = errors.New("malformed line")

// ErrTooLong is returned for a line that is longer than the reader allows.
var ErrTooLong = fmt.Errorf("%w: too long", ErrLine)

// ErrPartial is returned when the input ends within a line: what was there of
// it is not a line (its writer died or is still writing).
var ErrPartial = fmt.Errorf("%w: it has no end", ErrLine)

// Unmarshal checks b with [Check] and decodes it into v. Members that v does
// not have are ignored.
func Unmarshal(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %s", ErrLine, reason(err))
	}
	return nil
}

func reason(err error) string {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return fmt.Sprintf("%q is a %s, where a %s belongs", te.Field, te.Value, te.Type.Kind())
	}
	return err.Error()
}

// Check reports why b is not one JSON object in valid UTF-8 whose keys, at
// every depth, are plain, lower-case and unique, or why one of its strings
// holds half of a surrogate pair. It allocates nothing for good lines of few
// members.
func Check(b []byte) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("%w: it is not valid UTF-8", ErrLine)
	}
	if !json.Valid(b) {
		return fmt.Errorf("%w: it is not JSON", ErrLine)
	}
	c := checker{b: b}
	c.space()
	if c.i >= len(b) || b[c.i] != '{' {
		return fmt.Errorf("%w: it is not a JSON object", ErrLine)
	}
	return c.value(0)
}

// A checker walks text that is known to be valid JSON.
type checker struct {
	b []byte
	i int
}

func (c *checker) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			c.i++
		default:
			return
		}
	}
}

func (c *checker) value(depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: it is more than %d deep, which is the limit", ErrLine, MaxDepth)
	}
	switch c.b[c.i] {
	case '{':
		return c.object(depth)
	case '[':
		c.i++
		for c.space(); c.b[c.i] != ']'; c.space() {
			if err := c.value(depth + 1); err != nil {
				return err
			}
		}
		c.i++
		return nil
	case '"':
		_, err := c.text()
		return err
	}
	for c.i < len(c.b) && c.b[c.i] != ',' && c.b[c.i] != '}' && c.b[c.i] != ']' &&
		c.b[c.i] != ' ' && c.b[c.i] != '\t' && c.b[c.i] != '\r' && c.b[c.i] != '\n' {
		c.i++
	}
	return nil
}

func (c *checker) object(depth int) error {
	c.i++
	var room [16][]byte
	keys := room[:0]
	for c.space(); c.b[c.i] != '}'; c.space() {
		key, err := c.text()
		if err != nil {
			return err
		}
		if err := checkKey(key, keys); err != nil {
			return err
		}
		keys = append(keys, key)
		c.space()
		if err := c.value(depth + 1); err != nil {
			return err
		}
	}
	c.i++
	return nil
}

func checkKey(key []byte, seen [][]byte) error {
	for _, x := range key {
		if x == '\\' || 'A' <= x && x <= 'Z' || x >= utf8.RuneSelf {
			return fmt.Errorf("%w: the key %.40q is not in plain lower case", ErrLine, key)
		}
	}
	for _, k := range seen {
		if string(k) == string(key) {
			return fmt.Errorf("%w: the key %.40q stands twice", ErrLine, key)
		}
	}
	if len(seen) == MaxKeys {
		return fmt.Errorf("%w: an object has more than %d members, which is the limit", ErrLine, MaxKeys)
	}
	return nil
}

// text passes over a string and returns what stands between its quotes.
func (c *checker) text() ([]byte, error) {
	c.i++
	start := c.i
	for c.b[c.i] != '"' {
		if c.b[c.i] != '\\' {
			c.i++
			continue
		}
		if c.b[c.i+1] != 'u' {
			c.i += 2
			continue
		}
		u := hex4(c.b[c.i+2:])
		c.i += 6
		switch {
		case u >= 0xDC00 && u <= 0xDFFF:
			return nil, fmt.Errorf("%w: a string holds half of a surrogate pair", ErrLine)
		case u >= 0xD800 && u <= 0xDBFF:
			if c.b[c.i] != '\\' || c.b[c.i+1] != 'u' || hex4(c.b[c.i+2:])>>10 != 0xDC00>>10 {
				return nil, fmt.Errorf("%w: a string holds half of a surrogate pair", ErrLine)
			}
			c.i += 6
		}
	}
	c.i++
	return c.b[start : c.i-1], nil
}

func hex4(b []byte) (u uint32) {
	for _, x := range b[:4] {
		switch {
		case x >= 'a':
			x -= 'a' - 10
		case x >= 'A':
			x -= 'A' - 10
		default:
			x -= '0'
		}
		u = u<<4 | uint32(x)
	}
	return u
}

// A Reader gives the lines of a stream. It keeps no more than one line in
// memory.
type Reader struct {
	r   *bufio.Reader
	max int
	buf []byte
}

// NewReader reads lines of at most max bytes from r. The buffer is taken over
// if r is a *bufio.Reader.
func NewReader(r io.Reader, max int) *Reader {
	br, ok := r.(*bufio.Reader)
	if !ok {
		br = bufio.NewReaderSize(r, 64<<10)
	}
	return &Reader{r: br, max: max}
}

// Limit sets how many bytes a line may have from now on.
func (r *Reader) Limit(max int) { r.max = max }

// Next returns the next line without its newline; it is valid until the next
// call. It returns io.EOF after the last whole line, [ErrPartial] when
// something without a newline follows it, and [ErrTooLong], after which the
// stream is of no use.
func (r *Reader) Next() ([]byte, error) {
	b, err := r.r.ReadSlice('\n')
	if err == nil && len(b) <= r.max {
		return b[:len(b)-1], nil
	}
	r.buf = append(r.buf[:0], b...)
	for err == bufio.ErrBufferFull && len(r.buf) <= r.max {
		b, err = r.r.ReadSlice('\n')
		r.buf = append(r.buf, b...)
	}
	switch {
	case len(r.buf) > r.max:
		return nil, fmt.Errorf("%w: it has more than %d bytes, which is the limit", ErrTooLong, r.max)
	case err == io.EOF && len(r.buf) > 0:
		return nil, ErrPartial
	case err != nil:
		return nil, err
	}
	return r.buf[:len(r.buf)-1], nil
}

// Buffered is the reader below, for what follows the lines read so far.
func (r *Reader) Buffered() *bufio.Reader { return r.r }
