package spool

import (
	"hash/crc32"
	"math"
	"strings"
	"time"

	"distribute/lib/job"
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
	return appendSum(job.RecordLine().Append(b, r), from)
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

// appendJobLine appends the line of j.
func appendJobLine(b []byte, j *job.Job) []byte {
	from := len(b)
	return appendSum(job.JobLine().Append(b, j), from)
}
