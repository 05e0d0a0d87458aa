package noded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/timing"
	"distribute/lib/wire"
)

// maxSpec is the greatest length of a spec or a job as JSON.
const maxSpec = 64 << 20

// claims says which inputs and specs are on their way, so that each comes once.
type claims struct {
	mu sync.Mutex
	on map[string]chan struct{} // closed when it has come, or will not
}

// take claims those of sums that are not on their way; for the others it
// returns what to wait for.
func (c *claims) take(sums []string) (mine []string, others []chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		if ch, ok := c.on[s]; ok {
			others = append(others, ch)
			continue
		}
		c.on[s] = make(chan struct{})
		mine = append(mine, s)
	}
	return mine, others
}

func (c *claims) giveUp(sums []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sums {
		close(c.on[s])
		delete(c.on, s)
	}
}

// fetchAll fetches all that an attempt lacks to be built and run: its batch's
// spec, its job, and their inputs.
func (n *daemon) fetchAll(ctx context.Context, a *attemptRun) (*desk.Build, error) {
	b, err := n.fetchSpec(ctx, a.attempt)
	if err != nil {
		return nil, err
	}
	if a.Work == nil {
		if err := n.fetchJob(ctx, a.attempt); err != nil {
			return nil, err
		}
	}
	switch kind := b.Spec.Kind; {
	case kind == job.Apptainer && b.Spec.Image == nil:
		return nil, &cannotError{"the batch has no image"}
	case kind == job.Apptainer:
	case kind != job.Python && kind != job.Command:
		return nil, &cannotError{fmt.Sprintf("this version of dnoded does not run batches of kind %.40q", kind)}
	case len(a.Work.Run) == 0:
		return nil, &cannotError{"the job has nothing to run"}
	}
	if a.pinned == nil {
		n.pin(a, b)
	}
	if err := n.roomFor(ctx, a.attempt, n.needs(ctx, a, b), true); err != nil {
		return nil, err
	}
	return b, n.fetchInputs(ctx, a.attempt, a.pinned...)
}

// A cannotError says that an attempt can run on no node like this one.
type cannotError struct{ why string }

func (e *cannotError) Error() string { return e.why }

// fetchSpec fetches the spec of an attempt's batch, unless it is here. Attempts that come
// together fetch it once: the record of a build that runs is not to be replaced.
func (n *daemon) fetchSpec(ctx context.Context, a *attempt) (*desk.Build, error) {
	for {
		if b, err := n.knownBuild(a); !errors.Is(err, fs.ErrNotExist) {
			return b, err
		}
		n.do(func() { n.setStage(a, stageFetching) })
		mine, others := n.claims.take([]string{a.Spec})
		if len(mine) > 0 {
			defer n.claims.giveUp(mine)
			if b, err := n.knownBuild(a); !errors.Is(err, fs.ErrNotExist) { // it came meanwhile
				return b, err
			}
			return n.fetchNewSpec(ctx, a)
		}
		if err := awaitAll(ctx, others); err != nil {
			return nil, err
		}
	}
}

// knownBuild is what is known here of an attempt's batch.
func (n *daemon) knownBuild(a *attempt) (*desk.Build, error) {
	b, err := n.desk.Build(a.Job.Batch(), n.builder(a.User), a.Spec)
	if err == nil {
		n.do(func() {
			if known := n.builds[b.Dir]; known != nil {
				known.over = false // a batch of that name has come again
			}
		})
	}
	return b, err
}

func (n *daemon) fetchNewSpec(ctx context.Context, a *attempt) (*desk.Build, error) {
	raw, err := n.fetchBytes(ctx, &wire.Fetch{Attempt: a.Token, Of: wire.OfSpec})
	if err != nil {
		return nil, err
	}
	b, err := n.desk.SetBuild(a.Job.Batch(), n.builder(a.User), a.Spec, raw)
	if err != nil {
		return nil, err
	}
	n.do(func() {
		if n.builds[b.Dir] == nil {
			n.builds[b.Dir] = &build{Build: b}
		}
	})
	return b, nil
}

func (n *daemon) fetchJob(ctx context.Context, a *attempt) error {
	n.do(func() { n.setStage(a, stageFetching) })
	raw, err := n.fetchBytes(ctx, &wire.Fetch{Attempt: a.Token, Of: wire.OfJob})
	if err != nil {
		return err
	}
	var j job.Job
	if err := json.Unmarshal(raw, &j); err != nil {
		return fmt.Errorf("%w: a job: %w", line.ErrLine, err)
	}
	return a.SetWork(&j)
}

