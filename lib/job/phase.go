package job

// A Phase is how far an attempt is, as its node says (dwire(5)). From [PhaseBuilding] on
// it was seen at work, and can have taken its node down.
type Phase string

// The phases of an attempt.
const (
	PhaseWaiting   Phase = "waiting"    // given to its node, for a slot, its inputs or the build
	PhaseSending   Phase = "sending"    // its inputs are on the way to the node
	PhaseBuilding  Phase = "building"   // the batch is built for it
	PhaseRunning   Phase = "running"    // its processes run
	PhasePaused    Phase = "paused"     // and are stopped for a while
	PhaseStuck     Phase = "unkillable" // and do not die of SIGKILL
	PhaseReturning Phase = "returning"  // it ended, and its result is not home yet

	// PhaseStopping is what people are told of a job that was cancelled and whose
	// processes are still there, or whose files are not home yet. No node says it.
	PhaseStopping Phase = "stopping"
)
