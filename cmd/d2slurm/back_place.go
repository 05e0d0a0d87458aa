package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"distribute/lib/cli"
	"distribute/lib/slurm"
	"distribute/lib/unit"
)

// maxList is how many bytes of a folder's list and of what was submitted are read.
const maxList = 2 << 30

// A place is where a folder is: here, or on a machine that ssh reaches.
type place interface {
	// read gives each of these files that is there and no longer than most.
	read(ctx context.Context, names []string, most int64, each func(name string, text []byte) error) error
	// shell runs a script in the folder and returns what it prints.
	shell(ctx context.Context, script string) (string, error)
	// bring makes the directories of jobs ready to be opened.
	bring(ctx context.Context, dirs []string) error
	// open opens one of these.
	open(dir string) (*os.Root, error)
	// done says that one of these is not needed any more.
	done(dir string)
}

// placeOf is the place of a folder: DIR, or [user@]host:path. A path with a colon of its
// own begins with a slash or a dot.
func placeOf(c *cli.Cmd, folder string) (place, error) {
	host, dir, colon := strings.Cut(folder, ":")
	if !colon || strings.Contains(host, "/") {
		root, err := os.OpenRoot(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, cli.Errorf(cli.NoSuch, "there is no folder %s", unit.Quote(folder))
		case err != nil && plainFile(folder):
			return nil, cli.Errorf(cli.Input, "%w: %s is no directory", slurm.ErrFolder, unit.Quote(folder))
		case err != nil:
			return nil, err
		}
		return &here{folder, root}, nil
	}
	if host == "" || strings.HasPrefix(host, "-") || dir == "" || strings.ContainsAny(folder, "\x00\n") {
		return nil, cli.Usagef("%q is no folder: DIR, or user@host:path", folder)
	}
	return &there{c: c, host: host, dir: dir}, nil
}

func plainFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// quote makes one word of a text for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ran is the error of a command that failed, with the last line that it has said.
func ran(what string, err error, said []byte) error {
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("%s: %w: %.300s", what, err, last)
	}
	return fmt.Errorf("%s: %w", what, err)
}

type here struct {
	dir  string
	root *os.Root
}

func (h *here) read(ctx context.Context, names []string, most int64, each func(string, []byte) error) error {
	for _, name := range names {
		text, err := readPlain(h.root, name, most)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = each(name, text)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// openPlain opens a regular file, and nothing else: to open a FIFO would wait for ever.
func openPlain(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%q is no regular file", name), err, f.Close())
	}
	return f, nil
}

func readPlain(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := openPlain(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

func (h *here) shell(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-s")
	cmd.Dir, cmd.Stdin = h.dir, strings.NewReader(script)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", ran("sh", err, said.Bytes())
	}
	return string(out), nil
}

func (h *here) bring(context.Context, []string) error { return nil }

func (h *here) open(dir string) (*os.Root, error) { return plainDir(h.root, dir) }

func (h *here) done(string) {}

// plainDir opens a directory that is one, and no link to one.
func plainDir(root *os.Root, dir string) (*os.Root, error) {
	for d := dir; d != "."; d = path.Dir(d) {
		if info, err := root.Lstat(d); err != nil || !info.IsDir() {
			return nil, errors.Join(fmt.Errorf("%q is no directory", d), err)
		}
	}
	return root.OpenRoot(dir)
}

// there is a folder that ssh reaches. What is needed of it is copied here, so that what
// was cut goes on.
type there struct {
	c         *cli.Cmd
	host, dir string
	cache     *os.Root
}

// ssh runs a command in the folder; out takes what it prints.
func (t *there) ssh(ctx context.Context, command string, in io.Reader, out func(io.Reader) error) error {
	cmd := exec.CommandContext(ctx, "ssh", "-T", "-oBatchMode=yes", "--", t.host, "[ -d "+quote(t.dir)+" ] || exit 66; cd "+quote(t.dir)+" && "+command)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &said
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	taken := out(pipe)
	if taken != nil {
		cmd.Process.Kill()
	}
	err = cmd.Wait()
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &status) && status.ExitCode() == 255:
		return cli.Errorf(cli.Unreachable, "%w", ran("ssh "+t.host, err, said.Bytes()))
	case errors.As(err, &status) && status.ExitCode() == cli.NoSuch:
		return cli.Errorf(cli.NoSuch, "there is no folder %s on %s", unit.Quote(t.dir), t.host)
	case err != nil && taken == nil:
		return ran("ssh "+t.host, err, said.Bytes())
	}
	return taken
}

func (t *there) shell(ctx context.Context, script string) (text string, err error) {
	err = t.ssh(ctx, "sh -s", strings.NewReader(script), func(r io.Reader) error {
		b, err := io.ReadAll(r)
		text = string(b)
		return err
	})
	return text, err
}

// archive has tar send what is there of these names, which is one archive with an end.
const archive = "{ tar --hard-dereference --format=pax -cf - -T - 2>/dev/null || :; }"

func lines(names []string) io.Reader { return strings.NewReader(strings.Join(names, "\n") + "\n") }

func (t *there) read(ctx context.Context, names []string, most int64, each func(string, []byte) error) error {
	wanted := make(map[string]bool, len(names))
	for _, n := range names {
		wanted[n] = true
	}
	return t.ssh(ctx, archive, lines(names), func(r io.Reader) error {
		in := tar.NewReader(r)
		for {
			h, err := in.Next()
			if err == io.EOF {
				return drain(r)
			}
			if err != nil {
				return fmt.Errorf("what tar sends from %s: %w", t.host, err)
			}
			if h.Typeflag != tar.TypeReg || !wanted[h.Name] {
				continue
			}
			wanted[h.Name] = false
			text, err := io.ReadAll(io.LimitReader(in, most+1))
			if err == nil {
				err = each(h.Name, text)
			}
			if err != nil {
				return err
			}
		}
	})
}

