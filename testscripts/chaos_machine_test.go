package testscripts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A machine is a computer as far as namespaces make one: a network card, a disk
// whose power can be cut, a boot id, and processes that all end with it. Its
// disk is at disk in its own eyes, and at see(disk) in those of the test.
type machine struct {
	name   string
	dir    string // on the host: what of it survives everything
	disk   string
	addr   string
	size   int64     // of the disk
	holder *exec.Cmd // keeps its network and its mounts

	mu   sync.Mutex // guards what follows: held while the machine is made to change
	init *exec.Cmd  // process 1; nil when the power is off
	on   chan struct{}
	boot int
}

// newMachine makes a machine whose power is off, with an empty disk.
func newMachine(top, name, addr string, size int64) (*machine, error) {
	m := &machine{name: name, dir: filepath.Join(top, name), addr: addr, size: size, on: make(chan struct{})}
	m.disk = filepath.Join(m.dir, "disk")
	if err := os.MkdirAll(m.home(), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(m.disk, 0o755); err != nil {
		return nil, err
	}
	m.holder = exec.Command("sleep", "infinity")
	m.holder.Env = m.env()
	m.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	if err := m.holder.Start(); err != nil {
		return nil, fmt.Errorf("namespaces for %s: %w", name, err)
	}
	if size > 0 {
		if err := os.WriteFile(m.image(), nil, 0o644); err != nil {
			return nil, err
		}
		if err := os.Truncate(m.image(), size); err != nil {
			return nil, err
		}
		if err := run("mkfs.ext4", "-q", "-m", "0", m.image()); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *machine) home() string  { return filepath.Join(m.dir, "home") }
func (m *machine) image() string { return filepath.Join(m.dir, "disk.img") }

// see is where the test finds what lies at path on the machine.
func (m *machine) see(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", m.holder.Process.Pid, path)
}

// env is the environment on the machine. HOME tells its processes from those of
// others.
func (m *machine) env() []string {
	return []string{"HOME=" + m.home(), "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "USER=maria", "GORACE=atexit_sleep_ms=10"}
}

// run runs a command of the host, and puts what it says into the error.
func run(name string, args ...string) error { return runWith("", name, args...) }

func runWith(stdin, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// inside is a command in namespaces of the machine, whose power need not be on.
func (m *machine) inside(kinds string, args ...string) []string {
	words := []string{"nsenter", "-t", strconv.Itoa(m.holder.Process.Pid)}
	return append(append(append(words, strings.Fields(kinds)...), "--"), args...)
}

// switchOn mounts the disk, which plays its journal back, and starts process 1.
func (m *machine) switchOn() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		return nil
	}
	if m.size > 0 {
		words := m.inside("-m", "mount", "-t", "ext4", "-o", "loop", m.image(), m.disk)
		if err := run(words[0], words[1:]...); err != nil {
			return err
		}
	}
	m.boot++
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x\n", m.holder.Process.Pid, m.boot)
	if err := os.WriteFile(filepath.Join(m.dir, "boot_id"), []byte(id), 0o644); err != nil {
		return err
	}
	words := m.inside("-m -n", "machine", "on", filepath.Join(m.dir, "boot_id"))
	init := exec.Command(words[0], words[1:]...)
	init.Env, init.Stderr = m.env(), os.Stderr
	init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Setpgid: true}
	up, err := init.StdoutPipe()
	if err != nil {
		return err
	}
	if err := init.Start(); err != nil {
		return err
	}
	if _, err := io.ReadFull(up, make([]byte, 3)); err != nil {
		init.Process.Kill()
		return fmt.Errorf("%s does not come up: %w", m.name, errOr(init.Wait(), err))
	}
	m.init = init
	close(m.on)
	return nil
}

func errOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// mainMachine is process 1 of a machine, "machine on BOOTID", which buries
// orphans; and what is done when that has ended, "machine off DISK".
func mainMachine() {
	if len(os.Args) != 3 {
		misuse("machine on BOOTID | off DISK")
	}
	if os.Args[1] == "off" {
		unmount("/proc", unix.MNT_DETACH) // it knows no process any more, and umount(8) wants one that does
		unmount(os.Args[2], 0)
		return
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fail("machine: /proc: %v", err)
	}
	if err := unix.Mount(os.Args[2], "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""); err != nil {
		fail("machine: boot_id: %v", err)
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	fmt.Println("up")
	for range died {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// unmount waits until nobody who looks from outside has a file of it open.
func unmount(dir string, flags int) {
	err := unix.Unmount(dir, flags)
	for deadline := time.Now().Add(time.Minute); err == unix.EBUSY && time.Now().Before(deadline); err = unix.Unmount(dir, flags) {
		<-time.After(20 * time.Millisecond)
	}
	if err != nil && err != unix.EINVAL { // that it is not mounted
		fail("machine: unmount %s: %v", dir, err)
	}
}

// cut takes the power away: what the disk had not been told to keep is gone, and
// every process ends. With late the processes first see a disk that fails.
func (m *machine) cut(late bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return nil
	}
	if late {
		if err := m.dropDisk(); err != nil {
			return err
		}
		return m.end()
	}
	m.init.Process.Kill()
	if err := m.dropDisk(); err != nil {
		return err
	}
	return m.end()
}

// dropDisk makes the file system forget what is not on the disk (GODOWN).
func (m *machine) dropDisk() error {
	f, err := os.Open(m.see(m.disk))
	if err != nil {
		return err
	}
	defer f.Close()
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	flag := uint32(2)           // without the journal
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&flag))); e != 0 {
		return fmt.Errorf("power cut of %s: %w", m.disk, e)
	}
	return nil
}

