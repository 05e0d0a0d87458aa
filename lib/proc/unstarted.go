package proc

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
)

// unstarted is why the program of an order cannot be started, with what the kernel does
// not say: that what is missing is not the program but what it is run by. Only a file in
// the order's directory is looked at: this process may be able to open what the user of
// the order is not, and a device does something when it is opened.
func unstarted(name string, o *Order, err error) error {
	if filepath.IsAbs(name) {
		below, odd := filepath.Rel(o.Cwd, name)
		if odd != nil {
			return err
		}
		name = below
	}
	root, odd := durable.OpenRoot(o.Cwd)
	if odd != nil {
		return err
	}
	defer root.Close()
	if info, odd := root.Stat(name); odd != nil || !info.Mode().IsRegular() {
		return err
	}
	f, odd := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if odd != nil {
		return err
	}
	defer f.Close()
	info, odd := f.Stat()
	switch {
	case odd != nil || !info.Mode().IsRegular():
		return err
	case errors.Is(err, unix.EACCES) && info.Mode()&0o111 == 0:
		return fmt.Errorf("%w: it is not executable: chmod +x, and submit it again", err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("%w: it is no program for this machine, and no script whose first line names what runs it, as #!/bin/sh", err)
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	if loader := loaderOf(f); loader != "" {
		return fmt.Errorf("its loader %q is not on this machine: it was built for another system, or with libraries that are not here", loader)
	}
	interpreter := interpreterOf(f)
	switch {
	case interpreter == "":
		return err
	case strings.HasSuffix(interpreter, "\r"):
		return fmt.Errorf("its interpreter %q is not on this machine: lines of the script end with a carriage return, as on Windows: dos2unix takes them away", interpreter)
	}
	return fmt.Errorf("its interpreter %q, which its first line names, is not on this machine", interpreter)
}

// maxInterpreter is how much the kernel reads of a first line.
const maxInterpreter = 256

// interpreterOf is what the first line of a script names; "" if there is none.
func interpreterOf(f io.ReaderAt) string {
	first, _ := bufio.NewReaderSize(io.NewSectionReader(f, 0, maxInterpreter), maxInterpreter).ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSuffix(first, "\n"), "#!")
	if rest = strings.TrimLeft(rest, " \t"); !ok || rest == "" {
		return ""
	}
	return strings.ToValidUTF8(rest[:strings.IndexAny(rest+" ", " \t")], "?")
}

// loaderOf is what a program wants to be loaded by; "" if that is nothing, or it is none.
func loaderOf(f io.ReaderAt) string {
	program, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			text, _ := io.ReadAll(io.LimitReader(p.Open(), maxInterpreter))
			return strings.ToValidUTF8(strings.TrimRight(string(text), "\x00"), "?")
		}
	}
	return ""
}
