// Package sched decides which job runs where, and what becomes of an attempt.
//
// It is three rooms. This one is the ledger: it takes in what happens, event by event, and
// knows of each job and each attempt where it stands. The ledger keeps the picture that
// package policy looks at (policy.Lab), and starts what that says; package explain tells
// people from the same picture why jobs wait.
//
//	events ──Apply──▶ ledger ──Decide──▶ actions     batch.go states.go node.go attempt.go fold.go
//	                  │    ▲                         gate*.go again.go rest.go refusal.go hold.go …
//	         policy.Lab    │ starts
//	                  ▼    │
//	                policy (which job, which node)
//	                  │
//	                explain (why not)
//
// A Machine is deterministic: it has no clock, no file, no goroutine. The shell
// around it (dsched) tells it what happened by Apply, has it Decide once for all that
// happened, and does what comes back.
// Whatever must survive a crash it says in Log actions, and it changes its own
// lasting state by folding these records only: Replay folds the same records
// after a restart, so a machine that was replayed equals the one that wrote
// (Snapshot). What is not in the log is learnt again from the nodes, each of
// which sends its whole list when it connects.
//
// The life of an attempt, with the actions in capitals:
//
//	START   logged, then told     the attempt is current: it is its job's
//	Phase…                        as the node says
//	Ended                         the node holds the result: GRANT
//	Staged                        logged done or failed, PUBLISH, HAVE
//	Gone                          the head forgets the attempt
//
// An attempt whose node is silent for longer than the lease, or that its node
// has lost, is given up (back): its job waits again. It is still known. If its
// node returns with it, it is adopted when its job waits, else both run, and
// the first whole and successful result that is staged is accepted (done).
// What comes of an attempt after its job went on without it is kept beside
// (late). An attempt is settled by a done, a late, or a failed or back whose fate
// is not lost; then its node may delete it. An attempt of a job that is
// over is void: it is stopped, and can never be accepted, even if the job is
// retried.
//
// Jobs that wait for others of their batch are outside of the queues from which
// nodes are given jobs, until their gates open (gate.go). If they never will, the
// jobs are ended, some at each decision: what is to be ended follows from the states
// of jobs, so a head that crashed meanwhile goes on.
//
// The protocol as such, with the network, crashes, and a log rolled back, is
// specified and searched in model_test.go.
package sched
