// Package batchfile makes a batch of what people write: a batch file (dbatch(5)), or a
// command with lines, templates and sweeps (dsubmit(1)).
//
// [ReadFile] and [Template.File] give a [File]: all that can be known without looking at
// the files that it names. [File.Collect] finds and hashes those, and gives the
// [job.Batch] that is submitted. Every mistake is told with its file, line and column,
// all of them at once.
package batchfile
