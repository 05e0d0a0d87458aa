package line

import "bytes"

// A Raw is a value of a line as it stands there, for who passes it on or reads it with
// another reader. It is written as it is.
type Raw []byte

// AppendJSON appends the value.
func (r Raw) AppendJSON(b []byte) []byte { return append(b, r...) }

// ScanJSON keeps a copy of the value, of which it believes that it is one, as [Scan.Past]
// does.
func (r *Raw) ScanJSON(s *Scan) bool {
	from := s.I
	if !s.Past() {
		return false
	}
	*r = bytes.Clone(s.B[from:s.I])
	return true
}

// MarshalJSON returns the value.
func (r Raw) MarshalJSON() ([]byte, error) { return r, nil }

// UnmarshalJSON keeps a copy of the value.
func (r *Raw) UnmarshalJSON(b []byte) error {
	*r = bytes.Clone(b)
	return nil
}
