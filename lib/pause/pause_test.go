package pause

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
	"distribute/lib/suite"
)

var noon = Clock{Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Uptime: 100 * time.Hour, Boot: "b1"}

func TestEnd(t *testing.T) {
	two := For(noon, 2*time.Hour)
	day := To(noon, noon.Now.Add(2*time.Hour))
	ever := To(noon, time.Time{})
	at := func(wall, up time.Duration, boot string) Clock {
		return Clock{noon.Now.Add(wall), noon.Uptime + up, boot}
	}
	tests := []struct {
		name string
		p    Pause
		c    Clock
		left time.Duration // 0: over, -1: for ever
	}{
		{"a length of time", two, at(time.Hour, time.Hour, "b1"), time.Hour},
		{"at its end", two, at(2*time.Hour, 2*time.Hour, "b1"), 0},
		{"the clock was set back", two, at(-24*time.Hour, 119*time.Minute, "b1"), time.Minute},
		{"the clock was set ahead", two, at(24*time.Hour, 119*time.Minute, "b1"), time.Minute},
		{"another boot", two, at(time.Hour, -99*time.Hour, "b2"), time.Hour},
		{"another boot, too late", two, at(3*time.Hour, -99*time.Hour, "b2"), 0},
		{"a time of day", day, at(time.Hour, 100*time.Hour, "b1"), time.Hour},
		{"a time of day, over", day, at(2*time.Hour, time.Hour, "b1"), 0},
		{"without an end", ever, at(1000*time.Hour, time.Hour, "b2"), -1},
	}
	for _, tt := range tests {
		end, forever := tt.p.End(tt.c)
		left := max(0, end.Sub(tt.c.Now))
		if forever {
			left = -1
		}
		if left != tt.left || tt.p.Live(tt.c) != (left != 0) {
			t.Errorf("%s: %v left, want %v; live: %v", tt.name, left, tt.left, tt.p.Live(tt.c))
		}
	}
}

func TestState(t *testing.T) {
	with := func(d time.Duration, change func(*Pause)) Pause {
		p := For(noon, d)
		if d == 0 {
			p = To(noon, time.Time{})
		}
		if change != nil {
			change(&p)
		}
		return p
	}
	give := func(cpus int, memory int64) func(*Pause) {
		return func(p *Pause) { p.Give = &Give{cpus, memory} }
	}
	tests := []struct {
		name    string
		live    []Pause
		frozen  bool
		give    Give
		until   time.Duration
		forever bool
		next    time.Duration
	}{
		{"none", nil, false, Give{}, 0, false, 0},
		{"two that are full", []Pause{with(time.Hour, nil), with(2*time.Hour, nil)}, true, Give{}, 2 * time.Hour, false, clockEvery},
		{"two that give", []Pause{with(time.Hour, give(4, 1)), with(2*time.Hour, give(2, 8))}, false, Give{4, 8}, 2 * time.Hour, false, clockEvery},
		{"a full one decides", []Pause{with(time.Hour, nil), with(2*time.Hour, give(2, 8))}, true, Give{2, 8}, time.Hour, false, clockEvery},
		{"one without an end", []Pause{with(time.Hour, nil), with(0, nil)}, true, Give{}, 0, true, clockEvery},
		{"only that", []Pause{with(0, nil)}, true, Give{}, 0, true, 0},
	}
	for _, tt := range tests {
		s := State{At: noon, Live: tt.live}
		until, forever := s.Until()
		next, ok := s.Next()
		want := time.Time{}
		if tt.until > 0 {
			want = noon.Now.Add(tt.until)
		}
		if s.Frozen() != tt.frozen || s.Give() != tt.give || !until.Equal(want) || forever != tt.forever || ok && next != tt.next || ok != (tt.next > 0) {
			t.Errorf("%s: frozen %v, gives %v, until %v %v, next %v", tt.name, s.Frozen(), s.Give(), until, forever, next)
		}
	}
	out := State{Live: []Pause{{}, {Out: true}}}
	if !out.Out() || new(State).Out() {
		t.Error("jobs are to leave, or not")
	}
}

