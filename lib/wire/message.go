package wire

import (
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/node"
)

// Proto is the range of protocol versions that this program speaks.
var Proto = [2]int{1, 1}

// Roles of a hello.
const (
	RoleHead = "head"
	RoleNode = "node"
	RoleTool = "tool"
	RoleData = "data"
)

// A Message is one of the types below; dwire(5) shows an example of each.
type Message interface{ kind() string }

// Messages that both sides send.
type (
	// Hello is the first line both ways. The head's hello is the first sign of
	// success: it comes only after the peer has been accepted.
	Hello struct {
		Proto   [2]int    `json:"proto"`             // lowest and highest version spoken
		Role    string    `json:"role"`              // head, node, tool or data
		Name    string    `json:"name,omitempty"`    // of a node
		Boot    string    `json:"boot,omitempty"`    // of a node: changes when its machine boots
		State   string    `json:"state,omitempty"`   // of a node: changes when its directory is made anew
		Spool   string    `json:"spool,omitempty"`   // of the head; of a node: the one it served last
		Join    job.Token `json:"join,omitempty"`    // from the head to a node, and back on that node's data streams
		User    string    `json:"user,omitempty"`    // from the head: who the peer was proven to be
		Version string    `json:"version,omitempty"` // of the program; informational

		MTime   bool `json:"mtime,omitempty"`   // from the head to a tool: jobs may give the mtime of inputs
		Order   bool `json:"order,omitempty"`   // from the head to a tool: jobs may have a priority of their own
		MPI     bool `json:"mpi,omitempty"`     // from the head to a tool: mpirun may start the ranks of jobs
		Secrets bool `json:"secrets,omitempty"` // from the head to a tool: batches may have secrets

		Picks bool `json:"picks,omitempty"` // from the head to a tool: a Pick may say that more follow

		Visits bool `json:"visits,omitempty"` // from the head to a node: it may send a Visit

		Machine string  `json:"machine,omitempty"` // of a node: the id of its machine; "": not known
		Session *uint64 `json:"session,omitempty"` // of a node: the number of the last session that its directory knows; from the head: of this one, for a node that sent one

		Batch job.BatchID `json:"batch,omitempty"` // of a cluster: of whose owner's jobs; empty: of the user's own

		Patience *float64 `json:"patience,omitempty"` // from the head to a node: seconds that its jobs wait for the end of a pause; nil: as long as it takes
	}
	// Error answers a message that could not be honoured. Status is the exit
	// status that a tool takes from it; Text has a line for each reason.
	Error struct {
		Ref    job.Token   `json:"ref,omitempty"` // of the request
		Status int         `json:"status"`
		Text   string      `json:"text"`
		Free   job.BatchID `json:"free,omitempty"` // of a name that is taken: the next one that is not

		Pending bool `json:"pending,omitempty"` // to a node that nobody has accepted yet: it asks again soon
	}
	// Attach comes before the first hello of a stream that another program
	// carries: from who dialled over ssh to the dsched -attach that it started
	// there, and from that to the head's socket. It has no answer. A dnoded -stdio
	// says by it which node it is, and then where it wants the head's socket to be;
	// the answer is an Attach, when that is there.
	Attach struct {
		Spool  string `json:"spool,omitempty"`  // to dsched -attach: whose head is meant, if not the usual one
		Node   string `json:"node,omitempty"`   // to the head: who it is, on the word of dsched's own user, or of dnoded -stdio
		Socket string `json:"socket,omitempty"` // of dnoded -stdio: path on its machine
		Local  bool   `json:"local,omitempty"`  // who dialled is on that machine: trees are not squeezed
	}
	// Ping asks for a Pong with the same number.
	Ping struct {
		N uint64 `json:"n"`
	}
	// Pong answers a Ping.
	Pong struct {
		N uint64 `json:"n"`
	}
	// Send begins a transfer on this stream: data frames with the same X
	// follow, then an End.
	Send struct {
		X       uint64    `json:"x"`                 // names the transfer on this stream
		Of      string    `json:"of"`                // what it is: see the constants
		Attempt job.Token `json:"attempt,omitempty"` // whose manifest or tree
		Ref     job.Token `json:"ref,omitempty"`     // the request that it answers
		From    int64     `json:"from,omitempty"`    // of a log: the byte at which it begins
		Try     int       `json:"try,omitempty"`     // of a log: the attempt that printed it
		Cut     string    `json:"cut,omitempty"`     // of a log: why it lacks its end
	}
	// Data is one frame of a transfer: N bytes follow its line.
	Data struct {
		X       uint64 `json:"x"`
		N       int    `json:"n"`
		Payload []byte `json:"-"` // valid until the next Recv
	}
	// End ends a transfer. A transfer without it, or whose count or sum
	// differs, was cut and is not whole.
	End struct {
		X     uint64 `json:"x"`
		Bytes int64  `json:"bytes"`           // sent in all frames
		Sum   string `json:"sum"`             // over them: SHA-256, of trees and inputs CRC-32C, hexadecimal
		Error string `json:"error,omitempty"` // the sender gave up: why
		Cut   string `json:"cut,omitempty"`   // of a log: why it lacks its end, as in Send
	}
)

