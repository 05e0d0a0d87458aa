package proc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/msg"
	"distribute/lib/pause"

	"golang.org/x/sys/unix"
)

// Marker is the variable of a job's environment that names the attempt. Where
// there is no cgroup it is the evidence by which the tree of a supervisor that
// was killed is found.
const Marker = "DISTRIBUTE_ATTEMPT"

// An Order is one run of one command.
type Order struct {
	Dir    string        `json:"dir"`              // holds the record; absolute
	Token  string        `json:"token"`            // names the order: the value of Marker and the cgroup's name
	Argv   []string      `json:"argv"`             // Argv[0] without a slash is looked up in Path
	Path   string        `json:"path"`             // as the variable PATH
	Env    []string      `json:"env"`              // the whole environment; Marker is added
	Cwd    string        `json:"cwd"`              // absolute
	Output string        `json:"output"`           // standard output and error are appended to it
	Keep   int64         `json:"keep,omitempty"`   // bytes of that which are kept when all has ended, the first ones; 0: all
	Cgroup string        `json:"cgroup,omitempty"` // directory below which the tree gets a cgroup; empty: none
	Grace  time.Duration `json:"grace"`            // between SIGTERM and SIGKILL of a stop
	Tied   bool          `json:"tied,omitempty"`   // it is stopped when the daemon goes
	As     *Identity     `json:"as,omitempty"`     // who it runs as, without a way to become another; nil: the daemon's user

	Secrets []string `json:"-"` // names of variables whose values Shell leaves out

	Limits // what it may use

	Ranks []Rank `json:"ranks,omitempty"` // so many first processes, all of the same command; none: one

	Pause      *Pausing    `json:"pause,omitempty"`      // what it is paused by; nil: nothing
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"` // how it is asked to save itself; nil: by the usual signal, for the usual time
}

// A Rank is what one of several first processes of an order has for itself. Together they
// are in the order's group, each in one of its own below that.
type Rank struct {
	Env    []string `json:"env"`              // its whole environment; Marker is added
	Output string   `json:"output"`           // its standard output and error are appended to it
	CPUs   []int    `json:"cpus,omitempty"`   // of those of the order
	Memory int64    `json:"memory,omitempty"` // bytes that its processes have at most; 0: no limit of its own
}

// ranks are the first processes of an order: one, unless it says otherwise.
func (o *Order) ranks() []Rank {
	if len(o.Ranks) > 0 {
		return o.Ranks
	}
	return []Rank{{Env: o.Env, Output: o.Output, CPUs: o.CPUs}}
}

// Shell is a line for a shell that does the same as an order, in the same directory. It
// prints what all first processes do. It takes secrets from the shell's variables.
func (o *Order) Shell() string {
	before, id, all := msg.Shell("cd", o.Cwd)+" && ", "build", []string(nil)
	for k, r := range o.ranks() {
		line := "env -i"
		for _, kv := range append(slices.Clone(r.Env), Marker+"="+o.Token) {
			name, value, _ := strings.Cut(kv, "=")
			if i := slices.IndexFunc(o.Secrets, func(s string) bool { return name == s || strings.HasSuffix(name, "ENV_"+s) }); i >= 0 {
				line += fmt.Sprintf(` %s="${%s?}"`, name, o.Secrets[i])
				continue
			}
			line += " " + msg.Shell(kv)
			switch {
			case k > 0:
			case name == "TMPDIR":
				before += msg.Shell("mkdir", "-p", value) + " && "
			case name == "DISTRIBUTE_ID":
				id = value
			}
		}
		all = append(all, line+" "+msg.Shell(o.Argv...))
	}
	if len(all) == 1 {
		return before + all[0] + " # " + id
	}
	return before + "{ " + strings.Join(all, " & ") + " & wait; } # " + id
}

