package match

import "strings"

// Near is a hint at the known word nearest to the given one, or nothing
// if none is near.
func Near(given string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		d := distance(given, k)
		if len(given) >= 3 && strings.HasPrefix(k, given) {
			d = min(d, 1)
		}
		if d < least && d < len(k) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ` (did you mean "` + best + `"?)`
}

// distance is the number of bytes to insert, remove or replace to make b of a.
// Words over 100 bytes are far from everything.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