// What a transfer can be of.
const (
	OfManifest = "manifest" // a manifest, as dspool(5) has it
	OfTree     = "tree"     // a zstd tar of wanted entries
	OfSaved    = "saved"    // the same, of what an earlier attempt has saved
	OfInputs   = "inputs"   // a zstd tar of input files, named by their sums
	OfSpec     = "spec"     // a job.Spec
	OfJob      = "job"      // a job.Job
	OfSecrets  = "secrets"  // the values of a batch's secrets: a list of NAME=value
	OfJobs     = "jobs"     // job.Job, a line each
	OfBatch    = "batch"    // the submitted file
	OfRows     = "rows"     // job.Row or node.Row, a line each
	OfIDs      = "ids"      // ids, a line each
	OfLog      = "log"      // what a job or a build printed
)

// Messages from a node to the head.
type (
	// Offer says what the node has for jobs; it comes after hello and whenever
	// that changes.
	Offer struct {
		node.Offer
		Session uint64 `json:"session,omitempty"` // the number that the head gave to this session, and that is durable in the node's directory
	}
	// List begins the list of everything the node holds. Items and a ListEnd follow.
	List struct{}
	// Item is one attempt that the node holds, or one build.
	Item struct {
		Attempt job.Token   `json:"attempt,omitempty"`
		Job     job.ID      `json:"job,omitempty"` // whose attempt it is; informational
		Try     int         `json:"try,omitempty"` //
		Phase   job.Phase   `json:"phase,omitempty"`
		CPUs    int         `json:"cpus,omitempty"` // that it was given
		GPUs    []int       `json:"gpus,omitempty"` // indexes of those that it was given, or of the one of which it has a part
		Also    job.Lodging `json:"also,omitempty"`
		Ran     float64     `json:"ran,omitempty"` // seconds that its processes have run, without pauses; 0: they have not begun, or that is not known
		Result  *job.Result `json:"result,omitempty"`
		Build   job.BatchID `json:"build,omitempty"` // instead of an attempt: a batch that is built here
	}
	// Visit says what an attempt of another node of the machine has of this one. Without
	// cpus it has nothing any more.
	Visit struct {
		Attempt job.Token `json:"attempt"`
		CPUs    int       `json:"cpus,omitempty"`
		Memory  int64     `json:"memory,omitempty"` // bytes that it asked for
		GPUs    []int     `json:"gpus,omitempty"`   // indexes
	}
	// ListEnd ends the list. What the head gave this node and is not in it, the
	// node does not have.
	ListEnd struct {
		Items int `json:"items"`
	}
	// Phase says how far an attempt is.
	Phase struct {
		Attempt job.Token `json:"attempt"`
		Phase   job.Phase `json:"phase"`
		Ran     float64   `json:"ran,omitempty"` // as in an Item
	}
	// Ended says that an attempt is over on the node, which keeps what it left
	// until it is told otherwise. It may be said again. A small result may come with it.
	Ended struct {
		Attempt job.Token `json:"attempt"`
		job.Result
		List line.Raw `json:"list,omitempty"` // its manifest, as pack.ParseList reads it
		Data []byte   `json:"data,omitempty"` // what a Send of its tree would carry
	}
	// Gone says that nothing of an attempt is left on the node, after Have or
	// Forget.
	Gone struct {
		Attempt job.Token `json:"attempt"`
	}
	// Fetch asks, on a down stream of the node, for what one of its attempts
	// needs: the answer is a Send of the same kind, or an Error.
	Fetch struct {
		Attempt job.Token `json:"attempt"`
		Of      string    `json:"of"`             // OfSpec, OfJob, OfSecrets, OfInputs; OfManifest or OfSaved of what is saved
		Sums    []string  `json:"sums,omitempty"` // of inputs, ascending, at most MaxSums
		From    int64     `json:"from,omitempty"` // byte of the first of them to begin at
		Want    Want      `json:"want,omitzero"`  // of what is saved
	}
)

// MaxSums is how many inputs one Fetch, or Pull, may name.
const MaxSums = 8192

