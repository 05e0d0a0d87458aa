// Package testscripts runs the commands as their users do. Each *.txtar file
// here is one script; README.md says what scripts can use beside testscript's
// own commands.
package testscripts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(built{m}, map[string]func(){
		"status":  mainStatus,
		"waitfor": mainWaitfor,
		"daemon":  mainDaemon,
		"signal":  mainSignal,
		"guard":   mainGuard,
		"proxy":   mainProxy,
		"matrix":  mainMatrix,

		"powercut": mainPowercut,
		"fuse":     mainFuse,
		"machine":  mainMachine,
		"unit":     mainUnit,
	})
}

// built is a test run with the commands of ../cmd in its PATH.
type built struct{ *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "distribute-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Chmod(dir, 0o755), install(dir)); err != nil { // scripts have other users, too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.M.Run()
}

// install builds the commands into dir, puts dlocal beside them, and tells
// scripts where they and the tree are.
func install(dir string) error {
	top, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	args, cgo := []string{"build", "-ldflags=-s -w", "-o", dir + "/"}, "CGO_ENABLED=0" // as make has it
	if raceEnabled {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	build := exec.Command("go", append(args, "../cmd/...")...)
	build.Env = append(os.Environ(), cgo)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building ../cmd/...: %w", err)
	}
	if err := os.Symlink(filepath.Join(top, "scripts", "dlocal"), filepath.Join(dir, "dlocal")); err != nil {
		return err
	}
	for name, value := range map[string]string{"PATH": dir + ":" + os.Getenv("PATH"), "BIN": dir, "TOP": top} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                ".",
		RequireUniqueNames: true,
		Condition:          condition,
		Setup:              setup,
		Cmds:               map[string]func(*testscript.TestScript, bool, []string){"sshd": cmdSSHD, "users": cmdUsers, "slurm": cmdSlurm},
	})
}

// setup gives a script a home of its own and no head, and sees to it that
// nothing which a script started lives longer than it, or than this run of the
// tests if that is killed.
func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	env.Setenv("HOME", home)
	env.Setenv("USER", "maria")
	env.Setenv("LANG", "C.UTF-8")
	env.Setenv("TOP", os.Getenv("TOP"))
	env.Setenv("BIN", os.Getenv("BIN"))
	env.Setenv("GORACE", "atexit_sleep_ms=10")
	env.Setenv("D_FULL", os.Getenv("D_FULL"))
	env.Setenv("PEERS", os.Getenv("PEERS"))
	guard := exec.Command("guard", home)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := guard.StdinPipe()
	if err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	env.Defer(func() {
		end.Close()
		guard.Wait()
	})
	return nil
}

// condition knows what a script can ask for besides what testscript knows.
func condition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Getuid() == 0, nil
	case "race":
		return raceEnabled, nil
	case "full":
		return full(), nil
	case "cpus":
		if runtime.NumCPU() < 2 {
			return false, fullError(errors.New("there is one cpu, and two are needed"))
		}
		return true, nil
	case "loop":
		return loopDevices()
	case "pytest":
		if _, err := os.Stat(filepath.Join(os.Getenv("PEERS"), "python", "stamp")); err != nil {
			return false, fullError(fmt.Errorf("scripts/peers/python build: %w", err))
		}
		return true, nil
	case "nss":
		return nameService()
	case "fuse":
		if _, err := os.Stat("/dev/fuse"); os.Getuid() != 0 || err != nil {
			return false, fullError(errors.New("no /dev/fuse for this user"))
		}
		return true, nil
	case "sshd":
		return hasSSHD()
	case "slurm":
		return hasSlurm()
	case "apptainer":
		if _, err := os.Stat(filepath.Join(os.Getenv("PEERS"), "apptainer", "stamp")); err != nil {
			return false, fullError(fmt.Errorf("scripts/peers/apptainer build has not been run: %w", err))
		}
		return true, nil
	case "matrix":
		if _, err := os.Stat(filepath.Join(os.Getenv("PEERS"), "matrix", "stamp")); err != nil {
			return false, fullError(fmt.Errorf("scripts/peers/matrix build has not been run: %w", err))
		}
		return true, nil
	case "accounts":
		for _, program := range []string{"setpriv", "unshare", "mount", "getent", "ps", "pgrep"} {
			if ok, err := installed(program); !ok {
				return false, err
			}
		}
		if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
			return false, fullError(err)
		}
		return true, nil
	case "mount":
		return exec.Command("unshare", "-m", "true").Run() == nil, nil
	case "userns":
		if err := exec.Command("unshare", "-U", "-r", "true").Run(); err != nil {
			return false, fullError(err)
		}
		return true, nil
	}
	if name == "python3" || name == "mandoc" || name == "shellcheck" || name == "jq" || name == "strace" || name == "tmux" || name == "expect" || name == "zstd" || name == "bash" || name == "cron" {
		return installed(name)
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// fullError is err in a run that must skip nothing.
func fullError(err error) error {
	if full() {
		return fmt.Errorf("D_FULL=1: %w", err)
	}
	return nil
}

// loopDevices says whether an ext4 of a script's own can be made and mounted.
func loopDevices() (bool, error) {
	if _, err := os.Stat("/dev/loop-control"); os.Getuid() != 0 || err != nil {
		if full() {
			return false, errors.New("D_FULL=1, and there are no loop devices for this user")
		}
		return false, nil
	}
	return installed("mkfs.ext4")
}

// nameService says whether a script can have a directory service of its own:
// nss-systemd, which takes users and groups from files in /run/userdb.
func nameService() (bool, error) {
	found, _ := filepath.Glob("/lib/*/libnss_systemd.so.2")
	if os.Getuid() != 0 || len(found) == 0 {
		return false, fullError(errors.New("no nss-systemd for this user"))
	}
	return true, nil
}

// full says that this run must skip nothing for want of an installed program.
func full() bool { return os.Getenv("D_FULL") == "1" }

func installed(program string) (bool, error) {
	_, err := exec.LookPath(program)
	if err != nil && full() {
		return false, fmt.Errorf("D_FULL=1, and %s is not installed", program)
	}
	return err == nil, nil
}

// need skips a test that wants an installed program, or fails it if nothing may
// be skipped.
func need(t *testing.T, program string) {
	t.Helper()
	if ok, err := installed(program); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skipf("%s is not installed", program)
	}
}

// commands are the names of the directories of ../cmd.
func commands(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("../cmd/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no commands in ../cmd: %v", err)
	}
	names := make([]string, len(dirs))
	for i, dir := range dirs {
		names[i] = filepath.Base(dir)
	}
	return names
}

// manual is the path and the text of a command's page, or of a script's.
func manual(t *testing.T, name string) (path, text string) {
	t.Helper()
	pages, _ := filepath.Glob("../man/" + name + ".[0-9]")
	if len(pages) != 1 {
		t.Fatalf("%s has %d pages in man: %s", name, len(pages), strings.Join(pages, " "))
	}
	data, err := os.ReadFile(pages[0])
	if err != nil {
		t.Fatal(err)
	}
	return pages[0], string(data)
}
