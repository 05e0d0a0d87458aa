package spool

import (
	"distribute/lib/job"
	"distribute/lib/line"
)

// word is b as a string that is kept once, if d keeps words: kinds, reasons,
// names of nodes.
func (d *decoder) word(b []byte) string {
	if w, ok := d.words[string(b)]; ok {
		return w
	}
	w := string(b)
	if d.words != nil {
		if len(d.words) >= maxWords {
			clear(d.words)
		}
		d.words[w] = w
	}
	return w
}

// The methods below read one member if it comes next; they answer false only
// if it comes and cannot be read.

func (d *decoder) wordMember(s *line.Scan, key string, to *string) bool {
	if !s.Has(key) {
		return true
	}
	t, ok := s.Text()
	*to = d.word(t)
	return ok
}

// wordNeeded is wordMember for a member that must come next.
func (d *decoder) wordNeeded(s *line.Scan, key string, to *string) bool {
	if !s.Has(key) {
		return false
	}
	t, ok := s.Text()
	*to = d.word(t)
	return ok
}

// scanRecord reads a record in the documented order.
func (d *decoder) scanRecord(b []byte, r *job.Record) bool {
	s := line.Scan{B: b}
	if !s.Has(`{"seq":`) {
		return false
	}
	seq, ok := s.Number()
	r.Seq = uint64(seq)
	var kind string
	ok = ok && s.Has(`,"t":`)
	if !ok {
		return false
	}
	if r.Time, ok = s.Time(); !ok {
		return false
	}
	ok = d.wordMember(&s, `,"e":`, &kind) && kind != "" &&
		s.TextMember(`,"batch":`, (*string)(&r.Batch)) &&
		s.TextMember(`,"job":`, &r.Job) &&
		s.TextMember(`,"attempt":`, (*string)(&r.Attempt)) &&
		s.IntMember(`,"try":`, &r.Try) &&
		d.wordMember(&s, `,"node":`, &r.Node) &&
		s.IntMember(`,"cpus":`, &r.CPUs) &&
		s.Int64Member(`,"memory":`, &r.Memory) &&
		s.ThousandthsMember(`,"gpus":`, (*int64)(&r.GPUs)) &&
		r.Counted.Member(&s, `,"counted":`) &&
		s.Int64Member(`,"time":`, &r.Limit) &&
		d.scanOutcome(&s, &r.Outcome) &&
		s.TextMember(`,"manifest":`, &r.Manifest) &&
		s.IntMember(`,"files":`, &r.Files) &&
		s.Int64Member(`,"bytes":`, &r.Bytes) &&
		s.TextMember(`,"said":`, &r.Said)
	if !ok {
		return false
	}
	r.Kind = job.Kind(kind)
	r.Lost = s.Has(`,"lost":true`)
	r.Evicted = s.Has(`,"evicted":true`)
	r.Saved = s.Has(`,"saved":true`)
	r.Failed = s.Has(`,"failed":true`)
	return d.wordMember(&s, `,"by":`, &r.By) &&
		d.wordMember(&s, `,"request":`, (*string)(&r.Request)) &&
		s.IntMember(`,"jobs":`, &r.Jobs) &&
		d.wordMember(&s, `,"state":`, &r.State) &&
		s.CountMember(`,"first":`, &r.First) &&
		s.I == len(b)
}

func (d *decoder) scanOutcome(s *line.Scan, o *job.Outcome) bool {
	if s.Has(`,"exit":`) {
		n, ok := s.Number()
		exit := int(n)
		if !ok || int64(exit) != n {
			return false
		}
		o.Exit = &exit
	}
	return d.wordMember(s, `,"signal":`, &o.Signal) &&
		d.wordMember(s, `,"reason":`, &o.Reason) &&
		s.TextMember(`,"skipped":`, &o.Skipped) &&
		s.TimeMember(`,"started":`, &o.Started) &&
		s.TimeMember(`,"ended":`, &o.Ended) &&
		s.DecimalMember(`,"runtime":`, &o.Runtime) &&
		s.DecimalMember(`,"paused":`, &o.Paused) &&
		s.DecimalMember(`,"cpu_time":`, &o.CPUTime) &&
		s.Int64Member(`,"memory_peak":`, &o.MemoryPeak) &&
		s.Int64Member(`,"cache":`, &o.Cache) &&
		s.Int64Member(`,"written":`, &o.Written) &&
		d.wordMember(s, `,"machine":`, &o.Machine)
}

