package presence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A tree is a machine made of files.
type tree struct {
	*testing.T
	root   string
	now    Moment
	Config Config
	w      *Watcher
	logged []string
}

func newTree(t *testing.T, sources ...string) *tree {
	f := &tree{T: t, root: t.TempDir(), now: Moment{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), 10 * time.Hour}}
	f.Config = Config{AutoPause: 15 * time.Minute, Sources: sources}
	f.write("/proc/interrupts", "           CPU0       CPU1\n")
	f.stat(0)
	for _, dir := range []string{"/dev/pts", "/run/systemd/seats", "/bin", "/sys"} {
		if err := os.MkdirAll(f.root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.w = New(f.Config, Host{Root: f.root, Path: f.root + "/bin", Clock: func() (Moment, error) { return f.now, nil },
		Name: func(uid int) string { return "ana" },
		Log:  func(source string, err error) { f.logged = append(f.logged, source+": "+err.Error()) }})
	return f
}

func (f *tree) write(name, text string) {
	f.Helper()
	if err := os.MkdirAll(filepath.Dir(f.root+name), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(f.root+name, []byte(text), 0o755); err != nil {
		f.Fatal(err)
	}
}

// pass lets time go by.
func (f *tree) pass(d time.Duration) {
	f.now.Now, f.now.Uptime = f.now.Now.Add(d), f.now.Uptime+d
}

// typed has a terminal be read from so long ago.
func (f *tree) typed(name string, ago time.Duration) {
	f.Helper()
	if _, err := os.Stat(f.root + name); err != nil {
		f.write(name, "")
	}
	at := f.now.Now.Add(-ago)
	if err := os.Chtimes(f.root+name, at, at); err != nil {
		f.Fatal(err)
	}
}

// stat is what all cpus have done, in ticks.
func (f *tree) stat(user int) {
	f.write("/proc/stat", fmt.Sprintf("cpu  %d 0 0 5000 7 8 9 10 0 0\ncpu0 1\n", user))
}

// process is one of the machine, with what it and its own have done.
func (f *tree) process(pid int, name string, parent, ticks int) {
	f.write(fmt.Sprintf("/proc/%d/stat", pid), fmt.Sprintf("%d (%s) S %d 1 1 0 -1 0 0 0 0 0 %d 1 1 1 20 0 1 0 77 0 0\n", pid, name, parent, ticks-3))
}

// look expects a verdict that contains a text; empty is nobody.
func (f *tree) look(want string) {
	f.Helper()
	v, err := f.w.Look(context.Background(), false)
	if err != nil || v.Here != (want != "") || !strings.Contains(v.What, want) {
		f.Errorf("%+v, %v; want %q\n%+v", v, err, want, f.w.Say())
	}
}

func TestTerminals(t *testing.T) {
	f := newTree(t, Terminals)
	f.look("")
	f.typed("/dev/pts/3", 20*time.Minute)
	f.typed("/dev/pts/ptmx", 0)
	f.typed("/dev/ttyS0", 0)
	f.look("")
	f.typed("/dev/pts/11", 14*time.Minute)
	f.look("somebody is active: terminal pts/11 (ana)")
	f.pass(time.Minute)
	f.look("")
	f.typed("/dev/pts/3", 0)
	f.look("terminal pts/3")
	// One that is closed has been typed at all the same.
	os.Remove(f.root + "/dev/pts/3")
	f.pass(14 * time.Minute)
	f.look("terminal pts/3")
	f.pass(time.Minute)
	f.look("")
	// The clock is set back: what changes is somebody, what stays is not.
	f.typed("/dev/pts/11", -time.Hour)
	f.look("terminal pts/11")
	f.pass(15 * time.Minute)
	f.look("")
	f.typed("/dev/pts/11", -time.Hour)
	f.look("terminal pts/11")
	// A console of root's that was never typed at is as old as the machine's run.
	g := newTree(t, Terminals)
	if os.Geteuid() == 0 {
		g.typed("/dev/tty17", 0) // its change is later
		g.look("")
		at := time.Now().Add(time.Hour)
		if err := os.Chtimes(g.root+"/dev/tty17", at, at); err != nil {
			t.Fatal(err)
		}
		g.look("terminal tty17")
		if err := os.Chown(g.root+"/dev/tty17", 1000, -1); err != nil {
			t.Fatal(err)
		}
	}
	g.typed("/dev/tty17", time.Minute)
	g.look("terminal tty17")
	// What is no directory cannot be read.
	h := newTree(t, Terminals)
	os.Remove(h.root + "/dev/pts")
	h.write("/dev/pts", "")
	h.look("somebody may be active: no source can be read")
}

const interrupts = `           CPU0       CPU1
  1:         %d          5   IO-APIC    1-edge      i8042
  8:          0          1   IO-APIC    8-edge      rtc0
 12:          0         11   IO-APIC   12-edge      i8042
 36:       1000       %d   PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 51:          %d        0   intel-gpio    3  ELAN1200:00
 52:          9        0   intel-gpio    4  ELAN9999:00
NMI:          0          0   Non-maskable interrupts
ERR:          0
`

func TestInput(t *testing.T) {
	f := newTree(t, Input)
	f.look("somebody may be active: no source can be read")
	at := func(keys, disk, touches int) {
		f.write("/proc/interrupts", fmt.Sprintf(interrupts, keys, disk, touches))
	}
	hid := f.root + "/sys/bus/hid/devices"
	if err := os.MkdirAll(hid, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../devices/pci0000:00/i2c_designware.0/i2c-0/i2c-ELAN1200:00/0018:04F3:300F.0001", hid+"/0018:04F3:300F.0001"); err != nil {
		t.Fatal(err)
	}
	at(1, 1, 1)
	f = &tree{T: t, root: f.root, now: f.now}
	f.w = New(Config{AutoPause: 15 * time.Minute, Sources: []string{Input}}, Host{Root: f.root, Clock: func() (Moment, error) { return f.now, nil }})
	f.look("")
	at(1, 999, 1)
	f.look("")
	at(2, 999, 1)
	f.look("input i8042 1")
	f.pass(15 * time.Minute)
	f.look("")
	at(2, 999, 2)
	f.look("input ELAN1200:00 51")
	f.pass(15 * time.Minute)
	f.look("")
	usb := func(device, classes string, urbs int) {
		f.write("/sys/bus/usb/devices/"+device+"/urbnum", fmt.Sprintln(urbs))
		for i, class := range strings.Fields(classes) {
			at := fmt.Sprintf("/sys/bus/usb/devices/%s:1.%d/", device, i)
			f.write(at+"bInterfaceClass", class+"\n")
			if class == "03" {
				f.write(at+"0003:046D:C31C.0002/input/input7/name", "keyboard\n")
			}
		}
	}
	usb("1-2", "03 ff 03", 100)
	f.look("input usb 1-2")
	f.pass(15 * time.Minute)
	// A disk, a headset with buttons, and what measures: not for hands, or not alone.
	usb("1-3", "08", 5)
	usb("1-4", "03 01 01", 5)
	usb("1-5", "03", 5)
	os.RemoveAll(f.root + "/sys/bus/usb/devices/1-5:1.0/0003:046D:C31C.0002")
	f.look("")
	usb("1-3", "08", 50)
	usb("1-4", "03 01 01", 50)
	usb("1-5", "03", 50)
	os.RemoveAll(f.root + "/sys/bus/usb/devices/1-5:1.0/0003:046D:C31C.0002")
	f.look("")
	usb("1-2", "03 ff 03", 101)
	f.look("input usb 1-2")
	os.RemoveAll(f.root + "/sys/bus/usb/devices/1-2")
	f.pass(15 * time.Minute)
	f.look("")
	f.write("/sys/bus/usb/devices/1-2/urbnum", "many\n")
	f.write("/sys/bus/usb/devices/1-9/urbnum", "1\n")
	f.look("somebody may be active")
}

func TestLoad(t *testing.T) {
	f := newTree(t, Load)
	f.look("") // nothing is known yet
	f.process(1, "init", 0, 500)
	f.process(10, "dnoded", 1, 100)
	f.process(11, "dnoded-slot", 10, 100)
	f.process(12, "a job) S 1 (", 11, 100)
	f.process(20, "dnoded-slot+", 1, 100)
	f.process(21, "sh", 20, 100)
	f.process(30, "firefox", 1, 100)
	f.pass(time.Minute)
	f.look("")
	// A minute of two cpus, all of it ours.
	f.stat(12000)
	f.process(12, "a job) S 1 (", 11, 6100)
	f.process(21, "sh", 20, 6100)
	f.pass(30 * time.Second)
	f.look("")
	f.pass(30 * time.Second)
	f.look("")
	// A job has ended, and its supervisor has reaped it.
	os.RemoveAll(f.root + "/proc/12")
	f.process(11, "dnoded-slot", 10, 6200)
	f.stat(12000 + 2900)
	f.pass(time.Minute)
	f.look("")
	f.stat(12000 + 2900 + 3000)
	f.pass(time.Minute)
	f.look("load of 0.5 cpus that is not ours")
	f.pass(15 * time.Minute)
	f.stat(12000 + 2900 + 3000 + 15*6000)
	f.look("") // the machine slept, or it was not looked: that tells nothing of now
	// A supervisor of an earlier daemon ends: what it did since is not known.
	f.pass(time.Minute)
	os.RemoveAll(f.root + "/proc/20")
	f.stat(12000 + 2900 + 3000 + 16*6000)
	f.look("")
	f.write("/proc/stat", "intr 7\n")
	f.pass(time.Minute)
	f.look("somebody may be active")
}

// loginctl is one that shows a session of these properties, and counts how often it
// is asked.
func (f *tree) loginctl(properties string) {
	f.write("/bin/loginctl", "#!/bin/sh\n"+`case $1 in
list-sessions) echo x >>'`+f.root+`/asked'; echo '   7 1000 ana seat0 tty2'; echo '  c1 0 - - -'; echo ' -x evil';;
show-session) case " $* " in *' 7 c1 '*) ;; *) exit 1;; esac
cat <<'END'
Id=c1
Class=greeter
Type=wayland
State=active
Active=yes
IdleHint=no

`+properties+`
END
esac
`)
}

func (f *tree) since(ago time.Duration) string {
	return fmt.Sprintf("IdleSinceHint=%d", f.now.Now.Add(-ago).UnixMicro())
}

func TestLogind(t *testing.T) {
	desktop := []string{"Id=7", "Name=ana", "Class=user", "Type=wayland", "Seat=seat0", "State=active", "Active=yes", "IdleHint=no", "IdleSinceHint=0", "LockedHint=no"}
	changed := func(with ...string) string {
		p := slices.Clone(desktop)
		for _, w := range with {
			name, _, _ := strings.Cut(w, "=")
			p = append(slices.DeleteFunc(p, func(old string) bool { return strings.HasPrefix(old, name+"=") }), w)
		}
		return strings.Join(p, "\n")
	}
	f := newTree(t, Logind)
	tests := map[string]struct{ shown, want string }{
		"in use":              {changed(), "somebody is active: session 7 (ana, wayland)"},
		"locked":              {changed("LockedHint=yes"), ""},
		"idle for long":       {changed("IdleHint=yes", f.since(15*time.Minute)), ""},
		"idle for a while":    {changed("IdleHint=yes", f.since(14*time.Minute)), "session 7"},
		"another in front":    {changed("Active=no"), ""},
		"remote desktop":      {changed("Active=no", "Seat="), "session 7"},
		"closing":             {changed("State=closing"), ""},
		"a cron job":          {changed("Class=background"), ""},
		"lock screen":         {changed("Class=lock-screen"), ""},
		"console":             {changed("Type=tty", "TTY=tty2", f.since(time.Minute)), "session 7 (ana, tty2)"},
		"console of long ago": {changed("Type=tty", "TTY=tty2", f.since(time.Hour)), ""},
		"ssh, no terminal":    {changed("Type=tty", "Seat=", "Remote=yes"), ""},
		"nothing":             {"", ""},
	}
	for name, tt := range tests {
		f := newTree(t, Logind)
		f.loginctl(tt.shown)
		v, err := f.w.Look(t.Context(), true)
		if err != nil || v.Here != (tt.want != "") || !strings.HasPrefix(v.What, "somebody") == v.Here || !strings.Contains(v.What, tt.want) || len(f.logged) > 0 {
			t.Errorf("%s: %+v, %v, %q", name, v, err, f.logged)
		}
	}
}

// Without logind, and with one that does not answer.
func TestLogindAway(t *testing.T) {
	f := newTree(t, Logind, Terminals)
	f.look("")
	os.Remove(f.root + "/run/systemd/seats")
	f.loginctl("")
	f.pass(time.Minute)
	f.look("")
	if want := []string{"logind: loginctl is not installed", "logind: logind does not run"}; !slices.Equal(f.logged, want) {
		t.Errorf("logged: %q", f.logged)
	}
	if err := os.Mkdir(f.root+"/run/systemd/seats", 0o755); err != nil {
		t.Fatal(err)
	}
	f.write("/bin/loginctl", "#!/bin/sh\necho 'System has not been booted with systemd as init system (PID 1). Can'\\''t operate.' >&2\nexit 1\n")
	f.pass(time.Minute)
	f.look("")
	if last := f.logged[len(f.logged)-1]; len(f.logged) != 2 || last != "logind: logind does not run" {
		t.Errorf("logged: %q", f.logged)
	}
	f.write("/bin/loginctl", "#!/bin/sh\necho 'Could not get sessions: Connection timed out' >&2\nexit 1\n")
	f.typed("/dev/pts/1", 0)
	f.pass(time.Minute)
	f.look("terminal pts/1") // and logind is not asked
	f.pass(15 * time.Minute)
	f.look("")
	f.typed("/dev/pts/1", 0)
	f.look("somebody is active: terminal pts/1 (ana) (not read: logind)")
	if last := f.logged[len(f.logged)-1]; last != "logind: loginctl: Could not get sessions: Connection timed out" {
		t.Errorf("logged: %q", f.logged)
	}
	// Alone it is somebody.
	g := newTree(t, Logind)
	g.look("somebody may be active: no source can be read")
}

// How often logind is asked.
func TestLogindSeldom(t *testing.T) {
	f := newTree(t, Logind, Terminals)
	f.loginctl("")
	asked := func(want int) {
		t.Helper()
		b, _ := os.ReadFile(f.root + "/asked")
		if n := strings.Count(string(b), "x"); n != want {
			t.Errorf("it was asked %d times, want %d", n, want)
		}
	}
	for range 16 { // half a minute
		f.look("")
		f.pass(2 * time.Second)
	}
	asked(2)
	f.typed("/dev/pts/0", 0)
	for range 10 {
		f.pass(time.Minute)
		f.look("terminal")
	}
	asked(2)
	f.pass(10 * time.Minute)
	f.look("")
	asked(3)
	f.w.Look(t.Context(), true)
	asked(3)
	f.pass(5 * time.Second)
	f.w.Look(t.Context(), true)
	asked(4)
}

// What several say together.
func TestDecide(t *testing.T) {
	m := Moment{Uptime: time.Hour}
	broken := errors.New("broken")
	ago := func(source string, d time.Duration) Reading {
		return Reading{Source: source, Seen: true, Last: time.Hour - d, What: source}
	}
	tests := []struct {
		readings []Reading
		want     string // empty: nobody
	}{
		{nil, "somebody may be active: no source can be read"},
		{[]Reading{{Err: broken}, {Err: ErrAbsent}}, "somebody may be active: no source can be read"},
		{[]Reading{{Err: broken}, {Source: "b"}}, ""},
		{[]Reading{ago("a", time.Minute), ago("b", time.Second)}, "somebody is active: b"},
		{[]Reading{ago("a", time.Minute), ago("b", 20*time.Minute)}, "somebody is active: a"},
		{[]Reading{ago("a", 15*time.Minute), {Source: "b"}}, ""},
		{[]Reading{ago("a", 0), {Source: "b", Err: broken}, {Source: "c", Err: ErrAbsent}}, "somebody is active: a (not read: b)"},
	}
	for _, tt := range tests {
		if v := decide(m, 15*time.Minute, tt.readings); v.What != tt.want || v.Here != (tt.want != "") {
			t.Errorf("%+v: %+v", tt.readings, v)
		}
	}
}

// A whole day with the clock that everything else has.
func TestDay(t *testing.T) {
	f := newTree(t, Terminals)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := New(f.Config, Host{Root: f.root, Clock: func() (Moment, error) { return Moment{time.Now(), time.Hour + time.Since(began)}, nil }})
		pts := f.root + "/dev/pts/0"
		if err := os.WriteFile(pts, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var told []string
		here := false
		for time.Since(began) < 24*time.Hour {
			hour := time.Since(began) / time.Hour
			if hour >= 8 && hour < 12 || hour >= 13 && hour < 18 {
				if err := os.Chtimes(pts, time.Now(), time.Now()); err != nil {
					t.Fatal(err)
				}
			} else if hour < 8 {
				os.Chtimes(pts, began.Add(-time.Hour), began.Add(-time.Hour))
			}
			v, err := w.Look(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if v.Here != here {
				here = v.Here
				told = append(told, fmt.Sprint(time.Since(began), " ", here))
			}
			time.Sleep(10 * time.Second)
		}
		if want := []string{"8h0m0s true", "12h14m50s false", "13h0m0s true", "18h14m50s false"}; !slices.Equal(told, want) {
			t.Errorf("%q", told)
		}
	})
}

// What an earlier daemon knew.
func TestRecall(t *testing.T) {
	f := newTree(t, Input)
	f.write("/proc/interrupts", fmt.Sprintf(interrupts, 1, 1, 1))
	f.w.Recall(f.now.Uptime)
	f.look("somebody is active: before dnoded was started")
	f.pass(15 * time.Minute)
	f.look("")
}

// This machine can be read.
func TestThisMachine(t *testing.T) {
	w := New(Config{AutoPause: time.Minute}, Host{})
	if _, err := w.Look(t.Context(), true); err != nil {
		t.Error(err)
	}
	for _, s := range w.Say() {
		if s.Source == Load && strings.Contains(s.Text, "cannot") || s.Source == Terminals && strings.Contains(s.Text, "cannot") {
			t.Errorf("%+v", s)
		}
	}
}
