package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"

	"distribute/lib/suite"
)

// A stream is what other programs read, too.
func TestStreamIsATar(t *testing.T) {
	dir := t.TempDir()
	oddTree(t, dir)
	m := scan(t, dir)
	sent := stream(t, dir, m, Want{})
	d, err := zstd.NewReader(bytes.NewReader(sent))
	must(t, err)
	defer d.Close()
	r := tar.NewReader(d)
	for _, e := range m {
		h, err := r.Next()
		must(t, err)
		flag := map[byte]byte{File: tar.TypeReg, Dir: tar.TypeDir, Link: tar.TypeSymlink}[e.Type]
		if strings.TrimSuffix(h.Name, "/") != e.Path || h.Typeflag != flag || h.Size != e.Size || h.Linkname != e.Link {
			t.Errorf("%+v for %+v", h, e)
		}
		if e.Type != Link && (h.FileInfo().Mode().Perm() != e.Mode || !h.ModTime.Equal(e.Time.Truncate(time.Second))) {
			t.Errorf("%+v for %+v", h, e)
		}
		content, err := io.ReadAll(r)
		must(t, err)
		if e.Type == File && sumHex(content) != e.Sum {
			t.Errorf("%q: other content", e.Path)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if _, err := exec.LookPath("zstd"); err != nil {
		suite.Missing(t, "no zstd here")
	}
	file := filepath.Join(t.TempDir(), "s.tar.zst")
	must(t, os.WriteFile(file, sent, 0o600))
	out, err := exec.Command("sh", "-c", `zstd -dc "$1" | tar t --quoting-style=literal -f -`, "-", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := bytes.Count(out, []byte("\n")); n != len(m) {
		t.Errorf("tar lists %d entries of %d:\n%s", n, len(m), out)
	}
}

func TestHeaders(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		e      Entry
		size   int64
		blocks int
	}{
		{Entry{Path: "f", Type: File, Mode: 0o644, Time: minTime}, 0, 1},
		{Entry{Path: "f", Type: File, Time: maxTime}, maxSize, 1},
		{Entry{Path: "f", Type: File, Time: minTime}, maxSize + 1, 3},
		{Entry{Path: "f", Type: File, Time: minTime}, 1 << 62, 3},
		{Entry{Path: long, Type: File, Time: minTime}, 1, 1},
		{Entry{Path: long, Type: Dir, Time: minTime}, 0, 3},
		{Entry{Path: "ü", Type: File, Time: minTime}, 1, 3},
		{Entry{Path: "l", Type: Link, Link: long}, 0, 1},
		{Entry{Path: "l", Type: Link, Link: long + "/x"}, 0, 3},
		{Entry{Path: long + "/ü", Type: Link, Link: long + "/ö"}, 0, 3},
		{Entry{Path: strings.Repeat(long+"/", 40) + "x", Type: File, Time: minTime}, 1 << 40, 10},
	} {
		b := appendHeader([]byte{}, &tt.e, tt.size)
		if len(b) != tt.blocks*block {
			t.Errorf("%.20q: %d bytes, want %d blocks", tt.e.Path, len(b), tt.blocks)
		}
		h, err := tar.NewReader(bytes.NewReader(b)).Next()
		if err != nil {
			t.Errorf("%.20q: %v", tt.e.Path, err)
			continue
		}
		if strings.TrimSuffix(h.Name, "/") != tt.e.Path || h.Size != tt.size || h.Linkname != tt.e.Link {
			t.Errorf("%+v reads as %+v", tt.e, h)
		}
	}
}

// A pax record counts its own length, which a digit more can make a digit longer.
func TestRecordLength(t *testing.T) {
	for n := range 2000 {
		b := appendRecord(nil, "path", strings.Repeat("x", n))
		length, _, _ := strings.Cut(string(b), " ")
		if want := len(b); length != string(appendInt(want)) {
			t.Fatalf("a record of %d bytes says %s", want, length)
		}
	}
}

func appendInt(n int) []byte {
	if n < 10 {
		return []byte{'0' + byte(n)}
	}
	return append(appendInt(n/10), '0'+byte(n%10))
}

// A file that is not what the manifest says any more ends the stream, which is
// never taken for a whole one.
func TestSendChangedFile(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	m := Manifest{
		{Path: "before", Type: File, Size: 5, Mode: 0o644, Time: minTime, Sum: sumHex([]byte("hello"))},
		{Path: "f", Type: File, Size: int64(len(content)), Mode: 0o644, Time: minTime, Sum: sumHex(content)},
		{Path: "z", Type: Dir, Mode: 0o755, Time: minTime},
	}
	other := slices.Clone(content)
	other[500_000] = 'x'
	for name, tt := range map[string]struct {
		r    io.Reader
		err  error // of open
		from int64
		want error
	}{
		"as it was":           {r: bytes.NewReader(content)},
		"as it was, from":     {r: bytes.NewReader(content), from: 999_999},
		"from, without seek":  {r: iotest.HalfReader(bytes.NewReader(content)), from: 500_001},
		"one byte at a time":  {r: iotest.OneByteReader(bytes.NewReader(content))},
		"data with its end":   {r: iotest.DataErrReader(bytes.NewReader(content))},
		"shorter":             {r: bytes.NewReader(content[:999_999]), want: ErrChanged},
		"empty":               {r: bytes.NewReader(nil), want: ErrChanged},
		"longer":              {r: bytes.NewReader(append(slices.Clone(content), 'x')), want: ErrChanged},
		"other content":       {r: bytes.NewReader(other), want: ErrChanged},
		"other before from":   {r: iotest.HalfReader(bytes.NewReader(other)), from: 600_000, want: ErrChanged},
		"shorter than from":   {r: bytes.NewReader(content[:10]), from: 999_999, want: ErrChanged},
		"cannot be read":      {r: iotest.ErrReader(fs.ErrInvalid), want: fs.ErrInvalid},
		"fails in the middle": {r: io.MultiReader(bytes.NewReader(content[:5000]), iotest.ErrReader(fs.ErrInvalid)), want: fs.ErrInvalid},
		"vanished":            {err: fs.ErrNotExist, want: fs.ErrNotExist},
	} {
		for which, send := range senders {
			if s, ok := tt.r.(io.Seeker); ok {
				_, err := s.Seek(0, io.SeekStart)
				must(t, err)
			} else if which != "Send" {
				continue
			}
			var b bytes.Buffer
			closed := 0
			want := Want{}
			if tt.from > 0 {
				want = Want{Ranges: [][2]int{{1, 3}}, From: tt.from}
			}
			err := send(&b, m, want, func(i int, e Entry) (io.ReadCloser, error) {
				if i == 0 {
					return io.NopCloser(strings.NewReader("hello")), nil
				}
				if s, ok := tt.r.(io.ReadSeeker); ok {
					return seeking{closing{s, &closed}, s}, tt.err
				}
				return closing{tt.r, &closed}, tt.err
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("%s, %s: %v, want %v", which, name, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), `"f"`) {
				t.Errorf("%s, %s: the error does not name the file: %v", which, name, err)
			}
			if tt.err == nil && closed != 1 {
				t.Errorf("%s, %s: closed %d times", which, name, closed)
			}
			got := Receive(&b, m, want, new(memory))
			if tt.want == nil && got != nil || tt.want != nil && !errors.Is(got, io.ErrUnexpectedEOF) {
				t.Errorf("%s, %s: received: %v", which, name, got)
			}
		}
	}
}

type closing struct {
	io.Reader
	n *int
}

func (c closing) Close() error { *c.n++; return nil }

type seeking struct {
	closing
	io.Seeker
}

func TestWriterThatFails(t *testing.T) {
	content := make([]byte, 10_000_000)
	rand.NewChaCha8([32]byte{}).Read(content)
	m := Manifest{{Path: "f", Type: File, Size: int64(len(content)), Mode: 0o644, Time: minTime, Sum: sumHex(content)}}
	for which, send := range senders {
		for _, after := range []int{0, 1, 10_000} {
			w := &limited{left: after}
			err := send(w, m, Want{}, func(int, Entry) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(content)), nil
			})
			if !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s, after %d bytes: %v", which, after, err)
			}
		}
	}
	// What was used for a stream that failed is as good as new.
	for range 3 {
		dir := t.TempDir()
		oddTree(t, dir)
		m := scan(t, dir)
		must(t, unpack(t, t.TempDir(), stream(t, dir, m, Want{}), m, Want{}))
	}
}

