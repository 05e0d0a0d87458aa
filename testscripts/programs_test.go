package testscripts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A program is a shell script of small steps, each of which is whole by itself, so that
// any of them can be left out.
type program struct {
	name  string
	steps []string
}

// script returns p as a script, which ends well unless one of its steps ends it.
func (p program) script() string {
	return "export LC_ALL=C\ntest ! \"$RANK\" || { mkdir r$RANK; cp -r input r$RANK; cd r$RANK || exit 99; }\n" +
		strings.Join(p.steps, "\n") + "\nexit 0\n"
}

// without returns p without n of its steps, from step i on.
func (p program) without(i, n int) program {
	return program{p.name, slices.Concat(p.steps[:i], p.steps[i+n:])}
}

// A programBatch is programs that share a build and inputs. With ranks, each program
// runs so many times at once, and each rank works in a directory of its own.
type programBatch struct {
	number int
	name   string
	build  *program // nil: none
	jobs   []program
	ranks  int
	big    bool // there is an input of 64 MiB
	spoil  bool // the build, or some of the programs, may change it where it is shared
}

// The inputs of each batch, by their paths in the batch's directory: two of one size and
// one time, one that can be executed, a template of each job, and one of a directory.
var programInputs = map[string]string{
	"a.cfg":     "first\n",
	"b.cfg":     "other\n",
	"tool.sh":   "#!/bin/sh\necho tool $1\n",
	"table.in":  "{n} of {{n}}\n",
	"sub/c.dat": strings.Repeat("0123456789abcdef\n", 300),
}

// programValue is the parameter n of a job.
func programValue(i int) string { return fmt.Sprintf("%d.50", i) }

var (
	programDirs  = []string{".", "d", "d/e", "out put", "in<>&", "distribute_savex", "input", "input/sub"}
	programNames = []string{"f", "g.csv", "h", "sp ace", "qu'ote", `"double"`, "-dash", "ünï", "*", `back\slash`, "$HOME", "#", "~", "%s", "name\twith tab", "bad\xff", "line\nbreak",
		strings.Repeat("x", 255), ".hidden", "job_output.txt", "CON", "built", "input.x"}
	inputPaths = []string{"input/a.cfg", "input/b.cfg", "input/tool.sh", "input/sub/c.dat", "input/table"}
)

// A programmer writes programs.
type programmer struct {
	*rand.Rand
	paths    []string // that earlier steps have made
	ends     bool     // it may end itself, or fail
	build    bool     // the program is a build
	closed   string   // a mode of files
	farthest string   // the longest path that it makes
	mount    string   // a step that mounts the canary, and leaves it mounted
	big      bool     // it has a large input
	spoils   bool     // it changes that where it is shared
}

// newProgramBatch writes a batch with so many jobs.
func newProgramBatch(seed uint64, number, jobs int) programBatch {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	b := programBatch{number: number, name: fmt.Sprintf("b%d", number)}
	if number%7 == 6 {
		b.ranks = 2
	}
	b.big = number%20 == 17 // costs ten seconds: none in the first hundred programs
	b.spoil = b.big && b.ranks == 0 && r.IntN(4) > 0
	var made []string
	if r.IntN(5) > 0 {
		w := &programmer{Rand: r, build: true, closed: "555", farthest: "3500", mount: "mkdir -p m", big: b.big}
		w.spoils = b.spoil && r.IntN(6) == 0
		p := w.program("build", 1+r.IntN(8))
		switch r.IntN(20) {
		case 0:
			p.steps = append(p.steps, w.ending())
		case 1:
			p.steps = append(p.steps, tooMuch)
		}
		b.build, made = &p, w.paths
	}
	for i := range jobs {
		w := &programmer{Rand: r, paths: slices.Clone(made), closed: "000", farthest: "4076"}
		w.ends = b.ranks == 0 // if one rank fails, when the others end is chance
		w.mount = `mkdir -p m && mount --bind "$CANARY" m 2>/dev/null && ls m >/dev/null`
		w.big, w.spoils = b.big, b.spoil && r.IntN(4) == 0
		p := w.program(fmt.Sprintf("p%d", i), 1+r.IntN(12))
		if b.ranks > 0 && r.IntN(2) == 0 {
			p.steps = append(p.steps, w.rankEnding())
		} else if b.ranks == 0 && r.IntN(50) == 0 {
			p.steps = append(p.steps, tooMuch)
		}
		b.jobs = append(b.jobs, p)
	}
	return b
}

func (w *programmer) program(name string, n int) program {
	p := program{name: name}
	for range n {
		p.steps = append(p.steps, w.step())
	}
	return p
}

func (w *programmer) one(of ...string) string { return of[w.IntN(len(of))] }

