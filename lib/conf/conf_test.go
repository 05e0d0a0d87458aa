package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Files that cannot be walked, and what is said of them.
var unreadable = []struct{ in, want string }{
	{"", "f:1:1: the file is empty"},
	{"# c\n", "f:1:1: the file is empty"},
	{"~\n", "f:1:1: the file is empty"},
	{"a: 1\n---\nb: 2\n", `f:2:1: a second document starts here: a file holds one ("---" stands only at the top)`},
	{"a: 1\n...\nb: 2\n", "f:3:1: text after the end of the document: check the indentation"},
	{"a: @x\n", `f:1:4: a value that starts with "@" must be in quotes`},
	{"x: 1\na: [`b`]\n", "f:2:5: a value that starts with \"`\" must be in quotes"},
	{"a: 1\n\tb: 2\n", "f:2:1: a tab where spaces are wanted: indent with spaces"},
	{"a:\n\t- b\n", "f:2:1: a tab where spaces are wanted: indent with spaces"},
	{"a: b: c\n", `f:1:5: a ":" is not expected here: check the indentation of this line and the one above, or quote the text`},
	{"meta:\n  name: x\n    b: y\n", `f:3:6: a ":" is not expected here: check the indentation of this line and the one above, or quote the text`},
	{"a: 1\nb\nc: 2\n", `f:2:1: a key without ":", or a text that does not fit what is above it: check the indentation`},
	{"a: 1\nb: [1, 2\nc: 3\n", `f:2:4: a list in [ ] is not closed or lacks a ","`},
	{"a: {x: 1\nb: 3\nc: 4\n", `f:1:4: a mapping in { } is not closed or lacks a ","`},
	{"z: 1\na: \"x\nb: 3\n", "f:2:4: a quote is opened here and not closed"},
	{"é: 1\nü: 'a\nb: 3\nc: 4\n", "f:2:4: a quote is opened here and not closed"},
	{"a: *x\n", `f:1:4: alias "*x" has no anchor "&x" before it: quote the text if no alias is meant`},
	{"x: 1\na: \"\\q\"\n", `f:2:5: an unknown escape after "\": write "\\", or use single quotes`},
	{"a:\r\n  - 1\r\n - 2\r\n", "f:3:2: this line does not fit what is above it: check its indentation, quotes and brackets"},
	{"- a\nb: 1\n", `f:2:1: this line does not fit the list above it: start each entry with "- " in the same column`},
	{"a: - 1\n", `f:1:4: a "- " is not expected here: start a list on a line of its own`},
	{"a: &x [*x]\n", `f:1:8: alias "*x" stands inside of what it names`},
	{"a: !foo b\nc: !!binary aGk=\n", "f:1:4: tag \"!foo\" is not known: remove it\nf:2:4: tag \"!!binary\" is not known: remove it"},
	{"\xff\xfea\x00", "f:1:1: the file is UTF-16: save it as UTF-8"},
	{"\xfe\xff\x00a", "f:1:1: the file is UTF-16: save it as UTF-8"},
	{"a: 1\nb: \x00", "f:2:4: the file is not text: it holds a zero byte"},
	{"a: \x1b[31m", "f:1:4: the file holds the control character U+001B: remove it, or write it as an escape in double quotes"},
	{"\x7fELF\x02", "f:1:1: the file holds the control character U+007F: remove it, or write it as an escape in double quotes"},
	{"é: \xffz", "f:1:4: the file is not UTF-8 text: byte 0xff"},
	{strings.Repeat("[", 150) + strings.Repeat("]", 150), "f:1:102: lists and mappings are nested more than 100 deep"},
	{strings.Repeat("[", 20000), "f:1:1: lists and mappings are nested too deep"},
	{strings.Repeat("a: x\n", MaxSize/5+1), "f: is longer than 16 MiB, which is the limit"},
}

func TestParseRefuses(t *testing.T) {
	for _, c := range unreadable {
		_, err := Parse("f", []byte(c.in))
		if err == nil {
			t.Errorf("%.40q is accepted", c.in)
		} else if err.Error() != c.want {
			t.Errorf("%.40q:\n got %s\nwant %s", c.in, err, c.want)
		}
	}
}

// An alias bomb is refused at a cost that depends on its text only.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	_, err := Parse("f", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "its aliases would make it") {
		t.Errorf("got %v", err)
	}
	var deep strings.Builder
	deep.WriteString("a0: &a0 [x]\n")
	for i := 1; i < 150; i++ {
		fmt.Fprintf(&deep, "a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	if _, err := Parse("f", []byte(deep.String())); err == nil || !strings.Contains(err.Error(), "nested more than 100 deep") {
		t.Errorf("got %v", err)
	}
}

var testKeys = Keys{Known: []string{"name", "number", "flag", "list", "map"}, Refused: map[string]string{"later": "not yet"}}

// walk reads a document with one of each getter and shows what it got.
func walk(text string) (string, error) {
	d, err := Parse("f", []byte(text))
	if err != nil {
		return "", err
	}
	m := d.Root().Map(testKeys)
	s := fmt.Sprintf("%q %d %v %q", m.Need("name").Text(), m.Get("number").Int(1, 9), m.Get("flag").Bool(), m.Get("list").Texts("write [a]"))
	for _, p := range m.Get("map").AnyMap().Pairs() {
		s += fmt.Sprintf(" %s=%s", p.Name, p.Text())
	}
	return s, d.Err()
}

