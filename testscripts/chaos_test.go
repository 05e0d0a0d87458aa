package testscripts

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A place is where a head runs, and its nodes.
type place interface {
	// run runs a command at the head, in the way of exec.Cmd. While the power is
	// off it waits.
	run(ctx context.Context, args ...string) (stdout, stderr string, err error)
	// put makes what is below dir of this machine be there at the head, too.
	put(ctx context.Context, dir string) error
	// get makes what is below dir at the head be here.
	get(ctx context.Context, dir string) error
	// starts is what attempts have appended to the file of their batch when they
	// began, and whether none of it can be missing.
	starts() (lines string, whole bool)
	// left is what lies in the directories of attempts on nodes, and in the
	// staging of batches.
	left() []string
	// batchLog is the log of a batch.
	batchLog(batch string) string
	// talk is what the daemons have logged, by who they are.
	talk() map[string]string
}

// A chaos is one run, at whatever place.
type chaos struct {
	t     *testing.T
	seed  uint64
	dir   string
	began time.Time
	place place
	spool string // at the head
	size  int    // how many there are
	user  *user
	slack time.Duration // by what all limits of time are multiplied

	mu     sync.Mutex // guards what follows
	log    *os.File
	counts map[string]int
}

// newChaos is a run without a place yet.
func newChaos(t *testing.T) (*chaos, error) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return nil, err
	}
	t.Logf("CHAOS_SEED=%d, in %s", seed, dir)
	c := &chaos{t: t, seed: seed, dir: dir, began: time.Now(), slack: 1, counts: map[string]int{}}
	t.Cleanup(c.close)
	c.log, err = os.Create(filepath.Join(dir, "chaos.log"))
	c.user = newUser(c)
	return c, err
}

// close keeps the directory of a run that went wrong.
func (c *chaos) close() {
	c.log.Close()
	if c.t.Failed() {
		c.t.Logf("the logs are in %s; to do it again: CHAOS_SEED=%d", c.dir, c.seed)
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

// random gives a part of the run numbers of its own, so that the parts do not
// change each other's.
func (c *chaos) random(part string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(part))
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

// note counts what was done, and logs it.
func (c *chaos) note(kind, format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
	fmt.Fprintf(c.log, "%9.3f %s: %s\n", time.Since(c.began).Seconds(), kind, fmt.Sprintf(format, a...))
}

// violation is a promise that was broken.
func (c *chaos) violation(format string, a ...any) {
	c.note("violations", format, a...)
	c.t.Errorf(format, a...)
}

// ownFault counts what the test itself fails at.
const ownFault = "faults of the test"

func (c *chaos) check(err error) {
	if err != nil {
		c.note(ownFault, "%v", err)
		c.t.Error(err)
	}
}

func (c *chaos) count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[kind]
}

// wait waits, or says that ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// between is a random time.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

// ordeal is the user and the trouble until ctx ends, then the healing, and one
// more power cut when all is over, and then the judgement.
func (c *chaos) ordeal(ctx context.Context, trouble func(context.Context), heal, last func()) {
	var users sync.WaitGroup
	watched, unwatch := context.WithCancel(context.Background())
	users.Go(func() { c.user.watch(watched) })
	c.user.work(ctx, trouble)
	heal()
	if c.count(ownFault) == 0 {
		c.settle()
		last()
		c.settle()
		c.judge()
	}
	unwatch()
	users.Wait()
}

// report is what was done, and what came of it.
func (c *chaos) report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "chaos for %.0f s, CHAOS_SEED=%d\n", time.Since(c.began).Seconds(), c.seed)
	c.counts["violations"] += 0
	for _, kind := range sortedKeys(c.counts) {
		fmt.Fprintf(&b, "%8d  %s\n", c.counts[kind], kind)
	}
	return b.String()
}
