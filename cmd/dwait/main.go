// Dwait waits for jobs and prints their ids as they end. See dwait(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

const usage = `usage: dwait [-qv] [-H head] [-T time] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	head, limit := c.String("H", ""), c.String("T", "")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	patience, err := parseLimit(c, *limit)
	if err != nil {
		return err
	}
	ops, err := ask.Read(c, true)
	if err != nil || ops.None {
		return err
	}
	c.EndWithReader()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	w := &wait{c: c, ops: ops, progress: c.Progress("over:", 0, nil), told: map[job.ID]bool{}, left: map[job.ID]bool{}}
	err = ask.Again(ctx, c, func(progress func()) error { return w.try(ctx, *head, progress) })
	w.progress.Done()
	switch {
	case errors.Is(err, context.DeadlineExceeded) && !w.asked:
		return cli.Errorf(cli.No, "the head has not answered after -T %s", *limit)
	case errors.Is(err, context.DeadlineExceeded):
		return cli.Errorf(cli.No, "not over after -T %s: %s", *limit, some(w.left))
	case err != nil:
		return err
	case w.bad > 0:
		return cli.Quiet(cli.No)
	}
	return nil
}

func parseLimit(c *cli.Cmd, s string) (time.Duration, error) {
	if !c.Given("T") {
		return 0, nil
	}
	d, err := unit.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errors.New("it has to be more than nothing")
	}
	if err != nil {
		return 0, cli.Usagef("-T: %w", err)
	}
	return d, nil
}

// some names a few of the jobs.
func some(jobs map[job.ID]bool) string {
	ids := slices.Sorted(maps.Keys(jobs))
	if len(ids) <= 3 {
		return words(ids)
	}
	return fmt.Sprintf("%s and %d more", words(ids[:3]), len(ids)-3)
}

// words are the ids with blanks between them, as a command line has them.
func words(ids []job.ID) string {
	return strings.Trim(fmt.Sprint(ids), "[]")
}

// wait is what is being waited for. It outlives a session with the head.
type wait struct {
	c     *cli.Cmd
	ops   *ask.Operands
	asked bool            // left is known
	told  map[job.ID]bool // until then: jobs that were over
	left  map[job.ID]bool // jobs that are not over
	bad   int             // jobs that ended without being done

	progress *cli.Progress
}

// try waits until nothing is left, or the session ends.
func (w *wait) try(ctx context.Context, head string, progress func()) error {
	h, err := ask.Dial(ctx, w.c, head)
	if err != nil {
		return err
	}
	defer h.Close()
	progress()
	if !w.asked {
		h.TellNewer(ctx, w.c, w.ops)
		if err := w.begin(ctx, h); err != nil {
			return err
		}
	}
	for len(w.left) > 0 {
		before := len(w.left)
		err := ask.Rows(ctx, h, wire.Query{Of: "jobs", Follow: true, Until: "over"}, w.rest(), w.ended)
		if err != nil && !errors.Is(err, errNoneLeft) {
			return err
		}
		if len(w.left) == before {
			return cli.Errorf(cli.NoSuch, "the head knows nothing more of %s", some(w.left))
		}
	}
	return nil
}

// begin asks which jobs are meant, once: what they fit may be true of them
// only now. Those that are over are told at once.
func (w *wait) begin(ctx context.Context, h *ask.Head) error {
	clear(w.left)
	err := ask.Rows(ctx, h, wire.Query{Of: "jobs"}, w.ops, func(r *job.Row) error {
		if _, _, _, err := job.ParseID(string(r.ID)); err != nil {
			return h.Odd(ctx, err)
		}
		switch {
		case w.told[r.ID]:
			return nil
		case !r.State.Over():
			w.left[r.ID] = true
			return nil
		}
		w.told[r.ID] = true
		return w.tell(r)
	})
	if err != nil {
		return err
	}
	if len(w.left)+len(w.told) == 0 {
		return cli.Errorf(cli.No, "no job fits")
	}
	w.progress.Grow(int64(len(w.left)))
	w.asked, w.told = true, nil
	return nil
}

// errNoneLeft ends the answer of a head that was asked for whole batches.
var errNoneLeft = errors.New("all are over")

// ended tells a job that is over, if it was waited for.
func (w *wait) ended(r *job.Row) error {
	if !w.left[r.ID] || !r.State.Over() {
		return nil
	}
	delete(w.left, r.ID)
	w.progress.Add(1)
	err := w.tell(r)
	if err == nil && len(w.left) == 0 {
		err = errNoneLeft
	}
	return err
}

func (w *wait) tell(r *job.Row) error {
	if r.State != job.Done {
		w.bad++
		w.c.Verbose("%s: %s%s", r.ID, r.State, because(r))
	}
	_, err := fmt.Fprintln(w.c.Stdout, r.ID)
	return err
}

func because(r *job.Row) string {
	text := ""
	if r.Exit != nil {
		text = fmt.Sprintf(", exit %d", *r.Exit)
	}
	for _, s := range []string{r.Signal, r.Reason} {
		if s != "" {
			text += ", " + unit.Quote(s)
		}
	}
	return text
}

// fewIDs is how many jobs one question names; the batches of more are asked
// for whole.
const fewIDs = 1000

// rest is what is left, as operands. It names the batches if the ids of the jobs are too
// many, or too long, for one question.
func (w *wait) rest() *ask.Operands {
	ops := &ask.Operands{}
	for id := range w.left {
		ops.Args = append(ops.Args, string(id))
	}
	if len(ops.Args) > fewIDs || len(ops.Parts()) > 1 {
		batches := map[string]bool{}
		for id := range w.left {
			batches[string(id.Batch())] = true
		}
		ops.Args = slices.Collect(maps.Keys(batches))
	}
	slices.Sort(ops.Args)
	return ops
}
