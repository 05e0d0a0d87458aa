package pull

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
)

// Inputs are input files of jobs that come from elsewhere, each once, into one
// directory, where they are named by their SHA-256. It is a [pack.Sink].
type Inputs struct {
	Dir     string
	Sources map[string]job.Source // those that have come, by their sums
	Some    int                   // how many are asked for at once, at most
	Grow    func(bytes int64)     // so many more are to come
	Add     func(bytes int64)     // so many have
}

// Lack calls ask for what has not come yet of the lists, some at a time: it has to
// have that received.
func (p *Inputs) Lack(lists [][]job.Input, ask func(pack.Manifest) error) error {
	sizes, bytes := map[string]int64{}, int64(0)
	flush := func() error {
		if len(sizes) == 0 {
			return nil
		}
		m := pack.Blobs(sizes)
		p.Grow(bytes)
		sizes, bytes = map[string]int64{}, 0
		return ask(m)
	}
	for _, list := range lists {
		for _, in := range list {
			if _, here := p.Sources[in.Sum]; here {
				continue
			}
			if b, err := hex.DecodeString(in.Sum); err != nil || len(b) != sha256.Size || hex.EncodeToString(b) != in.Sum {
				return fmt.Errorf("%w: %.100q is the sum of no input", line.ErrLine, in.Sum)
			}
			if _, twice := sizes[in.Sum]; !twice {
				bytes += in.Size
			}
			if sizes[in.Sum] = in.Size; len(sizes) == p.Some {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// Put takes an input.
func (p *Inputs) Put(_ int, e pack.Entry, _ int64, r io.Reader) error {
	name := filepath.Join(p.Dir, e.Sum)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), r)
	if p.Add(n); err != nil {
		return err
	}
	if n != e.Size || hex.EncodeToString(sum.Sum(nil)) != e.Sum {
		return fmt.Errorf("%w: input %s", pack.ErrSum, e.Sum)
	}
	if err := file.Close(); err != nil {
		return err
	}
	p.Sources[e.Sum], err = job.SourceOf(name, e.Sum)
	return err
}
