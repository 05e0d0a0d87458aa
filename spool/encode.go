package spool

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/line"
)

// sumLen is the length of the end of each line: ,"crc":"xxxxxxxx"}
const sumLen = len(`,"crc":"00000000"}`)

// minLine is the length of the shortest line of a job with its newline.
const minLine = len(`{"name":"x"`) + sumLen + 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSum ends the line that starts at b[from:] and is an object that still
// lacks its closing brace: it appends the checksum over it, and a newline.
func appendSum(b []byte, from int) []byte {
	const digits = "0123456789abcdef"
	sum := crc32.Checksum(b[from:], castagnoli)
	b = append(b, `,"crc":"`...)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[sum>>shift&15])
	}
	return append(b, "\"}\n"...)
}

// appendRecord appends the line of r, which normalise has passed.
func appendRecord(b []byte, r *job.Record) []byte {
	from := len(b)
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, r.Seq, 10)
	b = append(b, `,"t":`...)
	b = line.AppendTime(b, r.Time)
	b = append(b, `,"e":`...)
	b = line.AppendText(b, string(r.Kind))
	b = line.AppendTextMember(b, `,"batch":`, string(r.Batch))
	b = line.AppendTextMember(b, `,"job":`, r.Job)
	b = line.AppendTextMember(b, `,"attempt":`, string(r.Attempt))
	b = line.AppendIntMember(b, `,"try":`, int64(r.Try))
	b = line.AppendTextMember(b, `,"node":`, r.Node)
	b = line.AppendIntMember(b, `,"cpus":`, int64(r.CPUs))
	b = line.AppendIntMember(b, `,"memory":`, r.Memory)
	b = line.AppendThousandthsMember(b, `,"gpus":`, int64(r.GPUs))
	b = r.Counted.AppendMember(b, `,"counted":`)
	b = line.AppendIntMember(b, `,"time":`, r.Limit)
	b = appendOutcome(b, &r.Outcome)
	b = line.AppendTextMember(b, `,"manifest":`, r.Manifest)
	b = line.AppendIntMember(b, `,"files":`, int64(r.Files))
	b = line.AppendIntMember(b, `,"bytes":`, r.Bytes)
	b = line.AppendTextMember(b, `,"said":`, r.Said)
	if r.Lost {
		b = append(b, `,"lost":true`...)
	}
	if r.Evicted {
		b = append(b, `,"evicted":true`...)
	}
	if r.Saved {
		b = append(b, `,"saved":true`...)
	}
	if r.Failed {
		b = append(b, `,"failed":true`...)
	}
	b = line.AppendTextMember(b, `,"by":`, r.By)
	b = line.AppendTextMember(b, `,"request":`, string(r.Request))
	if r.Set != nil {
		b = append(b, `,"set":`...)
		b = appendJSON(b, r.Set)
	}
	b = line.AppendIntMember(b, `,"jobs":`, int64(r.Jobs))
	b = line.AppendTextMember(b, `,"state":`, r.State)
	if r.First != 0 {
		b = append(b, `,"first":`...)
		b = strconv.AppendUint(b, r.First, 10)
	}
	if r.Head != nil {
		b = append(b, `,"head":`...)
		b = appendJSON(b, r.Head)
	}
	return appendSum(b, from)
}

func appendOutcome(b []byte, o *job.Outcome) []byte {
	if o.Exit != nil {
		b = append(b, `,"exit":`...)
		b = strconv.AppendInt(b, int64(*o.Exit), 10)
	}
	b = line.AppendTextMember(b, `,"signal":`, o.Signal)
	b = line.AppendTextMember(b, `,"reason":`, o.Reason)
	b = line.AppendTextMember(b, `,"skipped":`, o.Skipped)
	b = line.AppendTimeMember(b, `,"started":`, o.Started)
	b = line.AppendTimeMember(b, `,"ended":`, o.Ended)
	b = line.AppendSecondsMember(b, `,"runtime":`, o.Runtime)
	b = line.AppendSecondsMember(b, `,"paused":`, o.Paused)
	b = line.AppendSecondsMember(b, `,"cpu_time":`, o.CPUTime)
	b = line.AppendIntMember(b, `,"memory_peak":`, o.MemoryPeak)
	b = line.AppendIntMember(b, `,"cache":`, o.Cache)
	b = line.AppendIntMember(b, `,"written":`, o.Written)
	return line.AppendTextMember(b, `,"machine":`, o.Machine)
}

