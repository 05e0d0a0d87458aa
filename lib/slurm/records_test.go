package slurm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"distribute/lib/job"
)

const list = `{"version":1,"id":"0123456789abcdef0123456789abcdef","name":"hpc","batch":"ns/b","kind":"command"}
{"job":"a","dir":"jobs/a","group":0,"index":0,"inputs":["in/x"]}
{"job":"b","dir":"jobs/b","group":0,"index":1}
`

func TestReadFolder(t *testing.T) {
	f, err := ReadFolder(strings.NewReader(list))
	if err != nil || f.Name != "hpc" || len(f.Jobs) != 2 || f.Jobs[0].Inputs[0] != "in/x" {
		t.Errorf("%+v, %v", f, err)
	}
	for _, change := range [][2]string{
		{`"version":1`, `"version":2`}, {`"version":1`, `"version":"1"`}, {"0123", "z123"}, {`"hpc"`, `"../hpc"`}, {`"ns/b"`, `"b"`},
		{`"jobs/a"`, `"jobs/../../a"`}, {`"jobs/a"`, `"/etc"`}, {`"jobs/a"`, `"jobs/a/"`}, {`"jobs/a"`, `"jobs/a/b"`}, {`"jobs/a"`, `"other"`},
		{`"jobs/a"`, `"jobs/b"`}, {`"job":"a"`, `"job":"b"`}, {`"job":"a"`, `"job":""`}, {`"index":0`, `"index":-1`}, {`"in/x"`, `"../x"`},
		{`"in/x"`, `"in\n/x"`}, {`"index":1}` + "\n", `"index":1`}, {list, ""},
	} {
		if _, err := ReadFolder(strings.NewReader(strings.Replace(list, change[0], change[1], 1))); !errors.Is(err, ErrFolder) {
			t.Errorf("with %q: %v", change[1], err)
		}
	}
}

// A large content that inputs of several times have is linked with the time of the first of
// them, or cloned with that of each: the list of a folder has both.
func TestListHasTimesOfLinks(t *testing.T) {
	sum, first, second := strings.Repeat("0", 64), int64(1764400000e9), int64(1764300000e9)
	input := func(path string, size int64, at *int64) job.Input {
		return job.Input{Path: path, Sum: sum, Size: size, MTime: at}
	}
	b := &job.Batch{Namespace: "ns", Name: "b", Spec: job.Spec{Kind: job.Command, Resources: job.Resources{CPUs: 1}}}
	b.Jobs = []job.Job{{Name: "large", Run: []string{"true"}, Inputs: []job.Input{input("a", sharedFrom, &first), input("b", sharedFrom, &second)}}}
	for size, want := range map[int64]string{sharedFrom: "[a b b] [1764400000000000000 1764300000000000000 1764400000000000000]", 1: "[a b] [1764400000000000000 1764300000000000000]"} {
		for i := range b.Jobs[0].Inputs {
			b.Jobs[0].Inputs[i].Size = size
		}
		p, err := planOf(b)
		if err != nil {
			t.Fatal(err)
		}
		w := writer{Export: &Export{Batch: b, ID: job.NewToken(), Name: "hpc"}, plan: p, dir: t.TempDir()}
		if err := w.list(); err != nil {
			t.Fatal(err)
		}
		text, err := os.Open(filepath.Join(w.dir, ListFile))
		if err != nil {
			t.Fatal(err)
		}
		f, err := ReadFolder(text)
		text.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(f.Jobs[0].Inputs, " ", f.Jobs[0].MTimes); got != want {
			t.Errorf("of %d bytes: %s, want %s", size, got, want)
		}
	}
}

func TestReadSubmitted(t *testing.T) {
	s, err := ReadSubmitted(strings.NewReader("build\t\t\t7\n0\t0\t9\t100\n0\t10\t19\t101\n0\t3\t3\t102\nnonsense\n1\t0\t-1\t5\n0\t0\t9\t10"))
	if err != nil || len(s.Odd) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, tt := range []struct {
		index int
		want  string
	}{{0, "100_0"}, {9, "100_9"}, {12, "101_2"}, {3, "102_0"}, {20, ""}} {
		id, ok := s.Of(&FolderJob{Index: tt.index})
		if ok != (tt.want != "") || ok && id.String() != tt.want {
			t.Errorf("index %d is %v", tt.index, id)
		}
	}
}

