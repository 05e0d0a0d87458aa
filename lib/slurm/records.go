// Package slurm reads what comes from jobs on a Slurm cluster: d2slurm(1).
package slurm

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
)

// Ask is the shell command that has Slurm tell of jobs: what its accounting has, if there
// is any, of them and of the scripts that they are, and what its controller does. Its
// times are seconds since 1970, as that of the machine is, which comes first, and it names
// all tasks of an array, not only the first.
func Ask(ids []int64) string {
	var b strings.Builder
	b.WriteString("export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0 LC_ALL=C\necho == now\ndate +%s\necho == sacct\nstatus=0\n")
	for some := range slices.Chunk(ids, maxAsked) {
		words := make([]string, len(some))
		for i, id := range some {
			words[i] = strconv.FormatInt(id, 10)
		}
		b.WriteString("sacct -n -P -D -S 2000-01-01 -o JobID,State,ExitCode,Start,End,NodeList,Reason,TotalCPU,MaxRSS,MaxDiskWrite -j " + strings.Join(words, ",") + " 2>&1 || status=$?\n")
	}
	b.WriteString("echo \"== $status\"\necho == scontrol\nscontrol -o show job 2>&1; echo \"== $?\"\n")
	return b.String()
}

// maxAsked is how many jobs sacct is asked for at once: an argument has at most 128 KiB.
const maxAsked = 5000

// A Record is what Slurm says of one task.
type Record struct {
	State   string // the first word: RUNNING
	Unmet   bool   // it was never to run: what it waited for did not end well
	Held    bool   // it does not begin before somebody releases it
	Exit    int
	Signal  int
	Started time.Time
	Ended   time.Time
	Machine string // "": none, or several
	CPUTime float64
	Memory  int64 // bytes, of its script, which is the job
	Written int64 // bytes
}

// Records are what Slurm says of the tasks that were asked for.
type Records struct {
	Accounted bool // its accounting has answered
	Known     bool // its controller has answered

	now     time.Time // by the clock of the cluster; zero: not known
	account map[TaskID]Record
	control map[TaskID]Record
	of      map[int64]bool
}

// maxTasks is how many tasks a range of an array, and all that is told of together, is
// believed to have.
const maxTasks = 4_000_000

// ReadRecords reads the answer to [Ask], of these jobs. What cannot be read in it is
// passed over.
func ReadRecords(text string, of map[int64]bool) *Records {
	r := &Records{account: map[TaskID]Record{}, control: map[TaskID]Record{}, of: of}
	part := ""
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		if word, ok := strings.CutPrefix(l, "== "); ok {
			switch {
			case part == "sacct" && word == "0":
				r.Accounted = true
			case part == "scontrol" && word == "0":
				r.Known = true
			}
			part = word
			continue
		}
		switch part {
		case "now":
			r.now = when(l)
		case "sacct":
			r.account1(l)
		case "scontrol":
			r.control1(l)
		}
	}
	if !r.Accounted {
		clear(r.account)
	}
	if !r.Known {
		clear(r.control)
	}
	return r
}

// account1 reads a line of sacct: of a task, or of a step of it. Of a task that was requeued
// the last one counts.
func (r *Records) account1(l string) {
	words := strings.Split(l, "|")
	if len(words) < 6 {
		return
	}
	words = append(words, "", "", "", "") // what an older one was not asked for
	if id, step, is := strings.Cut(words[0], "."); is {
		if step == "batch" {
			r.change(r.account, id, func(rec *Record) { rec.Memory, rec.Written = bytesOf(words[8]), bytesOf(words[9]) })
		}
		return
	}
	rec := Record{State: first(words[1]), Started: when(words[3]), Ended: when(words[4]), Machine: machine(words[5]), CPUTime: spent(words[7])}
	rec.Unmet = unmet(words[1], words[5], words[6])
	rec.Exit, rec.Signal = exitOf(words[2])
	r.put(r.account, words[0], rec)
}

