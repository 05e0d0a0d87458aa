package noded

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/proc"
)

// On a disk that is nearly full it is stopped who has most, if he has more than
// he was granted, and nobody if others have filled it.
func TestN61WhoIsToBlame(t *testing.T) {
	const reserve = 16 << 20
	type ran struct{ wrote, base, said int64 }
	tests := []struct {
		what string
		free int64
		all  []ran
		want int // -1: nobody
	}{
		{"who has most", 10 << 20, []ran{{wrote: 2 << 20}, {wrote: 6 << 20}}, 1},
		{"all had little, somebody else took it", 0, []ran{{wrote: 2 << 20}, {wrote: 6 << 20}}, -1},
		{"little of what is missing", 12 << 20, []ran{{wrote: 3 << 20}}, -1},
		{"who keeps within his grant", 12 << 20, []ran{{wrote: 8 << 20, said: 10 << 20}, {wrote: 2 << 20}}, 1},
		{"who does not", 12 << 20, []ran{{wrote: 8 << 20, said: 4 << 20}, {wrote: 2 << 20}}, 0},
		{"what was there before", 12 << 20, []ran{{wrote: 8 << 20, base: 8 << 20}, {wrote: 5 << 20}}, 1},
		{"too little to help", 16<<20 - 1, []ran{{wrote: 512 << 10}}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			n := newDaemon(&Settings{Caps: &desk.Caps{Reserve: reserve}, Log: strictLog(slog.DiscardHandler)}, nil)
			var all []*watched
			for _, r := range tt.all {
				x := &watched{a: &attempt{}, dir: t.TempDir(), disk: diskUse{base: r.base, writes: r.said}}
				if err := os.WriteFile(filepath.Join(x.dir, "f"), make([]byte, r.wrote), 0o600); err != nil {
					t.Fatal(err)
				}
				all = append(all, x)
			}
			got := -1
			who, _ := (&diskWatch{n: n}).worst(t.Context(), all, desk.Space{Free: tt.free, Inodes: 1}, 1)
			for i, x := range all {
				if x == who {
					got = i
				}
			}
			if got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// Where few inodes are left, those that a job was given, as with what was built, are not its own.
func TestWhoTookInodes(t *testing.T) {
	const few = 160
	for had, want := range map[int64]bool{0: true, 100: false} {
		n := newDaemon(&Settings{Caps: &desk.Caps{Reserve: 1 << 20}, Log: strictLog(slog.DiscardHandler)}, nil)
		x := &watched{a: &attempt{}, dir: t.TempDir(), disk: diskUse{files: had}}
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(x.dir, strconv.Itoa(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		who, _ := (&diskWatch{n: n}).worst(t.Context(), []*watched{x}, desk.Space{Free: 1 << 30, Inodes: few - 50}, few)
		if got := who == x; got != want {
			t.Errorf("with %d that it was given: %v, want %v", had, got, want)
		}
	}
}

// What an earlier attempt saved, of which this one was given the files, counts as given.
func TestSavedInodesAreGiven(t *testing.T) {
	d, da, n := oneAttempt(t, t.TempDir())
	defer d.Close()
	da.Work = &job.Job{Inputs: []job.Input{{Path: "in", Size: 1}}}
	need := n.needs(t.Context(), &attemptRun{attempt: &attempt{Attempt: da}, savedBytes: 4096, savedFiles: 100}, &desk.Build{})
	if need.files != 101 || need.copies <= 4096 {
		t.Errorf("it was given %d inodes and %d bytes", need.files, need.copies)
	}
	close(n.over)
	n.work.Wait()
}

// A build has filled the disk if it has what is missing, and not if others have taken its inodes.
func TestBuildFilledDisk(t *testing.T) {
	const reserve = 16 << 20
	tests := []struct {
		space desk.Space
		bytes int64
		want  bool
	}{
		{desk.Space{Free: 0, Inodes: 500, AllInodes: 1000}, 16 << 20, true},
		{desk.Space{Free: -4 << 20, Inodes: 500, AllInodes: 1000}, 20 << 20, true}, // the ballast is given up
		{desk.Space{Free: 0, Inodes: 500, AllInodes: 1000}, 15 << 20, false},
		{desk.Space{Free: 0}, 16 << 20, true}, // a disk that does not count inodes
		{desk.Space{Free: 1 << 30, Inodes: 0, AllInodes: 1000}, 16 << 20, false},
	}
	for _, tt := range tests {
		if got := filled(tt.space, reserve, tt.bytes); got != tt.want || !isFull(tt.space) {
			t.Errorf("%+v with %d bytes: %v, want %v", tt.space, tt.bytes, got, tt.want)
		}
	}
}

// A job that runs while the disk is full meets that also if dnoded is started anew before it ends.
func TestFullDiskIsRemembered(t *testing.T) {
	dir := t.TempDir()
	d, da, n := oneAttempt(t, dir)
	if err := da.SetStarted(&desk.Started{Kind: job.Command}); err != nil {
		t.Fatal(err)
	}
	var a *attempt
	n.do(func() {
		a = n.add(da)
		a.stage = stageRunning
	})
	w := &diskWatch{n: n}
	for _, free := range []int64{0, 1 << 30, 0} {
		w.meetFull([]*watched{{a: a}}, desk.Space{Free: free})
	}
	close(n.over)
	n.work.Wait()
	d.Close()
	text, err := os.ReadFile(filepath.Join(da.Dir, proc.RecordFile))
	if got := strings.Count(string(text), "\n{\"full\":true}\n"); err != nil || got != 1 {
		t.Errorf("it is noted %d times, %v:\n%s", got, err, text)
	}
	if d, err = desk.Open(dir, "boot"); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n = newDaemon(&Settings{Offer: node.Offer{CPUs: 1}, boot: "boot", Log: strictLog(slog.DiscardHandler)}, d)
	if err := n.takeOver(t.Context()); err != nil || n.attempts[da.Token] == nil || !n.attempts[da.Token].metFull {
		t.Errorf("it is forgotten: %v, %+v", err, n.attempts[da.Token])
	}
}

// A full disk is told of a job that was not ended by something else.
func TestFullDiskIsTold(t *testing.T) {
	code := func(n int) *int { return &n }
	rank := 1
	for what, c := range map[string]struct {
		st           proc.Status
		r            job.Result
		reason, left string
	}{
		"done":         {proc.Status{}, job.Result{Outcome: job.Outcome{Exit: code(0)}}, "", "the node's disk was full while it ran: its files may be cut short"},
		"with more":    {proc.Status{}, job.Result{Outcome: job.Outcome{Exit: code(0), Skipped: "2 sockets"}}, "", "the node's disk was full while it ran: its files may be cut short; 2 sockets"},
		"done first":   {proc.Status{Evicted: true}, job.Result{Fate: job.FateEvicted, Outcome: job.Outcome{Exit: code(0)}}, "", "the node's disk was full while it ran: its files may be cut short"},
		"mapped":       {proc.Status{}, job.Result{Outcome: job.Outcome{Signal: "SIGBUS"}}, "the node's disk was full while it ran", ""},
		"failed":       {proc.Status{}, job.Result{Outcome: job.Outcome{Exit: code(1)}}, "the node's disk was full while it ran", ""},
		"mapped, rank": {proc.Status{}, job.Result{Outcome: job.Outcome{Signal: "SIGBUS", Rank: &rank, Reason: "rank 1 of 2: SIGBUS"}}, "the node's disk was full while it ran; rank 1 of 2: SIGBUS", ""},
		"no memory":    {proc.Status{NoMemory: true}, job.Result{Outcome: job.Outcome{Signal: "SIGKILL", Reason: "out of memory"}}, "out of memory", ""},
		"stopped":      {proc.Status{Stopped: proc.StoppedOrder}, job.Result{Outcome: job.Outcome{Signal: "SIGTERM"}}, "", ""},
		"had to leave": {proc.Status{Evicted: true}, job.Result{Fate: job.FateEvicted, Outcome: job.Outcome{Exit: code(85)}}, "", ""},
	} {
		other := c.r
		if (&attempt{}).blameDisk(&c.st, &other); other.Reason != c.r.Reason || other.Skipped != c.r.Skipped {
			t.Errorf("%s: with room it is %+v", what, other)
		}
		(&attempt{metFull: true}).blameDisk(&c.st, &c.r)
		if c.r.Reason != c.reason || c.r.Skipped != c.left {
			t.Errorf("%s: %q, %q, want %q, %q", what, c.r.Reason, c.r.Skipped, c.reason, c.left)
		}
	}
}

// The link by which a job has its TMPDIR is made again if something has removed it.
func TestLinksAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Dir(desk.ShortTmp(dir))
	defer os.Remove(link)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	w := &diskWatch{}
	w.keepLinks([]*watched{{dir: dir}})
	if to, err := os.Readlink(link); err != nil || to != dir {
		t.Error(to, err)
	}
}

// A disk that cannot be looked at is told of once, and again when it could be meanwhile.
func TestUnreadDiskIsToldOnce(t *testing.T) {
	n := liveDaemon(t, &desk.Caps{})
	var log bytes.Buffer
	n.Log = slog.New(slog.NewTextHandler(&log, nil))
	w := &diskWatch{n: n}
	looks := func() {
		for range 3 {
			w.look(t.Context(), nil)
		}
	}
	dir := n.desk.Dir()
	for range 2 {
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		looks()
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		looks()
	}
	if told := strings.Count(log.String(), "cannot read the use of the disk"); told != 2 {
		t.Errorf("told %d times: %s", told, &log)
	}
}
