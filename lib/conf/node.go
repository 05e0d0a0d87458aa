package conf

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/msg"

	"gopkg.in/yaml.v3"
)

// A Node is a value at its place in a document. The Node of a key that is left
// out, or whose value is null, is absent: its getters return zero values and
// note nothing, and its place is that of the mapping, or of the null.
type Node struct {
	d     *Doc
	n     *yaml.Node // nil: left out
	at    *yaml.Node // of a node that is left out: the mapping it is missing from
	label string     // the key it was found under
}

// A Pair is a key of a mapping and its value.
type Pair struct {
	Name string
	Key  Node
	Node
}

// Keys says which keys a mapping may have.
type Keys struct {
	Known   []string          // in the order in which a person would be told of them
	Refused map[string]string // keys that people will try, and the whole message for each
}

// Absent says that the key is left out, or is null.
func (n Node) Absent() bool { return n.n == nil || absent(n.n) }

func absent(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// IsList, IsMap and IsText say what the value is; an absent one is nothing.
func (n Node) IsList() bool { return n.n != nil && deref(n.n).Kind == yaml.SequenceNode }

// IsMap says that the value is a mapping.
func (n Node) IsMap() bool { return n.n != nil && deref(n.n).Kind == yaml.MappingNode }

// IsText says that the value is a scalar.
func (n Node) IsText() bool { return !n.Absent() && deref(n.n).Kind == yaml.ScalarNode }

// Place is where the value begins.
func (n Node) Place() Place {
	at := n.n
	if at == nil {
		at = n.at
	}
	if at == nil {
		return Place{File: n.d.name, Line: 1, Col: 1}
	}
	return Place{File: n.d.name, Line: max(at.Line, 1), Col: max(at.Column, 1)}
}

// Errorf notes a mistake at the value's place.
func (n Node) Errorf(format string, a ...any) { n.d.Errorf(n.Place(), format, a...) }

// deref follows aliases, which have been checked to end.
func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// node makes a Node of a library node found under a key.
func (d *Doc) node(n *yaml.Node, label string) Node {
	if n.Kind == yaml.AliasNode && absent(deref(n)) {
		n = deref(n)
	}
	return Node{d: d, n: n, label: label}
}

// wrong notes that the value is not of the wanted type.
func (n Node) wrong(want, remedy string) {
	is := map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a text"}[deref(n.n).Kind]
	if remedy != "" {
		remedy = ": " + remedy
	}
	if n.label == "" {
		n.Errorf("%s is wanted here, not %s%s", want, is, remedy)
	} else {
		n.Errorf("%s must be %s, not %s%s", msg.Quote(n.label), want, is, remedy)
	}
}

// Text is the scalar's text as it stands in the file, "" if absent. A list or
// mapping is a mistake.
func (n Node) Text() string {
	switch {
	case n.Absent():
		return ""
	case !n.IsText():
		n.wrong("a text", "")
		return ""
	}
	return deref(n.n).Value
}

// Int is the scalar as a whole decimal number from lo to hi, 0 if absent or
// wrong.
func (n Node) Int(lo, hi int64) int64 {
	if n.Absent() {
		return 0
	}
	want := fmt.Sprintf("a whole number from %d to %d", lo, hi)
	if !n.IsText() {
		n.wrong(want, "")
		return 0
	}
	s := deref(n.n).Value
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < lo || v > hi || strings.HasPrefix(s, "+") {
		n.Errorf("%s must be %s, not %s", msg.Quote(n.label), want, msg.Quote(s))
		return 0
	}
	return v
}

// Bool is the scalar true or false, false if absent or wrong.
func (n Node) Bool() bool {
	s := n.Text()
	if s != "true" && s != "false" && n.IsText() {
		n.Errorf("%s must be true or false, not %s", msg.Quote(n.label), msg.Quote(s))
	}
	return s == "true"
}

// List is the values of a list, nil if absent. Anything else is a mistake,
// told with the remedy, if there is one. An entry may be absent.
func (n Node) List(remedy string) []Node {
	if n.Absent() {
		return nil
	}
	if !n.IsList() {
		n.wrong("a list", remedy)
		return nil
	}
	content := deref(n.n).Content
	out := make([]Node, len(content))
	for i, c := range content {
		out[i] = n.d.node(c, n.label)
	}
	return out
}

// Fill is a copy of the value, at the same places, in which every text that is no key
// is what f makes of it; key is the one it was found under. YAML reads braces that
// are not quoted as a mapping: where isPlace knows the only name in such braces, they
// are the text that is written.
func (n Node) Fill(isPlace func(name string) bool, f func(key string, at Node, text string) string) Node {
	if n.n == nil {
		return n
	}
	n.n = n.fill(n.n, isPlace, f)
	return n
}

func (n Node) fill(from *yaml.Node, isPlace func(string) bool, f func(string, Node, string) string) *yaml.Node {
	if from.Kind == yaml.AliasNode {
		n.n = from
		from = deref(from)
	} else {
		n.n = from
	}
	to := *from
	if n.n.Kind == yaml.AliasNode { // mistakes are told where the alias stands
		to.Line, to.Column = n.n.Line, n.n.Column
	}
	to.Anchor, to.Content = "", nil
	switch c := from.Content; {
	case from.Kind == yaml.ScalarNode && !absent(from):
		to.Value = f(n.label, n, from.Value)
	case from.Kind == yaml.MappingNode && len(c) == 2 && from.Style&yaml.FlowStyle != 0 && c[0].Kind == yaml.ScalarNode &&
		c[1].Kind == yaml.ScalarNode && c[1].Value == "" && absent(c[1]) && isPlace(c[0].Value):
		to.Kind, to.Tag, to.Style = yaml.ScalarNode, "!!str", 0
		to.Value = f(n.label, n, "{"+c[0].Value+"}")
	case from.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(c); i += 2 {
			under := Node{d: n.d, label: deref(c[i]).Value}
			to.Content = append(to.Content, c[i], under.fill(c[i+1], isPlace, f))
		}
	case from.Kind == yaml.SequenceNode:
		for _, e := range c {
			to.Content = append(to.Content, n.fill(e, isPlace, f))
		}
	}
	return &to
}

// Texts is a list of scalars; entries that are absent are mistakes.
func (n Node) Texts(remedy string) []string {
	var out []string
	for _, e := range n.List(remedy) {
		if e.Absent() {
			e.Errorf("an entry of %s is empty: remove it, or quote it if it is meant as text", msg.Quote(n.label))
			continue
		}
		out = append(out, e.Text())
	}
	return out
}

// Amounts is a mapping of at most so many names, each of which check takes, to whole
// numbers from 1 to most, as {matlab: 2}.
func (n Node) Amounts(check func(name string) error, most int64, names int) map[string]int {
	of := map[string]int{}
	for _, p := range n.AnyMap().Pairs() {
		err := check(p.Name)
		switch {
		case len(of) == names:
			p.Key.Errorf("more than %d names are counted, which is the limit", names)
			return of
		case err != nil:
			p.Key.Errorf("%v", err)
		case p.Absent():
			p.Key.Errorf("say how much there is of %q: a whole number from 1 to %d", p.Name, most)
		default:
			if k := p.Int(1, most); k > 0 {
				of[p.Name] = int(k)
			}
		}
	}
	return of
}

// A Map is a mapping whose keys have been checked.
type Map struct {
	at    Node
	pairs []Pair
	index map[string]int // pairs by name, if they are many
	meant []string       // missing keys of which a near one is here
}

// Map is the mapping with the keys that are known, empty if absent. Anything
// else than a mapping, a key that is not known, one that is refused, and one
// that stands twice are mistakes.
func (n Node) Map(keys Keys) Map {
	m := n.AnyMap()
	for i := range m.pairs {
		p := &m.pairs[i]
		if n.d.Full() {
			break
		}
		if known(keys.Known, p.Name) {
			continue
		}
		if text, ok := keys.Refused[p.Name]; ok {
			p.Key.Errorf("%s", text)
			continue
		}
		near := msg.Nearest(p.Name, slices.DeleteFunc(slices.Clone(keys.Known), m.has))
		m.meant = append(m.meant, near)
		p.Key.Errorf("unknown key %s%s", msg.Quote(p.Name), cmp.Or(msg.Meant(near), n.knownKeys(keys.Known)))
	}
	return m
}

func known(keys []string, name string) bool {
	for _, k := range keys {
		if k == name {
			return true
		}
	}
	return false
}

func (n Node) knownKeys(keys []string) string {
	if n.label == "" {
		return fmt.Sprintf(" (known here: %s)", strings.Join(keys, ", "))
	}
	return fmt.Sprintf(" (known in %s: %s)", msg.Quote(n.label), strings.Join(keys, ", "))
}

// AnyMap is the mapping with whatever keys it has. A key that stands twice, or
// is no text, is a mistake.
func (n Node) AnyMap() Map {
	m := Map{at: n}
	if n.Absent() {
		return m
	}
	if !n.IsMap() {
		n.wrong("a mapping", `write "key: value", a line each`)
		m.at.n = nil
		return m
	}
	m.pairs = make([]Pair, 0, len(deref(n.n).Content)/2)
	m.add(n.d, deref(n.n), false)
	return m
}

// add takes the pairs of a mapping into m; of a merged one only those that are
// not there yet.
func (m *Map) add(d *Doc, n *yaml.Node, merged bool) {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name := deref(k)
		if name.Kind != yaml.ScalarNode {
			d.node(k, "").Errorf("a key must be a text")
			continue
		}
		if name.Tag == "!!merge" {
			merges = append(merges, v)
			continue
		}
		first := m.find(name.Value)
		switch {
		case first < 0:
			m.put(Pair{name.Value, d.node(k, name.Value), d.node(v, name.Value)})
		case !merged:
			d.node(k, "").Errorf("key %s is here twice (the first time in line %d): remove one",
				msg.Quote(name.Value), m.pairs[first].Key.Place().Line)
		}
	}
	for _, v := range merges {
		m.merge(d, v)
	}
}