// Messages from the head to a node.
type (
	// Start gives the node an attempt. The head has logged it. Said again, it
	// changes nothing.
	Start struct {
		Attempt job.Token   `json:"attempt"`
		Job     job.ID      `json:"job"`
		Try     int         `json:"try"`
		CPUs    int         `json:"cpus"`            // given to it, of this node
		GPUs    []int       `json:"gpus,omitempty"`  // indexes of those given to it, or of the one of which it has a part
		Also    []job.Visit `json:"also,omitempty"`  // given to it of other nodes of the machine
		User    string      `json:"user,omitempty"`  // who has submitted it, as the head has proven
		Spec    string      `json:"spec"`            // SHA-256 of the batch's spec as JSON; fetched once for each batch
		Work    *job.Job    `json:"work,omitempty"`  // absent when it is long: fetched
		Time    *int64      `json:"time,omitempty"`  // seconds that it may run, where that is not what the job says; 0: no limit
		Never   bool        `json:"never,omitempty"` // its batch says retry: never

		Saved job.Token `json:"saved,omitempty"` // the attempt whose saved files it goes on with: fetched
		Anew  int       `json:"anew,omitempty"`  // when its user said last that the batch is to be built anew, as in [job.Record]
	}
	// Stop ends an attempt: asked, given time, killed. Its Ended follows. With
	// Unstarted only if nothing of it has started; otherwise it is ignored.
	Stop struct {
		Attempt   job.Token `json:"attempt"`
		Why       string    `json:"why,omitempty"`
		Unstarted bool      `json:"unstarted,omitempty"`
	}
	// Keep says that an attempt is still wanted: of each of the list, and when it is to
	// stand still or to go on.
	Keep struct {
		Attempt job.Token `json:"attempt"`
		Still   bool      `json:"still,omitempty"` // it is to stand still until a Keep without it
		Time    int64     `json:"time,omitempty"`  // seconds that it may run, if that is more than it was to; 0: as long as it likes
	}
	// Have says that the head has the attempt's result safe. The node deletes it.
	Have struct {
		Attempt job.Token `json:"attempt"`
	}
	// Forget says that nobody wants the attempt, or the build. The node deletes it.
	Forget struct {
		Attempt job.Token   `json:"attempt,omitempty"`
		Build   job.BatchID `json:"build,omitempty"`
	}
	// Hold says that the head does not know the attempt. The node keeps it,
	// untouched, until an operator decides.
	Hold struct {
		Attempt job.Token `json:"attempt"`
	}
	// Grant lets the node send a result, on its up stream: a Send of its
	// manifest if that is wanted, then a Send of the wanted entries.
	Grant struct {
		Attempt  job.Token `json:"attempt"`
		Manifest bool      `json:"manifest,omitempty"`
		Want     Want      `json:"want,omitzero"`
	}
	// Resume ends every pause of the node, on the word of an operator.
	Resume struct {
		By string `json:"by,omitempty"` // who has asked for it, for the node's log
	}
	// Tail asks for what an attempt or its build printed: the answer is a Send
	// of OfLog on the control stream, with this X.
	Tail struct {
		X       uint64    `json:"x"`
		Attempt job.Token `json:"attempt"`
		Build   bool      `json:"build,omitempty"`
		Rank    int       `json:"rank,omitempty"`   // what that one of several ranks printed
		From    int64     `json:"from,omitempty"`   // byte to begin at; negative: that many before the end
		Lines   int       `json:"lines,omitempty"`  // instead: only so many last ones
		Follow  bool      `json:"follow,omitempty"` // until the attempt is over
	}
	// Untail ends a Tail early.
	Untail struct {
		X uint64 `json:"x"`
	}
)

// A Note comes after rows, if the Query asks for notes.
type Note struct {
	Note string `json:"note"` // for people, in lines
}

// A Need is what a job needs of its node: an operand of a Query of able.
type Need struct {
	Kind         string        `json:"kind"`                   // of its batch
	Capabilities []string      `json:"capabilities,omitempty"` // of its batch, and its own
	Resources    job.Resources `json:"resources,omitzero"`
}

// An Able is how many nodes could ever meet a need, also if they are busy, paused or away.
type Able struct {
	Able  int    `json:"able"`
	Nodes int    `json:"nodes"`         // of so many of which the head has heard since it was started
	Why   string `json:"why,omitempty"` // why none could, if the head is sure
}

// A Deletion is what becomes of one batch that is to be deleted.
type Deletion struct {
	Batch job.BatchID `json:"batch"`
	Bytes int64       `json:"bytes,omitempty"` // that it takes on the disk, told only if nothing is done
	Why   string      `json:"why,omitempty"`   // it stays: why
}