func TestDecode(t *testing.T) {
	for _, p := range []Pause{For(noon, time.Hour), To(noon, noon.Now.Add(1)), To(noon, time.Time{}),
		{Made: noon.Now, Give: &Give{4, 8 << 30}}, {Made: noon.Now, Out: true, Why: "ana is at the keyboard"}} {
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(b); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s is read as %+v, %v", b, got, err)
		}
	}
	for _, bad := range []string{
		"", "{}", "null", "[]", `{"format":1}`,
		`{"format":2,"made":"2026-11-20T12:00:00Z"}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","untill":"2026-11-20T13:00:00Z"}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","until":"soon"}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","until":"9999-11-20T13:00:00Z"}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","until":"2026-11-20T13:00:00Z","deadline":-1}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","boot":"b1","deadline":5}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","until":"2026-11-20T13:00:00Z","deadline":5}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","give":{}}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","give":{"cpus":-1}}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","give":{"memory":-1}}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","give":{"cpus":1},"out":true}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","why":"\u001b[2J"}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z","why":"` + strings.Repeat("x", maxWhy+1) + `"}`,
		`{"format":1,"made":"2026-11-20T12:00:00Z"}{}`,
	} {
		if p, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, p)
		}
	}
}

func TestOwnerOf(t *testing.T) {
	for name, want := range map[string]int{
		"0.0123456789abcdef": 0, "1000.0123456789abcdef": 1000, "4294967294.0123456789abcdef": 4294967294,
		"01.0123456789abcdef": -1, "-1.0123456789abcdef": -1, "4294967295.0123456789abcdef": -1, ".0123456789abcdef": -1,
		"1000.0123456789ABCDEF": -1, "1000.0123456789abcde": -1, "1000.0123456789abcdef0": -1, "1000": -1, "now.1000.ws1": -1,
	} {
		uid, ok := ownerOf(name)
		if !ok {
			uid = -1
		}
		if uid != want {
			t.Errorf("%q is of %d, want %d", name, uid, want)
		}
	}
}