// put adds a pair. Long mappings get an index.
func (m *Map) put(p Pair) {
	m.pairs = append(m.pairs, p)
	switch {
	case m.index != nil:
		m.index[p.Name] = len(m.pairs) - 1
	case len(m.pairs) == 20:
		m.index = make(map[string]int)
		for i := range m.pairs {
			m.index[m.pairs[i].Name] = i
		}
	}
}

// find is the index of the pair with that name, -1 if there is none.
func (m *Map) find(name string) int {
	if m.index != nil {
		if i, ok := m.index[name]; ok {
			return i
		}
		return -1
	}
	for i := range m.pairs {
		if m.pairs[i].Name == name {
			return i
		}
	}
	return -1
}

// merge takes what stands after << into m: a mapping, or a list of mappings.
func (m *Map) merge(d *Doc, v *yaml.Node) {
	switch t := deref(v); t.Kind {
	case yaml.MappingNode:
		m.add(d, t, true)
	case yaml.SequenceNode:
		for _, e := range t.Content {
			if deref(e).Kind != yaml.MappingNode {
				d.node(e, "").Errorf(`after "<<" comes a mapping, or a list of mappings`)
				continue
			}
			m.add(d, deref(e), true)
		}
	default:
		d.node(v, "").Errorf(`after "<<" comes a mapping, or a list of mappings`)
	}
}

