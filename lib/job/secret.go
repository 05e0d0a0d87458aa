package job

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Secrets is the variables of a batch whose values only its jobs get, each as NAME=value, sorted
// by their names. Printed, it is the names.
type Secrets []string

// MinSecret is the least length in bytes of the value of a secret: a shorter one cannot be hidden
// in a text without hiding much else.
const MinSecret = 6

// MaxSecrets is how many secrets a batch has at most, and maxLines how many lines their values have
// together: each is looked for in what is printed.
const (
	MaxSecrets = 100
	maxLines   = 1000
)

// hidden stands in a text for the value of a secret.
const hidden = "***"

// minPart is the least length in bytes of the beginning of a value that is hidden where a text was cut.
const minPart = 4

// ReasonSecrets begins the reason of an attempt that did not run since the head could not give it
// its secrets.
const ReasonSecrets = "its secrets "

// ErrNoSecrets is returned when the values of a batch's secrets are not there, or not whole.
var ErrNoSecrets = errors.New("the values of its secrets are missing or damaged")

// CheckSecretNames returns why a batch cannot have secrets of these names beside the variables env.
// The names are to be sorted, each once.
func CheckSecretNames(names, env []string) error {
	last := ""
	for _, name := range names {
		if name <= last {
			return fmt.Errorf("the secret %.100q is not in its place", name)
		}
		last = name
		if err := CheckEnvName(name); err != nil {
			return err
		}
		if _, there := ParamOf(env, name); there {
			return fmt.Errorf("%s is both a secret and in env: leave one of them out", name)
		}
	}
	if len(names) > MaxSecrets {
		return fmt.Errorf("there are %d secrets, and %d is the limit", len(names), MaxSecrets)
	}
	return nil
}

// CheckSecret returns why a secret cannot have that value. The error does not have the value.
func CheckSecret(name, value string) error {
	if len(value) < MinSecret {
		return fmt.Errorf("the secret %s has a value of %d bytes: one of fewer than %d cannot be hidden in messages", name, len(value), MinSecret)
	}
	if err := CheckEnvValue(value); err != nil {
		return fmt.Errorf("the secret %s: %w", name, err)
	}
	return nil
}

// Check returns why these are not the values of the secrets of those names. The error does not have
// a value.
func (s Secrets) Check(names []string) error {
	if !slices.Equal(s.Names(), names) {
		return fmt.Errorf("the values that came are not those of the secrets %.200q", names)
	}
	lines := 0
	for _, v := range s {
		name, value, _ := strings.Cut(v, "=")
		if err := CheckSecret(name, value); err != nil {
			return err
		}
		lines += 1 + strings.Count(value, "\n")
	}
	if lines > maxLines {
		return fmt.Errorf("the secrets have %d lines together, and %d is the limit: put a file into required_files of a private batch", lines, maxLines)
	}
	return CheckEnvSize(s)
}

// Names returns the names, in order.
func (s Secrets) Names() []string {
	var names []string
	for _, v := range s {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names
}

// String returns the names, so that no message has a value by mistake.
func (s Secrets) String() string { return strings.Join(s.Names(), " ") }

// GoString is String.
func (s Secrets) GoString() string { return s.String() }

// forms returns the texts as which values may stand in a message, the longest first: each value,
// each line of it, and both with escapes.
func (s Secrets) forms() []string {
	var all []string
	for _, v := range s {
		_, value, _ := strings.Cut(v, "=")
		for _, text := range append(strings.Split(value, "\n"), value, strings.Join(strings.Fields(value), " ")) {
			quoted := strconv.Quote(text)
			for _, form := range []string{text, strings.TrimSpace(text), quoted[1 : len(quoted)-1]} {
				if len(form) >= MinSecret {
					all = append(all, form)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(all)
}

// Mask returns the text with *** for each value. At its ends, where it may have been cut, also a part
// of a value is hidden: its beginning at the end of the text, and its end at the beginning.
func (s Secrets) Mask(text string) string { return s.mask(text, true) }

// mask is Mask of a text that may have been cut at its beginning or not.
func (s Secrets) mask(text string, cut bool) string {
	if len(s) == 0 || text == "" {
		return text
	}
	secret := make([]bool, len(text)) // its bytes that are of a value: values may overlap
	cover := func(from, to int) {
		for ; from < to; from++ {
			secret[from] = true
		}
	}
	for _, form := range s.forms() {
		for from, done := 0, 0; ; from++ {
			i := strings.Index(text[from:], form)
			if i < 0 {
				break
			}
			from += i
			cover(max(from, done), from+len(form))
			done = from + len(form)
		}
		most := min(len(form)-1, len(text))
		for n := most; n >= minPart; n-- {
			if strings.HasSuffix(text, form[:n]) {
				cover(len(text)-n, len(text))
				break
			}
		}
		for n := most; cut && n >= minPart; n-- {
			if strings.HasPrefix(text, form[len(form)-n:]) {
				cover(0, n)
				break
			}
		}
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		from, of := i, secret[i]
		for i < len(text) && secret[i] == of {
			i++
		}
		if of {
			b.WriteString(hidden)
		} else {
			b.WriteString(text[from:i])
		}
	}
	return b.String()
}

// kept are beginnings of reasons by which others tell what is to be done: a value that is such a word
// does not change them.
var kept = []string{ReasonNodeMemory, ReasonMemory, ReasonTime, ReasonStopped + ReasonDisk, ReasonStopped, ReasonPrinted, ReasonInput, ReasonSecrets, ReasonRotten}

// MaskOutcome masks all texts in which a node tells how an attempt ended.
func (s Secrets) MaskOutcome(r *Result) {
	begins := ""
	for _, k := range kept {
		if strings.HasPrefix(r.Reason, k) {
			begins = k
			break
		}
	}
	r.Reason = begins + s.mask(r.Reason[len(begins):], false)
	r.Skipped, r.Machine = s.mask(r.Skipped, false), s.mask(r.Machine, false)
}