// quoted is a word for the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// fresh returns a path for something new, with the step that makes its directory before it.
func (w *programmer) fresh() (path, before string) {
	dir := programDirs[w.IntN(len(programDirs))]
	path = programNames[w.IntN(len(programNames))]
	if w.IntN(3) == 0 {
		path = fmt.Sprintf("n%d", w.IntN(20))
	}
	if dir == "." {
		path = "./" + path
	} else {
		path, before = dir+"/"+path, "mkdir -p "+quoted(dir)+"; "
	}
	w.paths = append(w.paths, path)
	return path, before
}

// some returns a path that may be there.
func (w *programmer) some() string {
	if len(w.paths) > 0 && w.IntN(4) > 0 {
		return w.paths[w.IntN(len(w.paths))]
	}
	if w.IntN(3) > 0 {
		return inputPaths[w.IntN(len(inputPaths))]
	}
	return "./f"
}

// content returns a command that prints something.
func (w *programmer) content() string {
	switch w.IntN(6) {
	case 0:
		return "printf ''"
	case 1:
		return fmt.Sprintf(`printf '\000\001\377\r\n%d'`, w.IntN(1000))
	case 2:
		return fmt.Sprintf("head -c %d /dev/zero", w.IntN(1<<20))
	case 3:
		return fmt.Sprintf("seq %d", w.IntN(30000))
	}
	return fmt.Sprintf("echo %d", w.IntN(1000))
}

// step writes one line.
func (w *programmer) step() string {
	if w.ends && w.IntN(8) == 0 {
		return w.ending()
	}
	if w.spoils && w.IntN(4) == 0 {
		return w.spoiling()
	}
	if w.big && w.IntN(4) == 0 { // nothing that needs it to be writable, or the user's own
		return w.one("wc -c <input/big.dat", "tail -c 5 input/big.dat", "rm -f input/big.dat", "mv -f input/big.dat big",
			"cp input/a.cfg input/new && mv -f input/new input/big.dat", "ln -sf input/big.dat leads", "head -n 1 input/big.dat | tr -d '\\000'")
	}
	new, dir := w.fresh()
	p, q := quoted(new), quoted(w.some())
	steps := []func() string{
		func() string { return dir + w.content() + " >" + p },
		func() string { return dir + w.content() + " >" + p },
		func() string { return w.content() + " >>" + q },
		func() string { return w.content() + " >" + q },
		func() string { return "cat " + q },
		func() string { return "wc -c <" + q },
		func() string { return "rm -rf " + q },
		func() string { return "mv -f " + q + " " + p },
		func() string { return "mv -f " + quoted(w.some()) + " " + q },
		func() string { return "mv -f input/b.cfg input/a.cfg" },
		func() string { return "cp " + q + " " + p },
		func() string { return "ln -f " + q + " " + p },
		func() string { return dir + "ln -sf " + w.one("f", "g.csv", "./n1", "nothing", "sub/x") + " " + p },
		func() string { return "ln -sf " + w.one("/nowhere/x", strings.Repeat("../", 40)+"nowhere/x") + " " + p },
		func() string {
			before := "" // a build whose user may not read all that it leaves fails
			if w.build {
				before = "test -d " + q + " || "
			}
			return before + "chmod " + w.one("755", "644", "600", "444", "400", "500", "4755", w.closed) + " " + q
		},
		func() string {
			return dir + "chmod " + w.one("700", "755", "500", "1777", "2755") + " " + quoted(trimName(new))
		},
		func() string {
			return "touch -d " + w.one("1999-12-31", "2001-09-09", "@0", "@-5", "2038-01-20", "2300-01-01") + " " + q
		},
		func() string { return dir + fmt.Sprintf("truncate -s %d ", w.IntN(2<<20)) + p },
		func() string { return fmt.Sprintf("truncate -s %d ", w.IntN(2000)) + q },
		func() string { return "mkdir -p " + p },
		func() string { return "mkfifo fifo" }, // no other step waits for its other end
		func() string { return `python3 -ISc 'import socket,sys; socket.socket(socket.AF_UNIX).bind("sock")'` },
		func() string { return "(exec 9>./gone && rm gone && " + w.content() + " >&9)" },
		func() string { return "(" + w.content() + " >" + p + ") & wait $!" },
		func() string { return "sleep 30 >/dev/null 2>&1 &" },
		func() string { return "setsid sleep 30 &" },
		func() string { return "(setsid sh -c '(sleep 30 &)' &)" },
		func() string { return "trap '' TERM HUP" },
		func() string { return w.content() },
		func() string { return w.content() + " >&2" },
		func() string { return w.content() + w.one(" >", " >>") + w.one("/dev/stdout", "/dev/stderr") },
		func() string { return `test ! "$DISTRIBUTE_ID" || ` + ownGroup },
		func() string { return "input/tool.sh here; sh input/tool.sh there" },
		func() string { return "cat input/table input/a.cfg" },
		func() string { return "test -x " + q + " && echo can be executed" },
		func() string { return "stat -c '%s %F' " + q },
		func() string {
			return "find input -type f -size -100k -name '*.*' ! -name '*d.sh' ! -newermt 2020-06-01 | sort"
		},
		func() string {
			return "stat -c '%b %s' " + q + " | awk '$1 < int($2 / 512) { print \"has holes\" }'"
		},
		func() string {
			return dir + fmt.Sprintf("truncate -s %d ", 8192+w.IntN(1<<20)) + p + "; echo end >>" + p
		},
		func() string { return "rm -rf " + w.one("input", "input/sub", "distribute_save", "d", "out*") },
		func() string { return w.one("wc -c", "cat", "test -t 0 || echo no terminal", "yes | head -n 1") },
		func() string { return tmpSocket },
		func() string { return "ls -A " + w.one(".", "input", "d", "input/sub") },
		func() string { return longPath(w.farthest) },
		func() string {
			return "unshare -rm sh -c 'mkdir -p m && mount --bind \"$CANARY\" m && cat m/precious'; ls -A m"
		},
		func() string { return w.mount },
	}
	return steps[w.IntN(len(steps))]()
}