// An Admission is a node that is let in.
type Admission struct {
	Node node.Name `json:"node"`
	As   string    `json:"as"`             // its fingerprint, or the address where the head starts it
	Same bool      `json:"same,omitempty"` // it was before
	Jobs int       `json:"jobs,omitempty"` // that it has had since before, if it is not connected
}

// A Claimed is an attempt on a cluster to which somebody has taken its job.
type Claimed struct {
	Job     job.ID    `json:"job"`
	Attempt job.Token `json:"attempt"`
	Try     int       `json:"try"`
	Void    bool      `json:"void,omitempty"`  // nobody wants its result
	Ended   bool      `json:"ended,omitempty"` // the head knows how it ended, and waits for its result
	Held    bool      `json:"held,omitempty"`  // the job was held until this request took it
}

// A Want names entries of a manifest.
type Want struct {
	Ranges [][2]int `json:"ranges,omitzero"` // half-open, ascending; nil: all; empty: none
	From   int64    `json:"from,omitempty"`  // byte of the first wanted entry to begin at
}

// Messages from a tool to the head. Each request carries a random Ref; its
// answer is what is told beside it, or an Error.
type (
	// Query asks for rows: a Send of OfRows.
	Query struct {
		Ref    job.Token `json:"ref"`
		Of     string    `json:"of"`             // jobs, batches, causes, nodes; attempts: a row of a job for each of its attempts; able: an Able for each of Args, a Need
		Args   []string  `json:"args,omitempty"` // operands, as the tool got them
		All    bool      `json:"all,omitempty"`  // everybody's
		Follow bool      `json:"follow,omitempty"`
		Notes  bool      `json:"notes,omitempty"` // after the rows of jobs, attempts, batches or causes may come a Note of what was left out
		Until  string    `json:"until,omitempty"` // over: with Follow, a row when its job is over, and the end when all are; ends: a row for each job that is over from now on, without end
	}
	// Change asks that something be changed: a Send of OfIDs, the jobs changed,
	// or of OfRows, a Deletion each, when that is durable. The same Ref again
	// changes nothing twice.
	Change struct {
		Ref    job.Token `json:"ref"`
		Verb   string    `json:"verb"` // cancel, retry, hold, release, set; delete (whole batches); lost, drain, resume, accept (Args is a node and its key or address), remove (Args is a node); claim
		Args   []string  `json:"args"`
		All    bool      `json:"all,omitempty"` // everybody's
		Dry    bool      `json:"dry,omitempty"` // say, do not do
		Reason string    `json:"reason,omitempty"`
		Set    *job.Set  `json:"set,omitempty"`    // of set: to what
		Freeze bool      `json:"freeze,omitempty"` // of hold: what runs stands still, too
		Anew   bool      `json:"anew,omitempty"`   // of retry: their batches are built anew
		Node   string    `json:"node,omitempty"`   // of claim: the cluster
		Folder job.Token `json:"folder,omitempty"` // of claim: the folder in which they are taken there
	}
	// Pull asks for the result of one job, or of one attempt: a Send of
	// OfManifest. The tool answers with Pick, the head with a Send of OfTree.
	// With Of it asks for what the job is, or reads, instead: one such Send.
	Pull struct {
		Ref  job.Token `json:"ref"`
		ID   string    `json:"id"`
		Of   string    `json:"of,omitempty"`   // OfSpec, of its batch; OfJob; OfInputs
		Sums []string  `json:"sums,omitempty"` // of inputs, ascending, at most MaxSums
	}
	// Pick names the entries wanted of the manifest just sent. With None, none
	// is, and nothing follows. With More another Pick of the same manifest follows
	// the tree, also one that was given up.
	Pick struct {
		Ref  job.Token `json:"ref"`
		Want Want      `json:"want,omitzero"`
		None bool      `json:"none,omitempty"`
		More bool      `json:"more,omitempty"`
	}
	// Log asks for what a job printed, or its build: a Send of OfLog.
	Log struct {
		Ref    job.Token `json:"ref"`
		ID     string    `json:"id"`
		Build  bool      `json:"build,omitempty"`
		Rank   int       `json:"rank,omitempty"`  // what that one of several ranks printed
		Lines  int       `json:"lines,omitempty"` // only so many last ones; 0: all
		From   int64     `json:"from,omitempty"`  // instead: byte to begin at
		Follow bool      `json:"follow,omitempty"`
	}
	// Submit asks for a batch. Sends of OfBatch, OfSpec and OfJobs follow, and one of OfSecrets if it says so; the
	// head answers Lack; a Send of OfInputs follows; the head answers Lack again,
	// or Accepted when the batch is durable.
	Submit struct {
		Ref    job.Token   `json:"ref"` // the submission's id
		Batch  job.BatchID `json:"batch"`
		Unique bool        `json:"unique,omitempty"` // the next free name, if it is taken
		Queue  bool        `json:"queue,omitempty"`  // also what no node could ever run
		Held   bool        `json:"held,omitempty"`   // its jobs are held from the first moment on
		Add    bool        `json:"add,omitempty"`    // what the batch of that name has not of its jobs, if there is one
		Jobs   int         `json:"jobs"`

		Secrets bool `json:"secrets,omitempty"` // the values of its secrets follow its jobs
	}
	// Lack names the inputs that the head wants, of all the distinct ones of
	// the batch in ascending order of their sums.
	Lack struct {
		Ref  job.Token `json:"ref"`
		Want Want      `json:"want,omitzero"`
		None bool      `json:"none,omitempty"` // it has them all
	}
	// Accepted says that the batch is durable.
	Accepted struct {
		Ref   job.Token   `json:"ref"`
		Batch job.BatchID `json:"batch"`
		Same  bool        `json:"same,omitempty"` // it was there already
		Jobs  int         `json:"jobs"`
		Added int         `json:"added,omitempty"` // of them, to a batch that was there
	}
)

