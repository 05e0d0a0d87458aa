package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/unit"
)

// How the disk is watched while jobs run.
const (
	diskEvery    = time.Second
	measureEvery = 5  // of those: how much attempts have written that said how much they would
	measureCost  = 20 // so many times what a look cost passes before the next
	inodesFree   = 50 // one in so many inodes is to stay free
	worthStop    = 16 // who has less than this part of what is to be free is not stopped for it
)

// fullBelow is the free bytes below which a disk counts as full: writes may have failed.
const fullBelow = 1 << 20

// wasFull is said of a job that failed, and with cutShort of one that ended well and may have
// ignored that a write failed.
const (
	wasFull  = "the node's disk was full while it ran"
	cutShort = ": its files may be cut short"
)

const diskFull = "the node's disk was nearly full; it had written "

// errKilled is errStopped, without a time to end.
var errKilled = fmt.Errorf("%w, at once", errStopped)

// stops says that a context was cancelled by a stop.
func stops(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errStopped) }

// A watched is an attempt or a build that runs.
type watched struct {
	a    *attempt
	b    *build
	run  *buildRun
	dir  string
	outs []string // into which it prints
	most *int64   // bytes that each of these may have; 0: no limit; nil: what the node's file says
	disk diskUse  // as it was when the look began
	at   []desk.SharedFile
}

// A diskWatch looks at the disk for as long as something runs.
type diskWatch struct {
	n       *daemon
	looks   int
	measure time.Time // not before then
	victim  *watched  // stopped for the disk's sake, and not over
	low     desk.Space
	acted   bool // low is what was left when the last one stopped was over

	kept  time.Time // when links to the TMPDIRs were kept last
	again time.Time // when to look again who has most, after it was nobody's fault
	told  bool      // that it is

	unread string // why the disk could not be looked at last, as it was logged

	last    []*watched // what ran at the last look
	ballast bool       // it was there after that
}

// watchDisk begins to watch, if nobody does.
func (n *daemon) watchDisk() {
	if n.given().Caps == nil || n.watching {
		return
	}
	n.watching = true
	n.work.Go(func() {
		ctx, cancel := n.untilOver()
		defer cancel()
		w := &diskWatch{n: n}
		tick := time.NewTicker(diskEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			var all []*watched
			n.do(func() {
				all = n.allRunning()
				n.watching = len(all) > 0
			})
			if len(all) == 0 {
				return
			}
			w.look(ctx, all)
		}
	})
}

// allRunning is what runs.
func (n *daemon) allRunning() []*watched {
	var all []*watched
	for _, a := range n.attempts {
		if a.runs() {
			x := &watched{a: a, dir: a.Dir, outs: a.outputs(), disk: a.disk}
			if s := a.Started(); s != nil {
				x.at, x.most = s.At, s.Printed
			}
			all = append(all, x)
		}
	}
	for _, b := range n.builds {
		if b.run != nil {
			all = append(all, &watched{b: b, run: b.run, dir: b.Dir, outs: []string{b.Output()}, at: b.run.at, most: b.run.printed, disk: diskUse{base: b.run.base, writes: b.Spec.Resources.Disk}})
		}
	}
	return all
}

// linksEvery is how often links to TMPDIRs are kept: what cleans /tmp removes what is some days old.
const linksEvery = time.Hour

// keepLinks keeps the links in /tmp by which what runs has its TMPDIR.
func (w *diskWatch) keepLinks(all []*watched) {
	if time.Since(w.kept) < linksEvery {
		return
	}
	for _, x := range all {
		desk.KeepShort(x.dir)
	}
	w.kept = time.Now()
}

// look is one look at the disk.
func (w *diskWatch) look(ctx context.Context, all []*watched) {
	w.keepLinks(all)
	for _, x := range all {
		most := w.n.given().printed()
		if x.most != nil { // what runs keeps what it has
			most = *x.most
		}
		for _, out := range x.outs {
			if info, err := os.Lstat(out); err == nil && most > 0 && info.Size() > most {
				w.n.stopRunning(x, errStopped, job.ReasonPrinted+unit.FormatBytes(most))
				break
			}
		}
	}
	space, err := w.n.desk.Space()
	if err != nil {
		if why := err.Error(); why != w.unread {
			w.n.Log.Warn("cannot read the use of the disk", "why", why)
			w.unread = why
		}
		return
	}
	w.unread = ""
	w.meetFull(all, space)
	w.n.desk.Stock()
	w.last, w.ballast = all, w.n.desk.Ballast() == 0
	if w.looks++; w.looks%measureEvery == 0 && !time.Now().Before(w.measure) {
		w.measured(ctx, all)
	}
	w.nearlyFull(ctx, all, space)
}