// control1 reads a line of scontrol. Behind the name of a job, which may be anybody's and
// have blanks, nothing is its id.
func (r *Records) control1(l string) {
	of := map[string]string{}
	ids, _, _ := strings.Cut(l, " JobName=")
	for _, w := range strings.Fields(ids) {
		key, value, _ := strings.Cut(w, "=")
		of[key] = value
	}
	id := of["JobId"]
	if array := of["ArrayJobId"]; array != "" && of["ArrayTaskId"] != "" {
		id = array + "_" + of["ArrayTaskId"]
		if strings.ContainsAny(of["ArrayTaskId"], ",-%") {
			id = array + "_[" + of["ArrayTaskId"] + "]"
		}
	}
	for _, w := range strings.Fields(l) {
		if key, value, ok := strings.Cut(w, "="); ok && of[key] == "" {
			of[key] = value
		}
	}
	rec := Record{State: first(of["JobState"]), Started: when(of["StartTime"]), Ended: when(of["EndTime"]), Machine: machine(of["NodeList"])}
	rec.Unmet = unmet(of["JobState"], of["NodeList"], of["Reason"])
	rec.Held = of["Priority"] == "0" // which Slurm gives to no other
	rec.Exit, rec.Signal = exitOf(of["ExitCode"])
	r.put(r.control, id, rec)
}

// unmet says that Slurm itself has cancelled a task, which had no machine yet, for what it
// waited for. In the accounting the reason for which a task waited stays while it runs and
// after, and a state that a person is the cause of says by whom: CANCELLED by 1000.
func unmet(state, machines, reason string) bool {
	waited := machines == "" || machines == "(null)" || machines == "None assigned"
	return state == "CANCELLED" && waited && strings.HasPrefix(reason, "Dependency")
}

// put notes a record for each task that an id names.
func (r *Records) put(to map[TaskID]Record, id string, rec Record) {
	jobID, tasks, array := strings.Cut(id, "_")
	n, err := strconv.ParseInt(jobID, 10, 64)
	if err != nil || !r.of[n] || rec.State == "" {
		return
	}
	if !array {
		to[TaskID{n, -1}] = rec
		return
	}
	tasks, _, _ = strings.Cut(strings.Trim(tasks, "[]"), "%")
	for some := range strings.SplitSeq(tasks, ",") {
		from, upto, isRange := strings.Cut(some, "-")
		upto, step, _ := strings.Cut(upto, ":")
		a, err := strconv.Atoi(from)
		if err != nil || a < 0 {
			continue
		}
		b, by := a, 1
		if isRange {
			if b, err = strconv.Atoi(upto); err != nil || b < a || b-a > maxTasks {
				continue
			}
			if s, err := strconv.Atoi(step); err == nil && s > 0 {
				by = s
			}
		}
		for i := a; i <= b && len(to) < maxTasks; i += by {
			if _, known := to[TaskID{n, i}]; isRange && known {
				continue // what is said of it alone is the later
			}
			to[TaskID{n, i}] = rec
		}
	}
}

// change changes the record of one task, if there is one.
func (r *Records) change(in map[TaskID]Record, id string, change func(*Record)) {
	jobID, task, array := strings.Cut(id, "_")
	n, err := strconv.ParseInt(jobID, 10, 64)
	at := TaskID{n, -1}
	if array && err == nil {
		at.Task, err = strconv.Atoi(task)
	}
	if rec, ok := in[at]; ok && err == nil {
		change(&rec)
		in[at] = rec
	}
}

// machine is the machine of a list that has one.
func machine(list string) string {
	if strings.ContainsAny(list, " ,[(") || len(list) > 253 {
		return ""
	}
	return clean(list)
}

// bytesOf is an amount as Slurm writes it: 12.5M.
func bytesOf(s string) int64 {
	number, unit := strings.TrimRight(s, "KMGTP"), 0
	if len(number) == len(s)-1 {
		unit = 1 + strings.IndexByte("KMGTP", s[len(s)-1])
	}
	x, err := strconv.ParseFloat(number, 64)
	if x *= math.Pow(1024, float64(unit)); err != nil || !(x >= 0 && x < 1<<60) {
		return 0
	}
	return int64(x)
}

// spent is a time as Slurm writes it, [days-][hours:]minutes:seconds.
func spent(s string) float64 {
	days, rest, ok := strings.Cut(s, "-")
	if !ok {
		days, rest = "0", s
	}
	n, err := strconv.Atoi(days)
	x := float64(n)
	parts := strings.Split(rest, ":")
	for i := range 3 {
		x *= []float64{24, 60, 60}[i]
		if k := len(parts) - 3 + i; k >= 0 {
			y, odd := strconv.ParseFloat(parts[k], 64)
			if x += y; odd != nil {
				err = odd
			}
		}
	}
	if err != nil || len(parts) > 3 || !(x >= 0 && x < 1e12) {
		return 0
	}
	return x
}

