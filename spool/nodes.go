package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/node"
)

// MaxNodeList is how many bytes keys/nodes may have.
const MaxNodeList = 4 << 20

// maxMistakes is how many mistakes in it are told of at a time.
const maxMistakes = 20

// A NodeLine is a line of keys/nodes: by what a node is known. With neither key
// nor address nobody is let in by that name.
type NodeLine struct {
	Node node.Name
	Key  node.Fingerprint // that it proves
	Addr string           // ssh://[user@]host[:port], where the head starts it
	Line int              // from 1; 0: in no file yet
}

// Shut says that nobody is let in by the line's name.
func (l NodeLine) Shut() bool { return l.Key == "" && l.Addr == "" }

// By is the second word of the line.
func (l NodeLine) By() string {
	switch {
	case l.Key != "":
		return string(l.Key)
	case l.Addr != "":
		return l.Addr
	}
	return "-"
}

// is says that both lines say the same.
func (l NodeLine) is(o NodeLine) bool { return l.Node == o.Node && l.Key == o.Key && l.Addr == o.Addr }

// ReadNodeLine reads the two words of a line. The address is looked at as far as
// it decides where it ends: what ssh takes is for lib/dial to say.
func ReadNodeLine(name, by string) (NodeLine, error) {
	l := NodeLine{Node: node.Name(name)}
	if err := job.CheckName(name); err != nil {
		return l, err
	}
	host, ssh := strings.CutPrefix(by, "ssh://")
	switch {
	case by == "-":
		return l, nil
	case ssh && (host == "" || strings.Contains(host, "/") || strings.HasPrefix(host, "-")):
		return l, fmt.Errorf("%.200q is no address of a node: it is ssh://[user@]host[:port]", by)
	case ssh:
		l.Addr = by
		return l, nil
	case strings.HasPrefix(by, "SHA256:"):
		l.Key = node.Fingerprint(by)
		return l, l.Key.Check()
	}
	return l, fmt.Errorf("%.60q is neither a fingerprint (SHA256: and 43 characters) nor ssh://[user@]host[:port], nor -", by)
}

// A NodeList is what keys/nodes says. It does not change; the zero value is
// empty.
type NodeList struct {
	text  []string // its lines, as they are
	nodes []NodeLine
}

// A NodeMistake is a line of keys/nodes that says nothing that is understood.
type NodeMistake struct {
	Line int // from 1
	Why  string
}

// ParseNodes reads keys/nodes, and tells every line that is wrong.
func ParseNodes(text []byte) (*NodeList, []NodeMistake) {
	l := &NodeList{}
	var wrong []NodeMistake
	names, keys := map[node.Name]int{}, map[string]int{}
	for line := range strings.Lines(string(text)) {
		l.text = append(l.text, strings.TrimSuffix(line, "\n"))
		at := len(l.text)
		words, _ := nodeWords(line)
		if len(words) == 0 {
			continue
		}
		n, err := readNodeWords(words)
		switch {
		case err != nil:
		case names[n.Node] > 0:
			err = fmt.Errorf("%s stands in line %d already", n.Node, names[n.Node])
		case !n.Shut() && keys[n.By()] > 0:
			err = fmt.Errorf("%s stands in line %d already: two nodes cannot have it", n.By(), keys[n.By()])
		}
		if err != nil {
			wrong = append(wrong, NodeMistake{at, err.Error()})
			continue
		}
		n.Line = at
		names[n.Node], keys[n.By()] = at, at
		l.nodes = append(l.nodes, n)
	}
	return l, wrong
}

// nodeWords is the words of a line, and the comment behind them with the blanks
// before it.
func nodeWords(line string) (words []string, comment string) {
	for i, r := range line {
		if r == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			before := strings.TrimRight(line[:i], " \t")
			line, comment = before, strings.TrimRight(line[len(before):], "\r\n")
			break
		}
	}
	return strings.Fields(line), comment
}

func readNodeWords(words []string) (NodeLine, error) {
	if len(words) != 2 {
		return NodeLine{}, errors.New("a line is a node and by what it is known: NAME SHA256:..., NAME ssh://HOST, or NAME - (comments begin with #)")
	}
	return ReadNodeLine(words[0], words[1])
}

// Lines is what the list says of each node, in its order.
func (l *NodeList) Lines() []NodeLine { return slices.Clone(l.nodes) }

// Named is the line of a node.
func (l *NodeList) Named(n node.Name) (NodeLine, bool) {
	return l.first(func(o NodeLine) bool { return o.Node == n })
}

