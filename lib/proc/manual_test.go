package proc

import (
	"testing"

	"distribute/lib/suite"
)

// dspool(5) has what is written of how processes ended.
func TestManual(t *testing.T) {
	suite.SameWords(t, "ended", suite.Column(t, "../../man/dspool.5", "\n(times in nanoseconds)", 0), suite.Members(Status{}))
}
