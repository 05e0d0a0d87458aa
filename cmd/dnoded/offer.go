package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/node"
)

// programs are offered as capabilities where they are found in PATH.
var programs = []string{"python3", "apptainer", "singularity", "gcc", "g++", "gfortran", "clang", "make",
	"cmake", "mpirun", "nvcc", "matlab", "julia", "octave", "R"}

// A fact is one thing that a node offers, and where it comes from.
type fact struct {
	what, value, why string
	err              error
}

// found is everything that a node offers.
type found struct {
	name, cpus, memory, arch fact
	capabilities             []fact
}

func (f *found) all() []fact {
	return append([]fact{f.name, f.cpus, f.memory, f.arch}, f.capabilities...)
}

// offer is what is found, as the head is told.
func (f *found) offer() node.Offer {
	o := node.Offer{Arch: f.arch.value}
	o.CPUs, _ = strconv.Atoi(f.cpus.value)
	o.Memory, _ = strconv.ParseInt(f.memory.value, 10, 64)
	for _, c := range f.capabilities {
		o.Capabilities = append(o.Capabilities, c.value)
	}
	return o
}

// whatIsHere looks at this machine and at what the node's file says of it.
func whatIsHere(f *node.File, getenv func(string) string) *found {
	o := &found{
		name:   nameOf(f),
		cpus:   fact{what: "cpus", value: strconv.Itoa(runtime.NumCPU()), why: "what this process may use"},
		memory: memory(),
		arch:   fact{what: "arch", value: machine(), why: "uname"},
	}
	if f.CPUs > 0 {
		o.cpus.value, o.cpus.why = strconv.Itoa(f.CPUs), "node.yaml"
	}
	for _, c := range f.Capabilities {
		o.capabilities = append(o.capabilities, fact{what: "capability", value: c, why: "node.yaml"})
	}
	for _, p := range programs {
		where := lookPath(p, getenv("PATH"))
		if where == "" || slices.Contains(f.Hidden, p) || slices.Contains(f.Capabilities, p) {
			continue
		}
		o.capabilities = append(o.capabilities, fact{what: "capability", value: p, why: where})
	}
	return o
}

// disk is how much of its disk the node may use, as the node's file says or by
// the size of the file system.
func disk(f *node.File, dir string) (desk.Caps, []fact, error) {
	caps, err := desk.DefaultCaps(dir)
	if err != nil {
		return caps, nil, err
	}
	var facts []fact
	for _, c := range []struct {
		what string
		said *int64
		cap  *int64
		why  string
	}{
		{"reserve", f.Reserve, &caps.Reserve, "5 % of the file system, at most 1 GiB"},
		{"cache", f.Cache, &caps.Cache, "10 % of the file system, at most 20 GiB"},
		{"output", f.Output, &caps.Output, "what one job may print"},
	} {
		if c.said != nil {
			*c.cap, c.why = *c.said, "node.yaml"
		}
		facts = append(facts, fact{what: c.what, value: strconv.FormatInt(*c.cap, 10), why: c.why})
	}
	return caps, facts, nil
}

func nameOf(f *node.File) fact {
	if f.Name != "" {
		return fact{what: "name", value: string(f.Name), why: "node.yaml"}
	}
	host, err := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	if err == nil {
		err = job.CheckName(short)
	}
	return fact{what: "name", value: short, why: "the host's name", err: err}
}

// lookPath finds an executable file of that name, "" if there is none.
func lookPath(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, name)
		if info, err := os.Stat(full); err == nil && filepath.IsAbs(full) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return full
		}
	}
	return ""
}

// memory is the machine's main memory in bytes.
func memory() fact {
	f := fact{what: "memory", why: "/proc/meminfo"}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		f.err = err
		return f
	}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(in.Text(), "MemTotal: %d kB", &kib); n == 1 {
			f.value = strconv.FormatInt(kib<<10, 10)
			return f
		}
	}
	f.err = errors.New("/proc/meminfo does not say how much memory there is")
	return f
}

// machine is the processor's architecture by the kernel's name.
func machine() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return runtime.GOARCH
	}
	var b strings.Builder
	for _, c := range u.Machine {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// baseEnv is what jobs get of the daemon's environment.
func baseEnv(getenv func(string) string) []string {
	var env []string
	for _, k := range []string{"PATH", "HOME", "LANG", "USER"} {
		if v := getenv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	return env
}
