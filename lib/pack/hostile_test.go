package pack

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// prey is the manifest that hostile streams are sent for: a directory with a
// file of five bytes, and a link.
func prey() Manifest {
	return Manifest{
		{Path: "d", Type: Dir, Mode: 0o755, Time: minTime},
		{Path: "d/f", Type: File, Size: 5, Mode: 0o644, Time: minTime, Sum: sumHex([]byte("hello"))},
		{Path: "l", Type: Link, Link: "d/f"},
	}
}

// hello opens the one file of prey.
func hello(int, Entry) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }

// honest is the tar that has to come for prey.
func honest(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, SendStored(&b, prey(), Want{}, hello))
	return b.Bytes()
}

// frameOf is one zstd frame that expands to text.
func frameOf(t testing.TB, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, squeezed(&b, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}))
	return b.Bytes()
}

// cage is a root in a directory with other things around it.
type cage struct {
	outer string
	root  string
	was   string
}

func newCage(t *testing.T) *cage {
	t.Helper()
	c := &cage{outer: t.TempDir()}
	c.root = filepath.Join(c.outer, "root")
	must(t, os.WriteFile(filepath.Join(c.outer, "victim"), []byte("precious"), 0o600))
	must(t, os.Mkdir(filepath.Join(c.outer, "etc"), 0o755))
	at := time.Unix(1e9, 0)
	must(t, os.Chtimes(filepath.Join(c.outer, "etc"), at, at))
	must(t, os.Mkdir(c.root, 0o755))
	c.was = c.around(t)
	return c
}

// around is all that is outside the root.
func (c *cage) around(t *testing.T) string {
	var b strings.Builder
	for line := range strings.Lines(look(t, c.outer)) {
		if !strings.HasPrefix(line, "/root") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// receive checks that the stream is refused, with an error that is want, that
// nothing outside the root has changed and that nothing inside is what the
// manifest does not have.
func (c *cage) receive(t *testing.T, stream io.Reader, m Manifest, want error) {
	t.Helper()
	root := openRoot(t, c.root)
	tree := NewTree(root, Perm{})
	err := Receive(stream, m, Want{}, tree)
	must(t, tree.Close())
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if now := c.around(t); now != c.was {
		t.Errorf("around the root there was\n%s\nand is now\n%s", c.was, now)
	}
	for line := range strings.Lines(look(t, c.root)) {
		path, _, _ := strings.Cut(strings.TrimPrefix(line, "/"), " ")
		if _, ok := m.Find(path); !ok {
			t.Errorf("in the root: %s", line)
		}
	}
}

// What can be written as a tar and is not the one tar of the manifest is refused,
// and does nothing.
func TestD92HostileTar(t *testing.T) {
	reg := func(name string, flag byte, change func(*tar.Header)) *tar.Header {
		h := &tar.Header{Name: name, Typeflag: flag, Mode: 0o644, ModTime: time.Unix(0, 0)}
		if flag == tar.TypeReg {
			h.Size = 5
		}
		if change != nil {
			change(h)
		}
		return h
	}
	dir := reg("d/", tar.TypeDir, func(h *tar.Header) { h.Mode = 0o755 })
	for name, headers := range map[string][]*tar.Header{
		"up":                 {reg("../victim", tar.TypeReg, nil)},
		"up and down":        {reg("d/../../victim", tar.TypeReg, nil)},
		"absolute":           {reg("/etc/victim", tar.TypeReg, nil)},
		"link then write":    {reg("d", tar.TypeSymlink, func(h *tar.Header) { h.Linkname = ".." }), reg("d/victim", tar.TypeReg, nil)},
		"link to dot":        {reg("d", tar.TypeSymlink, func(h *tar.Header) { h.Linkname = "." }), reg("d/f", tar.TypeReg, nil)},
		"link out":           {dir, reg("d/f", tar.TypeSymlink, func(h *tar.Header) { h.Linkname = "/etc/passwd" })},
		"hard link out":      {dir, reg("d/f", tar.TypeLink, func(h *tar.Header) { h.Linkname = "../victim" })},
		"character device":   {dir, reg("d/f", tar.TypeChar, func(h *tar.Header) { h.Devmajor, h.Devminor = 1, 3 })},
		"block device":       {dir, reg("d/f", tar.TypeBlock, func(h *tar.Header) { h.Devmajor = 8 })},
		"FIFO":               {dir, reg("d/f", tar.TypeFifo, nil)},
		"set-uid":            {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.Mode = 0o4755 })},
		"set-gid directory":  {reg("d/", tar.TypeDir, func(h *tar.Header) { h.Mode = 0o2755 })},
		"twice":              {dir, reg("d/f", tar.TypeReg, nil), reg("d/f", tar.TypeReg, nil)},
		"directory twice":    {dir, dir},
		"file then below it": {reg("d", tar.TypeReg, nil), reg("d/f", tar.TypeReg, nil)},
		"larger":             {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.Size = 6 })},
		"smaller":            {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.Size = 4 })},
		"other owner":        {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.Uid, h.Uname = 7, "root" })},
		"other mode":         {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.Mode = 0o777 })},
		"other time":         {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.ModTime = time.Unix(1, 0) })},
		"other order":        {reg("d/f", tar.TypeReg, nil), dir},
		"pax path":           {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.Name, h.Format = "../"+strings.Repeat("ü", 200), tar.FormatPAX })},
		"pax bomb":           {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.PAXRecords = map[string]string{"comment": strings.Repeat("x", 1<<19)} })},
		"pax attributes":     {dir, reg("d/f", tar.TypeReg, func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "x"} })},
		"global pax":         {{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"path": "../victim"}}, dir},
		"GNU long name":      {dir, reg("../"+strings.Repeat("x", 200), tar.TypeReg, func(h *tar.Header) { h.Format = tar.FormatGNU })},
		"nothing":            {},
		"too few":            {dir},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range headers {
				must(t, w.WriteHeader(h))
				if h.Typeflag == tar.TypeReg {
					_, err := w.Write([]byte("hello!")[:h.Size])
					must(t, err)
				}
			}
			must(t, w.Close())
			newCage(t).receive(t, bytes.NewReader(frameOf(t, b.Bytes())), prey(), ErrFormat)
		})
	}
}

