package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
)

// secretsFile has the values of a batch's secrets, in one line. Only the user of the spool can read
// it, also where a group reads all else.
const secretsFile = "secrets.json"

// maxSecrets is the greatest length in bytes of that file: a byte of a value takes six at most.
const maxSecrets = 6*job.MaxArgv + 64<<10

// secretsLine is the content of the file, before its checksum.
type secretsLine struct {
	Env []string `json:"env"`
}

// Secrets gives the submission the values of the secrets that its specification names. It comes after
// that; without it the batch has none, and its jobs run on a cluster only.
func (s *Submission) Secrets(values job.Secrets) error {
	if s.spec == nil || s.secrets != nil {
		return fmt.Errorf("%w: its secrets come twice or early", ErrInput)
	}
	if err := values.Check(s.spec.Secrets); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	s.secrets = slices.Clone(values)
	if err := durable.Step("submit.secrets"); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, secretsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return classed(err)
	}
	_, err = f.Write(secretsText(values))
	return classed(errors.Join(err, f.Close()))
}

// HasSecrets reports whether the submission has values of secrets.
func (s *Submission) HasSecrets() bool { return len(s.secrets) > 0 }

// secretsText is the file that has these values.
func secretsText(values job.Secrets) []byte {
	text := []byte(`{"env":[`)
	for i, v := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = line.AppendText(text, v)
	}
	return appendSum(append(text, ']'), 0)
}

// Secrets reads the values of the batch's secrets from the disk. The error is [job.ErrNoSecrets] if
// they are missing or damaged, and never has a value.
func (b *Batch) Secrets() (job.Secrets, error) { return readSecrets(b.dir, b.Head.Spec.Secrets) }

func readSecrets(dir string, names []string) (job.Secrets, error) {
	if len(names) == 0 {
		return nil, nil
	}
	bad := func(why string) error { return fmt.Errorf("%w: %s: %s", job.ErrNoSecrets, secretsFile, why) }
	text, err := durable.ReadFile(filepath.Join(dir, secretsFile), maxSecrets)
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		return nil, bad(of.Err.Error())
	} else if err != nil {
		return nil, bad(err.Error())
	}
	bare, ended := bytes.CutSuffix(text, []byte("\n"))
	if !ended {
		return nil, bad("its end is missing")
	}
	body, err := body(bare)
	if err != nil {
		return nil, bad("its checksum is wrong")
	}
	var l secretsLine
	if line.Unmarshal(append(slices.Clone(body), '}'), &l) != nil || job.Secrets(l.Env).Check(names) != nil {
		return nil, bad("it does not have what the batch says")
	}
	return l.Env, nil
}

// RenewSecrets replaces the values of the batch's secrets, durably, by those of a submission of the
// same specification. Before or after a power cut the old values are there or the new ones.
func (b *Batch) RenewSecrets(s *Submission) error {
	if err := s.secrets.Check(b.Head.Spec.Secrets); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	if err := durable.Step("add.secrets"); err != nil {
		return err
	}
	return ofBatch(durable.WriteFile(filepath.Join(b.dir, secretsFile), secretsText(s.secrets), 0o600))
}

// checkSecrets looks at the values of the batch's secrets. A batch that came back from a cluster has
// none.
func (b *batchCheck) checkSecrets(context.Context) error {
	name := b.name(secretsFile)
	info, err := os.Lstat(b.path(name))
	if err != nil || b.about == nil {
		return nil
	}
	b.u.Count(info.Size())
	if _, err := readSecrets(b.path(b.name("")), b.about.Spec.Secrets); err != nil {
		what := strings.TrimPrefix(err.Error(), job.ErrNoSecrets.Error()+": "+secretsFile+": ")
		b.u.Report(check.Damaged, name, what, "nothing: its submitter gives the values again, with dsubmit -a")
	}
	return nil
}