func TestReadStatus(t *testing.T) {
	o, terminated, err := ReadStatus([]byte(`{"exit":0,"signal":"","started":1768212000,"ended":"2026-01-12T10:01:30Z",` +
		`"node":"n1","slurm":"5_0","cpu_time":1.2345,"written":4096,"memory_peak":1048576}` + "\n"))
	if err != nil || !o.OK() || o.Runtime != 90 || o.Machine != "n1" || o.CPUTime != 1.235 || o.Written != 4096 || o.MemoryPeak != 1<<20 || terminated {
		t.Errorf("%+v, %v, %v", o, terminated, err)
	}
	if o, _, err := ReadStatus([]byte(`{"exit":0,"cpu_time":-1,"memory_peak":1e30,"written":-5}`)); err != nil || !o.OK() || o.CPUTime != 0 || o.MemoryPeak != 0 || o.Written != 0 {
		t.Errorf("odd amounts: %+v, %v", o, err)
	}
	for _, signal := range []string{`9`, `"9"`, `"KILL"`, `"SIGKILL"`} {
		if o, _, err := ReadStatus([]byte(`{"exit":137,"signal":` + signal + `}`)); err != nil || o.Signal != "SIGKILL" || o.Exit != nil {
			t.Errorf("signal %s: %+v, %v", signal, o, err)
		}
	}
	for _, signal := range []string{`34`, `"SIG34"`} {
		if o, _, err := ReadStatus([]byte(`{"exit":null,"signal":` + signal + `}`)); err != nil || o.Signal != "SIG34" || o.Exit != nil {
			t.Errorf("signal %s: %+v, %v", signal, o, err)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"exit":-1}`, `{"exit":256}`, `{"exit":0`, `{"exit":"0"}`, `{"signal":99}`, `{"signal":true}`,
		`{"exit":0,"started":"soon"}`, `{"exit":0,"ended":-1}`, `{"exit":0,"ended":1e300}`, `{"exit":0,"exit":1}`,
		`{"exit":0,"written":"1"}`, "{" + strings.Repeat(" ", MaxStatus) + "}"} {
		if o, _, err := ReadStatus([]byte(bad)); !errors.Is(err, ErrStatus) {
			t.Errorf("%.60s: %+v, %v", bad, o, err)
		}
	}
}

// What has become of a job follows from its status file, the accounting and the
// controller; neither a record that was never closed nor one that is missing ends it.
func TestFate(t *testing.T) {
	s, _ := ReadSubmitted(strings.NewReader("0\t0\t9\t5\n"))
	good := []byte(`{"exit":0}`)
	ended := []byte(`{"exit":null,"signal":"SIGTERM","terminated":true}`)
	for _, tt := range []struct {
		name, account, control string
		status                 []byte
		want                   Stand
		words                  string
	}{
		{"nothing is known", "", "", nil, Unknown, ""},
		{"pending", "5_[0-9%2]|PENDING|0:0|Unknown|Unknown|", "JobId=5 ArrayJobId=5 ArrayTaskId=0-9%2 JobState=PENDING ExitCode=0:0", nil, Waiting, ""},
		{"what it needs failed", "5_0|CANCELLED|0:0|Unknown|1768212090|None assigned|DependencyNeverSatisfied", "", nil, Unmet, ""},
		{"what it needs failed, no accounting", "-", "JobId=5 ArrayJobId=5 ArrayTaskId=0 JobState=CANCELLED Reason=DependencyNeverSatisfied ExitCode=0:0", nil, Unmet, ""},
		{"what it waited for failed", "5_0|CANCELLED|0:0|1768212090|1768212090|None assigned|Dependency", "", nil, Unmet, ""},
		{"cancelled by a person while it waited for the build", "5_0|CANCELLED by 1000|0:0|1768212090|1768212090|None assigned|Dependency", "", nil, Ended, "cancelled on the cluster"},
		{"cancelled by a person, and it had waited for the build", "5_0|CANCELLED by 1000|0:15|1768212000|1768212090|n1|Dependency", "", nil, Ended, "cancelled on the cluster"},
		{"cancelled where it ran, and it had waited for the build", "5_0|CANCELLED|0:0|1768212000|1768212090|n[1-2]|Dependency", "", nil, Ended, "cancelled on the cluster"},
		{"cancelled while it waited", "-", "JobId=5 ArrayJobId=5 ArrayTaskId=0 JobState=CANCELLED Reason=None ExitCode=0:0", nil, Ended, "cancelled on the cluster"},
		{"pending, no accounting", "-", "JobId=5 ArrayJobId=5 ArrayTaskId=0-9%2 JobState=PENDING ExitCode=0:0", nil, Waiting, ""},
		{"running", "5_0|RUNNING|0:0|1768212000|Unknown|n1", "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=RUNNING", nil, Running, ""},
		{"running for ever", "5_0|RUNNING|0:0|1768212000|Unknown|n1", "JobId=77 JobState=RUNNING", nil, Runaway, ""},
		{"the controller is away", "5_0|RUNNING|0:0|1768212000|Unknown|n1", "-", nil, Running, ""},
		{"running for ever, and it has written", "5_0|RUNNING|0:0|1768212000|Unknown|n1", "JobId=77 JobState=RUNNING", good, Ended, ""},
		{"well", "5_0|COMPLETED|0:0|1768212000|1768212090|n1", "", good, Ended, ""},
		{"well, unwritten", "5_0|COMPLETED|0:0|1768212000|1768212090|n1", "", nil, Unwritten, ""},
		{"failed, unwritten", "5_0|FAILED|3:0|1768212000|1768212090|n1", "", nil, Ended, "exit 3"},
		{"not begun", "5_0|FAILED|75:0|1768212000|1768212001|n1", "", nil, Unbegun, "could not begin on the cluster: see slurm/5_0.out there"},
		{"not begun, no accounting", "-", "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=FAILED ExitCode=75:0", nil, Unbegun, ""},
		{"Slurm could not open its output", "5_0|FAILED|0:53|1768212000|1768212001|n1", "", nil, Unbegun, "Slurm could not start it: is the folder on every node, and has its disk room?"},
		{"Slurm could not open its output, no accounting", "-", "JobId=5 ArrayJobId=5 ArrayTaskId=0 JobState=FAILED Reason=JobLaunchFailure ExitCode=0:53", nil, Unbegun, ""},
		{"it ends by signal 53 itself", "5_0|FAILED|181:0|1768212000|1768212090|n1", "", []byte(`{"exit":null,"signal":"SIG53"}`), Ended, "SIG53"},
		{"it says 75 itself", "5_0|FAILED|75:0|1768212000|1768212090|n1", "", []byte(`{"exit":75}`), Ended, "exit 75"},
		{"begun, and how it ended could not be written", "5_0|FAILED|74:0|1768212000|1768212090|n1", "", nil, Unwritten, ""},
		{"killed", "5_0|FAILED|0:9|1768212000|1768212090|n1", "", nil, Ended, "SIGKILL"},
		{"too long", "5_0|TIMEOUT|0:0|1768212000|1768212090|n1", "", nil, Ended, job.ReasonTime},
		{"too long, and it says that it was well", "5_0|TIMEOUT|0:0|1768212000|1768212090|n1", "", good, Ended, job.ReasonTime},
		{"too large", "5_0|OUT_OF_ME+|0:125|1768212000|1768212090|n1", "", nil, Ended, ""},
		{"too large, in full", "5_0|OUT_OF_MEMORY|0:125|1768212000|1768212090|n1", "", nil, Ended, job.ReasonMemory},
		{"cancelled", "5_0|CANCELLED by 1000|0:0|1768212000|1768212090|n1", "", nil, Ended, "cancelled on the cluster"},
		{"the machine failed", "5_0|NODE_FAIL|1:0|1768212000|1768212090|n1", "", nil, Lost, "Slurm says NODE_FAIL"},
		{"requeued", "5_0|NODE_FAIL|1:0|1768212000|1768212090|n1\n5_0|PENDING|0:0|Unknown|Unknown|", "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=PENDING", nil, Waiting, ""},
		{"failed, no accounting", "-", "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=FAILED ExitCode=2:0 StartTime=1768212000 EndTime=1768212090", nil, Ended, "exit 2"},
		{"ended by the cluster, requeued", "-", "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=PENDING Reason=BeginTime", ended, Waiting, ""},
		{"ended by the cluster, runs again", "5_0|PREEMPTED|0:15|1768212000|1768212090|n1\n5_0|RUNNING|0:0|1768212100|Unknown|n2",
			"JobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=RUNNING", ended, Running, ""},
		{"preempted", "5_0|PREEMPTED|0:15|1768212000|1768212090|n1", "", ended, Lost, "Slurm says PREEMPTED"},
		{"ended well before it was preempted", "5_0|PREEMPTED|0:15|1768212000|1768212090|n1", "", good, Ended, ""},
		{"ended by the cluster, too long", "5_0|TIMEOUT|0:15|1768212000|1768212090|n1", "", ended, Ended, job.ReasonTime},
		{"ended by the cluster, cancelled", "-", "JobId=5 ArrayJobId=5 ArrayTaskId=0 JobState=CANCELLED ExitCode=0:15", ended, Ended, "cancelled on the cluster"},
		{"ended by the cluster, which knows nothing of it any more", "-", "", ended, Ended, "SIGTERM"},
		{"ended by the cluster, which does not answer", "-", "-", ended, Unknown, ""},
		{"well, and the cluster does not answer", "-", "-", good, Ended, ""},
		{"a rank was too large", "5_0|OUT_OF_MEMORY|0:125|1768212000|1768212090|n1", "", []byte(`{"exit":null,"signal":"SIGKILL","reason":"rank 1 of 2: SIGKILL"}`), Ended,
			job.ReasonMemory + " (rank 1 of 2: SIGKILL)"},
		{"another's, who names it so", "5_0|RUNNING|0:0|1768212000|Unknown|n1", "JobId=6 ArrayJobId=5 ArrayTaskId=0 JobName=a JobState=RUNNING\n" +
			"JobId=9 JobName=x ArrayJobId=5 ArrayTaskId=0 JobState=FAILED ExitCode=1:0 UserId=eve(1) JobState=PENDING", nil, Running, ""},
		{"another's", "6_0|FAILED|3:0|1768212000|1768212090|n1", "", nil, Unknown, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "== sacct\n" + tt.account + "\n== 0\n== scontrol\n" + tt.control + "\n== 0\n"
			text = strings.Replace(text, "-\n== 0", "it is disabled\n== 1", -1)
			f := FateOf(&FolderJob{Job: "a", Dir: "jobs/a"}, s, ReadRecords(text, s.IDs()), tt.status)
			if f.Stand != tt.want || tt.words != "" && f.Outcome.Words() != tt.words {
				t.Errorf("it is %d with %q, want %d with %q", f.Stand, f.Outcome.Words(), tt.want, tt.words)
			}
		})
	}
}

// A task that runs has run since it began, by the clock of the cluster, however long it waited.
func TestRanFor(t *testing.T) {
	s, _ := ReadSubmitted(strings.NewReader("0\t0\t9\t5\n"))
	for text, want := range map[string]float64{
		"== now\n1768212090\n== sacct\n5_0|RUNNING|0:0|1768212000|Unknown|n1\n== 0\n":                                                             90,
		"== now\n1768212090\n== scontrol\nJobId=6 ArrayJobId=5 ArrayTaskId=0 JobState=RUNNING SubmitTime=1768200000 StartTime=1768212080\n== 0\n": 10,
		"== now\n1768211999\n== sacct\n5_0|RUNNING|0:0|1768212000|Unknown|n1\n== 0\n":                                                             0.001,
		"== now\n1768212090\n== sacct\n5_0|PENDING|0:0|Unknown|Unknown|\n== 0\n":                                                                  0,
		"== sacct\n5_0|RUNNING|0:0|1768212000|Unknown|n1\n== 0\n":                                                                                 0,
	} {
		if got := FateOf(&FolderJob{}, s, ReadRecords(text, s.IDs()), nil).Ran; got != want {
			t.Errorf("%q: %g seconds, want %g", text, got, want)
		}
	}
}

// A build that has not begun, or that Slurm ended for its own reasons, has not failed.
func TestNotBuilt(t *testing.T) {
	s, _ := ReadSubmitted(strings.NewReader("build\t\t\t4\n0\t0\t9\t5\n"))
	for account, want := range map[string]string{
		"":                     "",
		"4|FAILED|74:0|||n1":   "",
		"4|FAILED|75:0|||n1":   "the build could not begin on the cluster: see slurm/build.out there",
		"4|FAILED|0:53|||n1":   "Slurm could not start the build: is the folder on every node, and has its disk room?",
		"4|NODE_FAIL|0:0|||n1": "the build was ended: Slurm says NODE_FAIL",
		"4|COMPLETED|0:0|||n1": "",
		"5_0|FAILED|75:0|||n1": "",
	} {
		if got := NotBuilt(s, ReadRecords("== sacct\n"+account+"\n== 0\n", map[int64]bool{4: true, 5: true})); got != want {
			t.Errorf("%q: %q", account, got)
		}
	}
	if s, _ := ReadSubmitted(strings.NewReader("build\n0\t0\t9\t5\n")); s.Build != 0 || len(s.Odd) != 1 {
		t.Errorf("a build without an id: %+v", s)
	}
}

// Slurm names all tasks of an array that wait, however scattered they are.
func TestAskedOfMany(t *testing.T) {
	const tasks = 60
	dir, list := t.TempDir(), "0"
	for i := 2; i < tasks; i += 2 {
		list += "," + strconv.Itoa(i)
	}
	for name, says := range map[string]string{
		"sacct":    "5_[%s]|PENDING|0:0|Unknown|Unknown|None assigned|None",
		"scontrol": "JobId=5 ArrayJobId=5 ArrayTaskId=%s JobState=PENDING ExitCode=0:0",
	} {
		text := "#!/bin/sh\nlist=" + list + "\n[ \"$SLURM_BITSTR_LEN\" = 0 ] || list=$(printf %.61s \"$list\")...\nprintf '" + says + "\\n' \"$list\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", Ask([]int64{5}))
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	s, _ := ReadSubmitted(strings.NewReader("0\t0\t59\t5\n"))
	r := ReadRecords(string(text), s.IDs())
	for i := range tasks {
		want := Waiting
		if i%2 == 1 {
			want = Unknown
		}
		if f := FateOf(&FolderJob{Index: i}, s, r, nil); f.Stand != want {
			t.Errorf("task %d is %d, want %d", i, f.Stand, want)
		}
	}
}

// So many arrays that one command cannot name them, as where each job needs another one, are asked for
// in several. If one of these fails, the accounting has not answered.
func TestAskedOfManyArrays(t *testing.T) {
	dir := t.TempDir()
	text := "#!/bin/sh\nfor last; do :; done\nIFS=,\nfor id in $last; do [ \"$id\" != \"$BAD\" ] || exit 1; echo \"${id}_0|TIMEOUT|0:0|1768212000|1768212090|n1\"; done\n"
	for name, text := range map[string]string{"sacct": text, "scontrol": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const arrays = 15_000
	ids, of := make([]int64, arrays), map[int64]bool{}
	for i := range ids {
		ids[i] = 2_000_000_000 + int64(i)
		of[ids[i]] = true
	}
	for _, tt := range []struct {
		bad  string
		want int
	}{{"", arrays}, {"2000000001", 0}} {
		cmd := exec.Command("sh", "-s")
		cmd.Stdin = strings.NewReader(Ask(ids))
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "BAD=" + tt.bad}
		answer, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		r := ReadRecords(string(answer), of)
		if r.Accounted != (tt.want > 0) || len(r.account) != tt.want {
			t.Errorf("of %d arrays %d are known (%t)", arrays, len(r.account), r.Accounted)
		}
	}
}

// What a task used, and where, comes from the accounting if its script has not said it.
func TestUsed(t *testing.T) {
	s, _ := ReadSubmitted(strings.NewReader("0\t0\t9\t5\n"))
	account := "== sacct\n5_0|TIMEOUT|0:0|1768212000|1768212090|n1|None|1-02:03:04|\n" +
		"5_0.batch|CANCELLED|0:15|1768212000|1768212090|n1||01:02.500|12.5M|3K\n5_0.extern|COMPLETED|0:0|1768212000|1768212090|n1||00:00.001|1K|\n== 0\n"
	for _, tt := range []struct {
		status string
		want   job.Outcome
	}{
		{"", job.Outcome{Machine: "n1", CPUTime: 93784, MemoryPeak: 13107200, Written: 3072}},
		{`{"exit":1,"cpu_time":7,"memory_peak":8,"written":9,"node":"n3"}`, job.Outcome{Machine: "n3", CPUTime: 7, MemoryPeak: 8, Written: 9}},
		{`{"exit":1}`, job.Outcome{Machine: "n1", CPUTime: 93784, MemoryPeak: 13107200, Written: 3072}},
	} {
		status := []byte(tt.status)
		if tt.status == "" {
			status = nil
		}
		o := FateOf(&FolderJob{Job: "a", Dir: "jobs/a"}, s, ReadRecords(account, s.IDs()), status).Outcome
		if got := (job.Outcome{Machine: o.Machine, CPUTime: o.CPUTime, MemoryPeak: o.MemoryPeak, Written: o.Written}); got != tt.want {
			t.Errorf("with %s: %+v", tt.status, got)
		}
	}
	for text, want := range map[string]float64{"00:01.234": 1.234, "01:00:00": 3600, "1-00:00:00": 86400, "": 0, "x": 0, "1:2:3:4": 0, "-1": 0} {
		if got := spent(text); got != want {
			t.Errorf("%q is %v s", text, got)
		}
	}
	for text, want := range map[string]int64{"0": 0, "12K": 12288, "1.5G": 3 << 29, "": 0, "K": 0, "-1K": 0, "1X": 0, "nan": 0, "9e99T": 0} {
		if got := bytesOf(text); got != want {
			t.Errorf("%q is %d bytes", text, got)
		}
	}
	for list, want := range map[string]string{"n1": "n1", "n[1-2]": "", "n1,n2": "", "None assigned": "", "(null)": "", "": ""} {
		if got := machine(list); got != want {
			t.Errorf("%q is the machine %q", list, got)
		}
	}
}

func FuzzFolder(f *testing.F) {
	f.Add(list)
	f.Add(list + "{}")
	f.Fuzz(func(t *testing.T, text string) {
		folder, err := ReadFolder(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, j := range folder.Jobs {
			if base, ok := strings.CutPrefix(j.Dir, "jobs/"); !ok || base == "" || base == "." || base == ".." || strings.Contains(base, "/") {
				t.Errorf("directory %q", j.Dir)
			}
		}
	})
}

func FuzzRecords(f *testing.F) {
	f.Add("== sacct\n5_[0-3,7%2]|RUNNING|0:0|1768212000|Unknown|n1\n== 0\n== scontrol\nJobId=5 JobState=FAILED ExitCode=1:0\n== 0\n", `{"exit":0}`)
	f.Add("== sacct\nno\n== 1\n", `{"signal":"KILL","started":1}`)
	s, _ := ReadSubmitted(strings.NewReader("0\t0\t9\t5\n"))
	f.Fuzz(func(t *testing.T, text, status string) {
		fate := FateOf(&FolderJob{Job: "a", Dir: "jobs/a"}, s, ReadRecords(text, s.IDs()), []byte(status))
		if o := fate.Outcome; o.OK() != (o.Exit != nil && *o.Exit == 0 && o.Signal == "" && o.Reason == "") || o.Runtime < 0 {
			t.Errorf("%+v", fate)
		}
		if fate.Stand == Ended && fate.Outcome.Exit == nil && fate.Outcome.Signal == "" && fate.Outcome.Reason == "" {
			t.Error("it has ended, and nobody knows how")
		}
	})
}