// end ends all processes and unmounts the disk. Its caller holds m.mu.
func (m *machine) end() error {
	if m.init == nil {
		return nil
	}
	m.init.Process.Kill()
	m.init.Wait() // comes back when the last process of the namespace has
	m.init, m.on = nil, make(chan struct{})
	words := m.inside("-m", "machine", "off", m.disk)
	return run(words[0], words[1:]...)
}

// off ends the machine as a shutdown does, and then what keeps it.
func (m *machine) off() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.end()
	m.holder.Process.Kill()
	m.holder.Wait()
	return err
}

// power waits until the power is on, and gives process 1; nil when ctx ends.
func (m *machine) power(ctx context.Context) *exec.Cmd {
	for {
		m.mu.Lock()
		init, on := m.init, m.on
		m.mu.Unlock()
		if init != nil {
			return init
		}
		select {
		case <-on:
		case <-ctx.Done():
			return nil
		}
	}
}

// command is a command on the machine, whose power is on.
func (m *machine) command(ctx context.Context, init *exec.Cmd, args ...string) *exec.Cmd {
	// Nsenter would stop itself when its child is stopped, and stay so; so a shell waits.
	words := append([]string{"-t", strconv.Itoa(init.Process.Pid), "-n", "-m", "-p", "--no-fork", "--",
		"sh", "-c", `"$@" & wait $!; exit $?`, "sh"}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", words...)
	cmd.Env = m.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with its child
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// filter replaces the machine's packet filter by these rules, which are of
// chains that see all that comes in and all that goes out.
func (m *machine) filter(in, out string) error {
	text := "flush ruleset\n"
	if in+out != "" {
		text += "table inet chaos {\n chain in { type filter hook input priority 0; " + in + " }\n" +
			" chain out { type filter hook output priority 0; " + out + " }\n}\n"
	}
	words := m.inside("-n", "nft", "-f", "-")
	return runWith(text, words[0], words[1:]...)
}

// A network is a switch with a cable to each machine.
type network struct{ *machine }

func newNetwork(top string) (*network, error) {
	m, err := newMachine(top, "net", "", 0)
	if err != nil {
		return nil, err
	}
	n := &network{m}
	return n, n.ip(m, "link add br0 type bridge", "link set br0 up")
}

// ip runs ip(8) in a machine's network for each of the lines.
func (n *network) ip(m *machine, lines ...string) error {
	for _, line := range lines {
		words := m.inside("-n", append([]string{"ip"}, strings.Fields(line)...)...)
		if err := run(words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// plug gives m its cable.
func (n *network) plug(m *machine) error {
	err := n.ip(n.machine, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", m.name, m.holder.Process.Pid),
		"link set "+m.name+" master br0 up")
	if err != nil {
		return err
	}
	return n.ip(m, "link set lo up", "addr add "+m.addr+"/24 dev eth0", "link set eth0 up")
}

// A prey is a process of a machine that a fault can be made for.
type prey struct {
	pid  int
	kind string // dsched, dnoded, supervisor, job or tool
}

// processes are the prey on the machine.
func (m *machine) processes() []prey {
	mark := []byte("\x00HOME=" + m.home() + "\x00")
	var found []prey
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(dir + "/environ")
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid < 2 || !bytes.Contains(append([]byte{0}, environ...), mark) || gone(pid) {
			continue
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		argv0, _, _ := strings.Cut(string(cmdline), "\x00")
		if kind := kindOf(filepath.Base(argv0), environ); kind != "" {
			found = append(found, prey{pid, kind})
		}
	}
	return found
}

// kindOf tells what a process is by its name and its environment.
func kindOf(name string, environ []byte) string {
	switch {
	case name == "dnoded-slot":
		return "supervisor"
	case bytes.Contains(environ, []byte("\x00DISTRIBUTE_ATTEMPT=")):
		return "job"
	case name == "dsched", name == "dnoded":
		return name
	case strings.HasPrefix(name, "d") && name != "dash" && name != "df" && name != "date" && name != "dd":
		return "tool"
	}
	return ""
}
