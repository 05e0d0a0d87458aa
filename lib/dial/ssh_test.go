package dial

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSSHAddresses(t *testing.T) {
	for addr, want := range map[string]sshAddr{
		"ssh://desk":                         {host: "desk"},
		"ssh://maria@desk:2222/srv/spool":    {"maria", "desk", "2222", "/srv/spool"},
		"ssh://desk/a%20b$(x);'c":            {host: "desk", spool: "/a b$(x);'c"},
		"ssh://desk/a/":                      {host: "desk", spool: "/a/"},
		"ssh://[2001:db8::1]:22":             {host: "2001:db8::1", port: "22"},
		"ssh://[fe80::1%25eth0]":             {host: "fe80::1%eth0"},
		"ssh://ana%40lab.example@desk.local": {user: "ana@lab.example", host: "desk.local"},
	} {
		if got, err := parseSSH(addr); err != nil || got != want {
			t.Errorf("%q is %+v, %v", addr, got, err)
		}
	}
	for _, addr := range []string{"ssh://", "ssh:///spool", "ssh://desk/", "ssh://-oProxyCommand=x", "ssh://-l@desk", "ssh://@desk",
		"ssh://a:secret@desk", "ssh://desk?x", "ssh://desk#x", "ssh://desk:port", "ssh://desk:65536", "ssh://a b", "ssh://a;b", "ssh://$(x)", "ssh://a%0ab@desk",
		"ssh://a`x`@desk", "ssh://[::1%25;x]", "ssh://[::g]", "ssh://a@b@c/x%zz"} {
		if got, err := parseSSH(addr); err == nil {
			t.Errorf("%q is %+v", addr, got)
		}
	}
}

func TestX100SSHFailures(t *testing.T) {
	at := sshAddr{user: "ana", host: "desk", port: "2222"}
	for _, c := range []struct {
		status int
		said   string
		spoken bool
		want   string
	}{
		{255, "ssh: connect to host desk port 22: No route to host\r\n", false, `it does not answer; is it up, and is there a network? ("ssh: connect to host desk port 22: No route to host")`},
		{255, "Warning: x\nTimeout, server desk not responding.\r\n", true, `the network is away, or that machine sleeps ("Timeout, server desk not responding.")`},
		{255, "", true, `the connection was lost; is there a network, and is that machine up?`},
		{255, "", false, `ssh ended with status 255; see what "ssh -p 2222 ana@desk true" says`},
		{255, "Bad configuration option: x\x1b[31m", false, `ssh ended with status 255: "Bad configuration option: x\x1b[31m"`},
		{127, "fish: Unknown command: dsched\nfish: \ndsched -attach\n^~~~~^", false, `it is not installed there, or not in the PATH of commands that come over ssh, which "ssh -p 2222 ana@desk 'echo $PATH'" shows; a link in /usr/local/bin mends that ("fish: Unknown command: dsched")`},
		{255, "@  REMOTE HOST IDENTIFICATION HAS CHANGED!  @\nHost key verification failed.", false, `its host key is another than the known one: if it was not installed anew, somebody is in between; if it was, ssh-keygen -R '[desk]:2222' takes the old key out ("Host key verification failed.")`},
		{255, "No ED25519 host key is known for desk\nHost key verification failed.", false, `its host key is not known yet: accept it once by ssh -p 2222 ana@desk true ("Host key verification failed.")`},
	} {
		if err := at.why(c.status, c.said, c.spoken, ""); err.Error() != c.want {
			t.Errorf("%d %q: %v", c.status, c.said, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "known_hosts"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := OwnSSH(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.why(255, "Host key verification failed.", false, hostsFile(options)); !strings.HasPrefix(err.Error(), `its host key is not in "`+dir+`/known_hosts": append the line that ssh-keyscan prints`) {
		t.Error(err)
	}
	if err := at.why(255, "ana@desk: Permission denied (publickey).", false, ""); !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "USER@HOST") {
		t.Error(err)
	}
}

// An ssh that has ended says why also to who writes.
func TestX100SSHWrite(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\necho 'ssh: connect to host desk port 22: Connection refused' >&2\nexit 255\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	c, err := Terms{}.startSSH(t.Context(), sshAddr{host: "desk"}, "dsched -attach")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil {
		_, err = c.Write(make([]byte, 1<<16))
	}
	if !strings.Contains(err.Error(), "no sshd listens there") {
		t.Error(err)
	}
}

// An ssh without a terminal notices a dead network as soon as one with a terminal, also
// where batch mode has an interval of its own, as on Debian. What the user has set counts.
func TestPatienceInBatchMode(t *testing.T) {
	a := sshAddr{host: "desk"}
	for _, own := range []string{"0", "300", "7"} {
		bin := t.TempDir()
		debian := `#!/bin/sh
interval=` + own + `
for word; do
	case $word in
	BatchMode=no) break;;
	BatchMode=yes) test $interval != 0 || interval=300; break;;
	esac
done
echo "batchmode no
serveraliveinterval $interval
connecttimeout none"
`
		if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte(debian), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin)
		for _, options := range [][]string{sshOptions, slices.Concat(sshOptions, []string{"-o", "BatchMode=yes"})} {
			terms := Terms{Sharing: []string{filepath.Join(bin, "sharing", "distribute")}}
			more, connected, err := terms.shareSSH(t.Context(), options, a)
			if err != nil {
				t.Fatal(err)
			}
			connected()
			ours := slices.Contains(more, "ServerAliveInterval=15") && slices.Contains(more, "ServerAliveCountMax=3")
			if shares := slices.Contains(more, "ControlMaster=auto"); !shares || ours != (own == "0") {
				t.Errorf("an interval of %s, options %q: more are %q", own, options, more)
			}
		}
	}
}

// The ssh of this machine prints no interval in batch mode that the user has not set.
func TestIntervalOfThisSSH(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("no ssh")
	}
	config := filepath.Join(t.TempDir(), "config")
	for own, want := range map[string]bool{"": false, "ServerAliveInterval 300\n": true, "BatchMode yes\n": false} {
		if err := os.WriteFile(config, []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		set := settings(t.Context(), []string{"-F", config, "-o", "BatchMode=yes"}, sshAddr{host: "desk"})
		if set == "" || set.has("serveraliveinterval", "0") != want {
			t.Errorf("with %q it counts as set: %v\n%s", own, !want, set)
		}
	}
}

// A directory in which others could put a socket is not taken.
func TestFitForSharing(t *testing.T) {
	dir := t.TempDir()
	fit := filepath.Join(dir, "new", "distribute")
	if err := fitForSharing(fit); err != nil {
		t.Error(err)
	}
	if err := fitForSharing(fit); err != nil {
		t.Error("again:", err)
	}
	open, file, link := filepath.Join(dir, "open"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o770), os.WriteFile(file, nil, 0o600), os.Symlink(fit, link)); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(dir, "shared", "distribute") // anybody could put his own in its place
	if err := errors.Join(os.MkdirAll(theirs, 0o700), os.Chmod(filepath.Dir(theirs), 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{theirs, open, file, link, filepath.Join(fit, strings.Repeat("x", 80)), filepath.Join(dir, "$x"), filepath.Join(file, "below")} {
		if fitForSharing(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	want := []string{"/run/user/7/distribute", "/home/x/.cache/distribute"}
	if got := SharingDirs(getenv(map[string]string{"HOME": "/home/x", "XDG_RUNTIME_DIR": "/run/user/7"})); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q", got)
	}
}
