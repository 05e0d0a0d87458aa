package proc

import (
	"context"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ticks := range map[string]<-chan struct{}{
		"the kernel's": Ticks(ctx, time.Millisecond),
		"without it": func() <-chan struct{} {
			ch := make(chan struct{})
			go tickOver(ctx, time.Millisecond, func() {
				select {
				case ch <- struct{}{}:
				case <-ctx.Done():
				}
			})
			return ch
		}(),
	} {
		for range 3 {
			select {
			case <-ticks:
			case <-time.After(2 * time.Minute):
				t.Fatalf("%s: it does not tell", name)
			}
		}
	}
}
