package job

import (
	"errors"
	"fmt"
	"strings"

	"distribute/lib/line"
	"distribute/lib/msg"
	"distribute/lib/unit"
)

// GPUs is an amount of GPUs, in thousandths: whole ones, or a part of one. People, and
// JSON, have it as a number: 2, or 0.5. Sums of parts are exact.
type GPUs int64

// Amounts of GPUs.
const (
	OneGPU   GPUs = 1000
	LeastGPU      = OneGPU / 100 // the least part of one that a job may ask for
	MaxGPUs       = 1 << 10      // whole ones that a job may ask for
)

// ParseGPUs reads how many GPUs a job asks for. The error says what to write.
func ParseGPUs(s string) (GPUs, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, ok := unit.ParseThousandths(s)
	g := GPUs(n)
	switch {
	case !ok && strings.Trim(whole+fraction, "0123456789") == "" && len(fraction) > 3:
		return 0, fmt.Errorf("%s is finer than GPUs are counted: write at most three digits behind the point, as 0.333", msg.Quote(s))
	case !ok || g > MaxGPUs*OneGPU:
		return 0, fmt.Errorf("%s is no amount of GPUs: write a whole number from 0 to %d, or a part of one as 0.5", msg.Quote(s), MaxGPUs)
	case g > OneGPU && g%OneGPU != 0:
		return 0, fmt.Errorf("%s is neither whole GPUs nor a part of one: write %d or %d, or a part below 1 as 0.5", msg.Quote(s), g/OneGPU, g/OneGPU+1)
	case g > 0 && g < LeastGPU:
		return 0, fmt.Errorf("%s is less than %s, the least part of a GPU", msg.Quote(s), LeastGPU)
	}
	return g, nil
}

// check reports why no job can ask for g.
func (g GPUs) check() error {
	if g < 0 || g > MaxGPUs*OneGPU || g > OneGPU && g%OneGPU != 0 || g > 0 && g < LeastGPU {
		return fmt.Errorf("%s gpus make no sense", g)
	}
	return nil
}

// Part says that it is a part of one GPU, which is shared with others who asked for
// parts.
func (g GPUs) Part() bool { return 0 < g && g < OneGPU }

// Cards is on how many GPUs it is.
func (g GPUs) Cards() int { return int((max(0, g) + OneGPU - 1) / OneGPU) }

// Float is the number of GPUs.
func (g GPUs) Float() float64 { return float64(g) / float64(OneGPU) }

// String is the number, without zeros behind its last digit.
func (g GPUs) String() string { return string(line.AppendThousandths(nil, int64(g))) }

// Words is the amount with a noun: "2 gpus", or "0.5 of a gpu".
func (g GPUs) Words(noun string) string {
	if g.Part() {
		return g.String() + " of a " + noun
	}
	return unit.Count(g.Cards(), noun)
}

// MarshalJSON writes a number.
func (g GPUs) MarshalJSON() ([]byte, error) { return g.AppendJSON(nil), nil }

// AppendJSON appends that number.
func (g GPUs) AppendJSON(b []byte) []byte { return line.AppendThousandths(b, int64(g)) }

// ScanJSON reads it.
func (g *GPUs) ScanJSON(s *line.Scan) bool {
	n, ok := s.Thousandths()
	*g = GPUs(n)
	return ok
}

// UnmarshalJSON reads a number with at most three digits behind the point, exactly.
func (g *GPUs) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	digits, below := strings.CutPrefix(string(b), "-")
	n, ok := unit.ParseThousandths(digits)
	if !ok {
		return errors.New("a number of gpus has at most three digits behind the point")
	}
	if below {
		n = -n
	}
	*g = GPUs(n)
	return nil
}
