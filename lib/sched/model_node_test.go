//go:build !race

// One goroutine does all of this, and takes ten times as long under the race
// detector, which has nothing to find in it.

package sched_test

// The node in the model of model_test.go.

// connect begins a session: the old one is gone on both sides.
func (s *state) connect(i int, without rule) {
	s.disconnect(i, without)
	n := &s.n[i]
	n.up, n.list, n.listed = true, n.has, true
	s.session[i] = greeted
}

func (s *state) disconnect(i int, without rule) {
	n := &s.n[i]
	s.session[i] = apart
	if without == sessionsEnd {
		return
	}
	for t := range tokens {
		if n.has[t] != ended {
			n.how[t] = 0
		}
	}
	*n = nodeState{has: n.has, how: n.how}
}

// reboot: what ran is lost, which the node knows from its notes.
func (s *state) reboot(i int, without rule) {
	s.disconnect(i, without)
	n := &s.n[i]
	for t := range tokens {
		switch {
		case without == noteFirst && (n.has[t] == assigned || n.has[t] == runs):
			n.has[t] = absent
		case n.has[t] == runs && without == lostIsTold:
			n.has[t] = assigned
		case n.has[t] == runs:
			n.has[t], n.how[t] = ended, lost
		}
	}
}

func (s *state) end(i, t int, how uint8) {
	n := &s.n[i]
	n.has[t], n.how[t] = ended, how
	if n.up && s.session[i] != apart {
		n.ended |= bit(t)
	}
}

func (s *state) run(i, t int) {
	s.n[i].has[t] = runs
	if s.ran&bit(t) != 0 {
		s.broken = twiceRun
	}
	s.ran |= bit(t)
	if uint8(t) >= s.disk.since {
		if s.starts++; s.never && s.starts > 1 && !s.rolled {
			s.broken = twiceStarted
		}
	}
}

// remove deletes an attempt of a node, and says gone.
func (s *state) remove(i, t int) {
	n := &s.n[i]
	if n.has[t] == ended && n.how[t] <= bad && s.safe&bit(t) == 0 || n.has[t] == runs {
		s.broken = thrownAway
	}
	n.has[t] = absent
	n.letGo |= bit(t)
	if s.session[i] != apart {
		n.gone |= bit(t)
	}
}

// nodeHears: a message arrives at a node.
func (s *state) nodeHears(i, t int, sent uint8, msg string, without rule) bool {
	n := &s.n[i]
	if sent&bit(t) == 0 {
		return false
	}
	switch msg {
	case "start":
		if n.has[t] != absent || n.letGo&bit(t) != 0 && without != letGoNames {
			return false
		}
		n.has[t] = assigned
	case "stop":
		switch n.has[t] {
		case assigned:
			s.end(i, t, unstarted)
		case runs:
			s.end(i, t, bad) // what it has saved comes home all the same
		default:
			return false
		}
	case "have":
		if n.has[t] != ended {
			return false
		}
		s.remove(i, t)
	case "forget":
		if n.has[t] != ended || n.how[t] != unstarted {
			return false // it has started after all: it says so itself
		}
		s.remove(i, t)
	case "grant":
		if n.has[t] != ended || s.session[i] == apart || n.data&bit(t) != 0 {
			return false
		}
		n.data |= bit(t)
		if without == keepUntilHave {
			s.remove(i, t)
		}
	}
	return true
}
