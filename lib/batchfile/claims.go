package batchfile

import "strings"

// claims is which places of a job's directory are taken, and by which source.
// A directory that a file needs is taken by -1.
type claims struct {
	outer *claims
	at    []placed
	index map[string]int32 // places of a long list
}

func newClaims(outer *claims) *claims { return &claims{outer: outer} }

// find is the source at a place; -1 and true for a directory.
func (c *claims) find(place string) (int32, bool) {
	for ; c != nil; c = c.outer {
		if c.index != nil {
			if src, ok := c.index[place]; ok {
				return src, true
			}
			continue
		}
		for _, p := range c.at {
			if p.place == place {
				return p.src, true
			}
		}
	}
	return 0, false
}

// free says that a file can lie at the place: nothing lies there, and none of
// the directories above is a file.
func (c *claims) free(place string) bool {
	if _, ok := c.find(place); ok {
		return false
	}
	for i := strings.LastIndexByte(place, '/'); i > 0; i = strings.LastIndexByte(place[:i], '/') {
		if src, ok := c.find(place[:i]); ok {
			return src < 0
		}
	}
	return true
}

// take claims a free place and the directories above it.
func (c *claims) take(p placed) {
	c.put(p)
	for i := strings.LastIndexByte(p.place, '/'); i > 0; i = strings.LastIndexByte(p.place[:i], '/') {
		if _, ok := c.find(p.place[:i]); ok {
			return
		}
		c.put(placed{p.place[:i], -1})
	}
}

func (c *claims) put(p placed) {
	if c.index != nil {
		c.index[p.place] = p.src
		return
	}
	c.at = append(c.at, p)
	if len(c.at) > 16 {
		c.index = make(map[string]int32, 64)
		for _, p := range c.at {
			c.index[p.place] = p.src
		}
	}
}
