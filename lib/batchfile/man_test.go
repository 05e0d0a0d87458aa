package batchfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"distribute/lib/job"
)

// examples takes the batch files out of dbatch(5).
func examples(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "man", "dbatch.5"))
	if err != nil {
		t.Fatal(err)
	}
	if limit := fmt.Sprintf("at most %d letters", job.MaxName); !strings.Contains(string(page), limit) {
		t.Errorf("dbatch(5) does not say %q", limit)
	}
	var all []string
	for _, part := range strings.Split(string(page), "\n.Bd -literal")[1:] {
		_, part, _ = strings.Cut(part, "\n")
		text, _, ok := strings.Cut(part, "\n.Ed\n")
		if !ok || strings.Contains(text, "\n.") || strings.Contains(text, `\`) {
			t.Errorf("an example is not plain text: %s", part)
		}
		if !strings.HasPrefix(text, "Bootstrap:") { // the definition of an image
			all = append(all, text+"\n")
		}
	}
	return all
}

// Every batch file of the manual can be submitted, once its files are there,
// and together they show every kind and every key.
func TestManual(t *testing.T) {
	used := ""
	for i, text := range examples(t) {
		dir := tree(t, "compile.py", "drive.py", "cases/re_100.toml", "cases/re_1000.toml", "spectral.sif", "common/forcing.json",
			"runs/n064.json", "runs/n128.json", "heat.mk", "src/heat.c", "meshes/a.txt", "params/a.toml",
			"cases/case.toml.in", "cases/mesh_64.h5", "cases/mesh_128.h5", "cases/mesh_256.h5")
		f, err := ParseFile(filepath.Join(dir, "jobs.yaml"), []byte(text))
		if err != nil {
			t.Errorf("example %d: %v", i+1, err)
			continue
		}
		b, err := f.Collect(t.Context(), nil)
		if err != nil {
			t.Errorf("example %d: %v", i+1, err)
			continue
		}
		for _, j := range b.Jobs {
			used += f.Spec.Kind + " " + list(t, b, append(b.Spec.Inputs, j.Inputs...)) + "\n"
		}
		used += text
	}
	keys := append(append([]string{}, topKeys.Known...), metaKeys.Known...)
	for _, k := range keysOf {
		keys = append(append(append(keys, k.section.Known...), k.init.Known...), k.job.Known...)
	}
	for _, k := range slices.Concat(keys, job.ResourceNames, fileKeys.Known, checkpointKeys.Known) {
		if !strings.Contains(used, k+":") {
			t.Errorf("no example has %q", k)
		}
	}
	for _, want := range []string{"input/case.toml:644=cases/re_100.toml", "input/src/heat.c:644=src/heat.c", "heat.mk:644=heat.mk",
		"input/meshes/a.txt:644=meshes/a.txt", "input/params/a.toml:644=params/a.toml", "input/mesh.txt:644=meshes/a.txt",
		"input/case.toml:644=cases/case.toml.in", "input/mesh.h5:644=cases/mesh_256.h5"} {
		if !strings.Contains(used, want) {
			t.Errorf("no example takes %s along", want)
		}
	}
}

// Every key that is read or refused is told of in the manual.
func TestManualNamesKeys(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "man", "dbatch.5"))
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, w := range strings.Fields(string(page)) {
		words[w] = true
	}
	check := func(keys []string, refused map[string]string) {
		for k := range refused {
			if strings.Contains(refused[k], "is not supported by this version") {
				keys = append(keys[:len(keys):len(keys)], k)
			}
		}
		for _, k := range keys {
			if !words[k] {
				t.Errorf("dbatch(5) does not tell of %q", k)
			}
		}
	}
	check(topKeys.Known, topKeys.Refused)
	check(metaKeys.Known, nil)
	check(job.ResourceNames, nil)
	for _, k := range keysOf {
		check(k.section.Known, nil)
		check(k.init.Known, nil)
		check(k.job.Known, k.job.Refused)
	}
}
