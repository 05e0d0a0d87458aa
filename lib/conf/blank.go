package conf

import "bytes"

// Blank says that a file has nothing but blank lines and comments. For files of
// settings that means that every setting has its default.
func Blank(data []byte) bool {
	for l := range bytes.Lines(data) {
		if l = bytes.TrimSpace(l); len(l) > 0 && l[0] != '#' {
			return false
		}
	}
	return true
}
