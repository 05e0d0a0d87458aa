package job

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"distribute/lib/msg"
)

// MaxEnv is how many variables a batch and a job of it set together at most. Together
// they have no more bytes than a command.
const MaxEnv = 1000

var envForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// ownEnv are variables that tell a job what is its own, and are not to be set by a batch.
var ownEnv = []string{"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// CheckEnvName reports why a batch cannot set the variable of that name.
func CheckEnvName(name string) error {
	switch {
	case !envForm().MatchString(name):
		return fmt.Errorf("%s cannot be the name of a variable: letters, digits and _ can, and no digit first", msg.Quote(name))
	case strings.HasPrefix(name, "DISTRIBUTE_") || slices.Contains(ownEnv, name):
		return fmt.Errorf("%s is set by the node: use another name", name)
	}
	return nil
}

// CheckEnvValue reports why a variable cannot have that value.
func CheckEnvValue(value string) error {
	if strings.IndexByte(value, 0) >= 0 || !utf8.ValidString(value) {
		return errors.New("the value is not UTF-8 text without zero bytes")
	}
	return nil
}

// CheckEnvSize reports that so many variables are too much.
func CheckEnvSize(list []string) error {
	size := 0
	for _, v := range list {
		size += len(v) + 1
	}
	if len(list) > MaxEnv || size > MaxArgv {
		return fmt.Errorf("%d variables with %d bytes are set, and %d with %d are the limit: put what is long into a file", len(list), size, MaxEnv, MaxArgv)
	}
	return nil
}

// CheckEnv reports why list cannot be the variables that a batch or a job sets: each is
// a text NAME=value, and they are sorted by their names, of which none is there twice.
func CheckEnv(list []string) error {
	last := ""
	for _, v := range list {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name <= last {
			return fmt.Errorf("the variable %s is not NAME=value, or has not its place", msg.Quote(v))
		}
		last = name
		if err := CheckEnvName(name); err != nil {
			return err
		}
		if err := CheckEnvValue(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return CheckEnvSize(list)
}

// Environ is what a job sets of which the batch sets others: those of the batch that it
// does not set itself, and its own, sorted.
func Environ(batch, own []string) []string {
	all := slices.Clone(own)
	for _, v := range batch {
		name, _, _ := strings.Cut(v, "=")
		if _, there := ParamOf(own, name); !there {
			all = append(all, v)
		}
	}
	SortEnv(all)
	return all
}

func SortEnv(list []string) {
	slices.SortFunc(list, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
}
