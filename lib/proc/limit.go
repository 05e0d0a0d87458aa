package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxLimit is the most that a file of a limit may say, in seconds: a hundred years.
const maxLimit = 36525 * 24 * 3600

// longer is how long an order may run that was to run for limit at most, by the file
// in its directory, which says that in whole seconds: none is shortened by it.
func longer(dir string, limit time.Duration) time.Duration {
	b, err := os.ReadFile(filepath.Join(dir, LimitFile))
	if err != nil || len(b) > 32 {
		return limit
	}
	seconds, ok := parseLimit(string(b))
	if !ok || seconds > 0 && seconds <= limit {
		return limit
	}
	return seconds
}

// parseLimit reads the content of such a file; 0 is no limit.
func parseLimit(text string) (time.Duration, bool) {
	text, whole := strings.CutSuffix(text, "\n")
	n, err := strconv.ParseUint(text, 10, 32)
	return time.Duration(n) * time.Second, whole && err == nil && n <= maxLimit
}
