package noded

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
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

// fetchAll fetches all that an attempt lacks to be built and run, but for secrets: its batch's
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

// A cannotError says that an attempt can run on no node like this one, or lacks an input that
// the head has lost.
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
	if err == nil && a.Anew > b.Again && len(b.Spec.Build) > 0 {
		return nil, fs.ErrNotExist // it is to be built elsewhere
	}
	if err == nil {
		n.do(func() {
			a.builds = b.Dir
			if known := n.batches[b.Note()]; known != nil {
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
	b, err := n.desk.NewBuild(a.Job.Batch(), n.builder(a.User), a.Spec, raw)
	if err != nil {
		return nil, err
	}
	if len(b.Spec.Build) > 0 {
		err = n.share(b, a)
	}
	if err == nil {
		err = n.desk.SetBuild(b, raw)
	}
	if errors.Is(err, desk.ErrCovered) {
		return nil, &buildError{why: reason(err)}
	}
	if err != nil {
		return nil, err
	}
	n.do(func() { n.batches[b.Note()] = &batch{Build: b} })
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

// fetchSecrets fetches the values of the secrets of an attempt's batch, after all that takes long: they
// may be replaced meanwhile. They stay in memory until the attempt starts: a daemon that starts again
// fetches them again.
func (n *daemon) fetchSecrets(ctx context.Context, a *attemptRun, b *desk.Build) error {
	if len(b.Spec.Secrets) == 0 {
		return nil
	}
	raw, err := n.fetchBytes(ctx, &wire.Fetch{Attempt: a.Token, Of: wire.OfSecrets})
	var refusal *wire.Error
	if errors.As(err, &refusal) && refusal.Status == lostInput {
		return &cannotError{refusal.Text}
	}
	var values []string
	if err == nil && json.Unmarshal(raw, &values) != nil {
		err = fmt.Errorf("%w: the head's secrets are not a list of texts", line.ErrLine)
	}
	if err == nil {
		err = job.Secrets(values).Check(b.Spec.Secrets)
	}
	a.secrets = values
	return err
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
		if err := n.fetchMine(ctx, a, mine, sizes); errors.Is(err, pack.ErrSum) {
			return &rottenError{err, wrongInput(err, lists)}
		} else if err != nil {
			return err
		}
		if err := awaitAll(ctx, others); err != nil {
			return err
		}
	}
}

// A rottenError is returned when an input comes whole, and is not what its sum says.
type rottenError struct {
	error
	path string
}

func (e *rottenError) Unwrap() error { return e.error }

// wrongInput returns the path of the input that err names by its sum.
func wrongInput(err error, lists [][]job.Input) string {
	for _, in := range slices.Concat(lists...) {
		if strings.Contains(err.Error(), in.Sum) {
			return in.Path
		}
	}
	return ""
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

// lostInput is the status of the head's refusal to send an input that it does not have.
const lostInput = 66

// fetchMine fetches inputs that were claimed, whatever cuts come between, the smallest
// first, and gives each claim up when its input has come. Bytes that came before a cut, or
// before the daemon was killed, do not come again.
func (n *daemon) fetchMine(ctx context.Context, a *attempt, sums []string, sizes map[string]int64) error {
	defer n.keepInputs()
	defer func() { n.claims.giveUp(sums) }()
	slices.SortFunc(sums, func(x, y string) int { return cmp.Or(cmp.Compare(sizes[x], sizes[y]), cmp.Compare(x, y)) })
	anew := map[string]bool{} // begun again from their first byte, for what had come was wrong
	for ctx.Err() == nil {
		q := n.nextQuestion(sums, sizes)
		if q == nil {
			return nil
		}
		f := &wire.Fetch{Attempt: a.Token, Of: wire.OfInputs, Sums: q.sums(), From: q.from}
		err := n.link.ask(ctx, f, q.size, func(r io.Reader) error {
			return pack.Receive(r, q.inputs, pack.Want{From: q.from}, n.desk.Cacher())
		})
		var refusal *wire.Error
		switch {
		case err == nil:
			n.claims.giveUp(sums[:q.upTo])
			sums = sums[q.upTo:]
		case errors.Is(err, errAway) && ctx.Err() == nil:
		case errors.Is(err, pack.ErrSum) && q.from > 0 && !anew[f.Sums[0]]:
			n.Log.Warn("partial input is wrong; fetching all of it", "attempt", a.Token, "input", f.Sums[0])
			anew[f.Sums[0]] = true
		case errors.As(err, &refusal) && refusal.Status == lostInput: // the head has lost it: no node is to blame
			return &cannotError{refusal.Text}
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

// maxQuestion is the largest size in bytes of a large question for several inputs. Between
// two questions other requests have their turn.
const maxQuestion = 64 << 20

// A question is a list of inputs for one fetch.
type question struct {
	inputs pack.Manifest
	from   int64 // byte of the first of these to begin at
	size   int64 // bytes that have to come
	upTo   int   // how many of the sums are here when it is answered, from the first on
}

func (q *question) sums() (sums []string) {
	for _, e := range q.inputs {
		sums = append(sums, e.Sum)
	}
	return sums
}

// nextQuestion returns the next question for inputs, the first of sums that are not here;
// nil if all are. If a part of an input is here, the rest is asked for alone.
func (n *daemon) nextQuestion(sums []string, sizes map[string]int64) *question {
	q, ask := &question{}, map[string]int64{}
	for i, s := range sums {
		if _, here := n.desk.Cached(s); !here {
			size, from := sizes[s], n.desk.Part(s)
			if from >= size { // it is begun anew
				from = 0
			}
			most := int64(maxSmall)
			if q.size > maxSmall {
				most = maxQuestion
			}
			if len(ask) > 0 && (from > 0 || len(ask) == wire.MaxSums || q.size+size > most) {
				break
			}
			ask[s] = size
			q.size += size - from
			q.from = from
		}
		q.upTo = i + 1
		if q.from > 0 {
			break
		}
	}
	if len(ask) == 0 {
		return nil
	}
	q.inputs = pack.Blobs(ask)
	return q
}
