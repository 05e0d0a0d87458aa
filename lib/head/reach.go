package head

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"distribute/lib/dial"
	"distribute/lib/node"
)

// slowestReach is the longest time between two tries to reach a desk, and how
// long one has to have been there for the next try to be soon.
const slowestReach = time.Minute

// The desks that the head dials: those of the list of nodes with an address.
type desks struct {
	mu   sync.Mutex // guards away
	away map[node.Name]away
}

// An away is why the head does not reach a desk.
type away struct {
	why   string
	again time.Time // when it is tried next
}

// reachNote says why a node is not there that the head is to reach, "" if it is,
// or is none of those. It is of the state's goroutine.
func (h *Head) reachNote(name node.Name) string {
	if h.nodes.sessions[h.nodes.byName[name]] != nil {
		return ""
	}
	h.desks.mu.Lock()
	defer h.desks.mu.Unlock()
	a, ok := h.desks.away[name]
	switch {
	case !ok:
		return ""
	case a.why == "":
		return "being reached over ssh"
	}
	return fmt.Sprintf("%s; again at %s", a.why, a.again.Local().Format(time.TimeOnly))
}

func (d *desks) put(name node.Name, a away) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away[name] = a
}

func (d *desks) drop(name node.Name) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.away, name)
}

// reach keeps the desks reached that the list of nodes names, until ctx ends.
func (h *Head) reach(ctx context.Context) {
	type kept struct {
		addr string
		end  context.CancelFunc
	}
	now, ended := map[node.Name]kept{}, map[node.Name]chan struct{}{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		list, changed := h.door.nodes()
		for name, k := range now {
			if l, _ := list.Named(name); l.Addr != k.addr {
				k.end()
				delete(now, name)
			}
		}
		for _, l := range list.Lines() {
			if _, there := now[l.Node]; there || l.Addr == "" {
				continue
			}
			one, end := context.WithCancel(ctx)
			now[l.Node] = kept{l.Addr, end}
			before, done := ended[l.Node], make(chan struct{})
			ended[l.Node] = done
			all.Go(func() {
				defer close(done)
				defer end()
				if before != nil { // which removes the directory that both have
					<-before
				}
				h.keepReached(one, l.Node, l.Addr)
			})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// keepReached has dnoded run at a desk until ctx ends: again a second after it
// has ended, and later each time that it does not come to be one.
func (h *Head) keepReached(ctx context.Context, name node.Name, addr string) {
	defer h.desks.drop(name)
	log := h.log.With("node", string(name), "desk", addr)
	said := ""
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, slowestReach) {
		h.desks.put(name, away{})
		began := time.Now()
		err := h.reachOnce(ctx, name, addr)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > slowestReach {
			wait, said = time.Second, ""
		}
		if text := err.Error(); text != said {
			log.Warn("cannot reach a desk; jobs that run there go on", "why", text)
			said = text
		}
		pause := wait - time.Duration(rand.Int64N(int64(wait)/4+1))
		h.desks.put(name, away{err.Error(), time.Now().Add(pause)})
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// reachOnce is one dnoded at a desk, until it ends. The socket to which its
// streams come is of that desk alone.
func (h *Head) reachOnce(ctx context.Context, name node.Name, addr string) error {
	options, err := dial.OwnSSH(filepath.Join(h.spool.Dir(), "keys"))
	if err != nil {
		return err
	}
	if err := h.store.RemakeRun(); err != nil {
		return err
	}
	dir := h.spool.DeskDir(string(name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "head")
	l, err := dial.Listen("unix:" + socket)
	if err != nil {
		return err
	}
	defer l.Close()
	terms := dial.Terms{SSH: options, Control: filepath.Join(dir, "ssh")}
	over, end, err := terms.Reach(ctx, addr, string(name), socket)
	if err != nil {
		return err
	}
	defer end()
	return h.serveDesk(ctx, l, over, dial.Peer{UID: -1, Node: string(name), Local: dial.Local(addr), Addr: addr, From: addr})
}
