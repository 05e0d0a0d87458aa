package head

import (
	"sync"
	"time"

	"distribute/lib/job"
	"distribute/spool"
)

// tableFor is how long a table is kept after its last use.
const tableFor = 10 * time.Second

// A keptTable keeps the table of the batch of whose jobs the output was asked for last: whoever
// asks for one job's output often asks for that of the next. It is not counted in maxReading.
type keptTable struct {
	read func(id job.BatchID, upto int64) (*spool.Table, error) // is [spool.Spool.ReadTable]

	mu    sync.Mutex // guards the rest
	table *spool.Table
	drop  *time.Timer
}

// get returns the table if it is of this very batch and the log was read up to this byte, and
// nil if not: then it forgets what it has. Logs only grow, so that both together tell that
// nothing has changed.
func (k *keptTable) get(i *spool.Info, upto int64) *spool.Table {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table != nil && !(k.table.Of(i) && k.table.Upto() == upto) {
		k.forget()
	}
	if k.table != nil {
		k.drop.Reset(tableFor)
	}
	return k.table
}

// put keeps a table instead of the one before.
func (k *keptTable) put(t *spool.Table) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.table != nil {
		k.forget()
	}
	k.table = t
	k.drop = time.AfterFunc(tableFor, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.table == t {
			k.table = nil
		}
	})
}

// forget drops the table.
func (k *keptTable) forget() {
	k.drop.Stop()
	k.table = nil
}
