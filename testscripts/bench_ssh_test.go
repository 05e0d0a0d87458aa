package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A dquery over ssh against a true over ssh, each over a connection of its own,
// and each over one that is there: medians, of turns that take turns.
func BenchmarkQuerySSH(b *testing.B) {
	if err := wantSSHD(); err != nil {
		b.Skipf("needs sshd: %v", err)
	}
	turns := scale(b, 21)
	for b.Loop() {
		l := newLab(b, 0)
		s, err := startSSHD(filepath.Join(l.dir, "sshd"), "HOME="+l.dir, "PATH="+os.Getenv("PATH"))
		if err != nil {
			b.Fatal(err)
		}
		nowhere := filepath.Join(l.dir, "open") // fit for no sharing
		if err := os.Mkdir(nowhere, 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.Symlink(nowhere, filepath.Join(nowhere, "distribute")); err != nil {
			b.Fatal(err)
		}
		run := func(env string, name string, args ...string) float64 {
			c := l.command(filepath.Join(s.dir, "bin", "ssh"), args...)
			if name != "ssh" {
				c = l.command(name, args...)
			}
			c.Env = append(c.Env, "PATH="+s.path(os.Getenv("PATH")), env)
			return took(func() {
				if out, err := c.CombinedOutput(); err != nil {
					b.Fatalf("%s %q: %v\n%s", name, args, err, out)
				}
			})
		}
		head := "ssh://127.0.0.1:" + s.setting("SSHD_PORT") + l.spool()
		trueThere := []string{"-p", s.setting("SSHD_PORT"), "127.0.0.1", "true"}
		shared := append([]string{"-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", "ControlPath=" + filepath.Join(s.dir, "control")}, trueThere...)
		l.run("dsubmit", "-q", "-b", "ns/one", "--", "true")
		var alone, ours, mux, oursMux []float64
		for range turns {
			alone = append(alone, run("", "ssh", trueThere...))
			ours = append(ours, run("XDG_CACHE_HOME="+nowhere, "dquery", "-q", "-H", head))
			mux = append(mux, run("", "ssh", shared...))
			oursMux = append(oursMux, run("XDG_CACHE_HOME="+l.dir, "dquery", "-q", "-H", head))
		}
		b.ReportMetric(median(ours)*1e3, "ms")
		b.ReportMetric(median(alone)/median(ours), "of-ssh")
		b.ReportMetric(median(oursMux)*1e3, "shared-ms")
		b.ReportMetric(median(mux)/median(oursMux), "shared-of-ssh")
		b.ReportMetric(0, "ns/op")
		exec.Command(filepath.Join(s.dir, "bin", "ssh"), append([]string{"-O", "exit"}, shared...)...).Run()
		s.stop()
		l.stop()
	}
}

// median is the middle of the values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
