package dial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The tools of a user share one connection to each host, which ssh itself keeps
// (ControlMaster in ssh_config(5)) and goes on keeping for a while: a pipeline
// costs one, and what is typed next costs less.

// sharedFor is how many seconds a connection is kept that nobody uses.
const sharedFor = "60"

// nameSum is how many bytes of the sum of its settings name ssh's socket.
const nameSum = 8

// maxControl is how long the path of the directory of ssh's socket may be: the
// kernel takes 107 bytes, and ssh appends 17 to the socket's name while it makes
// it.
const maxControl = 107 - 17 - 1 - 2*nameSum

// SharingDirs are the directories in which the tools of a user can share their
// ssh: in XDG_RUNTIME_DIR, and in ~/.cache.
func SharingDirs(getenv func(string) string) (dirs []string) {
	cache := getenv("XDG_CACHE_HOME")
	if home := getenv("HOME"); cache == "" && home != "" {
		cache = filepath.Join(home, ".cache")
	}
	for _, parent := range []string{getenv("XDG_RUNTIME_DIR"), cache} {
		if filepath.IsAbs(parent) {
			dirs = append(dirs, filepath.Join(parent, "distribute"))
		}
	}
	return dirs
}

// fitForSharing makes a directory, if it is not there, and reports why ssh's
// socket cannot be in it: it must be the user's alone, and its path short.
func fitForSharing(dir string) error {
	if len(dir) > maxControl || strings.ContainsAny(dir, "\"\\$\n") {
		return fmt.Errorf("the path %q is too long, or has letters that ssh takes for something else", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(owner) != os.Geteuid() {
		return fmt.Errorf("%q is not this user's alone", dir)
	}
	return nil
}

// shareSSH returns the options with which an ssh of these settings shares its
// connection: none if it is not to, or the user's settings say how. Who comes
// while another is connecting waits for that, so that there is one connection
// and one question for a password; connected has to be called when there is a
// connection, or none, once or more.
func (t Terms) shareSSH(ctx context.Context, set sshSettings) (options []string, connected func(), err error) {
	connected = func() {}
	fit := slices.IndexFunc(t.Sharing, func(dir string) bool { return fitForSharing(dir) == nil })
	if fit < 0 || set == "" || set.has("controlpath", "none") {
		return nil, connected, ctx.Err()
	}
	sum := sha256.Sum256([]byte(set))
	path := filepath.Join(t.Sharing[fit], hex.EncodeToString(sum[:nameSum]))
	options = []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=" + sharedFor,
		"-o", `ControlPath="` + strings.ReplaceAll(path, "%", "%%") + `"`}
	if listens(path) {
		return options, connected, nil
	}
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return nil, connected, ctx.Err()
	}
	if listens(path) {
		lock.Close()
		return options, connected, nil
	}
	return options, func() { lock.Close() }, nil
}

// listens says whether somebody listens on a socket.
func listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// lockFile waits until it has the lock of a file, which closing gives back.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
