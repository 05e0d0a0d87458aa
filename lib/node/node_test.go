package node

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"distribute/lib/job"
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
		if CheckCapability(c) != nil {
			t.Errorf("it can do %q", c)
		}
	}
}

// X98: of a pause and of GPUs no more is kept than a node has to say.
func TestX98HugePause(t *testing.T) {
	soon := 3600.0
	plain := Offer{CPUs: 4, GPUs: []GPU{{Index: 1, Model: "NVIDIA A2", Memory: 1 << 34, Busy: true}},
		Pause: &Pause{By: []string{"ana", "bo"}, Since: 1.5, Left: 7200, Give: &Give{CPUs: 4, Memory: 1 << 33}, Go: &soon}}
	if got := plain.Bounded(); !reflect.DeepEqual(got, plain) {
		t.Errorf("a plain one becomes %+v", got)
	}
	forever := math.Inf(1)
	evil := Offer{CPUs: 4, GPUs: make([]GPU, 1<<16), Pause: &Pause{By: make([]string, 1<<16), Why: strings.Repeat("é", 1<<19),
		Since: math.NaN(), Left: -1, Give: &Give{CPUs: -1, Memory: -1}, Go: &forever}}
	for i := range evil.Pause.By {
		evil.Pause.By[i] = strings.Repeat("x", 1000)
	}
	for i := range evil.GPUs {
		evil.GPUs[i].Index = i/2 - 1
	}
	got := evil.Bounded()
	p := got.Pause
	if len(got.GPUs) != job.MaxCards || got.GPUs[0].Index != 0 || got.GPUs[job.MaxCards-1].Index != job.MaxCards-1 || len(p.By) > maxHolders || len(p.By[0]) > maxWord || len(p.Why) > maxWord || p.Since != 0 || p.Left != 0 ||
		*p.Give != (Give{}) || *p.Go > maxSpan {
		t.Errorf("it becomes %+v of %d GPUs", p, len(got.GPUs))
	}
}

// Who holds a pause, and what is given back, in words.
func TestPauseInWords(t *testing.T) {
	for want, p := range map[string]*Pause{
		"ana":            {By: []string{"ana"}, Why: "auto"},
		"ana, bo and cy": {By: []string{"ana", "bo", "cy"}},
		"hours":          {Why: "hours"},
		"its owner":      {},
	} {
		if got := p.Who(); got != want || !p.Full() {
			t.Errorf("%q, should be %q", got, want)
		}
	}
	for want, g := range map[string]*Give{"4 cpus": {CPUs: 4}, "1 cpu and 8G": {CPUs: 1, Memory: 8 << 30}, "2G": {Memory: 2 << 30}, "nothing": {}} {
		if got := g.String(); got != want || (&Pause{Give: g}).Full() {
			t.Errorf("%q, should be %q", got, want)
		}
	}
}
