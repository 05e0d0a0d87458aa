package inventory

import (
	"reflect"
	"slices"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/node"
)

// maxParts is how many nodes one machine offers at most.
const maxParts = 64

// parts reads the nodes that a machine offers, where it offers several: each is a file
// with the keys that an entry may have.
func (f *File) parts(n conf.Node) {
	const form = "write a list: [{name: ws1a, cpus: 8}, {name: ws1b, cpus: 8, gpus: [0]}]"
	names, gpu := map[node.Name]bool{}, map[int]node.Name{}
	for i, e := range n.List(form) {
		if i == maxParts {
			e.Errorf("more than %d nodes are offered, which is the limit", maxParts)
			return
		}
		m := e.Map(conf.Keys{Known: []string{"name", "cpus", "memory", "gpus", "counted", "capabilities"}, Refused: map[string]string{
			"keep":    `"keep" is of the whole machine: write it at the top level`,
			"cache":   `"cache" is of the whole machine: write it at the top level, and each node has an equal part`,
			"reserve": `"reserve" is of the whole machine: write it at the top level`,
		}})
		p := &File{Counted: counted(m.Get("counted")), GPUs: gpus(m.Get("gpus"))}
		p.Name = nameIn(m.Need("name"))
		p.CPUs = int(p.placed("cpus", m.Need("cpus")).Int(1, node.MaxCPUs))
		p.Memory = memory(p.placed("memory", m.Get("memory")))
		p.placed("gpus", m.Get("gpus"))
		p.capabilities(m.Get("capabilities"))
		if names[p.Name] && p.Name != "" {
			m.Get("name").Errorf("node %s is here twice: names differ", msg.Quote(string(p.Name)))
		}
		for _, i := range p.GPUs {
			if other, given := gpu[i]; given {
				m.Get("gpus").Errorf("GPU %d is of %s already: a GPU belongs to one node", i, msg.Quote(string(other)))
			}
			gpu[i] = p.Name
		}
		names[p.Name] = true
		f.Nodes = append(f.Nodes, p)
	}
	if !n.Absent() && n.IsList() && len(f.Nodes) == 0 {
		n.Errorf("\"nodes\" is an empty list: leave it out if the machine is one node")
	}
}

// nameIn reads the name of a node.
func nameIn(n conf.Node) node.Name {
	if n.Absent() {
		return ""
	}
	if err := job.CheckName(n.Text()); n.IsText() && err != nil {
		n.Errorf("%v", err)
	}
	return node.Name(n.Text())
}

// capabilities reads the words that batches may ask for, and those that are hidden.
func (f *File) capabilities(n conf.Node) {
	for _, n := range n.List("write a list: [gfortran, fftw]") {
		word := n.Text()
		rest, hide := strings.CutPrefix(word, "!")
		if err := node.CheckCapability(rest); err != nil {
			n.Errorf("%v", err)
			continue
		}
		if hide {
			f.Hidden = append(f.Hidden, rest)
		} else if !slices.Contains(f.Capabilities, word) {
			f.Capabilities = append(f.Capabilities, word)
		}
	}
}

// SameNodes says that both files make the same nodes of a machine.
func (f *File) SameNodes(o *File) bool {
	return slices.EqualFunc(f.Nodes, o.Nodes, func(a, b *File) bool {
		x, y := *a, *b
		x.places, y.places = nil, nil
		return reflect.DeepEqual(x, y)
	})
}

// counted reads how much there is of what is counted by its name.
func counted(n conf.Node) job.Counts {
	c, _ := job.CountsOf(n.Amounts(job.CheckCount, job.MaxCount, job.MaxCounts)) // which has checked it
	return c
}
