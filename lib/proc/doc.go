// Package proc starts, contains, measures and kills trees of processes.
//
// A [Slot] is a supervisor, a process of its own that runs one [Order] after
// the other and outlives the daemon that started it. It is the same binary
// under the name [Argv0]: main calls [Supervise] when [IsSupervisor] says so.
// The daemon and a supervisor speak lines of JSON over a socket pair; when that
// ends, the supervisor finishes the order it has and exits.
//
// A supervisor holds a lock (flock) on the order's directory from before the
// start until the [Status] is on disk. So a held lock says that the order
// lives, a status that it is over, and neither that its supervisor died: then
// [Reclaim] kills what is left of the tree before anybody calls it lost. No pid
// read from a file is ever signalled before the kernel has said that it is
// still the process that was written down.
//
// The tree is contained in a cgroup (version 2) where one can be made, and
// always by the supervisor being the reaper of its orphans (child subreaper):
// every process of the tree is its descendant, and the kernel's answer that it
// has no child is the proof that none is left.
//
// The files in an order's directory are described in dspool(5).
package proc
