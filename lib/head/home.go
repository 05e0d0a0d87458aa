package head

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// A home is where a node's directory was when the head saw it last, by which a copy of it is
// told from it.
//
// The number of a session is one more than those of the sessions before. The head sends it with
// its hello, the node writes it into its directory, and then says so with its offer; only then
// the head notes it. So a directory never has a smaller number than the head, whatever loses
// power between two writes, unless it is an older copy. It has a larger one where the
// head was put back to an older copy of its spool.
type home struct {
	state   string        // names the directory
	machine string        // "": not known
	session uint64        // number of the last session; 0: not known
	at      time.Duration // when a session got a number of its own last
}

// sessionEvery is how long sessions of a node have the same number, but for older copies: each
// new one is written to a log.
const sessionEvery = time.Minute

// maxSession is the largest number of a session: JSON readers know larger ones by halves.
const maxSession = 1 << 53

// checkHome reports why a node may not come with its directory, nil if it may: the directory
// was on another machine before, also under another name of the node, or it is an older copy. An
// older copy of a node that has no job does no harm under its name: machines of pools are put
// back to an image at each boot. It returns the number for the session, nil if the node knows none.
func (h *Head) checkHome(s *session, hello *wire.Hello, peer dial.Peer) (number *uint64, why *wire.Error) {
	name, was := s.name, home{}
	h.do(func() {
		if was = h.nodes.homes[name]; was.state == s.state {
			return
		}
		was = home{}
		for other, its := range h.nodes.homes {
			if its.state == s.state && (was.state == "" || its.session > was.session) {
				name, was = other, its
			}
		}
	})
	if was.machine != "" && hello.Machine != "" && hello.Machine != was.machine {
		h.noteCopy(s.name, name)
		s.log.Error("node refused: its directory was on another machine before (if it is a copy: there, remove it, then dnoded -init; if the node has moved or was installed anew: dadm lost "+string(name)+")", "of", string(name), "from", peer.From)
		return nil, refusal("this directory is that of node %[1]q, which is on another machine: if it is a copy, remove it, then dnoded -init; if the node has moved here, or this machine was installed anew, on the head: dadm lost %[1]s", name)
	}
	if hello.Session == nil {
		return nil, nil
	}
	s.older = *hello.Session < was.session
	if s.older && (name != s.name || h.hasJobs(name)) {
		h.noteCopy(s.name, name)
		s.log.Error("node refused: its directory is an older copy, as of a backup (if the newer one is gone: dadm lost "+string(name)+", and its jobs start again elsewhere)", "of", string(name), "session", *hello.Session, "expected", was.session, "from", peer.From)
		return nil, refusal("this directory is an older copy of that of node %[1]q (session %[2]d, expected %[3]d): if the newer one is gone, on the head: dadm lost %[1]s; else remove it, then dnoded -init", name, *hello.Session, was.session)
	}
	return h.numberSession(s, max(*hello.Session, was.session)), nil
}

// noteOlder records the number of a session of an older copy before its node can know it: the
// directory that was newer before is the older one from then on.
func (h *Head) noteOlder(s *session, hello *wire.Hello, number *uint64) {
	if s.older {
		h.settled(func() { h.recordHome(s.name, home{state: s.state, machine: hello.Machine, session: *number}) })
	}
}

// outnumbered reports whether the node's directory would be an older copy in its next session: a
// copy had a later session since this one got its number, or it is an older copy now and has not
// noted the number. It is of the state's goroutine.
func (h *Head) outnumbered(s *session) bool {
	now := h.nodes.homes[s.name]
	return s.state == now.state && s.number < now.session && (s.older || s.number > 0)
}

// hasJobs reports whether a node has jobs, as far as the head knows. Those of a batch that was set
// aside since dsched began are counted until an operator gives the node up.
func (h *Head) hasJobs(name node.Name) (has bool) {
	h.do(func() {
		has = h.nodes.aside[name]
		h.machine.Live(func(a sched.Attempt) { has = has || a.Node == name })
		h.machine.Guests(name, func(sched.Attempt) { has = true })
	})
	return has
}

// noteCopy keeps for dquery that a node that it shows as away was refused with a copy of the
// directory of node of, until one of its name is let in, or one of either is given up.
func (h *Head) noteCopy(name, of node.Name) {
	list, _ := h.door.nodes()
	_, listed := list.Named(name)
	h.do(func() {
		if h.nodes.byName[name] == 0 && (listed || h.machine.Knows(name)) {
			h.nodes.copies[name] = of
		}
	})
}

// copyNote says why a node is away that was refused with a copy of a directory, and what lets it
// in; "" for another one. It is of the state's goroutine.
func (h *Head) copyNote(name node.Name) string {
	of, refused := h.nodes.copies[name]
	if !refused {
		return ""
	}
	return fmt.Sprintf("refused as a copy: dadm lost %s lets it in, see dnoded(8)", of)
}

// numberSession returns the number of a session that comes after one with that number.
func (h *Head) numberSession(s *session, last uint64) *uint64 {
	h.do(func() {
		if its := h.nodes.homes[s.name]; s.older || its.at == 0 || h.clock.tell()-its.at >= sessionEvery {
			last = min(last+1, maxSession)
		}
	})
	return &last
}

// checkSession reports why what a node says of its machine and its last session is not taken.
func checkSession(hello *wire.Hello) error {
	switch {
	case len(hello.Machine) > 100:
		return errors.New("a machine id has at most 100 bytes")
	case hello.Session != nil && *hello.Session > maxSession:
		return fmt.Errorf("the number of a session is at most %d", uint64(maxSession))
	}
	return nil
}

// recordHome appends to the head's log where the directory of a node is, unless that is known.
func (h *Head) recordHome(name node.Name, now home) {
	was := h.nodes.homes[name]
	if was.state == now.state {
		if now.machine == "" {
			now.machine = was.machine
		}
		now.session = max(now.session, was.session)
		now.at = was.at
	}
	if now.session > was.session {
		now.at = h.clock.tell()
	}
	if now != was {
		h.nodes.homes[name] = now
		h.store.AppendHead(&job.Record{Kind: job.KindNode, Node: string(name), State: now.state, Outcome: job.Outcome{Machine: now.machine}, First: now.session})
	}
}

// forgetHome has the node of that name come with whatever directory it has.
func (h *Head) forgetHome(name node.Name) {
	delete(h.nodes.aside, name)
	maps.DeleteFunc(h.nodes.copies, func(at, of node.Name) bool { return at == name || of == name })
	if was := h.nodes.homes[name]; was.machine != "" || was.session > 0 {
		h.nodes.homes[name] = home{state: was.state}
		h.store.AppendHead(&job.Record{Kind: job.KindNode, Node: string(name), State: was.state})
	}
}
