package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/slurm"
	"distribute/lib/unit"
)

// A place is the directory of a folder on this machine. Of a folder on another host it is
// a copy of what is needed of it, which rsync makes.
type place struct {
	dir  string
	root *os.Root

	host, from string   // the folder of which it is a copy; "": dir is the folder
	ssh        []string // the options of ssh(1) to that host
	locked     *os.File // the directory, which one process uses at a time
}

// placeOf is the place of a folder: DIR, or [user@]host:path. A path with a colon of its
// own begins with a slash or a dot.
func placeOf(ctx context.Context, c *cli.Cmd, folder string) (*place, error) {
	host, from, colon := strings.Cut(folder, ":")
	if !colon || strings.Contains(host, "/") {
		root, err := os.OpenRoot(folder)
		switch info, _ := os.Stat(folder); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, cli.Errorf(cli.NoSuch, "there is no folder %s", unit.Quote(folder))
		case err != nil && info != nil && !info.IsDir():
			return nil, cli.Errorf(cli.Input, "%w: %s is no directory", slurm.ErrFolder, unit.Quote(folder))
		}
		p := &place{dir: folder, root: root}
		if err == nil {
			err = p.lock(folder)
		}
		return p, err
	}
	if host == "" || strings.HasPrefix(host, "-") || from == "" || strings.ContainsAny(folder, "\x00\n") {
		return nil, cli.Usagef("%q is no folder: DIR, or user@host:path", folder)
	}
	if _, err := exec.LookPath("rsync"); err != nil {
		return nil, cli.Errorf(cli.Unreachable, "rsync copies a folder of another machine, and is not installed here: install it, or run d2slurm there")
	}
	p := &place{host: host, from: fromHome(from), ssh: append([]string{"-T", "-oBatchMode=yes"}, dial.Patience(ctx, host)...)}
	switch said, err := p.shell(ctx, "command -v rsync || :\n"); {
	case err != nil:
		return nil, err
	case strings.TrimSpace(said) == "":
		return nil, cli.Errorf(cli.Unreachable, "rsync copies the folder, and is not installed on %s: install it there, or run d2slurm there", host)
	}
	return p, p.makeCopy(c, folder)
}

// fromHome is a path on a host as from the home there, where no shell expands a ~.
func fromHome(p string) string {
	if p == "~" {
		return "."
	}
	return cmp.Or(strings.TrimPrefix(p, "~/"), ".")
}

// makeCopy makes the directory of a copy, and keeps other processes from using it.
func (p *place) makeCopy(c *cli.Cmd, folder string) error {
	base := c.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(c.Getenv("HOME"), ".cache")
	}
	p.dir = filepath.Join(base, "distribute", "d2slurm", fmt.Sprintf("%.16x", sha256.Sum256([]byte(p.host+":"+p.from))))
	err := os.MkdirAll(p.dir, 0o700)
	if err == nil {
		p.root, err = os.OpenRoot(p.dir)
	}
	if err == nil {
		err = p.lock(folder)
	}
	return err
}

