package conf

import (
	"strings"
	"unicode/utf8"

	"distribute/lib/msg"

	"gopkg.in/yaml.v3"
)

// notText notes what keeps data from being the UTF-8 text that YAML is.
func (d *Doc) notText(data []byte) {
	at := Place{File: d.name, Line: 1, Col: 1}
	switch {
	case len(data) == 0:
		d.Errorf(at, "the file is empty")
		return
	case len(data) >= 2 && (data[0] == 0xff && data[1] == 0xfe || data[0] == 0xfe && data[1] == 0xff):
		d.Errorf(at, "the file is UTF-16: save it as UTF-8")
		return
	}
	for i := 0; i < len(data); {
		c := data[i]
		if ' ' <= c && c < 0x7f || c == '\t' {
			i, at.Col = i+1, at.Col+1
			continue
		}
		if c == '\n' || c == '\r' {
			if c == '\n' || i+1 == len(data) || data[i+1] != '\n' {
				at.Line, at.Col = at.Line+1, 1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			d.Errorf(at, "the file is not UTF-8 text: byte 0x%02x", c)
			return
		case r == 0:
			d.Errorf(at, "the file is not text: it holds a zero byte")
			return
		case r < ' ' || 0x7f <= r && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff || r == 0xfeff:
			d.Errorf(at, "the file holds the control character %U: remove it, or write it as an escape in double quotes", r)
			return
		}
		i, at.Col = i+n, at.Col+1
	}
}

// coreTags are the tags of YAML's own types that may be written out.
var coreTags = "!!str !!int !!float !!bool !!null !!map !!seq !!timestamp !!merge"

// A measure is how many values a node stands for, aliases followed, and how
// deep they nest.
type measure struct {
	size  int64
	depth int
}

// A checker looks at every node once. Those with an anchor are remembered, so
// that the cost does not depend on what aliases would make of the document.
type checker struct {
	d    *Doc
	done map[*yaml.Node]measure
	open map[*yaml.Node]bool // nodes with an anchor that are being looked at
	told bool                // that the nesting is too deep
}

// check notes aliases that contain themselves or grow without bound, nesting
// that is too deep, and tags of other types. After it a walk ends.
func (d *Doc) check() {
	c := checker{d: d, done: map[*yaml.Node]measure{}, open: map[*yaml.Node]bool{}}
	plain := count(d.root, 0)
	m := c.measure(d.root, 0)
	if m.size > plain+MaxAliased && !d.Any() {
		d.Errorf(Place{File: d.name}, "its aliases would make it %d values long, more than the limit of %d: write fewer of them", m.size, plain+MaxAliased)
	}
}

// count is the number of nodes that stand in the file.
func count(n *yaml.Node, depth int) int64 {
	total := int64(1)
	if depth <= MaxDepth {
		for _, c := range n.Content {
			total += count(c, depth+1)
		}
	}
	return total
}

func (c *checker) measure(n *yaml.Node, depth int) measure {
	if n.Kind == yaml.AliasNode {
		return c.alias(n, depth)
	}
	if depth > MaxDepth {
		if !c.told {
			c.told = true
			c.d.node(n, "").Errorf("lists and mappings are nested more than %d deep", MaxDepth)
		}
		return measure{size: 1}
	}
	if n.Style&yaml.TaggedStyle != 0 && !tagged(n.Tag) {
		c.d.node(n, "").Errorf("tag %s is not known: remove it", msg.Quote(n.Tag))
	}
	if n.Anchor != "" {
		c.open[n] = true
		defer delete(c.open, n)
	}
	m := measure{size: 1}
	for _, child := range n.Content {
		cm := c.measure(child, depth+1)
		m.size = min(m.size+cm.size, 1<<60)
		m.depth = max(m.depth, cm.depth+1)
	}
	if n.Anchor != "" {
		c.done[n] = m
	}
	return m
}

func (c *checker) alias(n *yaml.Node, depth int) measure {
	if c.open[n.Alias] {
		c.d.Errorf(Node{d: c.d, n: n}.Place(), "alias %s stands inside of what it names", msg.Quote("*"+n.Value))
		return measure{size: 1}
	}
	m := c.done[n.Alias]
	if depth+m.depth > MaxDepth && !c.told {
		c.told = true
		c.d.Errorf(Node{d: c.d, n: n}.Place(), "lists and mappings are nested more than %d deep", MaxDepth)
	}
	return m
}

func tagged(tag string) bool {
	for t := range strings.FieldsSeq(coreTags) {
		if t == tag {
			return true
		}
	}
	return false
}