// Has says that there is a mapping, so that a missing key can be blamed.
func (m Map) Has() bool { return m.at.n != nil && !m.at.Absent() }

// Pairs is every pair in the order of the file, merged ones last.
func (m Map) Pairs() []Pair { return m.pairs }

// Key is the key itself, for messages about it; absent if left out.
func (m Map) Key(name string) Node {
	if i := m.find(name); i >= 0 {
		return m.pairs[i].Key
	}
	return Node{d: m.at.d, at: m.at.n, label: name}
}

func (m Map) has(name string) bool { return m.find(name) >= 0 }

// Get is the value of a key, absent if it is left out.
func (m Map) Get(name string) Node {
	if i := m.find(name); i >= 0 {
		return m.pairs[i].Node
	}
	return Node{d: m.at.d, at: m.at.n, label: name}
}

// Need is Get; that the key is left out or empty is a mistake, unless the
// whole mapping is missing, or a key near it is here, which has been told.
func (m Map) Need(name string) Node {
	n := m.Get(name)
	switch {
	case !m.Has():
	case n.n == nil && slices.Contains(m.meant, name):
	case n.n == nil && m.at.label != "":
		m.at.Errorf("%s is missing in %s", msg.Quote(name), msg.Quote(m.at.label))
	case n.n == nil:
		m.at.Errorf("%s is missing", msg.Quote(name))
	case n.Absent():
		n.Errorf("%s is empty", msg.Quote(name))
	}
	return n
}