// Pausing is where the pauses are that an order obeys, and what they can ask for.
type Pausing struct {
	Attempt string   `json:"attempt,omitempty"` // those of this one count, too
	Places  []string `json:"places"`            // directories of pauses; those that are not there hold none
	Ended   string   `json:"ended,omitempty"`   // the file of those that were ended by others than their holders
	Owners  string   `json:"owners,omitempty"`  // the file that says whose pauses count; without it everybody's do
	Seen    string   `json:"seen,omitempty"`    // the file in which the daemon notes who had a session; without it sessions of now count
	CPUs    []int    `json:"cpus,omitempty"`    // that the node offers: those that are given back come from their end
	Memory  int64    `json:"memory,omitempty"`  // bytes that the node offers
	Offer   string   `json:"offer,omitempty"`   // the file that says what of CPUs, Memory and Part has become; without it they stay

	Poll bool `json:"poll,omitempty"` // it is looked at four times a second, by [pause.Poll]

	Part *pause.Part `json:"part,omitempty"` // of its machine that the node is; nil: it is the machine

	Beside []Pausing `json:"beside,omitempty"` // the same of other nodes of the machine on which it has ranks
}

// nodes is one for each node on which the order is, its own first.
func (p *Pausing) nodes() []Pausing { return append([]Pausing{*p}, p.Beside...) }

// A Checkpoint is how an order is asked to save itself before it must go.
type Checkpoint struct {
	Signal int           `json:"signal"`
	Grace  time.Duration `json:"grace"` // what it has for that
}

// Of an order that says nothing.
const (
	CheckpointSignal = unix.SIGUSR1
	CheckpointGrace  = 30 * time.Second
)

// Checkpointed is the exit status of a job that has saved itself, when it was
// asked to, and can go on from there.
const Checkpointed = 85

// A Status is how an order ended.
type Status struct {
	Token     string        `json:"token"`
	Boot      string        `json:"boot"`                // id of the boot it ran in
	Exit      *int          `json:"exit,omitempty"`      // exit status, if it exited
	Signal    int           `json:"signal,omitempty"`    // that ended it
	Rank      *int          `json:"rank,omitempty"`      // which of several first processes Exit and Signal are of; nil: all exited with 0, or there was one
	Error     string        `json:"error,omitempty"`     // why it could not be started, or what it printed not be kept
	NoMemory  bool          `json:"no_memory,omitempty"` // it was killed for want of memory
	Had       int64         `json:"had,omitempty"`       // with NoMemory: its limit in bytes, which it had reached; else it was the machine's memory
	Crowded   int           `json:"crowded,omitempty"`   // it failed, and had wanted more processes than the so many that it might have
	Printed   int64         `json:"printed,omitempty"`   // it printed more than so many bytes; it may have been stopped for that, or for something else
	Stopped   string        `json:"stopped,omitempty"`   // who or what stopped it: one of the Stopped constants
	Frozen    bool          `json:"frozen,omitempty"`    // it failed while a pause held it: somebody has killed it
	Evicted   bool          `json:"evicted,omitempty"`   // it had to go, was asked to save itself, and then ended
	Started   time.Time     `json:"started"`
	Ended     time.Time     `json:"ended"`
	Wall      time.Duration `json:"wall"`              // by a clock that goes on while the machine sleeps, but not in pauses
	Paused    time.Duration `json:"paused,omitempty"`  // by the same clock: with Wall it is all the time
	User      time.Duration `json:"user"`              // CPU time of the whole tree
	System    time.Duration `json:"system"`            //
	Memory    int64         `json:"memory"`            // bytes: the peak of the whole tree as the kernel counts it, or else as it was seen, at least that of the greatest process
	OfRank    int64         `json:"of_rank,omitempty"` // bytes: the same of the rank that had most, as far as is known
	Cache     int64         `json:"cache,omitempty"`   // bytes of files in that which the kernel could have done without, as far as is known
	Written   int64         `json:"written"`
	Swept     int           `json:"swept"`     // processes left when the first one ended
	Contained string        `json:"contained"` // ByCgroup or BestEffort
}

