package pack

import (
	"io"
	"maps"
	"slices"
	"time"
)

// Blobs is the manifest as which a set of files named by their content travels:
// of each SHA-256 with its size, an entry of that path, in ascending order, of
// mode 0644 and the time 0. Both sides make it from what they know, so it is
// never sent.
func Blobs(sizes map[string]int64) Manifest {
	m := make(Manifest, 0, len(sizes))
	for _, sum := range slices.Sorted(maps.Keys(sizes)) {
		m = append(m, Entry{Path: sum, Type: File, Size: sizes[sum], Mode: 0o644, Time: time.Unix(0, 0).UTC(), Sum: sum})
	}
	return m
}

// Sender is [SendStored] for a peer on this machine, and [Send] for any other.
func Sender(local bool) func(io.Writer, Manifest, Want, func(int, Entry) (io.ReadCloser, error)) error {
	if local {
		return SendStored
	}
	return Send
}
