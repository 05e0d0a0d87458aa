package spool

import (
	"os"
	"path/filepath"

	"distribute/lib/job"
)

// OpenBuildLog opens what the build of a batch on a node printed. If there is
// nothing, the error is fs.ErrNotExist.
func (s *Spool) OpenBuildLog(id job.BatchID, node string) (*os.File, error) {
	if err := job.CheckName(node); err != nil {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(s.batchDir(id), "build", node+".log"))
}
