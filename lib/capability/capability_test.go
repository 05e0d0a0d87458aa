package capability

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"distribute/lib/match"
)

func facts() *Facts {
	return &Facts{Node: "ws4", CPUs: 16, Memory: 64 << 30, Disk: 1 << 40, Arch: "x86_64",
		GPUs:         []GPU{{0, "Quadro P400", 2 << 30}, {1, "NVIDIA RTX A5000", 24564 << 20}},
		Capabilities: []string{"gcc-12", "gfortran", "python3"}}
}

func TestHolds(t *testing.T) {
	for text, want := range map[string]bool{
		"gfortran":                   true,
		"comsol":                     false,
		"!comsol":                    true,
		"!gfortran":                  false,
		"comsol|gfortran":            true,
		"comsol | matlab":            false,
		"comsol|!matlab":             true,
		"node=ws*":                   true,
		"node=ws3,ws4":               true,
		"node!=ws4":                  false,
		"!node=ws4":                  false,
		"!node!=ws4":                 true,
		"node~^ws[0-9]$":             true,
		"node=lap*|cpus>8":           true,
		"cpus>=16":                   true,
		"cpus>16":                    false,
		"cpus=8..16":                 true,
		"cpus=17..":                  false,
		"memory>=64G":                true,
		"memory<64G":                 false,
		"disk>=2T":                   false,
		"arch=x86_64":                true,
		"arch!=x86_64":               false,
		"gpus>=2":                    true,
		"gpus=0":                     false,
		"!gpus>=1":                   false,
		"gpu.memory>=24G":            true,
		"gpu.memory>24G":             false,
		"gpu.memory!=2G":             false, // one has it
		"gpu.model=*A5000":           true,
		"gpu.model!=*H100*":          true,
		"capability=gcc-*":           true,
		"capability=icc-*":           false,
		"capability!=gcc-*":          false,
		" gfortran ":                 true,
		"gfortran|" + "memory>=128G": true,
	} {
		e, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if e.Holds(facts()) != want {
			t.Errorf("%q holds: %v", text, !want)
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() || again.Holds(facts()) != want {
			t.Errorf("%q is written as %q: %v", text, e, err)
		}
	}
	if (Expr{}).Holds(facts()) {
		t.Error("nothing holds")
	}
}

// A job that has GPUs gets those that its entries want.
func TestGPUs(t *testing.T) {
	f := facts()
	f.GPUs = append(f.GPUs, GPU{4, "NVIDIA RTX A5000", 0}) // whose memory is not known
	for text, want := range map[string]string{
		"gpu.memory>=24G":               "[1] false",
		"gpu.memory>24G":                "[] false",
		"gpu.memory!=2G":                "[1 4] false",
		"!gpu.model=*A5000":             "[0] false",
		"gpu.model~A5000|gpu.memory<3G": "[0 1 4] false",
		"gpu.memory>=24G|cpus=16..":     "[1] true",
		"gpu.memory>=24G|cpus=32..":     "[1] false",
		"gfortran":                      "[] true",
		"comsol":                        "[] false",
	} {
		e, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		fit, all := e.GPUs(f)
		if got := fmt.Sprint(fit, " ", all); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		if e.OfGPUs() != strings.Contains(text, "gpu.") {
			t.Errorf("%q is of GPUs: %v", text, e.OfGPUs())
		}
	}
}

// A node that has told nothing is not taken for one that has it.
func TestHoldsNothingUnknown(t *testing.T) {
	for _, text := range []string{"memory>=0", "memory<64G", "disk<1T", "arch=*", "gpu.memory>=0", "gpu.model=*", "capability=*", "cpus>=1"} {
		if e, err := Parse(text); err != nil || e.Holds(&Facts{}) {
			t.Errorf("%q, %v", text, err)
		}
	}
	if e, err := Parse("memory!=64G"); err != nil || !e.Holds(&Facts{}) { // as dbatch(5) says
		t.Error(err)
	}
}

func TestParseMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   `"": an alternative is empty`,
		"a||b":                               "an alternative is empty",
		"a|":                                 "an alternative is empty",
		"!":                                  `"!": nothing follows the !`,
		"memroy>=64G":                        `"memroy>=64G": there is no "memroy" to compare (did you mean "memory"?): known are node, arch, cpus`,
		"=x":                                 `there is no "" to compare`,
		"memory>=":                           `"memory>=": no value follows >=`,
		"memory>=many":                       `"memory>=many": "many" is`,
		"cpus>=-":                            `"-" is not a whole number`,
		"cpus>=2.5":                          `"2.5" is not a whole number`,
		"cpus=16..4":                         "its ends are the wrong way round",
		"node<ws4":                           "node has no order",
		"node\f<ws4":                         `"node\f<ws4": node has no order`,
		"memory!64G":                         "after ! comes =",
		"node=ws[":                           "a [ has no ]",
		"node~(":                             "missing closing )",
		"ws*":                                `"ws*": a pattern needs a key, as in capability=gcc-*`,
		"gcc 12":                             "a capability has letters, digits and . _ - + @ % only",
		"-O3":                                "does not start with '-'",
		"\x1b[31m":                           `"\x1b[31m": a pattern`,
		"a/b":                                "letters, digits",
		strings.Repeat("a", 101):             "at most 100 bytes",
		strings.Repeat("a|", MaxTerms) + "a": "65 alternatives: at most 64",
	} {
		_, err := Parse(text)
		if !errors.Is(err, match.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Whatever is written is a mistake with a reason fit to be shown, or is written
// again as the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"gfortran", "a|!b", "node=ws*,lap7", "memory>=64G", "cpus=4..16", "gpu.model~A[0-9]+", "!node!=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := Parse(s)
		if err != nil {
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%q", err)
			}
			return
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() || again.Holds(facts()) != e.Holds(facts()) {
			t.Errorf("%q is written as %q: %v", s, e, err)
		}
	})
}

// A word that nobody offers may have been meant for another, also among alternatives.
func TestNear(t *testing.T) {
	offered := []string{"gcc", "gfortran"}
	for word, want := range map[string]string{"gfortan": ` (did you mean "gfortran"?)`, "gfortan|cpus>=64": ` (did you mean "gfortran"?)`, "cpus>=64|gfortan": ` (did you mean "gfortran"?)`,
		"gfortran|icc": "", "cpus>=64": "", "gc": ""} {
		if got := Near(word, offered); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

// The | of a regular expression would end it: a word behind it is a mistake, but not in what was
// submitted already.
func TestExpressionWithAlternatives(t *testing.T) {
	for text, want := range map[string]string{
		"gpu.model~3090|4090":           `"gpu.model~3090|4090": after | comes another alternative, and 4090 by itself is a capability: write gpu.model~4090, or the capability before the expression`,
		"node=ws1 | arch~arm | x86_64":  `"node=ws1 | arch~arm | x86_64": after | comes another alternative, and x86_64 by itself is a capability: write arch~x86_64, or the capability before the expression`,
		"!gpu.model~3090|4090":          `"!gpu.model~3090|4090": after | comes another alternative, and 4090 by itself is a capability: write !gpu.model~4090 as another entry, or the capability before the expression`,
		"gpu.model~3090|!gcc":           "",
		"4090|gpu.model~3090":           "",
		"gpu.model~3090|gpu.model~4090": "",
		"gpu.model~3090|cpus>8|gcc":     "",
		"node=ws1|gcc":                  "",
	} {
		_, err := Written(text)
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := Parse(text); err != nil {
			t.Error(err)
		}
	}
}
