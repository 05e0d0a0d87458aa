package node

import (
	"fmt"
	"slices"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/unit"
)

// MaxCPUs is how many cpus a node's file may offer.
const MaxCPUs = 65536

// A File is what a node's file (dnoded(8)) says. What it leaves out is zero.
type File struct {
	Name         Name
	Head         string      // address of the head
	HeadKey      Fingerprint // of the head's key, where TLS leads to it
	Capabilities []string    // offered beside those found
	Hidden       []string    // not offered even if found
	CPUs         int         // for all jobs together
	Reserve      *int64      // bytes of disk that jobs leave free
	Cache        *int64      // bytes of inputs and builds that are kept after use
	Output       *int64      // bytes that one job may print
	RunAs        string      // as whom jobs run: Submitter, or the name of an account
	Users        []string    // with Submitter: whose jobs; a name with a leading @ is that of a group
}

// Submitter, as RunAs, is each job's own.
const Submitter = "submitter"

// ReadFile reads a node's file. Its error has every mistake, with line and
// column.
func ReadFile(name string) (*File, error) {
	b, err := conf.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, b)
}

// Parse is ReadFile for a file that has been read. One of comments only says
// nothing.
func Parse(name string, data []byte) (*File, error) {
	if conf.Blank(data) {
		return &File{}, nil
	}
	doc, err := conf.Parse(name, data)
	if err != nil {
		return nil, err
	}
	m := doc.Root().Map(conf.Keys{
		Known: []string{"name", "head", "head_key", "capabilities", "cpus", "reserve", "cache", "output", "run_as", "users"},
		Refused: map[string]string{
			"capability": `write "capabilities" with a list: [gfortran, fftw]`,
			"cores":      `write "cpus": how many cpus jobs may have together`,
		},
	})
	f := &File{Head: m.Get("head").Text(), CPUs: int(m.Get("cpus").Int(1, MaxCPUs)),
		Reserve: size(m.Get("reserve")), Cache: size(m.Get("cache")), Output: size(m.Get("output"))}
	if n := m.Get("name"); !n.Absent() {
		f.Name = Name(n.Text())
		if err := job.CheckName(string(f.Name)); n.IsText() && err != nil {
			n.Errorf("%v", err)
		}
	}
	if n := m.Get("head_key"); !n.Absent() {
		f.HeadKey = Fingerprint(n.Text())
		if err := f.HeadKey.Check(); n.IsText() && err != nil {
			n.Errorf("%v", err)
		}
	}
	for _, n := range m.Get("capabilities").List("write a list: [gfortran, fftw]") {
		word := n.Text()
		rest, hide := strings.CutPrefix(word, "!")
		if err := checkCapability(rest); err != nil {
			n.Errorf("%v", err)
			continue
		}
		if hide {
			f.Hidden = append(f.Hidden, rest)
		} else if !slices.Contains(f.Capabilities, word) {
			f.Capabilities = append(f.Capabilities, word)
		}
	}
	f.runAs(m.Get("run_as"), m.Get("users"))
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// runAs reads as whom jobs run. Whether there are such accounts only the machine
// knows.
func (f *File) runAs(as, users conf.Node) {
	f.RunAs = as.Text()
	for _, n := range users.List("write a list: [maria, '@lab']") {
		name := n.Text()
		if n.IsText() && (strings.TrimPrefix(name, "@") == "" || strings.ContainsAny(name, " \t:/")) {
			n.Errorf("%s is no name of a user, nor with a leading @ of a group", conf.Quote(name))
		}
		f.Users = append(f.Users, name)
	}
	switch {
	case f.RunAs == Submitter && users.Absent():
		as.Errorf("submitter needs \"users\", whose jobs run here: [maria, '@lab']")
	case f.RunAs != Submitter && !users.Absent():
		users.Errorf("goes with \"run_as: submitter\" only")
	}
}

// size reads a number of bytes, nil if absent.
func size(n conf.Node) *int64 {
	if n.Absent() {
		return nil
	}
	v, err := unit.ParseBytes(n.Text())
	if n.IsText() && err != nil {
		n.Errorf("%v", err)
	}
	return &v
}

// checkCapability reports why s cannot be a capability: it is a plain word.
func checkCapability(s string) error {
	if err := job.CheckName(s); err != nil {
		return fmt.Errorf("capability %s: %w", conf.Quote(s), err)
	}
	return nil
}
