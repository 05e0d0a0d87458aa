package node

import (
	"fmt"
	"strings"

	"distribute/lib/job"
)

// abroad is what the names of clusters begin with that have a queue of their own, and
// to which people take jobs. No node can have such a name.
const abroad = job.ClusterPrefix

// Abroad is the name of such a cluster.
func Abroad(name string) Name { return Name(abroad + name) }

// Abroad says that the name is one of a cluster to which people take jobs.
func (n Name) Abroad() bool { return strings.HasPrefix(string(n), abroad) }

// Of is the name by which the head knows what a user has at the cluster n: users who call
// a cluster by the same name have nothing to do with each other. It is the name of no
// node. Of a node it is the node's own.
func (n Name) Of(uid int) Name {
	if !n.Abroad() {
		return n
	}
	return Name(fmt.Sprintf("%s %d", n, uid))
}

// CheckAbroad reports why a text is not the name of such a cluster.
func CheckAbroad(name string) error {
	rest, is := strings.CutPrefix(name, abroad)
	if !is {
		return fmt.Errorf("%w %.100q: that of a cluster begins with %q", job.ErrName, name, abroad)
	}
	return job.CheckName(rest)
}
