package dial

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/node"
)

// A Key is what the head, or a node, proves who it is with over TLS: an ed25519
// key of its own, made once and for good. The zero value is no key.
type Key struct{ private ed25519.PrivateKey }

// ErrBadKey is returned for a file that is there and is not used as a key. It
// is never replaced: what people have accepted is the key that was in it.
var ErrBadKey = errors.New("not used as a key")

// Limits of a file with a key. Ours have 119 bytes.
const (
	maxKeyFile = 4096
	keyBlock   = "PRIVATE KEY" // PKCS#8 in PEM (RFC 7468, section 10)
)

// NewKey makes a key and keeps it in a file that only its user can read. Where
// something is at path already, that is left alone and the error is fs.ErrExist.
func NewKey(path string) (Key, error) {
	k := freshKey()
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return Key{}, err
	}
	return k, durable.CreateNew(path, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), 0o600)
}

// freshKey is a key that no file has.
func freshKey() Key {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err) // the kernel always has random numbers
	}
	return Key{private}
}

// ReadKey reads the file that NewKey has made. One that is missing is
// fs.ErrNotExist; one that others can read, that is another's, or that holds no
// such key is [ErrBadKey], and what to do about it.
func ReadKey(path string) (Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return Key{}, badKey(path, "it is a symbolic link: put the file itself there")
	}
	if err != nil {
		return Key{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, err
	}
	if why := exposed(path, info); why != "" {
		return Key{}, badKey(path, why)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return Key{}, err
	}
	private, err := parseKey(data)
	if err != nil {
		return Key{}, badKey(path, fmt.Sprintf("%v: put it back from a copy, or remove it and make a new key, which has to be accepted anew", err))
	}
	return Key{private}, nil
}

func badKey(path, why string) error { return fmt.Errorf("%q is %w: %s", path, ErrBadKey, why) }

// exposed says why nobody's secret can be in a file, and what to do; empty: it
// can.
func exposed(path string, info fs.FileInfo) string {
	if !info.Mode().IsRegular() {
		return "it is no regular file"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("it belongs to user %d, and this runs as %[2]d: chown %[2]d %[3]s", st.Uid, os.Geteuid(), path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Sprintf("others can read it (mode %04o): chmod 600 %s, or, if somebody may have read it, remove it and make a new key, which has to be accepted anew", info.Mode().Perm(), path)
	}
	return ""
}

// CheckKey reports why data, the content of a file, is not a key.
func CheckKey(data []byte) error { _, err := parseKey(data); return err }

// parseKey reads the content of a file with a key.
func parseKey(data []byte) (ed25519.PrivateKey, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty")
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxKeyFile)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != keyBlock || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("it is not one %q in PEM", keyBlock)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("it holds no ed25519 key")
	}
	return private, nil
}

// String is the fingerprint, so that no key is printed by mistake.
func (k Key) String() string { return string(k.Fingerprint()) }

// Fingerprint names the key, also to those who must not have it.
func (k Key) Fingerprint() node.Fingerprint {
	if k.private == nil {
		return ""
	}
	return node.FingerprintOf(k.private.Public().(ed25519.PublicKey))
}
