package inventory

import "testing"

// Whether the nodes of a machine are other ones does not depend on where they stand in
// the file.
func TestSameNodes(t *testing.T) {
	read := func(text string) *File {
		f, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	one := read("nodes: [{name: a, cpus: 1}]\n")
	for text, same := range map[string]bool{"cpus: 4\n\nnodes:\n- name: a\n  cpus: 1\n": true, "nodes: [{name: b, cpus: 1}]": false,
		"nodes: [{name: a, cpus: 2}]": false, "": false, "nodes: [{name: a, cpus: 1}, {name: b, cpus: 1}]": false} {
		if one.SameNodes(read(text)) != same {
			t.Errorf("%q: same=%v", text, !same)
		}
	}
	if one.Nodes[0].places == nil {
		t.Error("it has forgotten where things stand")
	}
}
