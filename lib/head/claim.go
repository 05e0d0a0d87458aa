package head

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// People take jobs to a cluster that has a queue of its own, and bring back what became
// of them: d2slurm(1). Each such job is one attempt on a node named slurm:NAME. Its
// token follows from the folder in which it is taken there, so that the same claim again
// finds the same attempts, and another folder none of these.

// checkNode reports why a text is the name of neither a node nor a cluster.
func checkNode(name string) error {
	if node.Name(name).Abroad() {
		return node.CheckAbroad(name)
	}
	return job.CheckName(name)
}

// takenAs is the token of the attempt of a job that is taken to a cluster in a folder.
func takenAs(folder job.Token, id job.ID, try int) job.Token {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", folder, try, id))
	return job.Token(hex.EncodeToString(sum[:16]))
}

// claim gives jobs to a cluster, and tells which attempts it has in that folder: of
// those jobs, or if nothing is to be done, all.
func (t *tool) claim(m *wire.Change) error {
	if err := errors.Join(node.CheckAbroad(m.Node), m.Folder.Check()); err != nil {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: err.Error()}
	}
	if m.Dry {
		return t.tellClaimed(m, nil, nil)
	}
	q, err := t.parse(m.Args, m.All)
	if err != nil {
		return err
	}
	var snap *snapshot
	t.do(func() { snap = t.snapshot() })
	var ids []job.ID
	var others string
	err = t.rows(snap, q, func(r, log *job.Row) error {
		switch {
		case !q.Match(r) || log.State.Over():
		case !t.mayChange(r.UID):
			others = r.Owner
		default:
			ids = append(ids, r.ID)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(ids) == 0 && others != "":
		return &wire.Error{Ref: m.Ref, Status: cli.NotAllowed, Text: fmt.Sprintf(
			"these are jobs of %s: only %s and operators may take them to a cluster", others, others)}
	}
	held, err := t.claimAll(m, ids)
	if err != nil {
		return err
	}
	of := make(map[job.ID]bool, len(ids))
	for _, id := range ids {
		of[id] = true
	}
	return t.tellClaimed(m, of, held)
}

// claimAll has jobs taken to a cluster, durably. It returns which of them were held until then.
func (t *tool) claimAll(m *wire.Change, ids []job.ID) (held map[job.ID]bool, err error) {
	any := t.operator()
	held = map[job.ID]bool{}
	ok := t.settled(func() {
		defer t.dropUnchanged(t.lastBatch)
		refs := make([]sched.Ref, len(ids))
		for i, id := range ids {
			if refs[i], err = t.ref(id); err != nil {
				return
			}
			if !any && !t.owns(t.batches[refs[i].Batch].Head.UID) { // the name has passed to another's
				err = &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", id)}
				return
			}
			if t.machine.State(refs[i]) == job.Held {
				held[id] = true
			}
		}
		for n := range byBatch(refs) {
			if !t.machine.MayClaim(node.Name(m.Node), t.batches[n].Head.UID) {
				err = &wire.Error{Ref: m.Ref, Status: cli.Later, Text: fmt.Sprintf(
					"jobs are at too many clusters already, %d are the limit for a user: bring some home, or use the name of one of those (-N)", sched.MaxClusters)}
				return
			}
		}
		for n, jobs := range byBatch(refs) {
			b := t.batches[n]
			t.apply(sched.Claim{Batch: n, Jobs: jobs, Node: node.Name(m.Node), By: t.peer.User, Token: func(i uint32, try int) job.Token {
				name, err := b.Name(int(i))
				if err != nil {
					return "" // which nobody has
				}
				return takenAs(m.Folder, b.ID.Job(name), try)
			}})
		}
	})
	if !ok {
		return nil, &wire.Error{Ref: m.Ref, Status: cli.Later, Text: "dsched is ending"}
	}
	return held, err
}

// tellClaimed answers with the attempts that a cluster has in a folder, of these jobs or
// of all, and which of the jobs were held until they were taken.
func (t *tool) tellClaimed(m *wire.Change, of, held map[job.ID]bool) error {
	var rows []wire.Claimed
	may := t.mayBring(t.peer)
	ok := t.settled(func() { // what is told is durable
		t.machine.Abroad(node.Name(m.Node), func(a sched.Attempt) {
			b := t.batches[a.Ref.Batch]
			if b == nil || !may(b.Head.UID) {
				return
			}
			name, err := b.Name(int(a.Ref.Job))
			if id := b.ID.Job(name); err == nil && (of == nil || of[id]) && takenAs(m.Folder, id, a.Try) == a.Token {
				rows = append(rows, wire.Claimed{Job: id, Attempt: a.Token, Try: a.Try, Void: !a.Current, Ended: a.Result != nil, Held: held[id]})
			}
		})
	})
	if !ok {
		return errEndingNow
	}
	return sendRows(t, m.Ref, rows)
}

// mayBring is of whose batches a peer may bring back what was taken to a cluster: of his
// own, and an operator of all.
func (h *Head) mayBring(p dial.Peer) func(uid int) bool {
	any := (&tool{Head: h, peer: p}).operator()
	return func(uid int) bool { return any || uid == p.UID }
}

// broughtFor is the user whose jobs a peer brings back: the owner of the batch that he
// names, if there is one, or he himself.
func (h *Head) broughtFor(p dial.Peer, batch job.BatchID) (uid int, err error) {
	uid = p.UID
	h.do(func() {
		if n, known := h.byID[batch]; known {
			uid = h.batches[n].Head.UID
		}
	})
	if !h.mayBring(p)(uid) {
		return 0, refusal("these are jobs of another user: only he and operators bring them back")
	}
	return uid, nil
}

// isHis says whether who brings back what was taken to a cluster may say that: only of
// attempts there of the user for whom he came.
func (h *Head) isHis(s *session, m wire.Message) bool {
	var t job.Token
	switch m := m.(type) {
	case *wire.Item:
		if t = m.Attempt; m.Build != "" {
			return false
		}
	case *wire.Phase:
		t = m.Attempt
	case *wire.Ended:
		t = m.Attempt
	case *wire.Gone:
		t = m.Attempt
	case *wire.Offer:
		return false
	default:
		return true
	}
	ref, known := h.machine.Whose(s.name, s.of, t)
	if !known || h.batches[ref.Batch] == nil {
		s.tell(&wire.Hold{Attempt: t})
		return false
	}
	return true
}
