package testscripts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms is who may import whom. A room is a directory; what it may import is
// the standard library and what stands here, ours without "distribute/". The
// test fails too for a line that nothing needs, so the table is the picture.
var rooms = map[string][]string{
	"lib/account":       {},
	"lib/ask":           {"lib/batchfile", "lib/cli", "lib/dial", "lib/job", "lib/line", "lib/pack", "lib/pull", "lib/query", "lib/unit", "lib/wire"},
	"lib/batchfile":     {"lib/capability", "lib/conf", "lib/job", "lib/msg", "lib/sweep", "lib/unit"},
	"lib/capability":    {"lib/match", "lib/msg", "lib/unit"},
	"lib/cause":         {},
	"lib/check":         {"lib/durable"},
	"lib/check/harm":    {"lib/check", "lib/durable", "lib/suite"},
	"lib/cli":           {"lib/unit", "golang.org/x/sys/unix"},
	"lib/conf":          {"lib/msg", "gopkg.in/yaml.v3"},
	"lib/desk":          {"lib/check", "lib/durable", "lib/job", "lib/line", "lib/pack", "lib/pause", "lib/proc", "github.com/gofrs/flock", "golang.org/x/sys/unix"},
	"lib/dial":          {"lib/account", "lib/durable", "lib/msg", "lib/node", "lib/timing", "lib/wire", "golang.org/x/sys/unix"},
	"lib/durable":       {"golang.org/x/sys/unix"},
	"lib/inventory":     {"lib/conf", "lib/hours", "lib/job", "lib/msg", "lib/node", "lib/presence", "lib/unit"},
	"lib/head":          {"lib/account", "lib/cause", "lib/cli", "lib/conf", "lib/dial", "lib/durable", "lib/estimate", "lib/job", "lib/line", "lib/node", "lib/pack", "lib/query", "lib/sched", "lib/timing", "lib/unit", "lib/wire", "spool", "golang.org/x/sync/errgroup", "golang.org/x/sync/semaphore"},
	"lib/job":           {"lib/capability", "lib/line", "lib/msg", "lib/sweep", "lib/unit"},
	"lib/lab":           {"lib/ask", "lib/cli", "lib/desk", "lib/head", "lib/inventory", "lib/job", "lib/node", "lib/noded", "lib/proc", "lib/sched", "lib/unit", "lib/wire", "spool"},
	"lib/line":          {},
	"lib/match":         {"lib/msg", "lib/unit"},
	"lib/matrix":        {"lib/job", "lib/timing", "lib/unit"},
	"lib/estimate":      {},
	"lib/mpi":           {},
	"lib/msg":           {},
	"lib/hours":         {},
	"lib/presence":      {"lib/account", "lib/hours", "golang.org/x/sys/unix"},
	"lib/node":          {"lib/capability", "lib/job", "lib/msg", "lib/unit"},
	"lib/noded":         {"lib/account", "lib/desk", "lib/dial", "lib/durable", "lib/hours", "lib/job", "lib/line", "lib/mpi", "lib/node", "lib/pack", "lib/pause", "lib/presence", "lib/proc", "lib/timing", "lib/unit", "lib/wire"},
	"lib/pack":          {"lib/durable", "github.com/klauspost/compress/zstd"},
	"lib/pause":         {"lib/durable", "github.com/fsnotify/fsnotify", "golang.org/x/sys/unix"},
	"lib/proc":          {"lib/durable", "lib/msg", "lib/pause", "lib/timing", "golang.org/x/sys/unix"},
	"lib/pull":          {"lib/durable", "lib/job", "lib/line", "lib/pack", "golang.org/x/sys/unix"},
	"lib/query":         {"lib/cause", "lib/estimate", "lib/job", "lib/line", "lib/match", "lib/msg", "lib/node", "lib/sweep", "lib/unit"},
	"lib/sched":         {"lib/capability", "lib/job", "lib/node", "lib/sched/explain", "lib/sched/policy", "lib/timing", "lib/unit"},
	"lib/sched/explain": {"lib/capability", "lib/msg", "lib/node", "lib/sched/policy", "lib/unit"},
	"lib/sched/policy":  {"lib/capability", "lib/job", "lib/node"},
	"lib/reading":       {"lib/sweep", "lib/unit"},
	"lib/slurm":         {"lib/durable", "lib/job", "lib/line", "lib/mpi", "golang.org/x/sys/unix"},
	"lib/suite":         {},
	"lib/sweep":         {"lib/unit"},
	"lib/timing":        {},
	"lib/unit":          {},
	"lib/wire":          {"lib/job", "lib/line", "lib/node", "lib/timing"},
	"spool":             {"lib/capability", "lib/check", "lib/durable", "lib/job", "lib/line", "lib/node", "lib/pack", "lib/timing", "github.com/fsnotify/fsnotify", "github.com/gofrs/flock"},
	"testscripts":       {},
}

// A command may import spool, any room of lib, and no dependency. Tests may
// import, besides what their room may, these.
var testsToo = []string{"golang.org/x/sys/unix", "lib/ask", "lib/check", "lib/check/harm", "lib/desk", "lib/durable", "lib/inventory", "lib/job", "lib/node", "lib/noded", "lib/pack", "lib/pause", "lib/proc", "lib/suite", "lib/unit", "lib/wire", "spool", "github.com/rogpeppe/go-internal/testscript"}

