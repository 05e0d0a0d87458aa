package head

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"distribute/lib/node"
	"distribute/lib/pack"
	"distribute/lib/timing"
	"distribute/lib/unit"
	"distribute/spool"
)

// What is reckoned with of the disk besides the bytes in files, and how many
// large results may be under way.
const (
	perEntry     = 5 << 10  // a block, an inode, a name and a line of the manifest, for each file, directory or link
	perTree      = 3        // entries that every result has besides its own
	largeResult  = 64 << 20 // bytes from which on a result is a large one
	maxLarge     = 8        // large ones under way at a time
	maxLargeNode = 2        // of one node: one comes, and the next is known to it
)

// largeResult returns how many bytes make a result a large one.
func (t *transfers) largeResult() int64 { return cmp.Or(t.large, largeResult) }

// A room is what is free on the spool's disk, and to whom it is promised. What
// may be promised is what is free, less the reserve, less what is promised
// already; as bytes come to lie on the disk they leave the promise.
type room struct {
	space   func() (spool.Space, error)
	reserve atomic.Int64           // bytes; less than 0: by the size of the file system
	makes   func(bytes int64) bool // removes what may go if the room is needed, and says whether there was any

	mu     sync.Mutex        // guards the rest
	bytes  int64             // promised
	files  int64             // promised
	may    map[*promise]bool // promises that may yield
	large  map[node.Name]int
	enough int // the sum of large
	parked []parked
}

// A parked one waits for its turn among the large results.
type parked struct {
	node  node.Name
	owner any
	again func()
}

func newRoom(space func() (spool.Space, error), reserve int64) *room {
	r := &room{space: space, large: map[node.Name]int{}, may: map[*promise]bool{}}
	r.reserve.Store(reserve)
	return r
}

// A noRoom is that the disk has no room for something. It is spool.ErrFull.
type noRoom struct {
	need, has           int64 // bytes; has may be less than 0
	needFiles, hasFiles int64
}

func (e *noRoom) Error() string {
	if e.need <= e.has {
		return fmt.Sprintf("head's disk: needs %d inodes, has %d", e.needFiles, e.hasFiles)
	}
	return fmt.Sprintf("head's disk: needs %s, has %s above its reserve", unit.FormatBytes(e.need), above(e.has))
}

// Is says that it is spool.ErrFull.
func (e *noRoom) Is(err error) bool { return err == spool.ErrFull }

// above is how much there is above the reserve, in words.
func above(n int64) string {
	if n <= 0 {
		return "nothing"
	}
	return unit.FormatBytes(n)
}

// has is what could be promised now, less than 0 if the disk is below its
// reserve. The caller holds mu.
func (r *room) has() (bytes, files int64, err error) {
	sp, err := r.space()
	if err != nil {
		return 0, 0, err
	}
	reserve := r.reserve.Load()
	if reserve < 0 {
		reserve = sp.Reserve()
	}
	files = sp.Files - r.files
	if sp.Files < 0 {
		files = 1 << 62
	}
	return sp.Free - reserve - r.bytes, files, nil
}

// A promise is room that is kept for one transfer. It is for one goroutine at a
// time.
type promise struct {
	room         *room
	yields       func() // ends its transfer; nil: it is never asked to
	user         *int   // who submits; nil: nobody does
	stream       *int64 // bytes that have landed of all that comes with it, guarded by the room's mu; nil: it comes alone
	bytes, files int64  // guarded by the room's mu, as the rest

	since time.Time // when it was given more last
	came  int64     // bytes that have landed until then, of all that comes with it
}

// A transfer that is slower than this for as long, over all that time and with all that comes
// on its stream, yields its room to others who lack it.
const leastRate = 64 << 10 // bytes a second

var slowAfter = timing.Wait(time.Minute)

// slow says that the transfer of a promise has been slow. The caller holds the room's mu.
func (p *promise) slow() bool {
	long := time.Since(p.since)
	return long >= slowAfter && float64(*p.stream-p.came) < leastRate*long.Seconds()
}

// userPart is the part that one user may be promised of all that can be, if others lack it: a half.
const userPart = 2

// mayYield are the promises that yield to another for which there is too little room: their
// transfers are slow, or their users have more than a share, and the other has not. The caller
// holds mu.
func (r *room) mayYield(to *promise, short *noRoom) (some []*promise) {
	has := map[int]int64{} // what each user is promised besides
	for o := range r.may {
		if o.user != nil && o != to {
			has[*o.user] += o.bytes
		}
	}
	most := (short.has + r.bytes - to.bytes) / userPart
	modest := to.user == nil || has[*to.user]+short.need <= most
	for o := range r.may {
		switch {
		case o == to || o.stream == to.stream:
		case o.slow(), modest && o.user != nil && has[*o.user] > most:
			some = append(some, o)
		}
	}
	return some
}

// set makes a promise one for so much as is still to come. If that is more than
// it was and there is no room for it, although others have yielded theirs and
// what may go was removed, the error is a noRoom, and the promise stays as it was.
func (p *promise) set(bytes, files int64) error {
	err := p.trySet(bytes, files)
	var short *noRoom
	if errors.As(err, &short) && p.room.yielded(p, short) {
		err = p.trySet(bytes, files)
	}
	if errors.As(err, &short) && p.room.makes != nil && p.room.makes(short.need-short.has) {
		err = p.trySet(bytes, files)
	}
	return err
}

