// Package head is the daemon of the head: it keeps the spool, lets nodes and tools in, and
// does what package sched decides. See dsched(8).
//
//	listeners ─ accept.go door.go ─┬─ node.go   a node's control stream    ─┐
//	                               ├─ results.go small.go inputs.go tails.go │ do, apply
//	                               │            its streams for files       │
//	                               └─ tool.go   a tool's requests           ─┤
//	                                                                         ▼
//	head.go  the state: one goroutine owns it ── sched.Machine ── Apply, Decide
//	tick.go    │ ticks: recorded ▶ durable ▶ results in place ▶ done and told
//	           ▼
//	         spool
//
// A Head is what is open (batches) and what the machine decides about it, and four structs
// with fields of their own: ticks, what was decided and is on its way to the disk and to who
// waits; nodes, who is connected; tools, what people have of the head; transfers, the
// results on their way home. All of them are of the goroutine that runs the state (run);
// the others do input and output and hand it functions to call (do), or wait until what
// these began is durable (settled). What else they share guards itself: the door, the room
// on the disk, what is staged, queues.
package head
