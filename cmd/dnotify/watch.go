package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/query"
	"distribute/lib/timing"
	"distribute/lib/wire"
)

// nodesEvery is how often the head is asked for nodes that are lost: it takes them
// for lost after minutes.
var nodesEvery = timing.Wait(15 * time.Second)

// A watch is what of the head is told of. It outlives sessions with it.
type watch struct {
	sessions *ask.Sessions
	args     []string // the operands, and when the head has been asked, the ids of their batches
	all      bool
	matrix   bool   // who a batch names is told, and nobody else
	nodes    bool   // that are lost are told of
	operator string // of Matrix, who is told of nodes
	fresh    bool   // nothing was ever told
	known    told   // what was told, or is on its way
	send     func(*message)
	advance  func(told) // of the cursor

	found bool                // args are ids
	left  map[job.BatchID]int // jobs that are not over, at least; of batches that are not over
}

// put has a message sent.
func (w *watch) put(m *message) {
	w.known.move(m.told)
	w.send(m)
}

// rows are those of the head's answer of which keep makes something.
func rows[R, K any](ctx context.Context, w *watch, of string, args []string, keep func([]K, *R) []K) (kept []K, err error) {
	h, err := w.sessions.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	err = ask.Rows(ctx, h, wire.Query{Of: of, All: w.all && of != "nodes"}, &ask.Operands{Args: args}, func(r *R) error {
		kept = keep(kept, r)
		return nil
	})
	return kept, err
}

func every[R any](rows []R, r *R) []R { return append(rows, *r) }

