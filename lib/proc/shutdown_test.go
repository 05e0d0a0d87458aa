package proc

import (
	"syscall"
	"testing"
	"time"
)

// TestL40Shutdown ends a job and its supervisor as the machine's shutdown does: all
// processes are stopped, told to end, and continued (systemd-shutdown(8),
// killall5(8)). The status always says that the job did not end by itself.
func TestL40Shutdown(t *testing.T) {
	s := newSlot(t)
	for range 20 {
		dir := newDir(t)
		await := fifo(t, dir)
		if err := s.Run(order(dir, "echo up >said; exec sleep 1000")); err != nil {
			t.Fatal(err)
		}
		pid := started(t, s)
		await()
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGCONT} {
			for _, p := range []int{pid, s.Pid()} {
				if err := syscall.Kill(p, sig); err != nil {
					t.Fatal(err)
				}
				for sig == syscall.SIGSTOP { // else SIGTERM may come before it
					if now, err := stat(p); err != nil || now.all(stopped) {
						break
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
		if st := ended(t, s); st.Stopped != StoppedSignal {
			t.Fatalf("status %+v", st)
		}
	}
}
