// Package inventory finds what a machine has for jobs, without being told: cpus,
// memory, GPUs and programs, each with where that is known from, and what the
// node's file (dnode(5)) makes of it.
package inventory

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/unit"
)

// A Fact is one thing that a node offers, and why: where it was found, or who
// says so.
type Fact struct{ What, Value, Why string }

// An Inventory is what a node offers, and why.
type Inventory struct {
	Name  node.Name
	Offer node.Offer // of which Disk, Containment and Pause are not known here
	Most  int64      // bytes of memory that all jobs together may have; 0 if that is not known
	Facts []Fact
	Lacks []Fact // what keeps it from offering more: What is missing, Value for what, Why what to do

	NameErr error // why the host's name is none for a node, if the file has none

	cardsFailed bool // GPUs may be here that were not found: see [Cards.Incomplete]
}

// A Source is where the inventory looks. Its zero value is this machine, with no
// programs.
type Source struct {
	Path string // PATH
	Root string // a directory in the place of / for what the kernel says; empty: the root
	CPUs int    // that this process may run on

	cards *Cards
}

// Here is this machine, for a process with these variables and cpus.
func Here(lookup func(string) (string, bool), cpus int) *Source {
	path, _ := lookup("PATH")
	return &Source{Path: path, CPUs: cpus, cards: &Cards{path: path, visible: visibleOf(lookup)}}
}

// Cards is what tells of the GPUs.
func (s *Source) Cards() *Cards { return s.cards }

// Take looks at the machine, and at what the node's file says of it. It costs a
// few processes where there are GPUs, and is bounded by [cardsWithin] then.
func (s *Source) Take(ctx context.Context, f *File) (*Inventory, error) {
	in := &Inventory{}
	in.name(f)
	if err := in.cpus(s, f); err != nil {
		return nil, err
	}
	if err := in.memory(s, f); err != nil {
		return nil, err
	}
	in.Offer.Arch = machine()
	in.tell("arch", in.Offer.Arch, "the kernel (uname)")
	in.gpus(ctx, s.cards, f)
	in.Offer.Counted, in.Offer.MPI, in.Offer.Secrets = f.Counted, true, true
	for name, n := range f.Counted.All() {
		in.tell("counted", name, fmt.Sprintf("%d; %s", n, said))
	}
	in.capabilities(s.Path, f)
	return in, nil
}

func (in *Inventory) tell(what, value, why string) {
	in.Facts = append(in.Facts, Fact{what, value, why})
}

func (in *Inventory) lacks(what, value, why string) {
	in.Lacks = append(in.Lacks, Fact{what, value, why})
}

// said is why something is so that the node's file says.
const said = "node.yaml"

// Name is the node's name: what its file says, else the host's name up to the first
// dot.
func Name(f *File) (node.Name, error) {
	if f.Name != "" {
		return f.Name, nil
	}
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	if err == nil {
		err = job.CheckName(short)
	}
	return node.Name(short), err
}

// name is the node's name, and why.
func (in *Inventory) name(f *File) {
	in.Name, in.NameErr = Name(f)
	switch {
	case len(f.Nodes) > 0:
		in.NameErr = nil
	case in.NameErr != nil:
		in.lacks("name", "", fmt.Sprintf("%v; give the node a name in its node.yaml", in.NameErr))
	case f.Name != "":
		in.tell("name", string(f.Name), said)
	default:
		in.tell("name", string(in.Name), "the host's name")
	}
}

// cpus is how many cpus are offered: those that this process may use, less what is
// kept, and no more than the file says. The file alone may say more than there are.
func (in *Inventory) cpus(s *Source, f *File) error {
	has, why := max(1, s.CPUs), "what this process may use"
	if quota := s.quota(); quota > 0 && quota < float64(has) {
		has, why = max(1, int(quota)), fmt.Sprintf("the cgroup's limit of %s cpus", strconv.FormatFloat(quota, 'f', -1, 64))
	}
	n := has
	if f.Keep.CPUs > 0 {
		if n = has - f.Keep.CPUs; n < 1 {
			return f.Mistake("keep.cpus", "keep leaves jobs none of the %s here: keep fewer", unit.Count(has, "cpu"))
		}
		why = fmt.Sprintf("%d here (%s), %d kept", has, why, f.Keep.CPUs)
	}
	switch {
	case f.CPUs > 0 && (f.Keep.CPUs == 0 || f.CPUs <= n):
		n, why = f.CPUs, fmt.Sprintf("%s; %d here", said, has)
		if n > has {
			why += ", so jobs share them"
		}
	case f.CPUs > 0:
		why += fmt.Sprintf("; %s says %d", said, f.CPUs)
	}
	in.Offer.CPUs = n
	in.tell("cpus", strconv.Itoa(n), why)
	return nil
}