// session is what is done while the head is there: all batches are looked at once, and
// then those of which something ended. It ends when all are over, if batches were named.
func (w *watch) session(ctx context.Context, progress func()) error {
	if err := w.find(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ends, begun, over := make(chan job.Row, 1000), make(chan struct{}), make(chan struct{})
	var followed error
	go func() {
		followed = w.follow(ctx, ends, func() { close(begun) })
		close(over)
	}()
	defer func() { stop(); <-over }()
	select {
	case <-begun: // what ends now is told
	case <-over:
		return followed
	}
	progress()
	err := w.lookAtAll(ctx)
	if err == nil {
		err = w.lookAtNodes(ctx)
	}
	tick := time.NewTicker(nodesEvery)
	defer tick.Stop()
	for err == nil && (len(w.args) == 0 || len(w.left) > 0) {
		select {
		case <-over:
			return followed
		case r := <-ends:
			err = w.ended(ctx, &r)
		case <-tick.C:
			err = w.lookAtNodes(ctx)
		}
	}
	return err
}

// find makes of the operands the batches that have such jobs, once: what they fit may be
// true of them only now.
func (w *watch) find(ctx context.Context) error {
	if w.found || len(w.args) == 0 {
		return nil
	}
	batches, err := rows(ctx, w, "batches", w.args, every[query.Batch])
	if err != nil {
		return err
	}
	if len(batches) == 0 {
		return cli.Errorf(cli.No, "no job fits")
	}
	w.found, w.args = true, nil
	for i := range batches {
		w.args = append(w.args, string(batches[i].ID))
	}
	return nil
}

// follow passes on what is over from now on.
func (w *watch) follow(ctx context.Context, ends chan<- job.Row, begun func()) error {
	h, err := w.sessions.Dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	ops, q := &ask.Operands{Args: w.args}, wire.Query{Of: "jobs", All: w.all, Follow: true, Until: "ends"}
	if len(w.args) == 0 {
		ops.Args = []string{"job=*"}
	} else if len(ops.Parts()) > 1 { // too many to follow by name
		ops.Args, q.All = []string{"job=*"}, true
	}
	ops.Args = append(slices.Clone(ops.Args), "state=done,failed,cancelled")
	return ask.RowsFrom(ctx, h, q, ops, begun, func(r *job.Row) error {
		if !r.State.Over() {
			return nil
		}
		select {
		case ends <- *r:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// lookAtAll tells what is to be told of all batches. If nothing was ever told, what is
// over was; what was told of batches that are no more is forgotten.
func (w *watch) lookAtAll(ctx context.Context) error {
	args := w.args
	if len(args) == 0 {
		args = []string{"job=*"}
	}
	batches, err := rows(ctx, w, "batches", args, every[query.Batch])
	if err != nil {
		return err
	}
	moves, there := told{}, map[string]bool{}
	for i := range batches {
		b := &batches[i]
		there[string(b.ID)] = true
		if w.fresh && b.Live() == 0 {
			moves["over "+string(b.ID)] = b.Ended
		}
	}
	for key := range w.known {
		if event, of, _ := strings.Cut(key, " "); event != "lost" && !there[of] {
			moves[key] = time.Time{}
		}
	}
	if len(w.args) == 0 && (w.fresh || len(moves) > 0) {
		w.fresh = false
		w.known.move(moves)
		w.advance(moves)
	}
	w.left = map[job.BatchID]int{}
	for i := range batches {
		if err := w.tell(ctx, &batches[i]); err != nil && cli.Status(err) != cli.NoSuch { // deleted meanwhile
			return err
		}
	}
	return nil
}

// ended looks at a batch of which a job is over, if the batch may be over now, or this is
// the first job that failed.
func (w *watch) ended(ctx context.Context, r *job.Row) error {
	id := string(r.ID.Batch())
	left, known := w.left[r.ID.Batch()]
	if known {
		w.left[r.ID.Batch()] = left - 1
	}
	if left > 1 && (r.State != job.Failed || w.known["failing "+id].Equal(r.Submitted)) || w.found && !slices.Contains(w.args, id) {
		return nil
	}
	from := time.Now()
	batches, err := rows(ctx, w, "batches", []string{id}, every[query.Batch])
	if len(batches) == 1 {
		err = w.tell(ctx, &batches[0])
	}
	if cli.Status(err) == cli.NoSuch { // it was deleted meanwhile
		delete(w.left, r.ID.Batch())
		err = nil
	}
	select { // the head has other things to do
	case <-ctx.Done():
	case <-time.After(9 * time.Since(from)):
	}
	return err
}

// tell tells what is to be told of a batch.
func (w *watch) tell(ctx context.Context, b *query.Batch) (err error) {
	id, event, at := string(b.ID), "over", b.Ended
	if w.left[b.ID] = b.Live(); b.Live() == 0 {
		delete(w.left, b.ID)
	} else {
		event, at = "failing", b.Submitted
	}
	switch {
	case event == "failing" && b.Failed == 0 || w.known[event+" "+id].Equal(at):
		return nil
	case w.matrix && b.Matrix == "":
		w.known.move(told{event + " " + id: at})
		return nil
	}
	var causes []query.Cause
	var first []job.Row
	if failed := []string{id, "state=failed"}; b.Failed > 0 {
		causes, err = rows(ctx, w, "causes", failed, every[query.Cause])
		if err == nil && event == "over" {
			first, err = rows(ctx, w, "jobs", failed, firstFailed)
		}
	}
	switch {
	case err != nil:
		return err
	case event == "failing":
		w.put(failingMessage(b, causes))
	default:
		w.put(overMessage(b, first, causes))
	}
	return nil
}

// firstFailed keeps of the jobs that failed those that failed first.
func firstFailed(first []job.Row, r *job.Row) []job.Row {
	first = append(first, *r)
	slices.SortStableFunc(first, func(a, b job.Row) int { return a.Ended.Compare(b.Ended) })
	return first[:min(len(first), maxFirst)]
}

// lookAtNodes tells of nodes that are lost, once until they are back.
func (w *watch) lookAtNodes(ctx context.Context) error {
	if !w.nodes {
		return nil
	}
	nodes, err := rows(ctx, w, "nodes", nil, every[node.Row])
	if err != nil {
		return err
	}
	away, back := map[string]bool{}, told{}
	for i := range nodes {
		n, key := &nodes[i], "lost "+string(nodes[i].Node)
		away[key] = n.State == node.Lost || n.State == node.Silent
		if n.State == node.Lost && !n.Seen.IsZero() && w.known[key].IsZero() {
			w.put(lostMessage(n, w.operator))
		}
	}
	for key := range w.known {
		if strings.HasPrefix(key, "lost ") && !away[key] {
			back[key] = time.Time{}
		}
	}
	if len(back) > 0 {
		w.put(&message{to: w.operator, told: back}) // behind the message that it was lost
	}
	return nil
}
