package main

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	c        *cli.Cmd
	ops      *ask.Operands
	all      bool
	sessions *ask.Sessions
	told     *sent
	out      *outbox
	matrix   bool   // who a batch names is told, and nobody else
	operator string // of Matrix, who is told of nodes
	nodes    bool
	lost     map[string]time.Time // nodes that are; when they were last heard of

	left    map[job.BatchID]int       // jobs that are not over, at least; of batches that are not over
	failing map[job.BatchID]time.Time // batches in which jobs failed, and which were looked at; when they were submitted
}

// An end is that a job is over.
type end struct {
	id        job.BatchID
	submitted time.Time
	state     job.State
}

// session is what is done while the head is there.
func (w *watch) session(ctx context.Context, progress func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h, err := w.sessions.Dial(ctx)
	if err != nil {
		return err
	}
	ends, begun, over := make(chan end, 1000), make(chan struct{}), make(chan error, 1)
	go func() {
		over <- w.follow(ctx, h, ends, func() { close(begun) })
		h.Close()
	}()
	err = w.loop(ctx, progress, ends, begun, over)
	stop()
	if followed := <-over; err == errFollowed {
		return followed
	}
	return err
}

// errFollowed is that following has ended, whose error says why.
var errFollowed = errors.New("the head follows no more")

