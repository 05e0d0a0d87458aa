package node

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// A Fingerprint names a public key: "SHA256:" and 43 characters, as
// ssh-keygen(1) prints it of the same key.
type Fingerprint string

const fingerprintOf = "SHA256:"

// FingerprintOf is the fingerprint of an ed25519 key: of the SHA-256 of the key
// as ssh writes it (RFC 8709, section 4).
func FingerprintOf(key ed25519.PublicKey) Fingerprint {
	var b []byte
	for _, s := range []string{"ssh-ed25519", string(key)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return Fingerprint(fingerprintOf + base64.RawStdEncoding.EncodeToString(sum[:]))
}

// Check reports why f is no whole fingerprint.
func (f Fingerprint) Check() error {
	s, ok := strings.CutPrefix(string(f), fingerprintOf)
	if b, err := base64.RawStdEncoding.Strict().DecodeString(s); !ok || err != nil || len(b) != sha256.Size {
		return fmt.Errorf("%.60q is no fingerprint: it is SHA256: and 43 characters", string(f))
	}
	return nil
}
