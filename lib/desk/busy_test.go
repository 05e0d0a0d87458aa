package desk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// TestExecutedWhenPlaced executes inputs, and copies of what was built, as soon as they are
// there, while this process starts other programs, which have its descriptors for a moment.
func TestExecutedWhenPlaced(t *testing.T) {
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, []byte("#!/bin/true\n"))
	in.Path, in.Mode = "solve", 0o755
	over := make(chan struct{})
	var starts, works sync.WaitGroup
	for range 3 {
		starts.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					exec.Command("/proc/self/exe", "-test.run=^$").Run()
				}
			}
		})
	}
	for w := range 4 {
		works.Go(func() {
			for i := range 50 {
				if err := executeCopies(d, in, filepath.Join(t.TempDir(), fmt.Sprint(w, "-", i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	works.Wait()
	close(over)
	starts.Wait()
}

// executeCopies places a program in one directory, copies that to another and executes both.
func executeCopies(d *Desk, in job.Input, dir string) error {
	var last *os.Root
	for _, name := range []string{dir + "a", dir + "b"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		root, err := durable.OpenRoot(name)
		if err != nil {
			return err
		}
		defer root.Close()
		if last == nil {
			_, _, err = d.Place(root, []job.Input{in}, false)
		} else {
			_, err = pack.Copy(context.Background(), root, last, nil)
		}
		if err != nil {
			return err
		}
		last = root
		if err := exec.Command(filepath.Join(name, in.Path)).Run(); err != nil {
			return err
		}
	}
	return nil
}
