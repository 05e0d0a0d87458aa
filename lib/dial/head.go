package dial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNoHead is returned when nothing says where the head is.
var ErrNoHead = errors.New("no head is set")

// A NoHead is [ErrNoHead] with what to do about it.
type NoHead struct {
	Empty string // the file that should say it, and is empty; none where there is none
}

func (e NoHead) Error() string {
	if e.Empty != "" {
		return fmt.Sprintf("%q is empty: its first line is the address of the head", e.Empty)
	}
	return ErrNoHead.Error() + `; one of these says which (DIR is its spool, or ssh://HOST/DIR):
  export DHEAD=DIR   the lab's; or DIR in ~/.config/distribute/head
  eval "$(dlocal)"   starts a head and a node of your own, here
  -H DIR             just this once`
}

// Is makes a NoHead an ErrNoHead.
func (NoHead) Is(err error) bool { return err == ErrNoHead }

// ExitStatus is the status with which a command ends for this error.
func (NoHead) ExitStatus() int { return 69 }

// Head says which head a command speaks to: flag (of -H), else $DHEAD, else the
// first line of ~/.config/distribute/head, else of /etc/distribute/head, else
// the user's own spool, if there is one. With none it is [ErrNoHead].
func Head(getenv func(string) string, flag string) (string, error) {
	addr, _, err := HeadFrom(getenv, flag)
	return addr, err
}

// HeadFrom is Head, and names the file that says it, if one does.
func HeadFrom(getenv func(string) string, flag string) (addr, from string, err error) {
	for _, a := range []string{flag, getenv("DHEAD")} {
		if a != "" {
			return a, "", nil
		}
	}
	config := getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(getenv("HOME"), ".config")
	}
	for _, file := range []string{filepath.Join(config, "distribute", "head"), "/etc/distribute/head"} {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		addr, _, _ := strings.Cut(string(b), "\n")
		if addr = strings.TrimSpace(addr); addr == "" {
			return "", "", NoHead{Empty: file}
		}
		return addr, file, nil
	}
	if own := OwnSpool(getenv); exists(filepath.Join(own, "spool.json")) {
		return own, "", nil
	}
	return "", "", NoHead{}
}

// SiteSpool is where the spool of a group lies, if nothing else is said.
const SiteSpool = "/srv/spool"

// OwnSpool is where a user's own spool lies: [SiteSpool] for the user whose
// directory that is, which the head's unit runs as; for others
// ~/.local/state/distribute/spool, which dlocal(1) makes.
func OwnSpool(getenv func(string) string) string {
	if info, err := os.Stat(SiteSpool); err == nil && info.IsDir() {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			return SiteSpool
		}
	}
	state := getenv("XDG_STATE_HOME")
	if state == "" {
		state = filepath.Join(getenv("HOME"), ".local", "state")
	}
	return filepath.Join(state, "distribute", "spool")
}

// Spool is the local spool directory that addr names, if it names one.
func Spool(addr string) (dir string, ok bool) {
	return addr, !strings.HasPrefix(addr, "unix:") && !strings.Contains(addr, "://")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