// meetFull notes of attempts that the disk was full while they ran: it is now, or the ballast
// has been given up since the last look, at which they ran.
func (w *diskWatch) meetFull(all []*watched, s desk.Space) {
	full, gone := isFull(s), w.ballast && w.n.desk.Ballast() > 0
	var met []*attempt
	w.n.do(func() {
		for _, x := range all {
			if x.a != nil && x.a.runs() {
				if x.a.metFull = x.a.metFull || full || gone && x.lives(w.last); x.a.metFull {
					met = append(met, x.a)
				}
			}
		}
	})
	for _, a := range met {
		keepFull(a)
	}
}

// keepFull writes down that the disk was full while an attempt ran. If that cannot be written
// now, the next look tries again.
func keepFull(a *attempt) {
	if !a.MetFull() {
		a.SetFull()
	}
}

// isFull reports whether a disk is full.
func isFull(s desk.Space) bool {
	return s.Free < fullBelow || s.AllInodes > 0 && s.Inodes == 0
}

// measured stops who has written more than he said; a build, more than its batch
// says of a job.
func (w *diskWatch) measured(ctx context.Context, all []*watched) {
	began := time.Now()
	for _, x := range all {
		if x.disk.writes == 0 {
			continue
		}
		bytes, _ := w.n.use(ctx, x)
		used := max(0, bytes-x.disk.base)
		w.n.do(func() {
			if x.a != nil && x.a.runs() {
				x.a.disk.claim = max(0, x.disk.writes-used)
			}
		})
		if used > x.disk.writes+LeastRoom/16 {
			w.n.stopRunning(x, errStopped, fmt.Sprintf(job.ReasonDisk+" %s, and %s were asked for", unit.FormatBytes(used), unit.FormatBytes(x.disk.writes)))
		}
	}
	w.measure = time.Now().Add(measureCost * time.Since(began))
}

// nearlyFull kills who has most on the disk when that is nearly full, one after
// the other, as long as it gets fuller.
func (w *diskWatch) nearlyFull(ctx context.Context, all []*watched, s desk.Space) {
	inodes := s.AllInodes / inodesFree
	enough := s.Free >= w.n.given().Caps.Reserve && s.Inodes >= inodes
	if enough {
		w.acted, w.told = false, false
	}
	if w.victim != nil {
		if w.victim.lives(all) {
			return
		}
		if enough {
			w.victim = nil
			return
		}
		w.victim, w.low, w.acted = nil, s, true
		return
	}
	if enough || time.Now().Before(w.again) {
		return
	}
	worth := desk.Space{Free: w.n.given().Caps.Reserve / worthStop, Inodes: inodes / worthStop}
	if w.acted && s.Free > w.low.Free-worth.Free && s.Inodes > w.low.Inodes-worth.Inodes {
		return // what is there may go home; nobody takes more
	}
	began := time.Now()
	worst, has := w.worst(ctx, all, s, inodes)
	if ctx.Err() != nil {
		return
	}
	if worst == nil {
		if w.again = time.Now().Add(measureCost * time.Since(began)); !w.told {
			w.told = true
			w.n.Log.Warn("disk nearly full, not by jobs here; no job is stopped", "free", s.Free, "reserve", w.n.given().Caps.Reserve, "inodes", s.Inodes)
		}
		return
	}
	w.victim = worst
	w.n.stopRunning(worst, errKilled, diskFull+unit.FormatBytes(has))
}

