// Package capability has what a batch wants of its nodes in words: capabilities. See
// dbatch(5), CAPABILITIES.
package capability

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"distribute/lib/match"
	"distribute/lib/msg"
	"distribute/lib/unit"
)

// Facts are what is known of a node.
type Facts struct {
	Node         string
	CPUs         int   // offered
	Memory       int64 // bytes, offered
	Disk         int64 // bytes that are free where jobs work
	Arch         string
	GPUs         []GPU // offered
	Capabilities []string
	MPI          bool // mpirun starts ranks there, if it has one
	Secrets      bool // it gives jobs their secrets
}

// A GPU is one of a node.
type GPU struct {
	Index  int
	Model  string
	Memory int64 // bytes
}

// An Expr is one entry of a list of capabilities: alternatives, of which one must
// hold. The zero Expr holds nowhere.
type Expr struct {
	text  string
	terms []term
}

// A term is one alternative.
type term struct {
	not  bool
	fits func(*Facts) bool
	card func(*GPU) bool // of a key of GPUs: whether one of them fits; else nil
}

// RanksByMPI is the entry of a job whose ranks mpirun is to start. The capability mpirun does not
// do: a node of an earlier release may have it, and would start each rank by itself.
const RanksByMPI = "mpirun for ranks"

// TakesSecrets is the entry of a batch with secrets: a node of an earlier release would run its jobs
// without them.
const TakesSecrets = "secrets for jobs"

// MaxTerms is how many alternatives an entry may have.
const MaxTerms = 64

// Parse reads one entry. The error names what is wrong with which of its terms,
// and what to write.
func Parse(s string) (Expr, error) {
	parts := strings.Split(s, "|")
	if len(parts) > MaxTerms {
		return Expr{}, match.Errorf("an entry has %d alternatives: at most %d", len(parts), MaxTerms)
	}
	var e Expr
	for i, part := range parts {
		if part = strings.TrimSpace(part); part == "" {
			return Expr{}, match.Errorf("%q: an alternative is empty", s)
		}
		t, err := parse(part)
		if err != nil {
			return Expr{}, err
		}
		parts[i], e.terms = part, append(e.terms, t)
	}
	e.text = strings.Join(parts, "|")
	return e, nil
}

// Written is Parse of what a person asks for now: a few bytes without a unit are a mistake, and so is
// a capability behind a regular expression, of which the | would be.
func Written(s string) (Expr, error) {
	e, err := Parse(s)
	before, alone := "", ""
	for part := range strings.SplitSeq(e.text, "|") {
		key, op, val, measured := match.Cut(strings.TrimPrefix(part, "!"))
		if err != nil {
			continue
		}
		if !measured {
			if before != "" && part[0] != '!' {
				return Expr{}, match.Errorf("%q: after | comes another alternative, and %s by itself is a capability: write %s%s%s, or the capability before the expression", s, part, before, part, alone)
			}
			continue
		}
		if before, alone = "", ""; op == "~" {
			before = part[:strings.Index(part, op)+1]
		}
		if part[0] == '!' {
			alone = " as another entry" // not one of both
		}
		if few := match.NoUnit(keys[strings.TrimSpace(key)].kind, strings.TrimSpace(val)); few != nil {
			return Expr{}, match.Errorf("%q: %s", part, few)
		}
	}
	return e, err
}

// Unknown is an entry that cannot be read: no node is what it wants.
func Unknown(s string) Expr { return Expr{text: s} }

// Near is a question, to be put behind a word that nobody offers, whether one of those was
// meant that are offered; "" if none is like it. Of a few letters all are alike. Of
// alternatives each may be meant.
func Near(word string, offered []string) string {
	if one, others, several := strings.Cut(word, "|"); several {
		return cmp.Or(Near(one, offered), Near(others, offered))
	}
	if len(word) < 4 || strings.ContainsAny(word, "!|<>=") || slices.Contains(offered, word) {
		return ""
	}
	return msg.DidYouMean(word, offered)
}

// String is the entry as it was written, without blanks around its alternatives.
func (e Expr) String() string { return e.text }

// Holds says whether the node is what the entry wants.
func (e Expr) Holds(f *Facts) bool {
	return slices.ContainsFunc(e.terms, func(t term) bool { return t.fits(f) != t.not })
}

// OfGPUs says whether the entry compares something of GPUs.
func (e Expr) OfGPUs() bool {
	return slices.ContainsFunc(e.terms, func(t term) bool { return t.card != nil })
}

