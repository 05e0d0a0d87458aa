// Package match has the conditions that people write on what jobs and nodes are:
// "state=failed,cancelled", "memory>=64G", "node=ws*", "ended=-2d..". Filters of
// dquery(1) and what a batch wants of its nodes are made of them.
package match
