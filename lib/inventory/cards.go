package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"distribute/lib/node"
)

// cardsWithin is how long a vendor's tool is waited for. On a machine with a card
// that is broken it can hang for ever, and not even be killed.
const cardsWithin = 15 * time.Second

// longestAnswer is how much of what such a tool prints is read, in bytes.
const longestAnswer = 1 << 20

// A Card is a GPU, and its driver.
type Card struct {
	node.GPU
	Driver string
}

// A Cards is what tells of the GPUs of this machine: nvidia-smi(1), and where
// that knows of none, rocm-smi. Its methods may be called from several goroutines.
type Cards struct {
	path    string
	visible map[string]string // the variables that say which GPUs this process may use, where they are set
	within  time.Duration     // 0: cardsWithin

	mu      sync.Mutex        // guards what follows
	hangs   map[string]string // the tools of which a process hangs, and since when
	uuids   map[string]int    // of NVIDIA's cards: their indexes
	radeons []int             // indexes of AMD's
	failed  bool              // see Failed
	broken  bool              // a GPU that is here does not work
}

// errHangs says that a tool does not answer.
var errHangs = errors.New("does not answer")

// ask is what a tool prints; exec.ErrNotFound if there is none. One that hangs is
// left behind, and not started again before it is gone. With a status that is not
// 0 the error has the last line that it printed.
func (c *Cards) ask(ctx context.Context, tool string, args ...string) (string, error) {
	where := lookPath(tool, c.path)
	if where == "" {
		return "", fmt.Errorf("%s: %w", tool, exec.ErrNotFound)
	}
	c.mu.Lock()
	since := c.hangs[tool]
	c.mu.Unlock()
	if since != "" {
		return "", fmt.Errorf("%s %w since %s", tool, errHangs, since)
	}
	within := c.within
	if within == 0 {
		within = cardsWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	cmd := exec.CommandContext(ctx, where, args...)
	cmd.Env = []string{"PATH=" + c.path, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it may be a script, whose programs hang
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	done, ended := make(chan error, 1), false
	go func() {
		err := cmd.Run()
		cancel()
		c.mu.Lock()
		ended = true
		delete(c.hangs, tool)
		c.mu.Unlock()
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // it could be killed
		case <-time.After(time.Second):
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.hangs == nil {
				c.hangs = map[string]string{}
			}
			if !ended { // after which nobody takes it out
				c.hangs[tool] = time.Now().Format(time.TimeOnly)
			}
			return "", fmt.Errorf("%s %w, and cannot be killed", tool, errHangs)
		}
	}
	text := out.text()
	switch {
	case ctx.Err() == context.DeadlineExceeded && err != nil:
		return "", fmt.Errorf("%s %w within %v", tool, errHangs, within)
	case err != nil && !isWarning(tool, err):
		return text, fmt.Errorf("%s: %w: %s", tool, err, lastOf(text))
	}
	return text, nil
}

// isWarning reports whether a tool has ended with a status that is no failure: 14 of nvidia-smi, if
// the infoROM of a GPU, which works, is corrupted.
func isWarning(tool string, err error) bool {
	exit := (*exec.ExitError)(nil)
	return tool == "nvidia-smi" && errors.As(err, &exit) && exit.ExitCode() == 14
}

// lastOf is the last line of what a tool prints, fit to be shown.
func lastOf(text string) string {
	return fmt.Sprintf("%.200s", printable(text[strings.LastIndexByte(strings.TrimSpace(text), '\n')+1:]))
}

// A limited keeps the begin of what is written to it.
type limited struct {
	mu sync.Mutex
	b  []byte
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p[:min(len(p), longestAnswer-len(l.b))]...)
	return len(p), nil
}

func (l *limited) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(string(l.b), "?")
}

// printable is a text of a tool in one line, fit to be shown.
func printable(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f && r < 0xa0 }), " ")
}

// Variables that say which GPUs a process may use: of programs of NVIDIA, and of AMD, whose programs
// heed the first one, too.
var (
	ofNvidia = []string{"CUDA_VISIBLE_DEVICES"}
	ofAMD    = []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}
)

// visibleOf is those of them that are set.
func visibleOf(lookup func(string) (string, bool)) map[string]string {
	set := map[string]string{}
	for _, v := range ofAMD {
		if value, is := lookup(v); is {
			set[v] = value
		}
	}
	return set
}

