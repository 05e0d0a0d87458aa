package sched

import (
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// What no node could ever run is known when the head has waited for the nodes, and
// of all of them something was heard.
func TestImpossible(t *testing.T) {
	offer := func(session uint64, name string, o node.Offer) Event {
		return NodeUp{Session: session, Node: node.Name(name), Boot: "b1", State: "s1", Offer: o}
	}
	r := newRig(t, Config{})
	impossible := func(spec job.Spec, want string) {
		t.Helper()
		if got := r.m.Impossible(&spec, AskOf(spec.Resources, nil)); got != want {
			t.Errorf("%v, %+v: %q, want %q", spec.Capabilities, spec.Resources, got, want)
		}
	}
	gfortran := job.Spec{Capabilities: []string{"gfortran"}}
	r.apply(Loaded{})
	impossible(gfortran, "")
	r.apply(offer(1, "ws1", node.Offer{CPUs: 16, Memory: 32 << 30, Disk: 1 << 30, DiskSize: 64 << 30, Capabilities: []string{"gcc", "comsol"}}))
	r.apply(ListEnd{1})
	r.apply(offer(2, "ws2", node.Offer{CPUs: 8, Memory: 64 << 30, DiskSize: 73 << 30, GPUs: []node.GPU{{Model: "H200", Busy: true}},
		Pause: &node.Pause{Give: &node.Give{CPUs: 4}}}))
	r.apply(ListEnd{2})
	impossible(gfortran, "")
	r.now = policy.SettleTime
	r.apply(Heard{1})
	r.apply(NodeDown{Session: 2})
	for _, tt := range []struct {
		spec job.Spec
		want string
	}{
		{job.Spec{Capabilities: []string{"gcc"}}, ""},
		{gfortran, "none of 2 nodes has gfortran"},
		{job.Spec{Secrets: []string{"KEY"}}, "none of 2 nodes has secrets for jobs"},
		{job.Spec{Capabilities: []string{"comsul"}}, `none of 2 nodes has comsul (did you mean "comsol"?)`},
		{job.Spec{Capabilities: []string{"gcc", "gfortran"}}, "none of 2 nodes has all of gcc, gfortran (gfortran is missing)"},
		{job.Spec{Capabilities: []string{"comsol", "gcc", "gfortran", "nosuch"}}, "none of 2 nodes has all of comsol, gcc, gfortran, nosuch (gfortran, nosuch are missing)"},
		{job.Spec{Capabilities: []string{"comsol", "cpus<16"}}, "none of 2 nodes has all of comsol, cpus<16 (1 without cpus<16, 1 without comsol)"},
		{job.Spec{Kind: job.Python, Capabilities: []string{"python3|gcc"}}, "none of 2 nodes has all of python3, python3|gcc (python3 is missing)"},
		{job.Spec{Resources: job.Resources{CPUs: 16}}, ""},
		{job.Spec{Resources: job.Resources{CPUs: 12, GPUs: job.OneGPU}}, ""}, // ws2, when its owner gives back what she took
		{job.Spec{Resources: job.Resources{CPUs: 64}}, "none of 2 nodes offers 64 cpus, the most is 16 cpus on ws1"},
		{job.Spec{Resources: job.Resources{CPUs: 1, GPUs: 2 * job.OneGPU}}, "no node has 2 gpus, the most is 1 gpu on ws2"},
		{job.Spec{Resources: job.Resources{CPUs: 1, Memory: 1 << 40}}, "no node has 1T of memory, the most is 64G on ws2"},
		{job.Spec{Resources: job.Resources{CPUs: 16, Memory: 64 << 30}}, "no node has 16 cpus and 64G of memory, the most is 16 cpus on ws1 and 64G on ws2"},
		{job.Spec{Capabilities: []string{"disk>=70G"}}, ""}, // some may be freed
		{job.Spec{Capabilities: []string{"disk>=1P"}}, "none of 2 nodes has disk>=1P"},
		{job.Spec{Resources: job.Resources{CPUs: 1, Disk: 70 << 30}}, ""},
		{job.Spec{Resources: job.Resources{CPUs: 1, Disk: 100 << 40}}, "of the nodes that could run it none has a disk of 100T, the most is 73G on ws2"},
		{job.Spec{Resources: job.Resources{CPUs: 16, Disk: 70 << 30}}, "of the nodes that could run it none has a disk of 70G, the most is 64G on ws1"},
		{job.Spec{Capabilities: []string{"memory>=48G"}, Resources: job.Resources{CPUs: 16}}, "none of 1 nodes offers 16 cpus, the most is 12 cpus on ws2"},
	} {
		impossible(tt.spec, tt.want)
	}
	fits := job.Spec{Capabilities: []string{"gcc"}}
	if got := r.m.Impossible(&fits, AskOf(fits.Resources, []string{"cpus<8"})); got != "none of 2 nodes has all of cpus<8, gcc (cpus<8 is missing)" {
		t.Errorf("with capabilities of the job: %q", got)
	}
	r.m.named["ws3"] = r.m.peers[0] // so that the name is taken
	r.m.peers = append(r.m.peers, &peer{Node: &policy.Node{Name: "ws3", Facts: r.m.peers[0].Facts}})
	impossible(gfortran, "")
}

// In the first minute after its start a head knows too little.
func TestNeverAtFirst(t *testing.T) {
	r := newRig(t, Config{})
	r.apply(Loaded{})
	r.apply(up(1, "ws1", 4))
	for _, at := range []time.Duration{0, policy.SettleTime - 1} {
		r.now = at
		if why := r.m.Impossible(&job.Spec{Capabilities: []string{"x"}}, Ask{}); why != "" {
			t.Errorf("after %v: %q", at, why)
		}
	}
	r.now = policy.SettleTime
	r.apply(Heard{1})
	if why := r.m.Impossible(&job.Spec{Capabilities: []string{"x"}}, Ask{}); why != "none of 1 nodes has x" {
		t.Errorf("after %v: %q", r.now, why)
	}
}
