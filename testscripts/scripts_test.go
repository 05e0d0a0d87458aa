// Package testscripts runs the commands as their users do. Each *.txtar file
// here is one script; README.md says what scripts can use beside testscript's
// own commands.
package testscripts

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"distribute/lib/proc"
	"distribute/lib/suite"
)

func TestMain(m *testing.M) {
	// A shell has what it starts in the background ignore these, and so would all that
	// scripts start.
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	testscript.Main(withCommands{m}, map[string]func(){
		"status":  mainStatus,
		"waitfor": mainWaitfor,
		"daemon":  mainDaemon,
		"signal":  mainSignal,
		"guard":   mainGuard,
		"proxy":   mainProxy,
		"matrix":  mainMatrix,

		"powercut": mainPowercut,
		"fuse":     mainFuse,
		"programs": mainPrograms,
		"machine":  mainMachine,
		"unit":     mainUnit,
	})
}

// withCommands is a test run with the commands of ../cmd in its PATH.
type withCommands struct{ *testing.M }

func (b withCommands) Run() int {
	// Sockets lie below the directory of a script, and the name of one has 107 bytes, of which
	// ssh wants 17 for itself.
	if len(os.TempDir()) > len("/var/tmp") {
		if err := os.Setenv("TMPDIR", "/tmp"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
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

// install copies the commands into dir, puts dlocal beside them, and tells
// scripts where they and the tree are. They are built in .bin, which is kept:
// go links again only what has changed.
func install(dir string) error {
	top, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	kept, args, cgo := filepath.Join(top, ".bin", "test"), []string{"build", "-ldflags=-s -w -X distribute/lib/timing.speedup=D_SPEEDUP"}, "CGO_ENABLED=0" // as make has it
	if raceEnabled {
		kept, args, cgo = filepath.Join(top, ".bin", "race"), append(args, "-race"), "CGO_ENABLED=1"
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(kept)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	build := exec.Command("go", append(args, "-o", kept+"/", "../cmd/...")...)
	build.Env = append(os.Environ(), cgo)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building ../cmd/...: %w", err)
	}
	if err := os.CopyFS(dir, os.DirFS(kept)); err != nil {
		return err
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

// The scripts of this directory are quick, and run with every change.
func TestScripts(t *testing.T) { scripts(t, ".") }

// Those in full take long: many kills, many files, full disks.
func TestFullScripts(t *testing.T) {
	suite.Long(t, "")
	scripts(t, "full")
}

// scripts runs the scripts of a directory: in an order of chance if the tests are.
func scripts(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	if seed, err := strconv.ParseUint(flag.Lookup("test.shuffle").Value.String(), 10, 64); err == nil {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	}
	testscript.Run(t, testscript.Params{
		Files:              files,
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
	env.Setenv("PROGRESS", fmt.Sprintf("/proc/%d/fd/2", os.Getpid())) // seen before the end
	env.Setenv("GORACE", "atexit_sleep_ms=10")
	for _, name := range []string{"PEERS", "D_PROGRAMS", "D_SEED"} {
		env.Setenv(name, os.Getenv(name))
	}
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
		showLogs(env)
	})
	return nil
}

// showLogs shows the ends of what the daemons of a script that failed have logged.
func showLogs(env *testscript.Env) {
	if t, ok := env.T().(interface{ Failed() bool }); !ok || !t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(env.WorkDir, "*.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		env.T().Log(fmt.Sprintf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-4<<10):]))
	}
}

// condition knows what a script can ask for besides what testscript knows. What is missing
// is an error where all parts must be here.
func condition(name string) (bool, error) {
	if slices.Contains([]string{"python3", "mandoc", "shellcheck", "jq", "strace", "tmux", "expect", "zstd", "bash", "cron"}, name) {
		return here(installed(name))
	}
	switch name {
	case "root":
		return here(rootHas("/"))
	case "race":
		return raceEnabled, nil
	case "full":
		return suite.Full(), nil
	case "cpus":
		if runtime.NumCPU() < 2 {
			return here(errors.New("there is one cpu, and two are needed"))
		}
		return true, nil
	case "loop":
		return here(errors.Join(rootHas("/dev/loop-control"), installed("mkfs.ext4")))
	case "btrfs", "xfs":
		if known, err := os.ReadFile("/proc/filesystems"); err != nil || !bytes.Contains(known, []byte("\t"+name+"\n")) {
			return false, err // a kernel cannot be installed
		}
		return here(errors.Join(rootHas("/dev/loop-control"), installed("mkfs."+name), installed("python3")))
	case "nss":
		found, _ := filepath.Glob("/lib/*/libnss_systemd.so.2")
		if len(found) == 0 {
			return here(errors.New("nss-systemd is not installed"))
		}
		return here(rootHas(found[0]))
	case "fuse":
		return here(rootHas("/dev/fuse"))
	case "sshd":
		return here(wantSSHD())
	case "slurm":
		return here(wantSlurm())
	case "pytest":
		return here(built("python"))
	case "apptainer", "matrix", "jax", "mpi":
		return here(built(name))
	case "cgroup":
		_, _, err := proc.WouldContain("test", "/")
		return here(err)
	case "accounts":
		for _, program := range []string{"setpriv", "unshare", "mount", "getent", "ps", "pgrep"} {
			if err := installed(program); err != nil {
				return here(err)
			}
		}
		return here(exec.Command("unshare", "-m", "true").Run())
	case "mount":
		return here(exec.Command("unshare", "-m", "true").Run())
	case "userns":
		return here(exec.Command("unshare", "-U", "-r", "true").Run())
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// here says whether nothing is missing; where all parts must be here, that is an error.
func here(missing error) (bool, error) {
	if missing != nil && suite.Parts() {
		return false, fmt.Errorf("nothing may be left out here: %w", missing)
	}
	return missing == nil, nil
}

// rootHas is what is wrong if this is not root, or the file is not here.
func rootHas(file string) error {
	if os.Getuid() != 0 {
		return errors.New("this is not root")
	}
	_, err := os.Stat(file)
	return err
}

// built is what is wrong if what scripts/peers/NAME builds is not here.
func built(name string) error {
	if _, err := os.Stat(filepath.Join(os.Getenv("PEERS"), name, "stamp")); err != nil {
		return fmt.Errorf("scripts/peers/%s build: %w", name, err)
	}
	return nil
}

func installed(program string) error {
	_, err := exec.LookPath(program)
	return err
}

// need skips a test that wants an installed program, or fails it if nothing may
// be skipped.
func need(t *testing.T, program string) {
	t.Helper()
	if err := installed(program); err != nil {
		suite.Missing(t, err)
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