// limited takes some bytes and then fails.
type limited struct{ left int }

func (w *limited) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	if w.left -= n; n < len(p) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// A sink that fails ends Receive with its error; one that does not read is
// skipped over.
func TestSink(t *testing.T) {
	frame := frameOf(t, honest(t))
	failed := errors.New("full")
	err := Receive(bytes.NewReader(frame), prey(), Want{}, sinkFunc(func(int, Entry, int64, io.Reader) error { return failed }))
	if !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	var got []string
	must(t, Receive(bytes.NewReader(frame), prey(), Want{}, sinkFunc(func(i int, e Entry, from int64, r io.Reader) error {
		got = append(got, e.Path)
		if (r != nil) != (e.Type == File) {
			t.Errorf("%q: reader %v", e.Path, r)
		}
		return nil
	})))
	if !slices.Equal(got, []string{"d", "d/f", "l"}) {
		t.Errorf("got %q", got)
	}
	broken := io.MultiReader(bytes.NewReader(frame[:20]), iotest.ErrReader(io.ErrClosedPipe))
	if err := Receive(broken, prey(), Want{}, new(memory)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("stream that fails: %v", err)
	}
	must(t, Receive(iotest.OneByteReader(bytes.NewReader(frame)), prey(), Want{}, new(memory)))
}

