package account

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// I16: what many ask at once is asked once, and again when it is old.
func TestI16Memory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		m := Memory[int, int64]{For: time.Minute, Ask: func(k int) int64 {
			time.Sleep(10 * time.Second)
			return asked.Add(1)*100 + int64(k)
		}}
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if got := m.Of(7); got != 107 {
					t.Errorf("it says %d", got)
				}
			})
		}
		all.Wait()
		if got := m.Of(8); got != 208 {
			t.Errorf("of another it says %d", got)
		}
		time.Sleep(time.Minute)
		if got := m.Of(7); got != 307 {
			t.Errorf("later it says %d", got)
		}
		for k := range 10 * most {
			go m.Of(k)
		}
		synctest.Wait()
		if len(m.known) > most {
			t.Errorf("it keeps %d answers", len(m.known))
		}
		time.Sleep(time.Minute)
	})
}

// An error that passes counts for nobody who asks later.
func TestMemoryPassing(t *testing.T) {
	asked := 0
	m := Memory[int, error]{For: time.Hour, Ask: func(int) error {
		if asked++; asked == 1 {
			return errors.New("no descriptors")
		}
		return nil
	}, Passing: func(err error) bool { return err != nil }}
	if m.Of(1) == nil || m.Of(1) != nil || m.Of(1) != nil || asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