// ending writes a step that ends the program, in one way or another.
func (w *programmer) ending() string {
	return w.one("exit 0", "exit 1", "exit 85", "exit 255", "kill -TERM $$; sleep 1", "kill -KILL $$", "kill -SEGV $$", "false", "exec false", "exec ./nothing", "cd /nowhere || exit 3")
}

// spoiling writes a step that changes the large input where it is a file that jobs share, if
// the program may do that, and leaves word of it. Elsewhere it does nothing.
func (w *programmer) spoiling() string {
	does := w.one("echo more >>input/big.dat", "printf X | dd conv=notrunc of=input/big.dat", "truncate -s 5 input/big.dat",
		"touch -d 1999-12-31 input/big.dat", "cp input/a.cfg input/big.dat")
	after := w.one("", " && sleep 0.5", " && rm -f input/big.dat", " && rm -f input/big.dat && sleep 0.5", " && mv -f input/a.cfg input/big.dat")
	return `test ! "$SPOIL" || test ! -f input/big.dat || test $(stat -c %h input/big.dat) = 1 || {
	chmod u+w input/big.dat; ` + does + " && echo 1 >" + spoiled + after + `
} >/dev/null 2>&1`
}

// spoiled is the file that tells of a change of a shared input.
const spoiled = "spoiled.txt"

// rankEnding writes a step that ends one rank of two: it fails or is killed while the other
// works on, or it ends well before the other. A rank that ignored its SIGTERM would end well,
// and the other would sleep for 45 s: on a node whose jobs have to leave, it might never end.
func (w *programmer) rankEnding() string {
	end := w.one("exit 3", "kill -KILL $$", "trap - TERM; kill -TERM $$; sleep 1", "exit 0")
	if end == "exit 0" {
		return "test $RANK = 0 || exit 0; sleep 0.2; echo later"
	}
	return "if test $RANK = 0; then : >../at0; exec sleep 45; fi; until test -e ../at0; do sleep 0.02; done; " + end
}

// tooMuch prints more than a node keeps.
const tooMuch = "seq 1500000"

// longPath makes a file whose path from here has so many bytes, which no shell can name.
func longPath(bytes string) string {
	return `python3 -ISc '
import os
left = ` + bytes + `
while left > 255:
    n = min(200, left - 20)
    os.makedirs("l" * n, exist_ok=True); os.chdir("l" * n); left -= n + 1
open("f" * left, "w").write("far")'`
}

// tmpSocket makes a socket with a name as long as Python's multiprocessing has it, where
// temporary files belong.
const tmpSocket = `python3 -ISc '
import os, socket
name = os.environ["TMPDIR"] + "/" + "%031d" % os.getpid()
socket.socket(socket.AF_UNIX).bind(name)
os.unlink(name)' && echo a socket`

// trimName returns the directory of a path.
func trimName(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// ownGroup moves a process that stays into a control group below that of the program, where
// the program may make one.
const ownGroup = `for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do
	test ! -e $at/cgroup.procs || (g=$at$(sed -n s/^0:://p /proc/self/cgroup)/own; mkdir "$g" && sh -c "echo \$\$ >'$g/cgroup.procs' && exec sleep 30" & sleep 0.1) 2>/dev/null
done`
