package proc

import "time"

// maxLimit is the longest limit that a record may say, in seconds: a hundred years.
const maxLimit = 36525 * 24 * 3600

// longer is how long an order may run that was to run for limit at most, by its record: none
// is shortened by that.
func longer(o *Order, limit time.Duration) time.Duration {
	r, err := ReadRun(o.Dir, o.Token)
	if err != nil || r.Limit == nil || *r.Limit < 0 || *r.Limit > maxLimit {
		return limit
	}
	if seconds := time.Duration(*r.Limit) * time.Second; seconds == 0 || seconds > limit {
		return seconds
	}
	return limit
}
