package head

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// A nodeWord is what was said about a node, as far as the operator was answered.
type nodeWord struct {
	drained bool // it is given nothing
	shut    bool // it is not let in
	lost    bool // somebody has ever asked to give up what it had
	loose   bool // a request was not answered, and may count at any time

	asking int // requests to give up what it has that were not answered yet
}

// word is what was said about a node; it needs mu.
func (w *world) word(name node.Name) *nodeWord {
	if w.words[name] == nil {
		w.words[name] = &nodeWord{}
	}
	return w.words[name]
}

// operate says things about nodes until the faults are over, and then takes all of it back.
func (w *world) operate(r *rand.Rand) {
	p := &person{w: w, name: "ana", uid: os.Getuid(), r: r, own: &owner{host: "ana"}}
	other := &person{w: w, name: "ben", uid: 61001, r: r, own: &owner{host: "ana"}}
	gap := 20 * time.Second
	for p.wait(gap); !p.calm(); p.wait(gap) {
		name := w.nodes[r.IntN(len(w.nodes))].nameNow()
		verb := []string{"drain", "drain", "resume", "remove", "accept", "accept", "lost", "lost"}[r.IntN(8)]
		if r.IntN(8) == 0 {
			other.intrudeOn(verb, name)
			continue
		}
		if verb == "lost" && r.IntN(3) == 0 {
			name = hpc
		}
		if err := p.say(verb, name); err != nil {
			w.act("%s is told of %s of %s: %v", p.name, verb, name, err)
		}
	}
	aliases := map[node.Name]bool{}
	var names []node.Name
	for _, n := range w.nodes {
		aliases[n.alias()] = true
		names = append(names, n.alias(), node.Name(n.name))
	}
	for _, name := range names {
		for _, verb := range []string{"accept", "resume", "lost"} {
			if verb == "lost" && !aliases[name] {
				continue // what it has comes home
			}
			for w.ctx.Err() == nil {
				err := p.say(verb, name)
				if refusal := (*wire.Error)(nil); err == nil || errors.As(err, &refusal) && refusal.Status != cli.Later && refusal.Status != cli.IO && !(verb == "lost" && refusal.Status == cli.Input) {
					break // as of one that is let in, or not drained; one that seems to be connected is lost a little later
				}
				p.wait(10 * time.Second)
			}
		}
	}
	w.set(func() { w.unsaid = true })
}

// awaitUnsaid waits until the operator has taken back what was said about nodes, and those that
// were shut out have knocked again.
func (w *world) awaitUnsaid() {
	if !w.plan.words {
		return
	}
	unsaid := false
	for range 30 {
		w.sleep(2 * time.Minute)
		if unsaid {
			return
		}
		w.set(func() { unsaid = w.unsaid })
	}
	w.wrong("what was said about nodes cannot be taken back within an hour")
}

// say has an operator say something about a node, and keeps what must be true from then on.
func (p *person) say(verb string, name node.Name) error {
	w := p.w
	w.act("%s asks to %s %s", p.name, verb, name)
	shut := false
	w.set(func() {
		word := w.word(name)
		shut = word.shut && !word.loose && !w.rolled
		word.drained = word.drained && verb != "resume" && verb != "remove"
		word.shut = word.shut && verb != "accept"
		if verb == "lost" {
			word.lost = true
			word.asking++
		}
	})
	err := p.once(func(h *ask.Head) error {
		if verb == "accept" {
			_, err := h.Admit(w.ctx, string(name), "-", false)
			return err
		}
		return h.Change(w.ctx, wire.Change{Verb: verb}, &ask.Operands{Args: []string{string(name)}}, func(string) error { return nil })
	})
	refusal := (*wire.Error)(nil)
	refused := errors.As(err, &refusal)
	if refused && verb == "accept" && shut && refusal.Status == cli.Input {
		w.wrong("I4: %s was said to be removed, and cannot be accepted: %v", name, err)
	}
	if refused && (refusal.Status == cli.NotAllowed || refusal.Status == cli.Usage) {
		w.wrong("an operator may not %s %s: %v", verb, name, err)
	}
	w.set(func() {
		word := w.word(name)
		if (err == nil || refused) && verb == "lost" {
			word.asking--
		}
		word.drained = word.drained || verb == "drain" && err == nil
		word.shut = word.shut || verb == "remove" && err == nil
		word.loose = word.loose || err != nil && !(refused && refusal.Status != cli.Later)
	})
	return err
}

// intrudeOn has somebody who is no operator say something about a node.
func (p *person) intrudeOn(verb string, name node.Name) {
	p.w.act("%s, who is no operator, asks to %s %s", p.name, verb, name)
	err := p.once(func(h *ask.Head) error {
		args := []string{string(name)}
		if verb == "accept" {
			args = append(args, "-")
		}
		_, err := h.Answer(p.w.ctx, &wire.Change{Ref: job.NewToken(), Verb: verb, Args: args})
		return err
	})
	if refusal := (*wire.Error)(nil); err == nil || errors.As(err, &refusal) && refusal.Status != cli.NotAllowed && refusal.Status != cli.Later {
		p.w.wrong("%s, who is no operator, may %s %s: %v", p.name, verb, name, err)
	}
}

// wordsHold checks that what was said about nodes still counts.
func (w *world) wordsHold(h *Head) {
	w.mu.Lock()
	var wrong []string
	for name, word := range w.words {
		if word.loose || w.rolled {
			continue
		}
		if word.drained && h.machine.Drained(name) == "" {
			wrong = append(wrong, fmt.Sprintf("%s was said to be drained, and is not", name))
		}
		if word.shut && h.nodes.sessions[h.nodes.byName[name]] != nil {
			wrong = append(wrong, fmt.Sprintf("%s was said to be removed, and is connected", name))
		}
	}
	w.mu.Unlock()
	for _, text := range wrong {
		w.wrong("I4: %s", text)
	}
}

// nameNow is how the node calls itself.
func (n *simNode) nameNow() node.Name {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.knownAs()
}

// knownAs is nameNow; it needs mu.
func (n *simNode) knownAs() node.Name {
	if n.renamed {
		return n.alias()
	}
	return cmp.Or(n.called, node.Name(n.name))
}

// alias is the other name that a node may have for a time.
func (n *simNode) alias() node.Name { return node.Name(n.name + "b") }

// rename gives a node its other name, or its own again.
func (w *world) rename(n *simNode, until func(time.Duration, func())) {
	for _, other := range w.nodes {
		if other.busy() {
			n = other
		}
	}
	power, how := w.power()
	w.act("%s %s, and gets another name", n.nameNow(), how)
	n.halt(power)
	n.setRenamed(!n.renamed)
	until(3*time.Second, n.start)
}

func (n *simNode) setRenamed(is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renamed = is
}
