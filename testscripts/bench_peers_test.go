package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"distribute/lib/suite"
)

// slow are peers that do a tenth of the jobs of the others, or of the starts; what
// is compared is how many there were in a second.
var slow = map[string]bool{"slurm": true, "slurm-single": true, "condor": true}

// queues has scripts/peers/queues do something, and returns the numbers that it prints.
func queues(tb testing.TB, args ...string) (numbers []float64) {
	tb.Helper()
	c := exec.Command(filepath.Join(os.Getenv("TOP"), "scripts", "peers", "queues"), args...)
	var talk strings.Builder
	c.Stderr = &talk
	out, err := c.Output()
	if err != nil {
		tb.Fatalf("queues %q: %v: %s", args, err, &talk)
	}
	for field := range strings.FieldsSeq(string(out)) {
		x, err := strconv.ParseFloat(field, 64)
		if err != nil {
			tb.Fatalf("queues %q: %v", args, err)
		}
		numbers = append(numbers, x)
	}
	if len(numbers) == 0 {
		tb.Fatalf("queues %q says nothing: %s", args, &talk)
	}
	return numbers
}

// peers are the names of those that can run here.
func peers(tb testing.TB) []string {
	tb.Helper()
	out, err := exec.Command(filepath.Join(os.Getenv("TOP"), "scripts", "peers", "queues"), "list").Output()
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(out))
}

// Jobs that do nothing, from submit to archived on two slots, against the slower of
// the two things that have to be done for each, which are fork and exec, and
// publishing a result durably; and against the peers that are here, of which xargs
// and GNU parallel keep nothing. A ratio above 1 is in our favour.
func BenchmarkShortJobs(b *testing.B) {
	n := scale(b, 10_000)
	names, lines := peers(b), numbers(n)
	rounds(b, 3, func(f *tally) {
		forks := took(func() { forkExec(b, n) })
		publish := took(func() { publishAlone(b, n) })
		l := newLab(b, 2)
		ours := took(func() { l.feed(lines, "dsubmit", "-qw", "-R", "cpus=1", "-b", "ns/true", "--", "true", "{}") })
		l.stop()
		jobs := float64(n)
		f.add("jobs/s", jobs/ours)
		f.add("forks/s", jobs/forks)
		f.add("publish/s", jobs/publish)
		f.add("of-limit", max(forks, publish)/ours)
		for _, name := range names {
			some := n
			if slow[name] {
				some = max(n/10, 1)
			}
			theirs := float64(some) / queues(b, "run", name, strconv.Itoa(some))[0]
			f.add(name+"-jobs/s", theirs)
			f.add("of-"+name, jobs/ours/theirs)
		}
	})
}

// One job and then the next on a node that is idle: from the moment at which the
// command that submits it is started until the job says what time it is.
func BenchmarkStart(b *testing.B) {
	n := scale(b, 100)
	f := &tally{of: map[string][]float64{}}
	for b.Loop() {
		l := newLab(b, 2)
		ran := filepath.Join(l.dir, "ran")
		script := fmt.Sprintf(`printf %%s "${EPOCHREALTIME/[.,]/}" >%[1]s.new && mv %[1]s.new %[1]s`, ran)
		for i := range n {
			began := time.Now()
			l.run("dsubmit", "-qw", "-b", fmt.Sprintf("ns/start%d", i), "--", "bash", "-c", script)
			text, err := os.ReadFile(ran)
			if err != nil {
				b.Fatal(err)
			}
			us, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			f.add("ms", time.UnixMicro(us).Sub(began).Seconds()*1e3)
			os.Remove(ran)
		}
		l.stop()
		for _, name := range peers(b) {
			if name == "xargs" || name == "parallel" || name == "slurm-single" {
				continue // the first two have no queue
			}
			some := max(n/5, 1)
			if slow[name] {
				some = max(n/20, 1)
			}
			for _, ms := range queues(b, "start", name, strconv.Itoa(some)) {
				f.add(name+"-ms", ms)
			}
		}
	}
	f.report(b)
}

// Each peer does what the benchmarks ask of it, and the benchmarks come to their end.
func TestBenchmarks(t *testing.T) {
	suite.Long(t, "make bench")
	t.Parallel()
	names := peers(t)
	for _, name := range []string{"xargs", "parallel", "tsp", "nq", "hyperqueue", "slurm", "slurm-single", "condor"} {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			t.Errorf("%s is not here: scripts/peers/queues build, as root", name)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-test.timeout=20m")
	c.Env = append(os.Environ(), "BENCH_JOBS=20", "BENCH_ROUNDS=1", "BENCH_MIB=16", "BENCH_REST=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"ShortJobs", "Start", "Submit", "QueuedMemory", "BigResult", "QueryFinished", "Move/noise/1", "Move/text/1000", "Pause", "Rest", "QuerySSH", "Image", "Nodes"} {
		if !strings.Contains(string(out), "\nBenchmark"+name) {
			t.Errorf("there is no benchmark %s in %s", name, out)
		}
	}
}
