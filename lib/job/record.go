package job

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"distribute/lib/line"
)

// A Record is one line of a log: what happened, to whom, when. Which members a
// kind has is told in dspool(5); those that are zero are absent. The order of
// the fields is the order on disk, which the fast reader relies on.
type Record struct {
	Seq     uint64    `json:"seq"`                        // head-wide, from 1
	Time    time.Time `json:"t"`                          // when the head wrote it, UTC, milliseconds; informational
	Kind    Kind      `json:"e" line:"word"`              //
	Batch   BatchID   `json:"batch,omitempty"`            // in head.jsonl and in a first line only
	Job     string    `json:"job,omitempty"`              // the job's name
	Attempt Token     `json:"attempt,omitempty"`          //
	Try     int       `json:"try,omitempty"`              // the attempt's number, from 1
	Node    string    `json:"node,omitempty" line:"word"` //
	CPUs    int       `json:"cpus,omitempty"`             // given to the attempt
	Memory  int64     `json:"memory,omitempty"`           // bytes given to it; 0: nothing is said
	GPUs    GPUs      `json:"gpus,omitempty"`             // given to it
	Also    []Portion `json:"also,omitempty"`             // the other nodes of its machine on which some of its ranks are
	Counted Counts    `json:"counted,omitempty"`          // given to it of what is counted by its name
	Limit   int64     `json:"time,omitempty"`             // seconds that it may run; 0: no limit

	Outcome           // how an attempt ended
	Manifest string   `json:"manifest,omitempty"` // SHA-256 of what it left, hexadecimal
	List     line.Raw `json:"list,omitempty"`     // that manifest, of a small result: a list of its lines
	Files    int      `json:"files,omitempty"`    // in it
	Bytes    int64    `json:"bytes,omitempty"`    // in them
	Said     string   `json:"said,omitempty"`     // the last line that an attempt which did not end well has printed, as [distribute/lib/cause] has it

	Fate    Fate   `json:"fate,omitempty"`                // of a back or a failed: how the attempt came to be over
	Saved   bool   `json:"saved,omitempty"`               // of a back whose attempt was evicted: it saved the files with which the next attempt begins
	Disk    int64  `json:"disk,omitempty"`                // of a back with FateNoRoom: bytes that its job asks for, if its node's whole disk is smaller
	By      string `json:"by,omitempty" line:"word"`      // the user who asked for it
	Request Token  `json:"request,omitempty" line:"word"` // the request that asked for it
	Set     *Set   `json:"set,omitempty"`                 // what is asked for from then on
	Jobs    int    `json:"jobs,omitempty"`                // of an added: how many more
	Anew    int    `json:"anew,omitempty"`                // of a retry before which the batch is built anew: Unix seconds, or more if the last one has these
	State   string `json:"state,omitempty" line:"word"`   // of a node: its state id
	First   uint64 `json:"first,omitempty"`               // of a deleted batch: the Seq of its log's first line; of a node: the number of its last session; of a set: 1 if an operator has set the priority. Earlier releases refuse a line with a member that they do not know

	Head *Head `json:"head,omitempty"` // of a first line
}

// A Portion is how many ranks of an attempt are on a node that is not its own, but of the same
// machine.
type Portion struct {
	Node  string `json:"node"`
	Ranks int    `json:"ranks"`
}

// A Visit is what an attempt is given of such a node.
type Visit struct {
	Portion
	GPUs []int `json:"gpus,omitempty"` // indexes
}

// A Lodging tells how many cpus an attempt has of other nodes of its machine, by their names.
type Lodging map[string]int

