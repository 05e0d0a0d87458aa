// Package lab is a head and a node of one process, on a spool of their own that is
// removed with them: what a batch becomes there is what it becomes on a head with one
// node. Jobs end with the process, however that ends.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/head"
	"distribute/lib/inventory"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/proc"
	"distribute/lib/sched"
	"distribute/lib/unit"
	"distribute/lib/wire"
	"distribute/spool"
)

// A Lab is a head and a node.
type Lab struct {
	Spool string          // also the address of the head
	Node  string          // the node's directory
	Over  context.Context // ends with the head or the node; its cause is why
	Done  chan struct{}   // is closed when nothing of the batch, which there is one of, is on the node

	c    *cli.Cmd
	dir  string // on whose disk it is
	lack string // why GPUs of this machine are not offered; "" if all are
	here noded.Settings
	end  context.CancelCauseFunc
	both sync.WaitGroup
}

// New looks at this machine, which has some capabilities besides those found. Dir is where
// the lab will be, or where a directory for that will be made.
func New(ctx context.Context, c *cli.Cmd, dir string, capabilities []string) (*Lab, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	source := inventory.Here(os.LookupEnv, len(proc.CPUs()))
	in, err := source.Take(ctx, &inventory.File{Capabilities: capabilities, Keep: inventory.Keep{NoMemory: true}})
	if err != nil {
		return nil, err
	}
	caps, err := desk.DefaultCaps(dir)
	if err != nil {
		return nil, err
	}
	space, err := desk.SpaceAt(dir)
	if err != nil {
		return nil, err
	}
	in.Offer.Disk = max(0, space.Free-caps.Reserve)
	l := &Lab{Done: make(chan struct{}), c: c, dir: dir, here: noded.Settings{
		Name: in.Name, Offer: in.Offer, Most: in.Most, Caps: &caps, CardUsers: source.Cards().Users,
		Path: c.Getenv("PATH"), Log: slog.New(slog.DiscardHandler),
	}}
	for _, f := range in.Lacks {
		if f.What == "gpu" || f.Value == "GPUs" {
			l.lack = cmp.Or(l.lack, f.Why)
		}
	}
	if in.NameErr != nil {
		l.here.Name = "here"
	}
	if c.Given("v") {
		l.here.Log = c.Log(false)
	}
	for _, k := range []string{"PATH", "HOME", "LANG", "USER"} {
		if v := c.Getenv(k); v != "" {
			l.here.Env = append(l.here.Env, k+"="+v)
		}
	}
	return l, nil
}

// NoRoom returns the error that jobs cannot begin for want of room on the lab's disk, and why.
func (l *Lab) NoRoom(why string) error {
	return cli.Errorf(cli.IO, "the disk of %s has too little room: %s (%s): remove something there, or name a directory on another disk with -o",
		l.dir, why, unit.FormatBytes(l.here.Caps.Reserve)+" are reserved for others")
}

// Fits says which jobs of a batch could never run here. A head does not say so in its first
// minute, since there may be other nodes.
func (l *Lab) Fits(b *job.Batch) error {
	if has := l.here.Offer.Disk; has < noded.LeastRoom {
		return l.NoRoom(fmt.Sprintf("a job needs %s, and %s are free", unit.FormatBytes(noded.LeastRoom), unit.FormatBytes(has)))
	}
	m := sched.New(sched.Config{})
	m.Apply(sched.Loaded{}, 0)
	m.Apply(sched.NodeUp{Session: 1, Node: l.here.Name, Boot: "-", State: "-", Offer: l.here.Offer.Bounded()}, time.Hour)
	var unfit []error
	for i := range b.Jobs {
		j, asked := &b.Jobs[i], b.Spec.Resources
		if j.Resources != nil {
			asked = *j.Resources
		}
		if why := m.Impossible(&b.Spec, sched.AskOf(asked, j.Capabilities)); why != "" && len(unfit) < maxTold {
			if l.lack != "" && strings.Contains(why, "gpu") {
				why += " (" + l.lack + ")"
			}
			unfit = append(unfit, cli.Errorf(cli.Input, "%s cannot run here: %s", b.ID().Job(j.Name), why))
		}
	}
	return errors.Join(unfit...)
}

// maxTold is of how many jobs it is told that they cannot run.
const maxTold = 10

// Start starts the head and the node below dir, which is there and empty, and returns when
// the head knows the node. If kept is not nil the directories in which jobs have run stay,
// and it is called with each run before it begins. It tells if the machine is paused. Ctx
// ends the start, and not the lab, which is to be closed also after an error.
func (l *Lab) Start(ctx context.Context, dir string, kept func(*proc.Order)) error {
	l.Spool, l.Node = filepath.Join(dir, "spool"), filepath.Join(dir, "node")
	l.Over, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	err := spool.Init(l.Spool, spool.Private)
	if errors.Is(err, spool.ErrNetwork) {
		if l.Spool, err = os.MkdirTemp("", "drun-"); err == nil {
			err = spool.Init(l.Spool, spool.Private)
		}
	}
	if err != nil {
		return err
	}
	h, err := head.Open(l.Spool, l.here.Log)
	if err != nil {
		return err
	}
	h.Closed = sync.OnceFunc(func() { close(l.Done) })
	up := make(chan struct{})
	l.both.Go(func() { l.end(h.Serve(l.Over, nil, false, func() { close(up) })) })
	select {
	case <-up:
	case <-l.Over.Done():
		return context.Cause(l.Over)
	}
	l.here.Addr, l.here.Dir, l.here.Keep = l.Spool, l.Node, kept != nil
	l.here.Ordered = func(o *proc.Order) {
		if o.Tied = true; kept != nil {
			kept(o)
		}
	}
	l.both.Go(func() { l.end(noded.Run(l.Over, l.here)) })
	return l.awaitNode(ctx)
}

// awaitNode waits until the head knows the node.
func (l *Lab) awaitNode(ctx context.Context) error {
	h, err := ask.Dial(ctx, l.c, l.Spool)
	if err != nil {
		return err
	}
	defer h.Close()
	for there := false; !there; {
		select {
		case <-time.After(time.Millisecond):
		case <-l.Over.Done():
			return context.Cause(l.Over)
		}
		err := ask.Rows(ctx, h, wire.Query{Of: "nodes"}, &ask.Operands{}, func(n *node.Row) error {
			if there = true; n.State == node.Paused {
				l.c.Talk("this machine is paused, and nothing runs until that ends: %s", n.Note)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// End ends the lab, because of why. Jobs that run are stopped, and not waited for.
func (l *Lab) End(why error) { l.end(why) }

// Close ends the lab, and removes it unless it is to be kept.
func (l *Lab) Close(keep bool) error {
	l.end(nil)
	l.both.Wait()
	if group, _, err := proc.WouldContain(string(l.here.Name), l.Node); err == nil {
		os.Remove(group) // it is empty, or somebody else's
	}
	if keep {
		return nil
	}
	return errors.Join(desk.RemoveAll(l.Spool), desk.RemoveAll(l.Node))
}
