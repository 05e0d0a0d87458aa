package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"distribute/lib/account"
	"distribute/lib/inventory"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/timing"
)

// A reread is what reads the node's file again whenever a SIGHUP asks for it.
type reread struct {
	file   *inventory.File // that counts
	args   []string
	dir    string
	source *inventory.Source
	log    *slog.Logger
	asked  chan os.Signal         // SIGHUP
	parts  []*inventory.Inventory // of what was said last; of the goroutine that watches
}

// cardsAgain is how often the vendor's program is asked for the GPUs again after it failed.
var cardsAgain = timing.Wait(time.Minute)

// watch tells each node of the machine how it changes from now on.
func (r *reread) watch(ctx context.Context, nodes []chan noded.Given) {
	go func() {
		defer signal.Stop(r.asked)
		for {
			var again <-chan time.Time
			if r.source.Cards().Failed() {
				again = time.After(cardsAgain)
			}
			var g *noded.Given
			select {
			case <-r.asked:
				g = r.again(ctx)
			case <-again:
				if list, _ := r.source.Cards().List(ctx); !r.source.Cards().Failed() {
					r.log.Info("the GPUs of this machine are known now", "gpus", len(list))
					var err error
					if g, err = r.change(ctx, r.file); err != nil {
						r.log.Error("cannot offer the GPUs; they are asked for again at a SIGHUP", "why", err)
					}
				}
			case <-ctx.Done():
				return
			}
			if g == nil {
				continue
			}
			for i, to := range nodes {
				select {
				case to <- *r.of(g, i):
				case <-ctx.Done():
					return
				}
			}
		}
	}()
}

// of is what of g is for a node of the machine: its part, where there are several.
func (r *reread) of(g *noded.Given, i int) *noded.Given {
	if len(r.parts) == 0 {
		return g
	}
	part, p := *g, r.parts[i]
	part.Offer, part.Most, part.Caps = p.Offer, p.Most, capsOf(g.Caps, len(r.parts))
	return &part
}

// kept is logged when the node's file, or what is found of the machine by it, cannot be used.
const kept = "cannot read the changed node's file; the previous settings stay in use"

// again reads the file, and says what changes with it; nil if nothing does. With a
// mistake in it the previous settings stay in use.
func (r *reread) again(ctx context.Context) *noded.Given {
	f, err := readFile(r.dir, r.args)
	if err != nil {
		r.log.Error(kept, "why", err)
		return nil
	}
	r.staying(f)
	g, err := r.change(ctx, f)
	if err != nil {
		r.log.Error(kept, "why", err)
	} else {
		r.log.Info("node's file reread", "cpus", g.Offer.CPUs, "memory", g.Offer.Memory, "gpus", len(g.Offer.GPUs), "capabilities", len(g.Offer.Capabilities))
	}
	return g
}

// change looks at the machine again, and returns what changes with that and with the file.
func (r *reread) change(ctx context.Context, f *inventory.File) (*noded.Given, error) {
	in, err := take(ctx, r.source, f, r.dir)
	if err != nil {
		return nil, err
	}
	g := &noded.Given{Offer: in.Offer, Most: in.Most, Measured: f.Measured, Caps: &in.caps, Presence: presenceConfig(f)}
	if os.Geteuid() == 0 && f.RunAs != "" {
		rule := ruleOf(f)
		if err := people(ctx, f, r.log); err != nil {
			return nil, err
		}
		g.As = rule.As
	} else if os.Geteuid() == 0 {
		g.As = onlyOf(0, account.Name)
	}
	g.Pausers, g.Ports = pausers(ctx, f, r.log), f.Ports
	in.tellLacks(r.log)
	r.file, r.parts = f, in.parts
	return g, nil
}

// staying puts back in f what counts only from the next start, and says so.
func (r *reread) staying(f *inventory.File) {
	for _, k := range []struct {
		key       string
		was, says *string
	}{
		{"name", (*string)(&r.file.Name), (*string)(&f.Name)},
		{"head", &r.file.Head, &f.Head},
		{"head_key", (*string)(&r.file.HeadKey), (*string)(&f.HeadKey)},
		{"run_as", &r.file.RunAs, &f.RunAs},
	} {
		if *k.was != *k.says {
			r.log.Warn("a changed setting in the node's file takes effect when dnoded is restarted", "key", k.key, "counts", *k.was, "says", *k.says)
			*k.says = *k.was
		}
	}
	if !r.file.SameNodes(f) {
		r.log.Warn("a changed setting in the node's file takes effect when dnoded is restarted", "key", "nodes")
		f.Nodes = r.file.Nodes
	}
	if f.RunAs != node.Submitter {
		f.Users = nil
	} else if f.Users == nil {
		f.Users = r.file.Users
	}
}

// pausers is who may pause the node, nil if everybody may. Who cannot be found now
// may not until the file is read again.
func pausers(ctx context.Context, f *inventory.File, log *slog.Logger) []int {
	if f.Owners == nil {
		return nil
	}
	uids, err := account.UIDs(ctx, f.Owners)
	if err != nil {
		log.Warn("unknown owner in the node's file: cannot pause the node until known and SIGHUP", "why", err)
	}
	return append([]int{}, uids...)
}
