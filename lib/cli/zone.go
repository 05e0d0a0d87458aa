package cli

import (
	"encoding/binary"
	"os"
	"strings"
	"time"
)

// setZone has the program go by a TZ that is a rule and no name of a zone: JST-9,
// CET-1CEST,M3.5.0,M10.5.0/3, <+03>-3 (POSIX.1-2024, Base Definitions, 8.3). Package time reads
// such rules at the end of a zone file only (RFC 9636), and takes one in TZ for UTC.
func setZone() {
	tz := strings.TrimPrefix(os.Getenv("TZ"), ":")
	if _, err := time.LoadLocation(tz); err == nil || strings.HasPrefix(tz, "/") {
		return
	}
	if zone := ruleZone(tz); zone != nil {
		time.Local = zone
	}
}

// unruled is the name of the time of a zone whose rule cannot be read.
const unruled = "?"

// ruleZone is the zone with a rule; nil if that is none.
func ruleZone(rule string) *time.Location {
	if strings.ContainsRune(rule, '\n') {
		return nil
	}
	// A file of version 2 has its data twice, the first time for readers of version 1: a header, then
	// the zone before the first change of time, of which there is none, and the names of zones.
	head := func(version byte) []byte {
		h := append([]byte{'T', 'Z', 'i', 'f', version}, make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, 0, 1, uint32(len(unruled) + 1)} { // of which there is one, with a name
			h = binary.BigEndian.AppendUint32(h, n)
		}
		return append(append(h, make([]byte, 6)...), unruled+"\x00"...)
	}
	file := append(append(head('2'), head('2')...), "\n"+rule+"\n"...)
	zone, err := time.LoadLocationFromTZData("Local", file)
	if err != nil {
		return nil
	}
	if name, _ := time.Now().In(zone).Zone(); name == unruled {
		return nil
	}
	return zone
}
