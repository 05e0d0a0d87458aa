package cli

import (
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// TellFigures logs what the process uses whenever it is sent SIGUSR1, until
// stop is called: its goroutines, the bytes of its heap that are in use after a
// collection, and its open descriptors. It is for daemons, and for who watches
// them over days: a daemon at rest has the same figures as the day before.
func TellFigures(log *slog.Logger) (stop func()) {
	asked, end, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		defer close(ended)
		for {
			select {
			case <-asked:
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				log.Info("figures", "goroutines", runtime.NumGoroutine(), "heap", m.HeapAlloc, "descriptors", descriptors())
			case <-end:
				return
			}
		}
	}()
	return func() {
		signal.Stop(asked)
		close(end)
		<-ended
	}
}

// descriptors is how many descriptors the process has open; -1 where /proc does
// not tell.
func descriptors() int {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return -1
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return len(names) - 1
}