// The one right tar, with a few bytes changed.
func TestD92DoctoredTar(t *testing.T) {
	right := honest(t)
	for name, doctor := range map[string]func(b []byte) []byte{
		"negative size":       func(b []byte) []byte { return slices.Replace(b, 512+124, 512+136, bytes.Repeat([]byte{0xff}, 12)...) },
		"binary size":         func(b []byte) []byte { return slices.Replace(b, 512+124, 512+126, 0x80, 0x7f) },
		"NUL in a name":       func(b []byte) []byte { return slices.Replace(b, 512+1, 512+2, 0) },
		"checksum":            func(b []byte) []byte { return slices.Replace(b, 148, 149, '7') },
		"type of old":         func(b []byte) []byte { return slices.Replace(b, 512+156, 512+157, 0) },
		"type of sparse":      func(b []byte) []byte { return slices.Replace(b, 512+156, 512+157, 'S') },
		"padding":             func(b []byte) []byte { return slices.Replace(b, 1024+5, 1024+6, 'x') },
		"one block at end":    func(b []byte) []byte { return b[:len(b)-512] },
		"end not zero":        func(b []byte) []byte { return slices.Replace(b, len(b)-1, len(b), 'x') },
		"a third block":       func(b []byte) []byte { return append(b, make([]byte, 512)...) },
		"padded to a record":  func(b []byte) []byte { return append(b, make([]byte, 10240-len(b))...) },
		"garbage behind":      func(b []byte) []byte { return append(b, 'x') },
		"a second tar behind": func(b []byte) []byte { return append(b, right...) },
		"the first again":     func(b []byte) []byte { return append(slices.Clone(right[:512]), b...) },
		"a block of zeros":    func(b []byte) []byte { return append(make([]byte, 512), b...) },
	} {
		t.Run(name, func(t *testing.T) {
			want := ErrFormat
			if name == "one block at end" {
				want = io.ErrUnexpectedEOF
			}
			newCage(t).receive(t, bytes.NewReader(frameOf(t, doctor(slices.Clone(right)))), prey(), want)
		})
	}
}

