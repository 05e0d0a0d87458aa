package batchfile

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"distribute/lib/job"
)

// YAML writes the batch as a batch file, every key and text in one form, a job
// a line. Reading it gives the same batch, but for files that a command given
// to dsubmit(1) takes along at their own paths: they are told of in comments.
func (f *File) YAML() []byte {
	var w bytes.Buffer
	fmt.Fprintf(&w, "meta:\n  batch_name: %q\n  namespace: %q\n", f.Name, f.Namespace)
	if f.Spec.Matrix != "" {
		fmt.Fprintf(&w, "  matrix: %q\n", f.Spec.Matrix)
	}
	fmt.Fprintf(&w, "  capabilities: %s\n%s:\n  initialize:\n", flow(f.Spec.Capabilities), f.Spec.Kind)
	required := f.wants
	switch f.Spec.Kind {
	case job.Python:
		fmt.Fprintf(&w, "    build_file: %s\n", f.wants[0].yaml())
		required = required[1:]
	case job.Apptainer:
		fmt.Fprintf(&w, "    sif: %s\n    required_mounts: %s\n", f.image.yaml(), flow(f.Spec.Mounts))
		if f.Spec.Uncontained {
			w.WriteString("    contain: false\n")
		}
	case job.Command:
		if len(f.Spec.Build) > 0 {
			fmt.Fprintf(&w, "    build: %s\n", flow(f.Spec.Build))
		}
	}
	w.WriteString("    required_files:" + requiredYAML(required) + "\n")
	keptYAML(&w, f.wants)
	w.WriteString("  jobs:")
	if len(f.Jobs) == 0 {
		w.WriteString(" []")
	}
	w.WriteString("\n")
	for i := range f.Jobs {
		f.jobYAML(&w, i)
	}
	if unsaid := job.Unsaid(f.Spec.Kind); f.Spec.Resources != unsaid {
		fmt.Fprintf(&w, "resources: %s\n", resourcesYAML(f.Spec.Resources, unsaid))
	}
	if len(f.Spec.Env) > 0 {
		fmt.Fprintf(&w, "env: %s\n", paramsYAML(f.Spec.Env))
	}
	if len(f.Spec.Secrets) > 0 {
		fmt.Fprintf(&w, "secrets: %s\n", flow(f.Spec.Secrets))
	}
	if f.Spec.Private {
		w.WriteString("private: true\n")
	}
	if len(f.Spec.Outputs) > 0 {
		fmt.Fprintf(&w, "outputs: %s\n", flow(f.Spec.Outputs))
	}
	if f.Spec.Retries > 0 {
		fmt.Fprintf(&w, "retries: %d\n", f.Spec.Retries)
	}
	if f.Spec.Canary > 0 {
		fmt.Fprintf(&w, "canary: %d\n", f.Spec.Canary)
	}
	if f.Spec.StopShare > 0 {
		fmt.Fprintf(&w, "stop_after: %d%%\n", f.Spec.StopShare)
	} else if f.Spec.StopAfter > 0 {
		fmt.Fprintf(&w, "stop_after: %d\n", f.Spec.StopAfter)
	}
	if len(f.Spec.Slurm) > 0 {
		fmt.Fprintf(&w, "slurm: %s\n", slurmYAML(f.Spec.Slurm))
	}
	return w.Bytes()
}

func (f *File) jobYAML(w *bytes.Buffer, i int) {
	j := &f.Jobs[i]
	fmt.Fprintf(w, "    - {name: %q", j.Name)
	required := f.jobWants[i]
	switch f.Spec.Kind {
	case job.Python:
		if len(required) > 0 && required[0].into == "" {
			fmt.Fprintf(w, ", file: %s", required[0].yaml())
			required = required[1:]
		} else if k := slices.IndexFunc(f.wants, func(w want) bool { return !w.glob() && w.place() == j.Run[0] }); k >= 0 {
			fmt.Fprintf(w, ", file: {path: %s, alias: %s}", quote(f.wants[k].path), quote(j.Run[0]))
		}
	case job.Apptainer, job.Command:
		if len(j.Run) > 0 {
			fmt.Fprintf(w, ", run: %s", flow(j.Run))
		}
	}
	if len(required) > 0 {
		w.WriteString(", required_files:" + requiredYAML(required))
	}
	if len(j.Param) > 0 {
		w.WriteString(", param: " + paramsYAML(j.Param))
	}
	if len(j.Env) > 0 {
		w.WriteString(", env: " + paramsYAML(j.Env))
	}
	if len(j.Outputs) > 0 {
		w.WriteString(", outputs: " + flow(j.Outputs))
	}
	if len(j.Needs) > 0 {
		w.WriteString(", needs: " + flow(j.Needs))
	}
	if j.Retries != nil {
		fmt.Fprintf(w, ", retries: %d", *j.Retries)
	}
	if j.Priority != 0 {
		fmt.Fprintf(w, ", priority: %d", j.Priority)
	}
	if len(j.Capabilities) > 0 {
		w.WriteString(", capabilities: " + flow(j.Capabilities))
	}
	if j.Resources != nil {
		w.WriteString(", resources: " + resourcesYAML(*j.Resources, f.Spec.Resources))
	}
	if len(j.Slurm) > 0 {
		fmt.Fprintf(w, ", slurm: %s", slurmYAML(j.Slurm))
	}
	w.WriteString("}\n")
	keptYAML(w, f.jobWants[i])
	if f.jobMade != nil {
		for _, m := range f.jobMade[i] {
			fmt.Fprintf(w, "    # with %s, made of %s\n", quote(m.place), quote(m.path))
		}
	}
}

// quote writes a text as a YAML scalar in double quotes, whose escapes are
// those of Go for text that is UTF-8.
func quote(s string) string { return strconv.QuoteToASCII(s) }

func flow(words []string) string {
	b := []byte("[")
	for i, w := range words {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendQuoteToASCII(b, w)
	}
	return string(append(b, ']'))
}

func (w *want) yaml() string {
	if w.alias == "" {
		return "{path: " + quote(w.path) + "}"
	}
	return "{path: " + quote(w.path) + ", alias: " + quote(w.alias) + "}"
}

func requiredYAML(wants []want) string {
	b, sep := []byte(" ["), ""
	for i := range wants {
		if !wants[i].keep {
			b, sep = append(append(b, sep...), wants[i].yaml()...), ", "
		}
	}
	return string(append(b, ']'))
}

// keptYAML tells of files that lie at their own paths.
func keptYAML(w *bytes.Buffer, wants []want) {
	for i := range wants {
		if wants[i].keep {
			fmt.Fprintf(w, "    # with %s\n", quote(wants[i].path))
		}
	}
}

func slurmYAML(opts []job.Option) string {
	b := []byte("{")
	for i, o := range opts {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(append(b, o.Name...), ": "...), quote(o.Value)...)
	}
	return string(append(b, '}'))
}
