package sched

import (
	"fmt"
	"runtime"
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/sched/policy"
)

// Nothing is kept of what is only asked: anybody may ask for long lists, again and again.
func TestAskedKeepsNothing(t *testing.T) {
	r := newRig(t, Config{})
	gpu := node.GPU{Model: "A", Memory: 1 << 30}
	r.apply(Loaded{})
	r.apply(NodeUp{Session: 1, Node: "ws1", Boot: "boot1", State: "s1", Offer: node.Offer{CPUs: 4, GPUs: []node.GPU{gpu}}})
	r.apply(ListEnd{1})
	r.now = policy.SettleTime
	r.apply(Heard{1})
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := heap()
	for i := range 50 {
		spec := &job.Spec{Kind: job.Command, Capabilities: []string{"gpu.memory>=1M"}}
		for n := range 2000 {
			spec.Capabilities = append(spec.Capabilities, fmt.Sprintf("!x%d-%d", i, n))
		}
		ask := AskOf(job.Resources{CPUs: 1, GPUs: job.OneGPU}, nil)
		if able, of := r.m.Able(spec, ask); able != 1 || of != 1 {
			t.Fatalf("%d of %d", able, of)
		}
		if why := r.m.Impossible(spec, ask); why != "" {
			t.Fatal(why)
		}
	}
	if kept := heap() - before; kept > 4<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
	runtime.KeepAlive(r)
}
