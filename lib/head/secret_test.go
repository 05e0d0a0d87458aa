package head

import (
	"io"
	"strings"
	"testing"

	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/wire"
)

// sendSecretly submits the job ns/b/j with the secret KEY, whose value comes as text. The answer is
// still to be read.
func (s *site) sendSecretly(text string, add bool) *wire.Conn {
	c := s.tool()
	s.send(c, &wire.Submit{Ref: job.NewToken(), Batch: "ns/b", Jobs: 1, Secrets: true, Add: add})
	for i, part := range [][2]string{{wire.OfBatch, ""}, {wire.OfSpec, `{"kind":"command","resources":{"cpus":1},"secrets":["KEY"]}`},
		{wire.OfJobs, `{"name":"j","run":["true"]}` + "\n"}, {wire.OfSecrets, text}} {
		s.transfer(c, &wire.Send{X: uint64(i + 1), Of: part[0]}, part[1])
	}
	return c
}

// A node of an earlier release gets no job with secrets. One that gives them to jobs gets the values
// of its own attempts; no other node and no tool does.
func TestSecretsOfNodes(t *testing.T) {
	s := newSite(t)
	for _, wrong := range []string{`["OTHER=hidden-1"]`, `["KEY=tiny"]`, `{"KEY":"hidden-1"}`, `["KEY=hidden-1"`, `[]`, ``, `["KEY=hidden-1` + strings.Repeat("1", maxSecrets) + `"]`} {
		c := s.sendSecretly(wrong, false)
		if e := expect[*wire.Error](t, c); e.Status != 65 || strings.Contains(e.Text, "hidden-1") || strings.Contains(e.Text, "tiny") {
			t.Errorf("for %.30s: %+v", wrong, e)
		}
	}
	c := s.sendSecretly(`["KEY=hidden-1"]`, false)
	expect[*wire.Lack](t, c)
	expect[*wire.Accepted](t, c)
	s.desk("old", "b") // is given nothing: the next start is of the other
	d := s.desk("ws1", "b")
	s.send(d.c, &wire.Offer{Offer: node.Offer{CPUs: 1, Secrets: true}})
	start := expect[*wire.Start](t, d.c)
	values := func(want string) {
		t.Helper()
		s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfSecrets})
		if got, err := io.ReadAll(d.down.RecvTransfer(expect[*wire.Send](t, d.down))); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
	values(`["KEY=hidden-1"]` + "\n")
	thief := s.desk("ws2", "b")
	s.send(thief.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfSecrets})
	refused(t, thief.down, 77, "is not given to this node")
	tool := s.tool()
	s.send(tool, &wire.Pull{Ref: job.NewToken(), ID: "ns/b/j", Of: wire.OfSecrets})
	refused(t, tool, 64, `nothing is known of "secrets"`)

	// The values are replaced by -a alone; old ones and new ones are hidden from then on.
	c = s.sendSecretly(`["KEY=second-2"]`, false)
	expect[*wire.Accepted](t, c)
	values(`["KEY=hidden-1"]` + "\n")
	c = s.sendSecretly(`["KEY=second-2"]`, true)
	expect[*wire.Accepted](t, c)
	values(`["KEY=second-2"]` + "\n")
	e := ended(start.Attempt, 1, nil)
	e.Manifest, e.Entries, e.Files, e.Bytes = "", 0, 0, 0
	e.Reason, e.Skipped = "it said hidden-1 and second-2", "second-2: a socket"
	s.send(d.c, e)
	s.becomes("ns/b/j", job.Failed)
	if log := s.file("ns/b/log.jsonl"); !strings.Contains(log, `"reason":"it said *** and ***","skipped":"***: a socket"`) {
		t.Errorf("%s", log)
	}
}
