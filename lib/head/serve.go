package head

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched"
	"distribute/lib/timing"
	"distribute/spool"
)

// Open opens the spool in dir, takes its lock, and reads what is open. The error has the exit
// status of dsched (dsched(8)).
func Open(dir string, log *slog.Logger) (*Head, error) {
	s, err := spool.Open(dir)
	if err != nil {
		return nil, spoolError(err)
	}
	settings, err := readSettings(s.SettingsFile())
	if err != nil {
		return nil, cli.Errorf(cli.Input, "%w", err)
	}
	list, err := readNodes(s)
	if err != nil {
		return nil, err
	}
	store, err := s.Lock()
	if err != nil {
		return nil, spoolError(err)
	}
	h := &Head{spool: s, store: store, log: log, uid: os.Getuid(), door: newDoor(list), clock: clock{lastWake: time.Now()}, wall: time.Now,
		in: make(chan func(), maxBatchN), batches: map[uint32]*batch{}, byID: map[job.BatchID]uint32{},
		ticks: ticks{committed: make(chan error, 1), placed: make(chan error, 1), stocked: make(chan error, 1), compacted: make(chan compacted, 1)},
		nodes: nodes{sessions: map[uint64]*session{}, byName: map[node.Name]uint64{}, joins: map[job.Token]*session{},
			homes: map[node.Name]home{}, copies: map[node.Name]node.Name{}, aside: map[node.Name]bool{}, removed: map[node.Name]bool{}, byLine: map[node.Name]bool{}},
		tools: tools{watchers: map[*watcher]bool{}, users: map[int]*user{}, most: shareOf(files()), rest: maxRest, reading: newQuota(maxReading), pulling: newQuota(maxPulling)},
		transfers: transfers{room: newRoom(s.Space, settings.Reserve), staging: holds{of: map[job.Token][]func(){}},
			sealing: semaphore.NewWeighted(maxSeals), small: newQueue[*grant](math.MaxInt), copying: map[buildOf]*logCopy{}},
		sweeper: newSweeper(), desks: desks{away: map[node.Name]away{}},
	}
	h.over, h.stop = context.WithCancel(context.Background())
	h.machine = sched.New(sched.Config{Lease: settings.Lease, Clock: h.clockTime, Takes: h.takes})
	h.apply(sched.Counted{Site: settings.Counted})
	h.apply(sched.Preferred{ForAll: settings.ForAll})
	h.set.Store(&settings)
	h.proven = func(c net.Conn) (dial.Peer, error) { return dial.ProvenAs(c, h.nameOfUser) }
	h.names.Ask, h.names.For, h.names.Passing = nameOf, nameFor, named.passing
	h.tools.operators.Ask, h.tools.operators.For, h.tools.operators.Passing = numberOf, operatorFor, numbered.passing
	h.tools.table.read = s.ReadTable
	h.transfers.room.makes = h.dropUploads
	return h, h.load()
}