func TestD92HostileManifest(t *testing.T) {
	bad := prey()
	bad[1].Path = "d/../../victim"
	c := newCage(t)
	tree := NewTree(openRoot(t, c.root), Perm{})
	for _, e := range []Entry{
		bad[1],
		{Path: "../victim", Type: File, Mode: 0o644, Time: minTime, Sum: sumHex(nil)},
		{Path: "/etc", Type: Dir, Mode: 0o755, Time: minTime},
		{Path: "..", Type: Dir, Mode: 0o755, Time: minTime},
		{Path: "", Type: Dir, Mode: 0o755, Time: minTime},
		{Path: "l", Type: Link, Link: "../victim"},
		{Path: "l", Type: Link, Link: "/etc"},
		{Path: "p", Type: 'p', Mode: 0o644, Time: minTime},
		{Path: "s", Type: File, Mode: 0o644 | os.ModeSetuid, Time: minTime, Sum: sumHex(nil)},
	} {
		if err := tree.Put(0, e, 0, strings.NewReader("")); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	must(t, tree.Close())
	if now := c.around(t); now != c.was || look(t, c.root) != "" {
		t.Errorf("made:\n%s%s", now, look(t, c.root))
	}
}

// header is a zstd frame header by hand.
func header(descriptor byte, rest ...byte) []byte {
	return append([]byte(magic), append([]byte{descriptor}, rest...)...)
}

// maxBlock is how many bytes of content a zstd block has at most.
const maxBlock = 128 << 10

// rawBlock is a zstd block of any kind by hand.
func rawBlock(last, kind, size int, content ...byte) []byte {
	bits := last | kind<<1 | size<<3
	return append([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16)}, content...)
}

func skippable(n int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0x184D2A53)
	return append(binary.LittleEndian.AppendUint32(b, uint32(n)), make([]byte, n)...)
}

func TestD93HostileFrames(t *testing.T) {
	text := honest(t)
	frame := frameOf(t, text)
	wrap := func(head []byte) []byte {
		return slices.Concat(head, rawBlock(1, 0, len(text), text...))
	}
	window := header(0, 3<<3) // 8 KiB
	for name, tt := range map[string]struct {
		stream []byte
		want   error // nil: it is a stream
	}{
		"by hand":             {wrap(window), nil},
		"window of 8 MiB":     {wrap(header(0, 13<<3)), nil},
		"window of 9 MiB":     {wrap(header(0, 13<<3|1)), ErrFormat},
		"window of 2 GiB":     {wrap(header(0, 21<<3)), ErrFormat},
		"window of 3.75 TiB":  {wrap(header(0, 31<<3|7)), ErrFormat},
		"one segment of 2^62": {wrap(header(0xe0, 0, 0, 0, 0, 0, 0, 0, 0x40)), ErrFormat},
		"size that is wrong":  {wrap(header(0x80, 3<<3, 1, 0, 0, 0)), ErrFormat},
		"dictionary":          {wrap(header(0x01, 3<<3, 7)), ErrFormat},
		"dictionary id 0":     {wrap(header(0x01, 3<<3, 0)), nil},
		"size":                {wrap(header(0x80, 3<<3, byte(len(text)), byte(len(text)>>8), 0, 0)), nil},
		"raw of a window":     {slices.Concat(header(0, 0), rawBlock(0, 0, 1<<10, text[:1<<10]...), rawBlock(0, 0, 1<<10, text[1<<10:2<<10]...), rawBlock(1, 0, len(text)-2<<10, text[2<<10:]...)), nil},
		"raw of more":         {wrap(header(0, 0)), ErrFormat},
		"cut within raw":      {wrap(window)[:600], io.ErrUnexpectedEOF},
		"no last block":       {slices.Concat(window, rawBlock(0, 0, len(text), text...)), io.ErrUnexpectedEOF},
		"last one empty":      {slices.Concat(window, rawBlock(0, 0, len(text), text...), rawBlock(1, 0, 0)), nil},
		"reserved bit":        {wrap(header(0x08, 3<<3)), ErrFormat},
		"reserved block":      {slices.Concat(window, rawBlock(1, 3, 5, text[:5]...)), ErrFormat},
		"block of 2 MiB":      {slices.Concat(window, rawBlock(1, 0, 1<<21-1, text...)), ErrFormat},
		"empty block":         {slices.Concat(window, rawBlock(0, 0, 0), rawBlock(1, 0, len(text), text...)), nil},
		"garbage block":       {slices.Concat(window, rawBlock(1, 2, 5, 1, 2, 3, 4, 5)), ErrFormat},
		"wrong checksum":      {append(wrap(header(0x04, 3<<3)), 1, 2, 3, 4), ErrFormat},
		"two frames":          {slices.Concat(frame, frame), ErrFormat},
		"in two frames":       {slices.Concat(frameOf(t, text[:600]), frameOf(t, text[600:])), nil},
		"an empty one behind": {slices.Concat(frame, window, rawBlock(1, 0, 0)), nil},
		"skippable behind":    {slices.Concat(frame, skippable(10)), nil},
		"skippable before":    {slices.Concat(skippable(10), frame), io.ErrUnexpectedEOF},
		"garbage behind":      {append(slices.Clone(frame), 'x'), io.ErrUnexpectedEOF},
		"newline behind":      {append(slices.Clone(frame), '\n'), io.ErrUnexpectedEOF},
		"gzip":                {[]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), io.ErrUnexpectedEOF},
		"bare tar":            {text, nil},
		"nothing":             {nil, io.ErrUnexpectedEOF},
		"empty frame":         {slices.Concat(window, rawBlock(1, 0, 0)), io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			newCage(t).receive(t, bytes.NewReader(tt.stream), prey(), tt.want)
		})
	}
}