// scanJob reads a job in the documented order.
func (d *decoder) scanJob(b []byte, j *job.Job) bool {
	s := line.Scan{B: b}
	if !s.Has(`{"name":`) {
		return false
	}
	name, ok := s.Text()
	if !ok {
		return false
	}
	j.Name = string(name)
	if !texts(&s, `,"param":`, &j.Param) || !texts(&s, `,"needs":`, &j.Needs) || !retries(&s, &j.Retries) || !texts(&s, `,"capabilities":`, &j.Capabilities) || !texts(&s, `,"run":`, &j.Run) || !texts(&s, `,"env":`, &j.Env) {
		return false
	}
	if s.Has(`,"inputs":`) && !s.List(func() bool {
		j.Inputs = append(j.Inputs, job.Input{})
		return d.scanInput(&s, &j.Inputs[len(j.Inputs)-1])
	}) {
		return false
	}
	if s.Has(`,"resources":{`) {
		j.Resources = new(job.Resources)
		if !resources(&s, j.Resources) {
			return false
		}
	}
	if s.Has(`,"slurm":`) && !s.List(func() bool {
		var o job.Option
		ok := d.wordNeeded(&s, `{"name":`, &o.Name) && d.wordNeeded(&s, `,"value":`, &o.Value)
		j.Slurm = append(j.Slurm, o)
		return ok && s.Has("}")
	}) {
		return false
	}
	return s.I == len(b)
}

// retries reads how often the job is tried again, if it comes next.
func retries(s *line.Scan, to **int) bool {
	if !s.Has(`,"retries":`) {
		return true
	}
	n, ok := s.Number()
	times := int(n)
	*to = &times
	return ok && int64(times) == n
}

// texts reads a member that is a list of texts, if it comes next.
func texts(s *line.Scan, key string, to *[]string) bool {
	return !s.Has(key) || s.List(func() bool {
		t, ok := s.Text()
		*to = append(*to, string(t))
		return ok
	})
}

// resources reads the members of what a job needs, up to its end. The first has
// no comma before it.
func resources(s *line.Scan, r *job.Resources) bool {
	at := s.I
	key := func(k string) string {
		if s.I == at {
			return k[1:]
		}
		return k
	}
	return s.IntMember(key(`,"cpus":`), &r.CPUs) &&
		s.Int64Member(key(`,"disk":`), &r.Disk) &&
		s.Int64Member(key(`,"memory":`), &r.Memory) &&
		s.Int64Member(key(`,"time":`), &r.Time) &&
		s.ThousandthsMember(key(`,"gpus":`), (*int64)(&r.GPUs)) &&
		r.Counted.Member(s, key(`,"counted":`)) &&
		s.Has("}")
}

func (d *decoder) scanInput(s *line.Scan, in *job.Input) bool {
	var mode int
	ok := d.wordNeeded(s, `{"path":`, &in.Path) &&
		s.Int64Member(`,"size":`, &in.Size) &&
		s.IntMember(`,"mode":`, &mode) &&
		s.TextMember(`,"sum":`, &in.Sum)
	in.Mode = uint32(mode)
	if !ok || int(in.Mode) != mode {
		return false
	}
	if s.Has(`,"at":`) {
		at, ok := s.Number()
		if !ok {
			return false
		}
		in.At = &at
	}
	return s.Has("}")
}
