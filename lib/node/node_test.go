package node

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// X98, X100: of an offer no more is kept than a node has to say.
func TestX98HugeOffer(t *testing.T) {
	plain := Offer{CPUs: 8, Memory: 1 << 30, Disk: 1 << 40, Arch: "x86_64", Capabilities: []string{"g++", "python3"}, Containment: "cgroup"}
	if got := plain.Bounded(); !reflect.DeepEqual(got, plain) || !reflect.DeepEqual(Offer{}.Bounded(), Offer{}) {
		t.Errorf("a plain one becomes %+v", got)
	}
	evil := Offer{CPUs: 8, Memory: -1, Disk: -1, Arch: strings.Repeat("é", 1<<19), Containment: strings.Repeat("x", 1<<20)}
	for i := range 10 * maxCaps {
		evil.Capabilities = append(evil.Capabilities, "a\x1b[31m", strings.Repeat("x", 1000), fmt.Sprint("c", i))
	}
	got := evil.Bounded()
	if len(got.Arch) > maxWord || len(got.Containment) > maxWord || got.Memory < 0 || got.Disk < 0 || len(got.Capabilities) != maxCaps {
		t.Errorf("it becomes %+v", got)
	}
	for _, c := range got.Capabilities {
		if checkCapability(c) != nil {
			t.Errorf("it can do %q", c)
		}
	}
}
