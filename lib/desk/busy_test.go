package desk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
			_, _, err = d.Place(context.Background(), root, []job.Input{in}, false)
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

// TestSharedWhenWritten shares an input of which a program that is being started has a
// descriptor from when it came, and executes it at once.
func TestSharedWhenWritten(t *testing.T) {
	d, in, root, its := written(t, 0o755)
	done := make(chan error)
	go func() {
		_, err := d.share(t.Context(), root, in)
		done <- errors.Join(err, exec.Command(filepath.Join(root.Name(), in.Path)).Run())
	}()
	for !waitsForWriters() {
		select {
		case err := <-done:
			t.Fatal("a writer was not waited for: ", err)
		default:
		}
	}
	its.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSharedDataWhenWritten shares an input that is not executable while another job has it
// open for writing, as some programs open all their data: nobody waits until it is closed.
func TestSharedDataWhenWritten(t *testing.T) {
	d, in, root, its := written(t, 0o644)
	defer its.Close()
	done := make(chan error)
	go func() {
		_, err := d.share(t.Context(), root, in)
		done <- err
	}()
	for waited := false; ; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			if !waited && waitsForWriters() {
				waited = true
				t.Error("the other job is waited for")
			}
		}
	}
}

// waitsForWriters reports whether this process waits for writers of a file.
func waitsForWriters() bool {
	runtime.Gosched()
	stacks := make([]byte, 1<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("durable.AwaitWriters("))
}

// written returns an input of that mode in the cache, a directory for a job, with a file in the
// input's place, and the input as it is open for writing.
func written(t *testing.T, mode uint32) (*Desk, job.Input, *os.Root, *os.File) {
	t.Helper()
	d := open(t, t.TempDir(), "b1")
	in := cache(t, d, []byte("#!/bin/true\n"))
	in.Path, in.Mode = "solve", mode
	root, err := durable.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	from, _ := d.Cached(in.Sum)
	if err := errors.Join(os.Chmod(from, 0o600), root.WriteFile(in.Path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	its, err := os.OpenFile(from, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d, in, root, its
}
