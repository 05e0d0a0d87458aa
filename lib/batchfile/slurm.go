package batchfile

import (
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// sbatchOptions are the long options of sbatch, of Slurm 20.11 to 25.05.
const sbatchOptions = `
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment consolidate-segments constraint
container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
dependency distribution error exclude exclusive export export-file extra extra-node-info get-user-env gid gpu-bind gpu-freq
gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs input job-name kill-on-invalid-dep
licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile
nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode output
overcommit oversubscribe parsable partition power prefer priority profile propagate qos quiet reboot requeue reservation
resv-ports segment share signal sockets-per-node spread-job spread-segments stepmgr switches test-only thread-spec
threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose version wait wait-all-nodes
wckey wrap x11`

// sbatchOption reports whether name, with dashes, is a long option of sbatch,
// and else the nearest one, if there is one.
func sbatchOption(name string) (nearest string, ok bool) {
	if name != "" && !strings.ContainsAny(name, " \n") && strings.Contains(sbatchFlat, " "+name+" ") {
		return "", true
	}
	return msg.Nearest(name, strings.Fields(sbatchOptions)), false
}

var sbatchFlat = " " + strings.Join(strings.Fields(sbatchOptions), " ") + " "

// slurm reads options of sbatch, in the order of the file. Values keep their
// text, a list is joined by commas as sbatch wants it, null is left out.
func (r *reader) slurm(n conf.Node) []job.Option {
	var opts []job.Option
	for _, p := range n.AnyMap().Pairs() {
		name := strings.ReplaceAll(p.Name, "_", "-")
		if r.doc.Full() {
			break
		}
		if near, ok := sbatchOption(name); !ok {
			hint := " (write the long option, without dashes in front)"
			if near != "" {
				if strings.Contains(p.Name, "_") || !strings.Contains(p.Name, "-") {
					near = strings.ReplaceAll(near, "-", "_")
				}
				hint = msg.Meant(near)
			}
			p.Key.Errorf("%s is no option of sbatch%s", msg.Quote(p.Name), hint)
			continue
		}
		for _, o := range opts {
			if o.Name == name {
				p.Key.Errorf("option %q is here twice, with - and with _: remove one", name)
			}
		}
		value, ok := slurmValue(p.Node)
		if ok {
			opts = append(opts, job.Option{Name: name, Value: value})
		}
	}
	return opts
}

func slurmValue(n conf.Node) (string, bool) {
	if n.Absent() {
		return "", false
	}
	value := ""
	if n.IsList() {
		value = strings.Join(n.Texts(""), ",")
	} else {
		value = n.Text()
	}
	if strings.ContainsAny(value, "\n\r\x00") {
		n.Errorf("the value of an option of sbatch is one line")
		return "", false
	}
	return value, true
}
