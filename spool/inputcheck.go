package spool

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"distribute/lib/capability"
	"distribute/lib/job"
)

// checkSpec reports every reason why spec cannot be that of a batch.
func checkSpec(spec *job.Spec) error {
	var errs []error
	switch spec.Kind {
	case job.Python, job.Command:
		if spec.Image != nil || len(spec.Mounts) > 0 || spec.Uncontained {
			errs = append(errs, fmt.Errorf("a %s batch has no image", spec.Kind))
		}
	case job.Apptainer:
		if spec.Image == nil {
			errs = append(errs, errors.New("an apptainer batch needs an image"))
		}
		if len(spec.Build) > 0 {
			errs = append(errs, errors.New("an apptainer batch has nothing to build"))
		}
		errs = append(errs, job.CheckMounts(spec.Mounts))
	default:
		errs = append(errs, fmt.Errorf("there are no batches of the kind %.40q", spec.Kind))
	}
	errs = append(errs, CheckCapabilities(spec.Capabilities))
	for _, a := range spec.Build {
		errs = append(errs, checkArg(a))
	}
	errs = append(errs, job.CheckEnv(spec.Env), job.CheckSecretNames(spec.Secrets, spec.Env), job.CheckOutputs(spec.Kind, spec.Outputs), spec.Resources.Check(), spec.CheckMPI(&spec.Resources), spec.Checkpoint.Check(), spec.CheckOrder(), spec.CheckRetries(spec.Retries))
	if k := spec.Keep; k != nil && (*k < 0 || *k > job.MaxKeep) {
		errs = append(errs, fmt.Errorf("its inputs cannot be kept for %d seconds", *k))
	}
	if spec.Retry != "" && spec.Retry != job.Never {
		errs = append(errs, fmt.Errorf("a retry of %.40q is not known", spec.Retry))
	}
	if spec.Canary < 0 || spec.Canary > MaxJobs || spec.StopAfter < 0 || spec.StopAfter > MaxJobs || spec.StopShare < 0 || spec.StopShare > 100 {
		errs = append(errs, fmt.Errorf("it cannot have %d canaries, or stop after %d failed jobs, or %d %% of them", spec.Canary, spec.StopAfter, spec.StopShare))
	}
	if spec.Image != nil {
		errs = append(errs, checkInput(spec.Image))
	}
	for i := range spec.Inputs {
		errs = append(errs, checkInput(&spec.Inputs[i]))
	}
	return errors.Join(errs...)
}

// CheckCapabilities reports the first entry that no node is asked for so.
func CheckCapabilities(list []string) error {
	for _, c := range list {
		e, err := capability.Parse(c)
		if err == nil && e.String() != c {
			err = errors.New("is not as it has to be written")
		}
		if err != nil {
			return fmt.Errorf("capability %.100q: %w", c, err)
		}
	}
	return nil
}

// checkJob reports the first reason why j cannot be a job of the batch.
func checkJob(spec *job.Spec, common *places, j *job.Job) error {
	if err := job.CheckName(j.Name); err != nil {
		return err
	}
	if len(j.Run) == 0 && spec.Kind != job.Apptainer {
		return errors.New("it says not what to run")
	}
	if err := job.CheckParams(j.Param); err != nil {
		return err
	}
	for _, need := range j.Needs {
		if err := job.CheckNeed(need); err != nil {
			return err
		}
	}
	if err := CheckCapabilities(j.Capabilities); err != nil {
		return err
	}
	if err := cmp.Or(job.CheckEnv(j.Env), job.CheckSecretNames(spec.Secrets, j.Env), job.CheckOutputs(spec.Kind, j.Outputs)); err != nil {
		return err
	}
	for _, a := range j.Run {
		if err := checkArg(a); err != nil {
			return err
		}
	}
	for i := range j.Inputs {
		if err := checkInput(&j.Inputs[i]); err != nil {
			return err
		}
	}
	if j.Resources != nil {
		if err := cmp.Or(j.Resources.Check(), spec.CheckMPI(j.Resources)); err != nil {
			return err
		}
	}
	if err := j.CheckOrder(); err != nil {
		return err
	}
	if j.Retries != nil {
		if err := spec.CheckRetries(*j.Retries); err != nil {
			return err
		}
	}
	return common.with(j.Inputs)
}

func checkArg(a string) error {
	if strings.IndexByte(a, 0) >= 0 || !utf8.ValidString(a) {
		return fmt.Errorf("the argument %.100q is not text", a)
	}
	return nil
}

func checkInput(in *job.Input) error {
	if err := job.CheckPath(in.Path); err != nil {
		return fmt.Errorf("the path %.200q %w", in.Path, err)
	}
	switch {
	case in.Size < 0:
		return fmt.Errorf("%.200q cannot have %d bytes", in.Path, in.Size)
	case in.Mode&^0o777 != 0:
		return fmt.Errorf("%.200q cannot have the mode %#o", in.Path, in.Mode)
	case !isSum(in.Sum):
		return fmt.Errorf("%.200q has no sum", in.Path)
	}
	return nil
}

// places is a set of paths that can all lie in one directory: none is there
// twice, and none below another.
type places struct {
	files map[string]bool
	dirs  map[string]bool
}

// add takes paths, or reports the first that cannot lie beside the others.
func (p *places) add(inputs []job.Input) error {
	if len(inputs) == 0 {
		return nil
	}
	if p.files == nil {
		p.files, p.dirs = make(map[string]bool), make(map[string]bool)
	}
	for i := range inputs {
		name := inputs[i].Path
		if err := p.clash(name); err != nil {
			return err
		}
		p.files[name] = true
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			p.dirs[d] = true
		}
	}
	return nil
}

// clash reports whether name cannot lie beside what is there.
func (p *places) clash(name string) error {
	if p.files[name] {
		return fmt.Errorf("two files are to lie at %.200q", name)
	}
	if p.dirs[name] {
		return fmt.Errorf("%.200q is to be a file and a directory", name)
	}
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if p.files[d] {
			return fmt.Errorf("%.200q is to be a file and a directory", d)
		}
	}
	return nil
}

// with reports whether inputs can lie beside what is there and beside one
// another. It keeps nothing.
func (p *places) with(inputs []job.Input) error {
	for i := range inputs {
		if err := p.clash(inputs[i].Path); err != nil {
			return err
		}
	}
	if len(inputs) < 2 {
		return nil
	}
	if len(inputs) > 8 {
		var own places
		return own.add(inputs)
	}
	for i := range inputs {
		for k := range inputs[:i] {
			if err := together(inputs[i].Path, inputs[k].Path); err != nil {
				return err
			}
		}
	}
	return nil
}

func together(a, b string) error {
	if len(a) > len(b) {
		a, b = b, a
	}
	switch {
	case a == b:
		return fmt.Errorf("two files are to lie at %.200q", a)
	case len(a) < len(b) && b[len(a)] == '/' && strings.HasPrefix(b, a):
		return fmt.Errorf("%.200q is to be a file and a directory", a)
	}
	return nil
}