func (n *daemon) fetchBytes(ctx context.Context, f *wire.Fetch) (raw []byte, err error) {
	err = n.link.fetch(ctx, f, func(r io.Reader) error {
		raw, err = io.ReadAll(io.LimitReader(r, maxSpec+1))
		if err == nil && len(raw) > maxSpec {
			err = fmt.Errorf("%s of more than %d bytes", f.Of, maxSpec)
		}
		return err
	})
	return raw, err
}

// fetchInputs brings inputs that the cache lacks. Those that another attempt
// is fetching are waited for.
func (n *daemon) fetchInputs(ctx context.Context, a *attempt, lists ...[]job.Input) error {
	for {
		var lack []string
		sizes := map[string]int64{}
		for _, list := range lists {
			for _, in := range list {
				if len(in.Sum) != 64 {
					return &wire.Error{Text: fmt.Sprintf("input %.200q has no sum", in.Path)}
				}
				if _, here := n.desk.Cached(in.Sum); !here {
					if _, twice := sizes[in.Sum]; !twice {
						lack = append(lack, in.Sum)
					}
					sizes[in.Sum] = in.Size
				}
			}
		}
		if len(lack) == 0 {
			return nil
		}
		n.do(func() { n.setStage(a, stageFetching) })
		mine, others := n.claims.take(lack)
		err := n.fetchMine(ctx, a, mine, sizes)
		n.claims.giveUp(mine)
		if err != nil {
			return err
		}
		if err := awaitAll(ctx, others); err != nil {
			return err
		}
	}
}

// awaitAll waits until what others fetch has come, or will not.
func awaitAll(ctx context.Context, others []chan struct{}) error {
	for _, ch := range others {
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// fetchMine fetches inputs, whatever cuts come between. What has come before a
// cut, or before the daemon was killed, does not come again.
func (n *daemon) fetchMine(ctx context.Context, a *attempt, sums []string, sizes map[string]int64) error {
	defer n.keepInputs()
	anew := map[string]bool{} // begun again from their first byte, for what had come was wrong
	for ctx.Err() == nil {
		f, m := n.nextFetch(a, sums, sizes)
		if f == nil {
			return nil
		}
		err := n.link.ask(ctx, f, func(r io.Reader) error {
			return pack.Receive(r, m, pack.Want{From: f.From}, n.desk.Cacher())
		})
		switch {
		case err == nil, errors.Is(err, errAway) && ctx.Err() == nil:
		case errors.Is(err, pack.ErrSum) && f.From > 0 && !anew[f.Sums[0]]:
			n.Log.Warn("partial input is wrong; fetching all of it", "attempt", a.Token, "input", f.Sums[0])
			anew[f.Sums[0]] = true
		default:
			return err
		}
	}
	return ctx.Err()
}

// keepAfter is how long inputs that have come wait for their sync. A job that
// waited for them is started meanwhile: beside the sync, what is synced of its
// start would wait for all of theirs.
var keepAfter = timing.Wait(5 * time.Second)

// keepInputs makes the inputs that have come durable, beside all else: jobs use
// them meanwhile.
func (n *daemon) keepInputs() {
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		if linger(ctx, keepAfter); ctx.Err() != nil {
			return
		}
		if err := n.desk.Keep(ctx); err != nil && ctx.Err() == nil {
			n.Log.Error("cannot write an input; fetching it again", "why", err)
		}
	})
}

// maxQuestion is how many bytes of inputs one question asks for, if it asks for more than
// one: between two questions what others fetch has its turn, and a stop is seen.
const maxQuestion = 64 << 20

// nextFetch is the next question for inputs, and what is to come; nil if all
// are here. One of which a part is here is asked for alone, from there on.
func (n *daemon) nextFetch(a *attempt, sums []string, sizes map[string]int64) (*wire.Fetch, pack.Manifest) {
	f, part, size := &wire.Fetch{Attempt: a.Token, Of: wire.OfInputs}, map[string]int64{}, int64(0)
	for _, s := range sums {
		if _, here := n.desk.Cached(s); here {
			continue
		}
		if from := n.desk.Part(s); from > 0 {
			if from < sizes[s] {
				f.Sums, f.From = []string{s}, from
				return f, pack.Blobs(map[string]int64{s: sizes[s]})
			}
		}
		if len(part) == 0 || len(part) < wire.MaxSums && size+sizes[s] <= maxQuestion {
			part[s] = sizes[s]
			size += sizes[s]
		}
	}
	if len(part) == 0 {
		return nil, nil
	}
	m := pack.Blobs(part)
	for _, e := range m {
		f.Sums = append(f.Sums, e.Sum)
	}
	return f, m
}
