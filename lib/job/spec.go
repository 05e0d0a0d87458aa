package job

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// MaxJobs is how many jobs a batch has at most.
const MaxJobs = 1_000_000

// The kinds of batches.
const (
	Python    = "python"
	Apptainer = "apptainer"
	Command   = "command"
)

// A Spec is what all jobs of a batch have in common. It is written once, into
// the first line of the batch's log, and never changes.
type Spec struct {
	Kind         string    `json:"kind"`                   // Python, Apptainer or Command
	Capabilities []string  `json:"capabilities,omitempty"` // of a node, all of which must hold: see lib/capability
	Build        []string  `json:"build,omitempty"`        // argv, run once for each node and batch; none: nothing to build
	Env          []string  `json:"env,omitempty"`          // of the build and of each job, each as NAME=value, sorted
	Image        *Input    `json:"image,omitempty"`        // of an apptainer batch
	Mounts       []string  `json:"mounts,omitempty"`       // of an apptainer batch, empty at each start
	Uncontained  bool      `json:"uncontained,omitempty"`  // of an apptainer batch: its jobs see the home and /tmp of the node
	Inputs       []Input   `json:"inputs,omitempty"`       // there for the build and for every job
	Resources    Resources `json:"resources,omitzero"`     // of each job that names none
	Matrix       string    `json:"matrix,omitempty"`       // whom to tell, as @user:host
	Slurm        []Option  `json:"slurm,omitempty"`        // sbatch options of the batch, in the file's order
	Keep         *int64    `json:"keep,omitempty"`         // seconds that the closed batch keeps its inputs if not all is done; nil: as the head has it
	Retry        string    `json:"retry,omitempty"`        // Never, or "": what is lost is started again
	Private      bool      `json:"private,omitempty"`      // only its owner and operators see it
	Secrets      []string  `json:"secrets,omitempty"`      // names of variables whose values only its jobs get, sorted: see [Secrets]
	Priority     int       `json:"priority,omitempty"`     // jobs of a higher one go first
	MaxRunning   int       `json:"max_running,omitempty"`  // so many of its jobs run at once at most, on all nodes together; 0: no bound
	Canary       int       `json:"canary,omitempty"`       // so many jobs, the first, have to be done before the others start
	StopAfter    int       `json:"stop_after,omitempty"`   // after so many failed jobs the rest is cancelled; 0: never
	StopShare    int       `json:"stop_share,omitempty"`   // of 100 jobs: StopAfter follows from it, also when jobs are added; 0: it is a number
	Retries      int       `json:"retries,omitempty"`      // so often a job is tried again that fails, unless it says something else itself

	Outputs []string `json:"outputs,omitempty"` // of a command batch: what comes home of each job; none: everything

	Checkpoint *Checkpoint `json:"checkpoint,omitempty"` // how its jobs are asked to save what they have; nil: as others are
}

// StopsAfter returns the number of failed jobs after which a batch of so many jobs is
// stopped; 0: it never is.
func (s *Spec) StopsAfter(jobs int) int {
	if s.StopShare > 0 {
		return (jobs*s.StopShare + 99) / 100
	}
	return s.StopAfter
}

// Never is the Retry of a batch of which no job is started twice.
const Never = "never"

// MaxKeep is the greatest Keep, a hundred years.
const MaxKeep = 36525 * 24 * 3600

// MaxPriority is the greatest Priority; the least is the same below zero.
const MaxPriority = 1000

// CheckOrder reports why the jobs of a batch cannot have the place in the order
// that it says.
func (s *Spec) CheckOrder() error {
	switch {
	case !isPriority(s.Priority):
		return fmt.Errorf("a priority of %d makes no sense", s.Priority)
	case s.MaxRunning < 0 || s.MaxRunning > MaxJobs:
		return fmt.Errorf("a bound of %d jobs that run makes no sense", s.MaxRunning)
	}
	return nil
}

func isPriority(n int) bool { return -MaxPriority <= n && n <= MaxPriority }

