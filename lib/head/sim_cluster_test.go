package head

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/wire"
)

// hpc is the cluster to which people take jobs.
var hpc = node.Abroad("hpc")

// claims takes jobs of a batch to the cluster, in the person's folder.
func (p *person) claims(h *ask.Head, b *simBatch, id job.ID) error {
	args, ids := []string{string(id)}, []job.ID{id}
	if p.r.IntN(3) == 0 {
		args, ids = []string{string(b.id)}, p.idsOf(b.id)
	}
	if p.folder == "" {
		p.folder = job.NewToken()
	}
	p.free("release", ids) // a job that is held goes there, too
	p.w.act("%s asks to take %s to the cluster", p.name, args)
	return h.Claim(p.w.ctx, string(hpc), p.folder, &ask.Operands{Args: args}, func(c *wire.Claimed) error {
		p.w.act("%s is told that %s is there, by %s", p.name, c.Job, c.Attempt)
		if c.Job.Batch() != b.id {
			p.w.wrong("a claim of %s took %s there", args, c.Job)
		}
		return nil
	})
}

// bring brings home what has become of jobs on the cluster: all, or some. It reports
// whether there was none.
func (p *person) bring(all bool) (none bool, err error) {
	var there []wire.Claimed
	err = p.once(func(h *ask.Head) error {
		return h.Claims(p.w.ctx, string(hpc), p.folder, func(c *wire.Claimed) error {
			there = append(there, *c)
			return nil
		})
	})
	if err != nil || len(there) == 0 {
		return err == nil, err
	}
	var ran []*noded.Ran
	for _, c := range there {
		one := &noded.Ran{Attempt: c.Attempt, Over: func(bool) {}}
		switch x := p.r.IntN(8); {
		case c.Void:
			one.Result = &job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "nobody wants it any more"}}
		case x < 2 && !all: // it waits, or runs
			if x == 0 {
				continue
			}
		case x == 2 && !c.Ended:
			one.Result = &job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "given back from the cluster"}}
		default:
			if one.Result, one.Left, err = p.w.ranAbroad(c); err != nil {
				return false, err
			}
		}
		ran = append(ran, one)
	}
	p.w.act("%s brings back %d of %d from the cluster", p.name, len(ran), len(there))
	err = noded.Tell(p.w.ctx, noded.Settings{Addr: "sim://head", Name: hpc, Uptime: p.w.at, Dial: p.w.dialer(p.own, p.peer()), Log: p.w.logger(p.name)}, ran)
	refusal := (*wire.Error)(nil)
	if errors.As(err, &refusal) && refusal.Status != cli.Later && !strings.Contains(refusal.Text, "just now") {
		p.w.wrong("%s cannot bring back what was on the cluster: %v", p.name, err)
	}
	return false, err
}

// ranAbroad makes what an attempt has left on the cluster, the same each time.
func (w *world) ranAbroad(c wire.Claimed) (*job.Result, *noded.Left, error) {
	w.mu.Lock()
	r := w.runs[c.Attempt]
	if r == nil {
		r = &simRun{token: c.Attempt, job: c.Job, text: fmt.Sprintf("%s %s hpc\n", c.Job, c.Attempt),
			more: strings.Repeat(string(c.Attempt), w.large(w.r.IntN(200))), at: w.path(), abroad: true, over: true, ok: w.r.IntN(4) > 0, excused: true}
		w.runs[c.Attempt] = r
	}
	w.mu.Unlock()
	exit := 0
	if !r.ok {
		exit = 1
	}
	dir := filepath.Join(w.base, "hpc", string(c.Attempt))
	err := os.MkdirAll(dir+"/work", 0o700)
	for name, text := range map[string]string{"output.txt": r.text, "work/result.txt": r.text} {
		if _, serr := os.Stat(dir + "/" + name); serr != nil {
			err = errors.Join(err, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
		}
	}
	err = errors.Join(err, writeAt(dir+"/work", r.at, r.more))
	started := time.Now().Add(-time.Minute).UTC()
	left := &noded.Left{Job: c.Job.Name(), Open: func() (*os.Root, error) { return os.OpenRoot(dir) }, Started: started,
		Printed: map[string]string{c.Job.Name() + "_output.txt": "output.txt"}, Kind: job.Command}
	return &job.Result{Outcome: job.Outcome{Exit: &exit, Started: started, Ended: time.Now().UTC(), Runtime: 60}}, left, err
}

// bringAll brings all home that is on the cluster, until nothing is there.
func (p *person) bringAll() {
	for none := p.folder == ""; !none && p.w.ctx.Err() == nil; {
		if none, _ = p.bring(true); !none {
			p.wait(20 * time.Second)
		}
	}
}
