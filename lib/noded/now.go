package noded

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/pause"
	"distribute/lib/proc"
)

// What the node says of itself is written at once when it changes, so many times, and
// then no more often than that.
const (
	nowBurst = 10
	nowEvery = time.Second
)

// nowSoon is how long after something was given to a supervisor it is looked whether
// that has it; then ever less often.
const nowSoon = 5 * time.Millisecond

// tellNow writes into the places what is here, for dpause(1), when it has changed.
// What cannot be written, as on a full disk, is tried again.
func (n *daemon) tellNow(ctx context.Context) {
	places := n.nowPlaces()
	last := make([]*pause.Now, len(places)) // that was written into each
	complained := false
	left := ration{nowBurst, time.Now()}
	for again := nowSoon; ; {
		now, whole := n.nowHere()
		tried, unwritten := false, false
		for i, place := range places {
			if reflect.DeepEqual(&now, last[i]) {
				continue
			}
			tried = true
			if _, missing := os.Lstat(place); missing == nil {
				if err := pause.PutNow(place, &now); err != nil {
					if unwritten = true; !complained {
						n.Log.Warn("cannot write the list of running jobs for dpause; trying again", "why", err)
						complained = true
					}
					last[i] = nil
					continue
				}
			}
			last[i] = &now
		}
		if tried {
			left.take(ctx)
		}
		var supervised <-chan time.Time
		if again = min(2*again, nowEvery); whole {
			again = nowSoon
		} else {
			supervised = time.After(again)
		}
		if unwritten {
			supervised = time.After(nowEvery)
		}
		select {
		case <-supervised:
		case <-n.nowNews:
		case <-ctx.Done():
			return
		}
	}
}

// nowPlaces returns where the node says what is here.
func (n *daemon) nowPlaces() []string {
	return slices.DeleteFunc(pause.PlacesOf(n.desk.Dir()), func(place string) bool { return place == pause.RunPlace })
}

// leaveNow writes for dpause(1) what runs on without the daemon, or removes what tellNow wrote if
// nothing does. A supervisor may have been given something only a moment ago, and is waited for,
// but no longer than nowEvery. It is called when nothing else uses the state.
func (n *daemon) leaveNow() {
	now, list := n.nowAssigned()
	for begin := time.Now(); !n.supervised(&now, list) && time.Since(begin) < nowEvery; {
		time.Sleep(nowSoon)
	}
	var err error
	for _, place := range n.nowPlaces() {
		switch _, missing := os.Lstat(place); {
		case len(now.Running) == 0:
			pause.RemoveNow(place, now.Dir)
		case missing == nil:
			err = cmp.Or(err, pause.PutNow(place, &now))
		}
	}
	if err != nil {
		n.Log.Warn("cannot write the list of running jobs for dpause", "why", err)
	}
}

// A ration is how many times what is told may still be written at once.
type ration struct {
	left int
	at   time.Time // when it was filled up last
}

// take takes one of it, and returns when there is another.
func (r *ration) take(ctx context.Context) {
	if r.left--; r.left == 0 {
		linger(ctx, nowEvery)
	}
	if more := int(time.Since(r.at) / nowEvery); more > 0 {
		r.left, r.at = min(nowBurst, r.left+more), time.Now()
	}
}

// nowHere is what the node says of itself. Not whole means that what was given to
// a supervisor is not known to be with it yet.
func (n *daemon) nowHere() (now pause.Now, whole bool) {
	var list []assigned
	n.do(func() { now, list = n.nowAssigned() })
	return now, n.supervised(&now, list)
}

// An assigned is an attempt or a build that was given to a supervisor.
type assigned struct {
	pause.Running
	dir string
}

// nowAssigned returns what the node says of itself, without what runs, and what was given to
// supervisors. It is called by the state.
func (n *daemon) nowAssigned() (now pause.Now, list []assigned) {
	now = pause.Now{Node: string(n.Name), Head: n.Addr, Dir: proc.Absolute(n.desk.Dir()), CPUs: n.realCPUs(), Memory: n.bounds, Patience: n.patience, Part: n.pausing.part,
		Owners: n.given().Pausers, PID: os.Getpid(), Start: n.started, Boot: n.boot, Cgroup: n.cgroup}
	for _, a := range n.attempts {
		if a.runs() {
			r := assigned{pause.Running{User: a.User, CPUs: a.cpus, Cgroup: n.groupOf(a)}, a.Dir}
			if a.has.open {
				r.Job = string(a.Job)
			}
			list = append(list, r)
		}
	}
	for s := range n.held {
		if g := s.guest; g != nil {
			r := assigned{pause.Running{User: g.a.User, CPUs: s.cpus, Cgroup: g.cgroup()}, g.a.Dir}
			if s.open {
				r.Job = string(g.a.Job)
			}
			list = append(list, r)
		}
	}
	for _, b := range n.builds {
		if b.run != nil && b.run.begun {
			r := assigned{pause.Running{User: n.submitterOf(b.Batch), Build: true, CPUs: b.run.cpus, Cgroup: b.run.group}, b.Dir}
			if !b.Spec.Private {
				r.Job = string(b.Batch)
			}
			list = append(list, r)
		}
	}
	return now, list
}

// submitterOf returns who submitted a batch, which the attempts tell that wait for its build, or
// its namespace if there is none. It is called by the state.
func (n *daemon) submitterOf(batch job.BatchID) string {
	for _, a := range n.attempts {
		if a.Job.Batch() == batch {
			return a.User
		}
	}
	return batch.Namespace()
}

// supervised notes in now what of the list supervisors have, and reports whether that is all of it.
func (n *daemon) supervised(now *pause.Now, list []assigned) (whole bool) {
	now.Running, whole = nil, true
	for _, r := range list {
		h, ok := n.holder(r.dir)
		if !ok {
			whole = false
			continue
		}
		r.PID, r.Start = h.Pid, h.Start
		now.Running = append(now.Running, r.Running)
	}
	slices.SortFunc(now.Running, func(a, b pause.Running) int { return strings.Compare(a.Job+a.Cgroup, b.Job+b.Cgroup) })
	return whole
}

// groupOf is the cgroup of an attempt, if it has one.
func (n *daemon) groupOf(a *attempt) string {
	parent := n.cgroup
	if a.stage == stageAdopted || len(a.has.beside) > 0 {
		parent = a.has.group
	}
	if parent == "" {
		return ""
	}
	return filepath.Join(parent, string(a.Token))
}

// holder is the supervisor that has signed the lock of an order in this boot.
func (n *daemon) holder(dir string) (h *proc.Holder, ok bool) {
	return proc.HolderOf(dir, n.boot)
}

// patienceBefore is how long the head let jobs wait when this node last said so.
func patienceBefore(d *desk.Desk) *float64 {
	now, err := pause.OwnNow(pause.OwnPlace(d.Dir()), proc.Absolute(d.Dir()))
	if err != nil {
		return nil
	}
	return now.Patience
}
