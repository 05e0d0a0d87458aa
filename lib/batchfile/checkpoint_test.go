package batchfile

import (
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

// How a job is asked to save what it has, as it is written, and what is wrong
// with it.
func TestCheckpoint(t *testing.T) {
	head := "meta: {batch_name: b, namespace: n}\ncommand: {jobs: [{name: a, run: [x]}]}\n"
	for text, want := range map[string]string{
		"":                        "SIGUSR1 30s",
		"checkpoint: USR2":        "SIGUSR2 30s",
		"checkpoint: SIGHUP":      "SIGHUP 30s",
		"checkpoint: {grace: 2m}": "SIGUSR1 2m0s",
		"checkpoint: {signal: TERM, grace: 1.5s}": "SIGTERM 2s",
		"checkpoint: {}":            "SIGUSR1 30s",
		"checkpoint: KILL":          `jobs cannot be asked by "KILL": write one of HUP, INT, QUIT, TERM, USR1, USR2, XCPU`,
		"checkpoint: {signal: 10}":  `jobs cannot be asked by "10"`,
		"checkpoint: {grace: 0s}":   `"0s" is not from 1s to 1h`,
		"checkpoint: {grace: 2h}":   `"2h" is not from 1s to 1h`,
		"checkpoint: {grace: soon}": `"soon"`,
		"checkpoint: {grace: 5}":    `b.yaml:3:21: "5" has no unit: write 5s, 5m or 5h`,
		"checkpoint: {wait: 2h}":    `unknown key "wait"`,
		"checkpoint: [USR1]":        "checkpoint",
	} {
		f, err := ParseFile("b.yaml", []byte(head+text+"\n"))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			signal, grace := f.Spec.Checkpoint.Asked()
			if got = signal + " " + grace.String(); f.Spec.Checkpoint.Check() != nil {
				t.Errorf("%q: %v", text, f.Spec.Checkpoint.Check())
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, should have %s", text, got, want)
		}
	}
	for _, c := range []*job.Checkpoint{{Signal: "SIGKILL"}, {Signal: "USR1"}, {Grace: -1}, {Grace: int64(2 * time.Hour / time.Second)}} {
		if c.Check() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
