package proc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// GroupName is the name of the group of all orders of a node, whose directory is dir:
// two nodes of one name may be on a machine, as of two labs.
func GroupName(node, dir string) string {
	sum := sha256.Sum256([]byte(Absolute(dir)))
	return node + "." + hex.EncodeToString(sum[:4])
}

// Absolute is the path by which a node's directory is known to supervisors and to dpause(1): one
// that does not depend on where this process is, nor, if it is there, on links by which it is
// named.
func Absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// CgroupParent makes the directory below which the trees of the orders of a node get
// their cgroups, and returns it; dir is that of the node. It fails where there is no cgroup file system
// of version 2, where this process may not make groups in it, or where the
// kernel cannot kill a group (before Linux 5.14).
//
// The directory is distribute/[GroupName] below what systemd has delegated to the unit
// that this process is of (systemd.resource-control(5), Delegate=), so that what
// is stopped, counted or bounded with the unit is so with its jobs. Where nothing
// was delegated it is below the mount for root, below the own group for others.
func CgroupParent(node, dir string) (string, error) {
	top, err := cgroupTop()
	if err != nil {
		return "", err
	}
	group := filepath.Join(top, "distribute", GroupName(node, dir))
	if err := makeGroup(group, 2); err != nil {
		return "", err
	}
	if ownScope(top) {
		// A group with processes has no limits below it, and a scope no DelegateSubgroup=.
		daemon := filepath.Join(top, "dnoded")
		if err := os.MkdirAll(daemon, 0o755); err == nil {
			command(daemon, "cgroup.procs", strconv.Itoa(os.Getpid()))
		}
	}
	if err := fitGroup(group); err != nil {
		return "", err
	}
	return group, nil
}

// makeGroup makes a group, and those above it that are missing. Everybody may look into it and
// into so many above it as depth says less one, also if umask 077 made them before: dpause(1)
// asks the kernel what stands still.
func makeGroup(dir string, depth int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for ; depth > 0; dir, depth = filepath.Dir(dir), depth-1 {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o055 != 0o055 {
			os.Chmod(dir, info.Mode().Perm()|0o055) // if it is of another user, dpause says that it cannot see
		}
	}
	return nil
}

// cgroupTop is the group in which distribute/ is made.
func cgroupTop() (string, error) {
	mount, err := cgroupMount()
	if err != nil {
		return "", err
	}
	own, err := ownCgroup()
	if err != nil && os.Geteuid() != 0 {
		return "", err
	}
	top := filepath.Join(mount, own)
	switch {
	case err != nil:
		top = mount
	case delegated(top):
	case delegated(filepath.Dir(top)), ownUnit(filepath.Dir(top)), ownScope(filepath.Dir(top)): // it is of a DelegateSubgroup=, or was moved
		top = filepath.Dir(top)
	case os.Geteuid() == 0:
		top = mount
	}
	return top, nil
}

// fitGroup says why no groups of orders could be made in a group.
func fitGroup(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil && dir != mountOf(dir) {
		return err
	}
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		return fmt.Errorf("%s/cgroup.procs: %w", dir, err)
	}
	return nil
}

// ownScope says whether a group is the scope that dlocal(1) has had made for this process.
func ownScope(dir string) bool {
	is, _ := filepath.Match("distribute-*.scope", filepath.Base(dir))
	return is
}

// mountOf is the mount of cgroups if a directory is that, which has no cgroup.kill.
func mountOf(dir string) string {
	if mount, err := cgroupMount(); err == nil && mount == dir {
		return mount
	}
	return ""
}

// WouldContain is what CgroupParent would return, without making anything, and the
// controllers that orders could have there.
func WouldContain(node, dir string) (group string, has []string, err error) {
	top, err := cgroupTop()
	if err != nil {
		return "", nil, err
	}
	group = filepath.Join(top, "distribute", GroupName(node, dir))
	at := group
	for ; at != top; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil {
			break
		}
	}
	if err := fitGroup(at); err != nil {
		return "", nil, err
	}
	if err := unix.Access(at, unix.W_OK); err != nil {
		return "", nil, fmt.Errorf("%s: %w", at, err)
	}
	b, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
	for _, c := range strings.Fields(string(b)) {
		if slices.Contains(controllers, c) {
			has = append(has, c)
		}
	}
	return group, has, err
}

// delegated says whether systemd has left a group to a unit, which it notes in
// extended attributes: one for everybody to read, and, in versions before 251,
// only one for root.
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// ownUnit says whether a group is that of a unit which has been left to this user.
// The managers of users note that nowhere. To root all belongs, so it says
// nothing.
func ownUnit(dir string) bool {
	return os.Geteuid() != 0 && filepath.Ext(dir) == ".service" && unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) == nil
}

// cgroupMount is where version 2 is mounted, alone or beside version 1.
func cgroupMount() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	if m := parseMounts(b); m != "" {
		return m, nil
	}
	return "", errors.New("no cgroup2 file system is mounted")
}

// parseMounts finds the mount point of a cgroup2 file system whose root is the
// hierarchy's root. Mount points with escaped characters are passed over.
func parseMounts(info []byte) string {
	for line := range bytes.Lines(info) {
		left, right, ok := strings.Cut(string(line), " - ")
		f := strings.Fields(left)
		if ok && len(f) >= 5 && strings.HasPrefix(right, "cgroup2 ") && f[3] == "/" && !strings.Contains(f[4], `\`) {
			return f[4]
		}
	}
	return ""
}

// ownCgroup is the version 2 group of this process, relative to the mount.
func ownCgroup() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(b) {
		if p, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			return strings.TrimSpace(string(p)), nil
		}
	}
	return "", errors.New("/proc/self/cgroup: no version 2 group")
}

// A group is the cgroup of one tree.
type group struct {
	dir string
	fd  int
	has string // the controllers that its files are of, with spaces around; empty: not known
}

// newGroup makes the group of an order below parent. One that is left from an
// earlier try is used again if nothing lives in it.
func newGroup(parent, token string) (*group, error) {
	dir := filepath.Join(parent, token)
	if err := makeGroup(dir, 3); err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &group{dir: dir, fd: fd}, nil
}

// kill sends SIGKILL to every process in the group and below it, at one
// instant: no fork escapes.
func (g *group) kill() error { return killGroup(g.dir) }

func killGroup(dir string) error { return command(dir, "cgroup.kill", "1") }

// command writes to a file of a group that the kernel obeys. Jobs that run as this
// user may have taken the right to that away, which can be had back.
func command(dir, file, text string) error {
	name := filepath.Join(dir, file)
	err := os.WriteFile(name, []byte(text), 0)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(name, 0o644) == nil {
		err = os.WriteFile(name, []byte(text), 0)
	}
	return err
}

// populated says whether a process lives in the group or below it.
func populated(dir string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return bytes.Contains(b, []byte("populated 1")), err
}

// remove removes the empty group and those that the job made below it.
func (g *group) remove() {
	unix.Close(g.fd)
	removeGroup(g.dir)
}

func removeGroup(dir string) error {
	err := os.Remove(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(dir, e.Name()))
		}
	}
	return os.Remove(dir)
}

// emptyGroup kills what is in the group until the kernel says that nothing is,
// and removes it.
func emptyGroup(dir string, pause func(time.Duration) error) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 100*time.Millisecond) {
		live, err := populated(dir)
		if err != nil {
			return err
		}
		if !live {
			return removeGroup(dir)
		}
		if err := killGroup(dir); err != nil {
			return err
		}
		if err := pause(wait); err != nil {
			return err
		}
	}
}
