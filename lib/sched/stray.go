package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"distribute/lib/job"
	"distribute/lib/node"
)

// A stray is an attempt that one node lists and that was given to another, disconnected
// node: most likely the same one under its former name. The attempt remains that node's,
// which may come back: its token does not prove that the other is the same. But the stray
// uses cpus of the node that lists it, and is stopped there when no job needs it any more.
type stray struct {
	token   job.Token
	of      node.Name
	stopped bool
	over    bool // nothing of it has run: its node deletes it, and says so
}

// stray takes in an item of a list if it is a stray, and reports whether it is.
func (m *Machine) stray(p *peer, e Item) bool {
	k, ok := e.Attempt.Key()
	a := m.live[k]
	if !ok || a == nil || a.peer == p || a.peer.Session != 0 || p.abroad {
		return false
	}
	if p.strays == nil {
		p.strays = map[key]*stray{}
	}
	p.strays[k] = &stray{token: e.Attempt, of: a.peer.Name}
	m.do(Strayed{p.Session, e.Attempt, a.peer.Name})
	if e.Ended != nil {
		return m.strayEnded(p, e.Attempt, e.Ended)
	}
	e.Also = nil // that is counted with the attempt
	m.hold(p, e)
	if !works(e.Phase) { // its job loses nothing
		m.stopStray(p, k)
	}
	return true
}

// strayEnded answers that a stray is over, and reports whether it is one. Its result is
// kept on its node, for when that has its former name again.
func (m *Machine) strayEnded(p *peer, token job.Token, r *Result) bool {
	k, _ := token.Key()
	s := p.strays[k]
	if s == nil {
		return false
	}
	switch {
	case m.loseStray(p, k, r):
		delete(p.strays, k)
		m.answerSettled(p, p.gone[k], token, r)
	case r.Fate.Unstarted():
		s.stopped, s.over = true, true
		m.do(Forget{p.Session, token})
	default:
		delete(p.strays, k)
		m.do(Hold{p.Session, token, fmt.Sprintf("it was given to %s", s.of)})
	}
	m.unhold(p, token)
	return true
}

// loseStray gives up the attempt that a stray is if its node has the directory of the one to
// which it was given, and which is still disconnected: this says of itself that the attempt
// never began, or that it was lost. It reports whether that settles the attempt.
func (m *Machine) loseStray(p *peer, k key, r *Result) (over bool) {
	a := m.live[k]
	if a == nil || a.peer.Session != 0 || a.peer.abroad || a.peer.directory() != p.state || !r.Fate.Unstarted() && r.Fate != job.FateLost {
		return false
	}
	a.listed = p.Session
	why := orElse(r.Reason, "lost by "+string(a.peer.Name))
	if a.current {
		m.lose(a, why, r.Fate)
	}
	if over = r.Fate.Unstarted() || r.Manifest == ""; over {
		if !a.dead {
			m.log(a.ref, a.record(job.KindLate, job.Outcome{}))
		}
		m.inherit(p)
	}
	return over
}

// inherit gives a node that has come the settled attempts of disconnected ones with the same
// directory: it is the same under another name.
func (m *Machine) inherit(p *peer) {
	for _, q := range m.peers {
		if len(q.gone) > 0 && q != p && q.Session == 0 && !q.abroad && q.directory() == p.state {
			maps.Copy(p.gone, q.gone)
			clear(q.gone)
		}
	}
}

// directory returns the state id that the node had last; "" if none is known.
func (p *peer) directory() string { return cmp.Or(p.state, p.had.State) }

// stopStrays stops the strays on a node that no job needs: those of jobs that are over, or
// were given up as lost.
func (m *Machine) stopStrays(p *peer) {
	byToken := func(x, y key) int { return cmp.Compare(p.strays[x].token, p.strays[y].token) }
	for _, k := range slices.SortedFunc(maps.Keys(p.strays), byToken) {
		if a := m.live[k]; a == nil || !a.current {
			m.stopStray(p, k)
		}
	}
}

// stopStray tells a node to end a stray, once a session.
func (m *Machine) stopStray(p *peer, k key) {
	if s := p.strays[k]; !s.stopped {
		s.stopped = true
		m.do(Stop{p.Session, s.token, fmt.Sprintf("its node was named %s when it began", s.of)})
	}
}
