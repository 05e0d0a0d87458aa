package pause

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is a moment by both clocks of a machine.
type Clock struct {
	Now    time.Time
	Uptime time.Duration // since the start, the time it slept included
	Boot   string        // the id of the boot
}

// Here is this moment on this machine.
func Here() (Clock, error) {
	boot, err := bootID()
	if err != nil {
		return Clock{}, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return Clock{}, fmt.Errorf("clock of the boot: %w", err)
	}
	return Clock{time.Now(), time.Duration(ts.Nano()), boot}, nil
}

// bootID is the id of the boot, which stays.
var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})
