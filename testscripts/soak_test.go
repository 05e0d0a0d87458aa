package testscripts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/suite"
)

// How a soak goes: its rounds, and by how much the figures of its second half
// may exceed those of the first. What grows with the jobs that are over would
// grow by a multiple.
const (
	soakRounds  = 8
	soakSlack   = 1.25
	soakBesides = 4 << 20 // bytes, and for counts a few: what comes and goes
	soakCount   = 16
)

// A daemon at rest has the same figures however many jobs it has seen: SOAK
// jobs (make soak), a round at a time. Every other batch is deleted, as people
// do.
func TestSoak(t *testing.T) {
	n := 1000 * soakRounds
	if text := os.Getenv("SOAK"); text == "" {
		suite.Long(t, "make soak")
	} else {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1000*soakRounds {
			t.Fatalf("SOAK is a number of jobs from %d, not %q", 1000*soakRounds, text)
		}
	}
	l := newLab(t, 4)
	daemons := map[string]*watched{"dsched": {pid: l.all[0].Process.Pid}, "dnoded": {pid: l.all[1].Process.Pid}}
	lines := numbers(n / soakRounds)
	for round := range soakRounds {
		batch := fmt.Sprintf("ns/round%d", round)
		c := l.command("dsubmit", "-qw", "-R", "cpus=1", "-b", batch, "--", "true", "{}")
		c.Stdin = strings.NewReader(lines)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		l.until(func() bool { return strings.Contains(l.run("dquery", "-N"), "\tidle\t") })
		if round%2 == 1 {
			l.run("drm", "-q", batch)
		}
		for name, d := range daemons {
			d.look(t, l, name)
		}
		last := func(f []float64) float64 { return f[len(f)-1] }
		h, d := daemons["dsched"], daemons["dnoded"]
		t.Logf("%d jobs: dsched %.1f MiB heap, %.1f MiB resident, %.0f goroutines, %.0f descriptors; dnoded %.1f MiB heap, %.1f MiB resident, %.0f goroutines, %.0f descriptors",
			(round+1)*(n/soakRounds), last(h.heap)/(1<<20), last(h.rss)/(1<<20), last(h.routines), last(h.fds),
			last(d.heap)/(1<<20), last(d.rss)/(1<<20), last(d.routines), last(d.fds))
	}
	for name, d := range daemons {
		for _, f := range []struct {
			what  string
			of    []float64
			extra float64
		}{{"heap", d.heap, soakBesides}, {"resident memory", d.rss, 4 * soakBesides}, {"goroutines", d.routines, soakCount}, {"descriptors", d.fds, soakCount}} {
			if raceEnabled && f.what == "resident memory" {
				continue // of which the detector's own grows
			}
			if was, is := halves(f.of); is > was*soakSlack+f.extra {
				t.Errorf("%s of %s grew from %.0f to %.0f: %.0f", f.what, name, was, is, f.of)
			}
		}
	}
}

// halves is the most of each half of some figures.
func halves(of []float64) (first, second float64) {
	for i, f := range of {
		if i < len(of)/2 {
			first = max(first, f)
		} else {
			second = max(second, f)
		}
	}
	return first, second
}

// A watched is a daemon, and what it used after each round.
type watched struct {
	pid                      int
	heap, rss, routines, fds []float64
}

var figures = regexp.MustCompile(`msg=figures goroutines=(\d+) heap=(\d+) descriptors=(\d+)`)

// look asks a daemon for its figures.
func (d *watched) look(t *testing.T, l *lab, name string) {
	t.Helper()
	said := func() [][]string {
		text, err := os.ReadFile(filepath.Join(l.dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		return figures.FindAllStringSubmatch(string(text), -1)
	}
	before := len(said())
	if err := syscall.Kill(d.pid, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	l.until(func() bool { return len(said()) > before })
	all := said()
	number := func(i int) float64 {
		f, err := strconv.ParseFloat(all[len(all)-1][i], 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	d.routines, d.heap, d.fds = append(d.routines, number(1)), append(d.heap, number(2)), append(d.fds, number(3))
	d.rss = append(d.rss, resident(t, d.pid, "VmRSS"))
}
