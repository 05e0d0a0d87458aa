package head

import (
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/wire"
	"distribute/spool"
)

// maxUnknown is how many attempts of a node's list are remembered in a session.
const maxUnknown = 1 << 12

// An unknown is an attempt in a node's list that the head does not know, or may forget: its
// node or its batch was given up. The node keeps the files until the batch is deleted.
type unknown struct {
	batch   job.BatchID
	ended   bool
	result  bool      // it left files
	started time.Time // by the node's clock; of one that ended
	doomed  bool      // it was here when its batch was deleted
}

// noteUnknown remembers what a node says of an attempt. It is called before the result is
// corrected to the head's clock.
func (s *session) noteUnknown(token job.Token, id job.ID, r *job.Result) {
	u, listed := s.unknown[token]
	switch {
	case s.abroad:
		return
	case !listed:
		batch, name, _, err := job.ParseID(string(id))
		if err != nil || name == "" || token.Check() != nil || len(s.unknown) >= maxUnknown {
			return
		}
		u.batch = batch
	}
	if r != nil {
		u.ended, u.result, u.started = true, r.Manifest != "", r.Started
	}
	s.unknown[token] = u
}

// letGo tells the node to delete an unknown attempt of a batch that was deleted, and reports
// whether it did. An attempt of a node that comes after that, and that started after it by the
// node's clock, may be of a later batch of the same name, which a spool that was restored from a
// copy lacks: it stays.
func (s *session) letGo(h *Head, token job.Token) bool {
	u, listed := s.unknown[token]
	if !listed || !u.ended || h.isOpen(u.batch) && !u.doomed {
		return false
	}
	at, deleted := h.store.DeletedAt(u.batch)
	if !u.doomed && (!deleted || u.result && (u.started.IsZero() || !u.started.Before(at))) {
		return false
	}
	s.log.Info("node deletes an attempt of a deleted batch", "attempt", string(token), "batch", string(u.batch))
	s.tell(&wire.Have{Attempt: token})
	return true
}

// isOpen reports whether a batch is open.
func (h *Head) isOpen(id job.BatchID) bool { _, open := h.byID[id]; return open }

// letGoOf tells all nodes to end and to delete unknown attempts of batches that were deleted.
func (h *Head) letGoOf(batches []spool.Doomed) {
	for _, s := range h.nodes.sessions {
		for token, u := range s.unknown {
			if h.machine.Recalls(s.id, token) || !slices.ContainsFunc(batches, func(d spool.Doomed) bool { return d.ID == u.batch }) {
				continue
			}
			u.doomed = true
			s.unknown[token] = u
			if !s.letGo(h, token) {
				s.tell(&wire.Stop{Attempt: token, Why: "its batch was deleted"})
			}
		}
	}
}
