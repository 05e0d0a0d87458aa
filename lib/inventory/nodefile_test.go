package inventory

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"distribute/lib/hours"
	"distribute/lib/node"
)

func bytesOf(n int64) *int64 { return &n }

func TestParse(t *testing.T) {
	tests := map[string]*File{
		"name:\n": {}, "": {}, "# cpus: 4\n": {},
		"name: ws1\nhead: tcp://127.0.0.1:8952\ncpus: 4\ncapabilities: [fftw, '!gcc', fftw]\n": {
			Name: "ws1", Head: "tcp://127.0.0.1:8952", CPUs: 4, Capabilities: []string{"fftw"}, Hidden: []string{"gcc"}},
		"head_key: SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": {HeadKey: "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"run_as: submitter\nusers: [maria, '@lab']":                    {RunAs: node.Submitter, Users: []string{"maria", "@lab"}},
		"run_as: jobs":     {RunAs: "jobs"},
		"ports: 4000-4001": {Ports: [2]int{4000, 4001}},
		"capabilities:\n":  {},
		"auto_pause: 15m\nhours: mon 8-18\npresence: [load]": {AutoPause: 15 * time.Minute, Presence: []string{"load"},
			Hours: []hours.Span{{Days: [7]bool{1: true}, From: 480, To: 1080, Text: "mon 8-18"}}},
		"hours: ['mon,sun 8-9', mon 0-24]": {Hours: []hours.Span{{Days: [7]bool{true, true}, From: 480, To: 540, Text: "mon,sun 8-9"},
			{Days: [7]bool{1: true}, To: 1440, Text: "mon 0-24"}}},
		"memory: 16G\ngpus: [1, 0]\nkeep: {cpus: 1, memory: 2G}\nowners: [ana, '@lab']": {
			Memory: 16 << 30, GPUs: []int{1, 0}, Keep: Keep{CPUs: 1, Memory: 2 << 30}, Owners: []string{"ana", "@lab"}},
		"keep: {memory: 0}":                {Keep: Keep{NoMemory: true}},
		"counted: {tape: 1, matlab: 20}\n": {Counted: "matlab=20 tape=1"},
		"nodes: [{name: a, cpus: 2, gpus: [1], counted: {tape: 1}}, {name: b, cpus: 1, memory: 2G, capabilities: [x, '!gcc']}]": {Nodes: []*File{
			{Name: "a", CPUs: 2, GPUs: []int{1}, Counted: "tape=1"}, {Name: "b", CPUs: 1, Memory: 2 << 30, Capabilities: []string{"x"}, Hidden: []string{"gcc"}}}},
		"gpus: none":                          {GPUs: []int{}},
		"gpus: []\nowners:":                   {GPUs: []int{}},
		"gpus:\nkeep: {cpus: 2}\nmemory:":     {Keep: Keep{CPUs: 2}},
		"reserve: 2G\ncache: 0\noutput: 512K": {Reserve: bytesOf(2 << 30), Cache: bytesOf(0), Output: bytesOf(512 << 10)},
	}
	for in, want := range tests {
		got, err := Parse("node.yaml", []byte(in))
		if err == nil {
			got.places = nil
			for _, p := range got.Nodes {
				p.places = nil
			}
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
}

// What only the machine knows to be wrong is told with its place.
func TestMistake(t *testing.T) {
	f, err := Parse("/etc/node.yaml", []byte("name: ws1\nkeep: {cpus: 4,\n  memory: 1T}\nrun_as: submitter\nusers: [root]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"keep.cpus":   "/etc/node.yaml:2:14: no 7",
		"keep.memory": "/etc/node.yaml:3:11: no 7",
		"run_as":      "/etc/node.yaml:4:9: no 7",
		"users":       "/etc/node.yaml:5:8: no 7",
		"cpus":        "node.yaml: no 7",
	} {
		if got := f.Mistake(key, "no %d", 7); got.Error() != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestParseMistakes(t *testing.T) {
	tests := map[string][]string{
		"nmae: x":                                 {`node.yaml:1:1: unknown key "nmae" (did you mean "name"?)`},
		"name: ../x\ncpus: none":                  {"node.yaml:1:7: ", "node.yaml:2:7: "},
		"cpus: 0":                                 {"node.yaml:1:7: "},
		"cores: 4":                                {`write "cpus"`},
		"capabilities: gcc":                       {"write a list"},
		"capabilities: ['a b']":                   {"node.yaml:1:16: ", `"a b"`},
		"cache: much\nreserve: -1":                {"node.yaml:1:8: ", `"much" is not a size`, "node.yaml:2:10: "},
		"head_key: SHA256:short":                  {"node.yaml:1:11: ", `"SHA256:short" is no fingerprint`},
		"run_as: submitter":                       {"node.yaml:1:9: ", `needs "users"`},
		"run_as: submiter\nusers: [maria]":        {"node.yaml:1:9: ", `did you mean "submitter"?`},
		"run_as: Submitters":                      {"node.yaml:1:9: ", `did you mean "submitter"?`},
		"users: [maria]":                          {"node.yaml:1:8: ", "run_as: submitter"},
		"run_as: maria\nusers: [maria]":           {"node.yaml:2:8: "},
		"run_as: submitter\nusers: maria":         {"write a list: [maria, '@lab']"},
		"run_as: submitter\nusers: ['@', 'a b']":  {"node.yaml:2:9: ", "node.yaml:2:14: "},
		"run_as: submitter\nusers: [../x, 'a:b']": {"node.yaml:2:9: ", "node.yaml:2:15: "},
		"memory: much\nkeep: {cpu: 1}":            {"node.yaml:1:9: ", `"much" is not a size`, "node.yaml:2:8: ", `did you mean "cpus"?`},
		"auto_pause: 10m\npatience: 2h":           {"node.yaml:2:1: ", "head.yaml"},
		"memory: 0":                               {"node.yaml:1:9: ", "no job runs without memory"},
		"memory: 12":                              {"node.yaml:1:9: ", `"12" has no unit: write 12M or 12G`},
		"reserve: 1\noutput: 5":                   {"node.yaml:1:10: ", `"1" has no unit: write 1M or 1G`, "node.yaml:2:9: ", `"5" has no unit: write 5M or 5G`},
		"keep: {memory: 4}":                       {"node.yaml:1:16: ", `"4" has no unit: write 4M or 4G`},
		"gpus: all":                               {"node.yaml:1:7: ", `"gpus" is "all"`, "[0, 1], or none"},
		"gpus: 0":                                 {"node.yaml:1:7: ", "[0, 1], or none"},
		"gpus: [0, x, 0, -1]":                     {"node.yaml:1:11: ", "node.yaml:1:14: ", "twice", "node.yaml:1:17: "},
		"gpus: [~, 1]":                            {"node.yaml:1:8: "},
		"gpus: {a: b}":                            {"node.yaml:1:7: ", `"gpus" must be a list`},
		"keep: 1":                                 {"node.yaml:1:7: ", `"keep" must be a mapping`},
		"keep: {cpus: -1, memory: x, gpus: 1}":    {"node.yaml:1:14: ", "node.yaml:1:26: ", `"gpus: [1]" beside "keep"`},
		"counted: [matlab]":                       {"node.yaml:1:10: "},
		"counted: {matlab: 0, tape: , cpu: 4}":    {"node.yaml:1:19: ", "from 1 to 1000000", "node.yaml:1:22: ", `how much there is of "tape"`, "node.yaml:1:30: ", `did you mean "cpus"?`},
		"licences: {matlab: 2}":                   {`write "counted"`},
		"nodes: []":                               {"node.yaml:1:8: ", "empty list"},
		"nodes: 2":                                {"node.yaml:1:8: ", "write a list: [{name: ws1a, cpus: 8}"},
		"nodes: [{name: a}, {cpus: 1}]":           {`"cpus" is missing`, `"name" is missing`},
		"name: x\nnodes: [{name: a, cpus: 1}]":    {"node.yaml:1:1: ", "each has a name of its own"},
		"gpus: [0]\nnodes: [{name: a, cpus: 1}]":  {"node.yaml:1:1: ", "each says which are its own"},
		"nodes: [{name: a, cpus: 1, gpus: [0]}, {name: a, cpus: 1, gpus: [0]}]": {"node.yaml:1:47: ", "names differ", "node.yaml:1:65: ", `GPU 0 is of "a" already`},
		"nodes: [{name: a, cpus: 1, keep: {cpus: 1}}]":                          {"node.yaml:1:28: ", "of the whole machine"},
		"owner: ana":                           {`write "owners"`},
		"owners: ana":                          {"write a list: [ana, '@lab']"},
		"owners: []":                           {`"owners" is an empty list`},
		"owners: ['@', {a: b}, 'a b']":         {"node.yaml:1:10: ", "node.yaml:1:15: ", "node.yaml:1:23: "},
		"ownres: [ana]":                        {`did you mean "owners"?`},
		"ports: 80-90":                         {"node.yaml:1:8: ", `"80-90" is no range of ports`},
		"ports: 29500":                         {"node.yaml:1:8: ", "the first and the last"},
		"ports: 5000-4000":                     {"node.yaml:1:8: "},
		"ports: [4000, 4001]":                  {"node.yaml:1:8: "},
		"auto_pause: soon":                     {"node.yaml:1:13: ", `"soon"`},
		"auto_pause: 5s":                       {"node.yaml:1:13: ", "from 10s"},
		"auto_pause: 15":                       {"node.yaml:1:13: ", `"15" has no unit: write 15s, 15m or 15h`},
		"auto_pause: [15m]":                    {"node.yaml:1:13: "},
		"hours: 8-18\npresence: [load]":        {"node.yaml:1:8: ", "mon-fri 8-18", "node.yaml:2:11: ", "auto_pause"},
		"hours: [mon,wed 8-12]":                {"node.yaml:1:9: ", "in quotes"},
		"hours: {mon: 8-12}":                   {"node.yaml:1:8: ", "a list"},
		"auto_pause: 1h\npresence: [keyboard]": {"node.yaml:2:12: ", "logind, terminals, input, load"},
		"- x":                                  {"node.yaml:1:1: "},
	}
	for in, wants := range tests {
		f, err := Parse("node.yaml", []byte(in))
		if err == nil {
			t.Errorf("%q: read as %+v", in, f)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v\nwant %s", in, err, want)
			}
		}
	}
}