// here returns a place for pauses, and a function that reads the state of that place.
func here(t *testing.T) (place string, read func() State) {
	t.Helper()
	place = filepath.Join(t.TempDir(), "pause")
	if err := os.Mkdir(place, 0o755); err != nil {
		t.Fatal(err)
	}
	return place, func() State {
		t.Helper()
		s, err := (&Reader{Places: []string{place, filepath.Join(place, "absent")}, Ended: EndedOf(filepath.Dir(place))}).readAt(clock(t))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// clock returns the clock of this machine as if it had started a hundred hours earlier: a
// deadline before the start of the machine is invalid, and tests run right after a start too.
func clock(t *testing.T) Clock {
	t.Helper()
	c, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	c.Uptime += 100 * time.Hour
	return c
}

func put(t *testing.T, place string, p Pause) Pause {
	t.Helper()
	p, err := Put(place, p)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// P70: what was put is there for all who look, whatever became of who put it.
func TestP70PutAndRemove(t *testing.T) {
	place, read := here(t)
	if s := read(); s.Frozen() || len(s.Over)+len(s.Odd) > 0 {
		t.Errorf("of an empty place: %+v", s)
	}
	a := put(t, place, For(clock(t), time.Hour))
	b := put(t, place, For(clock(t), 2*time.Hour))
	s := read()
	if len(s.Live) != 2 || s.Live[0].ID != a.ID || s.Live[1].ID != b.ID || s.Live[0].UID != os.Geteuid() || s.Live[0].Place != place {
		t.Fatalf("read: %+v", s)
	}
	if err := Remove(a); err != nil {
		t.Fatal(err)
	}
	if err := Remove(a); err != nil {
		t.Errorf("removed again: %v", err)
	}
	if s = read(); len(s.Live) != 1 || s.Live[0].ID != b.ID {
		t.Errorf("after the removal of one: %+v", s.Live)
	}
	if s, err := (&Reader{Places: []string{place}, May: func(int) bool { return false }}).readAt(clock(t)); err != nil || s.Frozen() {
		t.Errorf("of one who may not: %+v, %v", s, err)
	}
}

// P78: an operator ends what only its holder could remove.
func TestP78Cease(t *testing.T) {
	place, read := here(t)
	ended := EndedOf(filepath.Dir(place))
	a, b := put(t, place, For(clock(t), time.Hour)), put(t, place, For(clock(t), time.Hour))
	for _, p := range []Pause{a, b} {
		if err := Cease(ended, []string{place}, []string{p.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if s := read(); len(s.Live) != 0 || len(s.Over) != 2 {
		t.Errorf("both were ended: %+v", s)
	}
	Remove(a)
	c := put(t, place, For(clock(t), time.Hour))
	if err := Cease(ended, []string{place}, []string{c.ID}); err != nil {
		t.Fatal(err)
	}
	over, err := readEnded(ended)
	if err != nil || over[a.ID] || !over[b.ID] || !over[c.ID] {
		t.Errorf("ended are %v, %v; of a gone one nothing is kept", over, err)
	}
}

// What somebody else puts there is no pause, and does not keep the rest from
// being read.
func TestHostileFiles(t *testing.T) {
	place, read := here(t)
	good := put(t, place, For(clock(t), time.Hour))
	content, err := os.ReadFile(filepath.Join(place, good.ID))
	if err != nil {
		t.Fatal(err)
	}
	uid := os.Geteuid()
	name := func(n int) string { return filepath.Join(place, fmt.Sprintf("%d.%016x", uid, n)) }
	err = errors.Join(
		unix.Mkfifo(name(1), 0o600),
		os.Symlink(filepath.Join(place, good.ID), name(2)),
		os.Mkdir(name(3), 0o700),
		os.WriteFile(name(4), []byte(strings.Repeat(" ", maxFile+1)), 0o600),
		os.WriteFile(name(5), []byte("\x00\x1b[2J"), 0o600),
		os.WriteFile(filepath.Join(place, fmt.Sprintf("%d.%016x", uid+1, 6)), content, 0o600),
		os.WriteFile(filepath.Join(place, "."+good.ID+".tmp~"), content, 0o600),
		os.WriteFile(filepath.Join(place, "now.1.x"), content, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	s := read()
	if len(s.Live) != 1 || s.Live[0].ID != good.ID || len(s.Over) != 0 || len(s.Odd) != 5 {
		t.Errorf("read: %d live, %d over, odd %v", len(s.Live), len(s.Over), s.Odd)
	}
	link := filepath.Join(filepath.Dir(place), "link")
	if err := os.Symlink(place, link); err != nil {
		t.Fatal(err)
	}
	if s, err := (&Reader{Places: []string{link}}).readAt(clock(t)); err != nil || len(s.Live) != 0 {
		t.Errorf("a place that is a link: %+v, %v", s.Live, err)
	}
}

// No more is read than anybody needs.
func TestManyFiles(t *testing.T) {
	place, read := here(t)
	b, err := Pause{Made: noon.Now}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range maxOfOne + 10 {
		if err := os.WriteFile(filepath.Join(place, fmt.Sprintf("%d.%016x", os.Geteuid(), n)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s := read(); len(s.Live) != maxOfOne {
		t.Errorf("%d are read", len(s.Live))
	}
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can make those of others")
	}
	for uid := range 4 {
		name := filepath.Join(place, fmt.Sprintf("%d.%016x", 61000+uid, 0))
		if err := errors.Join(os.WriteFile(name, b, 0o600), os.Chown(name, 61000+uid, -1)); err != nil {
			t.Fatal(err)
		}
	}
	for all, want := range map[int]int{3: 3, 9: 6} {
		dir, err := openPlace(place)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := candidates(dir, ownerOf, 2, all); err != nil || len(list) != want {
			t.Errorf("of at most %d of all %d are looked at, %v", all, len(list), err)
		}
		dir.Close()
	}
}

// On a full disk a pause is a file without content.
func TestThinPause(t *testing.T) {
	place, read := here(t)
	path := filepath.Join(place, fmt.Sprintf("%d.%016x", os.Geteuid(), 1))
	if err := thin(path, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	s := read()
	until, forever := s.Until()
	if left := time.Until(until); !s.Frozen() || forever || left < 59*time.Minute || left > time.Hour+time.Second {
		t.Errorf("until %v, %v: %+v", until, forever, s)
	}
	if err := thin(path, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.Frozen() || len(s.Over) != 1 {
		t.Errorf("one that is over: %+v", s)
	}
}

func TestTidy(t *testing.T) {
	place, read := here(t)
	c := clock(t)
	live, over, fresh := put(t, place, For(c, time.Hour)), put(t, place, To(c, c.Now.Add(-25*time.Hour))), put(t, place, To(c, c.Now.Add(-23*time.Hour)))
	done := put(t, place, For(c, -time.Hour))
	temp := filepath.Join(place, ".x.0.tmp~")
	young := filepath.Join(place, ".x.1.tmp~")
	for _, name := range []string{temp, young} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(temp, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	s := read()
	Tidy(&s, []string{place})
	var left []string
	entries, err := os.ReadDir(place)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{live.ID, fresh.ID, filepath.Base(young)}
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("%s and %s are over; left are %q, want %q; %v", over.ID, done.ID, left, want, err)
	}
}

// A clock that is ahead for a while, as after a start of the machine, ends no pause for good.
func TestClockAhead(t *testing.T) {
	place, read := here(t)
	c := clock(t)
	p := put(t, place, To(c, c.Now.Add(time.Hour)))
	for ahead, again := range map[time.Duration]bool{2 * time.Hour: true, 24 * time.Hour: true, 26 * time.Hour: false} {
		s, err := (&Reader{Places: []string{place}}).readAt(Clock{c.Now.Add(ahead), time.Second, "next"})
		if err != nil || s.Frozen() {
			t.Errorf("%v ahead: %+v, %v", ahead, s, err)
		}
		if next, ok := s.Next(); ok != again || ok && next != clockEvery {
			t.Errorf("%v ahead: read again after %v, %v", ahead, next, ok)
		}
		if again {
			Tidy(&s, []string{place})
		}
	}
	put(t, place, For(c, -time.Minute)) // which the clock of the boot has ended
	s := read()
	if len(s.Live) != 1 || s.Live[0].ID != p.ID || len(s.Over) != 1 {
		t.Errorf("when the clock is right again: %+v", s)
	}
	s.Live = nil
	if next, ok := s.Next(); ok {
		t.Errorf("one that cannot count again is read again after %v", next)
	}
}

func TestNow(t *testing.T) {
	place, _ := here(t)
	c := clock(t)
	patience := 14400.0
	want := Now{Node: "ws3", Head: "tls://head.lab", Dir: "/var/lib/distribute/node", CPUs: 16, Patience: &patience, PID: 77, Start: 5, Boot: c.Boot, Owners: []int{}, // none is found, which is not everybody
		Running: []Running{{Job: "maria/cavity/a", User: "maria", CPUs: 4, Cgroup: "/sys/fs/cgroup/x", PID: 78, Start: 6}, {User: "ana", CPUs: 1, PID: 79}}}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := PutNow(place, &want); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(place, "now.1.ws4"), b, 0o644)
	os.WriteFile(filepath.Join(place, nowName(os.Geteuid(), "ws5", "/d")), []byte("{}"), 0o644)
	got := ReadNow(c, []string{place, filepath.Dir(place)})
	want.Format, want.UID, want.Place = Format, os.Geteuid(), place
	if len(got) != 1 {
		t.Fatalf("read: %+v", got)
	}
	got[0].said = time.Time{}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("read: %+v", got)
	}
	if d, forever := got[0].Waits(); d != 4*time.Hour || forever {
		t.Errorf("it waits %v, %v", d, forever)
	}
	if got := ReadNow(Clock{Boot: "another"}, []string{place}); len(got) != 0 {
		t.Errorf("of another boot: %+v", got)
	}
	if err := RemoveNow(place, want.Dir); err != nil || len(ReadNow(c, []string{place})) != 0 {
		t.Errorf("removed: %v", err)
	}
}

// P70: what somebody else has put where a node says what it runs keeps that from
// being read, now and when it is said anew.
func TestP70NowTaken(t *testing.T) {
	place, _ := here(t)
	c := clock(t)
	theirs := filepath.Join(place, nowName(os.Geteuid(), "ws3", "/d"))
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, 1, 1); err != nil {
		suite.Missing(t, fmt.Sprint("only root can make what is another's: ", err))
	}
	for cpus := range 3 {
		n := Now{Node: "ws3", Dir: "/d", CPUs: cpus, PID: 77, Boot: c.Boot}
		if err := PutNow(place, &n); err != nil {
			t.Fatal(err)
		}
		if got := ReadNow(c, []string{place}); len(got) != 1 || got[0].CPUs != cpus {
			t.Errorf("%d cpus: %+v", cpus, got)
		}
		if got, err := OwnNow(place, "/d"); err != nil || got.CPUs != cpus {
			t.Errorf("%d cpus: %+v, %v", cpus, got, err)
		}
	}
	if err := RemoveNow(place, "/d"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(place); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A node is its user and its directory: another node of the user has a file of its own, also if
// it has the same name, and a node with another name has only one.
func TestNowOfDirectory(t *testing.T) {
	place, _ := here(t)
	c := clock(t)
	put := func(node, dir string, pid, cpus int) {
		t.Helper()
		if err := PutNow(place, &Now{Node: node, Dir: dir, CPUs: cpus, PID: pid, Boot: c.Boot}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		var got []string
		for _, n := range ReadNow(c, []string{place}) {
			got = append(got, fmt.Sprintf("%s %s %d", n.Node, n.Dir, n.CPUs))
		}
		slices.Sort(got)
		slices.Sort(want)
		files, err := filepath.Glob(filepath.Join(place, "now.*"))
		if err != nil || !slices.Equal(got, want) || len(files) != len(want) {
			t.Errorf("got %q in %q, want %q; %v", got, files, want, err)
		}
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	one, two, me := t.TempDir(), t.TempDir(), os.Getpid()
	put("ws3", one, me, 1)
	put("ws3", two, me, 2)
	check("ws3 "+one+" 1", "ws3 "+two+" 2")
	put("ws3", one, me, 3)
	if n, err := OwnNow(place, one); err != nil || n.CPUs != 3 {
		t.Errorf("own: %+v, %v", n, err)
	}
	put("ws4", one, me, 4)
	check("ws3 "+two+" 2", "ws4 "+one+" 4")
	if n, err := OwnNow(place, two); err != nil || n.CPUs != 2 {
		t.Errorf("own: %+v, %v", n, err)
	}
	if err := RemoveNow(place, one); err != nil {
		t.Fatal(err)
	}
	check("ws3 " + two + " 2")
	// What nodes that are gone have left is removed: each drun has a directory of its own, and
	// leaves it behind when it is killed.
	for range 2 * maxNowsOne {
		put("ws3", t.TempDir(), ended.Process.Pid, 5)
	}
	put("ws3", "/gone", ended.Process.Pid, 5)
	put("ws3", "/hidden", me, 6)
	running := Now{Node: "ws3", Dir: "/runs", CPUs: 7, PID: ended.Process.Pid, Boot: c.Boot, Running: []Running{{User: "u", PID: me}}}
	if err := PutNow(place, &running); err != nil {
		t.Fatal(err)
	}
	before := Now{Node: "ws3", Dir: t.TempDir(), Boot: "another"}
	b, err := before.Encode()
	if err := errors.Join(err, os.WriteFile(filepath.Join(place, nowName(os.Geteuid(), "ws3", before.Dir)), b, 0o644)); err != nil {
		t.Fatal(err)
	}
	put("ws3", one, me, 8)
	check("ws3 /hidden 6", "ws3 /runs 7", "ws3 "+one+" 8", "ws3 "+two+" 2")
}

// What was known of a place that cannot be read holds until its time is over, and
// no longer; of the others what they say.
func TestKeep(t *testing.T) {
	c := Clock{Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Uptime: time.Hour, Boot: "b"}
	at := func(p Pause, place, id string) Pause {
		p.Place, p.ID = place, id
		return p
	}
	lost, gone := at(For(c, time.Hour), "/lost", "1.a"), at(For(c, time.Hour), "/read", "1.b")
	before := State{At: c, Live: []Pause{lost, gone}}
	now := c
	now.Now, now.Uptime = c.Now.Add(time.Minute), c.Uptime+time.Minute
	for _, tt := range []struct {
		what string
		s    State
		want []string
	}{
		{"nothing is lost", State{At: now}, nil},
		{"one is lost", State{At: now, Lost: []string{"/lost"}}, []string{"1.a"}},
		{"it was read in part", State{At: now, Lost: []string{"/lost"}, Live: []Pause{lost}}, []string{"1.a"}},
		{"it was ended in what was read", State{At: now, Lost: []string{"/lost"}, Over: []Pause{lost}}, nil},
		{"another began", State{At: now, Lost: []string{"/lost"}, Live: []Pause{at(For(now, time.Hour), "/read", "1.c")}}, []string{"1.a", "1.c"}},
	} {
		var ids []string
		for _, p := range tt.s.keep(before).Live {
			ids = append(ids, p.ID)
		}
		if !slices.Equal(ids, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, ids, tt.want)
		}
	}
	now.Now, now.Uptime = c.Now.Add(2*time.Hour), c.Uptime+2*time.Hour
	if s := (State{At: now, Lost: []string{"/lost"}}).keep(before); len(s.Live) > 0 {
		t.Errorf("after its time: %v", s.Live)
	}
}

// What an attempt stands still by is not lost where the disk takes no more: it is not
// written again, and only made durable.
func TestPutForOnAFullDisk(t *testing.T) {
	place := t.TempDir()
	token := "00112233445566778899aabbccddeeff"
	p := Pause{Made: clock(t).Now, Attempt: token}
	if err := PutFor(place, p); err != nil {
		t.Fatal(err)
	}
	synced := 0
	defer durable.Observe(&durable.Observer{
		Step: func(string) error { return unix.ENOSPC },
		Sync: func(*os.File, bool) error { synced++; return nil },
	})()
	if err := PutFor(place, p); err != nil || synced != 2 {
		t.Errorf("put again: %v, %d syncs", err, synced)
	}
	if err := PutFor(place, Pause{Made: p.Made, Attempt: token[:16] + token[:16]}); !durable.NoRoom(err) {
		t.Errorf("of another attempt with the same name: %v", err)
	}
	if s, err := (&Reader{Places: []string{place}}).readAt(clock(t)); err != nil || !s.For(token).Frozen() {
		t.Errorf("after that: %+v, %v", s, err)
	}
}

// A pause of one attempt is no pause of the machine, counts for that attempt beside
// those of the machine, and is put and removed by its name.
func TestPauseOfAnAttempt(t *testing.T) {
	place := t.TempDir()
	token, other := "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"
	c, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	read := func() State {
		t.Helper()
		s, err := (&Reader{Places: []string{place}}).readAt(c)
		if err != nil || len(s.Odd) > 0 {
			t.Fatal(err, s.Odd)
		}
		return s
	}
	for range 2 { // the second changes nothing
		if err := PutFor(place, Pause{Made: c.Now, Attempt: token}); err != nil {
			t.Fatal(err)
		}
	}
	s := read()
	if s.Frozen() || len(s.Of) != 1 || !s.For(token).Frozen() || s.For(other).Frozen() || s.For("").Frozen() {
		t.Errorf("with the pause of one: %+v", s)
	}
	lost := State{At: c, Lost: []string{place}}.keep(s)
	if !lost.For(token).Frozen() || lost.Frozen() {
		t.Errorf("where the place cannot be read: %+v", lost)
	}
	p, err := Put(place, To(c, time.Time{}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveFor(place, token); err != nil {
			t.Fatal(err)
		}
	}
	if s := read(); !s.Frozen() || len(s.Of) != 0 || !s.For(token).Frozen() {
		t.Errorf("with a pause of the machine: %+v", s)
	}
	if err := Remove(p); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.For(token).Frozen() {
		t.Errorf("with none: %+v", s)
	}
	if err := PutFor(place, Pause{Made: c.Now, Attempt: token, Out: true}); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.Out() || !s.For(token).Out() || s.For("another").Out() {
		t.Errorf("with an attempt that is to leave: %+v", s)
	}
	for _, bad := range []Pause{{Made: c.Now, Attempt: "x"},
		{Made: c.Now, Attempt: token, Give: &Give{CPUs: 1}}, {Made: c.Now, Attempt: token, Until: c.Now}} {
		if err := PutFor(place, bad); err == nil {
			t.Errorf("%+v is put", bad)
		}
	}
}
