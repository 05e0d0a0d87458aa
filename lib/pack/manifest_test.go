package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// sealed is lines with the last line that they should have.
func sealed(lines ...string) string {
	text := strings.Join(lines, "")
	return text + fmt.Sprintf("{\"end\":%d,\"sha256\":\"%s\"}\n", len(lines), sumHex([]byte(text)))
}

const zeroTime = "1970-01-01T00:00:00Z"

var (
	dirLine = func(path string) string {
		return `{"path":"` + path + `","type":"d","mode":"0755","time":"` + zeroTime + `"}` + "\n"
	}
	linkLine = func(path, to string) string { return `{"path":"` + path + `","type":"l","link":"` + to + `"}` + "\n" }
	fileLine = func(path string, size int64) string {
		return fmt.Sprintf(`{"path":"%s","type":"f","size":%d,"mode":"0644","time":"%s","sha256":"%s"}`+"\n", path, size, zeroTime, sumHex(nil))
	}
)

func TestDecodeManifest(t *testing.T) {
	file := fileLine("f", 0)
	swap := func(old, new string) string {
		if !strings.Contains(file, old) {
			panic(old)
		}
		return strings.Replace(file, old, new, 1)
	}
	many := func(n int, line func(i int) string) string {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = line(i)
		}
		return sealed(lines...)
	}
	name255 := strings.Repeat("n", 255)
	small := Limits{Entries: 10, Depth: 5, Bytes: 1000, PathBytes: 300, Names: 2000}
	for _, tt := range []struct {
		name string
		text string
		want error // nil: it is a manifest
	}{
		{"empty tree", sealed(), nil},
		{"one file", sealed(file), nil},
		{"in order", sealed(dirLine("a"), fileLine("a/x", 1), fileLine("a b", 1), fileLine("a.", 1), fileLine("b", 0)), nil},
		{"escapes", sealed(fileLine(`q\"u\\o`, 0)), nil},
		{"name of 255", sealed(fileLine(name255, 0)), nil},
		{"depth 5", sealed(dirLine("a"), dirLine("a/a"), dirLine("a/a/a"), dirLine("a/a/a/a"), dirLine("a/a/a/a/a")), nil},
		{"time with nanoseconds", sealed(swap(zeroTime, "2024-02-29T23:59:59.000000001Z")), nil},
		{"link inside", sealed(dirLine("d"), linkLine("d/l", "../x/./y//z")), nil},
		{"link to nothing there", sealed(linkLine("l", "nothing")), nil},
		{"link to itself", sealed(linkLine("l", "l")), nil},
		{"links in a ring", sealed(linkLine("a", "b"), linkLine("b", "c/x"), linkLine("c", "a")), nil},
		{"bytes at the limit", sealed(fileLine("a", 500), fileLine("b", 500)), nil},

		{"nothing", "", ErrFormat},
		{"no last line", file, ErrFormat},
		{"cut in the last line", strings.TrimSuffix(sealed(file), "\n"), ErrFormat},
		{"something after it", sealed(file) + "\n", ErrFormat},
		{"a second manifest", sealed(file) + sealed(file), ErrFormat},
		{"wrong count", strings.Replace(sealed(file), `"end":1`, `"end":2`, 1), ErrFormat},
		{"wrong sum", strings.Replace(sealed(file), `0644`, `0640`, 1), ErrFormat},
		{"no newline between", sealed(strings.TrimSpace(file) + file), ErrFormat},
		{"empty line", sealed("\n", file), ErrFormat},
		{"carriage return", sealed(strings.Replace(file, "\n", "\r\n", 1)), ErrFormat},
		{"blank", sealed(swap(`,"size"`, `, "size"`)), ErrFormat},
		{"unknown member", sealed(swap(`,"size"`, `,"x":1,"size"`)), ErrFormat},
		{"unknown last member", sealed(swap(`"}`, `","x":1}`)), ErrFormat},
		{"member twice", sealed(swap(`,"size":0`, `,"size":0,"size":0`)), ErrFormat},
		{"member in capitals", sealed(swap(`"size"`, `"Size"`)), ErrFormat},
		{"member missing", sealed(swap(`,"size":0`, ``)), ErrFormat},
		{"members in another order", sealed(swap(`"path":"f","type":"f"`, `"type":"f","path":"f"`)), ErrFormat},
		{"size negative", sealed(swap(`:0,`, `:-1,`)), ErrFormat},
		{"size with a zero before", sealed(swap(`:0,`, `:01,`)), ErrFormat},
		{"size with a sign", sealed(swap(`:0,`, `:+1,`)), ErrFormat},
		{"size with an exponent", sealed(swap(`:0,`, `:1e1,`)), ErrFormat},
		{"size too large for a number", sealed(swap(`:0,`, `:9223372036854775808,`)), ErrFormat},
		{"size a string", sealed(swap(`:0,`, `:"0",`)), ErrFormat},
		{"mode short", sealed(swap(`"0644"`, `"644"`)), ErrFormat},
		{"mode set-id", sealed(swap(`"0644"`, `"4755"`)), ErrFormat},
		{"mode sticky", sealed(swap(`"0644"`, `"1755"`)), ErrFormat},
		{"mode not octal", sealed(swap(`"0644"`, `"0948"`)), ErrFormat},
		{"mode too large", sealed(swap(`"0644"`, `"02000000"`)), ErrFormat},
		{"time with an offset", sealed(swap(zeroTime, "1970-01-01T01:00:00+01:00")), ErrFormat},
		{"time with zeros at the end", sealed(swap(zeroTime, "1970-01-01T01:00:00.10Z")), ErrFormat},
		{"time before 1970", sealed(swap(zeroTime, "1969-12-31T23:59:59Z")), ErrFormat},
		{"time after 2241", sealed(swap(zeroTime, "2242-01-01T00:00:00Z")), ErrFormat},
		{"time that is none", sealed(swap(zeroTime, "1970-02-30T00:00:00Z")), ErrFormat},
		{"time with a comma", sealed(swap(zeroTime, "1970-01-01T00:00:00,5Z")), ErrFormat},
		{"sum in capitals", sealed(swap(sumHex(nil), strings.ToUpper(sumHex(nil)))), ErrFormat},
		{"sum short", sealed(swap(sumHex(nil), sumHex(nil)[1:])), ErrFormat},
		{"type unknown", sealed(swap(`"type":"f"`, `"type":"x"`)), ErrFormat},
		{"type of a device", sealed(swap(`"type":"f"`, `"type":"c"`)), ErrFormat},
		{"type a control character", sealed(swap(`"type":"f"`, "\"type\":\"\n\"")), ErrFormat},
		{"directory with a size", sealed(strings.Replace(dirLine("d"), `"d",`, `"d","size":0,`, 1)), ErrFormat},

		{"path empty", sealed(fileLine("", 0)), ErrFormat},
		{"path absolute", sealed(fileLine("/f", 0)), ErrFormat},
		{"path with a slash at the end", sealed(dirLine("d/")), ErrFormat},
		{"path dot", sealed(fileLine(".", 0)), ErrFormat},
		{"path dot dot", sealed(fileLine("..", 0)), ErrFormat},
		{"path up", sealed(fileLine("../f", 0)), ErrFormat},
		{"path up and down", sealed(dirLine("a"), fileLine("a/../f", 0)), ErrFormat},
		{"path with two slashes", sealed(dirLine("a"), fileLine("a//f", 0)), ErrFormat},
		{"path with a NUL", sealed(fileLine("a\x00b", 0)), ErrFormat},
		{"path with an escaped NUL", sealed(fileLine(`a\u0000b`, 0)), ErrFormat},
		{"path with an escape that it does not need", sealed(fileLine(`\u0061`, 0)), ErrFormat},
		{"path with an escaped slash", sealed(dirLine("a"), fileLine(`a\/b`, 0)), ErrFormat},
		{"path with ESC", sealed(fileLine("a\x1b[2J", 0)), ErrFormat},
		{"path with DEL", sealed(fileLine("a\x7f", 0)), ErrFormat},
		{"path with a C1 control", sealed(fileLine("a\u009b", 0)), ErrFormat},
		{"path not UTF-8", sealed(fileLine("a\xff", 0)), ErrFormat},
		{"path with a surrogate", sealed(fileLine("a\xed\xa0\x80", 0)), ErrFormat},
		{"name of 256", sealed(fileLine(name255+"n", 0)), ErrFormat},
		{"path twice", sealed(file, file), ErrFormat},
		{"file and directory of one name", sealed(dirLine("f"), file), ErrFormat},
		{"out of order", sealed(fileLine("b", 0), fileLine("a", 0)), ErrFormat},
		{"out of order by slash", sealed(fileLine("a b", 0), dirLine("a"), fileLine("a/x", 0)), ErrFormat},
		{"content of a directory apart", sealed(dirLine("a"), fileLine("a b", 0), fileLine("a/x", 0)), ErrFormat},
		{"below a file", sealed(fileLine("a", 0), fileLine("a/b", 0)), ErrFormat},
		{"below a link", sealed(linkLine("a", "."), fileLine("a/b", 0)), ErrFormat},
		{"below nothing", sealed(fileLine("a/b", 0)), ErrFormat},
		{"below a prefix", sealed(dirLine("a"), fileLine("ab/c", 0)), ErrFormat},

		{"link empty", sealed(linkLine("l", "")), ErrFormat},
		{"link absolute", sealed(linkLine("l", "/etc/passwd")), ErrFormat},
		{"link up", sealed(linkLine("l", "..")), ErrFormat},
		{"link up too far", sealed(dirLine("d"), linkLine("d/l", "../../x")), ErrFormat},
		{"link down and up too far", sealed(linkLine("l", "x/../../y")), ErrFormat},
		{"link with a NUL", sealed(linkLine("l", "a\x00b")), ErrFormat},
		{"link out through a link to dot", sealed(linkLine("a", "."), linkLine("b", "a/..")), ErrFormat},
		{"link out through two", sealed(dirLine("d"), linkLine("d/up", ".."), linkLine("e", "d/up/.."), linkLine("f", "e/x")), ErrFormat},
		{"link out through a later one", sealed(linkLine("a", "b/.."), linkLine("b", ".")), ErrFormat},
		{"link out after going deep", sealed(linkLine("a", "x/y/z/../../.."), linkLine("b", "a/..")), ErrFormat},

		{"too many entries", many(11, func(i int) string { return fileLine(fmt.Sprintf("%03d", i), 0) }), ErrLimit},
		{"too deep", sealed(dirLine("a"), dirLine("a/a"), dirLine("a/a/a"), dirLine("a/a/a/a"), dirLine("a/a/a/a/a"), dirLine("a/a/a/a/a/a")), ErrLimit},
		{"too many bytes", sealed(fileLine("a", 500), fileLine("b", 501)), ErrLimit},
		{"bytes that overflow", sealed(fileLine("a", 1000), fileLine("b", 9223372036854775807)), ErrLimit},
		{"path too long", sealed(dirLine(name255), fileLine(name255+"/"+strings.Repeat("x", 60), 0)), ErrLimit},
		{"target too long", sealed(linkLine("l", strings.Repeat("x/", 151))), ErrLimit},
		{"target too deep", sealed(linkLine("l", "a/a/a/a/a/a")), ErrLimit},
		{"names too long together", many(10, func(i int) string { return linkLine(fmt.Sprint(i), strings.Repeat("x", 250)) }), ErrLimit},
		{"a line without end", `{"path":"` + strings.Repeat("x", 1<<20), ErrLimit},
	} {
		m, err := DecodeManifest(strings.NewReader(tt.text), small)
		if tt.want != nil {
			if !errors.Is(err, tt.want) || m != nil {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
			if n := len(fmt.Sprint(err)); n > 2000 {
				t.Errorf("%s: an error of %d bytes", tt.name, n)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var b strings.Builder
		if err := m.Encode(&b); err != nil || b.String() != tt.text {
			t.Errorf("%s: encoded again %q, %v", tt.name, b.String(), err)
		}
		if m.Sum() != sumHex([]byte(tt.text)) {
			t.Errorf("%s: the Sum is not that of the encoding", tt.name)
		}
	}
}

// Each line of a manifest is JSON that any reader takes, with the same meaning.
func TestManifestIsJSON(t *testing.T) {
	dir := t.TempDir()
	oddTree(t, dir)
	m := scan(t, dir)
	var b bytes.Buffer
	must(t, m.Encode(&b))
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	for _, e := range m {
		var got struct {
			Path, Type, Mode, SHA256, Link string
			Size                           int64
			Time                           time.Time
		}
		must(t, d.Decode(&got))
		if got.Path != e.Path || got.Type != string(e.Type) || got.Size != e.Size || got.SHA256 != e.Sum ||
			got.Link != e.Link || !got.Time.Equal(e.Time) || e.Type != Link && got.Mode != fmt.Sprintf("%04o", e.Mode) {
			t.Errorf("entry %+v, as JSON %+v", e, got)
		}
	}
	var end struct {
		End    int
		SHA256 string
	}
	must(t, d.Decode(&end))
	if end.End != len(m) {
		t.Errorf("end %d", end.End)
	}
}

// The example of the package documentation is a manifest.
func TestDocumentedManifest(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	must(t, err)
	var text strings.Builder
	for line := range strings.Lines(string(doc)) {
		if example, ok := strings.CutPrefix(line, "//\t{"); ok {
			text.WriteString("{" + example)
		}
	}
	m, err := DecodeManifest(strings.NewReader(text.String()), Limits{})
	must(t, err)
	want := Manifest{
		{Path: "empty", Type: Dir, Mode: 0o755, Time: time.Date(2026, 11, 20, 5, 16, 7, 0, time.UTC)},
		{Path: "out", Type: Dir, Mode: 0o750, Time: time.Date(2026, 11, 20, 5, 16, 8, 250e6, time.UTC)},
		{Path: "out/x.csv", Type: File, Size: 12, Mode: 0o644, Time: time.Date(2026, 11, 20, 5, 16, 8, 123456789, time.UTC),
			Sum: sumHex([]byte("t,x\n0,1\n1,2\n"))},
		{Path: "x.csv", Type: Link, Link: "out/x.csv"},
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("the example reads as\n%+v", m)
	}
}

// What is small is so by as much as dspool(5) says.
func TestSmall(t *testing.T) {
	page, err := os.ReadFile("../../man/dspool.5")
	must(t, err)
	if said := fmt.Sprintf("A result of at most %d entries and %d KiB", SmallEntries, SmallBytes>>10); !strings.Contains(string(page), said) {
		t.Errorf("the manual does not say %q", said)
	}
	for _, tt := range []struct {
		entries int
		bytes   int64
		want    bool
	}{{0, 0, true}, {SmallEntries, SmallBytes, true}, {SmallEntries + 1, 0, false}, {1, SmallBytes + 1, false}} {
		m := make(Manifest, tt.entries)
		if tt.entries > 0 {
			m[0].Size = tt.bytes
		}
		if m.Small() != tt.want {
			t.Errorf("%+v: %v", tt, m.Small())
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := Entry{Path: "f", Type: File, Mode: 0o644, Time: minTime, Sum: sumHex(nil)}
	for name, change := range map[string]func(*Entry){
		"path":     func(e *Entry) { e.Path = "../f" },
		"mode":     func(e *Entry) { e.Mode |= os.ModeSetuid },
		"sum":      func(e *Entry) { e.Sum = "" },
		"size":     func(e *Entry) { e.Size = -1 },
		"time":     func(e *Entry) { e.Time = time.Time{} },
		"type":     func(e *Entry) { e.Type = 0 },
		"link":     func(e *Entry) { e.Link = "x" },
		"dir sum":  func(e *Entry) { e.Type = Dir },
		"link sum": func(e *Entry) { e.Type, e.Link = Link, "x" },
	} {
		e := good
		change(&e)
		var b bytes.Buffer
		if err := (Manifest{e}).Encode(&b); !errors.Is(err, ErrFormat) || b.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, b.Len())
		}
	}
	must(t, Manifest{good}.Encode(io.Discard))
	if err := (Manifest{good}).Encode(failingWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writer that fails: %v", err)
	}
	broken := iotest.ErrReader(io.ErrClosedPipe)
	if _, err := DecodeManifest(broken, Limits{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("reader that fails: %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestComparePaths(t *testing.T) {
	ordered := []string{"", " ", "-rf", "a", "a/", "a/ ", "a/b", "a/b/c", "a/b!", "a ", "a!", "a-", "a.b", "a0", "aa", "b", "ü"}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := ComparePaths(a, b); got != want {
				t.Errorf("%q, %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

// A deep web of links costs no more than its length.
func TestLinksThatFanOut(t *testing.T) {
	var m Manifest
	for i := range 30 {
		next := fmt.Sprintf("l%02d/", i+1)
		m = append(m, Entry{Path: fmt.Sprintf("l%02d", i), Type: Link, Link: strings.Repeat(next, 100)})
	}
	m = append(m, Entry{Path: "l30", Type: Link, Link: "."})
	must(t, m.Check(Limits{}))
	m = append(m, Entry{Path: "l31", Type: Link, Link: "l00/.."})
	if err := m.Check(Limits{}); !errors.Is(err, ErrFormat) {
		t.Errorf("error %v", err)
	}
}

func TestWant(t *testing.T) {
	m := Manifest{
		{Path: "a", Type: File, Size: 10}, {Path: "b", Type: Dir}, {Path: "c", Type: File, Size: 5}, {Path: "d", Type: File, Size: 1},
	}
	for _, tt := range []struct {
		json  string
		ok    bool
		bytes int64
		empty bool
	}{
		{`{"ranges":null}`, true, 16, false},
		{`{}`, true, 16, false},
		{`{"ranges":[]}`, true, 0, true},
		{`{"ranges":[[0,4]]}`, true, 16, false},
		{`{"ranges":[[0,1],[1,2],[3,4]],"from":9}`, true, 2, false},
		{`{"ranges":[[2,3]],"from":4}`, true, 1, false},
		{`{"ranges":null,"from":9}`, true, 7, false},
		{`{"ranges":[[2,3]],"from":5}`, false, 0, false},
		{`{"ranges":[[2,3]],"from":-1}`, false, 0, false},
		{`{"ranges":[[1,3]],"from":1}`, false, 0, false},
		{`{"ranges":[],"from":1}`, false, 0, false},
		{`{"ranges":[[0,5]]}`, false, 0, false},
		{`{"ranges":[[-1,1]]}`, false, 0, false},
		{`{"ranges":[[1,1]]}`, false, 0, false},
		{`{"ranges":[[2,1]]}`, false, 0, false},
		{`{"ranges":[[0,2],[1,3]]}`, false, 0, false},
		{`{"ranges":[[2,3],[0,1]]}`, false, 0, false},
		{`{"ranges":[[0,9223372036854775807]]}`, false, 0, false},
	} {
		var w Want
		must(t, json.Unmarshal([]byte(tt.json), &w))
		err := w.Check(m)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", tt.json, err)
		}
		if !tt.ok {
			if err := Send(io.Discard, m, w, nil); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: Send: %v", tt.json, err)
			}
			if err := Receive(strings.NewReader(""), m, w, nil); !errors.Is(err, ErrFormat) {
				t.Errorf("%s: Receive: %v", tt.json, err)
			}
			continue
		}
		if w.Bytes(m) != tt.bytes || w.Empty(m) != tt.empty {
			t.Errorf("%s: %d bytes, empty %v", tt.json, w.Bytes(m), w.Empty(m))
		}
	}
	if !(Want{}).Empty(nil) || !WantOf().Empty(m) {
		t.Error("what is empty is not")
	}
	if got := WantOf(5, 3, 4, 1, 1).Ranges; !slices.Equal(got, [][2]int{{1, 2}, {3, 6}}) {
		t.Errorf("WantOf: %v", got)
	}
	w := Want{Ranges: [][2]int{{2, 3}}, From: 2}
	if got := w.With(m, 3); got.From != 2 || !slices.Equal(got.Ranges, [][2]int{{2, 4}}) {
		t.Errorf("With a later one: %v", got)
	}
	if got := w.With(m, 0); got.From != 0 {
		t.Errorf("With an earlier one: %v", got)
	}
	if got := w.With(m, 2); got.From != 0 {
		t.Errorf("With the same: %v", got)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(sealed()))
	f.Add([]byte(sealed(dirLine("a"), fileLine("a/x", 1), linkLine("l", "a/x"))))
	f.Add([]byte(sealed(linkLine("a", "."), linkLine("b", "a/.."))))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := slices.Collect(strings.Lines(string(text)))
		for _, text := range [][]byte{text, []byte(sealed(lines...))} {
			m, err := DecodeManifest(bytes.NewReader(text), Limits{})
			if err != nil {
				if m != nil {
					t.Fatal("a manifest and an error")
				}
				continue
			}
			var b bytes.Buffer
			must(t, m.Encode(&b))
			if !bytes.Equal(b.Bytes(), text) {
				t.Fatalf("decoded\n%s\nencoded\n%s", text, b.Bytes())
			}
			for _, e := range m {
				if !json.Valid(bytes.TrimSpace(appendEntry(nil, &e))) {
					t.Fatalf("not JSON: %s", appendEntry(nil, &e))
				}
			}
		}
	})
}

func TestFindEntry(t *testing.T) {
	var m Manifest
	for i, p := range []string{"a", "b\"c", "d"} {
		m = append(m, Entry{Path: p, Type: File, Size: int64(i + 1), Mode: 0o644, Time: time.Unix(1, 0).UTC(), Sum: strings.Repeat("0", 64)})
	}
	var b bytes.Buffer
	if err := m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, e := range m {
		if got, err := FindEntry(strings.NewReader(text), e.Path); err != nil || got.Size != e.Size {
			t.Errorf("%q: %+v, %v", e.Path, got, err)
		}
	}
	if _, err := FindEntry(strings.NewReader(text), "c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a path that is not in it: %v", err)
	}
	for _, bad := range []string{"", text[:len(text)/2], "{}\n", strings.Repeat("x", 1<<20)} {
		if _, err := FindEntry(strings.NewReader(bad), "d"); !errors.Is(err, ErrFormat) {
			t.Errorf("of %.20q: %v", bad, err)
		}
	}
}
