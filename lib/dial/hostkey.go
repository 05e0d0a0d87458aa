package dial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"distribute/lib/node"
)

// A HostKey is a key that a host shows over ssh.
type HostKey struct {
	Line        string // as known_hosts has it
	Kind        string // as ssh-ed25519
	Fingerprint node.Fingerprint
}

// HostKeys asks the sshd at ssh://[user@]host[:port] for its keys, the one that
// is to be preferred first. Nothing proves that they are its keys. A host that
// cannot be asked is an *Error.
func HostKeys(ctx context.Context, addr string) ([]HostKey, error) {
	a, err := parseSSH(addr)
	if err != nil {
		return nil, err
	}
	args := []string{"-T", "10"}
	if a.port != "" {
		args = append(args, "-p", a.port)
	}
	cmd := exec.CommandContext(ctx, "ssh-keyscan", append(args, "--", a.host)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("ssh-keyscan is not installed: it comes with ssh(1)")
	}
	keys := hostKeys(out)
	if len(keys) == 0 {
		why := errors.New("it shows no host key; does an sshd listen there?")
		if last := lastLine(said.String()); last != "" {
			why = fmt.Errorf("%w (%.200q)", why, last)
		}
		return nil, &Error{Addr: addr, Err: why}
	}
	return keys, nil
}

// hostKeys reads what ssh-keyscan prints. What is no key is passed over.
func hostKeys(out []byte) []HostKey {
	var keys []HostKey
	for line := range strings.Lines(string(out)) {
		w := strings.Fields(line)
		if len(w) != 3 || strings.HasPrefix(w[0], "#") {
			continue
		}
		blob, err := base64.StdEncoding.Strict().DecodeString(w[2])
		if err != nil || len(blob) < 4 {
			continue
		}
		n := binary.BigEndian.Uint32(blob)
		if uint64(n) > uint64(len(blob)-4) || string(blob[4:4+n]) != w[1] {
			continue
		}
		sum := sha256.Sum256(blob)
		keys = append(keys, HostKey{strings.Join(w, " "), w[1], node.Fingerprint("SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:]))})
	}
	slices.SortStableFunc(keys, func(a, b HostKey) int { return rank(a) - rank(b) })
	return keys
}

// rank is the order in which keys of different kinds are preferred.
func rank(k HostKey) int {
	if i := slices.Index([]string{"ssh-ed25519", "ecdsa-sha2-nistp256"}, k.Kind); i >= 0 {
		return i
	}
	return 2
}

// ForcedCommand is what dsched(8) is started with by the line of
// authorized_keys that lets a node in at addr.
func ForcedCommand(addr, name string) (string, error) {
	a, err := parseSSH(addr)
	if err != nil {
		return "", err
	}
	if a.spool == "" {
		return "dsched -attach " + name, nil
	}
	if !plainWord(strings.ReplaceAll(a.spool, "/", "_")) {
		return "", fmt.Errorf("%q cannot stand in a line of authorized_keys; a spool with a plainer path can", a.spool)
	}
	return "dsched -attach -S " + a.spool + " " + name, nil
}
