package testscripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/proc"
)

// misuse ends a script's command that was written wrongly.
func misuse(usage string) {
	fmt.Fprintln(os.Stderr, "usage: "+usage)
	os.Exit(2)
}

func fail(format string, a ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", a...)
	os.Exit(1)
}

// exitStatus is the status of an ended command as a shell shows it, 127 if it
// could not be run.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, err)
		return 127
	case exit.Sys().(syscall.WaitStatus).Signaled():
		return 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
	}
	return exit.ExitCode()
}

// mainStatus is the command "status N cmd args…": it succeeds if cmd ends with
// exactly that status, or 128 and the number of the signal that ended it.
func mainStatus() {
	if len(os.Args) < 3 {
		misuse("status N command ...")
	}
	want, err := strconv.Atoi(os.Args[1])
	if err != nil {
		misuse("status N command ...")
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if got := exitStatus(cmd.Run()); got != want {
		fail("status: %s ended with %d, not %d", os.Args[2], got, want)
	}
}

// mainWaitfor is the command "waitfor [-not] [-t time] [-o regexp] cmd args…":
// it repeats cmd until it succeeds, until that and its stdout matches, or with
// -not until that is no longer so. It gives up after three minutes, or -t, also on a
// try that does not end, and leaves the streams of the last one that did.
func mainWaitfor() {
	const usage = "waitfor [-not] [-t time] [-o regexp] command ..."
	wanted, limit, match := true, 3*time.Minute, regexp.MustCompile("")
	args := os.Args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		var err error
		switch {
		case args[0] == "-not":
			wanted = false
			args = args[1:]
			continue
		case args[0] == "-t" && len(args) > 1:
			limit, err = time.ParseDuration(args[1])
		case args[0] == "-o" && len(args) > 1:
			match, err = regexp.Compile("(?m)" + args[1])
		default:
			misuse(usage)
		}
		if err != nil {
			misuse(usage + ": " + err.Error())
		}
		args = args[2:]
	}
	if len(args) == 0 {
		misuse(usage)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr []byte
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		began := time.Now()
		var out, talk bytes.Buffer
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &talk, time.Second
		err := cmd.Run()
		if ctx.Err() == nil || stdout == nil {
			stdout, stderr = append([]byte{}, out.Bytes()...), talk.Bytes()
		}
		over := ctx.Err() == nil && (exitStatus(err) == 0 && match.Match(stdout)) == wanted
		if !over {
			select {
			case <-ctx.Done():
			case <-time.After(max(pause, 2*time.Since(began))): // what is awaited needs the processors more
				continue
			}
		}
		os.Stdout.Write(stdout)
		os.Stderr.Write(stderr)
		if !over {
			fail("waitfor: not within %v: %s", limit, strings.Join(args, " "))
		}
		return
	}
}

// mainDaemon is the command "daemon NAME cmd args…": it starts cmd in the
// background, with both its streams appended to NAME.log, and its pid in
// NAME.pid. It is killed at the end of the script, or by "signal".
func mainDaemon() {
	if len(os.Args) < 3 {
		misuse("daemon NAME command ...")
	}
	name := os.Args[1]
	log, err := os.OpenFile(name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fail("daemon: %v", err)
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: a process group that this command left orphaned while a
	// member is stopped, as strace stops what it starts, would be hung up on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fail("daemon: %v", err)
	}
	if err := os.WriteFile(name+".pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		fail("daemon: %v", err)
	}
}

