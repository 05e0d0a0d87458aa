package job

import (
	"fmt"
	"strings"
	"testing"
)

// As many different requests as may be are taken, each any number of times, in any words,
// and with any time and disk. One more is refused, whoever makes it.
func TestRequests(t *testing.T) {
	spec := &Spec{Capabilities: []string{"gfortran"}, Resources: Resources{CPUs: 1}}
	var r Requests
	add := func(name string, res *Resources, capabilities ...string) error {
		return r.Add(spec, &Job{Name: name, Resources: res, Capabilities: capabilities})
	}
	for round := range 2 {
		for i := range MaxRequests {
			res := &Resources{CPUs: i + 1, Time: int64(i * round), Disk: int64(i*round) << 20}
			if i == 0 && round == 0 {
				res = nil // which asks for the same as the batch
			}
			if err := add(fmt.Sprint("j", i), res, []string{"gfortran"}[:round]...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, res := range map[string]*Resources{"memory": {CPUs: 1, Memory: 1 << 30}, "ranks": {CPUs: 1, Ranks: 2}, "gpus": {CPUs: 1, GPUs: OneGPU}, "counted": {CPUs: 1, Counted: "matlab=1"}} {
		if err := add(name, res); err == nil || !strings.Contains(err.Error(), `with job "`+name+`" its jobs make more than 256 different requests`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if add("capability", nil, "python3") == nil {
		t.Error("a capability makes no other request")
	}
	if err := add("again", nil); err != nil {
		t.Error(err)
	}
}
