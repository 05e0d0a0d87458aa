package batchfile

import (
	"cmp"
	"strconv"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// needs reads the needs of the next job.
func (r *reader) needs(n conf.Node) (list []string) {
	var at []conf.Place
	for _, e := range n.List("write [mesh] or [\"run-*\"]") {
		if e.Absent() {
			e.Errorf("an entry of needs is empty: remove it")
			continue
		}
		s := e.Text()
		if !e.IsText() {
			continue
		}
		if err := cmp.Or(job.CheckNeed(s), job.CheckNegation(s)); err != nil {
			e.Errorf("%v", err)
			continue
		}
		list, at = append(list, s), append(at, e.Place())
	}
	if list == nil {
		return nil
	}
	if r.f.needAt == nil {
		r.f.needAt = map[int][]conf.Place{}
	}
	r.f.needAt[len(r.f.Jobs)] = at
	return list
}

// allNeeds tells of the mistakes in the needs of all jobs.
func (r *reader) allNeeds() {
	if r.f.needAt == nil {
		return
	}
	_, errs := job.ResolveNeeds(r.f.names(), needsOf(r.f.Jobs))
	for _, e := range errs {
		r.doc.Errorf(r.f.needAt[e.Job][e.Need], "%s", e)
	}
}

func (f *File) names() []string {
	names := make([]string, len(f.Jobs))
	for i := range f.Jobs {
		names[i] = f.Jobs[i].Name
	}
	return names
}

func needsOf(jobs []job.Job) [][]string {
	all := make([][]string, len(jobs))
	for i := range jobs {
		all[i] = jobs[i].Needs
	}
	return all
}

// forgetNeeds leaves out what jobs need of those that are not in the batch any
// more.
func (f *File) forgetNeeds() {
	if f.needAt == nil {
		return
	}
	job.ForgetNeeds(f.Jobs)
	f.needAt = nil
}

// stopAfter reads after how many failed jobs a batch is given up: a number, or a
// share in percent.
func stopAfter(n conf.Node) (count, share int) {
	s := n.Text()
	if !n.IsText() {
		return 0, 0
	}
	digits, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseUint(digits, 10, 32)
	switch {
	case err != nil || v == 0 || percent && v > 100 || v > job.MaxJobs:
		n.Errorf(`"stop_after" must be a number of jobs from 1 to %d, or a share as 5%%, not %s`, job.MaxJobs, msg.Quote(s))
	case percent:
		return 0, int(v)
	default:
		return int(v), 0
	}
	return 0, 0
}
