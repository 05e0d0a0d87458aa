package noded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/proc"
)

// How jobs of apptainer batches run. The image lies in a directory beside that of the job,
// which has what the container sees: input, distribute_save, a home, and the
// mounts. All of it is named relative to that directory, so that no path of the node
// is ever read by Apptainer's own grammar, in which colons and commas mean something.

// Where a container has what it sees of the job's directory.
const (
	inContainer    = "/input"
	savesContainer = "/distribute_save"
	homeContainer  = "/home/job"
	homeDir        = "home"
	mountsDir      = "mounts"
)

// programs that run containers, by their preference: the second is the older name, and
// another program's.
var containerPrograms = []string{"apptainer", "singularity"}

// A container is the program with which jobs run in containers.
type container struct{ program string }

// canRun says whether path has a program of that name.
func canRun(name, path string) bool {
	return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}

// container finds the program. Where there is none the first is named, and not found.
func (n *daemon) container() container {
	for _, name := range containerPrograms {
		if canRun(name, n.Path) {
			return container{name}
		}
	}
	return container{containerPrograms[0]}
}

// makeMounts makes, in a job's directory, what its container needs there beside the
// inputs and what is saved.
func makeMounts(work *os.Root, spec *job.Spec) error {
	dirs := []string{homeDir, mountsDir}
	for i := range spec.Mounts {
		dirs = append(dirs, mountsDir+"/"+strconv.Itoa(i))
	}
	for _, d := range dirs {
		if err := emptyDir(work, d); err != nil {
			return err
		}
	}
	return nil
}

// containerArgv is how a job is run in its container.
func (n *daemon) containerArgv(c container, a *attemptRun, spec *job.Spec, s *share, cpus string) []string {
	argv := []string{c.program, "exec"}
	if len(a.Work.Run) == 0 {
		argv = []string{c.program, "run", "--app", "distribute"}
	}
	if a.account != nil {
		// Who the jobs of others run as gains no rights, also by a program that would
		// give him some.
		argv = append(argv, "--userns")
	}
	if flag := n.cardFlag(s); flag != "" {
		argv = append(argv, flag)
	}
	if !spec.Uncontained {
		argv = append(argv, "--containall", "--workdir", "../"+filepath.Base(a.Tmp()), "--home", homeDir+":"+homeContainer)
	}
	argv = append(argv, "--bind", "input:"+inContainer, "--bind", saveDir+":"+savesContainer)
	order := make([]int, len(spec.Mounts))
	for i := range order {
		order[i] = i
	}
	// One that lies in another comes after it.
	slices.SortStableFunc(order, func(i, k int) int { return len(spec.Mounts[i]) - len(spec.Mounts[k]) })
	for _, i := range order {
		argv = append(argv, "--bind", mountsDir+"/"+strconv.Itoa(i)+":"+spec.Mounts[i])
	}
	image, _ := filepath.Rel(a.WorkDir(), a.Image())
	argv = append(argv, image)
	if len(a.Work.Run) == 0 {
		return append(argv, cpus)
	}
	return append(argv, a.Work.Run...)
}

// cardFlag is with what a container gets the vendor's libraries. Only the GPUs of
// nvidia-smi have ids.
func (n *daemon) cardFlag(s *share) string {
	if s.gpus == 0 {
		return ""
	}
	for _, g := range n.given().Offer.GPUs {
		if g.UUID != "" {
			return "--nv"
		}
	}
	return "--rocm"
}

// env is the environment of the program, of which the container gets what is meant for
// the job, and what the batch sets: the program clears the rest.
func (c container) env(env, set []string, a *attempt) []string {
	prefix := strings.ToUpper(c.program) + "ENV_"
	out := []string{strings.ToUpper(c.program) + "_NO_EVAL=1"} // no shell expands values
	for _, v := range env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "HOME", "PATH", "LOGNAME", "SHELL": // those of the container are its own
			out = append(out, v)
		case "LANG", "USER":
			out = append(out, v, prefix+v)
		case "TMPDIR":
			out = append(out, v, prefix+"TMPDIR=/tmp")
		case "DISTRIBUTE_INPUT":
			out = append(out, prefix+name+"="+inContainer)
		case "DISTRIBUTE_SAVE":
			out = append(out, prefix+name+"="+savesContainer)
		default:
			out = append(out, prefix+v)
		}
	}
	own := make([]string, len(set))
	for i, v := range set {
		own[i] = prefix + v
	}
	return append(job.Environ(out, own), prefix+proc.Marker+"="+string(a.Token))
}

