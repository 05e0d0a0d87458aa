package testscripts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A unit is one of scripts/systemd, and what its lines have to say, or must not.
type unit struct {
	file    string
	exec    string
	need    []string
	without []string // keys
}

// forJobs is what the unit of a node must say, and must not, for the sake of the
// jobs in it: those that run when dnoded is stopped, and GPUs, compilers, debuggers
// and containers in all.
var (
	forJobs = []string{"Type=notify", "KillMode=process", "Delegate=yes", "DelegateSubgroup=dnoded", "OOMPolicy=continue", "TasksMax=infinity", "Restart=on-failure",
		"RestartPreventExitStatus=64 65 69"}
	notForJobs = []string{"PrivateTmp", "RemoveIPC", "RuntimeDirectory", "PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectControlGroups", "ProtectKernelTunables", "ProtectKernelLogs",
		"MemoryDenyWriteExecute", "RestrictNamespaces", "LockPersonality", "RestrictSUIDSGID", "PrivateUsers", "DynamicUser", "Requires", "BindsTo", "PartOf"}
)

var units = []unit{
	{"distribute-head.service", "/usr/local/bin/dsched",
		[]string{"Type=notify", "User=distribute", "Restart=on-failure", "RestartPreventExitStatus=64 65", "NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=-/srv/spool", "ProtectHome=yes", "CapabilityBoundingSet="},
		[]string{"PrivateUsers", "RestrictSUIDSGID", "DynamicUser", "Requires", "BindsTo"}},
	{"distribute-notify.service", "/usr/local/bin/dnotify -a -H /srv/spool -D ${STATE_DIRECTORY} -m /etc/distribute/matrix.json",
		[]string{"User=distribute", "Restart=on-failure", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="},
		[]string{"PrivateUsers", "DynamicUser", "Requires", "BindsTo", "PartOf"}},
	{"distribute-node.service", "/usr/local/bin/dnoded",
		append([]string{"User=distribute-node", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "ProtectProc=invisible", "CapabilityBoundingSet=",
			"StateDirectory=distribute/node distribute/home", "ReadWritePaths=/tmp /var/tmp -/var/lib/distribute/pause -/run/distribute/pause"}, forJobs...), notForJobs},
	{"user/distribute-node.service", "/usr/local/bin/dnoded", forJobs, append([]string{"User"}, notForJobs...)},
	{"run-as.conf", "", []string{"User=", "ProtectSystem=full", "ProtectHome=no"}, notForJobs},
}

// TestN54Units holds what the units say, so that a restart of one ends no job, and
// that those of the head and of nodes give no options.
func TestN54Units(t *testing.T) {
	for _, u := range units {
		data, err := os.ReadFile(filepath.Join("..", "scripts", "systemd", u.file))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		need := u.need
		if u.exec != "" {
			need = append(need, "ExecStart="+u.exec)
		}
		for _, l := range need {
			if !slices.Contains(lines, l) {
				t.Errorf("%s: there is no line %s", u.file, l)
			}
		}
		for _, key := range u.without {
			if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+"=") }) {
				t.Errorf("%s: it says %s=", u.file, key)
			}
		}
		const reload = "\nExecReload=/bin/kill -HUP $MAINPID\n"
		if n := strings.Count(string(data), "\nExec") - strings.Count(string(data), reload); n > 1 || (n == 1) != (u.exec != "") {
			t.Errorf("%s: %d lines are Exec...=, besides that to reload", u.file, n)
		}
	}
}

// exposures are the greatest that systemd-analyze security may find, in tenths.
var exposures = []struct {
	unit, dropIn string
	most         int
}{
	{"distribute-head", "", 25},
	{"distribute-notify", "", 25},
	{"distribute-node", "", 50},
	{"distribute-node", "run-as.conf", 65},
}

