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

// programOf opens the program of an order if it is a regular file in the order's directory;
// else it returns nil. No other file is opened: this process may be able to open what the
// user of the order is not, and a device does something when it is opened.
func programOf(name string, o *Order) *os.File {
	if filepath.IsAbs(name) {
		below, err := filepath.Rel(o.Cwd, name)
		if err != nil {
			return nil
		}
		name = below
	}
	root, err := durable.OpenRoot(o.Cwd)
	if err != nil {
		return nil
	}
	defer root.Close()
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil
	}
	return f
}

// checkScript returns an error for a script that env(1) could not start, as the name of its
// interpreter ends with a carriage return. The kernel starts such a script.
func checkScript(name string, o *Order) error {
	f := programOf(name, o)
	if f == nil {
		return nil
	}
	defer f.Close()
	interpreter := interpreterOf(f)
	word := strings.Trim(strings.TrimPrefix(firstLine(f), interpreter), " \t")
	if filepath.Base(interpreter) != "env" || strings.HasPrefix(word, "-") || !strings.HasSuffix(word, "\r") { // -S takes it away
		return nil
	}
	return returnError(word)
}

// returnError tells of an interpreter whose name ends with a carriage return.
func returnError(interpreter string) error {
	return fmt.Errorf("its interpreter %q is not on this machine: lines of the script end with a carriage return, as on Windows: dos2unix takes them away", interpreter)
}

// unstarted is why the program of an order cannot be started, with what the kernel does
// not say: that what is missing is not the program but what it is run by.
func unstarted(name string, o *Order, err error) error {
	f := programOf(name, o)
	if f == nil {
		return err
	}
	defer f.Close()
	info, odd := f.Stat()
	switch {
	case odd != nil:
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
		return returnError(interpreter)
	}
	return fmt.Errorf("its interpreter %q, which its first line names, is not on this machine", interpreter)
}

// maxInterpreter is how much the kernel reads of a first line.
const maxInterpreter = 256

// firstLine returns the first line of a script, without what marks it; "" if it is none.
func firstLine(f io.ReaderAt) string {
	first, _ := bufio.NewReaderSize(io.NewSectionReader(f, 0, maxInterpreter), maxInterpreter).ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSuffix(first, "\n"), "#!")
	if !ok {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimLeft(rest, " \t"), "?")
}

// interpreterOf is what the first line of a script names; "" if there is none.
func interpreterOf(f io.ReaderAt) string {
	first := firstLine(f)
	return first[:strings.IndexAny(first+" ", " \t")]
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
