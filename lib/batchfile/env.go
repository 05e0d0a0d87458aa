package batchfile

import (
	"fmt"
	"slices"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// env reads variables, which are those of all jobs or of one.
func (r *reader) env(n conf.Node) (list []string) {
	for _, p := range n.AnyMap().Pairs() {
		if p.Absent() {
			p.Key.Errorf(`the variable %s has no value: write "" for an empty one`, msg.Quote(p.Name))
			continue
		}
		if !p.IsText() {
			p.Text() // for its mistake
			continue
		}
		if err := job.CheckEnvName(p.Name); err != nil {
			p.Key.Errorf("%w", err)
		} else if err := job.CheckEnvValue(p.Text()); err != nil {
			p.Errorf("%s: %w", p.Name, err)
		} else {
			list = append(list, p.Name+"="+p.Text())
		}
	}
	job.SortEnv(list)
	if err := job.CheckEnvSize(job.Environ(r.f.Spec.Env, list)); err != nil {
		n.Errorf("%w", err)
	}
	return list
}

// batchEnv reads the variables of all jobs, in which nothing is filled.
func (r *reader) batchEnv(n conf.Node) []string {
	r.notFilled(n, "env")
	return r.env(n)
}

// variables reads what the command line sets. What has a place is each job's own.
func (b *templating) variables() {
	at := conf.Place{File: "-e"}
	for i, v := range b.t.Env {
		if slices.Contains(b.t.Env[:i], v) {
			continue
		}
		name, value, _ := strings.Cut(v, "=")
		segs, fill := segments(value)
		err := job.CheckEnvName(name)
		switch {
		case err != nil:
		case slices.ContainsFunc(b.t.Env, func(o string) bool { return o != v && strings.HasPrefix(o, name+"=") }):
			err = fmt.Errorf("%s is set twice: leave one of them out", name)
		case fill:
			b.env = append(b.env, append([]segment{{text: name + "="}}, segs...))
		default:
			b.f.Spec.Env = append(b.f.Spec.Env, name+"="+join(segs))
			err = job.CheckEnvValue(value)
		}
		if err != nil {
			b.errs.Errorf(at, "%w", err)
		}
	}
	job.SortEnv(b.f.Spec.Env)
	if err := job.CheckEnvSize(b.f.Spec.Env); err != nil {
		b.errs.Errorf(at, "%w", err)
	}
}

// ownEnv are the variables of a line's job, which may set others itself.
func (b *templating) ownEnv(l *given, others []string) []string {
	if len(b.env) == 0 {
		return others
	}
	own := make([]string, len(b.env))
	for i, segs := range b.env {
		own[i] = b.fillOf(l, segs, "-e: ")
	}
	own = job.Environ(own, others)
	if err := job.CheckEnvSize(job.Environ(b.f.Spec.Env, own)); err != nil {
		b.errs.Repeatf("-e", l.at, "-e: %w", err)
	}
	return own
}
