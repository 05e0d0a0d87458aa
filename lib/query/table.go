package query

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/unit"
)

// A Look is how a table is to be: for whom, and for what screen.
type Look struct {
	W     io.Writer
	Width int // columns of the screen
	Color bool
	Now   func() time.Time // its zone is that of the times shown
}

// block is how many rows are laid out together.
const block = 1000

// A grid lays out rows of cells in columns. The first column is never cut. The
// last one is, at the width of the screen and behind a word, or goes on in lines below
// if folds is set; columns with nothing in them are left out. Widths are of the rows
// met so far and only grow.
type grid struct {
	look   Look
	folds  bool
	header []string
	widths []int // 0: nothing in it yet
	rows   [][]string
	red    []bool
	shown  int // columns that the header showed when it was printed
}

func (g *grid) add(red bool, cells ...string) error {
	g.rows, g.red = append(g.rows, cells), append(g.red, red)
	if len(g.rows) < block {
		return nil
	}
	return g.flush()
}

func (g *grid) flush() error {
	if len(g.rows) == 0 {
		return nil
	}
	if g.widths == nil {
		g.widths = make([]int, len(g.header))
	}
	for _, row := range g.rows {
		for i, cell := range row {
			if cell != "-" && cell != "" || i == 0 {
				g.widths[i] = max(g.widths[i], utf8.RuneCountInString(cell), len(g.header[i]))
			}
		}
	}
	last, shown := 0, 0
	for i, w := range g.widths {
		if w > 0 {
			last, shown = i, shown+1
		}
	}
	var b strings.Builder
	if shown != g.shown {
		g.line(&b, g.header, last, false)
		g.shown = shown
	}
	for i, row := range g.rows {
		g.line(&b, row, last, g.red[i])
	}
	g.rows, g.red = g.rows[:0], g.red[:0]
	if _, err := io.WriteString(g.look.W, b.String()); err != nil {
		return err
	}
	return flush(g.look.W)
}

// first is the width of the first column: what the others leave, where a
// little is left to the last.
func (g *grid) first(last int) int {
	rest := 0
	for i, w := range g.widths[1:] {
		switch {
		case i+1 == last:
			rest += 2 + min(w, 12)
		case w > 0:
			rest += 2 + w
		}
	}
	return min(g.widths[0], max(g.look.Width-rest, len(g.header[0])))
}

func (g *grid) line(b *strings.Builder, row []string, last int, red bool) {
	var line strings.Builder
	var below []string
	width := 0
	for i, cell := range row {
		w := g.widths[i]
		switch {
		case w == 0:
			continue
		case i == last && i > 0:
			if cell, w = cutWord(cell, g.look.Width-width), 0; g.folds {
				cell, below = g.fold(row[i], width)
			}
		case i == 0 && i != last:
			w = g.first(last)
		}
		n := utf8.RuneCountInString(cell)
		line.WriteString(cell)
		if i < last {
			line.WriteString(strings.Repeat(" ", max(w-n, 0)+2))
			width += max(w, n) + 2
		}
	}
	text := strings.Join(append([]string{strings.TrimRight(line.String(), " ")}, below...), "\n")
	if red && g.look.Color {
		text = "\x1b[31m" + text + "\x1b[0m"
	}
	b.WriteString(text + "\n")
}

// cutNode is the name of a node, or what fits of it in three tenths of the
// screen: it may have 57 characters.
func (l *Look) cutNode(name string) string { return cut(orDash(name), max(3*l.Width/10, 12)) }

// cut shortens s to width characters, the last of which then is an ellipsis.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width < 2 {
		return ""
	}
	return string([]rune(s)[:width-1]) + "…"
}

// What of a last cell goes on in lines below.
const (
	leastFold = 24 // columns: with less room it all stands below
	mostFold  = 3  // lines
)

