// Package job holds what the whole system says about work: batches, jobs and
// attempts, their names and ids, their states, the records in which their
// history is kept, and the reading of the batch file.
//
// A batch is what one submission asks for: a [Spec] that is common to all its
// jobs, and a list of [Job]. A try at a job is an attempt, named by a random
// [Token] and, for people, by its number: namespace/batch/job~2.
//
// The state of a job is the fold of its [Record]s: [State.Next] is the table of
// legal moves, [Fold] the full record that people are shown. dspool(5)
// describes how records lie on disk, dbatch(5) the file that people write.
package job
