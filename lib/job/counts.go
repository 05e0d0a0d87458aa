package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/capability"
	"distribute/lib/line"
	"distribute/lib/msg"
)

// Counts is how much there is, or is asked for, of things that are counted by a name,
// as licences: "comsol=1 matlab=2", in the order of the names, and nothing of what
// there is none. Counts that are equal are equal texts, and the zero one is nothing.
// Adding and comparing cost a step a name.
type Counts string

// The most that is counted.
const (
	MaxCount  = 1_000_000 // of a name
	MaxCounts = 64        // names that a node, the site, or a job may have
)

// slips are what people write for resources that have another name.
var slips = map[string]string{"core": "cpus", "cores": "cpus", "ncpus": "cpus", "thread": "cpus", "threads": "cpus", "ram": "memory", "mem": "memory",
	"card": "gpus", "cards": "gpus", "walltime": "time", "duration": "time", "mpi": "mpi"}

// CheckCount reports why s cannot be the name of what is counted: such a name has small
// letters, digits and . _ - only, begins with a letter, and is none that means
// something else in resources or capabilities, nor hardly different from one; but many short
// names differ as little from mpi. Members of lines of JSON are named by them, and no key of these
// has a capital.
func CheckCount(s string) error {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("._-", r))
	}) < 0
	meant := slips[strings.ToLower(s)]
	if meant == "" {
		meant = msg.Nearest(s, slices.DeleteFunc(slices.Clone(ResourceNames), func(name string) bool { return name == "mpi" }))
	}
	switch {
	case slices.Contains(ResourceNames, s):
		return fmt.Errorf("%s is a resource of jobs, and not counted by its name", msg.Quote(s))
	case meant != "":
		return fmt.Errorf("%s is nothing that is counted by its name%s", msg.Quote(s), msg.Meant(meant))
	case s != strings.ToLower(s) && CheckCount(strings.ToLower(s)) == nil:
		return fmt.Errorf("%s has capitals, and names of what is counted have none: write %q", msg.Quote(s), strings.ToLower(s))
	case s == "" || len(s) > MaxName || !plain || s[0] < 'a':
		return fmt.Errorf("%s is no name for what is counted: it has small letters, digits and . _ - only, begins with a letter, and has at most %d bytes", msg.Quote(s), MaxName)
	case slices.Contains(capability.Keys(), s):
		return fmt.Errorf("%s is a key of capabilities, and not counted by its name", msg.Quote(s))
	}
	return nil
}

// CountsOf is the counts of a map. The error names the first that cannot be.
func CountsOf(of map[string]int) (c Counts, err error) {
	if len(of) > MaxCounts {
		return "", fmt.Errorf("%d names are counted, and %d is the limit", len(of), MaxCounts)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if err := CheckCount(name); err != nil {
			return "", err
		}
		if n := of[name]; n < 1 || n > MaxCount {
			return "", fmt.Errorf("%d of %s make no sense", n, name)
		}
		c = c.and(name, of[name])
	}
	return c, nil
}

// and is c with a name at its end.
func (c Counts) and(name string, n int) Counts {
	if c != "" {
		c += " "
	}
	return c + Counts(name+"="+strconv.Itoa(n))
}

// All is all names in order, with how much of each.
func (c Counts) All() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for c != "" {
			var word string
			word, c = c.cut()
			name, n := amount(word)
			if !yield(name, n) {
				return
			}
		}
	}
}

// cut is the first word of c and what follows it.
func (c Counts) cut() (word string, rest Counts) {
	word, after, _ := strings.Cut(string(c), " ")
	return word, Counts(after)
}

func amount(word string) (name string, n int) {
	name, text, _ := strings.Cut(word, "=")
	n, _ = strconv.Atoi(text) // ours
	return name, n
}

// Of is how much of a name there is.
func (c Counts) Of(name string) int {
	for has, n := range c.All() {
		if has == name {
			return n
		}
	}
	return 0
}

// Words is a text for each name, as "matlab=2".
func (c Counts) Words() []string { return strings.Fields(string(c)) }

// With is c with n of a name, in the place of what it has of that.
func (c Counts) With(name string, n int) Counts {
	return c.Minus(Counts("").and(name, c.Of(name))).Plus(Counts("").and(name, n))
}

// Plus is all of both.
func (c Counts) Plus(o Counts) Counts { return c.add(o, 1) }

// Minus is what is left of c without o.
func (c Counts) Minus(o Counts) Counts { return c.add(o, -1) }

// add merges two counts, the second with a sign.
func (c Counts) add(o Counts, sign int) (sum Counts) {
	if o == "" {
		return c
	}
	for c != "" || o != "" {
		word, cRest := c.cut()
		other, oRest := o.cut()
		name, n := amount(word)
		oName, more := amount(other)
		switch {
		case o == "" || c != "" && name < oName:
			c = cRest
		case c == "" || oName < name:
			name, n, o = oName, sign*more, oRest
		default:
			n, c, o = n+sign*more, cRest, oRest
		}
		if n > 0 {
			sum = sum.and(name, n)
		}
	}
	return sum
}

// AppendJSON appends the counts as a JSON object.
func (c Counts) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	for name, n := range c.All() {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return append(b, '}')
}

// ScanJSON reads such an object, if it is written as AppendJSON writes it.
func (c *Counts) ScanJSON(s *line.Scan) bool {
	text := s.B[s.I:]
	text = text[:bytes.IndexByte(text, '}')+1]
	if c.UnmarshalJSON(text) != nil || !bytes.Equal(c.AppendJSON(nil), text) {
		return false
	}
	s.I += len(text)
	return true
}

// MarshalJSON writes a JSON object, with a member for each name.
func (c Counts) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// UnmarshalJSON reads such an object. One with what cannot be counted is an error.
func (c *Counts) UnmarshalJSON(b []byte) (err error) {
	var of map[string]int
	if err := json.Unmarshal(b, &of); err != nil {
		return err
	}
	*c, err = CountsOf(of)
	return err
}
