package head

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/node"
	"distribute/lib/wire"
	"distribute/spool"
)

// farewellWithin is how long a node that is put out may take to hear why.
const farewellWithin = 2 * time.Second

// A door says who is let in as a node, and puts out those who are not any more.
type door struct {
	file     lock // held from when keys/nodes is read until its list counts
	mistaken bool // what is in the file does not count; guarded by file

	mu      sync.Mutex // guards the rest
	list    *spool.NodeList
	changed chan struct{}   // closed when another list counts
	wrong   string          // why what is in the file does not count
	guests  map[*guest]bool // the streams that were let in
	said    map[node.Name]*logRate
	waiters waiters
}

func newDoor(l *spool.NodeList) *door {
	return &door{file: make(lock, 1), list: l, changed: make(chan struct{}), guests: map[*guest]bool{}, said: map[node.Name]*logRate{}}
}

// A lock is a mutex for as long as a disk takes: a bubble of testing/synctest knows that its
// holder only sleeps.
type lock chan struct{}

// Lock takes the lock.
func (l lock) Lock() { l <- struct{}{} }

// Unlock gives the lock back.
func (l lock) Unlock() { <-l }

// A guest is a stream of a node that was let in.
type guest struct {
	peer dial.Peer
	name node.Name
	end  func(why *wire.Error) // ends the stream, within farewellWithin
	out  bool                  // of the door's mu: it was told to end
}

// nodes is the list that counts now, and what is closed when it does not any
// more.
func (d *door) nodes() (*spool.NodeList, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list, d.changed
}

// refuses reports why a peer may not be the node of that name, nil if it may. A
// name on the list is let in by what the list says of it and by nothing else.
// It needs mu.
func (d *door) refuses(p dial.Peer, name node.Name) *wire.Error {
	line, listed := d.list.Named(name)
	switch {
	case p.Key != "":
		return d.refusesKey(p.Key, name)
	case p.Addr != "" && line.Addr != p.Addr:
		return refusal("the head does not start node %q at %q any more", name, p.Addr)
	case p.Addr != "", !listed:
		return nil
	case line.Shut():
		return refusal("node %q is shut out: its line in the head's list of nodes says so (on the head: dadm accept %[1]s -)", name)
	case line.Key != "":
		return refusal("node %q is known by its key, and this stream shows none: its node.yaml should say head: tls://HOST", name)
	}
	return refusal("node %q is started by the head, and not let in otherwise", name)
}

func (d *door) refusesKey(key node.Fingerprint, name node.Name) *wire.Error {
	_, listed := d.list.Named(name)
	owner, known := d.list.WithKey(key)
	why := &wire.Error{Status: cli.NotAllowed, Pending: !known}
	switch {
	case known && owner.Node == name:
		return nil
	case known:
		why.Text = fmt.Sprintf("%s is the key of node %q, and not of %q: its node.yaml should say name: %s", key, owner.Node, name, owner.Node)
	case listed:
		why.Text = fmt.Sprintf("node %q is known by something else than %s; if that is gone, on the head: dadm remove %s, and then dadm accept %s %s",
			name, key, name, name, key) // by what is not this peer's to know
	default:
		why.Text = fmt.Sprintf("this node waits to be accepted; on the head: dadm accept %s %s", name, key)
	}
	return why
}

func refusal(format string, args ...any) *wire.Error {
	return &wire.Error{Status: cli.NotAllowed, Text: fmt.Sprintf(format, args...)}
}

// mayServe reports why a peer may not be the node of that name: over the socket
// only the user who runs dsched, and root, may be any; over ssh the stream says
// which; over TLS the list says whose key it is; plain TCP proves nothing, and is
// for where that is known. It is guarded by the door's mu.
func (h *Head) mayServe(p dial.Peer, name string) *wire.Error {
	if err := checkNode(name); err != nil {
		return &wire.Error{Status: cli.Input, Text: err.Error()}
	}
	switch {
	case node.Name(name).Abroad() && !p.Tool():
		return refusal("%s is no node, but a cluster to which people take jobs: only a person brings back what they left, over the spool's socket or ssh", name)
	case node.Name(name).Abroad():
		return nil
	case p.Proven && p.UID != h.uid && p.UID != 0:
		return refusal("user %s may not serve as a node here: only the user who runs dsched, and root", p.User)
	case p.Node != "" && p.Node != name:
		return refusal("this stream is that of node %[1]q, and the node says that it is %.100[2]q: write name: %[1]s in its node.yaml, or its name in the line of authorized_keys", p.Node, name)
	}
	return h.door.refuses(p, node.Name(name))
}

