package job

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"distribute/lib/msg"
)

// MaxOutputs is how many outputs a batch or a job names at most.
const MaxOutputs = 100

// CheckOutput reports why s cannot name what comes home of a job: it is the path of a
// file or a directory as [CheckPath] has it, or a glob of such as of [path.Match].
func CheckOutput(s string) error {
	if err := CheckPath(s); err != nil {
		return fmt.Errorf("%s %w", msg.Quote(s), err)
	}
	if _, err := path.Match(s, ""); err != nil || strings.Contains(s, `\`) {
		return fmt.Errorf("%s is no pattern: check its brackets", msg.Quote(s))
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

// Outputs is what comes home of a job of a batch: its own list, or else that of all.
// None: everything.
func Outputs(spec *Spec, j *Job) []string {
	if len(j.Outputs) > 0 {
		return j.Outputs
	}
	return spec.Outputs
}

// ComesHome says that a path, or a directory above it, is one of some outputs.
func ComesHome(outputs []string, p string) bool {
	for ; p != "."; p = path.Dir(p) {
		for _, o := range outputs {
			if ok, _ := path.Match(o, p); ok {
				return true
			}
		}
	}
	return false
}
