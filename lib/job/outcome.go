package job

import (
	"fmt"
	"slices"
	"strings"

	"distribute/lib/unit"
)

// What the reasons of attempts begin with that were ended for what they took of
// their nodes, as nodes write them.
const (
	ReasonTime       = "time limit"
	ReasonStopped    = "stopped: " // and then why, where its node has ended it
	ReasonDisk       = "it had written"
	ReasonMemory     = "out of memory"
	ReasonPrinted    = "it printed more than "                 // and then of how much the beginning is kept
	ReasonNodeMemory = ReasonMemory + ": its node had no more" // and the job had no limit of its own
)

// ReasonInput begins the reason of an attempt that did not run since the head does not have an
// input of its job.
const ReasonInput = "its input "

// ReasonRotten begins the reason of an attempt that did not run since an input of its job came with
// wrong content each time. A node with bad memory says so of all inputs: it is not NoInput.
const ReasonRotten = "the head sent other content than the sum of its input "

// Words is how an attempt ended, in words.
func (o *Outcome) Words() string {
	switch {
	case o.Reason != "":
		return o.Reason
	case o.Signal != "":
		return o.Signal
	case o.Exit != nil:
		return fmt.Sprintf("exit %d", *o.Exit)
	}
	return "it ended, nobody knows how"
}

// How is exit status, signal and reason in words, each that there is, but for what the reason
// ends in, as that of a rank does.
func How(exit *int, signal, reason string) (how []string) {
	if exit != nil {
		how = append(how, fmt.Sprintf("exit %d", *exit))
	}
	if signal != "" {
		how = append(how, signal)
	}
	how = slices.DeleteFunc(how, func(s string) bool { return strings.HasSuffix(reason, ": "+s) })
	if reason != "" {
		how = append(how, reason)
	}
	return how
}

// lastTime stands before how a job ended that failed more than once.
const lastTime = ", the last time: "

// Retried is why a job has failed that failed so often, on these nodes, and at last as
// the outcome tells.
func (o *Outcome) Retried(times int, on string) string {
	return fmt.Sprintf("failed %d times, on %s%s%s", times, on, lastTime, o.Words())
}

// Last is the reason of the attempt that was the last: Reason, without how often and
// where the ones before it failed.
func (o *Outcome) Last() string {
	_, last, retried := strings.Cut(o.Reason, lastTime)
	if !retried || !strings.HasPrefix(o.Reason, "failed ") {
		return o.Reason
	}
	bare := Outcome{Exit: o.Exit, Signal: o.Signal}
	if last == bare.Words() {
		return ""
	}
	return last
}

// OwnLimit says that the attempt was ended for want of what its job itself had said
// is enough: another one would end in the same way.
func (o *Outcome) OwnLimit() bool {
	last := o.Last()
	return strings.HasPrefix(last, ReasonTime) || strings.HasPrefix(last, ReasonStopped+ReasonDisk) ||
		strings.HasPrefix(last, ReasonMemory) && !o.NodeMemory()
}

// NoInput reports whether the attempt ended since the head does not have an input of its job, or its
// secrets: no node is to blame for that.
func (o *Outcome) NoInput() bool {
	last := o.Last()
	return o.Exit == nil && o.Signal == "" && (strings.HasPrefix(last, ReasonInput) || strings.HasPrefix(last, ReasonSecrets))
}

// NodeMemory says that the attempt was ended because its node had no more memory.
func (o *Outcome) NodeMemory() bool { return strings.HasPrefix(o.Last(), ReasonNodeMemory) }

// WhyCut returns why an output of size bytes lacks its end, if the reason of its attempt says
// that it printed too much; else "". Of several ranks only one may have done so.
func WhyCut(reason string, size int64) string {
	_, limit, ok := strings.Cut(reason, ReasonPrinted)
	if !ok {
		return ""
	}
	if end := strings.IndexAny(limit, " ;,:"); end >= 0 {
		limit = limit[:end]
	}
	if bytes, err := unit.ParseBytes(limit); len(limit) > 16 || err != nil || size < bytes-bytes/16 { // it is rounded
		return ""
	}
	return ReasonPrinted + limit
}