type sinkFunc func(int, Entry, int64, io.Reader) error

func (f sinkFunc) Put(i int, e Entry, from int64, r io.Reader) error { return f(i, e, from, r) }

// Three GiB go through in the memory of a few buffers.
func TestHugeFile(t *testing.T) {
	size := suite.Size[int64](96<<20+17, 3<<30+17)
	content := func() io.Reader {
		return io.MultiReader(io.LimitReader(zeroReader{}, size-7), strings.NewReader("the end"))
	}
	h := sha256.New()
	_, err := io.Copy(h, content())
	must(t, err)
	m := Manifest{{Path: "f", Type: File, Size: size, Mode: 0o644, Time: minTime, Sum: hex.EncodeToString(h.Sum(nil))}}
	to := t.TempDir()
	used := allocated(func() {
		r, w := io.Pipe()
		go func() {
			w.CloseWithError(SendStored(w, m, Want{}, func(int, Entry) (io.ReadCloser, error) {
				return io.NopCloser(content()), nil
			}))
		}()
		tree := NewTree(openRoot(t, to), Perm{})
		must(t, Receive(r, m, Want{}, tree))
		must(t, tree.Close())
	})
	if used > 32<<20 {
		t.Errorf("allocated %d MiB in all", used>>20)
	}
	info, err := os.Stat(filepath.Join(to, "f"))
	must(t, err)
	if info.Size() != size {
		t.Errorf("%d bytes of %d", info.Size(), size)
	}
}

// zeroReader has zeros without end.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// The files before one that cannot be read are sent whole: the first that did not come is the bad one.
func TestFilesBeforeABadOneCome(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	m := scan(t, dir)
	for name, send := range map[string]func(io.Writer, Manifest, Want, func(int, Entry) (io.ReadCloser, error)) error{"Send": Send, "SendStored": SendStored} {
		var sent bytes.Buffer
		err := send(&sent, m, Want{}, func(_ int, e Entry) (io.ReadCloser, error) {
			if e.Path == "b" {
				return nil, fs.ErrNotExist
			}
			return os.Open(filepath.Join(dir, e.Path))
		})
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		var got sinkOf
		err = Receive(&sent, m, Want{}, &got)
		if err == nil || !slices.Equal(got, sinkOf{"a"}) {
			t.Errorf("%s: %v came, and %v", name, got, err)
		}
	}
}

// A sinkOf notes the paths of the files that came whole.
type sinkOf []string

func (s *sinkOf) Put(_ int, e Entry, _ int64, r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	*s = append(*s, e.Path)
	return nil
}