// follow passes on what is over from now on.
func (w *watch) follow(ctx context.Context, h *ask.Head, ends chan<- end, begun func()) error {
	q := wire.Query{Of: "jobs", All: w.all, Follow: true, Until: "ends"}
	ops := &ask.Operands{Args: append(slices.Clone(w.operands().Args), "state=done,failed,cancelled")}
	return ask.RowsFrom(ctx, h, q, ops, begun, func(r *job.Row) error {
		if !r.State.Over() {
			return nil
		}
		select {
		case ends <- end{r.ID.Batch(), r.Submitted, r.State}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// operands are those that mean also what is over.
func (w *watch) operands() *ask.Operands {
	if len(w.ops.Args) > 0 {
		return w.ops
	}
	return &ask.Operands{Args: []string{"job=*"}}
}

// loop looks at all batches once, and then at those of which something ended. It ends
// when all are over, if batches were named.
func (w *watch) loop(ctx context.Context, progress func(), ends <-chan end, begun <-chan struct{}, over chan error) error {
	select {
	case <-begun: // what ends now is told
	case err := <-over:
		over <- err
		return errFollowed
	}
	progress()
	w.left = map[job.BatchID]int{}
	if err := w.look(ctx, w.operands(), true); err != nil {
		return err
	}
	tick := time.NewTicker(nodesEvery)
	defer tick.Stop()
	for {
		if err := w.lookForNodes(ctx); err != nil {
			return err
		}
		for more := true; more; {
			if len(w.ops.Args) > 0 && len(w.left) == 0 {
				return nil
			}
			select {
			case err := <-over:
				over <- err
				return errFollowed
			case e := <-ends:
				from := time.Now()
				if err := w.look(ctx, w.due(e, ends), false); err != nil {
					return err
				}
				select { // the head has other things to do
				case <-ctx.Done():
				case <-time.After(9 * time.Since(from)):
				}
			case <-tick.C:
				more = false
			}
		}
	}
}

// maxDue is of how many batches the head is asked at once.
const maxDue = 500

// due are the batches at which it is time to look, after a job's end and those that
// have come after it.
func (w *watch) due(e end, ends <-chan end) *ask.Operands {
	due := map[string]bool{}
	for {
		left, known := w.left[e.id]
		if known {
			w.left[e.id] = left - 1
		}
		if left <= 1 || e.state == job.Failed && !w.failing[e.id].Equal(e.submitted) {
			due[string(e.id)] = true
		}
		if len(due) < maxDue {
			select {
			case e = <-ends:
				continue
			default:
			}
		}
		return &ask.Operands{Args: slices.Sorted(maps.Keys(due))}
	}
}

// look asks how batches are, and tells what is to be told of them. At the first look
// of all, what is over is not told.
func (w *watch) look(ctx context.Context, ops *ask.Operands, whole bool) error {
	if len(ops.Args) == 0 {
		return nil
	}
	h, err := w.sessions.Dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	var batches []query.Batch
	err = ask.Rows(ctx, h, wire.Query{Of: "batches", All: w.all}, ops, func(b *query.Batch) error {
		batches = append(batches, *b)
		return nil
	})
	if cli.Status(err) == cli.NoSuch && !whole {
		return w.lookEach(ctx, ops) // one has been deleted meanwhile
	}
	if err != nil {
		return err
	}
	if whole && len(w.ops.Args) > 0 && len(batches) == 0 {
		return cli.Errorf(cli.No, "no job fits")
	}
	if whole && len(w.ops.Args) == 0 {
		if err := w.reckon(batches); err != nil {
			return err
		}
	}
	for i := range batches {
		if err := w.tell(ctx, h, &batches[i]); err != nil {
			return err
		}
	}
	return nil
}

// lookEach is look for one after the other.
func (w *watch) lookEach(ctx context.Context, ops *ask.Operands) error {
	for _, id := range ops.Args {
		if len(ops.Args) == 1 {
			delete(w.left, job.BatchID(id))
			return nil
		}
		if err := w.look(ctx, &ask.Operands{Args: []string{id}}, false); err != nil {
			return err
		}
	}
	return nil
}

// reckon forgets what was told of batches that are no more, and, when nothing was
// ever told, takes what is over as told.
func (w *watch) reckon(batches []query.Batch) error {
	fresh := w.told.isFresh()
	return w.told.change(func(was *memory) {
		there := map[job.BatchID]bool{}
		for i := range batches {
			b := &batches[i]
			there[b.ID] = true
			if fresh && b.Live() == 0 {
				was.Batches[b.ID] = outcome{Ended: b.Ended}
			}
		}
		maps.DeleteFunc(was.Batches, func(id job.BatchID, _ outcome) bool { return !there[id] })
	})
}

// tell has told what there is to be told of a batch.
func (w *watch) tell(ctx context.Context, h *ask.Head, b *query.Batch) error {
	told := w.told.of(b.ID)
	if w.left[b.ID] = b.Live(); b.Live() == 0 {
		delete(w.left, b.ID)
	}
	if b.Failed > 0 {
		w.failing[b.ID] = b.Submitted
	}
	over := b.Live() == 0 && !told.Ended.Equal(b.Ended)
	failing := b.Live() > 0 && b.Failed > 0 && !told.Failing.Equal(b.Submitted)
	if !over && !failing || w.matrix && b.Matrix == "" {
		return nil
	}
	of := &ask.Operands{Args: []string{string(b.ID), "state=failed"}}
	var causes []query.Cause
	if b.Failed > 0 {
		err := ask.Rows(ctx, h, wire.Query{Of: "causes", All: w.all}, of, func(c *query.Cause) error {
			causes = append(causes, *c)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if failing {
		w.out.put(failingMessage(b, causes))
		return nil
	}
	var first []job.ID
	if b.Failed > 0 {
		var err error
		if first, err = w.firstFailed(ctx, h, of); err != nil {
			return err
		}
	}
	w.out.put(overMessage(b, first, causes))
	return nil
}

// firstFailed are the jobs that failed first.
func (w *watch) firstFailed(ctx context.Context, h *ask.Head, of *ask.Operands) ([]job.ID, error) {
	type failed struct {
		id job.ID
		at time.Time
	}
	var first []failed
	err := ask.Rows(ctx, h, wire.Query{Of: "jobs", All: w.all}, of, func(r *job.Row) error {
		at, _ := slices.BinarySearchFunc(first, r.Ended, func(f failed, t time.Time) int {
			if f.at.After(t) {
				return 1
			}
			return -1 // those of the same time stay in their order
		})
		first = slices.Insert(first, at, failed{r.ID, r.Ended})
		first = first[:min(len(first), maxFirst)]
		return nil
	})
	ids := make([]job.ID, len(first))
	for i := range first {
		ids[i] = first[i].id
	}
	return ids, err
}

// lookForNodes tells of nodes that are lost, once until they are back.
func (w *watch) lookForNodes(ctx context.Context) error {
	if !w.nodes {
		return nil
	}
	h, err := w.sessions.Dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	away := map[string]bool{}
	err = ask.Rows(ctx, h, wire.Query{Of: "nodes"}, &ask.Operands{}, func(n *node.Row) error {
		name := string(n.Node)
		if n.State != node.Lost && n.State != node.Silent {
			return nil
		}
		if away[name] = true; n.State != node.Lost || n.Seen.IsZero() || w.told.lost(name) { // not yet, never here, or told
			return nil
		}
		if w.lost[name].IsZero() {
			w.lost[name] = n.Seen // as the head tells it, it is another nanosecond each time
		}
		keep := *n
		keep.Seen = w.lost[name]
		w.out.put(lostMessage(&keep, w.operator))
		return nil
	})
	if err != nil {
		return err
	}
	back := func(name string, _ time.Time) bool { return !away[name] }
	maps.DeleteFunc(w.lost, back)
	return w.told.back(back)
}
