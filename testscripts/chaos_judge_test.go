package testscripts

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What must be so after everything has healed.
const (
	nodesWithin = 2 * time.Minute // all nodes are back
	jobsWithin  = 5 * time.Minute // and after that every job is over: a lease, and the jobs' times
	tidyWithin  = time.Minute     // and after that nothing is left on nodes
)

// within repeats ok until it is true, for so long.
func within(limit time.Duration, ok func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !ok(ctx) {
		if !wait(ctx, 200*time.Millisecond) {
			return false
		}
	}
	return true
}

// settle waits until nothing moves any more.
func (c *chaos) settle() {
	u := c.user
	nodes := ""
	healed := time.Now()
	if !within(c.slack*nodesWithin, func(ctx context.Context) bool {
		out, _ := u.tool(ctx, "dquery", "-q", "-N", "-c", "node,state")
		nodes = out
		return strings.Count(out, "\tidle\n")+strings.Count(out, "\tbusy\n") == c.size
	}) {
		c.violation("not all nodes are back %v after everything was healed:\n%s", nodesWithin, nodes)
	}
	c.note("settled", "nodes, after %v", time.Since(healed).Round(time.Second))
	if !within(c.slack*jobsWithin, func(ctx context.Context) bool { return u.look(ctx) && len(u.unfinished()) == 0 }) {
		for _, line := range u.unfinished() {
			c.violation("not over %v after everything was healed: %s", jobsWithin, line)
		}
	}
	c.note("settled", "jobs, after %v", time.Since(healed).Round(time.Second))
	within(c.slack*tidyWithin, func(context.Context) bool { return len(c.place.left()) == 0 })
	for _, path := range c.place.left() {
		c.violation("left over %v after the last job: %s", tidyWithin, path)
	}
	c.note("settled", "attempts deleted, after %v", time.Since(healed).Round(time.Second))
}

// unfinished are the jobs that are safe, or were ever seen, and are not over.
func (u *user) unfinished() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []string
	for batch := range u.safe {
		for job := range u.plans[batch] {
			if id := batch + "/" + job; !u.last[id].over() {
				list = append(list, fmt.Sprintf("%s %v", id, u.last[id]))
			}
		}
	}
	for id, r := range u.last {
		if !r.over() && !u.safe[id[:strings.LastIndex(id, "/")]] {
			list = append(list, fmt.Sprintf("%s %v", id, r))
		}
	}
	slices.Sort(list)
	return list
}

// judge holds what the user was told against what there is.
func (c *chaos) judge() {
	u := c.user
	ctx := context.Background()
	if _, status := u.tool(ctx, "dpull", "-q", "-o", u.home(), "job=*"); status != 0 {
		c.violation("dpull into what earlier ones had begun: status %d", status)
	}
	again := filepath.Join(c.dir, "pulled-again")
	if _, status := u.tool(ctx, "dpull", "-q", "-o", again, "state=done"); status != 0 && status != 1 {
		c.violation("dpull: status %d", status)
	}
	c.check(c.place.get(ctx, u.home()))
	c.check(c.place.get(ctx, again))
	u.mu.Lock()
	defer u.mu.Unlock()
	starts := u.readStarts()
	for _, batch := range sortedKeys(u.plans) {
		found := 0
		for job, p := range u.plans[batch] {
			if r, ok := u.last[batch+"/"+job]; ok {
				found++
				c.judgeJob(r, p, starts[r.id], again)
			}
		}
		if u.safe[batch] && found < len(u.plans[batch]) || found > 0 && found < len(u.plans[batch]) {
			c.violation("batch %s has %d of its %d jobs; dsubmit had exited with 0: %t", batch, found, len(u.plans[batch]), u.safe[batch])
		}
		c.judgeLog(batch)
	}
	for id := range u.last {
		batch, job := id[:strings.LastIndex(id, "/")], id[strings.LastIndex(id, "/")+1:]
		if _, ok := u.plans[batch][job]; !ok {
			c.violation("nobody has submitted %s", id)
		}
	}
	for id := range u.cancelled {
		if u.last[id].state != "cancelled" {
			c.violation("dcancel said that %s is cancelled, and it is %s", id, u.last[id].state)
		}
	}
}