// TestUnitsInstalled has systemd read what make install puts in place, below
// another prefix.
func TestUnitsInstalled(t *testing.T) {
	need(t, "systemd-analyze")
	prefix, bin := filepath.Join(t.TempDir(), "opt"), t.TempDir()
	if err := run("cp", filepath.Join(os.Getenv("BIN"), "dsched"), filepath.Join(os.Getenv("BIN"), "dnoded"), bin); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("make", "-C", os.Getenv("TOP"), "--assume-old=all", "install", "PREFIX="+prefix, "BIN="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v: %s", err, out)
	}
	dir := filepath.Join(prefix, "lib", "systemd", "system")
	verify := func(what string) {
		t.Helper()
		out, err := analyze("verify", "--man=no", filepath.Join(dir, "distribute-head.service"), filepath.Join(dir, "distribute-node.service"))
		if out != "" || err != nil {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
	verify("as installed")
	for _, e := range []struct{ unit, page, text string }{{"distribute-head", "dsched.8", "DSPOOL="}, {"distribute-node", "dnoded.8", "ReadWritePaths=/scratch"}} {
		in := filepath.Join(dir, e.unit+".service.d")
		if err := errors.Join(os.Mkdir(in, 0o755), os.WriteFile(filepath.Join(in, "example.conf"), []byte(example(t, e.page, e.text)), 0o644)); err != nil {
			t.Fatal(err)
		}
		verify(e.page)
		if err := os.RemoveAll(in); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range exposures {
		if e.dropIn != "" {
			in := filepath.Join(dir, e.unit+".service.d")
			if err := errors.Join(os.Mkdir(in, 0o755), run("cp", filepath.Join(prefix, "share", "distribute", e.dropIn), in)); err != nil {
				t.Fatal(err)
			}
			verify(e.dropIn)
		}
		out, err := analyze("security", "--offline=yes", "--no-pager", fmt.Sprintf("--threshold=%d", e.most), filepath.Join(dir, e.unit+".service"))
		if err != nil {
			t.Errorf("%s: more exposed than %d: %v\n%s", e.unit, e.most, err, out)
		}
		t.Log(regexp.MustCompile(`→.*`).FindString(out), e.dropIn)
	}
}

// TestUnitInHome has make install put the unit of a user where his systemd looks
// for it, which below a home is not where it is elsewhere.
func TestUnitInHome(t *testing.T) {
	home, bin := t.TempDir(), t.TempDir()
	if err := run("cp", filepath.Join(os.Getenv("BIN"), "dnoded"), bin); err != nil {
		t.Fatal(err)
	}
	for prefix, dir := range map[string]string{home + "/.local": "share", t.TempDir() + "/opt": "lib"} {
		install := exec.Command("make", "-C", os.Getenv("TOP"), "--assume-old=all", "install", "PREFIX="+prefix, "BIN="+bin)
		install.Env = append(os.Environ(), "HOME="+home)
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("make install: %v: %s", err, out)
		}
		unit, err := os.ReadFile(filepath.Join(prefix, dir, "systemd", "user", "distribute-node.service"))
		if err != nil || !strings.Contains(string(unit), "ExecStart="+prefix+"/bin/dnoded") {
			t.Errorf("%v:\n%s", err, unit)
		}
	}
}

// analyze is systemd-analyze without what versions before 254 say of what they do
// not know.
func analyze(args ...string) (string, error) {
	out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
	said := regexp.MustCompile(`(?m)^.*Unknown key.*'DelegateSubgroup'.*\n`).ReplaceAllString(string(out), "")
	return said, err
}

// TestUnitsUsers makes the users of a head and of a node in a root directory of their own,
// and the directories of a node in which everybody may pause it.
func TestUnitsUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes users")
	}
	need(t, "systemd-sysusers")
	root := t.TempDir()
	for _, name := range []string{"head.sysusers", "node.sysusers", "node.tmpfiles"} {
		of, kind, _ := strings.Cut(name, ".")
		dir := filepath.Join(root, "usr", "lib", kind+".d")
		from := filepath.Join("..", "scripts", "systemd", "distribute-"+name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), run("cp", from, filepath.Join(dir, "distribute-"+of+".conf"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), run("systemd-sysusers", "--root="+root), run("systemd-tmpfiles", "--root="+root, "--create")); err != nil {
		t.Fatal(err)
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc", "passwd"))
	if err != nil || !strings.Contains(string(passwd), "distribute:x:") || !strings.Contains(string(passwd), "distribute-node:x:") {
		t.Errorf("%v: %s", err, passwd)
	}
	for path, want := range map[string]string{"var/lib/distribute": "755 0", "var/lib/distribute/pause": "1757 0", "run/distribute/pause": "1757 0"} {
		out, err := exec.Command("stat", "-c", "%a %u", filepath.Join(root, path)).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// example is the display of a manual page that holds a text.
func example(t *testing.T, page, text string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(os.Getenv("TOP"), "man", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range regexp.MustCompile(`(?s)\n\.Bd -literal[^\n]*\n(.*?)\.Ed\n`).FindAllStringSubmatch(string(data), -1) {
		if strings.Contains(d[1], text) {
			return strings.ReplaceAll(d[1], `\(aq`, "'")
		}
	}
	t.Fatalf("%s: no example with %q", page, text)
	return ""
}
