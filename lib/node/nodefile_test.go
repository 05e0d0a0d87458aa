package node

import (
	"reflect"
	"strings"
	"testing"
)

func bytes(n int64) *int64 { return &n }

func TestParse(t *testing.T) {
	tests := map[string]*File{
		"name:\n": {}, "": {}, "# cpus: 4\n": {},
		"name: ws1\nhead: tcp://127.0.0.1:8952\ncpus: 4\ncapabilities: [fftw, '!gcc', fftw]\n": {
			Name: "ws1", Head: "tcp://127.0.0.1:8952", CPUs: 4, Capabilities: []string{"fftw"}, Hidden: []string{"gcc"}},
		"head_key: SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": {HeadKey: "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
		"run_as: submitter\nusers: [maria, '@lab']":                    {RunAs: Submitter, Users: []string{"maria", "@lab"}},
		"run_as: jobs":                        {RunAs: "jobs"},
		"capabilities:\n":                     {},
		"reserve: 2G\ncache: 0\noutput: 512K": {Reserve: bytes(2 << 30), Cache: bytes(0), Output: bytes(512 << 10)},
	}
	for in, want := range tests {
		got, err := Parse("node.yaml", []byte(in))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", in, got, err)
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
		"users: [maria]":                          {"node.yaml:1:8: ", "run_as: submitter"},
		"run_as: maria\nusers: [maria]":           {"node.yaml:2:8: "},
		"run_as: submitter\nusers: maria":         {"write a list: [maria, '@lab']"},
		"run_as: submitter\nusers: ['@', 'a b']":  {"node.yaml:2:9: ", "node.yaml:2:14: "},
		"run_as: submitter\nusers: [../x, 'a:b']": {"node.yaml:2:9: ", "node.yaml:2:15: "},
		"- x": {"node.yaml:1:1: "},
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
