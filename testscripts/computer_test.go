package testscripts

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"distribute/lib/suite"
)

// A computer is a machine of its own in an emulator, by scripts/peers/machine.
type computer struct {
	home string // with its disks
	port string // of loopback: its sshd
	boot string // what is said to its kernel, if not what the script says

	plug    sync.Mutex // guards what follows
	running *exec.Cmd
	master  *exec.Cmd // a session that the others share
}

// needComputer skips a test where there is none, or fails it if nothing may be
// skipped.
func needComputer(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(os.Getenv("PEERS"), "machine", "stamp")); err != nil {
		suite.Missing(t, fmt.Errorf("scripts/peers/machine build has not been run: %w", err))
	}
}

// newComputer makes a machine that has no disk yet.
func newComputer(home string) (*computer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	return &computer{home: home, port: port}, os.MkdirAll(home, 0o755)
}

// disk makes one with an empty file system.
func (c *computer) disk(name string, size int64, options ...string) error {
	image := filepath.Join(c.home, name)
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(image, size); err != nil {
		return err
	}
	return run("mkfs.ext4", append(append([]string{"-q"}, options...), image)...)
}

// switchOn starts it and waits for its sshd.
func (c *computer) switchOn() error {
	out, err := os.OpenFile(filepath.Join(c.home, "emulator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(os.Getenv("TOP"), "scripts/peers/machine"), "run", c.home, c.port)
	cmd.Stdout, cmd.Stderr = out, out
	if c.boot != "" {
		cmd.Env = append(os.Environ(), "MACHINE_INIT="+c.boot)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.plug.Lock()
	c.running = cmd
	c.plug.Unlock()
	var talk []byte
	if !within(10*time.Minute, func(ctx context.Context) bool {
		talk, err = c.ssh(ctx, nil, "true").CombinedOutput()
		return err == nil
	}) {
		return fmt.Errorf("the machine does not come up: %s", talk)
	}
	master := c.ssh(context.Background(), nil, "")
	master.Args = append(master.Args[:len(master.Args)-1], "-M", "-N")
	if err := master.Start(); err != nil {
		return err
	}
	c.plug.Lock()
	defer c.plug.Unlock()
	c.master = master
	return nil
}

// cut kills it, and says whether it was on.
func (c *computer) cut() bool {
	c.plug.Lock()
	defer c.plug.Unlock()
	if c.running == nil {
		return false
	}
	c.running.Process.Kill()
	c.ended()
	return true
}

// awaitOff waits until it has switched itself off.
func (c *computer) awaitOff() {
	c.plug.Lock()
	defer c.plug.Unlock()
	c.ended()
}

// ended waits for the emulator's end. Its caller holds c.plug.
func (c *computer) ended() {
	c.running.Wait()
	if c.master != nil {
		c.master.Process.Kill()
		c.master.Wait()
		os.Remove(c.control())
	}
	c.running, c.master = nil, nil
}

func (c *computer) control() string { return filepath.Join(c.home, "ssh") }

// ssh is a command line on the machine, as root.
func (c *computer) ssh(ctx context.Context, stdin *strings.Reader, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ssh", "-F", "none", "-i", filepath.Join(os.Getenv("PEERS"), "machine", "key"), "-p", c.port,
		"-S", c.control(), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "-o", "ServerAliveInterval=60", "root@127.0.0.1", line)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// shellLine makes a line of which a shell makes these words.
func shellLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
