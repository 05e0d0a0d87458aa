// Dnoded runs the jobs that the head gives to this node. See dnoded(8).
package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/dial"
	"distribute/lib/inventory"
	"distribute/lib/noded"
	"distribute/lib/proc"
)

const usage = `usage: dnoded [-nv] [-D dir] [-H head] [-insecure] [node.yaml]
       dnoded -stdio [-v] [-D dir] [node.yaml]
       dnoded -init [-D dir] head fingerprint`

func main() {
	if proc.IsSupervisor() {
		supervise()
		return
	}
	cli.Main(usage, run)
}

// supervise is the life of a slot's supervisor, which is this program too.
func supervise() {
	if err := proc.Supervise(desk.MakeRoomFor); err != nil {
		panic(err)
	}
}

func run(ctx context.Context, c *cli.Cmd) error {
	dry := c.Bool("n")
	verbose := c.Bool("v")
	dir := c.String("D", "")
	head := c.String("H", "")
	insecure := c.Bool("insecure")
	carried := c.Bool("stdio")
	join := c.Bool("init")
	if err := c.Parse(); err != nil {
		return err
	}
	if *dir == "" {
		*dir = ownDir(c.Getenv)
	}
	if *join && (*dry || *verbose || *insecure || *head != "") {
		return cli.Usagef("-init goes with -D and nothing else")
	}
	if *join {
		if err := account.BecomeOwner(*dir); err != nil {
			return err
		}
		return initNode(ctx, c, *dir, c.Args)
	}
	if len(c.Args) > 1 {
		return cli.Usagef("one node.yaml at most, %d operands were given", len(c.Args))
	}
	log := c.Log(*verbose)
	defer cli.TellFigures(log)()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // one that comes before the node is up counts
	file, err := readFile(*dir, c.Args)
	if err != nil {
		return err
	}
	source := inventory.Here(os.LookupEnv, len(proc.CPUs()))
	in, err := take(ctx, source, file, *dir)
	if err != nil {
		return err
	}
	if *dry {
		if err := printOffer(ctx, c, in, source, file, *dir); err != nil {
			return err
		}
		return startable(ctx, c, cmp.Or(*head, file.Head), *insecure, file, *dir)
	}
	if in.NameErr != nil {
		return cli.Errorf(cli.Input, "%w; give the node a name in its node.yaml", in.NameErr)
	}
	settings := noded.Settings{
		Name: in.Name, Offer: in.Offer, Most: in.Most, Measured: file.Measured, Dir: *dir, CardUsers: source.Cards().Users,
		Caps: &in.caps, Presence: presenceConfig(file), Env: baseEnv(c.Getenv), Path: c.Getenv("PATH"), Log: log,
	}
	in.tellLacks(log)
	settings.Pausers, settings.Ports = pausers(ctx, file, log), file.Ports
	changes := make([]chan noded.Given, max(1, len(in.parts)))
	for i := range changes {
		changes[i] = make(chan noded.Given)
	}
	settings.Changes = changes[0]
	again := &reread{file: file, args: c.Args, dir: *dir, source: source, log: log, asked: hangup}
	again.watch(ctx, changes)
	proc.Precious()
	if err := desk.CheckPath(*dir); err != nil {
		return cli.Errorf(cli.Input, "%w", err)
	}
	m := machine{c: c, all: settings, file: file, head: cmp.Or(*head, file.Head), insecure: *insecure, parts: in.parts, changes: changes}
	switch {
	case len(in.parts) > 0 && *carried:
		return cli.Usagef("with -stdio the machine is one node: take \"nodes\" out of its node.yaml, or have it dial the head")
	case len(in.parts) > 0:
		err = m.serve(ctx)
	case *carried && (*head != "" || *insecure):
		return cli.Usagef("with -stdio the head is who started dnoded")
	case *carried:
		err = serveCarried(ctx, c, settings, file)
	default:
		err = serve(ctx, c, settings, file, cmp.Or(*head, file.Head), *insecure)
	}
	switch {
	case errors.Is(err, desk.ErrInUse):
		return cli.Errorf(cli.Later, "%w", err)
	case errors.Is(err, desk.ErrNoDesk):
		return cli.Errorf(cli.Input, "%w", err)
	}
	return err
}

// serveCarried is the node of the head that has started this by ssh.
func serveCarried(ctx context.Context, c *cli.Cmd, s noded.Settings, file *inventory.File) error {
	if err := runAs(ctx, &s, file, true, os.Geteuid()); err != nil {
		return err
	}
	return serveStdio(ctx, c, s)
}