// endless gives its head and then its tail again and again.
type endless struct{ head, tail, rest []byte }

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		e.rest, e.head = e.head, nil
		if len(e.rest) == 0 {
			e.rest = e.tail
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// allocated is how many bytes do allocates in all.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A stream without end is left after what was declared, whatever it goes on
// with, and costs no memory.
func TestD90SenderNeverEnds(t *testing.T) {
	text := honest(t)
	head := slices.Concat(header(0, 13<<3), rawBlock(0, 0, len(text), text...))
	bare := header(0, 13<<3)
	bomb := rawBlock(0, 1, maxBlock, 0) // 128 KiB of zeros in four bytes
	for name, stream := range map[string]*endless{
		"zeros behind":          {head: head, tail: bomb},
		"zeros at once":         {head: bare, tail: bomb},
		"one byte at a time":    {head: head, tail: rawBlock(0, 0, 1, 0)},
		"empty blocks":          {head: head, tail: rawBlock(0, 0, 0)},
		"empty blocks repeated": {head: head, tail: rawBlock(0, 1, 0, 0)},
		"compressed to nothing": {head: head, tail: rawBlock(0, 2, 2, 0, 0)},
		"frames":                {head: frameOf(t, text), tail: slices.Concat(bare, rawBlock(1, 0, 0))},
		"skippable frames":      {tail: skippable(0)},
		"noise":                 {tail: []byte("noise")},
	} {
		t.Run(name, func(t *testing.T) {
			used := allocated(func() { newCage(t).receive(t, stream, prey(), ErrFormat) })
			if used > 32<<20 {
				t.Errorf("allocated %d MiB", used>>20)
			}
		})
	}
}

// A bomb of a file that is declared as large as it is takes time and no memory.
func TestD93BombAsDeclared(t *testing.T) {
	const size = 128 << 20
	m := Manifest{{Path: "f", Type: File, Size: size, Mode: 0o644, Time: minTime, Sum: sumHex(nil)}}
	stream := header(0, 13<<3)
	head := appendHeader(nil, &m[0], size)
	stream = append(stream, rawBlock(0, 0, len(head), head...)...)
	for range size / maxBlock {
		stream = append(stream, rawBlock(0, 1, maxBlock, 0)...)
	}
	stream = append(stream, rawBlock(1, 1, tarEnd, 0)...)
	used := allocated(func() { must(t, Receive(bytes.NewReader(stream), m, Want{}, new(memory))) })
	if used > 32<<20 {
		t.Errorf("allocated %d MiB", used>>20)
	}
}

// A stream that is cut at any byte is never taken for a whole one.
func TestD91CutAtEveryByte(t *testing.T) {
	m := prey()
	for name, send := range senders {
		var b bytes.Buffer
		must(t, send(&b, m, Want{}, hello))
		must(t, Receive(bytes.NewReader(b.Bytes()), m, Want{}, new(memory)))
		for n := range b.Len() {
			err := Receive(bytes.NewReader(b.Bytes()[:n]), m, Want{}, new(memory))
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%s: %d of %d bytes: %v", name, n, b.Len(), err)
			}
		}
	}
}