// fold is what of the last cell stands in the line in which so many columns are taken,
// and the lines below it.
func (g *grid) fold(text string, taken int) (cell string, below []string) {
	room := g.look.Width - taken
	if utf8.RuneCountInString(text) <= room {
		return text, nil
	}
	long := slices.ContainsFunc(strings.Fields(text), func(w string) bool { return utf8.RuneCountInString(w) > room })
	indent := taken
	if long || room < leastFold {
		indent = min(4, taken)
	}
	lines := foldWords(text, max(g.look.Width-indent, leastFold), mostFold)
	for i := range lines {
		if i > 0 || indent < taken {
			lines[i] = strings.Repeat(" ", indent) + lines[i]
		}
	}
	if indent < taken {
		return "", lines
	}
	return lines[0], lines[1:]
}

// foldWords breaks a text between words into lines of at most width characters, and
// cuts what more lines it would need.
func foldWords(text string, width, most int) (lines []string) {
	for len(lines) < most-1 && utf8.RuneCountInString(text) > width {
		head := words(text, width)
		lines = append(lines, strings.TrimRight(head, " "))
		text = strings.TrimLeft(text[len(head):], " ")
	}
	return append(lines, cutWord(text, width))
}

// cutWord is cut behind a word.
func cutWord(s string, width int) string {
	if utf8.RuneCountInString(s) <= width || width < 2 {
		return cut(s, width)
	}
	return strings.TrimRight(words(s, width-1), " ,;:") + "…"
}

// words is how a longer text begins, in at most width characters and up to the end of
// a word, unless that leaves less than half of them.
func words(s string, width int) string {
	head := string([]rune(s)[:width])
	if strings.HasPrefix(s[len(head):], " ") {
		return head
	}
	if i := strings.LastIndexByte(head, ' '); i >= len(head)/2 {
		return head[:i]
	}
	return head
}

// jobTable is the table of jobs that dquery prints when no fields are named.
type jobTable struct {
	grid
	each bool // no job that waits is put together with others

	batch job.BatchID // of the jobs that wait
	wait  [2]waiting  // those that are queued, and those that are held
}

// A waiting is the jobs of one batch that are queued, or held, printed as one row.
type waiting struct {
	n     int
	first job.Row
	why   string // the first reason for which some of them wait
	whys  int    // so many wait for that
	other bool   // and some for another
}

// NewJobTable prints jobs. If each is false the queued jobs of a batch that
// come one after another, or between others of the batch, are one row, and so are
// those that are held.
func NewJobTable(look Look, each bool) Printer[job.Row] {
	header := []string{"JOB", "STATE", "NODE", "RAN", "END", "NOTE"}
	return &jobTable{grid: grid{look: look, header: header}, each: each}
}

// Print takes one row.
func (t *jobTable) Print(r *job.Row) error {
	if batch := r.ID.Batch(); batch != t.batch {
		if err := t.printWaiting(); err != nil {
			return err
		}
		t.batch = batch
	}
	if r.State == job.Held || r.State == job.Paused {
		own := *r
		own.Reason = t.shortHold(r.Reason)
		r = &own
	}
	switch {
	case t.each:
	case r.State == job.Queued:
		t.wait[0].add(r)
		return nil
	case r.State == job.Held:
		t.wait[1].add(r)
		return nil
	}
	return t.job(r)
}

// shortHold is who has held a job since when, with that time as a table has it.
func (t *jobTable) shortHold(reason string) string {
	who, since, _ := strings.Cut(reason, " since ")
	at, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return reason
	}
	return who + " since " + humanTime(at, t.look.Now())
}

// add takes one job in.
func (c *waiting) add(r *job.Row) {
	if c.n++; c.n == 1 {
		c.first = *r
	}
	if c.why == "" {
		c.why = r.Reason
	}
	if r.Reason != "" && r.Reason == c.why {
		c.whys++
	}
	c.other = c.other || r.Reason != "" && r.Reason != c.why
}

