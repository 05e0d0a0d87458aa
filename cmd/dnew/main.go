// Dnew prints a batch file to fill in. See dnew(1).
package main

import (
	"context"
	"embed"
	"io"
	"strconv"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/job"
)

const usage = `usage: dnew python | apptainer | command`

//go:embed python.yaml apptainer.yaml command.yaml
var files embed.FS

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	if err := c.Parse(); err != nil {
		return err
	}
	if len(c.Args) != 1 {
		return cli.Usagef("one kind of batch is wanted")
	}
	text, err := files.ReadFile(c.Args[0] + ".yaml")
	if err != nil {
		return cli.Usagef("%q is no kind of batch", c.Args[0])
	}
	namespace := c.Getenv("USER")
	if job.CheckBatchName(namespace) != nil {
		namespace = "me"
	}
	written := "namespace: " + namespace
	if strings.EqualFold(namespace, "null") || strings.ContainsAny(namespace[:1], "@%") {
		written = "namespace: " + strconv.Quote(namespace) // which is no text in YAML otherwise
	}
	_, err = io.WriteString(c.Stdout, strings.ReplaceAll(string(text), "namespace: NAMESPACE", written))
	return err
}
