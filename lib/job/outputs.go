package job

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"distribute/lib/msg"
)

// MaxOutputs is how many outputs a batch or a job names at most.
const MaxOutputs = 100

// CheckOutput reports why s cannot name what comes home of a job: it is the path of a
// file or a directory as [CheckPath] has it, or a pattern of such as of [path.Match].
func CheckOutput(s string) error {
	if err := CheckPath(s); err != nil {
		return fmt.Errorf("%s %w", msg.Quote(s), err)
	}
	_, err := path.Match(s, "")
	switch {
	case err != nil || strings.Contains(s, `\`):
		return fmt.Errorf("%s is no pattern: check its brackets", msg.Quote(s))
	case strings.Contains(s, "**"):
		return fmt.Errorf("%s: no * stands for a /: name the directory, of which all comes", msg.Quote(s))
	case strings.Contains(s, "[:"):
		return fmt.Errorf("%s: write letters for what stands in [: :]", msg.Quote(s))
	}
	return CheckNegation(s)
}

// CheckNegation reports that a glob has [!a], which [path.Match] takes for one of ! and a.
func CheckNegation(s string) error {
	set := false // between brackets
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case set:
			set = s[i] != ']'
		case strings.HasPrefix(s[i:], "[!"):
			return fmt.Errorf("%s: what is [! elsewhere is [^ here", msg.Quote(s))
		default:
			set = s[i] == '['
		}
	}
	return nil
}

// CheckOutputs reports the first of the outputs of a batch of a kind, or of a job of it,
// that cannot be one.
func CheckOutputs(kind string, list []string) error {
	switch {
	case len(list) > 0 && kind != Command:
		return errors.New("only jobs of the kind command have outputs: what others write into distribute_save comes home")
	case len(list) > MaxOutputs:
		return fmt.Errorf("%d outputs, and %d is the limit", len(list), MaxOutputs)
	}
	for _, s := range list {
		if err := CheckOutput(s); err != nil {
			return err
		}
	}
	return nil
}

// OutputsOf is what comes home of a job of a batch: its own list, or else that of all.
// None: everything.
func OutputsOf(spec *Spec, j *Job) []string {
	if len(j.Outputs) > 0 {
		return j.Outputs
	}
	return spec.Outputs
}

// Outputs decides what comes home of one attempt, and knows what was there of it.
type Outputs struct {
	list []string
	met  []bool
}

// NewOutputs is for an attempt of which that comes home; none: everything.
func NewOutputs(list []string) *Outputs { return &Outputs{list, make([]bool, len(list))} }

// Have says that a path, or a directory above it, is one of the outputs.
func (o *Outputs) Have(p string) bool {
	found := len(o.list) == 0
	for ; p != "." && p != "/"; p = path.Dir(p) {
		for i, of := range o.list {
			if fits, _ := path.Match(of, p); fits || of == p {
				o.met[i], found = true, true
			}
		}
	}
	return found
}

// Lead says that outputs may lie in a directory.
func (o *Outputs) Lead(dir string) bool {
	if o.Have(dir) {
		return true
	}
	depth := strings.Count(dir, "/") + 1
	return slices.ContainsFunc(o.list, func(of string) bool {
		parts := strings.Split(of, "/")
		if len(parts) <= depth {
			return false
		}
		above := strings.Join(parts[:depth], "/")
		fits, _ := path.Match(above, dir)
		return fits || above == dir
	})
}

// Missing are those of the outputs that were not asked about.
func (o *Outputs) Missing() (list []string) {
	for i, met := range o.met {
		if !met {
			list = append(list, o.list[i])
		}
	}
	return list
}
