package spool

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"distribute/lib/job"
)

// Ages from which what nobody needs is removed, by the wall clock.
const (
	tempAge = 36 * time.Hour     // of what is being written and was never finished
	blobAge = 7 * 24 * time.Hour // of a blob that no batch reads
)

// A key is the SHA-256 of a blob.
type key = [32]byte

// kept is what a collection must not remove although no batch on the disk names
// it: what is used right now.
type kept struct {
	mu   sync.Mutex
	held map[key]int     // blobs that submissions and retries under way count on
	used map[key]bool    // nil unless a collection runs: what was held at any time since it began
	sole map[key]bool    // blobs that a submission under way has made, and nobody else has held since
	live map[string]bool // files and directories that this process fills
	last struct{ wall, up time.Duration }

	going map[Doomed]bool // batches that are deleted and still in their places
}

func newKept() *kept {
	return &kept{held: map[key]int{}, sole: map[key]bool{}, live: map[string]bool{}, going: map[Doomed]bool{}}
}

// hold keeps a blob from being collected until release.
func (k *kept) hold(sum key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[sum]++
	delete(k.sole, sum)
	if k.used != nil {
		k.used[sum] = true
	}
}

func (k *kept) release(sums ...key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, sum := range sums {
		if k.held[sum]--; k.held[sum] <= 0 {
			delete(k.held, sum)
		}
	}
}

// make calls make, which gives a blob its name, and notes whether it is new and
// the submission that makes it alone holds it. It says false if not.
func (k *kept) make(sum key, name string, make func() error) (sole bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sole = k.held[sum] == 1 && errors.Is(exists(name), fs.ErrNotExist)
	if err = make(); err == nil && sole {
		k.sole[sum] = true
	}
	return sole, err
}

// unmake ends what make has noted. With remove, that is called if still nobody
// else has held the blob.
func (k *kept) unmake(sum key, remove func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	sole := k.sole[sum]
	delete(k.sole, sum)
	if !sole || remove == nil {
		return nil
	}
	return remove()
}

// fill notes that this process fills a file or directory, until filled.
func (k *kept) fill(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.live[name] = true
}

// take is fill, unless somebody does so already.
func (k *kept) take(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live[name] {
		return false
	}
	k.live[name] = true
	return true
}

func (k *kept) filled(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.live, name)
}

func (k *kept) fills(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live[name]
}

// begin says that a collection begins; it says false if one runs already.
func (k *kept) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used != nil {
		return false
	}
	k.used = make(map[key]bool, len(k.held))
	for sum := range k.held {
		k.used[sum] = true
	}
	return true
}

func (k *kept) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = nil
}

// unlessUsed calls remove unless the blob is used or was since the collection
// began. Nobody can begin to use it meanwhile.
func (k *kept) unlessUsed(sum key, remove func() error) (removed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.used[sum] {
		return false, nil
	}
	return true, remove()
}

// A Hold keeps inputs from being collected until Release. It is for one
// goroutine.
type Hold struct {
	head *Head
	sums map[key]bool // held, and whether it is there
}

// NewHold makes a Hold of nothing.
func (h *Head) NewHold() *Hold { return &Hold{h, map[key]bool{}} }

// Release gives back what is held.
func (d *Hold) Release() {
	for sum := range d.sums {
		d.head.kept.release(sum)
	}
	clear(d.sums)
}

// There holds an input of a batch, and says whether it is still there.
func (d *Hold) There(in *job.Input) (bool, error) {
	if in.At != nil {
		return true, nil // in files.tar
	}
	var sum key
	if !isSum(in.Sum) {
		return false, nil
	}
	if _, err := hex.Decode(sum[:], []byte(in.Sum)); err != nil {
		return false, err
	}
	if there, known := d.sums[sum]; known {
		return there, nil
	}
	d.head.kept.hold(sum)
	err := exists(d.head.path("blobs", in.Sum[:2], in.Sum))
	d.sums[sum] = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return d.sums[sum], err
}

// old says that a file was last changed longer ago than age, by the clock of
// now. One whose times are in the future is never old; a time that somebody set
// does not make it older than it is.
func old(info fs.FileInfo, now time.Time, age time.Duration) bool {
	changed := info.Sys().(*syscall.Stat_t).Ctim
	before := now.Add(-age)
	return info.ModTime().Before(before) && time.Unix(changed.Unix()).Before(before)
}

// maxStep is by how much the wall clock and the time since boot may differ
// between two looks at them.
const maxStep = time.Hour

// steady says that the wall clock was not set, by much, since the last call, or
// since the Head was made. Ages mean nothing on a clock that was.
func (h *Head) steady() bool {
	up, err := h.uptime()
	if err != nil {
		return true // there is nothing to compare with
	}
	wall := time.Duration(h.now().UnixNano())
	h.kept.mu.Lock()
	defer h.kept.mu.Unlock()
	last := h.kept.last
	h.kept.last.wall, h.kept.last.up = wall, up
	return last.up == 0 || ((wall-last.wall)-(up-last.up)).Abs() <= maxStep
}

// SetClock has the Head go by other clocks than those of this machine: what the time of day
// is, and how long ago it was booted.
func (h *Head) SetClock(now func() time.Time, uptime func() (time.Duration, error)) {
	h.now, h.uptime = now, uptime
}

// uptime is how long ago this machine was booted; it counts while the machine
// sleeps.
func uptime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	s, err := strconv.ParseFloat(first, 64)
	return time.Duration(s * float64(time.Second)), err
}