func first(s string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return strings.TrimSuffix(word, "+")
}

// when is a time of Slurm: seconds since 1970, or what older versions print.
func when(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	t, _ := secondsOf(float64(n))
	return t
}

// exitOf is an exit status and a signal: 1:0.
func exitOf(s string) (exit, signal int) {
	a, b, _ := strings.Cut(s, ":")
	exit, _ = strconv.Atoi(a)
	signal, _ = strconv.Atoi(b)
	return min(max(exit, 0), 255), min(max(signal, 0), 64)
}

// A Stand is how far a job is on the cluster.
type Stand int

const (
	Unsubmitted Stand = iota // nobody has submitted it yet
	Unknown                  // Slurm does not know it, and it has written nothing
	Waiting                  // in the queue
	Running                  //
	Runaway                  // the accounting says that it runs or waits, and the controller does not know it
	Unwritten                // it has ended, and has not written how
	Ended                    // its outcome says how
	Lost                     // Slurm ended it for its own reasons: nothing speaks against the job
	Unmet                    // it will not run: what it waited for did not end well
	Unbegun                  // its script ended before it began the job
)

// A Fate is what has become of a job on the cluster.
type Fate struct {
	Stand   Stand
	Task    TaskID
	Outcome job.Outcome // of one that has ended, or why it is lost
	Wrong   error       // its status file says nothing
	Cleared bool        // its script has removed the inputs that it left as they were
	Held    bool        // it waits, and Slurm holds it
	Ran     float64     // seconds that one which runs has run so far; 0: not known
}

// Goes reports whether Slurm has the task in its queue, or runs it.
func (f *Fate) Goes() bool { return f.Stand == Waiting || f.Stand == Running }

// Exit statuses of run.sh that are none of a job's, which has written its own.
const (
	exitUnwritten = 74
	exitUnbegun   = 75
)

// signalUnstarted is the signal that Slurm notes for a task whose output it could not open.
const signalUnstarted = 53

// FateOf is what has become of a job: status is what its status file has, nil if there is
// none.
func FateOf(j *FolderJob, s *Submitted, r *Records, status []byte) Fate {
	f := Fate{}
	var submitted bool
	if f.Task, submitted = s.Of(j); !submitted && status == nil {
		return f
	}
	rec, known, controlled := r.lastRecord(f.Task)
	if status != nil {
		var terminated bool
		if f.Outcome, terminated, f.Wrong = ReadStatus(status); f.Wrong == nil {
			again := live(rec.State) && (controlled || !r.Known) || lost(rec.State)
			silent := submitted && !r.Accounted && !r.Known
			if !terminated || !again && !silent {
				f.Stand, f.Cleared = Ended, true
				if known {
					f.Outcome.Reason = reasonWith(reasonOf(rec.State), f.Outcome.Reason)
					rec.use(&f.Outcome)
				}
				return f
			}
			f.Outcome = job.Outcome{} // Slurm has ended it, and runs it again or may
		}
	}
	switch {
	case !known:
		f.Stand = Unknown
	case live(rec.State) && !controlled && r.Known:
		f.Stand = Runaway
	case rec.State == "PENDING" || rec.State == "REQUEUED" || rec.State == "REQUEUE_HOLD":
		f.Stand, f.Held = Waiting, rec.Held
	case live(rec.State):
		f.Stand, f.Ran = Running, r.ranFor(&rec)
	case rec.State == "COMPLETED", rec.State == "FAILED" && rec.Exit == exitUnwritten:
		f.Stand = Unwritten
	case rec.State == "FAILED" && rec.Exit == exitUnbegun:
		f.Stand, f.Outcome = Unbegun, job.Outcome{Reason: "could not begin on the cluster: see slurm/" + f.Task.String() + ".out there"}
	case rec.unstarted():
		f.Stand, f.Outcome = Unbegun, job.Outcome{Reason: "Slurm could not start it: is the folder on every node, and has its disk room?"}
	case rec.Unmet:
		f.Stand = Unmet
	case lost(rec.State):
		f.Stand, f.Outcome = Lost, job.Outcome{Reason: "Slurm says " + clean(rec.State)}
	default:
		f.Stand, f.Outcome = Ended, rec.outcome()
	}
	return f
}

