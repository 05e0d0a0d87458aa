package batchfile

import (
	"fmt"
	"slices"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/sweep"
)

// kept are those of the fields of a line that are parameters, with the first mistake in
// them. Of a line that is just text those are left out then that are there twice, too
// long or too many.
func kept(fields []string, text bool) (good []string, err error) {
	var list []string
	times := map[string]int{}
	for _, f := range fields {
		if name := paramIn(f); name != "" {
			list, times[name] = append(list, f), times[name]+1
		}
	}
	if err = job.CheckParams(list); err == nil || !text {
		return list, err
	}
	for _, p := range list {
		if name, _, _ := strings.Cut(p, "="); times[name] == 1 && job.CheckParams([]string{p}) == nil && len(good) < job.MaxParams {
			good = append(good, p)
		}
	}
	return good, err
}

// paramIn is the name of the parameter that a field of a line is; "" if it is none, as one without a value.
func paramIn(field string) string {
	if name := nameIn(field); len(field) > len(name)+1 {
		return name
	}
	return ""
}

// nameIn returns the name in a field of a line that reads name=value, or name=; "" if it reads otherwise.
func nameIn(field string) string {
	name, _, ok := strings.Cut(field, "=")
	if !ok || sweep.CheckName(name) != nil {
		return ""
	}
	return name
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
		if _, there := job.ParamOf(r.param, p.Name); there {
			p.Key.Errorf("%s is a parameter of the sweep: give this one another name", msg.Quote(p.Name))
			continue
		}
		list = append(list, p.Name+"="+p.Text())
		if err := job.CheckParams(list[len(list)-1:]); err != nil {
			p.Key.Errorf("%v", err)
		}
	}
	if len(list) > job.MaxParams {
		n.Errorf("%v", job.CheckParams(list))
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