func (*Hello) kind() string    { return "hello" }
func (*Error) kind() string    { return "error" }
func (*Attach) kind() string   { return "attach" }
func (*Ping) kind() string     { return "ping" }
func (*Pong) kind() string     { return "pong" }
func (*Send) kind() string     { return "send" }
func (*Data) kind() string     { return "data" }
func (*End) kind() string      { return "end" }
func (*Offer) kind() string    { return "offer" }
func (*List) kind() string     { return "list" }
func (*Item) kind() string     { return "item" }
func (*Visit) kind() string    { return "visit" }
func (*ListEnd) kind() string  { return "list-end" }
func (*Phase) kind() string    { return "phase" }
func (*Ended) kind() string    { return "ended" }
func (*Gone) kind() string     { return "gone" }
func (*Fetch) kind() string    { return "fetch" }
func (*Start) kind() string    { return "start" }
func (*Stop) kind() string     { return "stop" }
func (*Keep) kind() string     { return "keep" }
func (*Have) kind() string     { return "have" }
func (*Forget) kind() string   { return "forget" }
func (*Hold) kind() string     { return "hold" }
func (*Grant) kind() string    { return "grant" }
func (*Resume) kind() string   { return "resume" }
func (*Tail) kind() string     { return "tail" }
func (*Untail) kind() string   { return "untail" }
func (*Query) kind() string    { return "query" }
func (*Change) kind() string   { return "change" }
func (*Pull) kind() string     { return "pull" }
func (*Pick) kind() string     { return "pick" }
func (*Log) kind() string      { return "log" }
func (*Submit) kind() string   { return "submit" }
func (*Lack) kind() string     { return "lack" }
func (*Accepted) kind() string { return "accepted" }

// blank returns a new message of the kind, or nil if there is none.
func blank(kind string) Message {
	switch kind {
	case "hello":
		return new(Hello)
	case "error":
		return new(Error)
	case "attach":
		return new(Attach)
	case "ping":
		return new(Ping)
	case "pong":
		return new(Pong)
	case "send":
		return new(Send)
	case "data":
		return new(Data)
	case "end":
		return new(End)
	case "offer":
		return new(Offer)
	case "list":
		return new(List)
	case "item":
		return new(Item)
	case "visit":
		return new(Visit)
	case "list-end":
		return new(ListEnd)
	case "phase":
		return new(Phase)
	case "ended":
		return new(Ended)
	case "gone":
		return new(Gone)
	case "fetch":
		return new(Fetch)
	case "start":
		return new(Start)
	case "stop":
		return new(Stop)
	case "keep":
		return new(Keep)
	case "have":
		return new(Have)
	case "forget":
		return new(Forget)
	case "hold":
		return new(Hold)
	case "grant":
		return new(Grant)
	case "resume":
		return new(Resume)
	case "tail":
		return new(Tail)
	case "untail":
		return new(Untail)
	case "query":
		return new(Query)
	case "change":
		return new(Change)
	case "pull":
		return new(Pull)
	case "pick":
		return new(Pick)
	case "log":
		return new(Log)
	case "submit":
		return new(Submit)
	case "lack":
		return new(Lack)
	case "accepted":
		return new(Accepted)
	}
	return nil
}
