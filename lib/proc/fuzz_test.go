package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzKernel reads what the kernel, or a file of an order's directory, may say.
func FuzzKernel(f *testing.F) {
	f.Add([]byte("12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2\n"))
	f.Add([]byte("36 35 0:31 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"))
	f.Add([]byte(`{"supervised":{"token":"t","pid":77,"start":12345,"boot":"b1"}}` + "\n" + `{"limit":7}` + "\n"))
	f.Add([]byte(`{"ended":{"token":"t","exit":3}}` + "\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parseStat(7, text); err == nil && p.pid != 7 {
			t.Fatalf("%q is of process %d", text, p.pid)
		}
		if m := parseMounts(text); m != "" && (strings.Contains(m, `\`) || !strings.Contains(string(text), m)) {
			t.Fatalf("%q has cgroups at %q", text, m)
		}
		if err := os.WriteFile(filepath.Join(dir, RecordFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if h, ok := HolderOf(dir, "b1"); ok && (h.Pid <= 1 || h.Boot != "b1") {
			t.Fatalf("%q is a holder: %+v", text, h)
		}
		if s, err := ReadStatus(dir, "t"); err == nil && s.SignalName() == "" && s.Signal != 0 {
			t.Fatalf("%q ended by signal %d without a name", text, s.Signal)
		}
	})
}