func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// keep makes the directory in which copies of a folder are kept.
func (t *there) keep(id string) error {
	base := t.c.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(t.c.Getenv("HOME"), ".cache")
	}
	dir := filepath.Join(base, "distribute", "d2slurm", id)
	err := os.MkdirAll(filepath.Join(dir, "jobs"), 0o700)
	if err == nil {
		t.cache, err = os.OpenRoot(dir)
	}
	return err
}

// archives has tar send each directory of a list as an archive of its own, and behind
// it how that went and what was said, in a block of so many bytes: what tar could not
// read it has filled with zeros, or left out.
const (
	archives = `LC_ALL=C; export LC_ALL; while IFS= read -r d; do { said=$(tar --hard-dereference --format=pax -b1 -cf - -- "$d" 2>&1 >&3 </dev/null); } 3>&1; ` +
		`printf '%-4096.4096s' "$? $said"; done`
	verdictLen = 4096
)

// bring copies the directories of jobs that are not here already. One that was cut, or
// that could not be read as a whole, is copied again the next time.
func (t *there) bring(ctx context.Context, dirs []string) error {
	var lack []string
	for _, d := range dirs {
		if info, err := t.cache.Lstat(d); err == nil && info.IsDir() {
			continue
		}
		if err := t.cache.RemoveAll(partOf(d)); err != nil {
			return err
		}
		lack = append(lack, d)
	}
	if len(lack) == 0 {
		return nil
	}
	var bad []error
	err := t.ssh(ctx, archives, lines(lack), func(r io.Reader) error {
		for _, d := range lack {
			why, err := t.bringOne(d, r)
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, tar.ErrHeader) {
				return fmt.Errorf("what tar sends of %s from %s was cut: %w", d, t.host, err)
			}
			if err != nil {
				return err
			}
			if why != nil {
				bad = append(bad, why)
			}
		}
		return drain(r)
	})
	return errors.Join(append(bad, err)...)
}

// bringOne copies one directory, and says why that cannot be used; err is why nothing
// can be read behind it.
func (t *there) bringOne(dir string, r io.Reader) (why, err error) {
	in, there := tar.NewReader(r), false
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		rest, ok := strings.CutPrefix(strings.TrimSuffix(h.Name, "/"), dir)
		if !ok || rest != "" && rest[0] != '/' || !filepath.IsLocal(h.Name) {
			continue
		}
		if !there {
			if err := t.cache.Mkdir(partOf(dir), 0o700); err != nil {
				return nil, err
			}
			there = true
		}
		if rest != "" {
			if err := t.lay(partOf(dir)+rest, h, in); err != nil {
				return nil, err
			}
		}
	}
	verdict := make([]byte, verdictLen)
	if _, err := io.ReadFull(r, verdict); err != nil {
		return nil, err
	}
	status, said, _ := strings.Cut(strings.TrimSpace(string(verdict)), " ")
	switch {
	case status == "0" && there:
		return nil, t.cache.Rename(partOf(dir), dir)
	case status == "0" || strings.Contains(said, dir+": Cannot stat: No such file or directory"):
		return nil, nil
	}
	first, _, _ := strings.Cut(said, "\n")
	return cli.Errorf(cli.IO, "%s:%s/%s cannot be brought as a whole: %.300q (again, when that is mended)", t.host, t.dir, dir, first), t.cache.RemoveAll(partOf(dir))
}

// partOf is where a directory is copied to until all of it is there.
func partOf(dir string) string { return path.Join("jobs", ".part-"+path.Base(dir)) }

// lay copies one thing of an archive. What is neither a file, a directory nor a link is
// left.
func (t *there) lay(name string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return t.cache.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		return t.cache.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := t.cache.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600|h.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		return t.cache.Chtimes(name, h.ModTime, h.ModTime)
	}
	return nil
}

func (t *there) open(dir string) (*os.Root, error) { return plainDir(t.cache, dir) }

func (t *there) done(dir string) { t.cache.RemoveAll(dir) }

// readFolder reads the list of a folder and what was submitted of it.
func readFolder(ctx context.Context, p place) (*slurm.Folder, *slurm.Submitted, error) {
	var list, submitted []byte
	err := p.read(ctx, []string{slurm.ListFile, slurm.SubmittedFile}, maxList, func(name string, text []byte) error {
		if len(text) > maxList {
			return fmt.Errorf("%w: %s has more than %d bytes", slurm.ErrFolder, name, maxList)
		}
		if name == slurm.ListFile {
			list = text
		} else {
			submitted = text
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if list == nil {
		return nil, nil, cli.Errorf(cli.Input, "%w: it has no %s", slurm.ErrFolder, slurm.ListFile)
	}
	f, err := slurm.ReadFolder(bytes.NewReader(list))
	if err != nil {
		return nil, nil, cli.Errorf(cli.Input, "%w", err)
	}
	s, err := slurm.ReadSubmitted(bytes.NewReader(submitted))
	if err != nil {
		return nil, nil, cli.Errorf(cli.Input, "%w", err)
	}
	if t, ok := p.(*there); ok {
		err = t.keep(string(f.ID))
	}
	return f, s, err
}
