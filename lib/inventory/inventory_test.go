package inventory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kernel is a machine of 8G whose files are made.
func kernel(t *testing.T, files map[string]string) *Source {
	t.Helper()
	root := t.TempDir()
	if files["/proc/meminfo"] == "" {
		files["/proc/meminfo"] = "MemTotal:        8388608 kB\nMemFree: 1 kB\n"
	}
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return &Source{Root: root, CPUs: 4}
}

const (
	v2    = "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1    = "33 31 0:28 /docker/x /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n34 31 0:29 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	group = "/sys/fs/cgroup/user.slice/a.service/"
)

func TestCPUsAndMemory(t *testing.T) {
	own := map[string]string{"/proc/self/mountinfo": v2, "/proc/self/cgroup": "0::/user.slice/a.service\n"}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{own, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		return all
	}
	tests := []struct {
		name   string
		files  map[string]string
		file   File
		cpus   int
		memory int64 // MiB
		why    string
	}{
		{"a bare machine", map[string]string{}, File{}, 4, 7168, "what this process may use"},
		{"no bounds", with(map[string]string{group + "cpu.max": "max 100000\n", group + "memory.max": "max\n"}), File{}, 4, 7168, "8G (the machine's), 1G kept for its owner"},
		{"a group", with(map[string]string{group + "cpu.max": "250000 100000\n", group + "memory.max": "1073741824\n"}), File{}, 2, 1024, "the cgroup's limit of 2.5 cpus"},
		{"one above", with(map[string]string{"/sys/fs/cgroup/user.slice/cpu.max": "50000 100000\n", "/sys/fs/cgroup/user.slice/memory.high": "2147483648\n"}), File{}, 1, 2048, "the cgroup's limit"},
		{"more than there is", with(map[string]string{group + "cpu.max": "6400000 100000\n", group + "memory.max": "1099511627776\n"}), File{}, 4, 7168, "the machine's"},
		{"version 1", map[string]string{"/proc/self/mountinfo": v1, "/proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/docker/x\n",
			"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n"}, File{}, 3, 4096, "the cgroup's limit of 3 cpus"},
		{"version 1, unbounded", map[string]string{"/proc/self/mountinfo": v1, "/proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
			"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, File{}, 4, 7168, "the machine's"},
		{"garbage", with(map[string]string{group + "cpu.max": "x\n", group + "memory.max": "-5\n", "/proc/meminfo": "MemTotal: 1024 kB"}), File{}, 4, 1, "the machine's"},
		{"the file", map[string]string{}, File{CPUs: 2, Memory: 1 << 30}, 2, 1024, "node.yaml; 4 here"},
		{"more cpus than here", map[string]string{}, File{CPUs: 9, Memory: 64 << 30}, 9, 8192, "the machine's; node.yaml says 64G"},
		{"cpus that jobs share", map[string]string{}, File{CPUs: 9}, 9, 7168, "node.yaml; 4 here, so jobs share them"},
		{"a large one", map[string]string{"/proc/meminfo": "MemTotal: 67108864 kB"}, File{}, 4, 58983, "64G (the machine's), 6.4G kept for its owner"},
		{"a small one", map[string]string{"/proc/meminfo": "MemTotal: 1048576 kB"}, File{}, 4, 512, "512M kept for its owner"},
		{"several nodes", map[string]string{}, File{Nodes: []*File{{Name: "a", CPUs: 4}}}, 4, 8192, "the machine's"},
		{"nothing is kept", map[string]string{}, File{Keep: Keep{CPUs: 1, NoMemory: true}}, 3, 8192, "the machine's"},
		{"kept, but no memory is said", map[string]string{}, File{Keep: Keep{CPUs: 1}}, 3, 7168, "1G kept for its owner"},
		{"kept", map[string]string{}, File{Keep: Keep{CPUs: 1, Memory: 2 << 30}}, 3, 6144, "8G (the machine's), 2G kept"},
		{"kept, and less", map[string]string{}, File{CPUs: 2, Memory: 1 << 30, Keep: Keep{CPUs: 1, Memory: 2 << 30}}, 2, 1024, "node.yaml; 8G here"},
		{"kept, and more", map[string]string{}, File{CPUs: 4, Memory: 8 << 30, Keep: Keep{CPUs: 1, Memory: 2 << 30}}, 3, 6144, "1 kept; node.yaml says 4"},
	}
	for _, tt := range tests {
		in, err := kernel(t, tt.files).Take(context.Background(), &tt.file)
		if err != nil || in.Offer.CPUs != tt.cpus || in.Offer.Memory != tt.memory<<20 || !slices.ContainsFunc(in.Facts, func(f Fact) bool { return strings.Contains(f.Why, tt.why) }) {
			t.Errorf("%s: %d cpus, %d bytes, %v, %v", tt.name, in.Offer.CPUs, in.Offer.Memory, in.Facts, err)
		}
		if slices.ContainsFunc(in.Lacks, func(f Fact) bool { return f.What == "cpus" }) {
			t.Errorf("%s: cpus that are offered are missing: %v", tt.name, in.Lacks)
		}
	}
	// All jobs together may have what is offered, and not all of the machine's 8 GiB.
	for offered, most := range map[int64]int64{1 << 30: 1 << 30, 8 << 30: 15 << 29} {
		if in, err := kernel(t, map[string]string{}).Take(context.Background(), &File{Memory: offered}); err != nil || in.Most != most {
			t.Errorf("of %d bytes jobs may have %d together, not %d; %v", offered, in.Most, most, err)
		}
	}
	for _, k := range []Keep{{CPUs: 4}, {Memory: 8 << 30}} {
		in, err := kernel(t, map[string]string{}).Take(context.Background(), &File{Keep: k})
		var status interface{ ExitStatus() int }
		if !errors.As(err, &status) || status.ExitStatus() != 65 {
			t.Errorf("%+v is kept: %+v, %v", k, in, err)
		}
	}
}

// Which GPUs are offered, by the node's file.
func TestGPUs(t *testing.T) {
	dir := t.TempDir()
	tool(t, dir, "nvidia-smi", "cat <<'END'\n"+two+"END")
	tests := []struct {
		file    File
		indexes []int
		gpu     bool // the capability
		lacks   string
	}{
		{File{}, []int{0, 1}, true, ""},
		{File{GPUs: []int{1}}, []int{1}, true, ""},
		{File{GPUs: []int{1, 7}}, []int{1}, true, "7"},
		{File{GPUs: []int{}}, nil, false, ""},
		{File{Hidden: []string{"gpu"}}, []int{0, 1}, false, ""},
	}
	for _, tt := range tests {
		s := kernel(t, map[string]string{})
		s.cards = &Cards{path: dir + ":/bin:/usr/bin"}
		in, err := s.Take(context.Background(), &tt.file)
		if err != nil {
			t.Fatal(err)
		}
		var indexes []int
		for _, g := range in.Offer.GPUs {
			indexes = append(indexes, g.Index)
		}
		lacks := ""
		for _, l := range in.Lacks {
			if l.What == "gpu" {
				lacks = l.Value
			}
		}
		if !slices.Equal(indexes, tt.indexes) || slices.Contains(in.Offer.Capabilities, "gpu") != tt.gpu || lacks != tt.lacks {
			t.Errorf("%+v: %+v, %v", tt.file, in.Offer, in.Lacks)
		}
	}
}
