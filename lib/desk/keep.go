package desk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"distribute/lib/durable"
)

// keepAtOnce is how many inputs are synced together.
const keepAtOnce = 16

// Keep makes durable what has come into the cache until now, which costs a sync
// of each large input. One that cannot be synced is removed from the cache, and
// told of by the error. Keep waits for another one that is under way, and ends
// early with ctx.
func (d *Desk) Keep(ctx context.Context) error {
	d.hoard.keeping.Lock()
	defer d.hoard.keeping.Unlock()
	var errs []error
	for sums := range slices.Chunk(d.fresh(), keepAtOnce) {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, d.keep(sums))
	}
	return errors.Join(errs...)
}

// fresh is which inputs are not synced yet.
func (d *Desk) fresh() []string {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	return slices.Sorted(maps.Keys(d.hoard.fresh))
}

// keep syncs inputs, and gives them their names.
func (d *Desk) keep(sums []string) error {
	var files []*os.File
	var of []string
	var errs []error
	for _, sum := range sums {
		path, _ := d.Cached(sum)
		f, err := openCached(path)
		switch {
		case err == nil:
			defer f.Close()
			files, of = append(files, f), append(of, sum)
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
			d.named(sum, nil)
		case errors.Is(err, durable.ErrKind): // a job has replaced it
			errs = append(errs, d.named(sum, err))
		default:
			errs = append(errs, err)
		}
	}
	synced := durable.SyncAll(files)
	for i, sum := range of {
		var err error
		if synced != nil {
			err = synced[i]
		}
		errs = append(errs, d.named(sum, err))
	}
	return errors.Join(errs...)
}

// named ends that an input is fresh: it gets its name, or is removed if it could
// not be synced. What somebody has removed meanwhile stays so.
func (d *Desk) named(sum string, failed error) error {
	if err := durable.Step("cache.keep"); err != nil {
		return err
	}
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	path := d.cached(sum)
	delete(d.hoard.fresh, sum)
	info, err := os.Lstat(path)
	switch {
	case err != nil && errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case failed == nil:
		return os.Rename(path, d.cached(sum))
	}
	return errors.Join(fmt.Errorf("input %s: %w", sum, failed), d.drop(path, Rounded(info.Size())))
}
