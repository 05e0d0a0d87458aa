package pack

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strconv"
	"time"
)

// Encode writes m in the form that the package documentation defines. A
// manifest that breaks its rules is refused, as ErrFormat, before anything is
// written.
func (m Manifest) Encode(w io.Writer) error {
	if err := m.Check(unlimited); err != nil {
		return err
	}
	return m.encode(w)
}

func (m Manifest) encode(w io.Writer) error {
	sum := sha256.New()
	b := make([]byte, 0, 64<<10)
	flush := func(keep int) error {
		if len(b) <= keep {
			return nil
		}
		sum.Write(b)
		_, err := w.Write(b)
		b = b[:0]
		return err
	}
	for i := range m {
		b = appendEntry(b, &m[i])
		if err := flush(48 << 10); err != nil {
			return err
		}
	}
	if err := flush(0); err != nil {
		return err
	}
	_, err := w.Write(appendEnd(b, len(m), sum))
	return err
}

func appendEntry(b []byte, e *Entry) []byte {
	b = append(b, `{"path":`...)
	b = appendString(b, e.Path)
	b = append(b, `,"type":"`...)
	b = append(b, e.Type, '"')
	if e.Type == Link {
		b = append(b, `,"link":`...)
		b = appendString(b, e.Link)
		return append(b, '}', '\n')
	}
	if e.Type == File {
		b = append(b, `,"size":`...)
		b = strconv.AppendInt(b, e.Size, 10)
	}
	b = append(b, `,"mode":"0`...)
	for shift := 6; shift >= 0; shift -= 3 {
		b = append(b, '0'+byte(e.Mode>>shift)&7)
	}
	b = append(b, `","time":"`...)
	b = e.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	if e.Type == File {
		b = append(b, `","sha256":"`...)
		b = append(b, e.Sum...)
	}
	return append(b, '"', '}', '\n')
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

func appendEnd(b []byte, entries int, sum hash.Hash) []byte {
	b = append(b, `{"end":`...)
	b = strconv.AppendInt(b, int64(entries), 10)
	b = append(b, `,"sha256":"`...)
	b = hex.AppendEncode(b, sum.Sum(nil))
	return append(b, '"', '}', '\n')
}

// A result of a job is small if it has at most so many entries and so many bytes.
const (
	SmallEntries = 16
	SmallBytes   = 64 << 10
)

// Small says that m is the manifest of a small tree.
func (m Manifest) Small() bool { return len(m) <= SmallEntries && m.Bytes() <= SmallBytes }

// List is the lines of the manifest, without the last one, as one JSON list. The manifest
// must keep the rules.
func (m Manifest) List() []byte {
	b := []byte{'['}
	for i := range m {
		b = appendEntry(b, &m[i])
		b[len(b)-1] = ',' // the newline
	}
	return append(b[:max(1, len(b)-min(1, len(m)))], ']')
}

// ParseList is the manifest of which [Manifest.List] made a list. It believes nothing:
// the error is ErrFormat or ErrLimit.
func ParseList(list []byte, lim Limits) (Manifest, error) {
	inner, ok := bytes.CutPrefix(list, []byte{'['})
	inner, ok2 := bytes.CutSuffix(inner, []byte{']'})
	if !ok || !ok2 {
		return nil, fmt.Errorf("%w: no list", ErrFormat)
	}
	const next = `,{"path":` // in a path the quotes would be escaped
	lines := bytes.ReplaceAll(inner, []byte(next), []byte("\n"+next[1:]))
	if len(lines) > 0 {
		lines = append(lines, '\n')
	}
	sum := sha256.New()
	sum.Write(lines)
	return DecodeManifest(bytes.NewReader(appendEnd(lines, bytes.Count(lines, []byte{'\n'}), sum)), lim)
}

// DecodeManifest reads a manifest, which is all that r has. It believes
// nothing: what breaks a rule of the form is ErrFormat with the line's number,
// what is beyond the limits ErrLimit, and a manifest without its last line is
// refused like any other. Memory is bounded by the limits. Encode writes again
// the bytes that DecodeManifest has accepted.
func DecodeManifest(r io.Reader, lim Limits) (Manifest, error) {
	lim = lim.filled()
	d := decoder{
		r:     bufio.NewReaderSize(r, longestLine(lim)),
		sum:   sha256.New(),
		check: checker{lim: lim},
	}
	m, err := d.all()
	if err != nil {
		return nil, fmt.Errorf("manifest, line %d: %w", d.line, err)
	}
	if err := checkLinks(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// FindEntry reads a manifest up to the entry with the path, and no more of it in memory than a
// line. If there is none, the error is fs.ErrNotExist. It checks neither the other entries nor
// the sum.
func FindEntry(r io.Reader, path string) (Entry, error) {
	in := bufio.NewReaderSize(r, longestLine(DefaultLimits()))
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return Entry{}, fmt.Errorf("%w: manifest: %w", ErrFormat, err)
		}
		if bytes.HasPrefix(line, []byte(`{"end":`)) {
			return Entry{}, fs.ErrNotExist
		}
		switch e, ok := parseEntry(line); {
		case !ok:
			return Entry{}, fmt.Errorf("%w: manifest: not the members of an entry in their order", ErrFormat)
		case e.Path == path:
			return e, nil
		}
	}
}

// longestLine is the size of the longest line within the limits: a path and a
// target of which every byte is escaped, and the rest.
func longestLine(lim Limits) int { return 4*lim.PathBytes + 512 }

type decoder struct {
	r     *bufio.Reader
	sum   hash.Hash
	check checker
	line  int
	again []byte // the line, encoded again
}

func (d *decoder) all() (Manifest, error) {
	var m Manifest
	for {
		d.line++
		line, err := d.r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrLimit, d.r.Size())
		case err == io.EOF:
			return nil, fmt.Errorf("%w: it ends before its last line: %w", ErrFormat, io.ErrUnexpectedEOF)
		case err != nil:
			return nil, err
		}
		if bytes.HasPrefix(line, []byte(`{"end":`)) {
			return m, d.end(line, len(m))
		}
		e, err := d.entry(line)
		if err != nil {
			return nil, err
		}
		d.sum.Write(line)
		m = append(m, e)
	}
}

