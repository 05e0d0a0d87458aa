package testscripts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// parsers is everything that reads what others have written, and the fuzz target
// that feeds it. Whoever adds a parser of foreign bytes adds a line.
var parsers = map[string]string{
	"a message of the protocol (wire.Conn.Recv)":              "lib/wire FuzzRecv",
	"a transfer (wire.Conn.RecvTransfer)":                     "lib/wire FuzzTransfer",
	"the list of a folder on a cluster (slurm)":               "lib/slurm FuzzFolder",
	"what Slurm says, and a status file (slurm)":              "lib/slurm FuzzRecords",
	"the lines of a stream (line.Reader)":                     "lib/line FuzzReader",
	"what hides secrets (job.Secrets.Mask)":                   "lib/job FuzzMask",
	"a line of JSON (line.Check)":                             "lib/line FuzzCheck",
	"a manifest (pack.DecodeManifest)":                        "lib/pack FuzzManifest",
	"a tree: zstd and tar (pack.Receive)":                     "lib/pack FuzzReceive",
	"a capability that is wanted (capability.Parse)":          "lib/capability FuzzParse",
	"what a peer wants of a tree (pack.Want)":                 "lib/pack FuzzWant",
	"a record of a log (spool)":                               "spool FuzzLogLine",
	"a line of jobs.jsonl (spool)":                            "spool FuzzJobLine",
	"logs as they lie there when a head starts (spool)":       "spool FuzzLoad",
	"spool.json (spool)":                                      "spool FuzzIdentity",
	"keys/nodes (spool.ParseNodes)":                           "spool FuzzParseNodes",
	"a file in incoming/ (spool.Head.Take)":                   "spool FuzzDrop",
	"a spool that is looked at (spool.Check)":                 "spool FuzzCheckSpool",
	"YAML (conf.Parse)":                                       "lib/conf FuzzConf",
	"which jobs need which (job.ResolveNeeds)":                "lib/job FuzzNeeds",
	"a batch file (batchfile.ParseFile)":                      "lib/batchfile FuzzBatchFile",
	"a command and its lines (batchfile)":                     "lib/batchfile FuzzTemplate",
	"jobs as lines of JSON (batchfile)":                       "lib/batchfile FuzzObjects",
	"ids (job.ParseID)":                                       "lib/job FuzzIDs",
	"rows from a head (job.Row.ReadLine)":                     "lib/job FuzzRowLine",
	"a file of credentials (matrix.parse)":                    "lib/matrix FuzzParse",
	"amounts of GPUs (job.GPUs)":                              "lib/job FuzzGPUs",
	"the end of what a job printed (cause.Said)":              "lib/cause FuzzSaid",
	"rows that are shown (query)":                             "lib/query FuzzShown",
	"operands and filters (query.Parse)":                      "lib/query FuzzQuery",
	"options (cli.Cmd.Parse)":                                 "lib/cli FuzzParse",
	"ids on standard input (cli.Cmd.EachID)":                  "lib/cli FuzzStdinIDs",
	"what is read of a result (reading.Parse, Parser)":        "lib/reading FuzzReading",
	"parameters and their values (sweep.Parse)":               "lib/sweep FuzzSweep",
	"files of cases (sweep.Parse)":                            "lib/sweep FuzzTable",
	"sizes (unit.ParseBytes)":                                 "lib/unit FuzzParseBytes",
	"lengths of time (unit.ParseDuration)":                    "lib/unit FuzzParseDuration",
	"node.yaml (inventory.Parse)":                             "lib/inventory FuzzNodeFile",
	"head.yaml (dsched)":                                      "lib/head FuzzSettings",
	"an account (account.Lookup)":                             "lib/account FuzzPasswd",
	"addresses (dial)":                                        "lib/dial FuzzAddress",
	"addresses over ssh (dial)":                               "lib/dial FuzzSSHAddress",
	"the keys of a host (dial.HostKeys)":                      "lib/dial FuzzHostKeys",
	"a file with a key (dial.ReadKey)":                        "lib/dial FuzzKey",
	"a node's directory read back (desk)":                     "lib/desk FuzzDirectory",
	"/proc, and what a supervisor wrote (proc)":               "lib/proc FuzzKernel",
	"a file of a pause (pause.Decode)":                        "lib/pause FuzzPause",
	"what a node says of itself (pause.DecodeNow)":            "lib/pause FuzzNow",
	"who may pause a node (pause.DecodeOwners)":               "lib/pause FuzzOwners",
	"what a vendor's tool prints of GPUs (inventory)":         "lib/inventory FuzzCards",
	"what nodes and people say, in any order (sched.Machine)": "lib/sched FuzzMachine",
}

var target = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9]+)\(`)

// Every parser has a target, every target is that of a parser, and each has a
// corpus that is kept, which every run of the tests reads.
func TestFuzzTargetsOfParsers(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && strings.HasPrefix(e.Name(), ".") && e.Name() != ".." {
			return err
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		for _, m := range target.FindAllSubmatch(text, -1) {
			there[strings.TrimPrefix(filepath.Dir(name), "../")+" "+string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]bool{}
	for parser, target := range parsers {
		of[target] = true
		if !there[target] {
			t.Errorf("%s: there is no target %q", parser, target)
			continue
		}
		dir, name, _ := strings.Cut(target, " ")
		if kept, err := os.ReadDir(filepath.Join("..", dir, "testdata", "fuzz", name)); err != nil || len(kept) < 2 {
			t.Errorf("%s: the corpus of %s has %d files: %v", parser, target, len(kept), err)
		}
	}
	for target := range there {
		if !of[target] {
			t.Errorf("%s is the target of no parser", target)
		}
	}
}
