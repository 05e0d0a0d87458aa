// Dquery shows jobs, batches and nodes. See dquery(1).
package main

import (
	"bufio"
	"context"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/query"
	"distribute/lib/wire"
)

const usage = `usage: dquery [-AafjNqstvw] [-c fields] [-H head] [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	d := &dquery{c: c, now: time.Now}
	c.Bool("q")
	c.Bool("v")
	all, follow, attempts := c.Bool("a"), c.Bool("f"), c.Bool("A")
	json, nodes, batches, table, why := c.Bool("j"), c.Bool("N"), c.Bool("s"), c.Bool("t"), c.Bool("w")
	fields, head := c.String("c", ""), c.String("H", "")
	if err := c.Parse(); err != nil {
		return err
	}
	d.all, d.follow, d.attempts, d.json, d.head, d.fields = *all, *follow, *attempts, *json, *head, *fields
	d.table = *table || c.StdoutTTY() && !d.json
	d.nodes, d.batches, d.why = *nodes, *batches, *why
	refresh := *table && d.follow && c.StdoutTTY()
	switch {
	case d.nodes && d.batches:
		return cli.Usagef("-N and -s exclude each other: a line is a node or a batch")
	case d.why && (d.nodes || d.batches):
		return cli.Usagef("-w excludes -N and -s: a line is a cause")
	case *table && d.json:
		return cli.Usagef("-t and -j exclude each other")
	case d.attempts && (d.nodes || d.batches || d.why):
		return cli.Usagef("-A excludes -N, -s and -w: a line is an attempt")
	case d.follow && !refresh && (d.batches || d.nodes || d.why || d.attempts):
		return cli.Usagef("-f follows jobs alone, but with -t on a terminal any table")
	case !refresh:
		return d.show(ctx)
	}
	if !d.nodes { // whose operands are others
		ops, err := ask.Read(c, false)
		if err != nil || ops.None {
			return err
		}
		c.Args = ops.Args
	}
	d.follow, d.keeps = false, true
	defer d.hangUp()
	return c.Refresh(ctx, func(ctx context.Context, c *cli.Cmd) error {
		d.c = c
		err := d.show(ctx)
		if cli.Status(err) == cli.No { // nothing fits now
			return nil
		}
		if err != nil {
			d.hangUp()
		}
		return err
	})
}

// show prints what is asked for, once or as long as that is followed.
func (d *dquery) show(ctx context.Context) error {
	if d.follow {
		d.c.EndWithReader()
	}
	switch {
	case d.nodes:
		return d.showNodes(ctx)
	case d.batches:
		return d.showBatches(ctx)
	case d.why:
		return d.showCauses(ctx)
	}
	return d.showJobs(ctx)
}

// dquery is what the command line says.
type dquery struct {
	c            *cli.Cmd
	all, follow  bool
	json, table  bool
	attempts     bool // -A
	nodes        bool // -N
	batches      bool // -s
	why          bool // -w
	head, fields string
	now          func() time.Time

	keeps   bool      // the session with the head, for the next picture
	session *ask.Head // that is kept
}

// dial makes a session with the head, or gives the one that is kept.
func (d *dquery) dial(ctx context.Context) (h *ask.Head, err error) {
	if d.session != nil {
		return d.session, nil
	}
	if h, err = ask.Dial(ctx, d.c, d.head); err == nil && d.keeps {
		d.session = h
	}
	return h, err
}

// closeUnlessKept ends a session that is not kept.
func (d *dquery) closeUnlessKept(h *ask.Head) error {
	if d.keeps {
		return nil
	}
	return h.Close()
}

// hangUp ends the session that is kept.
func (d *dquery) hangUp() {
	if d.session != nil {
		d.session.Close()
		d.session = nil
	}
}

func (d *dquery) showJobs(ctx context.Context) error {
	ops, err := ask.Read(d.c, false)
	if err != nil {
		return err
	}
	if ops.None {
		return cli.Quiet(cli.No)
	}
	q, err := query.Parse(ops.Args, d.now())
	if err != nil {
		return cli.Usagef("%w", err)
	}
	fields := query.JobFields()
	if !d.c.Given("c") {
		fields = query.UsualJobFields()
	}
	out, err := printer(d, fields, query.DefaultJob, func(l query.Look) query.Printer[job.Row] {
		return query.NewJobTable(l, d.follow || d.attempts || q.NamesJobs())
	})
	if err != nil {
		return err
	}
	var stop context.CancelFunc
	if d.follow { // else the session may be kept
		ctx, stop = context.WithCancel(ctx) // before the session is opened, which ends with it
		defer stop()
	}
	s, err := d.open(ctx, ops)
	if err != nil {
		return err
	}
	defer s.Close()
	stranded := 0
	n, err := pour(d, stop, out, func(each func(*job.Row) error) error {
		return s.jobs(ctx, d.follow, func(r *job.Row) error {
			if r.State == job.Stranded {
				stranded++
			}
			return each(r)
		})
	})
	if err != nil {
		return err
	}
	d.sayStranded(stranded)
	if d.table && !d.follow && !d.attempts {
		if err := d.sum(ctx, s, ops, n); err != nil {
			return err
		}
	}
	return answer(n)
}

// sayStranded says on stderr that results of the jobs shown have no room.
func (d *dquery) sayStranded(n int) {
	switch {
	case n == 1:
		d.c.Talk("the head's disk is full: a result waits on its node (drm makes room)")
	case n > 1:
		d.c.Talk("the head's disk is full: %d results wait on nodes (drm makes room)", n)
	}
}

// sum says on stderr what the table comes to.
func (d *dquery) sum(ctx context.Context, s source, ops *ask.Operands, shown int) error {
	batches, err := s.count(ctx, ops)
	if err != nil {
		return err
	}
	if shown > 0 {
		d.c.Talk("%s", d.summary(batches))
		return nil
	}
	if len(ops.Args) > 0 {
		d.c.Talk("no job fits")
		return nil
	}
	ended, err := s.count(ctx, &ask.Operands{Args: []string{"ended=-1d.."}})
	if err != nil {
		return err
	}
	d.c.Talk("nothing waits or runs; since yesterday: %s", query.Summary(ended))
	for i := range ended {
		if ended[i].Failed > 0 {
			d.c.Talk("why they failed: dquery -w")
			break
		}
	}
	return nil
}

// summary is the last line below a table.
func (d *dquery) summary(batches []query.Batch) string {
	text := query.Summary(batches)
	if over := query.Over(batches, d.now()); over != "" {
		text += "; " + over
	}
	return text
}

func (d *dquery) showNodes(ctx context.Context) error {
	if _, err := query.ParseNodes(d.c.Args, d.now()); err != nil {
		return cli.Usagef("%w", err)
	}
	out, err := printer(d, query.NodeFields(), query.DefaultNode, query.NewNodeTable)
	if err != nil {
		return err
	}
	h, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer d.closeUnlessKept(h)
	n, err := pour(d, nil, out, func(each func(*node.Row) error) error {
		return ask.Rows(ctx, h, wire.Query{Of: "nodes"}, &ask.Operands{Args: d.c.Args}, each)
	})
	if err != nil {
		return err
	}
	return answer(n)
}

// answer is yes if anything was shown.
func answer(shown int) error {
	if shown == 0 {
		return cli.Quiet(cli.No)
	}
	return nil
}

// printer makes what prints rows of one type, as the options say.
func printer[R any](d *dquery, all []query.Field[R], usual string, table func(query.Look) query.Printer[R]) (query.Printer[R], error) {
	list := usual
	if d.c.Given("c") {
		list = d.fields
	}
	fields, err := query.Pick(all, list)
	if err != nil {
		return nil, cli.Usagef("-c: %w", err)
	}
	w := bufio.NewWriterSize(d.c.Stdout, 64<<10)
	look := query.Look{W: w, Width: d.c.Width(), Now: d.now,
		Color: d.c.StdoutTTY() && d.c.Getenv("NO_COLOR") == ""}
	switch {
	case d.table && d.c.Given("c"):
		return query.NewFieldTable(look, fields), nil
	case d.table:
		return table(look), nil
	case d.json && !d.c.Given("c"):
		return &query.Objects[R]{W: w}, nil
	case d.json:
		return &query.Objects[R]{W: w, Fields: fields}, nil
	}
	return &query.Records[R]{W: w, Fields: fields}, nil
}

// pour prints the rows that produce gives, and says how many there were. When
// following, what has come is printed before the next is waited for; stop is
// called if that fails, which ends produce.
func pour[R any](d *dquery, stop func(), out query.Printer[R], produce func(each func(*R) error) error) (n int, err error) {
	if !d.follow {
		err := produce(func(r *R) error { n++; return out.Print(r) })
		return n, first(err, out.Flush())
	}
	rows, end := make(chan *R, 100), make(chan error, 1)
	go func() {
		end <- produce(func(r *R) error { keep := *r; rows <- &keep; return nil })
		close(rows)
	}()
	for r := range rows {
		if err != nil {
			continue
		}
		n++
		if err = out.Print(r); err == nil && len(rows) == 0 {
			err = out.Flush()
		}
		if err != nil {
			stop()
		}
	}
	return n, first(err, <-end)
}

// first is the first error of two.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
