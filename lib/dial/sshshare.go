package dial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
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

// nameSum is how many bytes of a sum name ssh's socket.
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
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || ownerOf(info) != os.Geteuid() {
		return fmt.Errorf("%q is not this user's alone", dir)
	}
	above, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return err
	}
	if o := ownerOf(above); o != os.Geteuid() && o != 0 || above.Mode().Perm()&0o002 != 0 && above.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others can put another directory in the place of %q", dir)
	}
	return nil
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// shareSSH returns the options besides with which an ssh shares its connection
// and is patient, unless the user's settings say how. Who comes while another is
// connecting waits for that, so that there is one connection and one question
// for a password; connected has to be called when there is a connection, or
// none, once or more. A daemon shares among its own streams, and its patience is
// its own.
func (t Terms) shareSSH(ctx context.Context, options []string, a sshAddr) (more []string, connected func(), err error) {
	connected = func() {}
	if len(t.Sharing) == 0 {
		return append(sshSettings("").patience(), t.control()...), connected, ctx.Err()
	}
	fit := slices.IndexFunc(t.Sharing, func(dir string) bool { return fitForSharing(dir) == nil })
	if fit < 0 {
		return settings(ctx, options, a).patience(), connected, ctx.Err()
	}
	path := filepath.Join(t.Sharing[fit], socketName(a, t.Connection))
	sharing := []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=" + sharedFor,
		"-o", `ControlPath="` + strings.ReplaceAll(path, "%", "%%") + `"`}
	if listens(path) {
		return sharing, connected, nil
	}
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return settings(ctx, options, a).patience(), connected, ctx.Err()
	}
	if listens(path) {
		lock.Close()
		return sharing, connected, nil
	}
	set := settings(ctx, options, a)
	if set == "" || set.has("controlpath", "none") {
		lock.Close()
		return set.patience(), connected, ctx.Err()
	}
	return append(set.patience(), sharing...), func() { lock.Close() }, nil
}

// socketName is the name of the socket of a connection to a host: another as soon
// as the settings of ssh are others.
func socketName(a sshAddr, connection int) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %d\n", sshOptions, a.words(), connection)
	files := []string{"/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d"}
	if u, err := user.Current(); err == nil {
		files = append(files, filepath.Join(u.HomeDir, ".ssh/config"), filepath.Join(u.HomeDir, ".ssh/config.d"))
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			fmt.Fprintf(sum, "%q %d %v\n", file, info.Size(), info.ModTime())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:nameSum])
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
