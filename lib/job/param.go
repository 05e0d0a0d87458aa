package job

import (
	"fmt"
	"slices"
	"strings"

	"distribute/lib/conf"
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

// kept are those of the fields of a line that are parameters, with the first mistake in
// them. Of a line that is just text those are left out then that are there twice, too
// long or too many.
func kept(fields []string, text bool) (list []string, err error) {
	times := map[string]int{}
	for _, f := range fields {
		if name, value, ok := strings.Cut(f, "="); ok && value != "" && sweep.CheckName(name) == nil {
			list, times[name] = append(list, f), times[name]+1
		}
	}
	if err = CheckParams(list); err == nil || !text {
		return list, err
	}
	list = slices.DeleteFunc(list, func(p string) bool {
		name, _, _ := strings.Cut(p, "=")
		return times[name] > 1 || CheckParams([]string{p}) != nil
	})
	return list[:min(len(list), MaxParams)], err
}

// params reads the parameters of a job.
func (r *reader) params(n conf.Node) (list []string) {
	list = slices.Clone(r.param)
	for _, p := range n.AnyMap().Pairs() {
		if p.Absent() {
			p.Key.Errorf("the parameter %s has no value", msg.Quote(p.Name))
			continue
		}
		if !p.IsText() {
			p.Text() // for its mistake
			continue
		}
		if _, there := ParamOf(r.param, p.Name); there {
			p.Key.Errorf("%s is a parameter of the sweep: give this one another name", msg.Quote(p.Name))
			continue
		}
		list = append(list, p.Name+"="+p.Text())
		if err := CheckParams(list[len(list)-1:]); err != nil {
			p.Key.Errorf("%v", err)
		}
	}
	if len(list) > MaxParams {
		n.Errorf("%v", CheckParams(list))
	}
	return list
}

// paramsYAML is the value of param.
func paramsYAML(list []string) string {
	var b strings.Builder
	for i, p := range list {
		name, value, _ := strings.Cut(p, "=")
		fmt.Fprintf(&b, "%s%s: %s", []string{"{", ", "}[min(i, 1)], quote(name), quote(value))
	}
	return b.String() + "}"
}