// An Outcome is how an attempt ended, as its node saw it. In logs the times are of the
// head's clock, in messages of the node's; durations are measured by the node.
type Outcome struct {
	Exit       *int      `json:"exit,omitempty"`                // exit status, if it exited
	Signal     string    `json:"signal,omitempty" line:"word"`  // the name of the signal that ended it: SIGKILL
	Reason     string    `json:"reason,omitempty" line:"word"`  // in words, where more is known than exit and signal
	Skipped    string    `json:"skipped,omitempty"`             // what it left that does not come home, and why, in words
	Started    time.Time `json:"started,omitzero"`              //
	Ended      time.Time `json:"ended,omitzero"`                //
	Runtime    float64   `json:"runtime,omitempty"`             // seconds, without paused time
	Paused     float64   `json:"paused,omitempty"`              // seconds
	CPUTime    float64   `json:"cpu_time,omitempty"`            // seconds, user and system, of the whole tree
	MemoryPeak int64     `json:"memory_peak,omitempty"`         // bytes
	MemoryRank int64     `json:"memory_rank,omitempty"`         // bytes: of that one of several ranks which had most
	Rank       *int      `json:"rank,omitempty"`                // which of several ranks has failed, of which exit and signal are
	Cache      int64     `json:"cache,omitempty"`               // bytes of files in that which the kernel could do without, as far as is known
	Written    int64     `json:"written,omitempty"`             // bytes
	Machine    string    `json:"machine,omitempty" line:"word"` // of a node that is a cluster: where on it; in head.jsonl: the id of a node's machine

	// The times of its node's clock, if that ended the attempt at another time than the head's.
	// No line has them: earlier releases refuse members that they do not know.
	NodeStarted, NodeEnded time.Time `json:"-"`
}

// BuildOutput is the file, of an attempt whose build has failed, with what that printed.
const BuildOutput = "build_output.txt"

// OutputName names the file of a result with what its job printed; of one of several ranks
// what the first of them did.
func OutputName(job string) string { return job + "_output.txt" }

// PrintedFiles are the files into which a job of so many ranks prints, or one of none, by the
// paths that they have at home. The first of several ranks has two.
func PrintedFiles(job string, ranks int, output func(rank int) string) map[string]string {
	files := map[string]string{OutputName(job): output(0)}
	for k := range ranks {
		files[RankOutputName(job, k)] = output(k)
	}
	return files
}

// IsRankOutput says whether a file of a result of a job of so many ranks is what one of these
// printed.
func IsRankOutput(job string, ranks int, path string) bool {
	k, cut := strings.CutPrefix(path, job+"_output.")
	n, err := strconv.Atoi(strings.TrimSuffix(k, ".txt"))
	return cut && err == nil && n >= 0 && n < ranks && path == RankOutputName(job, n)
}

// RankOutputName names the file of a result with what a rank of its job printed.
func RankOutputName(job string, rank int) string { return fmt.Sprintf("%s_output.%d.txt", job, rank) }

// SkippedName names the one with what a job left that did not come home, and why.
func SkippedName(job string) string { return job + "_skipped.txt" }

// OK says that the attempt succeeded: it exited with status 0 and nothing else
// is held against it.
func (o Outcome) OK() bool { return o.Exit != nil && *o.Exit == 0 && o.Signal == "" && o.Reason == "" }

// A Head is what the first line of a batch's log tells of the batch.
type Head struct {
	Format     int    `json:"format"`     // of jobs.jsonl and log.jsonl
	Submission Token  `json:"submission"` // drawn by the submitter: the same one twice is the same batch
	Owner      string `json:"owner"`      // the submitter's name
	UID        int    `json:"uid"`        // and number on the head
	Content    string `json:"content"`    // SHA-256 over what was asked for: equal for the same file submitted again
	Jobs       int    `json:"jobs"`       // lines in jobs.jsonl
	Spec       Spec   `json:"spec"`       // what the jobs have in common
}

// A Result is what a node says of an attempt that is over on it.
type Result struct {
	Outcome
	Manifest string `json:"manifest,omitempty"` // SHA-256 of the manifest of what it left; empty: it left nothing
	Entries  int    `json:"entries,omitempty"`  // lines of that manifest: files, directories, links
	Files    int    `json:"files,omitempty"`    //
	Bytes    int64  `json:"bytes,omitempty"`    // in the files
	Fate     Fate   `json:"fate,omitempty"`     // how it came to be over
	Saved    bool   `json:"saved,omitempty"`    // of one that had to leave: it has saved what the next attempt goes on with
}
