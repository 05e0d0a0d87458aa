package job

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"distribute/lib/conf"
	"distribute/lib/msg"
)

// MaxEnv is how many variables a batch and a job of it set together at most. Together
// they have no more bytes than a command.
const MaxEnv = 1000

var envForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ownEnv are variables that tell a job what is its own, and are not to be set by a batch.
var ownEnv = []string{"HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}

// CheckEnvName reports why a batch cannot set the variable of that name.
func CheckEnvName(name string) error {
	switch {
	case !envForm.MatchString(name):
		return fmt.Errorf("%s cannot be the name of a variable: letters, digits and _ can, and no digit first", msg.Quote(name))
	case strings.HasPrefix(name, "DISTRIBUTE_") || slices.Contains(ownEnv, name):
		return fmt.Errorf("%s is set by the node: use another name", name)
	}
	return nil
}

// checkEnvValue reports why a variable cannot have that value.
func checkEnvValue(value string) error {
	if strings.IndexByte(value, 0) >= 0 || !utf8.ValidString(value) {
		return errors.New("the value is not UTF-8 text without zero bytes")
	}
	return nil
}

// checkEnvSize reports that so many variables are too much.
func checkEnvSize(list []string) error {
	size := 0
	for _, v := range list {
		size += len(v) + 1
	}
	if len(list) > MaxEnv || size > maxArgv {
		return fmt.Errorf("%d variables with %d bytes are set, and %d with %d are the limit: put what is long into a file", len(list), size, MaxEnv, maxArgv)
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
		if err := checkEnvValue(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return checkEnvSize(list)
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
	sortEnv(all)
	return all
}

func sortEnv(list []string) {
	slices.SortFunc(list, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
}

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
		if err := CheckEnvName(p.Name); err != nil {
			p.Key.Errorf("%w", err)
		} else if err := checkEnvValue(p.Text()); err != nil {
			p.Errorf("%s: %w", p.Name, err)
		} else {
			list = append(list, p.Name+"="+p.Text())
		}
	}
	sortEnv(list)
	if err := checkEnvSize(Environ(r.f.Spec.Env, list)); err != nil {
		n.Errorf("%w", err)
	}
	return list
}

// batchEnv reads the variables of all jobs, in which nothing is filled.
func (r *reader) batchEnv(n conf.Node) []string {
	if r.sweeps && r.cases != nil {
		for _, p := range n.AnyMap().Pairs() {
			segs, _ := segments(p.Text())
			if i := slices.IndexFunc(segs, func(g segment) bool { return g.fill && g.name != "" && r.isParam(g.name) }); i >= 0 {
				p.Errorf("{%s} is not filled here, where all cases have the same: write it under the job's %q", segs[i].name, "env")
			}
		}
	}
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
		err := CheckEnvName(name)
		switch {
		case err != nil:
		case slices.ContainsFunc(b.t.Env, func(o string) bool { return o != v && strings.HasPrefix(o, name+"=") }):
			err = fmt.Errorf("%s is set twice: leave one of them out", name)
		case fill:
			b.env = append(b.env, append([]segment{{text: name + "="}}, segs...))
		default:
			b.f.Spec.Env = append(b.f.Spec.Env, name+"="+join(segs))
			err = checkEnvValue(value)
		}
		if err != nil {
			b.errs.Errorf(at, "%w", err)
		}
	}
	sortEnv(b.f.Spec.Env)
	if err := checkEnvSize(b.f.Spec.Env); err != nil {
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
	own = Environ(own, others)
	if err := checkEnvSize(Environ(b.f.Spec.Env, own)); err != nil {
		b.errs.Errorf(l.at, "-e: %w", err)
	}
	return own
}