// CheckOrder reports why the job cannot have the place in the order that it says.
func (j *Job) CheckOrder() error {
	if !isPriority(j.Priority) {
		return fmt.Errorf("a priority of %d makes no sense", j.Priority)
	}
	return nil
}

// CheckMPI reports why mpirun cannot start the ranks of a job of the batch that asks for r.
func (s *Spec) CheckMPI(r *Resources) error {
	if r.MPI && s.Kind == Apptainer {
		return errors.New("mpi: mpirun of the node cannot start ranks in containers: start mpirun in the command, without ranks")
	}
	return nil
}

// MaxRetries is the greatest number of Retries.
const MaxRetries = 100

// CheckRetries reports why a job of the batch cannot be tried again so often.
func (s *Spec) CheckRetries(n int) error {
	switch {
	case n < 0 || n > MaxRetries:
		return fmt.Errorf("a job cannot be tried again %d times", n)
	case n > 0 && s.Retry == Never:
		return fmt.Errorf("a job cannot be tried again %d times and never be started twice", n)
	}
	return nil
}

// A Job is one run with its inputs. It is one line of jobs.jsonl.
type Job struct {
	Name         string     `json:"name"`
	Param        []string   `json:"param,omitempty"`        // its parameters, each as name=value
	Needs        []string   `json:"needs,omitempty"`        // names and globs of jobs of the batch that have to be done before
	Retries      *int       `json:"retries,omitempty"`      // as Spec has it for the others
	Priority     int        `json:"priority,omitempty"`     // is added to that of the batch
	Capabilities []string   `json:"capabilities,omitempty"` // of a node, besides those of the batch
	Run          []string   `json:"run,omitempty"`          // argv; of a python job: the file, to which the number of cpus is added; of an apptainer job: in the container, none is its app
	Env          []string   `json:"env,omitempty"`          // besides those of the batch, or instead of them
	Inputs       []Input    `json:"inputs,omitempty"`       // besides those of the batch
	Resources    *Resources `json:"resources,omitempty"`
	Outputs      []string   `json:"outputs,omitempty"` // what comes home, instead of those of the batch
	Slurm        []Option   `json:"slurm,omitempty"`
}

// An Input is one file that a job reads, as it lies in the job's directory.
type Input struct {
	Path  string `json:"path" line:"word"` // slash-separated, relative to the job's directory: "input/mesh.h5", "main.py"
	Size  int64  `json:"size"`             // bytes
	Mode  uint32 `json:"mode"`             // permission bits
	Sum   string `json:"sum"`              // SHA-256 of the content, hexadecimal
	MTime *int64 `json:"mtime,omitempty"`  // time of its last change on the submitter's machine, in nanoseconds since 1970; nil: not known
	At    *int64 `json:"at,omitempty"`     // where the content starts in files.tar; nil: it is a blob. Set by the head.
}

// ModTime returns the time of the last change that the input has in a job's directory.
func (in *Input) ModTime() time.Time {
	if in.MTime == nil {
		return time.Unix(1e9, 0)
	}
	return time.Unix(0, *in.MTime)
}

// SmallFile is the size in bytes from which an input is kept as a blob of its
// own; smaller ones go to the batch's files.tar.
const SmallFile = 64 << 10

// An Option is one option of sbatch: its long name with dashes and its value
// as it stood in the file.
type Option struct {
	Name  string `json:"name" line:"word"`
	Value string `json:"value" line:"word"`
}

// matrixID is the form of a Matrix user id: a localpart of printable ASCII
// and a server's name, with a port perhaps.
var matrixID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^@[!-9;-~]+:([0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
})

// IsMatrixUser says whether s is the id of a user of Matrix, as @user:server.
func IsMatrixUser(s string) bool { return len(s) <= 255 && matrixID().MatchString(s) }

// MaxArgv is the limit in bytes of a command with its arguments, and of each
// argument: what Linux takes of a single one.
const MaxArgv = 128 << 10