// What a stream fails with comes through, wherever that is, also if it fails only once.
func TestFailsWith(t *testing.T) {
	broken := errors.New("broken")
	for name, send := range senders {
		var b bytes.Buffer
		must(t, send(&b, prey(), Want{}, hello))
		for _, n := range []int{0, 2, 10, b.Len() - 1} {
			once := io.MultiReader(bytes.NewReader(b.Bytes()[:n]), &failsOnce{err: broken})
			if err := Receive(once, prey(), Want{}, new(memory)); !errors.Is(err, broken) {
				t.Errorf("%s: after %d bytes: %v", name, n, err)
			}
		}
	}
}

// failsOnce fails, and has ended then.
type failsOnce struct{ err error }

func (f *failsOnce) Read([]byte) (int, error) {
	err := f.err
	f.err = io.EOF
	return 0, err
}

var senders = map[string]func(io.Writer, Manifest, Want, func(int, Entry) (io.ReadCloser, error)) error{
	"Send": Send, "SendStored": SendStored,
}

// A bit that is flipped anywhere is an error, or has changed nothing.
func TestD89BitFlippedOnTheWay(t *testing.T) {
	m := prey()
	for name, send := range senders {
		var b bytes.Buffer
		must(t, send(&b, m, Want{}, hello))
		refused := 0
		for bit := range 8 * b.Len() {
			spoilt := slices.Clone(b.Bytes())
			spoilt[bit/8] ^= 1 << (bit % 8)
			sink := &checking{}
			if err := Receive(bytes.NewReader(spoilt), m, Want{}, sink); err != nil {
				refused++
			} else if sink.got != "hello" {
				t.Errorf("%s: bit %d: %q", name, bit, sink.got)
			}
		}
		if refused < 8*b.Len()*9/10 {
			t.Errorf("%s: %d of %d flips were refused", name, refused, 8*b.Len())
		}
	}
}

// checking is a Sink that checks sums, as a Tree does, and keeps the content.
type checking struct{ got string }

func (s *checking) Put(_ int, e Entry, _ int64, r io.Reader) error {
	if r == nil {
		return nil
	}
	b, err := io.ReadAll(r)
	if err == nil && sumHex(b) != e.Sum {
		err = ErrSum
	}
	s.got = string(b)
	return err
}

func FuzzReceive(f *testing.F) {
	text := honest(f)
	f.Add(frameOf(f, text), true)
	f.Add(frameOf(f, nil), true)
	f.Add(text, false)
	f.Add(header(0, 13<<3), true)
	f.Add(slices.Concat(header(0, 3<<3), rawBlock(1, 0, len(text), text...)), true)
	m := prey()
	f.Fuzz(func(t *testing.T, stream []byte, framed bool) {
		if !framed {
			stream = frameOf(t, stream)
		}
		put := 0
		var content checking
		err := Receive(bytes.NewReader(stream), m, Want{}, sinkFunc(func(i int, e Entry, from int64, r io.Reader) error {
			if i != put || from != 0 || fmt.Sprint(e) != fmt.Sprint(m[i]) {
				t.Fatalf("put %d %+v from %d, want %+v", i, e, from, m[put])
			}
			put++
			return content.Put(i, e, from, r)
		}))
		if err == nil && (put != len(m) || content.got != "hello") {
			t.Fatalf("accepted with %d entries and %q", put, content.got)
		}
	})
}