// readStarts is which attempts of each job have begun, by their tokens. It is
// nil if some may be missing.
func (u *user) readStarts() map[string][]string {
	data, whole := u.c.place.starts()
	starts, seen := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		if len(f) != 4 && whole {
			u.c.violation("a job has written %q", line)
		}
		if len(f) != 4 {
			continue
		}
		if seen[f[2]] {
			u.c.violation("attempt %s of %s was begun twice", f[2], f[1])
		}
		seen[f[2]] = true
		starts[f[1]] = append(starts[f[1]], f[2])
		u.c.note("attempts begun", "%s", strings.TrimSpace(line))
	}
	if !whole {
		return nil
	}
	return starts
}

// judgeJob looks at one job that is over.
func (c *chaos) judgeJob(r row, p plan, starts []string, again string) {
	c.note("jobs", "%v", r)
	if p.never && len(starts) > 1 {
		c.violation("%s must never be started again, and was begun by %q", r.id, starts)
	}
	switch r.state {
	case "done":
		c.note("accepted results", "%s", r.id)
		if p.exit != 0 {
			c.violation("%s is done, and its status is %d", r.id, p.exit)
		}
		for _, home := range []string{c.user.home(), again} {
			if err := proves(filepath.Join(home, r.id), r.id, starts); err != nil {
				c.violation("%s is done, but its files are not its: %v", r.id, err)
			}
		}
	case "failed":
		c.judgeFailed(r, p)
	case "cancelled":
		if !c.user.asked[r.id] {
			c.violation("%s is cancelled, and nobody asked for that", r.id)
		}
	}
}

// judgeFailed says whether something was done to a job that explains that it
// failed.
func (c *chaos) judgeFailed(r row, p plan) {
	switch {
	case p.exit != 0 && r.exit == fmt.Sprint(p.exit):
	case r.exit == "9" && c.count("full disk: node")+c.count("power cut: node") > 0:
		c.note("jobs that saw a full disk", "%v", r)
	case strings.Contains(r.reason, "disk was nearly full") && c.count("full disk: node") > 0:
		c.note("jobs that were stopped for a full disk", "%v", r)
	case r.signal == "SIGKILL" && c.count("killed: job") > 0, r.exit == "137" && c.count("killed: job") > 0:
		c.note("jobs that were killed", "%v", r)
	case p.never && strings.Contains(r.reason, "never started twice"):
		c.note("jobs lost that may not be started again", "%v", r)
	default:
		c.violation("%s failed, and nothing was done to it that explains it: %v", r.id, r)
	}
}

// proves says why what is in dir is not what an attempt of the job wrote.
func proves(dir, id string, starts []string) error {
	payload, err := os.ReadFile(filepath.Join(dir, "payload"))
	if err != nil {
		return err
	}
	proof, err := os.ReadFile(filepath.Join(dir, "proof"))
	if err != nil {
		return err
	}
	lines := strings.Split(string(proof), "\n")
	if len(lines) != 4 || lines[0] != id || starts != nil && !slices.Contains(starts, lines[1]) {
		return fmt.Errorf("the proof is %q, and its attempts are %q", proof, starts)
	}
	if want := fmt.Sprintf("%x  payload", sha256.Sum256(payload)); lines[2] != want {
		return fmt.Errorf("the sum is %q, not %q", lines[2], want)
	}
	return nil
}

// judgeLog looks into the batch's log: a job is never done twice.
func (c *chaos) judgeLog(batch string) {
	data := c.place.batchLog(batch)
	done := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\{"seq":\d+,"t":"[^"]*","e":"done".*?"job":"([^"]*)"`).FindAllStringSubmatch(data, -1) {
		if done[m[1]]++; done[m[1]] > 1 {
			c.violation("%s/%s: two results were accepted", batch, m[1])
		}
	}
}

// wrongLog is what no daemon may log.
var wrongLog = regexp.MustCompile(`(?m)^.*(DATA RACE|panic: |fatal error: |level=ERROR).*$`)

// excuses are the errors of what was done: a disk that was filled or taken away, a
// supervisor that was killed.
var excuses = regexp.MustCompile(`input/output error|no space left|no room|counts as lost|supervisor died|supervisor \d+ is gone`)

// judgeTalk looks for what daemons say when they are wrong.
func (c *chaos) judgeTalk() {
	for who, text := range c.place.talk() {
		for _, line := range wrongLog.FindAllString(text, -1) {
			if excuses.MatchString(line) {
				c.note("errors logged with reason", "%s: %s", who, line)
			} else {
				c.violation("%s: %s", who, line)
			}
		}
	}
}
