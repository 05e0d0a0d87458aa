package main

import (
	"errors"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/wire"
)

// freeName is the next free name that the refusal of a name that is taken tells, "" if
// err is another.
func freeName(err error) job.BatchID {
	var refusal *wire.Error
	if !errors.As(err, &refusal) {
		return ""
	}
	free, wrong := job.ParseBatchID(string(refusal.Free))
	if wrong != nil {
		return ""
	}
	return free
}

// otherwise adds to the refusal of a name that is taken the lines that would
// work, in which secrets are hidden.
func (s *submission) otherwise(err error, secrets job.Secrets) error {
	free := freeName(err)
	if free == "" {
		return err
	}
	for _, v := range secrets {
		name, _, _ := strings.Cut(v, "=")
		for i, w := range s.words {
			s.words[i] = strings.ReplaceAll(w, v, name+"=***")
		}
	}
	if !*s.adds {
		err = errors.Join(err, cli.Errorf(cli.Input, "the next free name: %s -u %s", s.Name, msg.Shell(s.words...)))
	}
	return errors.Join(err, cli.Errorf(cli.Input, "or another name: %s %s", s.Name, msg.Shell(renamed(s.words, free)...)))
}

// renamed is the command line with the batch named id.
func renamed(words []string, id job.BatchID) []string {
	out := []string{"-b", string(id)}
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			return append(out, words[i:]...)
		}
		flags, value, found := strings.Cut(w, "b")
		if !found || !strings.HasPrefix(w, "-") || strings.Trim(flags, "-ajknQquvw") != "" {
			out = append(out, w)
			continue
		}
		if value == "" {
			i++ // the value is the next word
		}
		if flags != "-" {
			out = append(out, flags)
		}
	}
	return out
}