// printWaiting prints the rows of the jobs that wait, and forgets them.
func (t *jobTable) printWaiting() error {
	for i := range t.wait {
		if err := t.waitingRow(&t.wait[i]); err != nil {
			return err
		}
		t.wait[i] = waiting{}
	}
	return nil
}

func (t *jobTable) waitingRow(c *waiting) error {
	switch c.n {
	case 0:
		return nil
	case 1:
		return t.job(&c.first)
	}
	why := c.why
	switch {
	case why == "":
	case c.other:
		why += ", and other reasons"
	case c.whys < c.n:
		why = fmt.Sprintf("%d of them: %s", c.whys, why)
	}
	return t.add(false, fmt.Sprintf("%s (%d)", unit.Quote(string(t.batch)), c.n), c.first.State.String(), "-", "-", "-", noted(why))
}

func (t *jobTable) job(r *job.Row) error {
	now := t.look.Now()
	ran, end := "-", "-"
	switch {
	case r.Ran > 0:
		ran = unit.FormatDuration(seconds(r.Ran))
	case r.Runtime > 0: // a head of before
		ran = unit.FormatDuration(seconds(r.Runtime))
	case !r.State.Over() && r.State != job.Queued && r.State != job.Held && !r.Started.IsZero():
		ran = unit.FormatDuration(max(now.Sub(r.Started), 0))
	}
	switch {
	case !r.Ended.IsZero():
		end = humanTime(r.Ended, now)
	case !r.Ends.IsZero():
		end = "~" + humanTime(r.Ends, now)
	}
	return t.add(r.State == job.Failed, unit.Quote(string(r.ID)), r.State.String(), t.look.cutNode(r.Node), ran, end, noted(note(r)))
}

// Flush prints what was held back.
func (t *jobTable) Flush() error {
	if err := t.printWaiting(); err != nil {
		return err
	}
	return t.flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return unit.Quote(s)
}

// noted is a note, which is nothing when there is none.
func noted(s string) string {
	if s == "" {
		return ""
	}
	return unit.Quote(s)
}

// note is what a table says of a job beyond its state.
func note(r *job.Row) string {
	var parts []string
	if !r.State.Over() && r.State != job.Stranded && r.Phase != "" && string(r.Phase) != r.State.String() && (r.State != job.Paused || r.Phase != job.PhaseRunning) {
		parts = append(parts, string(r.Phase))
	}
	exit := r.Exit
	if exit != nil && *exit == 0 {
		exit = nil
	}
	parts = append(parts, job.How(exit, r.Signal, r.Reason)...)
	if r.Attempt > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", r.Attempt))
	}
	return strings.Join(parts, ", ")
}

// rowTable is a table of any rows, a column a field.
type rowTable[R any] struct {
	grid
	cells func(r *R, now time.Time) []string
	red   func(r *R) bool
}

// Print takes one row.
func (t *rowTable[R]) Print(r *R) error { return t.add(t.red(r), t.cells(r, t.look.Now())...) }

// Flush prints what was held back.
func (t *rowTable[R]) Flush() error { return t.flush() }

// NewFieldTable prints the fields of rows, under their names.
func NewFieldTable[R any](look Look, fields []Field[R]) Printer[R] {
	t := &rowTable[R]{grid: grid{look: look}, red: func(r *R) bool {
		row, ok := any(r).(*job.Row)
		return ok && row.State == job.Failed
	}}
	for _, f := range fields {
		t.header = append(t.header, strings.ToUpper(f.Name))
	}
	t.cells = func(r *R, now time.Time) (cells []string) {
		for i := range fields {
			cells = append(cells, fields[i].Human(r, now))
		}
		return cells
	}
	return t
}