// GPUs is, of an entry for a job that has GPUs, the indexes of those of the node that are what
// the entry wants; all if it is what the node is besides. Here != and ! are of each GPU: a node
// may have others.
func (e Expr) GPUs(f *Facts) (fit []int, all bool) {
	has := map[int]bool{}
	for _, t := range e.terms {
		if t.card == nil {
			all = all || t.fits(f) != t.not
			continue
		}
		for i := range f.GPUs {
			if g := &f.GPUs[i]; t.card(g) != t.not {
				has[g.Index] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(has)), all
}

// parse reads one alternative.
func parse(s string) (t term, err error) {
	rest, not := strings.CutPrefix(s, "!")
	t.not = not
	key, op, val, measured := match.Cut(rest)
	switch {
	case rest == "":
		return t, match.Errorf("%q: nothing follows the !", s)
	case rest == RanksByMPI:
		t.fits = func(f *Facts) bool { return f.MPI && slices.Contains(f.Capabilities, "mpirun") }
		return t, nil
	case rest == TakesSecrets:
		t.fits = func(f *Facts) bool { return f.Secrets }
		return t, nil
	case !measured:
		if err := checkName(rest); err != nil {
			return t, err
		}
		t.fits = func(f *Facts) bool { return slices.Contains(f.Capabilities, rest) }
		return t, nil
	}
	key, val = strings.TrimSpace(key), strings.TrimSpace(val)
	k, known := keys[key]
	switch {
	case !known:
		return t, match.Errorf("%q: there is no %q to compare%s: known are %s", s, key, msg.DidYouMean(key, Keys()), strings.Join(Keys(), ", "))
	case op == "!":
		return t, match.Errorf("%q: after ! comes =", s)
	case val == "":
		return t, match.Errorf("%q: no value follows %s", s, op)
	}
	// What is not known of a node is no reason to use it.
	fits, err := match.Parse(k.kind, nil, key, strings.TrimPrefix(op, "!"), val, time.Time{})
	if err != nil {
		return t, match.Errorf("%q: %s", s, err)
	}
	t.not = not != (op == "!=")
	if k.card != nil {
		t.card = func(g *GPU) bool { return fits(k.card(g)) }
		t.fits = func(f *Facts) bool {
			return slices.ContainsFunc(f.GPUs, func(g GPU) bool { return t.card(&g) })
		}
		return t, nil
	}
	t.fits = func(f *Facts) bool { return fits(k.of(f)) }
	return t, nil
}

// A key is something that is measured of a node, or of each of its GPUs, of which one must fit.
type key struct {
	kind match.Kind
	of   func(*Facts) match.Value
	card func(*GPU) match.Value
}

var keys = map[string]key{
	"node":       {match.Word, func(f *Facts) match.Value { return match.OfText(f.Node) }, nil},
	"arch":       {match.Word, func(f *Facts) match.Value { return match.OfText(f.Arch) }, nil},
	"cpus":       {match.Number, func(f *Facts) match.Value { return match.Count(f.CPUs) }, nil},
	"memory":     {match.Size, func(f *Facts) match.Value { return match.Some(f.Memory) }, nil},
	"disk":       {match.Size, func(f *Facts) match.Value { return match.Some(f.Disk) }, nil},
	"gpus":       {match.Number, func(f *Facts) match.Value { return match.Count(len(f.GPUs)) }, nil},
	"capability": {match.List, func(f *Facts) match.Value { return match.OfList(f.Capabilities) }, nil},
	"gpu.memory": {match.Size, nil, func(g *GPU) match.Value { return match.Some(shown(g.Memory)) }},
	"gpu.model":  {match.Word, nil, func(g *GPU) match.Value { return match.OfText(g.Model) }},
}

// shown is the bytes of a GPU's memory as people read them: one sold with 24G tells the driver of
// 24,564 MiB.
func shown(bytes int64) int64 {
	n, err := unit.ParseBytes(unit.FormatBytes(bytes))
	if err != nil {
		return bytes
	}
	return n
}

// Keys is what can be compared, in the order of the manual.
func Keys() []string {
	return []string{"node", "arch", "cpus", "memory", "disk", "gpus", "gpu.memory", "gpu.model", "capability"}
}

// checkName reports why s is no plain capability.
func checkName(s string) error {
	bad := strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-+@%", r))
	})
	switch {
	case strings.ContainsAny(s, "*?["):
		return match.Errorf("%q: a pattern needs a key, as in capability=gcc-*", s)
	case bad >= 0:
		return match.Errorf("%q: a capability has letters, digits and . _ - + @ %% only", s)
	case s[0] == '.' || s[0] == '-':
		return match.Errorf("%q: a capability does not start with %q", s, s[0])
	case len(s) > maxName:
		return match.Errorf("%.20q: a capability has at most %d bytes", s, maxName)
	}
	return nil
}

// maxName is the greatest length of a plain capability in bytes.
const maxName = 100
