// Package spool is the only code that touches the spool, the directory in
// which a head keeps its batches. dspool(5) is the specification: the tree,
// each file, the lines of its logs, and every state that a crash can leave.
//
// A [Spool] is the directory as anybody may read it, without a lock: [Spool.Batches],
// [Spool.Read], [Spool.Result]. A [Head] is the right to write it, which one
// process has at a time ([Spool.Lock]). A [Batch] is one of its batches, open
// for records.
//
// The batch's log is its truth. What happens is appended as records
// ([Head.Append]) and made durable together ([Head.Commit]); only then may
// anything be done or said because of it. A batch comes in as a [Submission],
// which is filled out of sight and put in place by one rename. A result is
// staged ([Head.Stage], [Head.Seal]), committed by its record, and put in place
// by a rename ([Head.Publish]) which [Head.Load] repeats where a crash came
// between.
//
// Where a doc comment says nothing else, the methods of Head are for the one
// goroutine that owns the state; those of a Submission are for one goroutine at
// a time, whichever.
package spool