// worst is who is to be stopped on a disk that is nearly full, and the bytes that
// he has written: who has most. It is nobody whom it would not help to stop, or
// who keeps within what was granted; and if those who run have not as much
// together as is missing, others have filled the disk, and it is nobody.
func (w *diskWatch) worst(ctx context.Context, all []*watched, s desk.Space, inodes int64) (worst *watched, has int64) {
	few := s.Inodes < inodes
	free, most, together := w.n.given().Caps.Reserve, int64(0), int64(0)
	missing := free - s.Free
	if few {
		free, missing = inodes, inodes-s.Inodes
	}
	for _, x := range all {
		bytes, files := w.n.use(ctx, x)
		bytes = max(0, bytes-x.disk.base)
		part := bytes
		if few {
			part = max(0, files-x.disk.files)
		}
		together += part
		granted := !few && x.disk.writes > 0 && bytes <= x.disk.writes
		if part > most && part >= free/worthStop && !granted {
			worst, most, has = x, part, bytes
		}
	}
	if together < missing {
		return nil, 0
	}
	return worst, has
}

// use returns the bytes and inodes that an attempt or a build has on the disk, with those of
// files that it has removed and still has open.
func (n *daemon) use(ctx context.Context, x *watched) (bytes, inodes int64) {
	bytes, inodes = desk.Use(ctx, x.dir, x.at...)
	info, err := os.Lstat(x.dir)
	if err != nil {
		return bytes, inodes
	}
	h, held := n.holder(x.dir)
	if st, ok := info.Sys().(*syscall.Stat_t); held && ok {
		open, files := proc.Unlinked(ctx, h.Pid, h.Start, st.Dev)
		bytes, inodes = bytes+open, inodes+files
	}
	return bytes, inodes
}

// filledDisk returns why a build in dir that has ended well is not to be trusted: it has
// filled the disk, and may have ignored that it could not write all. Base is the bytes that
// were there before it began. It returns nothing if there is room, or others have filled the
// disk.
func (n *daemon) filledDisk(ctx context.Context, dir string, base int64, shared []desk.SharedFile) string {
	space, full := n.fullNow()
	if !full {
		return ""
	}
	bytes, _ := desk.Use(ctx, dir, shared...)
	bytes -= base
	if !filled(space, n.given().Caps.Reserve, bytes) {
		return ""
	}
	return diskFull + unit.FormatBytes(bytes)
}

// filled reports whether who has that many bytes on a full disk has filled it. Of its inodes
// that says nothing.
func filled(s desk.Space, reserve, bytes int64) bool {
	return s.Free < fullBelow && bytes >= max(reserve-s.Free, fullBelow)
}

// fullNow reports whether the disk is full for what has just ended, and what is left of it. The
// ballast may have been given up to write that it has ended.
func (n *daemon) fullNow() (desk.Space, bool) {
	if n.given().Caps == nil {
		return desk.Space{}, false
	}
	space, err := n.desk.Space()
	space.Free -= n.desk.Ballast()
	return space, err == nil && isFull(space)
}

// noteFull notes of an attempt that has just ended whether the disk is full.
func (n *daemon) noteFull(a *attempt) {
	if _, full := n.fullNow(); full {
		n.do(func() { a.metFull = true })
		keepFull(a)
	}
}

// blameDisk takes into the result of an attempt that the disk was full while it ran, unless
// something else has ended it. Of a file that is mapped, its job is told of that by SIGBUS.
func (a *attempt) blameDisk(st *proc.Status, r *job.Result) {
	switch {
	case !a.metFull:
	case r.OK(): // also of one that had to leave, and was done first
		r.Skipped = strings.TrimSuffix(wasFull+cutShort+"; "+r.Skipped, "; ")
	case r.Fate != job.FateEnded || st.Stopped != "":
	case r.Reason == "":
		r.Reason = wasFull
	case r.Rank != nil && limitReached(st) == "":
		r.Reason = wasFull + "; " + r.Reason
	}
}

// lives says whether what was stopped still runs.
func (x *watched) lives(all []*watched) bool {
	for _, y := range all {
		if x.a != nil && x.a == y.a || x.run != nil && x.run == y.run {
			return true
		}
	}
	return false
}

// stopRunning stops an attempt or a build of its own accord; why tells it.
func (n *daemon) stopRunning(x *watched, how error, why string) {
	n.do(func() {
		switch {
		case x.a != nil && x.a.runs():
			n.endAttempt(x.a, endStopped, why, how)
		case x.run != nil && x.run.why == "" && x.b.run == x.run:
			n.Log.Warn("build stopped", "batch", x.b.Batch, "why", why)
			x.run.why = why
			if x.run.cancel(how); x.run.adopted {
				n.stopAdopted(x.dir)
			}
		}
	})
}