// leastKept is how much memory the owner of a machine keeps who says nothing of it, or
// a tenth if that is more.
const leastKept = 1 << 30

// memory is how much memory is offered: all, or what a cgroup leaves this process,
// less what is kept, and no more than the file says.
func (in *Inventory) memory(s *Source, f *File) error {
	has, err := s.mainMemory()
	if err != nil {
		in.lacks("memory", "jobs that ask for it", err.Error())
		if in.Offer.Memory = f.Memory; f.Memory > 0 {
			in.tell("memory", unit.FormatBytes(f.Memory), said)
		}
		return nil
	}
	why := "the machine's"
	if bound := s.memoryBound(); bound > 0 && bound < has {
		has, why = bound, "the cgroup's limit"
	}
	kept, whose := f.Keep.Memory, "kept"
	if kept == 0 && !f.Keep.NoMemory && f.Memory == 0 && len(f.Nodes) == 0 && why == "the machine's" && has > 2<<20 {
		kept, whose = min(max(has/10, leastKept), has/2)&^(1<<20-1), "kept for its owner (keep: {memory: 0} if not)"
	}
	n := has
	if kept > 0 {
		if n = has - kept; n < 1<<20 {
			return f.Mistake("keep.memory", "keep leaves jobs nothing of the %s of memory here: keep less", unit.FormatBytes(has))
		}
		why = fmt.Sprintf("%s (%s), %s %s", unit.FormatBytes(has), why, unit.FormatBytes(kept), whose)
	}
	switch {
	case f.Memory > 0 && f.Memory <= n:
		n, why = f.Memory, fmt.Sprintf("%s; %s here", said, unit.FormatBytes(has))
	case f.Memory > 0:
		why += fmt.Sprintf("; %s says %s", said, unit.FormatBytes(f.Memory))
	}
	in.Offer.Memory, in.Most = n, min(n, has-has/16)
	in.tell("memory", unit.FormatBytes(n), why)
	return nil
}

// gpus is which GPUs are offered.
func (in *Inventory) gpus(ctx context.Context, c *Cards, f *File) {
	if c == nil || f.GPUs != nil && len(f.GPUs) == 0 {
		if f.GPUs != nil {
			in.tell("gpu", "none", said)
		}
		return
	}
	list, lacks := c.List(ctx)
	in.cardsFailed = c.Incomplete()
	in.Lacks = append(in.Lacks, lacks...)
	for _, i := range f.GPUs {
		if !in.cardsFailed && !slices.ContainsFunc(list, func(g Card) bool { return g.Index == i }) {
			in.lacks("gpu", strconv.Itoa(i), "node.yaml offers it, and it is not here: correct gpus there")
		}
	}
	for _, g := range list {
		if f.GPUs != nil && !slices.Contains(f.GPUs, g.Index) {
			in.tell("gpu", "-", fmt.Sprintf("%d (%s) is not in gpus of %s", g.Index, g.Model, said))
			continue
		}
		if v := c.Hides(&g); v != "" {
			in.tell("gpu", "-", fmt.Sprintf("%d (%s) is not in %s", g.Index, g.Model, v))
			continue
		}
		in.Offer.GPUs = append(in.Offer.GPUs, g.GPU)
		value := strconv.Itoa(g.Index)
		why := strings.Join(slices.DeleteFunc([]string{g.Model, sizeOf(g.Memory), g.Driver}, func(s string) bool { return s == "" }), ", ")
		in.tell("gpu", value, why)
	}
	if len(in.Offer.GPUs) > 0 && !slices.Contains(f.Hidden, "gpu") {
		in.Offer.Capabilities = append(in.Offer.Capabilities, "gpu")
	}
}

func sizeOf(n int64) string {
	if n == 0 {
		return ""
	}
	return unit.FormatBytes(n)
}

// capabilities is the words that batches may ask for.
func (in *Inventory) capabilities(path string, f *File) {
	if slices.Contains(in.Offer.Capabilities, "gpu") {
		in.tell("capability", "gpu", "there is one")
	}
	for _, c := range f.Capabilities {
		if slices.Contains(in.Offer.Capabilities, c) {
			continue
		}
		in.Offer.Capabilities = append(in.Offer.Capabilities, c)
		in.tell("capability", c, said)
	}
	for _, p := range programs {
		where := lookPath(p, path)
		if where == "" && p == "apptainer" && !slices.Contains(f.Hidden, "singularity") {
			where = lookPath("singularity", path) // which does the same
		}
		if where == "" && p == "python3" && !slices.Contains(in.Offer.Capabilities, p) {
			in.lacks(p, "python batches", "install it, or say in PATH where it is")
		}
		if where == "" || slices.Contains(f.Hidden, p) || slices.Contains(f.Capabilities, p) {
			continue
		}
		in.Offer.Capabilities = append(in.Offer.Capabilities, p)
		in.tell("capability", p, where)
	}
}