// explain gives the result of a job in a container a reason, if the program has
// said why there was none, or why nothing ran in it. What the node lacks is returned:
// another may have it.
func (n *daemon) explain(a *attemptRun, r *job.Result, st *proc.Status) (lacks string) {
	s := a.Started()
	if s == nil || s.Kind != job.Apptainer || st.Stopped != "" || st.Evicted || st.NoMemory {
		return ""
	}
	if st.Error != "" {
		if !canRun(n.container().program, n.Path) {
			return "neither apptainer nor singularity is in its PATH"
		}
		return ""
	}
	if st.Exit == nil || *st.Exit != 255 && *st.Exit != 1 {
		return ""
	}
	image, last := "the image", lastLine(a.failedOutput(r))
	if b, err := n.desk.Build(a.Job.Batch(), n.builder(a.User), a.Spec); err == nil && b.Spec.Image != nil {
		image = fmt.Sprintf("the image %.100q", b.Spec.Image.Path)
		if len(b.Spec.Secrets) > 0 && a.secrets == nil { // an earlier daemon started it: the line may have one
			last = ""
		}
	}
	why, lacks := whyNoContainer(a.secrets.Mask(last), *st.Exit, image)
	if lacks != "" && s.SavedFiles == 0 && a.hasSaved() {
		return "" // a program in the container has printed that, as one that starts another container
	}
	switch {
	case why == "" || st.Crowded > 0:
	case r.Rank != nil:
		r.Reason = rankFailed(*r.Rank, s.Ranks, &job.Outcome{Reason: why})
	case r.Reason == "":
		r.Reason = why
	}
	return lacks
}

// hasSaved reports whether something is in the directory of what is saved.
func (a *attempt) hasSaved() bool {
	work, err := durable.OpenRoot(a.WorkDir())
	if err != nil {
		return false
	}
	defer work.Close()
	dir, err := work.OpenFile(saveDir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(1)
	return len(names) > 0
}

var (
	colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	fatal   = regexp.MustCompile(`^(?:FATAL|ERROR) *: *(.*)$`)
	noMount = regexp.MustCompile(`destination (/[^ ]*) doesn't exist in container`)
	noFile  = regexp.MustCompile(`^"?([^"]*)"?: executable file not found`)
)

// whyNoContainer is what the last line that the program printed means: the reason of a
// job that failed, or what its node lacks to run any.
func whyNoContainer(last string, exit int, image string) (why, lacks string) {
	last = strings.TrimSpace(colours.ReplaceAllString(last, ""))
	if exit == 1 && strings.HasPrefix(last, "Could not locate the container application: distribute") {
		return image + ` has no app "distribute": make one (%apprun distribute), or say in the batch what to "run"`, ""
	}
	m := fatal.FindStringSubmatch(last)
	if m == nil {
		return "", ""
	}
	said := m[1]
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	switch {
	case has("user namespace"):
		return "", "the kernel allows no user namespaces (sysctl user.max_user_namespaces): " + said
	case exit != 255:
		return "", ""
	case has("/dev/fuse"):
		return "", "/dev/fuse is closed to the user of the job: chmod 666 /dev/fuse"
	case has("squashfuse not found", `"unsquashfs": executable file not found`, `"squashfuse": executable file not found`, `"squashfuse_ll": executable file not found`):
		return "", "squashfuse, with which images are mounted, is not installed"
	case has("resolve session directory", "no mount point for session"):
		return "", "its Apptainer is not whole: " + said
	case has("image format not recognized", "unknown image format", "not a valid SIF"):
		return image + " is no image for apptainer", ""
	case has("bad superblock", "trying to read the squashfs image"):
		return image + " is damaged: make it again", ""
	}
	if m := noMount.FindStringSubmatch(said); m != nil {
		return fmt.Sprintf("%s has no directory %s, and its node's Apptainer makes none: make it in the image", image, m[1]), ""
	}
	if m := noFile.FindStringSubmatch(said); m != nil {
		return fmt.Sprintf("%s has no program %q", image, m[1]), ""
	}
	return "apptainer: " + said, ""
}

// noContainer ends an attempt of which nothing ran because its node can start no
// container. It is tried elsewhere as one is whose build failed; what the
// program has printed goes home.
func (n *daemon) noContainer(a *attemptRun, lacks, output string) error {
	n.Log.Warn("cannot start a container", "job", a.Job, "attempt", a.Token, "why", lacks)
	(&buildError{why: lacks, output: output}).tell()
	if b, err := n.desk.Build(a.Job.Batch(), n.builder(a.User), a.Spec); err == nil { // where dlog -B looks
		fresh := b.Output() + "." + string(a.Token) + ".new"
		if err := errors.Join(copyFile(fresh, output, 0o600), os.Rename(fresh, b.Output())); err != nil {
			return err
		}
	}
	return n.unable(a, fmt.Sprintf("no container can be started on %s: %s", n.Name, lacks), output, "")
}