// Hides says which variable hides a GPU of those listed last from this process; "" if none does.
func (c *Cards) Hides(g *Card) string {
	c.mu.Lock()
	vars := ofNvidia
	if len(c.uuids) == 0 {
		vars = ofAMD
	}
	c.mu.Unlock()
	for _, v := range vars {
		if value, is := c.visible[v]; is { // those that follow count within it
			if names(value, g) {
				break
			}
			return v
		}
	}
	return ""
}

// names says whether a list as in CUDA_VISIBLE_DEVICES has a GPU: its index, or the begin of its
// UUID. What follows a word that is neither, as -1, does not count.
func names(list string, g *Card) bool {
	for w := range strings.SplitSeq(list, ",") {
		w = strings.TrimSpace(w)
		i, err := strconv.Atoi(w)
		isUUID := strings.HasPrefix(w, "GPU-")
		switch {
		case err == nil && i == g.Index, isUUID && strings.HasPrefix(g.UUID, w):
			return true
		case (err != nil || i < 0) && !isUUID:
			return false
		}
	}
	return false
}

// List is the GPUs that are here, and what keeps others from being found.
func (c *Cards) List(ctx context.Context) (list []Card, lacks []Fact) {
	c.setFailed(false)
	c.setBroken(false)
	list, lacks = c.nvidia(ctx)
	if len(list) > 0 {
		return list, lacks
	}
	amd, more := c.amd(ctx)
	return amd, append(lacks, more...)
}

// Failed reports whether a tool could not tell at the last List which GPUs are here, as while
// the driver is built anew after a boot.
func (c *Cards) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *Cards) setFailed(failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = failed
}

// Incomplete reports whether at the last List GPUs may have been left out that are here: a tool could
// not tell, or some do not work.
func (c *Cards) Incomplete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed || c.broken
}

func (c *Cards) setBroken(broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

// Users is the processes that compute on each GPU of those that were listed last,
// by index, and of which GPUs that is not known, and why.
func (c *Cards) Users(ctx context.Context) (users map[int][]int, unknown map[int]error) {
	c.mu.Lock()
	uuids, radeons := c.uuids, c.radeons
	c.mu.Unlock()
	users, unknown = map[int][]int{}, map[int]error{}
	switch {
	case len(uuids) > 0:
		c.nvidiaUsers(ctx, uuids, users, unknown)
	case len(radeons) > 0:
		text, err := c.ask(ctx, "rocm-smi", "--showpids", "--json")
		pids := radeonUsers(text)
		for _, i := range radeons {
			if err != nil {
				unknown[i] = err
			} else if len(pids) > 0 { // it does not say which
				users[i] = pids
			}
		}
	}
	return users, unknown
}

// nvidiaUsers asks for all GPUs, and if that fails, as where one is lost, for each.
func (c *Cards) nvidiaUsers(ctx context.Context, uuids map[string]int, users map[int][]int, unknown map[int]error) {
	ask := func(args ...string) (string, error) {
		text, err := c.ask(ctx, "nvidia-smi", append(args, "--query-compute-apps=gpu_uuid,pid,used_memory", csv)...)
		if err == nil {
			err = noUsers(text)
		}
		return text, err
	}
	note := func(text string) {
		for _, f := range rows(text, 2) {
			i, known := uuids[f[0]]
			pid, err := strconv.Atoi(f[1])
			if known && err == nil && pid > 0 {
				users[i] = append(users[i], pid)
			}
		}
	}
	text, err := ask()
	if err == nil {
		note(text)
		return
	}
	for _, i := range uuids {
		if !errors.Is(err, errHangs) {
			text, err = ask("-i", strconv.Itoa(i))
		}
		if err != nil {
			unknown[i] = err
			continue
		}
		note(text)
	}
}

// noUsers returns an error if a text that nvidia-smi printed with status 0 does not list the users of
// GPUs: if it cannot talk to the driver, or a GPU is lost, some versions only print that. That a card
// cannot tell, or a warning, is no error.
func noUsers(text string) error {
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		switch first, _, more := strings.Cut(l, ", "); {
		case isBroken(first):
		case more, l == "", slices.Contains(notKnown, l), strings.HasPrefix(strings.ToUpper(l), "WARNING"), strings.HasPrefix(l, "No running "):
			continue
		}
		return fmt.Errorf("nvidia-smi: %s", lastOf(text))
	}
	return nil
}