func (d *decoder) end(line []byte, entries int) error {
	if !bytes.Equal(line, appendEnd(nil, entries, d.sum)) {
		return fmt.Errorf("%w: the last line does not say %d entries and their SHA-256", ErrFormat, entries)
	}
	switch _, err := d.r.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("%w: something follows the last line", ErrFormat)
	default:
		return err
	}
}

// entry reads one line. Whatever the parser lets through, the line has to be
// what Encode makes of the entry.
func (d *decoder) entry(line []byte) (Entry, error) {
	e, ok := parseEntry(line)
	if !ok {
		return e, fmt.Errorf("%w: not the members of an entry in their order", ErrFormat)
	}
	if err := d.check.next(&e); err != nil {
		return e, err
	}
	if d.again = appendEntry(d.again[:0], &e); !bytes.Equal(d.again, line) {
		return e, fmt.Errorf("%w: %q is not written in the one form that it has", ErrFormat, e.Path)
	}
	return e, nil
}

func parseEntry(line []byte) (Entry, bool) {
	var e Entry
	p := parser{rest: line, ok: true}
	p.skip(`{"path":"`)
	e.Path = p.text()
	p.skip(`,"type":"`)
	e.Type = p.byte()
	p.skip(`"`)
	switch e.Type {
	case Link:
		p.skip(`,"link":"`)
		e.Link = p.text()
		p.skip("}\n")
	case Dir:
		e.Mode, e.Time = p.modeAndTime()
		p.skip("}\n")
	case File:
		p.skip(`,"size":`)
		e.Size = p.number()
		e.Mode, e.Time = p.modeAndTime()
		p.skip(`,"sha256":"`)
		e.Sum = p.plain()
		p.skip("}\n")
	default:
		p.ok = false
	}
	return e, p.ok && len(p.rest) == 0
}

// parser takes a line apart from the left. Once ok is false, it stays so.
type parser struct {
	rest []byte
	ok   bool
}

func (p *parser) skip(s string) {
	if !p.ok || len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		p.ok = false
		return
	}
	p.rest = p.rest[len(s):]
}

func (p *parser) byte() byte {
	if !p.ok || len(p.rest) == 0 {
		p.ok = false
		return 0
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	return c
}

// plain is the string up to the next quotation mark.
func (p *parser) plain() string {
	i := bytes.IndexByte(p.rest, '"')
	if !p.ok || i < 0 {
		p.ok = false
		return ""
	}
	s := string(p.rest[:i])
	p.rest = p.rest[i+1:]
	return s
}

// text is a string with backslashes, up to its end.
func (p *parser) text() string {
	i := bytes.IndexAny(p.rest, `"\`)
	if p.ok && i >= 0 && p.rest[i] == '"' {
		return p.plain()
	}
	var b []byte
	for p.ok {
		c := p.byte()
		if c == '"' {
			return string(b)
		}
		if c == '\\' {
			if c = p.byte(); c != '"' && c != '\\' {
				p.ok = false
			}
		}
		b = append(b, c)
	}
	return ""
}

func (p *parser) number() int64 {
	i := 0
	for i < len(p.rest) && p.rest[i] >= '0' && p.rest[i] <= '9' {
		i++
	}
	n, err := strconv.ParseInt(string(p.rest[:i]), 10, 64)
	if !p.ok || err != nil {
		p.ok = false
		return 0
	}
	p.rest = p.rest[i:]
	return n
}

func (p *parser) modeAndTime() (fs.FileMode, time.Time) {
	p.skip(`,"mode":"`)
	mode, err := strconv.ParseUint(p.plain(), 8, 16)
	if err != nil {
		p.ok = false
	}
	p.skip(`,"time":"`)
	at, err := time.Parse(time.RFC3339Nano, p.plain())
	if err != nil {
		p.ok = false
	}
	return fs.FileMode(mode), at.UTC()
}
