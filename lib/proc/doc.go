// Package proc starts, contains, measures and kills trees of processes.
//
// A [Slot] is a supervisor, a process of its own that runs one [Order] after
// the other and outlives the daemon that started it. It is the same binary
// under the name [Argv0]: main calls [Supervise] when [IsSupervisor] says so.
// The daemon and a supervisor speak lines of JSON over a socket pair; when that
// ends, the supervisor finishes the order it has and exits.
//
// A supervisor holds the lock (flock) of the order's record from before the
// start until the record has the [Status]. So a held lock says that the order
// lives, a status that it is over, and neither that its supervisor died: then
// [Reclaim] kills what is left of the tree before anybody calls it lost. No pid
// read from a file is ever signalled before the kernel has said that it is
// still the process that was written down.
//
// The tree is in a cgroup (version 2), which the kernel freezes, kills, limits
// and counts as one. Without one (stop.go) it is stopped by signals as far as
// its processes are found: best effort. Either way the supervisor is the reaper
// of its orphans (child subreaper), and the kernel's answer that it has no child
// is the proof that none is left.
//
//	daemon ── Slot ──Order──▶ supervisor ──▶ start ──▶ first process, in its group
//	             ◀─Report──       │   ├ keeper: pauses (lookout) → freeze, lend, evict
//	                              │   ├ watch: time, and memory where nobody counts it
//	                              │   └ sweep: kill until nothing is left
//	                              └──▶ record: supervised, ended
//
// dspool(5) has the record.
package proc
