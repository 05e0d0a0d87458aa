package pause

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Now is what a node says of itself in a place, so that the person at the desk can
// be told whose jobs stand still while no daemon answers. It may be wrong: whoever
// reads it asks the kernel what lives.
type Now struct {
	Format   int       `json:"format"`
	Node     string    `json:"node"`
	Head     string    `json:"head,omitempty"`
	Dir      string    `json:"dir"`                // the node's directory
	CPUs     int       `json:"cpus"`               // offered, with nothing given back
	Memory   bool      `json:"memory,omitempty"`   // the kernel can take memory from its jobs
	Patience *float64  `json:"patience,omitempty"` // seconds that the head lets jobs wait; absent: for ever
	Owners   []int     `json:"owners,omitempty"`   // who may pause; absent: everybody
	PID      int       `json:"pid"`                // of the daemon
	Start    uint64    `json:"start"`              // of that process, in ticks after boot
	Boot     string    `json:"boot"`
	Running  []Running `json:"running,omitempty"`

	UID   int    `json:"-"` // the owner of the file
	Place string `json:"-"`
}

// Running is an attempt, or a build, that a node has given to a supervisor.
type Running struct {
	Job    string `json:"job,omitempty"` // its id; absent if that is for its owner only
	User   string `json:"user"`          // who submitted it
	Build  bool   `json:"build,omitempty"`
	CPUs   int    `json:"cpus"`
	Cgroup string `json:"cgroup,omitempty"` // the directory of its group
	PID    int    `json:"pid"`              // of the supervisor
	Start  uint64 `json:"start"`
}

// What is read of such files.
const (
	nowPrefix = "now."
	maxNow    = 4 << 20 // bytes
	maxNows   = 100     // of all users together
)

func nowName(uid int, node string) string { return nowPrefix + strconv.Itoa(uid) + "." + node }

// EncodeNow is the content of the file.
func (n *Now) Encode() ([]byte, error) {
	c := *n
	c.Format = Format
	b, err := json.Marshal(c)
	return append(b, '\n'), err
}

// PutNow puts into a place what a node says of itself: what [Now.Encode] made of
// it. It is not synced: after a boot it is wrong anyway.
func PutNow(place, node string, content []byte) error {
	name := filepath.Join(place, nowName(os.Geteuid(), node))
	temp := filepath.Join(place, "."+filepath.Base(name)+".tmp~")
	if err := gone(os.Remove(temp)); err != nil {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, gone(os.Remove(temp)))
	}
	return nil
}

// RemoveNow removes what PutNow has put.
func RemoveNow(place, node string) error {
	return gone(os.Remove(filepath.Join(place, nowName(os.Geteuid(), node))))
}

// ReadNow is what the nodes of this boot say of themselves in the places, each
// once; a node says the same in each. What is not understood is passed over.
func ReadNow(c Clock, places []string) []Now {
	var all []Now
	said := map[string]bool{}
	for _, place := range places {
		dir, err := openPlace(place)
		if err != nil || dir == nil {
			continue
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		for _, name := range names {
			if said[name] || len(all) >= maxNows || !strings.HasPrefix(name, nowPrefix) {
				continue
			}
			if n, err := readNow(place, name); err == nil && n.Boot == c.Boot {
				all, said[name] = append(all, n), true
			}
		}
	}
	return all
}

// OwnNow is what a node of this process's user has said of itself, in whatever boot.
func OwnNow(place, node string) (Now, error) { return readNow(place, nowName(os.Geteuid(), node)) }

// readNow reads one such file.
func readNow(place, name string) (Now, error) {
	path := filepath.Join(place, name)
	info, err := os.Lstat(path)
	st, ok := sysOf(info, err)
	if !ok {
		return Now{}, err
	}
	b, err := readSmall(path, maxNow)
	if err != nil {
		return Now{}, err
	}
	n, err := DecodeNow(b)
	if err != nil {
		return Now{}, err
	}
	if name != nowName(int(st.Uid), n.Node) {
		return Now{}, fmt.Errorf("%s: is not of whom it says", path)
	}
	n.UID, n.Place = int(st.Uid), place
	return n, nil
}

// DecodeNow reads the content of such a file, which says nothing of whose it is.
// What this version does not know of it is passed over.
func DecodeNow(b []byte) (Now, error) {
	var n Now
	if err := json.Unmarshal(b, &n); err != nil {
		return Now{}, fmt.Errorf("not understood: %w", err)
	}
	switch {
	case n.Format != Format:
		return Now{}, fmt.Errorf("format %d, this version reads %d", n.Format, Format)
	case n.Node == "" || strings.ContainsRune(n.Node, '/') || !printable(n.Node), !filepath.IsAbs(n.Dir):
		return Now{}, errors.New("names no node, or no directory")
	case n.Patience != nil && (*n.Patience < 0 || *n.Patience > farthest.Seconds()):
		return Now{}, errors.New("says of no time how long jobs wait")
	case n.CPUs < 0 || n.CPUs > maxCPUs:
		return Now{}, errors.New("has so many cpus as nobody")
	}
	for _, r := range n.Running {
		if r.CPUs < 0 || r.CPUs > maxCPUs || r.PID <= 1 || r.Cgroup != "" && !filepath.IsAbs(r.Cgroup) {
			return Now{}, errors.New("runs what cannot run")
		}
	}
	return n, nil
}

// Waits is how long the node lets jobs wait; forever says that they do for ever.
func (n *Now) Waits() (d time.Duration, forever bool) {
	if n.Patience == nil {
		return 0, true
	}
	return time.Duration(*n.Patience * float64(time.Second)), false
}
