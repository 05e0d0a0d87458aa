// Package timing has how long the daemons wait for a peer before they act, and how often they
// look for themselves. A script that would have to wait as long divides these waits; what is
// released cannot.
package timing

import (
	"os"
	"strconv"
	"time"
)

// speedup names the variable of the environment that divides each wait. Only the programs of
// the tests are linked with a name: -X distribute/lib/timing.speedup=D_SPEEDUP.
var speedup string

// Wait is how long to wait where d is right for a lab.
func Wait(d time.Duration) time.Duration {
	if speedup == "" {
		return d
	}
	if n, err := strconv.ParseFloat(os.Getenv(speedup), 64); err == nil && n > 0 {
		return time.Duration(float64(d) / n)
	}
	return d
}

// Environ is the setting for a program that is started without this environment: one
// variable, or none.
func Environ() []string {
	if value := os.Getenv(speedup); speedup != "" && value != "" {
		return []string{speedup + "=" + value}
	}
	return nil
}