// lock keeps other processes from using the directory, as far as its disk can lock: one of a
// network may not.
func (p *place) lock(folder string) (err error) {
	if p.locked, err = p.root.Open("."); err != nil {
		return err
	}
	if errors.Is(syscall.Flock(int(p.locked.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return cli.Errorf(cli.Later, "somebody else brings results from %s just now: try again when that is done", folder)
	}
	return nil
}

// quote makes one word of a text for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shell runs a script in the folder and returns what it prints.
func (p *place) shell(ctx context.Context, script string) (string, error) {
	cmd, what := exec.CommandContext(ctx, "sh", "-s"), "sh"
	if p.host != "" {
		dir := quote(p.from)
		args := append(slices.Clone(p.ssh), "--", p.host, "[ -d "+dir+" ] || exit 66; cd "+dir+" && sh -s")
		cmd, what = exec.CommandContext(ctx, "ssh", args...), "ssh "+p.host
	}
	var said bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = p.dir, strings.NewReader(script), &said
	out, err := cmd.Output()
	switch status := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && p.host != "" && status == cli.NoSuch:
		return "", cli.Errorf(cli.NoSuch, "there is no folder %s on %s", unit.Quote(p.from), p.host)
	case err != nil && p.host != "" && status == 255:
		return "", cli.Errorf(cli.Unreachable, "%w", ran(what, err, said.String()))
	case err != nil:
		return "", ran(what, err, said.String())
	}
	return string(out), nil
}

// ran is the error of a command that failed, with the last line that says why.
func ran(what string, err error, said string) error {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for i, l := range slices.Backward(lines) {
		if i == 0 || !strings.HasPrefix(l, "rsync error: ") && !strings.HasPrefix(l, "rsync: connection unexpectedly closed") {
			if l == "" {
				break
			}
			return fmt.Errorf("%s: %w: %.300s", what, err, l)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Exit statuses of rsync: a file could not be written here; something could not be read
// there, or vanished while it was copied.
const (
	rsyncWrite    = 11
	rsyncPartial  = 23
	rsyncVanished = 24
)

// endWithin is how long rsync may take to end when it is told to.
const endWithin = 10 * time.Second

// errPartial is that some of what was to be copied was not; the rest is there.
var errPartial = errors.New("not all of it could be copied")

// copy copies what there is of these names in the folder: files, or with -r directories
// with all that is in them. What is not there is removed from the copy. What was cut is
// kept, and goes on the next time.
func (p *place) copy(ctx context.Context, names []string, more ...string) error {
	if p.host == "" || len(names) == 0 {
		return nil
	}
	from := p.from
	if !path.IsAbs(from) {
		from = "./" + from // a colon in front would mean a daemon of rsync
	}
	if strings.ContainsAny(from, "*?[") {
		from = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(from) // which the other rsync matches with names
	}
	args := append([]string{"-a", "-s", "-0", "--no-owner", "--no-group", "--no-devices", "--chmod=u+rwX,ug-s", "--partial",
		"--delete", "--delete-missing-args", "--files-from=-", "-e", "ssh " + strings.Join(p.ssh, " ")}, more...)
	cmd := exec.CommandContext(ctx, "rsync", append(args, "--", p.host+":"+from+"/", p.dir+"/")...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, endWithin // it keeps what it has
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(names, "\x00")+"\x00"), &said
	err := cmd.Run()
	what := fmt.Sprintf("rsync %s:%s", p.host, p.from)
	switch status := cmd.ProcessState.ExitCode(); {
	case err == nil, status == rsyncVanished && len(more) == 0: // the directory of a job that has not begun
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case status == rsyncPartial, status == rsyncVanished:
		return cli.Errorf(cli.IO, "%w: %w", ran(what, err, said.String()), errPartial)
	case status == rsyncWrite:
		return cli.Errorf(cli.IO, "%w", ran(what, err, said.String()))
	}
	return cli.Errorf(cli.Unreachable, "%w", ran(what, err, said.String()))
}

// bring makes the directories of jobs ready to be opened, but those of which it notes in
// bad why they cannot be copied as a whole.
func (p *place) bring(ctx context.Context, dirs []string, bad map[string]error) error {
	err := p.copy(ctx, dirs, "-r")
	switch {
	case !errors.Is(err, errPartial):
		return err
	case len(dirs) == 1:
		bad[dirs[0]] = fmt.Errorf("%s cannot be brought as a whole: %w (again, when that is mended)", dirs[0], err)
		return nil
	}
	half := len(dirs) / 2
	if err := p.bring(ctx, dirs[:half], bad); err != nil {
		return err
	}
	return p.bring(ctx, dirs[half:], bad)
}

// open opens the directory of a job, which is one, and no link to one.
func (p *place) open(dir string) (*os.Root, error) {
	for d := dir; d != "."; d = path.Dir(d) {
		if info, err := p.root.Lstat(d); err != nil || !info.IsDir() {
			return nil, errors.Join(fmt.Errorf("%q is no directory: %w", d, fs.ErrNotExist), err)
		}
	}
	return p.root.OpenRoot(dir)
}

// drop removes something from a copy that is not needed any more.
func (p *place) drop(name string) {
	if p.host != "" {
		p.root.RemoveAll(name)
	}
}

// dropAll removes all of a copy but its directory, which is locked.
func (p *place) dropAll() {
	for _, name := range append(listFiles, slurm.BuiltFile, slurm.InputsDir, "jobs") {
		p.drop(name)
	}
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

// maxList is how many bytes of a folder's list and of what was submitted are read.
const maxList = 2 << 30

// read reads a file of the folder, which has at most so many bytes; nil if it is not there.
func (p *place) read(name string, most int64) ([]byte, error) {
	f, err := openPlain(p.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = cli.Errorf(cli.Input, "%s has more than %d bytes", name, most)
	}
	return text, err
}

// maxNamed is how long an id of a batch is at most, with a newline.
const maxNamed = 2*job.MaxName + 2

// listFiles are the files of a folder that tell of all of it.
var listFiles = []string{slurm.ListFile, slurm.SubmittedFile, slurm.HomeFile, slurm.KnownFile, slurm.NamedFile, slurm.BatchFile, slurm.SourceFile}

// readFolder reads the list of a folder and what was submitted of it.
func (p *place) readFolder(ctx context.Context) (*slurm.Folder, *slurm.Submitted, error) {
	if err := p.copy(ctx, listFiles); err != nil {
		return nil, nil, err
	}
	list, err := p.read(slurm.ListFile, maxList)
	if err != nil {
		return nil, nil, err
	}
	if list == nil {
		p.dropAll()
		return nil, nil, cli.Errorf(cli.Input, "%w: it has no %s", slurm.ErrFolder, slurm.ListFile)
	}
	submitted, err := p.read(slurm.SubmittedFile, maxList)
	if err != nil {
		return nil, nil, err
	}
	f, err := slurm.ReadFolder(bytes.NewReader(list))
	if err != nil {
		return nil, nil, cli.Errorf(cli.Input, "%w", err)
	}
	named, err := p.read(slurm.NamedFile, maxNamed)
	if err != nil {
		return nil, nil, err
	}
	if named != nil {
		if f.Batch, err = job.ParseBatchID(strings.TrimSuffix(string(named), "\n")); err != nil {
			return nil, nil, cli.Errorf(cli.Input, "%w: %s: %w", slurm.ErrFolder, slurm.NamedFile, err)
		}
	}
	s, err := slurm.ReadSubmitted(bytes.NewReader(submitted))
	if err != nil {
		return nil, nil, cli.Errorf(cli.Input, "%w", err)
	}
	return f, s, nil
}
