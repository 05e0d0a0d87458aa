package testscripts

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A whole dpause, from its start until it has seen that nothing runs, with a tree
// of a thousand processes of which some work: the median, beside one where no job
// runs and the end of the pause.
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
		script := "for i in $(seq 998); do sleep 10000 & done; (while :; do :; done) & touch " + l.dir + "/up; wait"
		l.run("dsubmit", "-q", "-b", "ns/tree", "--", "sh", "-c", script)
		l.within(10*time.Minute, func() bool { // jobs come last on a machine that is busy
			_, err := os.Stat(filepath.Join(l.dir, "up"))
			return err == nil
		})
		for range turns {
			down, up := pause()
			whole, end = append(whole, down), append(end, up)
		}
		l.run("dcancel", "-q", "ns/tree")
		l.command("dwait", "-q", "ns/tree").Run() // 1: it was cancelled
		b.ReportMetric(median(whole)*1e3, "ms")
		b.ReportMetric(median(none)*1e3, "no-job-ms")
		b.ReportMetric(median(end)*1e3, "end-ms")
		b.ReportMetric(0, "ns/op")
		l.stop()
	}
}
