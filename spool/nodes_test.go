package spool

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/node"
)

// keyOf is the fingerprint of a key, another for each number.
func keyOf(n byte) node.Fingerprint {
	return node.FingerprintOf(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32)).Public().(ed25519.PublicKey))
}

// A list says what its lines say, whatever stands between them.
func TestParseNodes(t *testing.T) {
	text := fmt.Sprintf("# the lab's\n\nws1 %s\n\tws2\t%s  # ana's desk\r\nws3 ssh://jo@desk3:2222\n#ws4 -\nws5 -\n", keyOf(1), keyOf(2))
	l, wrong := ParseNodes([]byte(text))
	if wrong != nil {
		t.Fatal(wrong)
	}
	want := []NodeLine{{"ws1", keyOf(1), "", 3}, {"ws2", keyOf(2), "", 4}, {"ws3", "", "ssh://jo@desk3:2222", 5}, {"ws5", "", "", 7}}
	got := l.Lines()
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	if n, ok := l.WithKey(keyOf(2)); !ok || n.Node != "ws2" {
		t.Errorf("the key of ws2 is that of %+v", n)
	}
	if n, ok := l.WithKey(""); ok {
		t.Errorf("no key is that of %+v", n)
	}
}

// Each mistake is told with its line, and what the line should be.
func TestParseNodesMistakes(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"ws1\n", "1: a line is a node and by what it is known"},
		{"ws1 " + string(keyOf(1)) + " ana\n", "1: a line is a node"},
		{"ws1 SHA256:abc\n", "1: \"SHA256:abc\" is no fingerprint"},
		{"ws1 MD5:abc\n", "1: \"MD5:abc\" is neither a fingerprint"},
		{"ws1 ssh://\n", "no address of a node"},
		{"ws1 ssh://desk/spool\n", "no address of a node"},
		{"ws1 ssh://-oProxyCommand=x\n", "no address of a node"},
		{".ws1 -\n", "1: "},
		{"\x1b[31mws1 -\n", "1: "},
		{"ws1 \x1b[31m\n", `1: "\x1b[31m" is neither`},
		{"ws1 -\n#\nws1 " + string(keyOf(1)) + "\n", "3: ws1 stands in line 1 already"},
		{"ws1 " + string(keyOf(1)) + "\nws2 " + string(keyOf(1)) + "\n", "stands in line 1 already: two nodes cannot have it"},
		{"ws1 ssh://desk\nws2 ssh://desk\n", "2: ssh://desk stands in line 1 already"},
	} {
		_, wrong := ParseNodes([]byte(tt.text))
		if len(wrong) != 1 {
			t.Errorf("%q: %v, want one mistake", tt.text, wrong)
			continue
		}
		got := fmt.Sprintf("%d: %s", wrong[0].Line, wrong[0].Why)
		if !strings.Contains(got, tt.want) || strings.ContainsRune(got, '\x1b') {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// A list that is changed keeps what people wrote into it.
func TestNodeListChanges(t *testing.T) {
	text := fmt.Sprintf("# the lab's\nws1 %s # ana's\n\nws2 - # away\n", keyOf(1))
	l, _ := ParseNodes([]byte(text))
	with := func(l *NodeList, n NodeLine) *NodeList {
		t.Helper()
		l, err := l.With(n)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l2 := with(l, NodeLine{Node: "ws2", Key: keyOf(2)})
	l3 := with(l2, NodeLine{Node: "ws3", Addr: "ssh://desk3"}).Without("ws1")
	want := fmt.Sprintf("# the lab's\n\nws2 %s # away\nws3 ssh://desk3\n", keyOf(2))
	if got := string(l3.bytes()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(l.bytes()); got != text {
		t.Errorf("the list before has become %q", got)
	}
	if got := string(with(new(NodeList), NodeLine{Node: "ws1"}).Without("ws1").bytes()); got != "" {
		t.Errorf("without its only line the list is %q", got)
	}
	if with(l2, NodeLine{Node: "ws2", Key: keyOf(2)}) != l2 || l3.Without("ws9") != l3 {
		t.Error("a change that changes nothing makes another list")
	}
	for _, tt := range []struct {
		n    NodeLine
		want string
	}{
		{NodeLine{Node: "ws2", Key: keyOf(3)}, "ws2 is known by " + string(keyOf(2)) + " (dadm remove ws2 first)"},
		{NodeLine{Node: "ws2"}, "dadm remove ws2 first"},
		{NodeLine{Node: "ws4", Key: keyOf(2)}, string(keyOf(2)) + " is that of ws2"},
		{NodeLine{Node: "ws4", Addr: "ssh://desk3"}, "ssh://desk3 is that of ws3"},
	} {
		if _, err := l3.With(tt.n); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.n, err, tt.want)
		}
	}
}

// X97: a list in which others may have a hand is not taken.
func TestX97NodesOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := s.ReadNodes(); err != nil || len(l.Lines()) > 0 {
		t.Fatalf("no list is %v, %v", l, err)
	}
	name := filepath.Join(dir, "keys", "nodes")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(name), os.WriteFile(name, []byte(text), 0o600), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		make func()
		want string
	}{
		{func() { write("ws1 -\n", 0o640) }, "chmod 600"},
		{func() { write("ws1 -\n", 0o602) }, "chmod 600"},
		{func() { write("ws1\n", 0o600) }, name + ":1: a line is"},
		{func() { write(strings.Repeat("#", MaxNodeList+1), 0o600) }, "is the limit"},
		{func() { write("", 0o600); os.Remove(name); os.Mkdir(name, 0o700) }, "no regular file"},
		{func() { os.RemoveAll(name); os.Symlink("/etc/hostname", name) }, "symbolic link"},
	} {
		tt.make()
		if _, err := s.ReadNodes(); !errors.Is(err, ErrNodes) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	write("ws1 -\n", 0o600)
	if os.Getuid() == 0 {
		if err := os.Chown(name, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReadNodes(); !errors.Is(err, ErrNodes) || !strings.Contains(err.Error(), "belongs to uid 12345") {
			t.Errorf("the list of another user: %v", err)
		}
	}
}

// FuzzParseNodes holds that what is read is what is written, and that no list
// lets two names in by one key.
func FuzzParseNodes(f *testing.F) {
	f.Add([]byte(fmt.Sprintf("# x\nws1 %s #y\nws2 -\nws3 ssh://a@b:1\n", keyOf(1))))
	f.Add([]byte("ws1 -\nws1 -"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, wrong := ParseNodes(text)
		again, wrongAgain := ParseNodes(l.bytes())
		if !l.Same(again) || len(wrong) != len(wrongAgain) {
			t.Fatalf("read as %v (%v), and again as %v (%v)", l.nodes, wrong, again.nodes, wrongAgain)
		}
		by := map[string]bool{}
		for _, n := range l.Lines() {
			if !n.Shut() && by[n.By()] {
				t.Fatalf("two nodes with %s", n.By())
			}
			by[n.By()] = true
		}
		if wrong != nil {
			return
		}
		for _, n := range l.Lines() {
			if l = l.Without(n.Node); l.Same(again) {
				t.Fatalf("%s stays", n.Node)
			}
		}
	})
}