// serve is the node of a head that it dials. Said is as for theHead.
func serve(ctx context.Context, c *cli.Cmd, s noded.Settings, file *inventory.File, said string, insecure bool) (err error) {
	if s.Addr, s.Terms, err = theHead(c, said, insecure, file, s.Dir); err != nil {
		return err
	}
	if dial.Exposed(s.Addr) {
		s.Log.Warn("plain TCP beyond this machine: whoever answers at this address, or sits between, can run anything here", "head", s.Addr)
	}
	if err := runAs(ctx, &s, file, dial.Local(s.Addr) || insecure, os.Geteuid()); err != nil {
		return err
	}
	s.Up = func() {
		tellLeft(s.Log, s.Dir, nil)
		c.Ready(s.Log)
	}
	return noded.Run(ctx, s)
}

// startable reports why the node's file or the address of its head keep dnoded from starting. No
// head may be set yet.
func startable(ctx context.Context, c *cli.Cmd, said string, insecure bool, file *inventory.File, dir string) error {
	if err := desk.CheckPath(dir); err != nil {
		return cli.Errorf(cli.Input, "%w", err)
	}
	s := noded.Settings{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	addr, err := dial.Head(c.Getenv, said)
	if none := (dial.NoHead{}); err != nil && !errors.As(err, &none) && !errors.Is(err, fs.ErrPermission) {
		return err // but a file of somebody else that cannot be read is no mistake of the node
	}
	switch {
	case addr == "":
	case strings.HasPrefix(addr, "tls://"): // it may have no key yet
		if err := dial.CheckTLS(addr); err != nil {
			return cli.Errorf(cli.Input, "no head can be at %q: %w", addr, err)
		}
	default:
		if err := checkHead(addr, dial.Terms{Insecure: insecure, HeadKey: file.HeadKey}); err != nil {
			return err
		}
	}
	uid, _ := starter(os.Geteuid(), dir)
	return runAs(ctx, &s, file, addr == "" || dial.Local(addr) || insecure, uid)
}

// theHead is the address of the head, and on what terms it is dialled. Said is
// what the option or the node's file says, if one does.
func theHead(c *cli.Cmd, said string, insecure bool, file *inventory.File, dir string) (addr string, terms dial.Terms, err error) {
	if addr, err = dial.Head(c.Getenv, said); err != nil {
		return addr, terms, err
	}
	terms = dial.Terms{Insecure: insecure, HeadKey: file.HeadKey}
	if terms.Key, err = ownKey(dir, addr); err != nil {
		return addr, terms, err
	}
	if strings.HasPrefix(addr, "ssh://") {
		terms.SSH, err = dial.OwnSSH(dir)
		terms.Control = filepath.Join(dir, "ssh")
	}
	if errors.Is(err, dial.ErrBadKey) {
		err = cli.Errorf(cli.Input, "%w", err)
	}
	if err != nil {
		return addr, terms, err
	}
	return addr, terms, checkHead(addr, terms)
}

// checkHead reports why no head can be dialled at addr, on those terms.
func checkHead(addr string, terms dial.Terms) error {
	if terms.HeadKey != "" && strings.HasPrefix(addr, "tcp://") {
		return cli.Errorf(cli.Input, "no head can be at %q: over plain TCP it cannot prove the head_key of the node's file; dial tls://, or take that key out", addr)
	}
	if err := terms.Check(addr); err != nil {
		return cli.Errorf(cli.Input, "no head can be at %q: %w", addr, err)
	}
	return nil
}

// siteDir is the node's directory of root, and of the user to whom it belongs, whom
// the unit runs it as.
const siteDir = "/var/lib/distribute/node"

// ownDir is the node's directory if none is named.
func ownDir(getenv func(string) string) string {
	if uid := os.Geteuid(); uid == 0 || account.Owns(uid, siteDir) {
		return siteDir
	}
	state := getenv("XDG_STATE_HOME")
	if state == "" {
		state = filepath.Join(getenv("HOME"), ".local", "state")
	}
	return filepath.Join(state, "distribute", "node")
}

// readFile reads the node's file: the one named, or that of the directory if it
// has one.
func readFile(dir string, args []string) (*inventory.File, error) {
	if len(args) == 1 {
		return inventory.ReadFile(args[0])
	}
	f, err := inventory.ReadFile(nodeFile(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &inventory.File{}, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Errorf(cli.Input, "%w; run this as the user to whom %q belongs, or name another directory with -D", err, dir)
	}
	return f, err
}
