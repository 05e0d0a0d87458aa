package head

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"distribute/lib/cli"
	"distribute/lib/wire"
)

// A quota bounds what is in memory at once for the answers to tools, of which one user's
// have half. What asks for more waits its turn.
type quota struct {
	room    *semaphore.Weighted
	most    int64
	waiting atomic.Int32

	mu sync.Mutex // guards of
	of map[int]*portion
}

// A portion is what one user has of a quota.
type portion struct {
	room *semaphore.Weighted
	asks int // answers that have some of it, or wait
}

func newQuota(most int64) *quota {
	return &quota{room: semaphore.NewWeighted(most), most: most, of: map[int]*portion{}}
}

// take takes so much of a user's part, and then of all, when they have it. It returns how it
// is given back.
func (q *quota) take(ctx context.Context, uid int, n int64) (giveBack func(), err error) {
	q.mu.Lock()
	p := q.of[uid]
	if p == nil {
		p = &portion{room: semaphore.NewWeighted(q.most / 2)}
		q.of[uid] = p
	}
	p.asks++
	q.mu.Unlock()
	leave := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if p.asks--; p.asks == 0 {
			delete(q.of, uid)
		}
	}
	q.waiting.Add(1)
	defer q.waiting.Add(-1)
	his, all := min(n, q.most/2), min(n, q.most)
	if err := p.room.Acquire(ctx, his); err != nil {
		leave()
		return nil, err
	}
	if err := q.room.Acquire(ctx, all); err != nil {
		p.room.Release(his)
		leave()
		return nil, err
	}
	return func() {
		q.room.Release(all)
		p.room.Release(his)
		leave()
	}, nil
}

// whenRoom answers when there is memory for so much.
func (t *tool) whenRoom(q *quota, n int64, answer func() error) error {
	giveBack, err := q.take(t.over, t.peer.UID, n)
	if err != nil {
		return &wire.Error{Status: cli.Later, Text: "dsched is ending"}
	}
	defer giveBack()
	done := make(chan struct{})
	defer close(done)
	go t.endIfWanted(q, done)
	return answer()
}

// endIfWanted ends the session of a tool that reads its answer so slowly that
// others wait for the memory, unless it is done before.
func (t *tool) endIfWanted(q *quota, done <-chan struct{}) {
	for wait := answerWithin; ; wait = time.Minute {
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
		if q.waiting.Load() > 0 {
			t.log.Warn("tool cut off: its answer was read too slowly while others wait", "user", t.peer.User)
			t.c.Close()
			return
		}
	}
}
