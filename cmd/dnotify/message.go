package main

import (
	"crypto/sha256"
	"fmt"
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
	event string    // over, failing, lost
	of    string    // the batch or node
	at    time.Time // tells it from another that comes later; zero: what was told is forgotten
	to    string    // a user of Matrix, or nobody
	text  string    // none: it moves the cursor and is not sent
}

func (m *message) key() string { return m.event + " " + m.of }

// moves is what the cursor says when it was told.
func (m *message) moves() told { return told{m.key(): m.at} }

// id is the same for the same event, also after a crash.
func (m *message) id() string { return idOf(m.event, m.of, m.at.UTC().Format(time.RFC3339Nano)) }

// idOf is the same for the same words, and safe in a path.
func idOf(kind string, words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return fmt.Sprintf("dnotify-%s-%x", kind, sum[:16])
}

// batchMessage tells that a batch is over, or that jobs of it have failed meanwhile.
func batchMessage(b *query.Batch) *message {
	m := &message{event: "over", of: string(b.ID), at: b.Ended, to: b.Matrix}
	if live := b.Live(); live > 0 {
		m.event, m.at = "failing", b.Submitted
		m.text = fmt.Sprintf("%s fails: %s, %d not over\n", b.ID, counts(b), live)
		return m
	}
	took := unit.FormatDuration(max(0, b.Ended.Sub(b.Submitted)))
	m.text = fmt.Sprintf("%s is over: %s, in %s\n", b.ID, counts(b), took)
	return m
}

// counts tells how the jobs of a batch are.
func counts(b *query.Batch) string {
	text := unit.Count(b.Jobs, "job")
	for _, s := range []job.State{job.Done, job.Failed, job.Cancelled} {
		if n := *b.Count(s); n > 0 || s == job.Done {
			text += fmt.Sprintf(", %d %s", n, s)
		}
	}
	return text
}

// explain adds why jobs failed, the most frequent cause first, and which of them did first.
func (m *message) explain(causes []query.Cause, first []job.Row, failed int) {
	for i := range causes[:min(len(causes), maxCauses)] {
		c := &causes[i]
		m.text += fmt.Sprintf("%d failed: %s (e.g. %s)\n", c.Jobs, short(c.Text()), c.ID)
	}
	if more := len(causes) - maxCauses; more > 0 {
		m.text += "and " + unit.Count(more, "other cause") + "\n"
	}
	if len(first) == 0 {
		return
	}
	m.text += "first failed:"
	for i := range first {
		m.text += " " + string(first[i].ID)
	}
	if more := failed - len(first); more > 0 {
		m.text += fmt.Sprintf(" and %d more", more)
	}
	m.text += "\n"
}

// lostMessage tells that a node is lost.
func lostMessage(n *node.Row, to string) *message {
	text := fmt.Sprintf("the node %s is lost: it was last heard of at %s\n", n.Node, n.Seen.UTC().Format(time.RFC3339))
	if n.Note != "" {
		text += short(n.Note) + "\n"
	}
	return &message{"lost", string(n.Node), n.Seen.Truncate(time.Second), to, text}
}

// short is what somebody said, in a line.
func short(s string) string {
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return unit.Quote(s)
}
