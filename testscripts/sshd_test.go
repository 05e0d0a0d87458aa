package testscripts

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// A sshd is one of a test's own, of scripts/peers/sshd.
type sshd struct {
	dir      string
	settings []string // NAME=VALUE, as it printed them
	script   *exec.Cmd
	end      func() error
}

// startSSHD starts one in dir; args are its users, and what is in the
// environment of the sessions.
func startSSHD(dir string, args ...string) (*sshd, error) {
	s := &sshd{dir: dir, script: exec.Command(filepath.Join(os.Getenv("TOP"), "scripts", "peers", "sshd"), append([]string{dir}, args...)...)}
	var talk strings.Builder
	s.script.Stderr = &talk
	stdin, err := s.script.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.script.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.script.Start(); err != nil {
		return nil, err
	}
	s.end = stdin.Close
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		s.settings = append(s.settings, lines.Text())
		if strings.HasPrefix(lines.Text(), "SSHD=") {
			return s, nil
		}
	}
	err = s.script.Wait()
	return nil, fmt.Errorf("%v: %s", err, talk.String())
}

// stop ends it, and all that its sessions started and left.
func (s *sshd) stop() {
	s.end()
	s.script.Wait()
}

// path is a PATH that begins with the ssh that knows this sshd.
func (s *sshd) path(rest string) string { return filepath.Join(s.dir, "bin") + ":" + rest }

// wantSSHD is what is missing for scripts/peers/sshd to work here.
func wantSSHD() error {
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		return err
	}
	return installed("ssh")
}

// cmdSSHD is the command "sshd [USER ...] [NAME=VALUE ...]" of scripts.
func cmdSSHD(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: sshd [USER ...] [NAME=VALUE ...]")
	}
	for _, name := range []string{"HOME", "PATH", "BIN", "GORACE"} {
		args = append(args, name+"="+ts.Getenv(name))
	}
	s, err := startSSHD(ts.MkAbs("sshd"), args...)
	ts.Check(err)
	ts.Defer(s.stop)
	for _, setting := range s.settings {
		name, value, _ := strings.Cut(setting, "=")
		ts.Setenv(name, value)
	}
	ts.Setenv("PATH", s.path(ts.Getenv("PATH")))
}

// setting is one of the settings by its name.
func (s *sshd) setting(name string) string {
	for _, line := range s.settings {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}
