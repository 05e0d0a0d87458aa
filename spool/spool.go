package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
)

// Format is the version of the spool's format that this program reads and
// writes.
const Format = 1

// Limits, by which a mistake is told from a wish.
const (
	MaxJobs   = job.MaxJobs  // of a batch
	MaxLine   = 16 << 20     // bytes of one line of jobs.jsonl or of a log
	MaxText   = 16 << 30     // bytes of jobs.jsonl
	MaxInputs = job.MaxFiles // different input files of a batch
	MaxBytes  = job.MaxBytes // bytes of these together
	MaxFile   = 256 << 20    // bytes of the batch file that is kept
	MaxDrop   = 64 << 30     // bytes of a file in incoming/
)

// What errors of this package are, for errors.Is.
var (
	ErrNoSpool = errors.New("no spool")                         // there is no spool.json
	ErrFormat  = errors.New("a spool of another format")        // spool.json or a log names another version
	ErrNetwork = errors.New("a spool on a network file system") // refused
	ErrLocked  = errors.New("the spool has a dsched already")   // and the error says where
	ErrTaken   = errors.New("the name of the batch is taken")   // by another batch
	ErrSame    = errors.New("the batch is there already")       // the same submission, or the same content
	ErrInput   = errors.New("the submission is wrong")          // refused, with a line for each reason
	ErrFull    = durable.ErrFull                                // there was no room; it may be tried again
	ErrBroken  = durable.ErrBroken                              // a write or sync failed: the program has to stop
	ErrPrivate = errors.New("a private batch")                  // cannot wait in incoming/
	ErrPlace   = errors.New("no spool, and no place for one")   // of Init
)

// A Spool is the directory of a head, as anybody may read it. Its methods are
// safe for concurrent use and take no lock on the directory.
type Spool struct {
	dir string
	id  string
	uid int // who owns it
	gid int

	headRead headReader
}

// Open finds the spool in dir. It fails with [ErrNoSpool], [ErrFormat] or
// [ErrNetwork], and in words that say what to do.
func Open(dir string) (*Spool, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(abs, "spool.json")
	b, err := readRegular(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w in %q: %s is missing (mount what belongs there, or make one with dadm init)",
			ErrNoSpool, dir, name)
	}
	if err != nil {
		return nil, err
	}
	s := &Spool{dir: abs}
	if s.id, err = parseIdentity(b); err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	st := info.Sys().(*syscall.Stat_t)
	s.uid, s.gid = int(st.Uid), int(st.Gid)
	return s, refuseNetwork(abs)
}

// readRegular reads a regular file. It follows no link and waits for no FIFO.
func readRegular(name string) ([]byte, error) {
	f, err := check.Open(name)
	if errors.Is(err, check.ErrKind) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// identity is spool.json.
type identity struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
}

func parseIdentity(b []byte) (id string, err error) {
	var v identity
	if err := line.Unmarshal(b, &v); err != nil {
		return "", fmt.Errorf("%w: %w (put back the one of a backup; it never changes)", ErrNoSpool, err)
	}
	if v.Format != Format {
		return "", fmt.Errorf("%w: it is %d, this program knows %d", ErrFormat, v.Format, Format)
	}
	if err := job.Token(v.ID).Check(); err != nil {
		return "", fmt.Errorf("%w: its id: %w (put back the one of a backup; it never changes)", ErrNoSpool, err)
	}
	return v.ID, nil
}

func newIdentity() []byte {
	b, err := json.Marshal(identity{Format, string(job.NewToken())})
	if err != nil {
		panic(err) // of a number and a string
	}
	return append(b, '\n')
}

// refuseNetwork fails for the file systems whose magic numbers (statfs(2)) are
// those of network ones.
func refuseNetwork(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	kind := map[uint32]string{
		0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x517b: "SMB", 0x65735546: "FUSE",
		0x5346414f: "AFS", 0x6b414653: "AFS", 0x00c36400: "Ceph", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS",
	}[uint32(st.Type)]
	if kind == "" {
		return nil
	}
	return fmt.Errorf("%w: %q is on %s, where locks and renames do not hold as a spool needs them (use a local disk)",
		ErrNetwork, dir, kind)
}

// ID is drawn when the spool is made, and never changes.
func (s *Spool) ID() string { return s.id }

// Dir is the spool's absolute path.
func (s *Spool) Dir() string { return s.dir }

// User is the number of who made the spool, and alone may write in it.
func (s *Spool) User() int { return s.uid }

// Group is the number of the group to which what is made in the spool belongs.
func (s *Spool) Group() int { return s.gid }

// Socket is the path of the socket on which dsched listens.
func (s *Spool) Socket() string { return s.path("run", "socket") }

// DeskDir is the directory of the sockets by which the head has a node that it has
// dialled.
func (s *Spool) DeskDir(node string) string { return s.path("run", "desk-"+node) }

// SettingsFile is the path of the site's settings, which lib/conf reads.
func (s *Spool) SettingsFile() string { return s.path("head.yaml") }

// NodesFile is the path of the list of the nodes that are let in.
func (s *Spool) NodesFile() string { return s.path("keys", "nodes") }

// KeyFile is the path of the head's key, which lib/dial reads.
func (s *Spool) KeyFile() string { return s.path("keys", "head") }

func (s *Spool) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *Spool) batchDir(id job.BatchID) string {
	return filepath.Join(s.dir, "batches", string(id))
}
