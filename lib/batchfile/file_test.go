package batchfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"distribute/lib/conf"
	"distribute/lib/job"
)

// What the files of testdata/accept say, in short.
var accepted = map[string]string{
	"01-python-full":                  "maria-lid-cavity/cavity_re_sweep_007 python matrix=@maria:matrix.example.org caps=[python3 gfortran fftw] build=[python3 build_cavity.py] slurm=[{nodes 1} {ntasks 8} {time 02:00:00}]; re_0100 [main.py] slurm=[{time 00:20:00}]; re_1000 [drive.py]; re_smoke [drive.py]",
	"02-apptainer-full":               "okafor_taylor_green/tg_vortex_gpu_03 apptainer matrix=@okafor:matrix.org caps=[apptainer gpu] mounts=[/solver/output /solver/scratch] slurm=[{output slurm-%j.out} {nodes 1} {ntasks 8} {cpus-per-task 2} {mem-per-cpu 2G} {hint nomultithread} {time 00:30:00} {partition gpu-short} {account fluids-2024} {mail-user okafor@example.edu} {mail-type END,FAIL}]; n064 slurm=[{job-name tg-64}]; n128 slurm=[{ntasks 16} {mem-per-cpu 4G} {time 01:30:00} {output n128-%j.out}]; n256",
	"03-apptainer-minimal":            "demo/smoke apptainer; only",
	"04-pull-only":                    "demo/smoke python build=[python3 never_read.py]",
	"05-as-written-by-python-package": "demo/amp_sweep apptainer caps=[apptainer]; amp_0.10; amp_0.20 slurm=[{ntasks 2}]",
	"06-v0.6-v0.12-python":            "demo/old_three python caps=[python3] build=[python3 build.py]; a [run.py]",
	"07-v0.10-v0.12-apptainer":        "demo/old_two apptainer caps=[apptainer]; a",
	"08-plain-string-sif":             "b/a apptainer; j",
	"09-null-lists":                   "b/a apptainer; j",
	"10-no-capabilities":              "b/a apptainer; j",
	"11-slurm-scalars":                "b/a apptainer slurm=[{mem-per-cpu 100}]; j",
	"12-slurm-any-sbatch-option":      "b/a apptainer slurm=[{ntasks 4} {gres gpu:1} {mem 64G}]; j",
}

func short(f *File) string {
	s := fmt.Sprintf("%s %s", f.ID(), f.Spec.Kind)
	add := func(name string, v any) {
		if x := reflect.ValueOf(v); x.Len() > 0 {
			s += fmt.Sprintf(" %s%v", name, v)
		}
	}
	add("matrix=", f.Spec.Matrix)
	add("retry=", f.Spec.Retry)
	if f.Spec.Keep != nil {
		add("keep=", fmt.Sprint(*f.Spec.Keep))
	}
	add("caps=", f.Spec.Capabilities)
	add("build=", f.Spec.Build)
	add("mounts=", f.Spec.Mounts)
	add("slurm=", f.Spec.Slurm)
	for _, j := range f.Jobs {
		s += "; " + j.Name
		add("", j.Run)
		add("slurm=", j.Slurm)
	}
	return s
}