// WithKey is the line of the node that has the key.
func (l *NodeList) WithKey(k node.Fingerprint) (NodeLine, bool) {
	return l.first(func(o NodeLine) bool { return k != "" && o.Key == k })
}

func (l *NodeList) first(is func(NodeLine) bool) (NodeLine, bool) {
	if i := slices.IndexFunc(l.nodes, is); i >= 0 {
		return l.nodes[i], true
	}
	return NodeLine{}, false
}

// With is the list with one line more, or the list itself if that is there. A
// node that is shut out gets the line instead of that. One that is known by
// something else, and a key or an address that is another node's, is an error
// that says what to do.
func (l *NodeList) With(n NodeLine) (*NodeList, error) {
	old, there := l.Named(n.Node)
	other, taken := l.first(func(o NodeLine) bool { return o.Node != n.Node && !n.Shut() && o.By() == n.By() })
	switch {
	case there && old.is(n):
		return l, nil
	case there && !old.Shut():
		return nil, fmt.Errorf("%s is known by %s (dadm remove %s first)", n.Node, old.By(), n.Node)
	case taken:
		return nil, fmt.Errorf("%s is that of %s (dadm remove %s first)", n.By(), other.Node, other.Node)
	}
	text := slices.Clone(l.text)
	if there {
		_, comment := nodeWords(text[old.Line-1])
		text[old.Line-1] = string(n.Node) + " " + n.By() + comment
	} else {
		text = append(text, string(n.Node)+" "+n.By())
	}
	return parsed(text), nil
}

// Without is the list without the line of a node, or the list itself.
func (l *NodeList) Without(n node.Name) *NodeList {
	old, there := l.Named(n)
	if !there {
		return l
	}
	return parsed(slices.Delete(slices.Clone(l.text), old.Line-1, old.Line))
}

// parsed is the list of these lines, which are right.
func parsed(text []string) *NodeList {
	l, _ := ParseNodes((&NodeList{text: text}).bytes())
	return l
}

// bytes is the list as a file.
func (l *NodeList) bytes() []byte {
	if len(l.text) == 0 {
		return nil
	}
	return []byte(strings.Join(l.text, "\n") + "\n")
}

// Same says that two lists let the same nodes in.
func (l *NodeList) Same(o *NodeList) bool {
	return maps.Equal(l.byName(), o.byName())
}

func (l *NodeList) byName() map[node.Name]string {
	m := make(map[node.Name]string, len(l.nodes))
	for _, n := range l.nodes {
		m[n.Node] = n.By()
	}
	return m
}

// ErrNodes is what every error of a list of nodes is that is there and is not
// taken: who may write it, or what it says.
var ErrNodes = errors.New("the list of nodes is not taken")

// ReadNodes reads keys/nodes, which says who is let in as a node. One that is
// missing is empty. Only its owner may have a hand in it; otherwise, and if a
// line is wrong, it is ErrNodes, and the error says what to do.
func (s *Spool) ReadNodes() (*NodeList, error) {
	name := s.NodesFile()
	text, err := s.readNodeFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &NodeList{}, nil
	}
	if err != nil {
		return nil, err
	}
	l, wrong := ParseNodes(text)
	if wrong == nil {
		return l, nil
	}
	var errs []error
	for _, m := range wrong[:min(len(wrong), maxMistakes)] {
		errs = append(errs, fmt.Errorf("%s:%d: %s", name, m.Line, m.Why))
	}
	if more := len(wrong) - maxMistakes; more > 0 {
		errs = append(errs, fmt.Errorf("and %d lines more that are wrong", more))
	}
	return nil, fmt.Errorf("%w: %w", ErrNodes, errors.Join(errs...))
}

// readNodeFile reads the file, if it is the owner's alone.
func (s *Spool) readNodeFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: %q is a symbolic link (put the file itself there)", ErrNodes, name)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: %w (chown it to the user who runs dsched)", ErrNodes, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %q is no regular file", ErrNodes, name)
	case owner != s.uid:
		return nil, fmt.Errorf("%w: %q belongs to uid %d, and the spool to %d (chown it)", ErrNodes, name, owner, s.uid)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%w: %q has mode %#o, so others have a hand in it (chmod 600 %s)", ErrNodes, name, info.Mode().Perm(), name)
	case info.Size() > MaxNodeList:
		return nil, fmt.Errorf("%w: %q has %d bytes, and %d is the limit", ErrNodes, name, info.Size(), MaxNodeList)
	}
	return io.ReadAll(io.LimitReader(f, MaxNodeList))
}

// WriteNodes replaces keys/nodes, durably.
func (h *Head) WriteNodes(l *NodeList) error {
	return durable.WriteFile(h.NodesFile(), l.bytes(), 0o600)
}
