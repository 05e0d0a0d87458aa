package inventory

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/conf"
	"distribute/lib/hours"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/node"
	"distribute/lib/presence"
	"distribute/lib/unit"
)

// A File is what a node's file (dnode(5)) says. What it leaves out is zero.
type File struct {
	Name         node.Name
	Head         string           // address of the head
	HeadKey      node.Fingerprint // of the head's key, where TLS leads to it
	Capabilities []string         // offered beside those found
	Hidden       []string         // not offered even if found
	CPUs         int              // for all jobs together
	Memory       int64            // bytes for all jobs together
	Counted      job.Counts       // how much there is of what is counted by a name
	Nodes        []*File          // that the machine is, each with a part of it; none: it is one
	GPUs         []int            // indexes of those that are offered; nil: all, and of no length: none
	Keep         Keep             // what is not offered of what is here
	Owners       []string         // who may pause the node; a name with a leading @ is that of a group; none: everybody
	Reserve      *int64           // bytes of disk that jobs leave free
	Cache        *int64           // bytes of inputs and builds that are kept after use
	Output       *int64           // bytes that one job may print
	Ports        [2]int           // the first and the last at which the ranks of jobs meet; 0: the usual ones
	RunAs        string           // as whom jobs run: Submitter, or the name of an account
	Users        []string         // with Submitter: whose jobs; a name with a leading @ is that of a group
	AutoPause    time.Duration    // for how long nobody is to have been at the machine; 0: jobs do not wait for that
	Hours        []hours.Span     // when jobs stand still
	Measured     bool             // jobs that say nothing of memory are admitted by what they use
	Presence     []string         // what AutoPause goes by; empty: all that there is

	places map[string]conf.Place // where keys have their values
}

// Mistake is what is wrong with the value of a key, as "keep.cpus", on the machine at
// hand: an error of status 65, with the place of the value.
func (f *File) Mistake(key, format string, a ...any) error {
	at, ok := f.places[key]
	if !ok {
		at = conf.Place{File: "node.yaml"}
	}
	err := fmt.Errorf(format, a...)
	return &conf.Mistake{Place: at, Text: err.Error(), Err: errors.Unwrap(err)}
}

// placed notes where the value of a key is.
func (f *File) placed(key string, n conf.Node) conf.Node {
	if !n.Absent() {
		if f.places == nil {
			f.places = map[string]conf.Place{}
		}
		f.places[key] = n.Place()
	}
	return n
}

// A Keep is what the owner of a node keeps of it for himself.
type Keep struct {
	CPUs     int
	Memory   int64 // bytes
	NoMemory bool  // he says that he keeps none
}

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
		Known: []string{"name", "head", "head_key", "capabilities", "cpus", "memory", "gpus", "counted", "nodes", "keep", "admit", "reserve", "cache", "output", "ports", "run_as", "users", "owners", "auto_pause", "hours", "presence"},
		Refused: map[string]string{
			"capability": `write "capabilities" with a list: [gfortran, fftw]`,
			"cores":      `write "cpus": how many cpus jobs may have together`,
			"ram":        `write "memory": how much memory jobs may have together, as 16G`,
			"gpu":        `write "gpus" with the list of those that jobs may have: [0, 1], or none`,
			"owner":      `write "owners" with a list: [ana, '@lab']`,
			"disk":       `write "reserve": how much of the disk jobs leave free`,
			"licences":   `write "counted" with how much there is of each name: {matlab: 2}`,
			"patience":   `it is the head's to say, in head.yaml: how long jobs wait for the end of a pause`,
		},
	})
	f := &File{Head: m.Get("head").Text(), CPUs: int(m.Get("cpus").Int(1, node.MaxCPUs)), Memory: memory(m.Get("memory")), GPUs: gpus(m.Get("gpus")),
		Counted: counted(m.Get("counted")), Owners: people(m.Get("owners"), "write a list: [ana, '@lab']"),
		Reserve: size(m.Get("reserve")), Cache: size(m.Get("cache")), Output: size(m.Get("output"))}
	if n := m.Get("owners"); !n.Absent() && n.IsList() && len(n.List("")) == 0 {
		n.Errorf("\"owners\" is an empty list: name who may pause the node, as [ana, '@lab'], or leave it out if each user of the machine may")
	}
	f.Name = nameIn(m.Get("name"))
	f.Ports = ports(m.Get("ports"))
	if n := m.Get("head_key"); !n.Absent() {
		f.HeadKey = node.Fingerprint(n.Text())
		if err := f.HeadKey.Check(); n.IsText() && err != nil {
			n.Errorf("%v", err)
		}
	}
	f.capabilities(m.Get("capabilities"))
	f.parts(m.Get("nodes"))
	if len(f.Nodes) > 0 {
		for key, why := range map[string]string{"name": "each has a name of its own", "counted": "each counts for itself", "gpus": "each says which are its own"} {
			if n := m.Key(key); !m.Get(key).Absent() {
				n.Errorf("with \"nodes\" %s: take this out", why)
			}
		}
	}
	if n := m.Get("keep"); !n.Absent() {
		k := n.Map(conf.Keys{Known: []string{"cpus", "memory"}, Refused: map[string]string{
			"cores": `write "cpus": how many cpus are not for jobs`,
			"gpus":  `say which GPUs jobs may have: "gpus: [1]" beside "keep"`,
		}})
		f.Keep = Keep{CPUs: int(f.placed("keep.cpus", k.Get("cpus")).Int(0, node.MaxCPUs))}
		if v := size(f.placed("keep.memory", k.Get("memory"))); v != nil {
			f.Keep.Memory, f.Keep.NoMemory = *v, *v == 0
		}
	}
	if n := m.Get("admit"); n.IsText() {
		if f.Measured = n.Text() == "measured"; !f.Measured && n.Text() != "declared" {
			n.Errorf("\"admit\" is measured or declared, not %s", msg.Quote(n.Text()))
		}
	} else {
		n.Text()
	}
	f.standStill(m.Get("auto_pause"), m.Get("hours"), m.Get("presence"))
	f.runAs(f.placed("run_as", m.Get("run_as")), f.placed("users", m.Get("users")))
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// leastAway is less than any terminal tells.
const leastAway = 10 * time.Second

