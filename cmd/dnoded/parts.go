package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/dial"
	"distribute/lib/inventory"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/pause"
	"distribute/lib/proc"
)

// A machine is one that is several nodes by its file. Each has a directory below that
// of the machine, with a key, attempts, and a cache of its own, and a session with the
// head; of the machine they share the pauses, and the end.
type machine struct {
	c        *cli.Cmd
	all      noded.Settings // of the machine as a whole
	file     *inventory.File
	head     string // that the option or the file names
	insecure bool
	parts    []*inventory.Inventory
	changes  []chan noded.Given // of each node
}

// serve is the life of all nodes of the machine: until ctx ends, or the first of them
// cannot go on.
func (m *machine) serve(ctx context.Context) error {
	boot, err := proc.Boot()
	if err != nil {
		return err
	}
	open := desk.Open
	if m.file.RunAs != "" {
		open = desk.OpenPassable
	}
	whole, err := open(m.all.Dir, boot) // so that no other dnoded is the machine
	if err != nil {
		return err
	}
	defer whole.Close()
	tellLeft(m.all.Log, m.all.Dir, m.parts)
	settings, err := m.settings(whole.Dir())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var up atomic.Int64
	var nodes sync.WaitGroup
	ended := make([]error, len(settings))
	for i := range settings {
		s := &settings[i]
		s.Up = func() {
			if up.Add(1) == int64(len(settings)) {
				m.c.Ready(s.Log)
			}
		}
		nodes.Go(func() {
			defer stop()
			ended[i] = m.one(ctx, s)
		})
	}
	nodes.Wait()
	return errors.Join(ended...)
}

// one is the life of one node.
func (m *machine) one(ctx context.Context, s *noded.Settings) (err error) {
	if s.Addr, s.Terms, err = theHead(m.c, m.head, m.insecure, m.file, s.Dir); err != nil {
		return err
	}
	if strings.HasPrefix(s.Addr, "ssh://") {
		return cli.Errorf(cli.Input, "a machine that is several nodes dials a head over TLS, or one on this machine: not %q", s.Addr)
	}
	if dial.Exposed(s.Addr) {
		s.Log.Warn("plain TCP beyond this machine: whoever answers at this address, or sits between, can run anything here", "head", s.Addr)
	}
	if err := runAs(ctx, s, m.file, dial.Local(s.Addr) || m.insecure, os.Geteuid()); err != nil {
		return err
	}
	return noded.Run(ctx, *s)
}

// tellLeft logs which nodes this machine is no more by its file, and of which something runs in
// their directories: nobody counts that, and nobody takes what it leaves. The caller has the lock
// of the machine's directory: what runs beside another daemon is that daemon's.
func tellLeft(log *slog.Logger, dir string, parts []*inventory.Inventory) {
	var all []string
	nodes, _ := os.ReadDir(filepath.Join(dir, pause.Parts))
	for _, d := range nodes {
		if !slices.ContainsFunc(parts, func(p *inventory.Inventory) bool { return string(p.Name) == d.Name() }) {
			all = append(all, filepath.Join(dir, pause.Parts, d.Name()))
		}
	}
	if len(parts) > 0 {
		all = append(all, dir)
	}
	for _, d := range all {
		running := 0
		for _, in := range []string{"attempts", "builds"} {
			orders, _ := os.ReadDir(filepath.Join(d, in))
			for _, o := range orders {
				if alive, err := proc.Alive(filepath.Join(d, in, o.Name())); err == nil && alive {
					running++
				}
			}
		}
		if running > 0 {
			log.Warn("jobs of a node that this machine is no more run on, uncounted; they come home when it is in the node's file again", "dir", d, "running", running)
		}
	}
}

// capsOf is what a node may use of the disk, when a machine of so many may use so much.
func capsOf(of *desk.Caps, nodes int) *desk.Caps {
	caps := *of
	caps.Cache /= int64(nodes)
	return &caps
}

// settings is what each node of the machine is started with: its part of all, and cpus
// of its own, if the machine has as many as it offers.
func (m *machine) settings(dir string) (all []noded.Settings, err error) {
	var cpus []int
	var offers []pause.Give
	var names []node.Name
	left := len(proc.CPUs())
	for _, p := range m.parts {
		cpus, left = append(cpus, p.Offer.CPUs), left-p.Offer.CPUs
		offers = append(offers, pause.Give{CPUs: p.Offer.CPUs, Memory: p.Offer.Memory})
		names = append(names, p.Name)
	}
	cores := make([][]int, len(m.parts)) // all, if they offer more than there are
	if left >= 0 {
		cores = noded.Deal(proc.CPUs(), cpus)
	}
	beside := noded.NewBeside(names, dir)
	for i, p := range m.parts {
		s := m.all
		s.Part = &pause.Part{Of: offers, Index: i, Same: left < 0}
		s.Name, s.Offer, s.Most, s.Cores, s.Nodes = p.Name, p.Offer, p.Most, cores[i], len(m.parts)
		s.Log = m.all.Log.With("node", string(p.Name))
		if s.Dir, err = partDir(dir, p.Name); err != nil {
			return nil, err
		}
		s.Beside = beside
		s.Caps, s.Changes = capsOf(m.all.Caps, len(m.parts)), m.changes[i]
		if err := m.key(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// key makes the key of a node that has none, if the head wants one, and says what the
// head's operators are to accept.
func (m *machine) key(s *noded.Settings) error {
	if addr, err := dial.Head(m.c.Getenv, m.head); err != nil || !strings.HasPrefix(addr, "tls://") {
		return err
	}
	k, err := dial.NewKey(keyFile(s.Dir))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		s.Log.Info("the node has a key now; on the head: dadm accept " + string(s.Name) + " " + string(k.Fingerprint()))
	}
	return err
}

// partDir is the directory of a node of a machine, which it makes if it is not there,
// so that others come through it to the place of pauses.
func partDir(dir string, name node.Name) (string, error) {
	dir = filepath.Join(dir, pause.Parts)
	for _, d := range []string{dir, filepath.Join(dir, string(name))} {
		err := os.Mkdir(d, 0o711)
		if err == nil {
			err = os.Chmod(d, 0o711) // whatever the umask says
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return filepath.Join(dir, string(name)), nil
}
