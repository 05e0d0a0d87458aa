package batchfile

import (
	"cmp"
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
	if err := cmp.Or(job.CheckEnvSize(job.Environ(r.f.Spec.Env, list)), job.CheckSecretNames(r.f.Spec.Secrets, list)); err != nil {
		n.Errorf("%w", err)
	}
	return list
}

// secrets reads the names of variables whose values are not in the file.
func (r *reader) secrets(n conf.Node) (list []string) {
	const remedy = "write the names of variables, as [WANDB_API_KEY]: dsubmit takes their values from its environment"
	r.f.secretAt = map[string]conf.Place{}
	for _, item := range n.List(remedy) {
		name := item.Text()
		switch err := job.CheckEnvName(name); {
		case !item.IsText():
		case strings.Contains(name, "="):
			item.Errorf("a value does not belong here: %s", remedy) // it is not repeated
		case err != nil:
			item.Errorf("%w", err)
		case !slices.Contains(list, name):
			list, r.f.secretAt[name] = append(list, name), item.Place()
		}
	}
	slices.Sort(list)
	return list
}

// AddSecrets gives the batch secrets of these names besides those that it has.
func (f *File) AddSecrets(names []string) error {
	list := slices.Concat(f.Spec.Secrets, names)
	slices.Sort(list)
	list = slices.Compact(list)
	err := job.CheckSecretNames(list, f.Spec.Env)
	for i := 0; err == nil && i < len(f.Jobs); i++ {
		err = job.CheckSecretNames(list, f.Jobs[i].Env)
	}
	f.Spec.Secrets = list
	return err
}

// SecretPlace returns where the file has the name of a secret.
func (f *File) SecretPlace(name string) string {
	if at, ok := f.secretAt[name]; ok {
		return at.String()
	}
	return "--secret"
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
	if err := b.f.AddSecrets(b.t.Secrets); err != nil {
		b.errs.Errorf(conf.Place{File: "--secret"}, "%w", err)
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
	if err := cmp.Or(job.CheckEnvSize(job.Environ(b.f.Spec.Env, own)), job.CheckSecretNames(b.f.Spec.Secrets, own)); err != nil {
		b.errs.Repeatf("-e", l.at, "-e: %w", err)
	}
	return own
}
