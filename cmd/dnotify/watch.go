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
	dial     func(context.Context) (*ask.Head, error)
	args     []string // the operands, and from find on what they mean
	named    bool     // by operands
	all      bool
	matrix   bool   // who a batch names is told, and nobody else
	nodes    bool   // that are lost are told of
	operator string // of Matrix, who is told of nodes
	fresh    bool   // nothing was ever told
	known    told   // what was told, or is on its way
	send     func(*message)
	advance  func(told) // of the cursor

	left map[job.BatchID]int // jobs that are not over, at least; of batches that are not over
}

// put has a message sent.
func (w *watch) put(m *message) {
	w.known.move(m.moves())
	w.send(m)
}

// rows asks the head, and calls each for every row of its answer.
func rows[R any](ctx context.Context, w *watch, of string, args []string, each func(*R)) error {
	h, err := w.dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	return ask.Rows(ctx, h, wire.Query{Of: of, All: w.all}, &ask.Operands{Args: args}, func(r *R) error {
		each(r)
		return nil
	})
}

func (w *watch) batches(ctx context.Context, args ...string) (bs []query.Batch, err error) {
	err = rows(ctx, w, "batches", args, func(b *query.Batch) { bs = append(bs, *b) })
	return bs, err
}

// find makes of the operands the batches that have such jobs: what they fit may be true
// of them only now. Without operands all are meant. A batch that was told of as over, and was
// deleted since, is left out.
func (w *watch) find(ctx context.Context) error {
	if !w.named {
		w.args = []string{"job=*"}
		return nil
	}
	found, err := w.batches(ctx, w.args...)
	if cli.Status(err) == cli.NoSuch {
		left := slices.DeleteFunc(slices.Clone(w.args), func(arg string) bool {
			if !w.toldOver(arg) {
				return false
			}
			_, err := w.batches(ctx, arg)
			return cli.Status(err) == cli.NoSuch
		})
		switch {
		case len(left) == len(w.args):
			return err
		case !slices.ContainsFunc(left, func(arg string) bool { return !ask.IsFilter(arg) }):
			w.args = nil // all was told of
			return nil
		}
		found, err = w.batches(ctx, left...)
	}
	if err == nil && len(found) == 0 {
		err = cli.Errorf(cli.No, "no job fits")
	}
	var ids []string
	for i := range found {
		ids = append(ids, string(found[i].ID))
	}
	w.args = about(ids...)
	return err
}

// toldOver reports whether an operand names a batch, or a job of one, that was told of as over.
func (w *watch) toldOver(arg string) bool {
	for key := range w.known {
		event, of, _ := strings.Cut(key, " ")
		if event == "over" && (strings.HasPrefix(arg+"/", of+"/") || strings.HasSuffix(of, "/"+arg)) {
			return true
		}
	}
	return false
}

