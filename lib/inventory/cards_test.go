package inventory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/node"
	"distribute/lib/suite"
)

// tool puts a script into a directory, as a program of that name.
func tool(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

const two = `0, GPU-5a1e9d5c-55a2-1c2f-3a3c-bf0d2a6d0b1e, NVIDIA H100 80GB HBM3, 81559, 550.54.15, Disabled
1, GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, NVIDIA GeForce RTX 4090, 24564, 550.54.15, [N/A]
`

const parts = `0, GPU-5a1e9d5c-55a2-1c2f-3a3c-bf0d2a6d0b1e, NVIDIA A100-SXM4-80GB, 81920, 550.54.15, Enabled
1, GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, NVIDIA A100-SXM4-80GB, 81920, 550.54.15, Disabled
`

const broken = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n"

func TestNvidia(t *testing.T) {
	h100 := Card{node.GPU{Index: 0, Model: "NVIDIA H100 80GB HBM3", Memory: 81559 << 20, UUID: "GPU-5a1e9d5c-55a2-1c2f-3a3c-bf0d2a6d0b1e"}, "driver 550.54.15"}
	rtx := Card{node.GPU{Index: 1, Model: "NVIDIA GeForce RTX 4090", Memory: 24564 << 20, UUID: "GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53"}, "driver 550.54.15"}
	tests := map[string]struct {
		script string
		want   []Card
		lacks  string // in what is lacking
	}{
		"none":     {"", nil, ""},
		"two":      {"cat <<'END'\n" + two + "END", []Card{h100, rtx}, ""},
		"an old":   {`case $1 in *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;; esac` + "\ncat <<'END'\n0, GPU-1, Tesla K80, 11441, 390.157\nEND", []Card{{node.GPU{Model: "Tesla K80", Memory: 11441 << 20, UUID: "GPU-1"}, "driver 390.157"}}, ""},
		"MIG":      {"cat <<'END'\n" + parts + "END", []Card{{node.GPU{Index: 1, Model: "NVIDIA A100-SXM4-80GB", Memory: 81920 << 20, UUID: "GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53"}, "driver 550.54.15"}}, "MIG"},
		"unknown":  {"echo '0, [N/A], [Not Supported], [N/A], [N/A], [N/A]'", []Card{{}}, ""},
		"lost":     {"echo '1, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]'; cat <<'END'\n" + two + "END", []Card{h100}, "{gpu 1 nvidia-smi says [GPU is lost]"},
		"faulty":   {"echo '0, GPU-1, [Unknown Error], 8192, 550.54.15, [N/A]'", nil, "{gpu 0 nvidia-smi says [Unknown Error]"},
		"one out":  {"cat <<'END'\n" + two + "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\nEND\nexit 15", []Card{h100, rtx}, "exit status 15: Unable to determine"},
		"infoROM":  {"cat <<'END'\n" + two + "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\nEND\nexit 14", []Card{h100, rtx}, ""},
		"status 0": {"echo Failed to initialize NVML: Driver/library version mismatch", nil, "Failed to initialize NVML: Driver/library version mismatch: mend the driver"},
		"silent":   {"exit 0", nil, "nvidia-smi prints nothing: mend the driver"},
		"empty":    {"echo No devices were found; exit 6", nil, "finds no device"},
		"broken":   {"cat <<'END'\n" + broken + "END\nexit 9", nil, "exit status 9: NVIDIA-SMI has failed"},
		"crashes":  {"kill -SEGV $$", nil, "nvidia-smi: signal"},
		"garbage":  {`printf 'x, y\n\n0\n-1,a,b,c,d\n0\t,u,\033[31mred,9999999999999999999,d\n0,twice,b,c,d'`, []Card{{node.GPU{UUID: "u", Model: "[31mred"}, "driver d"}}, ""},
	}
	for name, tt := range tests {
		dir := t.TempDir()
		if tt.script != "" {
			tool(t, dir, "nvidia-smi", tt.script)
		}
		c := &Cards{path: dir + ":/bin:/usr/bin"}
		list, lacks := c.nvidia(context.Background())
		if name == "garbage" && len(list) == 1 {
			list[0].Model = "[31mred"
		}
		if !slices.Equal(list, tt.want) || (len(lacks) > 0) != (tt.lacks != "") || !strings.Contains(fmt.Sprint(lacks), tt.lacks) {
			t.Errorf("%s: %+v, %v", name, list, lacks)
		}
	}
}

// A tool that hangs costs its time once, and is not piled up; nor is what it has started.
func TestHanging(t *testing.T) {
	dir := t.TempDir()
	tool(t, dir, "nvidia-smi", "echo x >>"+dir+"/begun; trap '' TERM; while :; do sleep 1000 & echo $! >"+dir+"/child; wait; done")
	c := &Cards{path: dir + ":/bin:/usr/bin", within: 50 * time.Millisecond}
	list, lacks := c.List(context.Background())
	if list != nil || len(lacks) != 1 || !strings.Contains(lacks[0].Why, "does not answer within 50ms") {
		t.Errorf("%v, %v", list, lacks)
	}
	child, _ := os.ReadFile(dir + "/child") // on a busy machine it may not have come that far
	suite.Gone(t, string(child))
	c.hangs = map[string]string{"nvidia-smi": "12:00:00"}
	if _, lacks := c.List(context.Background()); len(lacks) != 1 || !strings.Contains(lacks[0].Why, "does not answer since 12:00:00") {
		t.Errorf("one that hangs: %v", lacks)
	}
	if b, _ := os.ReadFile(dir + "/begun"); len(b) > len("x\n") {
		t.Errorf("it was started again: %q", b)
	}
}

func TestUsers(t *testing.T) {
	dir := t.TempDir()
	tool(t, dir, "nvidia-smi", `case $1 in
--query-gpu*) cat <<'END'
`+two+`END
;;
*) cat <<'END'
GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, 4711, 1024
GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, 4712, [N/A]
GPU-of-nobody, 1, 2
GPU-5a1e9d5c-55a2-1c2f-3a3c-bf0d2a6d0b1e, [N/A], 3
END
esac`)
	c := &Cards{path: dir + ":/bin:/usr/bin"}
	if users, unknown := c.Users(context.Background()); len(unknown) != 0 || len(users) != 0 {
		t.Errorf("before anything is listed: %v, %v", users, unknown)
	}
	c.List(context.Background())
	users, unknown := c.Users(context.Background())
	if want := map[int][]int{1: {4711, 4712}}; len(unknown) != 0 || !reflect.DeepEqual(users, want) {
		t.Errorf("%v, %v", users, unknown)
	}
	tool(t, dir, "nvidia-smi", `[ "$1 $2" = "-i 1" ] || { echo Unable; exit 15; }; echo GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, 4711, 1024`)
	users, unknown = c.Users(context.Background())
	if want := map[int][]int{1: {4711}}; len(unknown) != 1 || unknown[0] == nil || unknown[0].Error() != "nvidia-smi: exit status 15: Unable" || !reflect.DeepEqual(users, want) {
		t.Errorf("where one is lost: %v, %v", users, unknown)
	}
	tool(t, dir, "nvidia-smi", `echo GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, 4711, 1024; echo WARNING: infoROM is corrupted at gpu 0000:3B:00.0; exit 14`)
	users, unknown = c.Users(context.Background())
	if want := map[int][]int{1: {4711}}; len(unknown) != 0 || !reflect.DeepEqual(users, want) {
		t.Errorf("with a corrupted infoROM: %v, %v", users, unknown)
	}
	const mismatch = "Failed to initialize NVML: Driver/library version mismatch"
	tool(t, dir, "nvidia-smi", "echo "+mismatch) // of some versions the status is 0
	users, unknown = c.Users(context.Background())
	if len(users) != 0 || len(unknown) != 2 || unknown[0].Error() != "nvidia-smi: "+mismatch || unknown[1].Error() != unknown[0].Error() {
		t.Errorf("where the driver was replaced: %v, %v", users, unknown)
	}
	for _, text := range []string{"[Not Supported]", "No running processes found", "WARNING: infoROM is corrupted at gpu 0000:01:00.0"} {
		tool(t, dir, "nvidia-smi", "echo '"+text+"'")
		if users, unknown = c.Users(context.Background()); len(users) != 0 || len(unknown) != 0 {
			t.Errorf("where it prints %s: %v, %v", text, users, unknown)
		}
	}
	tool(t, dir, "nvidia-smi", `[ "$1 $2" = "-i 1" ] || echo '[GPU is lost], [GPU is lost], [GPU is lost]'; [ "$1 $2" = "-i 0" ] || echo GPU-9b21ac14-0d7a-3e39-9f6e-0bb53e1f0c53, 4711, 1024`)
	users, unknown = c.Users(context.Background())
	if want := map[int][]int{1: {4711}}; len(unknown) != 1 || unknown[0] == nil || !reflect.DeepEqual(users, want) {
		t.Errorf("where one is lost and the status is 0: %v, %v", users, unknown)
	}
}

const radeons = `WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card1": {"VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10960896", "Card Series": "AMD INSTINCT MI250 (MCM) OAM AC MBA", "Card Model": "0x740c"}, "card0": {"VRAM Total Memory (B)": "N/A", "Card series": "N/A", "Card model": "Vega 20"}, "system": {"Driver version": "6.3.6"}}
`

func TestRadeons(t *testing.T) {
	dir := t.TempDir()
	tool(t, dir, "rocm-smi", `case $1 in
--showpids) echo '{"system": {"PID77": "python3, 1, 6414335, 0, unknown", "PID78": "x, 0, 0, 0, 0", "PIDx": "y, 1, 1", "card": 3}}';;
*) cat <<'END'
`+radeons+`END
esac`)
	c := &Cards{path: dir + ":/bin:/usr/bin"}
	list, lacks := c.List(context.Background())
	want := []Card{{node.GPU{Model: "Vega 20"}, "driver 6.3.6"}, {node.GPU{Index: 1, Memory: 68702699520, Model: "AMD INSTINCT MI250 (MCM) OAM AC MBA"}, "driver 6.3.6"}}
	if !slices.Equal(list, want) || lacks != nil {
		t.Errorf("%+v, %v", list, lacks)
	}
	if users, unknown := c.Users(context.Background()); len(unknown) != 0 || !reflect.DeepEqual(users, map[int][]int{0: {77}, 1: {77}}) {
		t.Errorf("%v, %v", users, unknown)
	}
	for _, bad := range []string{"exit 1", "echo", "echo '{'", "echo '[]'"} {
		tool(t, dir, "rocm-smi", bad)
		if list, lacks := c.List(context.Background()); list != nil || len(lacks) != 1 {
			t.Errorf("%q: %v, %v", bad, list, lacks)
		}
	}
}

// FuzzCards reads whatever a vendor's tool may print.
func FuzzCards(f *testing.F) {
	for _, s := range []string{two, parts, broken, radeons, `{"system": {"PID77": "python3, 1, 6414335, 0, unknown"}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, _, _ := parseNvidia(text)
		b, _ := parseRadeons(text)
		seen := map[int]bool{}
		for _, g := range a {
			if g.Index < 0 || g.Memory < 0 || seen[g.Index] || strings.ContainsAny(g.Model+g.UUID+g.Driver, "\n\x1b") {
				t.Fatalf("%q is read as %+v", text, a)
			}
			seen[g.Index] = true
		}
		for _, g := range b {
			if g.Index < 0 || g.Memory < 0 || strings.ContainsAny(g.Model+g.Driver, "\n\x1b") {
				t.Fatalf("%q is read as %+v", text, b)
			}
		}
		for _, pid := range radeonUsers(text) {
			if pid < 1 {
				t.Fatalf("%q has process %d", text, pid)
			}
		}
	})
}

// A variable that says which GPUs a process may use hides the others, as it does in the driver.
func TestHides(t *testing.T) {
	first, second := &Card{GPU: node.GPU{Index: 0, UUID: "GPU-5a1e"}}, &Card{GPU: node.GPU{Index: 1, UUID: "GPU-9b21"}}
	for list, want := range map[string]string{"0": "first", "1": "second", "0,1": "both", " 1 , 0": "both", "": "none", "-1": "none", "NoDevFiles": "none",
		"1,-1,0": "second", "1,x,0": "second", "GPU-9b": "second", "GPU-none,0": "first", "MIG-1": "none", "7,0": "first"} {
		c := &Cards{visible: map[string]string{"CUDA_VISIBLE_DEVICES": list}, uuids: map[string]int{"GPU-5a1e": 0}}
		got := map[[2]bool]string{{false, false}: "both", {false, true}: "first", {true, false}: "second", {true, true}: "none"}[[2]bool{c.Hides(first) != "", c.Hides(second) != ""}]
		if got != want {
			t.Errorf("with %q visible is %s, want %s", list, got, want)
		}
	}
	lookup := func(v string) (string, bool) { return "1", v == "HIP_VISIBLE_DEVICES" }
	c := &Cards{visible: visibleOf(lookup)}
	if got := c.Hides(first) + c.Hides(second); got != "HIP_VISIBLE_DEVICES" {
		t.Errorf("of AMD's, %q hides some", got)
	}
	c.visible["ROCR_VISIBLE_DEVICES"] = "0"
	if got := c.Hides(first) + c.Hides(second); got != "ROCR_VISIBLE_DEVICES" {
		t.Errorf("of AMD's two, %q hides some", got)
	}
	if c.uuids = map[string]int{"GPU-5a1e": 0}; c.Hides(first) != "" {
		t.Error("a variable of AMD hides GPUs of NVIDIA")
	}
}