// NewBatchTable prints batches, without the states that none of them has, and when
// they are over if that is known of any.
func NewBatchTable(look Look) Printer[Batch] {
	t := &rowTable[Batch]{grid: grid{look: look, header: []string{"BATCH", "JOBS"}},
		red: func(b *Batch) bool { return b.Failed > 0 }}
	for _, s := range states() {
		t.header = append(t.header, strings.ToUpper(s))
	}
	t.header = append(t.header, "ENDS")
	t.cells = func(b *Batch, now time.Time) []string {
		cells := []string{unit.Quote(string(b.ID)), fmt.Sprint(b.Jobs)}
		for s := job.Queued; s <= job.Cancelled; s++ {
			cell := "-"
			if n := *b.Count(s); n > 0 {
				cell = fmt.Sprint(n)
			}
			cells = append(cells, cell)
		}
		if b.Ends.IsZero() {
			return append(cells, "-")
		}
		return append(cells, humanTime(b.Ends, now)+" to "+humanTime(b.EndsBy.Add(time.Minute-1), now))
	}
	return t
}

// NewNodeTable prints nodes.
func NewNodeTable(look Look) Printer[node.Row] {
	return &rowTable[node.Row]{
		grid: grid{look: look, folds: true, header: []string{"NODE", "STATE", "JOBS", "CPUS", "MEMORY", "GPU", "SEEN", "NOTE"}},
		red:  func(*node.Row) bool { return false },
		cells: func(r *node.Row, now time.Time) []string {
			note := strings.TrimPrefix(counted(r)+"; "+r.Note, "; ")
			memory, gpus, seen := "-", "-", "-"
			if r.Memory > 0 {
				memory = unit.FormatBytes(r.MemoryUsed) + "/" + unit.FormatBytes(r.Memory)
			}
			if r.GPUs > 0 {
				gpus = fmt.Sprintf("%s/%d", r.GPUsUsed, r.GPUs)
			}
			switch {
			case r.Seen.IsZero():
			case now.Sub(r.Seen) < time.Minute:
				seen = "now"
			default:
				seen = humanTime(r.Seen, now)
			}
			jobs, cpus := fmt.Sprint(r.Jobs), fmt.Sprintf("%d/%d", r.CPUsUsed, r.CPUs)
			if r.State == node.Pending || r.State == node.Site {
				jobs, cpus = "-", "-" // it has said nothing of them yet, or is no node
			}
			return []string{look.cutNode(orDash(string(r.Node))), orDash(string(r.State)), jobs, cpus, memory, gpus, seen, noted(strings.TrimSuffix(note, "; "))}
		},
	}
}

// counted tells what is in use of what is counted: of how many, if the node counts it.
func counted(r *node.Row) string {
	var words []string
	for name := range r.Counted.Plus(r.CountedUsed).All() {
		word := fmt.Sprint(r.CountedUsed.Of(name))
		if has := r.Counted.Of(name); has > 0 {
			word += fmt.Sprint("/", has)
		}
		words = append(words, word+" "+name)
	}
	return strings.Join(words, ", ")
}

// Summary says how many jobs the batches have together, and in which states, and
// what tells why some failed.
func Summary(batches []Batch) string {
	var sum Batch
	for i := range batches {
		sum.Sum(&batches[i])
	}
	text := unit.Count(sum.Jobs, "job")
	for s := job.Queued; s <= job.Cancelled; s++ {
		if n := *sum.Count(s); n > 0 {
			text += fmt.Sprintf(", %d %s", n, s)
			if s == job.Failed {
				text += " (dquery -w)"
			}
		}
	}
	return text
}

// Over says when all that is not over of the batches will be, and is empty if that is
// not known of one of them. Jobs that are held do not count.
func Over(batches []Batch, now time.Time) string {
	var from, to time.Time
	for i := range batches {
		b := &batches[i]
		if b.Live() == b.Held {
			continue
		}
		if b.Ends.IsZero() {
			return ""
		}
		if b.Ends.After(from) {
			from = b.Ends
		}
		if b.EndsBy.After(to) {
			to = b.EndsBy
		}
	}
	if from.IsZero() {
		return ""
	}
	return fmt.Sprintf("over between %s and %s", humanTime(from, now), humanTime(to.Add(time.Minute-1), now))
}
