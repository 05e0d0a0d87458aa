package inventory

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// programs are offered as capabilities where they are found in PATH.
var programs = []string{"python3", "apptainer", "singularity", "gcc", "g++", "gfortran", "clang", "make",
	"cmake", "mpirun", "nvcc", "matlab", "julia", "octave", "R"}

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
