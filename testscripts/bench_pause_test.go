package testscripts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A whole dpause, from its start until it has seen that nothing runs, with a tree
// of a thousand processes of which one works: the median and the longest, beside one
// where no job runs and the end of the pause. After that the tree has gone on before
// it is paused again.
func BenchmarkPause(b *testing.B) {
	turns := scale(b, 11)
	for b.Loop() {
		l := newLab(b, 1)
		node := filepath.Join(l.dir, "node")
		pause := func() (down, up float64) {
			return took(func() { l.run("dpause", "-q", "-D", node, "1h") }), took(func() { l.run("dpause", "-q", "-D", node, "-r") })
		}
		var none, whole, end []float64
		for range turns {
			down, _ := pause()
			none = append(none, down)
		}
		up := filepath.Join(l.dir, "up")
		script := "for i in $(seq 998); do sleep 10000 & done; (while :; do :; done) & echo $$ >" + up + ".new; mv " + up + ".new " + up + "; wait"
		l.run("dsubmit", "-q", "-b", "ns/tree", "--", "sh", "-c", script)
		goesOn := func() bool { // jobs come last on a machine that is busy
			session, err := os.ReadFile(up)
			return err == nil && sleeping(strings.TrimSpace(string(session))) == 999
		}
		for range turns {
			l.within(10*time.Minute, goesOn)
			down, up := pause()
			whole, end = append(whole, down), append(end, up)
		}
		l.run("dcancel", "-q", "ns/tree")
		l.command("dwait", "-q", "ns/tree").Run() // 1: it was cancelled
		b.ReportMetric(median(whole)*1e3, "ms")
		b.ReportMetric(slices.Max(whole)*1e3, "longest-ms")
		b.ReportMetric(median(none)*1e3, "no-job-ms")
		b.ReportMetric(median(end)*1e3, "end-ms")
		b.ReportMetric(0, "ns/op")
		l.stop()
	}
}

// sleeping is how many processes of a session wait for something.
func sleeping(session string) (n int) {
	files, _ := filepath.Glob("/proc/[1-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if err == nil && len(f) > 3 && f[0] == "S" && f[3] == session {
			n++
		}
	}
	return n
}