// session is what is done while the head is there: all batches are looked at once, and
// then those of which a job ended. It ends when all are over, if batches were named.
func (w *watch) session(ctx context.Context, progress func()) error {
	if err := w.dropDeleted(ctx); err != nil || w.named && len(w.args) == 0 {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	due, over := make(chan func() error, 1000), make(chan error, 1)
	go func() {
		over <- w.follow(ctx, due)
		close(over)
	}()
	defer func() { stop(); <-over }()
	var nodes <-chan time.Time
	if w.nodes {
		nodes = time.Tick(nodesEvery)
	}
	for {
		var err error
		select {
		case err := <-over:
			return err
		case look := <-due:
			progress()
			err = look()
		case <-nodes:
			err = w.lookAtNodes(ctx)
		}
		if err != nil || w.named && len(w.left) == 0 {
			return err
		}
	}
}

// dropDeleted takes from the operands, which are batches, those that were deleted since an
// earlier session.
func (w *watch) dropDeleted(ctx context.Context) error {
	if !w.named || w.left == nil {
		return nil
	}
	_, err := w.batches(ctx, w.args...)
	if cli.Status(err) != cli.NoSuch {
		return err
	}
	err = nil
	w.args = slices.DeleteFunc(w.args, func(id string) bool {
		if err != nil {
			return false
		}
		_, asked := w.batches(ctx, id)
		if cli.Status(asked) == cli.NoSuch {
			return true
		}
		err = asked
		return false
	})
	return err
}

// follow says what is due: to look at all, and then at what is over from now on.
func (w *watch) follow(ctx context.Context, due chan<- func() error) error {
	h, err := w.dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	q := wire.Query{Of: "jobs", All: w.all, Follow: true, Until: "ends"}
	ops := &ask.Operands{Args: append(slices.Clone(w.args), "state=done,failed,cancelled")}
	begun := func() { due <- func() error { return w.lookAtAll(ctx) } }
	return ask.RowsFrom(ctx, h, q, ops, begun, func(r *job.Row) error {
		row := *r
		select {
		case due <- func() error { return w.ended(ctx, &row) }:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
}

// lookAtAll tells what is to be told of all batches. If nothing was ever told, what is
// over was; what was told of batches that are no more is forgotten.
func (w *watch) lookAtAll(ctx context.Context) error {
	batches, err := w.batches(ctx, w.args...)
	if err != nil {
		return err
	}
	moves, there := told{}, map[string]bool{}
	for i := range batches {
		m := batchMessage(&batches[i])
		if there[m.of] = true; w.fresh && m.event == "over" {
			moves[m.key()] = m.at
		}
	}
	for key := range w.known {
		if event, of, _ := strings.Cut(key, " "); event != "lost" && !there[of] {
			moves[key] = time.Time{}
		}
	}
	if !w.named && (w.fresh || len(moves) > 0) {
		w.fresh = false
		w.known.move(moves)
		w.advance(moves)
	}
	w.left = map[job.BatchID]int{}
	for i := range batches {
		if err := w.tell(ctx, &batches[i]); err != nil {
			return err
		}
	}
	return nil
}

// ended looks at a batch of which a job is over, if the batch may be over now, or this is
// the first job that failed.
func (w *watch) ended(ctx context.Context, r *job.Row) error {
	id := r.ID.Batch()
	w.left[id]--
	if w.left[id] > 0 && (r.State != job.Failed || w.known["failing "+string(id)].Equal(r.Submitted)) {
		return nil
	}
	delete(w.left, id)
	from := time.Now()
	batches, err := w.batches(ctx, about(string(id))...)
	for i := range batches {
		err = w.tell(ctx, &batches[i])
	}
	select { // the head has other things to do
	case <-ctx.Done():
	case <-time.After(9 * time.Since(from)):
	}
	if cli.Status(err) == cli.NoSuch { // it was deleted meanwhile
		return nil
	}
	return err
}

// isOlder reports whether the id of a batch would be taken for a filter: the namespace of an
// older one may have "=".
func isOlder(id string) bool {
	space, _, _ := strings.Cut(id, "/")
	return strings.Contains(space, "=")
}

// about returns the operands that mean these batches. Where one is older, filters mean them: on the
// ids, and on the names, so that the head reads no other batches for that.
func about(ids ...string) []string {
	if !slices.ContainsFunc(ids, isOlder) {
		return ids
	}
	var spaces, names []string
	for _, id := range ids {
		space, name, _ := strings.Cut(id, "/")
		spaces, names = append(spaces, space), append(names, name)
	}
	anyOf := func(values []string) string {
		slices.Sort(values)
		return strings.Join(slices.Compact(values), ",")
	}
	return []string{"id=" + strings.Join(ids, "/*,") + "/*", "namespace=" + anyOf(spaces), "batch=" + anyOf(names)}
}

// tell tells what is to be told of a batch.
func (w *watch) tell(ctx context.Context, b *query.Batch) error {
	if b.Live() > 0 {
		w.left[b.ID] = b.Live()
	}
	m := batchMessage(b)
	switch {
	case b.Live() > 0 && b.Failed == 0, w.known[m.key()].Equal(m.at):
		return nil
	case w.matrix && m.to == "":
		w.known.move(m.moves())
		return nil
	}
	var causes []query.Cause
	var first []job.Row
	if failed := append(about(m.of), "state=failed"); b.Failed > 0 {
		err := rows(ctx, w, "causes", failed, func(c *query.Cause) { causes = append(causes, *c) })
		if err == nil && m.event == "over" {
			err = rows(ctx, w, "jobs", failed, func(r *job.Row) { first = firstFailed(append(first, *r)) })
		}
		if err != nil && cli.Status(err) != cli.NoSuch { // else it was deleted meanwhile
			return err
		}
	}
	m.explain(causes, first, b.Failed)
	w.put(m)
	return nil
}

// firstFailed keeps of jobs that failed those that failed first.
func firstFailed(jobs []job.Row) []job.Row {
	slices.SortStableFunc(jobs, func(a, b job.Row) int { return a.Ended.Compare(b.Ended) })
	return jobs[:min(len(jobs), maxFirst)]
}

// lookAtNodes tells of nodes that are lost, once until they are back.
func (w *watch) lookAtNodes(ctx context.Context) error {
	away := map[string]bool{}
	err := rows(ctx, w, "nodes", nil, func(n *node.Row) {
		m := lostMessage(n, w.operator)
		away[m.of] = n.State == node.Lost || n.State == node.Silent
		if n.State == node.Lost && !n.Seen.IsZero() && w.known[m.key()].IsZero() {
			w.put(m)
		}
	})
	if err != nil {
		return err
	}
	for key := range w.known {
		if event, of, _ := strings.Cut(key, " "); event == "lost" && !away[of] {
			w.put(&message{event: event, of: of, to: w.operator}) // behind the message that it was lost
		}
	}
	return nil
}
