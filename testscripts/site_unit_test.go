package testscripts

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	people "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mainUnit stands in for systemctl(1) on a machine of namespaces, which has no
// systemd: it starts what a unit says in ExecStart=, as its User= and Group= with
// its StateDirectory= and UMask=, and waits until that says that it is up, as
// Type=notify has it. Nothing is started again, nor kept in a sandbox.
//
//	unit enable|disable [--now] NAME, unit start|stop|restart NAME, unit daemon-reload
func mainUnit() {
	var words []string
	now := false
	for _, w := range os.Args[1:] {
		if now = now || w == "--now"; !strings.HasPrefix(w, "-") {
			words = append(words, w)
		}
	}
	if len(words) == 1 && words[0] == "daemon-reload" {
		return
	}
	if len(words) != 2 {
		misuse("unit VERB [--now] NAME")
	}
	verb, name := words[0], strings.TrimSuffix(words[1], ".service")
	var err error
	switch {
	case verb == "restart":
		err = errors.Join(stopUnit(name), startUnit(name))
	case verb == "start", verb == "enable" && now:
		err = startUnit(name)
	case verb == "stop", verb == "disable" && now:
		err = stopUnit(name)
	default:
		misuse("unit enable --now | disable --now | start | stop | restart | daemon-reload")
	}
	if err != nil {
		fail("systemctl: %s: %v", name, err)
	}
}

// unitFile reads a unit and what is dropped in beside it: of each key all values,
// where an empty one takes those before it away.
func unitFile(name string) (map[string][]string, error) {
	file := "lib/systemd/system/" + name + ".service"
	if _, err := os.Stat("/usr/local/" + file); err == nil {
		file = "local/" + file
	}
	files := []string{"/usr/" + file}
	more, _ := filepath.Glob("/etc/systemd/system/" + name + ".service.d/*.conf")
	said := map[string][]string{}
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(strings.NewReader(string(text)))
		for lines.Scan() {
			key, value, ok := strings.Cut(lines.Text(), "=")
			switch {
			case !ok || strings.HasPrefix(key, "#"):
			case value == "":
				delete(said, key)
			default:
				said[key] = append(said[key], value)
			}
		}
	}
	return said, nil
}

// last is the value of a key that counts.
func last(values []string, otherwise string) string {
	if len(values) == 0 {
		return otherwise
	}
	return values[len(values)-1]
}

func pidFile(name string) string { return "/run/" + name + ".pid" }

func startUnit(name string) error {
	said, err := unitFile(name)
	if err != nil {
		return err
	}
	who, err := people.Lookup(last(said["User"], "root"))
	if err != nil {
		return err
	}
	as, err := credential(who, last(said["Group"], ""))
	if err != nil {
		return err
	}
	for _, dir := range strings.Fields(strings.Join(said["StateDirectory"], " ")) {
		dir = filepath.Join("/var/lib", dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, int(as.Uid), int(as.Gid))); err != nil {
			return err
		}
	}
	socket := "/run/systemd/" + name + ".notify"
	os.Remove(socket)
	up, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	log, err := os.OpenFile("/var/log/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err := errors.Join(err, os.Chmod(socket, 0o777)); err != nil {
		return err
	}
	mask, err := strconv.ParseUint(last(said["UMask"], "0022"), 8, 12)
	if err != nil {
		return err
	}
	syscall.Umask(int(mask))
	words := strings.Fields(last(said["ExecStart"], "false"))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + who.HomeDir,
		"USER=" + who.Username, "LOGNAME=" + who.Username, "NOTIFY_SOCKET=" + socket, "GORACE=atexit_sleep_ms=10"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- err
		up.Close()
	}()
	if _, err := up.Read(make([]byte, 100)); err != nil {
		return fmt.Errorf("it has ended, %w; see /var/log/%s.log", errors.Join(<-ended, err), name)
	}
	return os.WriteFile(pidFile(name), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// credential is the user with all of his groups, of which group is the first if it
// is given.
func credential(who *people.User, group string) (*syscall.Credential, error) {
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid := who.Gid
	if group != "" {
		g, err := people.LookupGroup(group)
		if err != nil {
			return nil, err
		}
		gid = g.Gid
	}
	ids, err := who.GroupIds()
	if err != nil {
		return nil, err
	}
	c := &syscall.Credential{Uid: uint32(uid)}
	for _, id := range append([]string{gid}, ids...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, err
		}
		c.Groups = append(c.Groups, uint32(n))
	}
	c.Gid = c.Groups[0]
	return c, nil
}

// stopUnit asks the daemon to end, and waits until it has.
func stopUnit(name string) error {
	text, err := os.ReadFile(pidFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	pid, conv := strconv.Atoi(string(text))
	if err := errors.Join(err, conv); err != nil {
		return err
	}
	syscall.Kill(pid, syscall.SIGTERM)
	for deadline := time.Now().Add(time.Minute); !gone(pid); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", pid)
		}
	}
	return os.Remove(pidFile(name))
}
