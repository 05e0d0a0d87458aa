// Package job has the words of the system. It reads no file that people write, and
// imports nothing but leaves.
//
//   - batch: what one submission asks for: a [Spec] that is common to all its jobs, and a
//     list of jobs. Its id is namespace/name.
//   - job: one run of a program with its inputs, a [Job]. Its id is namespace/batch/job.
//   - attempt: one try at a job on a node, known by its random [Token] and, to people, by
//     its number: namespace/batch/job~2.
//   - state: where a job stands, a [State]; [State.Next] is the table of legal moves.
//   - record: one line of a log, a [Record]; its [Kind] says what happened. The state of
//     a job is the fold of its records: a [History] folds those of a batch, and
//     [Row.Fold] makes of those of one job what people are shown.
//   - result: how an attempt ended, an [Outcome], and what it left, a manifest.
//   - resources: what a job asks for of its node, [Resources]; what is counted by its
//     name, as licences, is a [Counts].
//   - node, head, spool: the machine that runs jobs, the one that gives them out, and the
//     directory in which it keeps them.
//   - hold: a job is not started before it is released (dhold(1)), and nothing else.
//
// dspool(5) describes how records lie on disk; lib/batchfile reads what people write.
package job