// rows is the lines of a table with at least n fields.
func rows(text string, n int) (all [][]string) {
	for l := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(l), ",")
		for i := range f {
			f[i] = printable(f[i])
		}
		if len(f) >= n {
			all = append(all, f)
		}
	}
	return all
}

// Queries of nvidia-smi. Drivers before 450 know nothing of parts (MIG).
const (
	ofCards = "index,uuid,name,memory.total,driver_version"
	ofParts = ",mig.mode.current"
	csv     = "--format=csv,noheader,nounits"
)

// nvidia is what nvidia-smi tells.
func (c *Cards) nvidia(ctx context.Context) (list []Card, lacks []Fact) {
	query := func(fields string) (string, error) {
		return c.ask(ctx, "nvidia-smi", "--query-gpu="+fields, csv)
	}
	text, err := query(ofCards + ofParts)
	if err != nil && strings.Contains(text, "not a valid field") {
		text, err = query(ofCards)
	}
	list, lacks, broken := parseNvidia(text)
	switch {
	case len(list)+len(lacks) > 0:
		c.setBroken(broken || err != nil)
		if err != nil { // as where it cannot reach another one
			lacks = append(lacks, Fact{"gpu", "jobs that want one", err.Error() + ": one is broken; look at dmesg"})
		}
	case errors.Is(err, exec.ErrNotFound):
		if seen, _ := filepath.Glob("/proc/driver/nvidia/gpus/*"); len(seen) > 0 {
			lacks = append(lacks, Fact{"nvidia-smi", "GPUs", "the kernel has a driver for some: install the driver's tools, or say in PATH where they are"})
		}
		return nil, lacks
	case strings.Contains(text, "No devices were found"):
		return nil, []Fact{{"gpu", "jobs that want one", "nvidia-smi finds no device"}}
	case errors.Is(err, errHangs):
		c.setFailed(true)
		return nil, []Fact{{"gpu", "jobs that want one", err.Error() + ": a card or its driver is broken; look at dmesg"}}
	case err != nil:
		c.setFailed(true)
		return nil, []Fact{{"gpu", "jobs that want one", err.Error() + ": mend the driver"}}
	default: // a driver that it cannot talk to is no error to some versions
		c.setFailed(true)
		return nil, []Fact{{"gpu", "jobs that want one", cmp.Or(lastOf(text), "nvidia-smi prints nothing") + ": mend the driver"}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uuids = map[string]int{}
	for _, g := range list {
		c.uuids[g.UUID] = g.Index
	}
	return list, lacks
}

// notKnown is what stands for something that the driver does not know of a card that works.
var notKnown = []string{"[N/A]", "[Not Supported]", "[Insufficient Permissions]"}

// isBroken reports whether a field of a table tells of a card that does not work.
func isBroken(s string) bool {
	return strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && !slices.Contains(notKnown, s)
}

// parseNvidia reads the table of the cards, and says whether one is broken. What is not known stands
// in brackets, with the reason: [GPU is lost], [Unknown Error].
func parseNvidia(text string) (list []Card, lacks []Fact, broken bool) {
	known := func(s string) string {
		if strings.HasPrefix(s, "[") {
			return ""
		}
		return s
	}
	seen := map[int]bool{}
	for _, f := range rows(text, 5) {
		i, err := strconv.Atoi(f[0])
		if err != nil || i < 0 || seen[i] {
			continue
		}
		seen[i] = true
		if len(f) > 5 && f[5] == "Enabled" {
			lacks = append(lacks, Fact{"gpu", strconv.Itoa(i), "it is cut in parts (MIG), which are not given out: nvidia-smi -i " + f[0] + " -mig 0 makes it one"})
			continue
		}
		if at := slices.IndexFunc(f[1:4], isBroken); at >= 0 {
			lacks = append(lacks, Fact{"gpu", f[0], "nvidia-smi says " + f[1+at] + " of it: look at dmesg, and start the machine again"})
			broken = true
			continue
		}
		g := Card{GPU: node.GPU{Index: i, UUID: known(f[1]), Model: known(f[2])}}
		if mib, err := strconv.ParseInt(known(f[3]), 10, 64); err == nil && mib > 0 && mib < 1<<40 {
			g.Memory = mib << 20
		}
		if d := known(f[4]); d != "" {
			g.Driver = "driver " + d
		}
		list = append(list, g)
	}
	return list, lacks, broken
}
