package ask

import (
	"errors"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/job"
)

// SecretNames returns the names of the options --secret, each NAME or NAME=value. The error has no
// value.
func SecretNames(options []string) ([]string, error) {
	var names []string
	for _, o := range options {
		name, _, _ := strings.Cut(o, "=")
		if err := job.CheckEnvName(name); err != nil {
			return nil, cli.Errorf(cli.Input, "--secret: %w", err)
		}
		if slices.Contains(names, name) {
			return nil, cli.Usagef("--secret: %s is given twice: leave one of them out", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// Secrets returns the values of the secrets that a batch names: those of the options --secret, or else
// of the environment. At returns where the batch has a name. The error has no value.
func Secrets(c *cli.Cmd, names, options []string, at func(name string) string) (values job.Secrets, err error) {
	var errs []error
	for _, o := range options {
		if name, _, _ := strings.Cut(o, "="); !slices.Contains(names, name) {
			errs = append(errs, cli.Usagef("--secret: the batch has no secret %.100q", name))
		}
	}
	for _, name := range names {
		value, given := job.ParamOf(options, name)
		if !given {
			value = c.Getenv(name)
		}
		switch err := job.CheckSecret(name, value); {
		case value == "" && !given && slices.Contains(options, name):
			errs = append(errs, cli.Usagef("--secret %s: there is no such variable here: set it (read -rs %[1]s; export %[1]s)", name))
		case value == "" && !given:
			errs = append(errs, cli.Errorf(cli.Input, "%s: the secret %s has no value: set the variable here (read -rs %[2]s; export %[2]s)", at(name), name))
		case err != nil:
			errs = append(errs, cli.Errorf(cli.Input, "%s: %w", at(name), err))
		}
		values = append(values, name+"="+value)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := values.Check(names); err != nil {
		return nil, cli.Errorf(cli.Input, "secrets: %w", err)
	}
	return values, nil
}