// supply makes the files that the batch names, and returns how many.
func supply(t *testing.T, f *File, dir string) {
	t.Helper()
	f.dir = dir
	wants := append([]want{f.image}, f.wants...)
	for _, w := range f.jobWants {
		wants = append(wants, w...)
	}
	for _, w := range wants {
		if w.path == "" {
			continue
		}
		name := filepath.Join(dir, w.path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(w.path), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAccept(t *testing.T) {
	files, err := filepath.Glob("testdata/accept/*.yaml")
	if err != nil || len(files) != len(accepted) {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, name := range files {
		f, err := ReadFile(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := short(f), accepted[strings.TrimSuffix(filepath.Base(name), ".yaml")]; got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		for i := range f.wants {
			f.wants[i].path = strings.TrimPrefix(f.wants[i].path, "/srv/shared/") // is absolute in 01
		}
		supply(t, f, t.TempDir())
		b, err := f.Collect(t.Context(), nil)
		if len(f.Jobs) == 0 {
			if err == nil || err.Error() != name+":7:9: there are no jobs: nothing to run" {
				t.Errorf("%s has no jobs: %v", name, err)
			}
		} else if err != nil || len(b.Jobs) != len(f.Jobs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is said of each file of testdata/reject, without its directory.
var rejected = map[string][]string{
	"alias-escapes": {
		`:6:32: alias "../../one.txt" leaves the job's directory: write a plain name`,
		`:7:32: alias "/etc/two.txt" is absolute, and a path below the job's directory is wanted: write a plain name`,
		`:9:16: "four.txt" would lie at "input/same.txt", where "three.txt" of line 8 lies: give one of them another alias`},
	"both-kinds": {`:3:1: both "apptainer" and "python" are here: a batch has one kind; split it into two files`},
	"docker-kind": {":3:1: docker images are not run: make a .sif of it with `apptainer build solver.sif docker://docker.io/example/solver:1.4`, " +
		`and write "apptainer" for "docker", "sif: solver.sif" for "image"`},
	"duplicate-job-name":    {`:3:65: job "j" is here twice (the first time in line 3): names in a batch differ`},
	"file-in-apptainer-job": {`:2:64: "file" is for python batches: an apptainer job runs its image; list files that it reads in "required_files"`},
	"matrix-not-a-user-id":  {`:1:45: "me" is no Matrix user: write it as "@user:server"`},
	"names": {
		`:1:20: bad name "../up": it must not start with '.'`,
		`:1:40: bad name "a b": ' ' is not allowed (letters, digits and . _ - + = @ % are)`,
		`:2:61: bad name "-rf": it must not start with '-'`,
		`:2:76: bad name "x/y": '/' is not allowed (letters, digits and . _ - + = @ % are)`,
		`:2:91: bad name: it is empty`},
	"namespace-as-filter": {
		`:1:20: bad name "re=1": with = it would be taken for a filter ("re-1" would not)`,
		`:1:37: bad name "run=7": with = it would be taken for a filter ("run-7" would not)`},
	"no-kind":                   {`:1:1: the batch says nothing to run: add one of "python", "apptainer" or "command" (dnew prints one to fill in)`},
	"required-mounts-in-python": {`:2:49: "required_mounts" is for apptainer batches: a python job writes below distribute_save`},
	"unknown-key-in-meta":       {`:1:37: unknown key "capabilites" (did you mean "capabilities"?)`},
	"unknown-slurm-key":         {`:3:9: "ntask" is no option of sbatch (did you mean "ntasks"?)`},
}

func TestReject(t *testing.T) {
	files, err := filepath.Glob("testdata/reject/*.yaml")
	if err != nil || len(files) != len(rejected) {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, name := range files {
		_, err := ReadFile(name)
		var want []string
		for _, l := range rejected[strings.TrimSuffix(filepath.Base(name), ".yaml")] {
			want = append(want, name+l)
		}
		if err == nil || err.Error() != strings.Join(want, "\n") {
			t.Errorf("%s:\n got %v\nwant %s", name, err, strings.Join(want, "\n"))
		}
		var m *conf.Mistake
		if !errors.As(err, &m) || m.ExitStatus() != 65 {
			t.Errorf("%s: %v is no mistake", name, err)
		}
	}
}

const meta = "meta: {batch_name: a, namespace: b}\n"

// A line or two of a batch file, and all that is said of it.
var mistakes = []struct{ in, want string }{
	{"command: {jobs: [{name: j, run: ./solve 4}]}", `2:33: "run" must be a list, not a text: write a list: [./solve, --n, "4"]`},
	{"command: {jobs: [{name: j, run: []}]}", `2:33: a command has at least one word: write a list: [./solve, --n, "4"]`},
	{"command: {jobs: [{name: j, run: [\"\", a]}]}", `2:34: the first word of a command is the program: it must not be empty`},
	{"command: {jobs: [{name: j, run: [a, ~]}]}", `2:37: a word of the command is empty: quote it if it is meant as text`},
	{"command: {jobs: [{name: j, run: [a, \"\\0\"]}]}", `2:37: a word of the command has a zero byte`},
	{"command: {jobs: [{name: j, run: [a, [b]]}]}", `2:37: "run" must be a text, not a list`},
	{"command: {jobs: [{name: j}]}", `2:18: "run" is missing in "jobs"`},
	{"command: {jobs: [~, {name: j, run: [a]}]}", `2:18: a job is empty: remove the entry`},
	{"command: {initialize: {build: make}, jobs: []}", `2:31: "build" must be a list, not a text: write a list: [./solve, --n, "4"]`},
	{"command: {initialize: {}}", `2:10: "jobs" is missing in "command"`},
	{"command: {jobs: {name: j}}", `2:17: "jobs" must be a list, not a mapping: write a list, a job an entry`},
	{"command: {jobs: [{name: j, run: [a], file: b}]}", `2:38: "file" is for python batches: write "run" with a list, as in [python3, main.py]`},
	{"command: {jobs: [{name: j, run: [a], retries: 101}]}\nretries: few", "2:47: \"retries\" must be a whole number from 0 to 100, not \"101\"\n" +
		"3:10: \"retries\" must be a whole number from 0 to 100, not \"few\""},
	{"command: {jobs: [{name: j, run: [a], retries: 3}]}\nretries: 2\nretry: never", "2:47: \"retries: 3\" and \"retry: never\" contradict each other: remove one of them\n" +
		"3:10: \"retries: 2\" and \"retry: never\" contradict each other: remove one of them"},
	{"command: {jobs: [{name: j, rnu: [a]}]}", `2:28: unknown key "rnu" (did you mean "run"?)`},
	{"command: {jobs: []}\nresources: {cpus: 0}", `3:19: "cpus" must be a whole number from 1 to 65536, not "0"`},
	{"command: {jobs: []}\nresources: {cpus: 1.5}", `3:19: "cpus" must be a whole number, or "all" for the whole machine, not "1.5"`},
	{"command: {jobs: []}\nresources: {memory: 0, gpus: -1, time: 0}", "3:21: memory: no job runs in \"0\" of memory: leave it out if there is to be no limit\n" +
		"3:30: gpus: \"-1\" is no amount of GPUs: write a whole number from 0 to 1024, or a part of one as 0.5\n3:40: time: \"0\" is no time to run: leave it out if there is to be no limit"},
	{"command: {jobs: []}\nresources: {memory: 4, gpus: all, time: 90}", "3:21: memory: \"4\" has no unit: write 4M or 4G\n" +
		"3:30: gpus: \"all\" is no amount of GPUs: write a whole number from 0 to 1024, or a part of one as 0.5\n3:41: time: \"90\" has no unit: write 90s, 90m or 90h"},
	{"command: {jobs: []}\nresources: {gpus: 1.5}", `3:19: gpus: "1.5" is neither whole GPUs nor a part of one: write 1 or 2, or a part below 1 as 0.5`},
	{"command: {jobs: []}\nresources: {memory: -4G, time: -1h}", "3:21: memory: \"-4G\" is not a size: write it like 512M, 2G or 1.5T\n" +
		"3:32: time: \"-1h\" is not a length of time: write it like 90s, 1h30m, 2d or 00:30:00"},
	{"command: {jobs: []}\nresources: {memory: 4h, time: 4G}", "3:21: memory: \"4h\" is not a size: write it like 512M, 2G or 1.5T\n" +
		"3:31: time: \"4G\" is not a length of time: write it like 90s, 1h30m, 2d or 00:30:00"},
	{"command: {jobs: []}\nresources: {memory: 2000P, gpus: 99999999999999999999, time: 40000d}", "3:21: memory: \"2000P\" is more memory than a machine has: at most 1P\n" +
		"3:34: gpus: \"99999999999999999999\" is no amount of GPUs: write a whole number from 0 to 1024, or a part of one as 0.5\n3:62: time: \"40000d\" is longer than 100 years"},
	{"command: {jobs: []}\nresources: {memory: 4K, time: 10ms}", "3:21: memory: \"4K\" is less than 1M, in which no job runs\n3:31: time: \"10ms\" is less than 1s"},
	{"command: {jobs: []}\nresources: {memory: [4G], mem: 4G}", "3:21: \"memory\" must be a text, not a list\n3:27: \"mem\" is nothing that is counted by its name (did you mean \"memory\"?)"},
	{"command: {jobs: []}\nresources: {matlab: few, comsol: 1.5, a=b: 1, node: 1, gpu: 1}", "3:21: matlab: a whole number from 0 to 1000000 is wanted\n" +
		"3:34: comsol: a whole number from 0 to 1000000 is wanted\n" +
		"3:39: \"a=b\" is no name for what is counted: it has small letters, digits and . _ - only, begins with a letter, and has at most 100 bytes\n" +
		"3:47: \"node\" is a key of capabilities, and not counted by its name\n" +
		"3:56: \"gpu\" is nothing that is counted by its name (did you mean \"gpus\"?)"},
	{"command: {jobs: [{name: j, run: [a], resources: {time: 1:30}}]}\nresources: {memory: 9999999999999999999}", "2:56: time: \"1:30\" is not a length of time: write it like 90s, 1h30m, 2d or 00:30:00\n" +
		"3:21: memory: \"9999999999999999999\" is more bytes than can be counted"},
	{"command: {jobs: [{name: j, run: [a], capabilities: [memory>=64]}]}\nresources: {disk: 20}\nkeep: 90", "2:53: capability \"memory>=64\": \"64\" has no unit: write 64M or 64G\n" +
		"3:19: \"20\" has no unit: write 20M or 20G\n4:7: \"90\" has no unit: write 90s, 90m or 90h"},
	{"command: {jobs: []}\nresources: {disk: lots}", `3:19: "lots" is not a size: write it like 512M, 2G or 1.5T`},
	{"command: {jobs: [{run: [a], notify: me}]}\nlease: 1d\nnotify: me", "2:18: \"name\" is missing in \"jobs\"\n2:29: \"notify\" is not supported by this version: remove it\n" +
		"3:1: \"lease\" is not supported by this version: remove it\n4:1: \"notify\" is not supported by this version: remove it"},
	{"command: {jobs: []}\nretry: 3\nkeep: long", "3:8: \"retry\" is \"never\" or left out, other values are not supported by this version: not \"3\"\n" +
		"4:7: \"long\" is not a length of time: write it like 90s, 1h30m, 2d or 00:30:00"},
	{"command: {jobs: []}\npriority: high\nmax_running: 0", "3:11: \"priority\" must be a whole number from -1000 to 1000, not \"high\"\n" +
		"4:14: \"max_running\" must be a whole number from 1 to 1000000, not \"0\""},
	{"command: {jobs: []}\npriority: 1001\nmax_running: -4", "3:11: \"priority\" must be a whole number from -1000 to 1000, not \"1001\"\n" +
		"4:14: \"max_running\" must be a whole number from 1 to 1000000, not \"-4\""},
	{"command: {jobs: []}\npriority: [1]\nmax_running: 99999999999999999999", "3:11: \"priority\" must be a whole number from -1000 to 1000, not a list\n" +
		"4:14: \"max_running\" must be a whole number from 1 to 1000000, not \"99999999999999999999\""},
	{"command: {jobs: [{name: j, run: [a], keep: 3d}]}", `2:38: "keep" is of the whole batch: write it at the top level`},
	{"command: {jobs: []}\nretry: [never]\nkeep: 40000d", "3:8: \"retry\" must be a text, not a list\n4:7: \"40000d\" is longer than 100 years"},
	{"command: {jobs: [{name: j, run: [a], retry: never}]}", `2:38: "retry" is of the whole batch: write it at the top level`},
	{"command: {jobs: []}\ncanary: 0\nstop_after: 101%", "3:9: \"canary\" must be a whole number from 1 to 1000000, not \"0\"\n" +
		"4:13: \"stop_after\" must be a number of jobs from 1 to 1000000, or a share as 5%, not \"101%\""},
	{"command: {jobs: [{name: j, run: [a], needs: k}]}\nstop_after: [3]", "2:45: \"needs\" must be a list, not a text: write [mesh] or [\"run-*\"]\n" +
		"3:13: \"stop_after\" must be a text, not a list"},
	{"command: {jobs: [{name: j, run: [a], needs: [~, \"\", x]}]}", "2:46: an entry of needs is empty: remove it\n2:49: bad name: it is empty\n" +
		"2:53: job \"j\" needs \"x\", and there is no such job (did you mean \"j\"?)"},
	{"command: {jobs: [{name: j, run: [a], canary: 3}]}", `2:38: "canary" is of the whole batch: write it at the top level`},
	{"command: {jobs: []}\nslurm: {mem-per-cpu: 1, mem_per_cpu: 2}", `3:25: option "mem-per-cpu" is here twice, with - and with _: remove one`},
	{"command: {jobs: []}\nslurm: {time: {a: b}}", `3:15: "time" must be a text, not a mapping`},
	{"command: {jobs: []}\nslurm: {comment: \"a\\nb\"}", `3:18: the value of an option of sbatch is one line`},
	{"command: {jobs: []}\nslurm: {--nodes: 1}", `3:9: "--nodes" is no option of sbatch (did you mean "nodes"?)`},
	{"command: {jobs: []}\nslurm: {n: 1}", `3:9: "n" is no option of sbatch (write the long option, without dashes in front)`},
	{"python: {jobs: []}", `2:9: "initialize" is missing in "python"`},
	{"python: {initialize: {}, jobs: []}", `2:22: "build_file" is missing in "initialize"`},
	{"python: {initialize: {build_file: {alias: x}}, jobs: []}", `2:35: "path" is missing in "build_file"`},
	{"python: {initialize: {build_file: [x]}, jobs: []}", `2:35: "build_file" must be a mapping, not a list: write "key: value", a line each`},
	{"python: {initialize: {build_file: {path: x, alias: input}}, jobs: []}", `2:42: "input" is a directory of the job's own: give the file another alias`},
	{"python: {initialize: {build_file: b.py}, jobs: [{name: j}]}", `2:49: "file" is missing in "jobs"`},
	{"python: {initialize: {build_file: b.py}, jobs: [{name: j, file: {path: x.py, alias: b.py}}]}", `2:72: "x.py" would lie at "b.py", where "b.py" of line 2 lies: give one of them another alias`},
	{"python: {initialize: {build_file: b.py, required_files: [x]}, jobs: [{name: j, file: f.py, required_files: [{path: y, alias: x}]}]}",
		`2:116: "y" would lie at "input/x", where "x" of line 2 lies: give one of them another alias`},
	{"python: {initialize: {build_file: b.py, required_files: [.., \"a/**/b\", ~, 3]}, jobs: []}",
		"2:58: \"..\" has no name to lie under: give it an alias\n2:62: \"a/**/b\": \"**\" is not supported: name the directory to take the whole tree\n2:72: an entry of required_files is empty: remove it"},
	{"python: {initialize: {build_file: b.py, required_files: x}, jobs: []}", `2:57: "required_files" must be a list, not a text: write a list, a file an entry: [{path: data/mesh.h5}]`},
	{"apptainer: {initialize: {sif: x.sif, required_mounts: [a, /, /input, \"/a:b\", /s, /s/]}, jobs: []}",
		"2:56: mount \"a\" must be an absolute path of a directory in the container\n2:59: mount \"/\" must be an absolute path of a directory in the container\n" +
			"2:62: mount \"/input\" is there without being asked for: remove it\n2:70: mount \"/a:b\" must not contain \":\", \",\" or control characters\n2:82: mount \"/s/\" is here twice: remove one"},
	{"apptainer: {initialize: {sif: x.sif}, jobs: []}\nsingularity: {initialize: {sif: x.sif, sfi: 1}, jobs: []}",
		"3:1: both \"apptainer\" and \"singularity\" are here: a batch has one kind; split it into two files\n3:40: unknown key \"sfi\" (known in \"initialize\": sif, run, contain, required_files, required_mounts)"},
	{"docker: 3", "2:1: docker images are not run: make a .sif of it with `apptainer build NAME.sif docker://IMAGE`, and write \"apptainer\" for \"docker\", \"sif: NAME.sif\" for \"image\""},
	{"docker: {initialize: {image: \"x; rm -rf /\"}}", "2:1: docker images are not run: make a .sif of it with `apptainer build NAME.sif docker://IMAGE`, and write \"apptainer\" for \"docker\", \"sif: NAME.sif\" for \"image\""},
	{"pyhton: {}", "1:1: the batch says nothing to run: add one of \"python\", \"apptainer\" or \"command\" (dnew prints one to fill in)\n2:1: unknown key \"pyhton\" (did you mean \"python\"?)"},
}

func TestMistakes(t *testing.T) {
	for _, c := range mistakes {
		_, err := ParseFile("f", []byte(meta+c.in))
		want := "f:" + strings.ReplaceAll(c.want, "\n", "\nf:")
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", c.in, err, want)
		}
	}
}

// What dbatch(5) says of how much of something a batch has at most.
func TestLimits(t *testing.T) {
	list := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(all, ", ")
	}
	for what, c := range map[string]struct {
		most int
		text func(n int) string
	}{
		"bytes of a name": {100, func(n int) string { return "command: {jobs: [{name: " + strings.Repeat("j", n) + ", run: [a]}]}" }},
		"parameters": {100, func(n int) string {
			return "command: {jobs: [{name: j, run: [a], param: {" + list(n, "p%d: 1") + "}}]}"
		}},
		"bytes of a parameter": {1000, func(n int) string {
			return "command: {jobs: [{name: j, run: [a], param: {p: " + strings.Repeat("x", n) + "}}]}"
		}},
		"variables": {1000, func(n int) string {
			return "env: {B: 1}\ncommand: {jobs: [{name: j, run: [a], env: {" + list(n-1, "v%d: 1") + "}}]}"
		}},
		"bytes of variables": {128 << 10, func(n int) string {
			return "command: {jobs: [{name: j, run: [a], env: {A: " + strings.Repeat("x", n-len("A=\x00")) + "}}]}"
		}},
		"bytes of a command": {128 << 10, func(n int) string {
			return "command: {jobs: [{name: j, run: [a, " + strings.Repeat("x", n-len("a\x00\x00")) + "]}]}"
		}},
		"outputs": {100, func(n int) string { return "command: {jobs: [{name: j, run: [a], outputs: [" + list(n, "o%d") + "]}]}" }},
		"mounts": {100, func(n int) string {
			return "apptainer: {initialize: {sif: x, required_mounts: [" + list(n, "/m%d") + "]}, jobs: [{name: j}]}"
		}},
	} {
		if _, err := ParseFile("f", []byte(meta+c.text(c.most))); err != nil {
			t.Errorf("%d %s are too many: %.200s", c.most, what, err)
		}
		if _, err := ParseFile("f", []byte(meta+c.text(c.most+1))); err == nil {
			t.Errorf("more than %d %s are none too many", c.most, what)
		}
	}
}

// What a job's own resources leave out is as the batch has it, also when it has
// been written and read again; a batch that says nothing has no limits.
func TestResources(t *testing.T) {
	_, err := ParseFile("f", []byte(meta+"command: {jobs: [{name: a, run: [x], resources: {gpus: 0, time: 00:00:01.5}}, {name: b, run: [x], resources: {cpus: all, memory: 1048576, disk: 0, time: 1500ms}}]}\n"+
		"resources: {cpus: 4, memory: 4G, gpus: 2, disk: 20G, time: 1h30m}"))
	if err == nil {
		t.Fatal("half a second on a clock was read")
	}
	f, err := ParseFile("f", []byte(meta+"command: {jobs: [{name: a, run: [x], resources: {gpus: 0, comsol: 1}}, {name: b, run: [x], resources: {cpus: all, memory: 1048576, disk: 0, time: 1500ms, matlab: 1}}]}\n"+
		"resources: {cpus: 4, memory: 4G, gpus: 0.25, disk: 20G, time: 1h30m, matlab: 2}"))
	for range 2 {
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []job.Resources{
			{CPUs: 4, Disk: 20 << 30, Memory: 4 << 30, Time: 5400, Counted: "comsol=1 matlab=2"},
			{Memory: 1 << 20, Time: 2, GPUs: 250, Counted: "matlab=1"},
		} {
			if got := *f.Jobs[i].Resources; got != want {
				t.Errorf("job %d: %+v, want %+v", i, got, want)
			}
		}
		f, err = ParseFile("f", f.YAML())
	}
	for text, want := range map[string]job.Resources{
		"command: {jobs: []}":                             {CPUs: 1},
		"python: {initialize: {build_file: b}, jobs: []}": {},
		"apptainer: {initialize: {sif: s}, jobs: []}":     {},
		"singularity: {initialize: {sif: s}, jobs: []}":   {},
	} {
		if f, err := ParseFile("f", []byte(meta+text)); err != nil || f.Spec.Resources != want {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
}

// A job's own capabilities are its own in every kind of batch, and come back.
func TestCapabilitiesOfJobs(t *testing.T) {
	for kind, text := range map[string]string{
		"python":    "python: {initialize: {build_file: b.py}, jobs: [{name: a, file: f.py, capabilities: %s}]}\n",
		"apptainer": "apptainer: {initialize: {sif: i.sif}, jobs: [{name: a, capabilities: %s}]}\n",
		"command":   "command: {jobs: [{name: a, run: [x], capabilities: %s}]}\n",
	} {
		const meta = "meta: {batch_name: a, namespace: b, capabilities: [gpu]}\n"
		f, err := ParseFile("f", fmt.Appendf(nil, meta+text, `[fast, ~, "a/b"]`))
		if f != nil || err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), `capability "a/b": a capability has letters`) {
			t.Errorf("%s: %v", kind, err)
		}
		f, err = ParseFile("f", fmt.Appendf(nil, meta+text, `["fast | comsol", "memory>=64G", fast|comsol]`))
		for range 2 {
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if got := f.Jobs[0].Capabilities; !slices.Equal(got, []string{"fast|comsol", "memory>=64G"}) || !slices.Equal(f.Spec.Capabilities, []string{"gpu"}) {
				t.Errorf("%s: %q of the job, %q of the batch", kind, got, f.Spec.Capabilities)
			}
			f, err = ParseFile("f", f.YAML())
		}
	}
}

func TestMeta(t *testing.T) {
	for in, want := range map[string]string{
		"":                        `f:1:1: "meta" is missing`,
		"meta: {namespace: b}\n":  `f:1:7: "batch_name" is missing in "meta"`,
		"meta: {batch_name: a}\n": `f:1:7: "namespace" is missing in "meta"`,
		"meta: {batch_name: x.yaml, namespace: b}\n":                     `f:1:20: bad name "x.yaml": it must not end in .yaml or .yml, which name files`,
		"meta: {batch_name: a, namespace: b, matrix: \"@a b:c\"}\n":      `f:1:45: "@a b:c" is no Matrix user: write it as "@user:server"`,
		"meta: {batch_name: a, namespace: b, matrix: @a:b}\n":            `f:1:45: a value that starts with "@" must be in quotes`,
		"meta: {batch_name: a, namespace: b, capabilities: x}\n":         `f:1:51: "capabilities" must be a list, not a text: write [python3, gpu]`,
		"meta: {batch_name: a, namespace: b, capabilities: [cpus>=x]}\n": `f:1:52: capability "cpus>=x": "x" is not a whole number`,
		"meta: {batch_name: a, namespace: b, capabilities: [~, a/b]}\n":  "f:1:52: a capability is empty: remove it\nf:1:55: capability \"a/b\": a capability has letters, digits and . _ - + @ % only",
	} {
		_, err := ParseFile("f", []byte(in+"command: {jobs: []}\n"))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", in, err, want)
		}
	}
}

func TestNoBatchFile(t *testing.T) {
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// A file that is read and written reads as the same batch; one that is not
// read has a place in every line that is said of it.
func FuzzBatchFile(f *testing.F) {
	for _, glob := range []string{"testdata/accept/*.yaml", "testdata/reject/*.yaml"} {
		files, _ := filepath.Glob(glob)
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, c := range mistakes {
		f.Add([]byte(meta + c.in))
	}
	f.Add([]byte(meta + "command: {initialize: {build: [make], required_files: [a, \"b/*\", {path: c, alias: d/e}]}, jobs: [{name: j, run: [./a, \"\\u00e9\\n\", 4], resources: {cpus: all}, slurm: {mail_type: [END, FAIL]}}]}\nresources: {cpus: 4}"))
	f.Add([]byte(meta + "command: {jobs: [{name: j, run: [a], resources: {gpus: 0, disk: 0, memory: 1.5G}}]}\nresources: {cpus: 4, gpus: 1, disk: 1G, memory: 4G, time: 01:30:00}"))
	f.Add([]byte(meta + "command: {jobs: [{name: j, run: [a], needs: [k, \"[a-k]?\"]}, {name: k, run: [a]}, {name: ab, run: [a]}]}\ncanary: 2\nstop_after: 10%"))
	f.Add([]byte(meta + "sweep: {n: [1, 2], nu: 0.1:0.2:0.1}\ncommand: {jobs: [{run: [a, {n}, \"--nu={nu}\"]}, {name: t, run: [a], needs: [\"n=*\"]}]}"))
	f.Add([]byte(meta + "sweep: [a=1:9:1 + b=\"x y\",c, -k 2, -s 3, -x 2]\ncommand: {jobs: [{name: \"{#}\", run: [a, \"{} {{a}}\"], resources: {cpus: {a}}}]}"))
	place := regexp.MustCompile(`^f(:[1-9][0-9]*:[1-9][0-9]*)?: .`)
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseFile("f", data)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !place.MatchString(line) {
					t.Fatalf("%q: %q", data, line)
				}
			}
			return
		}
		b, err := ParseFile("f", a.YAML())
		if err != nil {
			t.Fatalf("%q was written as %q: %v", data, a.YAML(), err)
		}
		if !same(a, b) {
			t.Fatalf("%q was written as %q:\n%+v\n%+v", data, a.YAML(), a, b)
		}
	})
}

// same says that two files are the same batch, wherever it stands in them.
func same(a, b *File) bool {
	for _, f := range []*File{a, b} {
		f.Data, f.buildAt, f.jobsAt, f.jobAt, f.needAt, f.image.at = nil, conf.Place{}, conf.Place{}, nil, nil, conf.Place{}
		f.jobMade = nil // is told of in comments
		for _, l := range append(f.jobWants, f.wants) {
			for i := range l {
				l[i].at = conf.Place{}
				if l[i].alias == filepath.Base(l[i].source()) && !l[i].glob() {
					l[i].alias = ""
				}
			}
		}
	}
	jobs := reflect.DeepEqual(a.Jobs, b.Jobs)
	a.Jobs, b.Jobs = nil, nil
	return jobs && fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}