// normalise rounds r to what its line can say, so that what is read back from
// the log equals what was in memory.
func normalise(r *job.Record) {
	r.Time, r.Started, r.Ended = milliseconds(r.Time), milliseconds(r.Started), milliseconds(r.Ended)
	r.Runtime, r.Paused, r.CPUTime = seconds(r.Runtime), seconds(r.Paused), seconds(r.CPUTime)
	for _, s := range []*string{&r.Job, &r.Node, &r.Signal, &r.Reason, &r.Manifest, &r.Said, &r.By, &r.State} {
		*s = strings.ToValidUTF8(*s, "\ufffd")
	}
}

// milliseconds is t in UTC without the part below a millisecond, or no time at
// all if its year has not four digits.
func milliseconds(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// seconds is f in whole milliseconds; what is no sensible length is none.
func seconds(f float64) float64 {
	if !(math.Abs(f) < 1e11) {
		return 0
	}
	if f = math.Round(f*1000) / 1000; f == 0 {
		return 0 // and not -0
	}
	return f
}

// AppendJob appends j as a line of jobs.jsonl has it, but without the checksum
// and the newline. It is also how a job travels to the head.
func AppendJob(b []byte, j *job.Job) []byte { return append(appendJob(b, j, true), '}') }

// appendJobLine appends the line of j.
func appendJobLine(b []byte, j *job.Job) []byte {
	from := len(b)
	return appendSum(appendJob(b, j, true), from)
}

// appendJob appends j without its closing brace. Without places it is what was
// asked for, wherever the head keeps the inputs.
func appendJob(b []byte, j *job.Job, places bool) []byte {
	b = append(b, `{"name":`...)
	b = line.AppendText(b, j.Name)
	b = appendTexts(b, `,"param":`, j.Param)
	b = appendTexts(b, `,"needs":`, j.Needs)
	if j.Retries != nil {
		b = append(b, `,"retries":`...)
		b = strconv.AppendInt(b, int64(*j.Retries), 10)
	}
	b = appendTexts(b, `,"capabilities":`, j.Capabilities)
	b = appendTexts(b, `,"run":`, j.Run)
	b = appendTexts(b, `,"env":`, j.Env)
	if len(j.Inputs) > 0 {
		b = append(b, `,"inputs":`...)
		for i := range j.Inputs {
			b = append(b, "[,"[min(i, 1)])
			b = appendInput(b, &j.Inputs[i], places)
		}
		b = append(b, ']')
	}
	if j.Resources != nil {
		b = appendResources(append(b, `,"resources":{`...), j.Resources)
	}
	if len(j.Slurm) > 0 {
		b = append(b, `,"slurm":`...)
		for i, o := range j.Slurm {
			b = append(b, "[,"[min(i, 1)])
			b = append(b, `{"name":`...)
			b = line.AppendText(b, o.Name)
			b = append(b, `,"value":`...)
			b = line.AppendText(b, o.Value)
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	return b
}

// appendTexts appends a member that is a list of texts, unless it is empty.
func appendTexts(b []byte, key string, texts []string) []byte {
	if len(texts) == 0 {
		return b
	}
	b = append(b, key...)
	for i, text := range texts {
		b = append(b, "[,"[min(i, 1)])
		b = line.AppendText(b, text)
	}
	return append(b, ']')
}

// appendResources appends the members of r and a closing brace.
func appendResources(b []byte, r *job.Resources) []byte {
	from := len(b)
	b = line.AppendIntMember(b, `,"cpus":`, int64(r.CPUs))
	b = line.AppendIntMember(b, `,"disk":`, r.Disk)
	b = line.AppendIntMember(b, `,"memory":`, r.Memory)
	b = line.AppendIntMember(b, `,"time":`, r.Time)
	b = line.AppendThousandthsMember(b, `,"gpus":`, int64(r.GPUs))
	b = r.Counted.AppendMember(b, `,"counted":`)
	if len(b) > from {
		b = append(b[:from], b[from+1:]...) // without the first comma
	}
	return append(b, '}')
}

func appendInput(b []byte, in *job.Input, places bool) []byte {
	b = append(b, `{"path":`...)
	b = line.AppendText(b, in.Path)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, in.Size, 10)
	b = append(b, `,"mode":`...)
	b = strconv.AppendUint(b, uint64(in.Mode), 10)
	b = append(b, `,"sum":`...)
	b = line.AppendText(b, in.Sum)
	if places && in.At != nil {
		b = append(b, `,"at":`...)
		b = strconv.AppendInt(b, *in.At, 10)
	}
	return append(b, '}')
}

// appendJSON appends v as encoding/json writes it, without its escapes for
// HTML. v is a value whose parts can all be written.
func appendJSON(b []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