// standStill reads when jobs stand still without being asked to.
func (f *File) standStill(auto, times, by conf.Node) {
	if !auto.Absent() && auto.IsText() {
		d, err := unit.WrittenDuration(auto.Text())
		switch {
		case err != nil:
			auto.Errorf("%v", err)
		case d < leastAway || d > 366*24*time.Hour:
			auto.Errorf("%s: write a time from 10s to a year, as in 15m", msg.Quote(auto.Text()))
		}
		f.AutoPause = d
	} else {
		auto.Text()
	}
	list := []conf.Node{times}
	if !times.IsText() {
		list = times.List("write mon-fri 8-18, or a list: ['mon,wed 8-12', fri 8-18]")
	}
	for _, n := range list {
		spans, err := hours.Parse(n.Text())
		if n.IsText() && err != nil {
			n.Errorf("%v", err)
		}
		f.Hours = append(f.Hours, spans...)
	}
	for _, n := range by.List("write a list: [logind, terminals, input, load]") {
		word := n.Text()
		if n.IsText() && !slices.Contains(presence.Sources(), word) {
			n.Errorf("%s is not a source of presence: there are %s", msg.Quote(word), strings.Join(presence.Sources(), ", "))
		}
		f.Presence = append(f.Presence, word)
	}
	if auto.Absent() && !by.Absent() {
		by.Errorf("goes with \"auto_pause\" only")
	}
}

// runAs reads as whom jobs run. Whether there are such accounts only the machine
// knows.
func (f *File) runAs(as, users conf.Node) {
	f.RunAs, f.Users = as.Text(), people(users, "write a list: [maria, '@lab']")
	near := msg.DidYouMean(f.RunAs, []string{node.Submitter})
	switch {
	case f.RunAs != node.Submitter && near != "":
		as.Errorf("%s is no rule and hardly a user%s", msg.Quote(f.RunAs), near)
	case f.RunAs == node.Submitter && users.Absent():
		as.Errorf("submitter needs \"users\", whose jobs run here: [maria, '@lab']")
	case f.RunAs != node.Submitter && !users.Absent():
		users.Errorf("goes with \"run_as: submitter\" only")
	}
}

// people reads a list of users and, with a leading @, groups.
func people(list conf.Node, remedy string) (names []string) {
	for _, n := range list.List(remedy) {
		name := n.Text()
		if bare := strings.TrimPrefix(name, "@"); bare == "" || strings.ContainsAny(name, " \t:/") {
			if !n.IsList() && !n.IsMap() {
				n.Errorf("%s is no name of a user, nor with a leading @ of a group", msg.Quote(name))
			}
			continue
		}
		names = append(names, name)
	}
	return names
}

// memory reads how much memory is offered, 0 if nothing is said.
func memory(n conf.Node) int64 {
	v := size(n)
	if v == nil {
		return 0
	}
	if *v > 0 && *v < leastMemory {
		n.Errorf("%s of memory is too little for any job: write a size such as 16G", msg.Quote(n.Text()))
	}
	if *v == 0 {
		n.Errorf("no job runs without memory: write a size such as 16G")
	}
	return *v
}

// leastMemory is what a node offers at least.
const leastMemory = 1 << 20

// gpus reads which GPUs are offered.
func gpus(n conf.Node) []int {
	const want = "write which of them, as nvidia-smi counts: [0, 1], or none"
	if n.Absent() {
		return nil
	}
	if n.IsText() {
		if n.Text() != "none" {
			n.Errorf("\"gpus\" is %s: %s", msg.Quote(n.Text()), want)
		}
		return []int{}
	}
	list := []int{}
	for _, e := range n.List(want) {
		before := e.Absent()
		i := int(e.Int(0, job.MaxCards-1))
		switch {
		case before:
			e.Errorf("an entry of \"gpus\" is empty: %s", want)
		case slices.Contains(list, i) && e.IsText():
			e.Errorf("GPU %d is here twice: remove one", i)
		default:
			list = append(list, i)
		}
	}
	return list
}

// ports reads a range as 29500-29999.
func ports(n conf.Node) (of [2]int) {
	if n.Absent() || !n.IsText() {
		n.Text() // for its mistake
		return of
	}
	first, last, _ := strings.Cut(n.Text(), "-")
	var err [2]error
	of[0], err[0] = strconv.Atoi(first)
	of[1], err[1] = strconv.Atoi(last)
	if err != [2]error{} || of[0] < 1024 || of[1] < of[0] || of[1] > 65535 {
		n.Errorf("%s is no range of ports from 1024 to 65535: write the first and the last, as 29500-29999", msg.Quote(n.Text()))
	}
	return of
}

// size reads a number of bytes, nil if absent.
func size(n conf.Node) *int64 {
	if n.Absent() {
		return nil
	}
	v, err := unit.WrittenBytes(n.Text())
	if n.IsText() && err != nil {
		n.Errorf("%v", err)
		return nil
	}
	return &v
}
