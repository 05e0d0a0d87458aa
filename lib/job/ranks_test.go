package job

import (
	"strings"
	"testing"
)

// What ranks ask for is had by each of them, and checked for all together.
func TestRanks(t *testing.T) {
	r, _, err := ParseRequests([]string{"ranks=4,cpus=2,memory=1G", "gpus=1,disk=5G,time=1h,matlab=1"})
	if all := r.Together(); err != nil || all.CPUs != 8 || all.Memory != 4<<30 || all.GPUs != 4*OneGPU || all.Disk != 5<<30 || all.Time != 3600 || all.Counted != "matlab=1" {
		t.Errorf("%+v, %v", r.Together(), err)
	}
	if one := (Resources{CPUs: 3, Memory: 5}); one.Together() != one {
		t.Errorf("without ranks %+v", one.Together())
	}
	for request, want := range map[string]string{
		"ranks=0":                  "a whole number from 1 to 1024",
		"ranks=1025":               "a whole number from 1 to 1024",
		"ranks=2,cpus=all":         "a whole node has none",
		"ranks=2,gpus=0.25":        "not 0.25 of one",
		"ranks=1024,cpus=65":       "1024 ranks of 65 cpus have 66560 together, and 65536 is the limit",
		"ranks=1024,memory=2T":     "at most 1P",
		"ranks=1024,gpus=2,cpus=1": "2048 gpus make no sense",
	} {
		if _, _, err := ParseRequests([]string{request}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", request, err)
		}
	}
}

// Files with what ranks have printed are known by their names.
func TestRankOutputs(t *testing.T) {
	files := PrintedFiles("a", 2, func(k int) string { return []string{"first", "second"}[k] })
	if len(files) != 3 || files["a_output.txt"] != "first" || files["a_output.0.txt"] != "first" || files["a_output.1.txt"] != "second" {
		t.Errorf("%q", files)
	}
	for path, want := range map[string]bool{"a_output.0.txt": true, "a_output.1.txt": true, "a_output.2.txt": false, "a_output.txt": false,
		"a_output.01.txt": false, "a_output.-1.txt": false, "b_output.0.txt": false, "a_output.1": false, "d/a_output.1.txt": false} {
		if IsRankOutput("a", 2, path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
