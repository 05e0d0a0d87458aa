// Package query is what the tools know about asking and showing: the operands
// that name jobs, the filters on their fields, and how rows are printed, as
// records for programs and as tables for people. dquery(1) is its
// specification.
//
// [Parse] makes a [Query] of operands; the head narrows it to the person who
// asks ([Query.For]), resolves the names of batches ([Query.Resolve]), and asks
// of each row whether it fits ([Query.Match]). Fields are named once, in
// [JobFields], [BatchFields], [CauseFields] and [NodeFields], for filters, columns
// and JSON.
//
// The package does no I/O but to the writers it is given, and knows neither
// the spool nor the wire.
package query
