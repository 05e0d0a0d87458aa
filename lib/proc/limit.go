package proc

import "time"

// maxLimit is the longest limit that a record may say, in seconds: a hundred years.
const maxLimit = 36525 * 24 * 3600

// LongerLimit returns how long the run with that token may run by the record in its directory,
// where it was to run for limit at most: 0 if it has no limit any more. No limit is shortened.
func LongerLimit(dir, token string, limit time.Duration) time.Duration {
	r, err := ReadRun(dir, token)
	if err != nil || r.Limit == nil || *r.Limit < 0 || *r.Limit > maxLimit {
		return limit
	}
	if seconds := time.Duration(*r.Limit) * time.Second; seconds == 0 || seconds > limit {
		return seconds
	}
	return limit
}
