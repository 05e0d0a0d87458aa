package pause

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"distribute/lib/durable"
)

// An Offer is what of a node somebody can take back.
type Offer struct {
	CPUs   []int `json:"cpus,omitempty"`   // numbers of those that jobs run on: those that are given back come from the end; none: any
	Memory int64 `json:"memory,omitempty"` // bytes; 0: not known
	Part   *Part `json:"part,omitempty"`   // of its machine that the node is; nil: it is the machine
}

// OfferOf is the file of a node's directory that says what it offers, for what runs already when
// that changes.
func OfferOf(dir string) string { return filepath.Join(dir, "pause-offer") }

// Encode is the content of that file.
func (o Offer) Encode() ([]byte, error) {
	b, err := json.Marshal(o)
	return append(b, '\n'), err
}

// PutOffer keeps the content of an offer.
func PutOffer(name string, content []byte) error { return durable.WriteFile(name, content, 0o644) }

// maxOffer is the most bytes that a file of an offer may have.
const maxOffer = 1 << 20

// ReadOffer reads what a node offers.
func ReadOffer(name string) (o Offer, err error) {
	b, err := readSmall(name, maxOffer)
	if err != nil {
		return o, err
	}
	bad := func(n int) bool { return n < 0 || n > maxCPUs }
	switch err = json.Unmarshal(b, &o); {
	case err != nil:
	case len(o.CPUs) > maxCPUs || slices.ContainsFunc(o.CPUs, bad) || o.Memory < 0:
		err = errors.New("offers more than there is")
	default:
		err = o.Part.check()
	}
	if err != nil {
		return Offer{}, fmt.Errorf("%s: %w", name, err)
	}
	return o, nil
}
