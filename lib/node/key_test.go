package node

import (
	"crypto/ed25519"
	"encoding/hex"
	"testing"
)

// The key of RFC 8032, section 7.1, test 1; ssh-keygen -lf prints this of it.
func TestFingerprint(t *testing.T) {
	key, _ := hex.DecodeString("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	want := Fingerprint("SHA256:bbXpuKG6zhzdmnxq256TlqzFBzRl2f6OOg722cYNbU8")
	got := FingerprintOf(ed25519.PublicKey(key))
	if got != want || got.Check() != nil {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, f := range []Fingerprint{"", "SHA256:", want[:20], want + "=", want[7:], "MD5:" + want[7:]} {
		if f.Check() == nil {
			t.Errorf("%q is taken", f)
		}
	}
}
