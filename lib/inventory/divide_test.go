package inventory

import (
	"context"
	"strings"
	"testing"

	"distribute/lib/node"
)

// The nodes of a machine have parts of what it offers, and together no more.
func TestParts(t *testing.T) {
	whole := &Inventory{Most: 15 << 30, Offer: node.Offer{CPUs: 8, Memory: 16 << 30, Arch: "x86_64", Capabilities: []string{"gpu", "gcc"},
		GPUs: []node.GPU{{Index: 0}, {Index: 1}}}}
	parse := func(text string) *File {
		f, err := Parse("node.yaml", []byte("nodes: ["+text+"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for text, want := range map[string]string{
		"{name: a, cpus: 8}": "a: 8 cpus, 16G of memory, gcc",
		"{name: a, cpus: 6, memory: 4G, gpus: [1], counted: {tape: 1}}, {name: b, cpus: 2, capabilities: [x, '!gcc']}": "a: 6 cpus, 4G of memory, GPU 1, tape=1, gpu, gcc; b: 2 cpus, 4G of memory, x",
		"{name: a, cpus: 6}, {name: b, cpus: 3}":                          "node.yaml:1:45: the nodes have 1 cpu more together than the 8 that the machine offers: give them fewer",
		"{name: a, cpus: 1, memory: 17G}":                                 "node.yaml:1:36: the machine offers 16G: give its nodes less",
		"{name: a, cpus: 1, memory: 12G}, {name: b, cpus: 1, memory: 5G}": "node.yaml:1:69: the nodes have 1G more together than the 16G that the machine offers: give them less",
		"{name: a, cpus: 1, gpus: [2]}":                                   "node.yaml:1:34: the machine offers no GPU 2",
	} {
		var got []string
		parts, err := whole.Parts(parse(text))
		for _, p := range parts {
			if want := p.Offer.Memory / 16 * 15; p.Most != want {
				t.Errorf("%s: the jobs of %s may have %d together, want %d", text, p.Name, p.Most, want)
			}
			got = append(got, string(p.Name)+": "+p.Words())
			if p.Most > p.Offer.Memory || p.Offer.Arch != "x86_64" {
				t.Errorf("%s: %+v", text, p)
			}
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s:\n got %s\nwant %s", text, strings.Join(got, "; "), want)
		}
	}
	if parts, err := whole.Parts(&File{}); parts != nil || err != nil {
		t.Errorf("a machine that is one node: %v, %v", parts, err)
	}
}

// A node of a machine does without its GPU while the vendor's program fails, or says that it is lost:
// else none would run.
func TestPartsWithoutDriver(t *testing.T) {
	dir := t.TempDir()
	f, err := Parse("node.yaml", []byte("nodes: [{name: a, cpus: 1, gpus: [0]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"echo no driver; exit 9":                                   "a: 1 cpu",
		"echo No devices were found":                               "node.yaml:1:34: the machine offers no GPU 0",
		"echo 0, [GPU is lost], [GPU is lost], [GPU is lost], 1.0": "a: 1 cpu",
		"echo 1, GPU-1, A100, 40960, 1.0; exit 15":                 "a: 1 cpu",
		"echo 1, GPU-1, A100, 40960, 1.0":                          "node.yaml:1:34: the machine offers no GPU 0",
	} {
		tool(t, dir, "nvidia-smi", script)
		in := &Inventory{Offer: node.Offer{CPUs: 1}}
		in.gpus(context.Background(), &Cards{path: dir}, f)
		parts, err := in.Parts(f)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case len(parts) == 1:
			got = string(parts[0].Name) + ": " + parts[0].Words()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}
