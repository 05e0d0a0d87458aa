package main

import (
	"crypto/sha256"
	"fmt"
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

// A message is one event to be told, once.
type message struct {
	event   string // over, failing, lost
	subject string // the batch or node
	id      string // the same for the same event, also after a crash
	to      string // a user of Matrix, or nobody
	text    string // none: it moves the cursor and is not sent
	told    told   // what the cursor says then
}

func newMessage(event, subject, to string, at time.Time, lines ...string) *message {
	id := idOf(event, subject, at.UTC().Format(time.RFC3339Nano))
	return &message{event, subject, id, to, strings.Join(lines, "\n") + "\n", told{event + " " + subject: at}}
}

// idOf is the same for the same words, and safe in a path.
func idOf(kind string, words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return fmt.Sprintf("dnotify-%s-%x", kind, sum[:16])
}

// overMessage tells that a batch is over. The failed are those that failed first.
func overMessage(b *query.Batch, failed []job.Row, causes []query.Cause) *message {
	head := fmt.Sprintf("%s is over: %s", b.ID, counts(b))
	if took := b.Ended.Sub(b.Submitted); took >= 0 && !b.Submitted.IsZero() {
		head += ", in " + unit.FormatDuration(took)
	}
	lines := append([]string{head}, causeLines(causes)...)
	if len(failed) > 0 {
		words := "first failed:"
		for i := range failed {
			words += " " + string(failed[i].ID)
		}
		if b.Failed > len(failed) {
			words += fmt.Sprintf(" and %d more", b.Failed-len(failed))
		}
		lines = append(lines, words)
	}
	return newMessage("over", string(b.ID), b.Matrix, b.Ended, lines...)
}

// failingMessage tells that the first job of a batch has failed.
func failingMessage(b *query.Batch, causes []query.Cause) *message {
	head := fmt.Sprintf("%s fails: %s, %d not over", b.ID, counts(b), b.Live())
	return newMessage("failing", string(b.ID), b.Matrix, b.Submitted, append([]string{head}, causeLines(causes)...)...)
}

// lostMessage tells that a node is lost.
func lostMessage(n *node.Row, to string) *message {
	lines := []string{fmt.Sprintf("the node %s is lost: it was last heard of at %s", n.Node, n.Seen.UTC().Format(time.RFC3339))}
	if n.Note != "" {
		lines = append(lines, short(n.Note))
	}
	return newMessage("lost", string(n.Node), to, n.Seen.Truncate(time.Second), lines...)
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
func causeLines(causes []query.Cause) (lines []string) {
	causes = slices.DeleteFunc(slices.Clone(causes), func(c query.Cause) bool { return c.State != job.Failed })
	slices.SortStableFunc(causes, func(a, b query.Cause) int { return b.Jobs - a.Jobs })
	for i, c := range causes {
		if i == maxCauses {
			return append(lines, "and "+unit.Count(len(causes)-i, "other cause"))
		}
		how := job.How(c.Exit, c.Signal, c.Reason)
		for i := range how {
			how[i] = short(how[i])
		}
		text := fmt.Sprintf("%d failed: %s", c.Jobs, strings.Join(how, ", "))
		if len(c.Nodes) > 0 {
			text += " on " + short(strings.Join(c.Nodes, ", "))
		}
		if c.Said != "" {
			text += ": " + short(c.Said)
		}
		lines = append(lines, fmt.Sprintf("%s (e.g. %s)", text, c.ID))
	}
	return lines
}

// short is what somebody said, in a line.
func short(s string) string {
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return unit.Quote(s)
}
