package head

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"
	"time"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/timing"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// settings is what head.yaml says.
type settings struct {
	Keep       time.Duration       // how long a closed batch keeps its inputs, if it does not say so itself and not all of it is done
	Lease      time.Duration       // how long a silent node keeps its jobs; 0: 15 minutes
	Listen     []string            // besides the socket
	Patience   *time.Duration      // how long a node's jobs wait for the end of a pause; nil: as long as it takes
	Operators  []string            // who may change everybody's batches
	Namespaces map[string][]string // whose each is of which that is said: users, and groups as @group
	ForAll     bool                // a priority counts beside the batches of others, whoever has set it
	Counted    job.Counts          // of what is counted by a name, over all nodes
	Reserve    int64               // bytes of the disk left to others; less than 0: by the size of the file system
}

// readSettings reads head.yaml; one that is missing says nothing. The error
// holds every mistake.
func readSettings(name string) (settings, error) {
	patience := 4 * time.Hour
	s := settings{Reserve: -1, Keep: 30 * 24 * time.Hour, Patience: &patience}
	data, err := conf.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if conf.Blank(data) {
		return s, nil
	}
	doc, err := conf.Parse(name, data)
	if err != nil {
		return s, err
	}
	m := doc.Root().Map(conf.Keys{Known: []string{"counted", "keep", "lease", "listen", "namespaces", "operators", "patience", "priority", "reserve"}})
	if n := m.Get("keep"); !n.Absent() {
		if s.Keep, err = unit.WrittenDuration(n.Text()); err != nil {
			n.Errorf("%w", err)
		}
	}
	if n := m.Get("lease"); !n.Absent() {
		s.Lease, err = unit.WrittenDuration(n.Text())
		if err == nil && s.Lease < time.Minute {
			err = errors.New("a lease is at least 1m: nodes are heard from every 15 seconds")
		}
		s.Lease = timing.Wait(s.Lease)
		if err != nil {
			n.Errorf("%w", err)
		}
	}
	if n := m.Get("patience"); !n.Absent() {
		if n.Text() == "never" {
			s.Patience = nil
		} else if patience, err = unit.WrittenDuration(n.Text()); err != nil {
			n.Errorf("%w", err)
		}
	}
	if n := m.Get("priority"); !n.Absent() {
		switch s.ForAll = n.Text() == "all"; {
		case !s.ForAll && n.Text() != "own":
			n.Errorf("write own, for the order of each user's own jobs, or all")
		}
	}
	if n := m.Get("reserve"); !n.Absent() {
		if s.Reserve, err = unit.WrittenBytes(n.Text()); err != nil {
			n.Errorf("%w", err)
		}
	}
	s.Counted = counted(m.Get("counted"))
	s.Listen = m.Get("listen").Texts("write a list: ['tls://']")
	s.Namespaces = namespaces(m.Get("namespaces"))
	s.Operators = m.Get("operators").Texts("write a list of user names: [ana, okafor]")
	return s, doc.Err()
}

// settings is what head.yaml says now. It is not changed.
func (h *Head) settings() *settings { return h.set.Load() }

// watchSettings reads head.yaml again whenever a SIGHUP asks for it.
func (h *Head) watchSettings(ctx context.Context) {
	asked := h.Hangup
	if asked == nil {
		asked = make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGHUP)
	}
	defer signal.Stop(asked)
	for {
		select {
		case <-asked:
			h.rereadSettings(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// rereadSettings makes what head.yaml says now count, but for the addresses.
// With a mistake in it the previous settings stay in use.
func (h *Head) rereadSettings(ctx context.Context) {
	s, err := readSettings(h.spool.SettingsFile())
	if err != nil {
		h.log.Error("cannot read the changed head.yaml; the previous settings stay in use", "why", err)
		return
	}
	before := h.settings()
	if !slices.Equal(s.Listen, before.Listen) {
		h.log.Warn("changed listen of head.yaml takes effect when dsched is restarted", "listens", before.Listen, "says", s.Listen)
		s.Listen = before.Listen
	}
	h.set.Store(&s)
	h.transfers.room.reserve.Store(s.Reserve)
	var old []*wire.Conn
	patience := !reflect.DeepEqual(s.Patience, before.Patience)
	h.do(func() {
		h.apply(sched.Leased{For: s.Lease})
		h.apply(sched.Counted{Site: s.Counted})
		h.apply(sched.Preferred{ForAll: s.ForAll})
		for _, n := range h.nodes.joins {
			if patience && !n.name.Abroad() {
				old = append(old, n.conn)
			}
		}
	})
	for _, c := range old { // they hear of it when they come again
		c.Close()
	}
	h.log.Info("head.yaml reread")
	h.checkOperators(ctx)
}

// counted reads how much there is of what is counted by its name.
func counted(n conf.Node) job.Counts {
	c, _ := job.CountsOf(n.Amounts(job.CheckCount, job.MaxCount, job.MaxCounts)) // which has checked it
	return c
}
