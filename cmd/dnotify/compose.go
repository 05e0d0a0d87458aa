package main

import (
	"crypto/sha256"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/query"
	"distribute/lib/unit"
)

const (
	maxCauses = 5
	maxFirst  = 5
	maxWords  = 300 // bytes of what a job or a head said
)

// html is the message for those who show that: the first line is what matters.
func (m *message) html() string {
	var b strings.Builder
	for i, l := range m.lines {
		l = html.EscapeString(l)
		if i == 0 {
			l = "<b>" + l + "</b>"
		} else {
			b.WriteString("<br>")
		}
		b.WriteString(l)
	}
	return b.String()
}

// idOf is the same for the same thing, and of what is safe in a path.
func idOf(event, subject string, at time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", event, subject, at.UTC().Format(time.RFC3339Nano)))
	return fmt.Sprintf("dnotify-%s-%x", event, sum[:16])
}

// overMessage tells that a batch is over. The failed are those that failed first.
func overMessage(b *query.Batch, failed []job.ID, causes []query.Cause) *message {
	m := &message{event: "over", subject: string(b.ID), to: b.Matrix, id: idOf("over", string(b.ID), b.Ended),
		told: func(was *memory) {
			o := was.Batches[b.ID]
			o.Ended = b.Ended
			was.Batches[b.ID] = o
		}}
	head := fmt.Sprintf("%s is over: %s", b.ID, counts(b))
	if took := b.Ended.Sub(b.Submitted); took >= 0 && !b.Submitted.IsZero() {
		head += ", in " + unit.FormatDuration(took)
	}
	m.lines = append([]string{head}, causeLines(causes)...)
	if len(failed) > 0 {
		words := "first failed:"
		for _, id := range failed {
			words += " " + string(id)
		}
		if b.Failed > len(failed) {
			words += fmt.Sprintf(" and %d more", b.Failed-len(failed))
		}
		m.lines = append(m.lines, words)
	}
	return m
}

// counts tells how the jobs of a batch are.
func counts(b *query.Batch) string {
	text := unit.Count(b.Jobs, "job")
	for i, s := range []job.State{job.Done, job.Failed, job.Cancelled} {
		if n := *b.Count(s); n > 0 || i == 0 {
			text += fmt.Sprintf(", %d %s", n, s)
		}
	}
	return text
}

// causeLines tells why jobs failed, the most frequent cause first.
func causeLines(causes []query.Cause) []string {
	causes = slices.DeleteFunc(slices.Clone(causes), func(c query.Cause) bool { return c.State != job.Failed })
	slices.SortStableFunc(causes, func(a, b query.Cause) int { return b.Jobs - a.Jobs })
	var lines []string
	for i := range causes {
		if i == maxCauses {
			lines = append(lines, fmt.Sprintf("and %s", unit.Count(len(causes)-i, "other cause")))
			break
		}
		lines = append(lines, causeLine(&causes[i]))
	}
	return lines
}

func causeLine(c *query.Cause) string {
	var how []string
	if c.Exit != nil {
		how = append(how, fmt.Sprintf("exit %d", *c.Exit))
	}
	for _, s := range []string{c.Signal, c.Reason} {
		if s != "" {
			how = append(how, short(s))
		}
	}
	text := fmt.Sprintf("%d failed: %s", c.Jobs, strings.Join(how, ", "))
	if len(c.Nodes) > 0 {
		text += " on " + short(strings.Join(c.Nodes, ", "))
	}
	if c.Said != "" {
		text += ": " + short(c.Said)
	}
	return fmt.Sprintf("%s (e.g. %s)", text, c.ID)
}

// short is what somebody said, in a line.
func short(s string) string {
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return unit.Quote(s)
}

// failingMessage tells that the first job of a batch has failed.
func failingMessage(b *query.Batch, causes []query.Cause) *message {
	m := &message{event: "failing", subject: string(b.ID), to: b.Matrix, id: idOf("failing", string(b.ID), b.Submitted),
		told: func(was *memory) {
			o := was.Batches[b.ID]
			o.Failing = b.Submitted
			was.Batches[b.ID] = o
		}}
	m.lines = append([]string{fmt.Sprintf("%s fails: %s, %d not over", b.ID, counts(b), b.Live())}, causeLines(causes)...)
	return m
}

// lostMessage tells that a node is lost.
func lostMessage(n *node.Row, to string) *message {
	m := &message{event: "lost", subject: string(n.Node), to: to, id: idOf("lost", string(n.Node), n.Seen.Truncate(time.Second)),
		told: func(was *memory) { was.Nodes[string(n.Node)] = n.Seen }}
	text := fmt.Sprintf("the node %s is lost", n.Node)
	if !n.Seen.IsZero() {
		text += ": it was last heard of at " + n.Seen.UTC().Format(time.RFC3339)
	}
	m.lines = []string{text}
	if n.Note != "" {
		m.lines = append(m.lines, short(n.Note))
	}
	return m
}
