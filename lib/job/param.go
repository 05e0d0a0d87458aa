package job

import (
	"fmt"
	"slices"
	"strings"

	"distribute/lib/msg"
	"distribute/lib/sweep"
)

// The most that is kept of the parameters of a job.
const (
	MaxParams     = 100  // of a job
	MaxParamValue = 1000 // bytes of a value
)

// CheckParams reports why list cannot be the parameters of a job: each is a text
// name=value, and no name is there twice.
func CheckParams(list []string) error {
	if len(list) > MaxParams {
		return fmt.Errorf("a job has %d parameters, and %d is the limit", len(list), MaxParams)
	}
	for i, p := range list {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("the parameter %s is not name=value", msg.Quote(p))
		}
		if err := sweep.CheckName(name); err != nil {
			return err
		}
		if err := sweep.CheckValue(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(value) > MaxParamValue {
			return fmt.Errorf("%s: its value has %d bytes, and %d is the limit: put it into a file", name, len(value), MaxParamValue)
		}
		if slices.ContainsFunc(list[:i], func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			return fmt.Errorf("the parameter %s is there twice", msg.Quote(name))
		}
	}
	return nil
}

// ParamOf is the value of a parameter in a list of them.
func ParamOf(list []string, name string) (value string, ok bool) {
	for _, p := range list {
		if v, ok := strings.CutPrefix(p, name); ok && strings.HasPrefix(v, "=") {
			return v[1:], true
		}
	}
	return "", false
}