// spoolError gives an error of opening a spool its exit status.
func spoolError(err error) error {
	switch {
	case errors.Is(err, spool.ErrLocked):
		return cli.Errorf(cli.Later, "%w", err)
	case errors.Is(err, spool.ErrNoSpool), errors.Is(err, spool.ErrFormat), errors.Is(err, spool.ErrNetwork):
		return cli.Errorf(cli.Input, "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return cli.Errorf(cli.NotAllowed, "%w", err)
	}
	return err
}

// logProblems tells of what was found wrong in the spool. What a crash tears is
// no damage: nobody was told of it.
func (h *Head) logProblems(problems []*spool.Problem) {
	for _, p := range problems {
		if p.Torn {
			h.log.Warn("a crash left an unfinished last line in a log", "problem", p.Error())
		} else {
			h.log.Error("spool damaged", "problem", p.Error())
		}
	}
}

// load reads the logs of what is open.
func (h *Head) load() error {
	open, problems, err := h.store.Load()
	if err != nil {
		return err
	}
	h.logProblems(problems)
	for _, b := range open {
		if _, err := h.open(b, false); err != nil {
			h.log.Error("batch not opened", "batch", string(b.ID), "why", err)
			h.unread = append(h.unread, b.ID)
		}
	}
	for _, p := range problems {
		if p.Batch != "" && h.byID[p.Batch] == 0 && !h.store.Closed(p.Batch) {
			h.unread = append(h.unread, p.Batch)
		}
	}
	h.store.Drained(func(name, by string) { h.apply(sched.Drain{Node: node.Name(name), By: by}) })
	h.store.NodeStates(func(name, state string, since uint64, machine string, session uint64) {
		h.apply(sched.HadState{Node: node.Name(name), State: state, Since: since})
		h.nodes.homes[node.Name(name)] = home{state: state, machine: machine, session: session}
	})
	h.apply(sched.Loaded{})
	h.log.Info("loaded", "spool", h.spool.Dir(), "open", len(h.batches))
	return nil
}

// Serve listens on the socket of the spool and at some addresses, those of head.yaml if
// none are given, until ctx ends or the state does. It calls up when it listens everywhere.
// With insecure, plain TCP is served beyond this machine.
func (h *Head) Serve(ctx context.Context, addrs []string, insecure bool, up func()) error {
	if len(addrs) == 0 {
		addrs = h.settings().Listen
	}
	h.terms.Insecure = insecure
	return h.serve(ctx, append([]string{"unix:" + h.spool.Socket()}, addrs...), up)
}

func (h *Head) serve(ctx context.Context, addrs []string, up func()) error {
	var err error
	if h.terms.Key, err = h.ownKey(addrs); err != nil {
		return err
	}
	if key := h.terms.Key.Fingerprint(); key != "" {
		h.log.Info("nodes know the head by its key", "fingerprint", key)
	}
	var ls []net.Listener
	for _, a := range addrs {
		l, err := h.terms.Listen(a)
		if err != nil {
			for _, l := range ls {
				l.Close()
			}
			return cli.Errorf(listenStatus(err), "cannot listen on %q: %w", a, err)
		}
		if dial.Absent(l.Addr()) {
			h.log.Warn("no interface of this machine has this address now", "address", a)
		}
		if dial.Exposed(a) {
			h.log.Warn("plain TCP beyond this machine: anybody who reaches this address can act as a node, and read and forge results", "address", a)
		}
		h.log.Info("listening", "address", l.Addr().Network()+"://"+l.Addr().String())
		ls = append(ls, l)
	}
	watch := func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() { h.takeIncoming(ctx) })
		all.Go(func() { h.watchNodes(ctx) })
		all.Go(func() { h.reach(ctx) })
		all.Go(func() { h.watchSettings(ctx) })
		all.Go(func() { h.watchSocket(ctx, &all) })
		all.Wait()
	}
	return h.serveOn(ctx, ls, watch, up)
}

// socketEvery is how soon the socket of the spool is there again that somebody removed, or follows
// the mode of the spool.
const socketEvery = 2 * time.Second

// watchSocket listens again where the socket was removed, or all of run/, without which nobody
// on this machine finds the head.
func (h *Head) watchSocket(ctx context.Context, all *sync.WaitGroup) {
	path, told := h.spool.Socket(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(timing.Wait(socketEvery)):
		}
		info, err := os.Lstat(path)
		if mode := dial.SocketMode(path); err == nil && info.Mode().Type() == fs.ModeSocket && info.Mode().Perm() != mode {
			h.log.Info("the mode of the spool is another: so is that of the socket", "socket", path, "mode", fmt.Sprintf("%04o", mode))
			if err := os.Chmod(path, mode); err != nil {
				h.log.Error("cannot change the mode of the socket", "why", err)
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err = h.store.RemakeRun()
		var l net.Listener
		if err == nil {
			l, err = h.terms.Listen("unix:" + path)
		}
		if err != nil {
			if !told {
				h.log.Error("the socket was removed; cannot make it again", "socket", path, "why", err)
			}
			told = true
			continue
		}
		told = false
		h.log.Warn("the socket was removed; made again", "socket", path)
		context.AfterFunc(ctx, func() { l.Close() })
		all.Go(func() { h.listen(ctx, l) })
	}
}

// listenStatus is the exit status for an address that cannot be listened on: what
// will pass is worth a restart.
func listenStatus(err error) int {
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) || errors.Is(err, syscall.EADDRINUSE) {
		return cli.Later
	}
	return cli.Input
}

// serveOn is serve with listeners that are there, which it closes, and with who
// watches the spool for what people put there. A simulation brings its own of both.
func (h *Head) serveOn(ctx context.Context, ls []net.Listener, watch func(context.Context), up func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var listeners sync.WaitGroup
	for _, l := range ls {
		context.AfterFunc(ctx, func() { l.Close() })
		listeners.Go(func() { h.listen(ctx, l) })
	}
	listeners.Go(func() { watch(ctx) })
	listeners.Go(func() { h.sweeper.run(ctx, h) })
	listeners.Go(func() { h.checkOperators(ctx) })
	up()
	err := h.run(ctx)
	stop()
	listeners.Wait()
	return errors.Join(err, h.store.Close())
}
