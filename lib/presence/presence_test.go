package presence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A tree is a machine made of files.
type tree struct {
	*testing.T
	root   string
	now    Moment
	w      *Watcher
	logged bytes.Buffer
}

// newTree makes one with no input devices, on which nobody works, whose Watcher has an
// auto_pause of 15 minutes and goes by the sources.
func newTree(t *testing.T, sources ...string) *tree {
	f := &tree{T: t, root: t.TempDir(), now: Moment{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), 10 * time.Hour}}
	f.write("/proc/interrupts", "           CPU0       CPU1\n")
	f.stat(0)
	for _, dir := range []string{"/dev/pts", "/run/systemd/seats", "/bin", "/sys"} {
		if err := os.MkdirAll(f.root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", f.root+"/bin")
	f.w = New(Config{AutoPause: 15 * time.Minute, Sources: sources}, Host{
		Root: f.root, Name: func(int) string { return "ana" }, Clock: func() Moment { return f.now },
		Log: slog.New(slog.NewTextHandler(&f.logged, nil)),
	})
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

// pass lets time go by, also while the machine sleeps.
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

// look expects a reason to pause that contains a text; empty is none.
func (f *tree) look(want string) {
	f.Helper()
	if why := f.w.Look(f.Context()); (why != "") != (want != "") || !strings.Contains(why, want) {
		f.Errorf("%q; want %q\n%+v", why, want, f.w.Answers())
	}
}

func TestTerminals(t *testing.T) {
	f := newTree(t, "terminals")
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
	g := newTree(t, "terminals")
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
	h := newTree(t, "terminals")
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
	f := newTree(t, "input")
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
	f.look("input ELAN1200:00 51") // a driver was loaded
	f.pass(15 * time.Minute)
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
	f := newTree(t, "load")
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
	f.pass(8 * time.Hour) // the machine sleeps
	f.stat(12000 + 2900 + 3000 + 6000)
	f.look("")
	// A supervisor of an earlier daemon ends: what it did since is not known.
	f.pass(time.Minute)
	os.RemoveAll(f.root + "/proc/20")
	f.stat(12000 + 2900 + 3000 + 4*6000)
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

func TestLogind(t *testing.T) {
	desktop := []string{"Id=7", "Name=ana", "Class=user", "Type=wayland", "Seat=seat0", "State=active", "Active=yes", "IdleHint=no", "IdleSinceHint=0", "LockedHint=no"}
	since := func(ago time.Duration) string {
		return fmt.Sprintf("IdleSinceHint=%d", newTree(t).now.Now.Add(-ago).UnixMicro())
	}
	tests := map[string]struct {
		with []string // in the place of what desktop has
		want string
	}{
		"in use":              {nil, "somebody is active: session 7 (ana, wayland)"},
		"locked":              {[]string{"LockedHint=yes"}, ""},
		"idle for long":       {[]string{"IdleHint=yes", since(15 * time.Minute)}, ""},
		"idle for a while":    {[]string{"IdleHint=yes", since(14 * time.Minute)}, "session 7"},
		"another in front":    {[]string{"Active=no"}, ""},
		"remote desktop":      {[]string{"Active=no", "Seat="}, "session 7"},
		"closing":             {[]string{"State=closing"}, ""},
		"a cron job":          {[]string{"Class=background"}, ""},
		"lock screen":         {[]string{"Class=lock-screen"}, ""},
		"console":             {[]string{"Type=tty", "TTY=tty2", since(time.Minute)}, "session 7 (ana, tty2)"},
		"console of long ago": {[]string{"Type=tty", "TTY=tty2", since(time.Hour)}, ""},
		"ssh, no terminal":    {[]string{"Type=tty", "Seat=", "Remote=yes"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			shown := slices.Clone(desktop)
			for _, with := range tt.with {
				name, _, _ := strings.Cut(with, "=")
				shown = append(slices.DeleteFunc(shown, func(old string) bool { return strings.HasPrefix(old, name+"=") }), with)
			}
			f := newTree(t, "logind")
			f.loginctl(strings.Join(shown, "\n"))
			f.look(tt.want)
			if f.logged.Len() > 0 {
				t.Errorf("logged: %s", &f.logged)
			}
		})
	}
}

// The clock is set back: of the times to come only one that changes is somebody.
func TestLogindSetBack(t *testing.T) {
	for _, kind := range []string{"tty", "wayland"} {
		f := newTree(t, "logind")
		at := f.now.Now.Add(2 * time.Hour)
		for range 2 {
			f.loginctl(fmt.Sprintf("Id=7\nName=ana\nClass=user\nType=%s\nSeat=seat0\nActive=yes\nIdleHint=yes\nIdleSinceHint=%d", kind, at.UnixMicro()))
			f.pass(30 * time.Second)
			f.look("session 7")
			f.pass(15 * time.Minute)
			f.look("")
			at = at.Add(time.Minute)
		}
	}
}

// Somebody who comes back after the time of auto_pause is told from one who stayed, also if nobody
// looked meanwhile.
func TestReturned(t *testing.T) {
	f := newTree(t, "terminals")
	for _, tt := range []struct {
		pass time.Duration
		want bool
	}{{0, false}, {14 * time.Minute, false}, {15 * time.Minute, true}, {time.Minute, false}} {
		f.pass(tt.pass)
		f.typed("/dev/pts/3", 0)
		f.look("somebody is active")
		if got := f.w.Returned(); got != tt.want {
			t.Errorf("after %v: %v", tt.pass, got)
		}
	}
	f.look("somebody is active")
	if f.w.Returned() {
		t.Error("at the next look")
	}
}

// Somebody who stays has not come back if a source is asked as seldom as auto_pause, or could not be
// read for that time.
func TestReturnedStays(t *testing.T) {
	f := newTree(t, "logind")
	f.w.idle = 30 * time.Second
	works := "Id=7\nName=ana\nClass=user\nType=wayland\nSeat=seat0\nActive=yes\nIdleHint=no\nIdleSinceHint=0"
	f.loginctl(works)
	look := func(pass time.Duration, why string) {
		t.Helper()
		f.pass(pass)
		f.look(why)
		if f.w.Returned() {
			t.Error("somebody came back")
		}
	}
	look(0, "somebody is active")
	look(30*time.Second, "somebody is active")
	f.write("/bin/loginctl", "#!/bin/sh\nexit 1\n")
	look(30*time.Second, "somebody may be active")
	look(time.Hour, "somebody may be active")
	f.loginctl(works)
	look(time.Hour, "somebody is active")
}

// A source that is not there or fails is logged once for each reason, and one that
// fails is in the reason of the pause.
func TestLogindAway(t *testing.T) {
	f := newTree(t, "logind", "terminals")
	look := func(want, logged string) {
		t.Helper()
		f.pass(30 * time.Second)
		f.logged.Reset()
		f.look(want)
		if (f.logged.Len() > 0) != (logged != "") || !strings.Contains(f.logged.String(), logged) {
			t.Errorf("logged: %s; want %s", &f.logged, logged)
		}
	}
	look("", "loginctl is not installed")
	look("", "")
	f.loginctl("")
	os.Remove(f.root + "/run/systemd/seats")
	look("", "logind does not run")
	os.Mkdir(f.root+"/run/systemd/seats", 0o755)
	f.write("/bin/loginctl", "#!/bin/sh\necho 'System has not been booted with systemd as init system (PID 1).' >&2\nexit 1\n")
	look("", "") // for the same reason
	f.write("/bin/loginctl", "#!/bin/sh\necho 'Could not get sessions: Connection timed out' >&2\nexit 1\n")
	look("", "loginctl: Could not get sessions: Connection timed out")
	f.typed("/dev/pts/1", 0)
	look("somebody is active: terminal pts/1 (ana) (not read: logind)", "")
	f.write("/bin/loginctl", "#!/bin/sh\nexec sleep 60\n")
	defer func(d time.Duration) { answerWithin = d }(answerWithin)
	answerWithin = 10 * time.Millisecond
	look("(not read: logind)", "loginctl does not answer")
	f.pass(15 * time.Minute)
	look("", "")
}

func TestLogindEvery30Seconds(t *testing.T) {
	f := newTree(t, "logind")
	f.loginctl("")
	for range 16 {
		f.look("")
		f.pass(2 * time.Second)
	}
	if b, _ := os.ReadFile(f.root + "/asked"); strings.Count(string(b), "x") != 2 {
		t.Errorf("asked in 32 seconds: %q", b)
	}
}

// fake is a source that says always the same.
type fake struct {
	sighting
	err error
}

func (s fake) look(context.Context, Moment) (sighting, error) { return s.sighting, s.err }

// The source that saw somebody last decides. If none can be read, somebody is there.
func TestSourcesTogether(t *testing.T) {
	broken := fake{err: errors.New("broken")}
	none := fake{err: absent("none")}
	nobody := fake{}
	ago := func(d time.Duration) fake { return fake{sighting: sighting{time.Hour - d, d.String()}} }
	for _, tt := range []struct {
		sources []source
		want    string
	}{
		{[]source{broken, none}, "somebody may be active: no source can be read"},
		{[]source{broken, nobody}, ""},
		{[]source{ago(time.Minute), ago(time.Second)}, "somebody is active: 1s"},
		{[]source{ago(time.Minute), ago(20 * time.Minute)}, "somebody is active: 1m0s"},
		{[]source{ago(15 * time.Minute), nobody}, ""},
		{[]source{ago(-time.Minute), broken, none}, "somebody is active: -1m0s (not read: 1)"},
	} {
		w := New(Config{}, Host{Clock: func() Moment { return Moment{Uptime: time.Hour} }})
		w.idle = 15 * time.Minute
		for i, s := range tt.sources {
			w.sources = append(w.sources, &asked{source: s, name: fmt.Sprint(i)})
		}
		if why := w.Look(t.Context()); why != tt.want {
			t.Errorf("%+v: %q, want %q", tt.sources, why, tt.want)
		}
	}
}

func TestAssume(t *testing.T) {
	f := newTree(t, "terminals")
	f.w.Assume()
	f.look("somebody is active: the node's own pause says so")
	f.pass(15 * time.Minute)
	f.look("")
	if why := New(Config{}, Host{Root: f.root}).Look(t.Context()); why != "" {
		t.Errorf("without auto_pause: %q", why)
	}
}

// This machine can be read.
func TestThisMachine(t *testing.T) {
	w := New(Config{AutoPause: time.Minute}, Host{})
	w.Look(t.Context())
	for _, a := range w.Answers() {
		if (a.Source == "load" || a.Source == "terminals") && strings.Contains(a.Text, "cannot") {
			t.Errorf("%+v", a)
		}
	}
}