// ranFor returns for how many seconds a task that runs has run; 0 if that is not known.
func (r *Records) ranFor(rec *Record) float64 {
	if r.now.IsZero() || rec.Started.IsZero() {
		return 0
	}
	return max(0.001, r.now.Sub(rec.Started).Seconds())
}

// NotBuilt is why the build that the jobs of a folder wait for has not begun, or was ended
// by Slurm for its own reasons; "" if neither is known.
func NotBuilt(s *Submitted, r *Records) string {
	switch rec, known, _ := r.lastRecord(TaskID{s.Build, -1}); {
	case !known:
	case rec.State == "FAILED" && rec.Exit == exitUnbegun:
		return "the build could not begin on the cluster: see slurm/build.out there"
	case rec.unstarted():
		return "Slurm could not start the build: is the folder on every node, and has its disk room?"
	case lost(rec.State):
		return "the build was ended: Slurm says " + clean(rec.State)
	}
	return ""
}

// Builds reports whether the build of a folder waits in Slurm or runs.
func Builds(s *Submitted, r *Records) bool {
	rec, _, controlled := r.lastRecord(TaskID{s.Build, -1})
	return live(rec.State) && (controlled || !r.Known)
}

// lastRecord is the record of a task that counts, and whether the controller has one.
func (r *Records) lastRecord(t TaskID) (rec Record, known, controlled bool) {
	account, accounted := r.in(r.account, t)
	control, controlled := r.in(r.control, t)
	if controlled && (!accounted || live(control.State) || live(account.State)) {
		return control, true, true
	}
	return account, accounted, controlled
}

// in is a record of a task, or of the job that is no array.
func (r *Records) in(in map[TaskID]Record, t TaskID) (Record, bool) {
	if rec, ok := in[t]; ok {
		return rec, true
	}
	if t.Task != 0 {
		return Record{}, false
	}
	rec, ok := in[TaskID{t.Job, -1}]
	return rec, ok
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// live says that a task is not over.
func live(state string) bool {
	switch state {
	case "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
		"RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD", "SPECIAL_EXIT":
		return true
	}
	return false
}

// lost says that a task was ended for no fault of its own.
func lost(state string) bool {
	switch state {
	case "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL":
		return true
	}
	return false
}

// unstarted reports whether Slurm could not start the script of a task.
func (r *Record) unstarted() bool { return r.State == "FAILED" && r.Signal == signalUnstarted }

// reasonOf is why a task was ended, as nodes say it.
func reasonOf(state string) string {
	switch state {
	case "TIMEOUT", "DEADLINE":
		return job.ReasonTime
	case "OUT_OF_MEMORY":
		return job.ReasonMemory
	case "CANCELLED":
		return "cancelled on the cluster"
	}
	return ""
}

// reasonWith is why a task was ended that says itself something of it, as which rank has
// failed.
func reasonWith(slurm, own string) string {
	if slurm == "" || own == "" {
		return firstOf(slurm, own)
	}
	return slurm + " (" + own + ")"
}

// use adds to an outcome where the task was and what it used, where that is not said.
func (r *Record) use(o *job.Outcome) {
	if o.Machine == "" {
		o.Machine = r.Machine
	}
	if o.CPUTime == 0 {
		o.CPUTime = r.CPUTime
	}
	if o.MemoryPeak == 0 {
		o.MemoryPeak = r.Memory
	}
	if o.Written == 0 {
		o.Written = r.Written
	}
}

// outcome is how a task ended by its record alone.
func (r *Record) outcome() job.Outcome {
	o := job.Outcome{Started: r.Started, Ended: r.Ended, Runtime: lasted(r.Started, r.Ended), Reason: reasonOf(r.State)}
	r.use(&o)
	if name, err := signalOf(float64(r.Signal)); err == nil && name != "" {
		o.Signal = name
		return o
	}
	exit := r.Exit
	if o.Reason == "" && exit == 0 {
		o.Reason = "Slurm says " + clean(r.State)
	}
	if exit != 0 || o.Reason == "" {
		o.Exit = &exit
	}
	return o
}