// Values of Status.Stopped and Status.Contained.
const (
	StoppedOrder  = "stop"   // by Slot.Stop or Held.Stop
	StoppedSignal = "signal" // by a SIGTERM from elsewhere, as at a shutdown
	StoppedTime   = "time"   // by its limit of time
	StoppedMemory = "memory" // by its limit of memory, where the kernel does not enforce that
	ByCgroup      = "cgroup"
	BestEffort    = "best-effort" // by signals to what can be found of the tree
)

// A Report is what a supervisor says. Exactly one of its members is set, but for
// Passing.
type Report struct {
	Started int     `json:"started,omitempty"` // pid of the first process
	Ended   *Status `json:"ended,omitempty"`   // the status is on disk
	Refused string  `json:"refused,omitempty"` // the order was not taken, and why
	Passing bool    `json:"passing,omitempty"` // with Refused: nothing of it ran, for want of what may be there later
	Paused  bool    `json:"paused,omitempty"`  // with Passing: the machine is paused
	Stuck   int     `json:"stuck,omitempty"`   // so many processes have not died of SIGKILL for ten seconds
	Hold    *Hold   `json:"hold,omitempty"`    // how the order's tree stands to pauses has changed
}

// A Hold is how the tree of an order stands to the pauses of the machine.
type Hold struct {
	Frozen  bool          `json:"frozen"`            // it is held, but for Running
	Running int           `json:"running,omitempty"` // processes of it that could not be held (yet)
	CPUs    []int         `json:"cpus,omitempty"`    // what it is left with while others are given back
	Evicted bool          `json:"evicted,omitempty"` // it has been asked to save itself and go
	Paused  time.Duration `json:"paused,omitempty"`  // so far
}

// same says whether two say the same, whatever the time.
func (h Hold) same(o Hold) bool {
	return h.Frozen == o.Frozen && h.Running == o.Running && h.Evicted == o.Evicted && slices.Equal(h.CPUs, o.CPUs)
}

// word is a line from the daemon to a supervisor.
type word struct {
	Order *Order `json:"order,omitempty"`
	Stop  string `json:"stop,omitempty"` // the token of the order to stop
	Look  bool   `json:"look,omitempty"` // the pauses may have changed
}

// SignalName is the name of the signal that ended the order, as SIGKILL, or ""
// if none did.
func (s *Status) SignalName() string {
	name := unix.SignalName(syscall.Signal(s.Signal))
	if name == "" && s.Signal != 0 {
		name = "SIG" + strconv.Itoa(s.Signal)
	}
	return name
}

// rankEnded takes over how one of the first processes has ended, and says whether the order has
// failed by that now. The first that fails tells how the order ended. Saves says that the
// order has been asked to save itself, so that who exits with [Checkpointed] has.
func (s *Status) rankEnded(o *Order, rank int, ws syscall.WaitStatus, saves bool) (failed bool) {
	ok := ws.Exited() && (ws.ExitStatus() == 0 || saves && ws.ExitStatus() == Checkpointed)
	switch {
	case s.Rank != nil:
		return false
	case ok && s.Exit != nil && ws.ExitStatus() == 0:
		return false // of another one that has saved itself
	case !ok && len(o.Ranks) > 0:
		s.Rank, s.Exit = &rank, nil
	}
	s.set(ws)
	return !ok
}

// set takes over what the kernel says of an ended first process.
func (s *Status) set(ws syscall.WaitStatus) {
	if ws.Signaled() {
		s.Signal = int(ws.Signal())
		return
	}
	code := ws.ExitStatus()
	s.Exit = &code
}

// add counts the use of one process that has been waited for, which contains
// that of the children it waited for itself.
func (s *Status) add(ru *syscall.Rusage) {
	s.User += time.Duration(ru.Utime.Nano())
	s.System += time.Duration(ru.Stime.Nano())
	s.Memory = max(s.Memory, ru.Maxrss<<10)
	s.Written += ru.Oublock * 512
}
