package ask

import (
	"context"
	"regexp"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/query"
	"distribute/lib/wire"
)

// TellNewer says on standard error, once, which batch files were submitted again under another
// name, by dsubmit -u: the operand means the batch that the file names. It is a hint, so it is
// silent if it cannot be found out. It costs a request for each file.
func (h *Head) TellNewer(ctx context.Context, c *cli.Cmd, ops *Operands) {
	for _, f := range ops.files {
		id, newest, at := job.BatchID(f.id), job.BatchID(f.id), time.Time{}
		named := &Operands{Args: []string{"namespace=" + id.Namespace(), "batch~^" + regexp.QuoteMeta(id.Name()) + `(\.[0-9]+)?$`}}
		err := Rows(ctx, h, wire.Query{Of: "batches"}, named, func(b *query.Batch) error {
			if b.Submitted.After(at) {
				newest, at = b.ID, b.Submitted
			}
			return nil
		})
		if err == nil && newest != id {
			c.Talk("%q means %s; %s is newer (dsubmit -u): name that to mean it", f.name, id, newest)
		}
	}
	if ops.files != nil {
		ops.files = nil
	}
}