// enter lets a stream in as one of the node of that name, until leave. When that
// may not be any more, end is called, once. A control stream that is refused may
// wait for somebody to accept it.
func (h *Head) enter(p dial.Peer, name string, control bool, end func(*wire.Error)) (*guest, error) {
	d := h.door
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &guest{peer: p, name: node.Name(name), end: end}
	why := h.mayServe(p, name)
	if why == nil {
		d.guests[g] = true
		d.waiters.drop(p.Key)
		return g, nil
	}
	if control && why.Pending && d.waiters.add(waiter{g.name, p.Key, p.From, time.Now()}) {
		h.log.Info("nodes wait to be accepted (see dquery -N)", "nodes", d.waiters.len())
	}
	return nil, why
}

// logOf is the log for what a node that was let in is the cause of: also of one
// that comes again and again.
func (h *Head) logOf(name node.Name) *slog.Logger {
	d := h.door
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.said[name]
	if of == nil {
		if len(d.said) >= maxNodes { // of names that nobody knows any more
			clear(d.said)
		}
		of = &logRate{most: nodeLines}
		d.said[name] = of
	}
	return slog.New(limitedLog{h.log.Handler(), of}).With("node", string(name))
}

// leave forgets a stream that has ended.
func (d *door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, g)
}

// isOut says that a stream was told to end.
func (d *door) isOut(g *guest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return g.out
}

// put makes l the list that counts, ends the streams that it does not let in,
// and when they have ended, says that the list has changed. Its caller holds
// file.
func (d *door) put(l *spool.NodeList) {
	d.mu.Lock()
	d.list = l
	var ends sync.WaitGroup
	for g := range d.guests {
		why := d.refuses(g.peer, g.name)
		if why == nil {
			continue
		}
		g.out = true
		delete(d.guests, g)
		why.Text = "this node is not let in any more: " + why.Text
		ends.Go(func() { g.end(why) })
	}
	d.waiters.keep(func(w waiter) bool { return d.refusesKey(w.key, w.name) != nil })
	d.mu.Unlock()
	ends.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// putOut ends the session of a node that may not be in any more.
func (h *Head) putOut(s *session, why *wire.Error) {
	late := time.AfterFunc(farewellWithin, func() { s.conn.Close() })
	defer late.Stop()
	s.conn.Send(why)
	h.do(func() { h.nodeDown(s, why) })
	s.close()
}

// readNodes reads the list of nodes. One that is there and not taken ends dsched
// at its start, with status 65.
func readNodes(s *spool.Spool) (*spool.NodeList, error) {
	l, err := s.ReadNodes()
	if err == nil {
		for _, n := range l.Lines() {
			if n.Addr == "" {
				continue
			}
			if bad := (dial.Terms{}).Check(n.Addr); bad != nil {
				err = errors.Join(err, fmt.Errorf("%w: %s:%d: %w", spool.ErrNodes, s.NodesFile(), n.Line, bad))
			}
		}
	}
	if errors.Is(err, spool.ErrNodes) {
		return nil, cli.Errorf(cli.Input, "%w", err)
	}
	return l, err
}

// watchNodes takes up what people write into the list of nodes, within a second.
func (h *Head) watchNodes(ctx context.Context) {
	for range h.store.WatchNodes(ctx) {
		h.rereadNodes()
	}
}

// rereadNodes makes the list count that is on the disk. One with a mistake does
// not, and the one before goes on.
func (h *Head) rereadNodes() {
	h.door.file.Lock()
	defer h.door.file.Unlock()
	l, err := readNodes(h.spool)
	if err != nil {
		h.log.Error("cannot read the changed list of nodes; the previous one stays in use", "why", err)
		h.door.mistaken = true
		h.door.sayWrong(err.Error())
		return
	}
	if h.door.mistaken {
		h.door.mistaken = false
		h.door.sayWrong("")
		h.log.Info("list of nodes readable again")
	}
	if before, _ := h.door.nodes(); l.Same(before) {
		return
	}
	h.log.Info("list of nodes reread", "nodes", len(l.Lines()))
	h.door.put(l)
}

// sayWrong keeps why what is in the file does not count, for who asks for nodes.
func (d *door) sayWrong(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrong, _, _ = strings.Cut(why, "\n")
}

// wrongNote is for the notes of nodes of the list, if what is in the file does
// not count.
func (d *door) wrongNote() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wrong == "" {
		return ""
	}
	return "let in by the list as it was before a mistake: " + d.wrong
}

// changeNodes changes the list of nodes, durably, and ends the streams that it
// does not let in any more. It reads the list again, so that what somebody has
// just written into it counts. With dry it only says whether it could be done.
func (h *Head) changeNodes(dry bool, change func(*spool.NodeList) (*spool.NodeList, error)) (changed bool, err error) {
	h.door.file.Lock()
	defer h.door.file.Unlock()
	before, err := readNodes(h.spool)
	if err != nil {
		return false, err
	}
	after, err := change(before)
	if err != nil || dry {
		return after != before, err
	}
	if err := h.store.WriteNodes(after); err != nil { // also as it was: nobody knows whether that is durable
		return false, fmt.Errorf("the list of nodes cannot be written: %w", err)
	}
	h.door.put(after)
	return after != before, nil
}
