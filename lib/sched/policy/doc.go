// Package policy decides which job is started where. It reads a Lab and yields what is to
// be done. What it changes there is its own: which nodes are kept for what, the turns of
// owners as they are now, and what it found out of a queue (Alone, Roomiest).
//
//	Lab ─┬─ Nodes ──── Runs      what there is, and what runs there
//	     ├─ Batches ── Queues    what waits: jobs of a batch that ask for the same (Class)
//	     ├─ Owners               whose turn it is
//	     ├─ Site                 what is counted over all nodes
//	     └─ Kept                 nodes that are kept for jobs that ask for much
//
// A Round is one decision, made once for all that has happened since the last, from
// scratch. It costs a look at each node and each queue, and then a look at some nodes for
// each job that is started; what a job asks for is looked at for all of its queue at once,
// so a million jobs that wait cost no more than one. In order:
//
//   - order.go: the queues stand in the order in which their first jobs go: priority, the
//     turn of the owner, age.
//   - fit.go: what is in the way of a queue on a node, from what never passes (it has not
//     what the jobs ask for) to what passes soonest (other jobs run there). These few
//     predicates are all that speaks against a node; package explain puts them in words.
//   - beside.go: ranks that have no room on one of several nodes of a machine are dealt out
//     over some of them.
//   - round.go: the first queue that has room on some node gives its first job to the best
//     of these (rank), and so on until none has.
//   - keep.go: before each start it is seen whether a job that goes first is passed over on
//     that node, because it asks for more; then a node is kept for it.
//   - site.go: a job leaves what the site counts to one that goes first and waits for more
//     of it.
//   - ahead.go: where jobs are short, the next ones wait on their node already.
//
// What there is to decide about is in lab.go, amounts in share.go, numbers of jobs in
// set.go.
package policy