// withoutIO is what the state machine of decisions must not know.
var withoutIO = []string{"os", "net", "io/fs", "io/ioutil", "syscall", "os/exec", "os/signal", "log", "log/slog", "math/rand"}

// process is what only lib/cli touches, and a command only through it.
var process = []string{"os.Exit", "os.Stdin", "os.Stdout", "os.Stderr", "os.Args", "flag.Parse"}

// processToo is who else may, and why.
var processToo = map[string]string{
	"../lib/durable/step.go os.Exit":   "a failpoint ends the process where it stands",
	"../lib/proc/supervise.go os.Args": "a supervisor is told from dnoded by the name it is started with",
}

// distribute-hacking(7) tells of each room, and the files that it names are there.
func TestRoomsAreTold(t *testing.T) {
	page, err := os.ReadFile("../man/distribute-hacking.7")
	if err != nil {
		t.Fatal(err)
	}
	for room := range rooms {
		if !strings.Contains(string(page), "\n.It Pa "+room+"\n") {
			t.Errorf("distribute-hacking(7) does not tell of %s", room)
		}
	}
	for _, file := range regexp.MustCompile(`(?m)^\.Pa (\S+/\S+\.(?:go|md))(?: , (\S+\.go))?`).FindAllStringSubmatch(string(page), -1) {
		beside := filepath.Join(filepath.Dir(file[1]), file[2])
		for _, path := range []string{file[1], beside} {
			if _, err := os.Stat(filepath.Join("..", path)); err != nil {
				t.Errorf("distribute-hacking(7) names what is not there: %v", err)
			}
		}
	}
}

type source struct {
	room, path string
	test       bool
	imports    []string
	selectors  map[string]token.Position
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() != ".." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := source{path: name, room: strings.TrimPrefix(path.Dir(name), "../"), test: strings.HasSuffix(name, "_test.go"), selectors: map[string]token.Position{}}
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			s.imports = append(s.imports, strings.TrimPrefix(p, "distribute/"))
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok {
					s.selectors[x.Name+"."+sel.Sel.Name] = files.Position(sel.Pos())
				}
			}
			return true
		})
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// standard says whether an import is of the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != "cmd" && first != "lib" && first != "spool" && first != "testscripts"
}

func TestImports(t *testing.T) {
	unused := map[string]bool{}
	for room, list := range rooms {
		unused[room] = true
		for _, p := range list {
			unused[room+" → "+p] = true
		}
	}
	for _, s := range sources(t) {
		allowed, known := rooms[s.room]
		command := strings.HasPrefix(s.room, "cmd/")
		if !known && !command {
			t.Errorf("%s: %s is no room of the table", s.path, s.room)
		}
		delete(unused, s.room)
		for _, p := range s.imports {
			delete(unused, s.room+" → "+p)
			switch {
			case standard(p):
				if strings.HasPrefix(s.room, "lib/sched") && !s.test && slices.Contains(withoutIO, p) {
					t.Errorf("%s: imports %s, but decisions do no I/O", s.path, p)
				}
			case slices.Contains(allowed, p), s.test && slices.Contains(testsToo, p):
			case command && (p == "spool" || strings.HasPrefix(p, "lib/")):
			default:
				t.Errorf("%s: %s may not import %s", s.path, s.room, p)
			}
		}
	}
	for _, line := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("in the table, and not in the tree: %s", line)
	}
}

// Files that people write are read above what is kept, sent and decided.
func TestBelowYAML(t *testing.T) {
	var below func(room string, path []string)
	below = func(room string, path []string) {
		path = append(path, room)
		if room == "lib/conf" {
			t.Errorf("%s", strings.Join(path, " → "))
		}
		for _, p := range rooms[room] {
			below(p, path)
		}
	}
	for _, room := range []string{"lib/job", "lib/wire", "lib/sched", "lib/noded", "lib/slurm", "lib/pull", "spool"} {
		below(room, nil)
	}
}

// What is synced past lib/durable no simulated disk knows of.
func TestOnlyDurableSyncs(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.room == "lib/durable" {
			continue
		}
		for name, at := range s.selectors {
			if of, what, _ := strings.Cut(name, "."); slices.Contains([]string{"Sync", "Syncfs", "Fsync", "Fdatasync"}, what) && of != "durable" {
				t.Errorf("%s: %s is for lib/durable", at, name)
			}
		}
	}
}

// A full disk and a quota that is reached are one thing to all.
func TestOnlyDurableTellsWantOfRoom(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.room == "lib/durable" {
			continue
		}
		for name, at := range s.selectors {
			if _, errno, _ := strings.Cut(name, "."); errno == "ENOSPC" || errno == "EDQUOT" {
				t.Errorf("%s: durable.NoRoom is for errors of that kind, not %s", at, name)
			}
		}
	}
}

func TestOnlyCLITouchesTheProcess(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.room == "lib/cli" {
			continue
		}
		for _, name := range process {
			if at, ok := s.selectors[name]; ok && processToo[s.path+" "+name] == "" {
				t.Errorf("%s: %s is for lib/cli", at, name)
			}
		}
	}
}
