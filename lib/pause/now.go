package pause

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	Part     *Part     `json:"part,omitempty"`     // of the machine that the node is; absent: it is the machine
	Patience *float64  `json:"patience,omitempty"` // seconds that the head lets jobs wait; absent: for ever
	Owners   []int     `json:"owners,omitzero"`    // who may pause; absent: everybody
	PID      int       `json:"pid"`                // of the daemon
	Start    uint64    `json:"start"`              // of that process, in ticks after boot
	Boot     string    `json:"boot"`
	Cgroup   string    `json:"cgroup,omitempty"` // the directory in which each order has its group; absent: processes are held by best effort
	Running  []Running `json:"running,omitempty"`

	UID   int    `json:"-"` // the owner of the file
	Place string `json:"-"`

	said time.Time // when the file was written
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
	nowPrefix  = "now."
	maxNow     = 4 << 20 // bytes
	maxNowsOne = 20      // of one user
	maxNows    = 100     // of all together
)

// nowName is the usual name of the file of a node with that directory: another node of the
// user can have the same name. Anybody may have put something there before: then the name
// goes on with a tilde and what was drawn at random.
func nowName(uid int, node, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return nowPrefix + strconv.Itoa(uid) + "." + node + "~" + hex.EncodeToString(sum[:8])
}

// nowOwner is the user who a file says in its name that it is of.
func nowOwner(name string) (uid int, ok bool) {
	rest, is := strings.CutPrefix(name, nowPrefix)
	number, _, more := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	return int(n), is && more && err == nil
}

// Encode is the content of the file.
func (n *Now) Encode() ([]byte, error) {
	c := *n
	c.Format = Format
	b, err := json.Marshal(c)
	return append(b, '\n'), err
}

// PutNow puts into a place what a node says of itself, in the place of what it said before,
// at once. It is not synced: after a boot it is wrong anyway.
func PutNow(place string, n *Now) error {
	content, err := n.Encode()
	if err != nil {
		return err
	}
	usual := nowName(os.Geteuid(), n.Node, n.Dir)
	names, err := ownNames(place)
	if err != nil {
		return err
	}
	name, first := usual, true
	for _, was := range names {
		if was == usual || strings.HasPrefix(was, usual+"~") {
			name, first = was, false
		}
	}
	f, err := os.CreateTemp(place, "."+usual+".*.tmp~")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(place, name))
	}
	if name == usual && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist)) { // a directory is there
		err = os.Rename(f.Name(), filepath.Join(place, usual+"~"+rand.Text()))
	}
	if err != nil {
		return errors.Join(err, gone(os.Remove(f.Name())))
	}
	if first {
		n.removeStale(place, names)
	}
	return nil
}

// removeStale removes those of this user's files that the node wrote under another name, and
// those of nodes that are gone: of another boot, or without a process.
func (n *Now) removeStale(place string, names []string) {
	for _, name := range names {
		if o, err := readNow(place, name); err == nil && (o.Dir == n.Dir || o.Boot != n.Boot || !o.lives()) {
			os.Remove(filepath.Join(place, name))
		}
	}
}

// lives reports whether the node may have a process: its daemon, a supervisor, or one in its
// cgroup. It looks at nothing in the node's directory, which may be on a server that hangs.
func (n *Now) lives() bool {
	lives := func(pid int) bool { return unix.Kill(pid, 0) != unix.ESRCH }
	if lives(n.PID) || slices.ContainsFunc(n.Running, func(r Running) bool { return lives(r.PID) }) {
		return true
	}
	if n.Cgroup == "" {
		return false
	}
	events, err := os.ReadFile(filepath.Join(n.Cgroup, "cgroup.events"))
	return !errors.Is(err, fs.ErrNotExist) && !strings.Contains(string(events), "populated 0")
}

// RemoveNow removes what the node with that directory has put.
func RemoveNow(place, dir string) error {
	return eachOwn(place, dir, func(n Now, name string) error {
		return gone(os.Remove(filepath.Join(place, name)))
	})
}

// eachOwn does something with each file that this process's user has put for the node
// with that directory.
func eachOwn(place, dir string, do func(n Now, name string) error) error {
	names, err := ownNames(place)
	errs := []error{err}
	for _, name := range names {
		if n, err := readNow(place, name); err == nil && n.Dir == dir {
			errs = append(errs, do(n, name))
		}
	}
	return errors.Join(errs...)
}

// ownNames returns the names of the files that this process's user has put for nodes.
func ownNames(place string) (names []string, err error) {
	dir, err := openPlace(place)
	if err != nil || dir == nil {
		return nil, err
	}
	defer dir.Close()
	list, err := candidates(dir, nowOwner, maxNows, maxNows)
	for _, f := range list {
		if f.uid == os.Geteuid() {
			names = append(names, f.name)
		}
	}
	return names, err
}

// ReadNow is what the nodes of this boot say of themselves in the places, each
// once, what it said last, by its last name; sorted by their names. What is not understood
// is passed over.
func ReadNow(c Clock, places []string) (all []Now) {
	for _, place := range places {
		dir, err := openPlace(place)
		if err != nil || dir == nil {
			continue
		}
		list, _ := candidates(dir, nowOwner, maxNowsOne, maxNows)
		dir.Close()
		for _, f := range list {
			n, err := readNow(place, f.name)
			if err != nil || n.Boot != c.Boot {
				continue
			}
			i := slices.IndexFunc(all, func(o Now) bool { return o.UID == n.UID && o.Dir == n.Dir })
			switch {
			case i < 0:
				all = append(all, n)
			case n.said.After(all[i].said):
				all[i] = n
			}
		}
	}
	slices.SortFunc(all, func(a, b Now) int { return cmp.Or(strings.Compare(a.Node, b.Node), a.UID-b.UID) })
	return all
}

// OwnNow is what the node with that directory, of this process's user, has said of itself,
// in whatever boot.
func OwnNow(place, dir string) (last Now, err error) {
	err = eachOwn(place, dir, func(n Now, _ string) error {
		if !n.said.Before(last.said) {
			last = n
		}
		return nil
	})
	if last.Node != "" {
		return last, nil
	}
	return last, cmp.Or(err, error(fs.ErrNotExist))
}

// readNow reads one such file, which is to be of whom its name says.
func readNow(place, name string) (Now, error) {
	path := filepath.Join(place, name)
	b, info, err := readSmallOf(path, maxNow)
	st, ok := sysOf(info, err)
	if !ok {
		return Now{}, err
	}
	n, err := DecodeNow(b)
	if err != nil {
		return Now{}, err
	}
	if said, _, _ := strings.Cut(name, "~"); said != nowPrefix+strconv.Itoa(int(st.Uid))+"."+n.Node {
		return Now{}, fmt.Errorf("%s: is not of whom it says", path)
	}
	n.UID, n.Place, n.said = int(st.Uid), place, info.ModTime()
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
	case n.Cgroup != "" && !filepath.IsAbs(n.Cgroup):
		return Now{}, errors.New("names no directory of cgroups")
	}
	if err := n.Part.check(); err != nil {
		return Now{}, err
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