// mainSignal is the command "signal NAME SIGNAL": it sends a signal, such as
// KILL, to what "daemon NAME" started. After one that ends processes it waits
// until this one is gone.
func mainSignal() {
	if len(os.Args) != 3 {
		misuse("signal NAME SIGNAL")
	}
	number := unix.SignalNum("SIG" + os.Args[2])
	text, err := os.ReadFile(os.Args[1] + ".pid")
	if err != nil || number == 0 {
		misuse("signal NAME SIGNAL")
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid < 2 {
		fail("signal: %s.pid holds %q", os.Args[1], text)
	}
	if gone(pid) {
		fail("signal: %s (%d) has ended", os.Args[1], pid)
	}
	if err := syscall.Kill(pid, number); err != nil {
		fail("signal: %s: %v", os.Args[1], err)
	}
	switch number {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		deadline := time.After(3 * time.Minute)
		for !gone(pid) {
			select {
			case <-deadline:
				fail("signal: %s (%d) still runs three minutes after SIG%s", os.Args[1], pid, os.Args[2])
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// mainPowercut is the command "powercut DIR": the ext4 that DIR lies on is shut
// down as if the power went. Nothing that was not synced reaches the disk, and
// nothing works there any more until it is mounted again.
func mainPowercut() {
	const shutdown, noFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	if len(os.Args) != 2 {
		misuse("powercut DIR")
	}
	d, err := os.Open(os.Args[1])
	if err != nil {
		fail("powercut: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noFlush); err != nil {
		fail("powercut: %s: %v", os.Args[1], err)
	}
}

// gone says whether a process has ended with all its threads, if only as a
// zombie: whoever adopted it may be slow to look. While a thread of it lives its
// files are open, and its locks held.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), ") ")
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	return len(threads) <= 1 && (strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X"))
}

// mainGuard waits for the end of its stdin, which comes when a script is over
// or the process that ran it has gone, and then sweeps the script's HOME, or
// each of several.
func mainGuard() {
	io.Copy(io.Discard, os.Stdin)
	for _, home := range os.Args[1:] {
		sweep(home)
		removeGroups(filepath.Dir(home))
	}
}

// removeGroups removes the cgroups, with nothing in them, of the nodes whose directories
// are in dir: a daemon that was killed leaves one, and thousands make each new one slow.
func removeGroups(dir string) {
	group, _, err := proc.WouldContain("any", dir)
	if err != nil {
		return
	}
	for _, name := range directories(dir) {
		groups, _ := filepath.Glob(filepath.Join(filepath.Dir(group), proc.GroupName("*", name)))
		for _, g := range groups {
			for _, below := range slices.Backward(directories(g)) {
				os.Remove(below)
			}
		}
	}
}

// directories is a directory and those below it, each before what is in it.
func directories(dir string) (all []string) {
	filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, name)
		}
		return nil
	})
	return all
}

// sweep kills every process of this user whose HOME is that of an ended script,
// until there is none: daemons, the supervisors that outlive them, and jobs,
// which are given no other variable of the script. Apptainer has none but its own, of
// which one names what lies in that HOME; what is in its container ends with it.
func sweep(home string) {
	mark, container := []byte("\x00HOME="+home+"\x00"), []byte(`"`+home+`/.apptainer"`)
	for {
		found := false
		procs, _ := os.ReadDir("/proc") // a Glob of files in it reads all that each process has
		for _, proc := range procs {
			pid, _ := strconv.Atoi(proc.Name())
			environ, err := os.ReadFile(filepath.Join("/proc", proc.Name(), "environ"))
			if err != nil || pid < 2 || pid == os.Getpid() || gone(pid) {
				continue
			}
			if len(environ) == 0 && becoming(pid) {
				found = true
				continue
			}
			if !bytes.Contains(append([]byte{0}, environ...), mark) && !bytes.Contains(environ, container) {
				continue
			}
			found = true
			syscall.Kill(pid, syscall.SIGCONT)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if !found {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// becoming says whether a process without an environment has no arguments
// either, but a program: it is within execve, and will have both.
func becoming(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/", pid)
	args, err := os.ReadFile(dir + "cmdline")
	_, noProgram := os.Readlink(dir + "exe")
	return err == nil && noProgram == nil && len(args) == 0
}

func TestSweepEndsWhatWasStarted(t *testing.T) {
	home := t.TempDir()
	cmd := exec.Command("sh", "-c", "setsid sleep 1000 & echo started; trap '' TERM; wait")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	sweep(home)
	// The sleep holds the pipe too: it ends only when both are gone.
	if rest, err := bytes.NewBuffer(nil).ReadFrom(out); err != nil || rest != 0 {
		t.Errorf("%d bytes more, %v", rest, err)
	}
	if got := exitStatus(cmd.Wait()); got != 128+int(syscall.SIGKILL) {
		t.Errorf("the shell ended with %d", got)
	}
}