func (p *promise) trySet(bytes, files int64) error {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes > p.bytes || files > p.files {
		has, hasFiles, err := r.has()
		if err != nil {
			return err
		}
		has, hasFiles = has+p.bytes, hasFiles+p.files // its own
		if bytes > has || files > hasFiles {
			return &noRoom{bytes, has, files, hasFiles}
		}
	}
	if p.yields != nil && (bytes > p.bytes || !r.may[p]) {
		if p.stream == nil {
			p.stream = new(int64)
		}
		p.since, p.came, r.may[p] = time.Now(), *p.stream, true
	}
	r.bytes, r.files = r.bytes+bytes-p.bytes, r.files+files-p.files
	p.bytes, p.files = bytes, files
	return nil
}

// yielded ends transfers of others that yield, those that are promised most first, if there is
// room for what is short then, and says whether that is so. Whoever asks for more than can be had
// ends none.
func (r *room) yielded(p *promise, short *noRoom) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := r.mayYield(p, short)
	slices.SortFunc(some, func(a, b *promise) int { return cmp.Compare(b.bytes, a.bytes) })
	bytes, files, end := short.need-short.has, short.needFiles-short.hasFiles, 0
	for ; end < len(some) && (bytes > 0 || files > 0); end++ {
		bytes, files = bytes-some[end].bytes, files-some[end].files
	}
	if bytes > 0 || files > 0 {
		return false
	}
	for _, o := range some[:end] {
		r.take(o, o.bytes, o.files)
		go o.yields()
	}
	return true
}

// take takes so much out of a promise. The caller holds mu.
func (r *room) take(p *promise, bytes, files int64) {
	bytes, files = min(bytes, p.bytes), min(files, p.files)
	r.bytes, r.files = r.bytes-bytes, r.files-files
	p.bytes, p.files = p.bytes-bytes, p.files-files
	if p.bytes == 0 && p.files == 0 {
		delete(r.may, p)
	}
}

// landed takes out of the promise what lies on the disk now.
func (p *promise) landed(bytes, files int64) {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	if p.stream != nil {
		*p.stream += bytes
	}
	p.room.take(p, bytes, files)
}

// left is what is still promised.
func (p *promise) left() (bytes, files int64) {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	return p.bytes, p.files
}

// end gives back what is left of the promise. It may be called twice.
func (p *promise) end() {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	p.room.take(p, p.bytes, p.files)
}

// sizeOf is the room that a tree takes: bytes in its files, and entries.
func sizeOf(bytes int64, entries int) (int64, int64) {
	lim := pack.DefaultLimits() // what is beyond them is refused, and must not overflow here
	bytes, n := min(max(bytes, 0), lim.Bytes), int64(min(max(entries, 0), lim.Entries))+perTree
	return bytes + n*perEntry, n
}

// landing is a Sink that takes what it gets out of a promise.
type landing struct {
	pack.Sink
	p *promise
}

func (l landing) Put(i int, e pack.Entry, from int64, r io.Reader) error {
	if r != nil {
		r = landed{r, l.p}
	}
	err := l.Sink.Put(i, e, from, r)
	l.p.landed(perEntry, 1)
	return err
}

type landed struct {
	r io.Reader
	p *promise
}

func (l landed) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	l.p.landed(int64(n), 0)
	return n, err
}

// meterStep is for how much of a stream of unknown length is promised at once.
const meterStep = 64 << 10

// A meter is a stream whose length nobody has said: it is read as long as there
// is room for what it becomes on the disk.
type meter struct {
	r io.Reader
	p *promise
}

func (m meter) Read(b []byte) (int, error) {
	bytes, files := m.p.left()
	if bytes == 0 {
		bytes = meterStep
		if err := m.p.set(bytes, files); err != nil {
			return 0, err
		}
	}
	n, err := m.r.Read(b[:min(int64(len(b)), bytes)])
	m.p.landed(int64(n), 0)
	return n, err
}

// enter takes a place among the large results. If there is none it says false,
// and calls again later, when it has one for it, unless abandon comes first.
func (r *room) enter(n node.Name, owner any, again func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.enough >= maxLarge || r.large[n] >= maxLargeNode {
		r.parked = append(r.parked, parked{n, owner, again})
		return false
	}
	r.large[n]++
	r.enough++
	return true
}

// leave gives a place back, to the first that waits and may have it.
func (r *room) leave(n node.Name) {
	if again := r.left(n); again != nil {
		again()
	}
}

func (r *room) left(n node.Name) (again func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enough--
	if r.large[n]--; r.large[n] == 0 {
		delete(r.large, n)
	}
	i := slices.IndexFunc(r.parked, func(p parked) bool { return r.large[p.node] < maxLargeNode })
	if i < 0 {
		return nil
	}
	p := r.parked[i]
	r.parked = slices.Delete(r.parked, i, i+1)
	r.large[p.node]++
	r.enough++
	return p.again
}

// abandon forgets what waits of an owner that is gone.
func (r *room) abandon(owner any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parked = slices.DeleteFunc(r.parked, func(p parked) bool { return p.owner == owner })
}

// reserved is how many bytes of the disk are left to others.
func (r *room) reserved() int64 {
	sp, err := r.space()
	if reserve := r.reserve.Load(); reserve >= 0 || err != nil {
		return max(reserve, 0)
	}
	return sp.Reserve()
}
