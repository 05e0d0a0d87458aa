package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/job"
)

func dnew(user string, args ...string) (status int, out, talk string) {
	var o, e strings.Builder
	c := &cli.Cmd{Name: "dnew", Stdin: strings.NewReader(""), Stdout: &o, Stderr: &e, Args: args,
		Getenv: func(string) string { return user }}
	return c.Run(context.Background(), usage, run), o.String(), e.String()
}

// Every file that is printed can be submitted as it is when its files are there, and
// with what is commented out in it.
func TestPrinted(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"build.py", "main.py", "solver.sif"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{job.Python, job.Apptainer, job.Command} {
		status, out, talk := dnew("maria", kind)
		if status != 0 || talk != "" {
			t.Fatalf("dnew %s: %d %q", kind, status, talk)
		}
		f, err := batchfile.ParseFile("f.yaml", []byte(out))
		if err != nil || f.Spec.Kind != kind || f.Namespace != "maria" || len(f.Jobs) != 2 || f.Spec.Resources.CPUs != 1 {
			t.Errorf("dnew %s: %+v %v", kind, f, err)
		}
		name := filepath.Join(dir, kind+".yaml")
		if err := os.WriteFile(name, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := batchfile.ReadFile(name); err != nil {
			t.Errorf("dnew %s: %v", kind, err)
		} else if _, err := f.Collect(t.Context(), func(int64, int64) {}); err != nil {
			t.Errorf("dnew %s: %v", kind, err)
		}
		f, err = batchfile.ParseFile("f.yaml", []byte(unused.ReplaceAllString(out, "$1$2")))
		if err != nil || f.Spec.Matrix == "" || len(f.Spec.Slurm) == 0 || f.Spec.Resources != (job.Resources{CPUs: 1, Memory: 4 << 30, GPUs: job.OneGPU, Disk: 20 << 30, Time: 5400, Counted: "matlab=1"}) {
			t.Errorf("dnew %s, filled in: %+v %v", kind, f, err)
		}
	}
}

// The namespace is the user's name, whatever YAML would take that for.
func TestNamespace(t *testing.T) {
	for _, user := range []string{"null", "Null", "true", "1e5", "007", "1_0", "0x1f", "@lab", "%lab", "+1", "_", "12", "no", "Y", "a.b"} {
		_, out, _ := dnew(user, "command")
		if f, err := batchfile.ParseFile("f.yaml", []byte(out)); err != nil || f.Namespace != user {
			t.Errorf("for the user %q: %+v %v", user, f, err)
		}
	}
}

// unused are the lines that are YAML but for a mark; after the mark of a
// comment comes one space.
var unused = regexp.MustCompile(`(?m)^( *)#(\S|  )`)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"perl"}, {"python", "command"}, {"../x"}, {"-x"}} {
		if status, out, talk := dnew("", args...); status != cli.Usage || out != "" || !strings.Contains(talk, "usage: dnew") {
			t.Errorf("dnew %q: %d %q %q", args, status, out, talk)
		}
	}
	if _, _, talk := dnew("", "docker"); !strings.HasPrefix(talk, "dnew: \"docker\" is no kind of batch\n") {
		t.Errorf("another kind: %q", talk)
	}
	for _, user := range []string{"a b", "a=b"} {
		if _, out, _ := dnew(user, "python"); !strings.Contains(out, "namespace: me\n") {
			t.Errorf("a user's name that cannot be a namespace: %s", out)
		}
	}
}