func TestGetters(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"name: x", `"x" 0 false []`},
		{"\ufeffname: x\r\nnumber: 3\r\n", `"x" 3 false []`},
		{"\ufeff# by a tool\n%YAML 1.2\n---\nname: x\n", `"x" 0 false []`},
		{"name: 00:30:00\nlist: [0100, 1.0, true, 2026-11-20, \"~\"]", `"00:30:00" 0 false ["0100" "1.0" "true" "2026-11-20" "~"]`},
		{"name: !!str 5\nnumber: ~\nflag: true\nlist:\nmap: null", `"5" 0 true []`},
		{"name: &n x\nlist: [*n, *n]", `"x" 0 false ["x" "x"]`},
		{"name: x\nmap: {<<: {a: 1, b: 2}, b: 3}", `"x" 0 false [] b=3 a=1`},
		{"map: &m {a: 1}\n<<: [{name: y}, {name: z, number: 2}]", `"y" 2 false [] a=1`},
	} {
		if got, err := walk(c.in); err != nil || got != c.want {
			t.Errorf("%q:\n got %s %v\nwant %s", c.in, got, err, c.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"number: 1", `f:1:1: "name" is missing`},
		{"name: ~", `f:1:7: "name" is empty`},
		{"- a", `f:1:1: a mapping is wanted here, not a list: write "key: value", a line each`},
		{"text", `f:1:1: a mapping is wanted here, not a text: write "key: value", a line each`},
		{"name: [x]", `f:1:7: "name" must be a text, not a list`},
		{"name: x\nnumber: 1e3", `f:2:9: "number" must be a whole number from 1 to 9, not "1e3"`},
		{"name: x\nnumber: 10", `f:2:9: "number" must be a whole number from 1 to 9, not "10"`},
		{"name: x\nnumber: {}", `f:2:9: "number" must be a whole number from 1 to 9, not a mapping`},
		{"name: x\nflag: yes", `f:2:7: "flag" must be true or false, not "yes"`},
		{"name: x\nlist: a b", `f:2:7: "list" must be a list, not a text: write [a]`},
		{"name: x\nlist: [a, ~]", `f:2:11: an entry of "list" is empty: remove it, or quote it if it is meant as text`},
		{"nmae: x\nnumbre: 1", "f:1:1: unknown key \"nmae\" (did you mean \"name\"?)\nf:2:1: unknown key \"numbre\" (did you mean \"number\"?)"},
		{"name: x\nquux: 1", `f:2:1: unknown key "quux" (known here: name, number, flag, list, map)`},
		{"name: x\nnames: 1", `f:2:1: unknown key "names" (known here: name, number, flag, list, map)`},
		{"quux: 1", "f:1:1: unknown key \"quux\" (known here: name, number, flag, list, map)\nf:1:1: \"name\" is missing"},
		{"name: x\nlater: 1", `f:2:1: not yet`},
		{"name: x\nname: y", `f:2:1: key "name" is here twice (the first time in line 1): remove one`},
		{"name: x\n[a]: y", `f:2:1: a key must be a text`},
		{"name: x\n<<: 3", `f:2:5: after "<<" comes a mapping, or a list of mappings`},
		{"name: x\nmap: [1]", `f:2:6: "map" must be a mapping, not a list: write "key: value", a line each`},
		{"name: x\n\"a\\e[31m\": 1", `f:2:1: unknown key "a\x1b[31m" (known here: name, number, flag, list, map)`},
	} {
		if _, err := walk(c.in); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.in, err, c.want)
		}
	}
}

// Many mistakes are counted, not all told.
func TestManyMistakes(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: x\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "unknown%d: 1\n", i)
	}
	_, err := walk(b.String())
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != MaxMistakes+1 || lines[MaxMistakes] != "f: and more than 900 other mistakes" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if _, err := walk(strings.Join(strings.SplitAfter(b.String(), "\n")[:111], "")); !strings.HasSuffix(err.Error(), "\nf: and 10 more mistakes") {
		t.Error(err)
	}
	var m *Mistake
	if !errors.As(err, &m) || m.Place.Line != 2 {
		t.Errorf("first mistake is %v", m)
	}
}

func TestPlace(t *testing.T) {
	for want, p := range map[string]Place{"f": {File: "f"}, "f:3": {File: "f", Line: 3}, "f:3:4": {"f", 3, 4}, `"a\x1b\n":1:1`: {"a\x1b\n", 1, 1}} {
		if p.String() != want {
			t.Errorf("%#v is %s, want %s", p, p, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(long, MaxSize+1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		fifo: "is a FIFO, and a file is wanted", dir: "is a directory, and a file is wanted",
		long: "is longer than 16 MiB, which is the limit", "/dev/zero": "is a device, and a file is wanted"} {
		if _, err := ReadFile(name); err == nil || err.Error() != name+": "+want {
			t.Errorf("ReadFile(%q): %v, want %s", name, err, want)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// Parsing never panics or hangs, tells the place of each mistake, and never
// speaks with the library's voice; what is accepted can be walked.
func FuzzConf(f *testing.F) {
	for _, c := range unreadable {
		if len(c.in) < 10000 {
			f.Add([]byte(c.in))
		}
	}
	f.Add([]byte("name: &a x\nlist: [*a, \"b\", 'c']\nmap: {<<: {a: |\n b\n}, c: ? d}\n"))
	place := regexp.MustCompile(`^f(:[1-9][0-9]*:[1-9][0-9]*)?: .`)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := walk(string(data))
		if err == nil {
			return
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !place.MatchString(line) || strings.Contains(line, "yaml:") && !strings.Contains(string(data), "yaml:") {
				t.Errorf("%q: %q", data, line)
			}
		}
	})
}
