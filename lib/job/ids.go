package job

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxName is the greatest length in bytes of the name of a namespace, batch,
// job or node.
const MaxName = 100

// ErrName is what every error of a malformed name or id is.
var ErrName = errors.New("bad name")

// CheckName reports why s cannot name a namespace, batch, job or node: names
// are made of ASCII letters, digits and . _ - + = @ %, do not start with . or
// -, do not end in .yaml or .yml, and have at most [MaxName] bytes. Names are
// therefore safe as file names, as operands and in ids.
func CheckName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(s) > MaxName:
		return fmt.Errorf("%w %.20q…: it has %d bytes, at most %d are allowed", ErrName, s, len(s), MaxName)
	case s[0] == '.' || s[0] == '-':
		return fmt.Errorf("%w %q: it must not start with %q", ErrName, s, s[0])
	case strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml"):
		return fmt.Errorf("%w %q: it must not end in .yaml or .yml, which name files", ErrName, s)
	}
	for _, r := range s {
		if !NameRune(r) {
			return fmt.Errorf("%w %q: %q is not allowed (letters, digits and . _ - + = @ %% are)", ErrName, s, r)
		}
	}
	return nil
}

func NameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		strings.ContainsRune("._-+=@%", r)
}

// CheckBatchName reports why s cannot be the name of a new batch, or its namespace: it is a
// name without "=", which tools take for a filter.
func CheckBatchName(s string) error {
	if err := CheckName(s); err != nil {
		return err
	}
	if strings.Contains(s, "=") {
		return fmt.Errorf("%w %q: with = it would be taken for a filter (%q would not)", ErrName, s, strings.ReplaceAll(s, "=", "-"))
	}
	return nil
}

// A BatchID names a batch: namespace/batch.
type BatchID string

// NewBatchID joins two names that have been checked.
func NewBatchID(namespace, batch string) BatchID { return BatchID(namespace + "/" + batch) }

// ParseBatchID checks s and returns it as the id of a batch.
func ParseBatchID(s string) (BatchID, error) {
	ns, b, ok := strings.Cut(s, "/")
	if !ok {
		return "", fmt.Errorf("%w %q: the id of a batch is namespace/batch", ErrName, s)
	}
	if err := errors.Join(CheckName(ns), CheckName(b)); err != nil {
		return "", err
	}
	return BatchID(s), nil
}

// NameBatch is the id that a user gives a batch: namespace/batch, or the name alone of one
// in the namespace.
func NameBatch(namespace, s string) (BatchID, error) {
	if !strings.Contains(s, "/") {
		s = namespace + "/" + s
	}
	id, err := ParseBatchID(s)
	if err != nil {
		return "", err
	}
	if err := CheckBatchName(id.Namespace()); err != nil {
		return id, err
	}
	return id, CheckBatchName(id.Name())
}

// Namespace is the part before the slash.
func (b BatchID) Namespace() string { ns, _, _ := strings.Cut(string(b), "/"); return ns }

// Name is the part after the slash.
func (b BatchID) Name() string { _, n, _ := strings.Cut(string(b), "/"); return n }

// Numbered is the n-th of the names that are tried where the next free one is wanted:
// batch, batch.2, batch.3, and so on; a long name is cut for the number.
func (b BatchID) Numbered(n int) BatchID {
	if n == 1 {
		return b
	}
	suffix := fmt.Sprintf(".%d", n)
	if over := len(b.Name()) + len(suffix) - MaxName; over > 0 {
		b = b[:len(b)-over]
	}
	return BatchID(strings.TrimSuffix(string(b), ".") + suffix)
}

// Job is the id of the batch's job of that name.
func (b BatchID) Job(name string) ID { return ID(string(b) + "/" + name) }

// An ID names a job: namespace/batch/job. It is also the path below which its
// results are pulled.
type ID string

// Batch is the id of the job's batch.
func (id ID) Batch() BatchID {
	if i := strings.LastIndexByte(string(id), '/'); i >= 0 {
		return BatchID(id[:i])
	}
	return ""
}

// Name is the job's name within its batch.
func (id ID) Name() string { return string(id[strings.LastIndexByte(string(id), '/')+1:]) }

// Try is the id of the job's n-th attempt, as people see it: namespace/batch/job~n.
func (id ID) Try(n int) string { return string(id) + "~" + strconv.Itoa(n) }

// ParseID checks s as the id of a batch (job empty and try 0), of a job (try
// 0) or of an attempt.
func ParseID(s string) (batch BatchID, name string, try int, err error) {
	parts := strings.Split(s, "/")
	if len(parts) != 2 && len(parts) != 3 || slices.Contains(parts, "") {
		return "", "", 0, fmt.Errorf("%w %q: an id is namespace/batch or namespace/batch/job", ErrName, s)
	}
	if batch, err = ParseBatchID(parts[0] + "/" + parts[1]); err != nil || len(parts) == 2 {
		return batch, "", 0, err
	}
	name, n, ok := strings.Cut(parts[2], "~")
	if ok {
		if name == "" {
			return "", "", 0, fmt.Errorf("%w %q: before ~ comes the name of a job", ErrName, s)
		}
		if try, err = strconv.Atoi(n); err != nil || try < 1 || n[0] == '+' || n[0] == '0' {
			return "", "", 0, fmt.Errorf("%w %q: after ~ comes the number of an attempt, from 1", ErrName, s)
		}
	}
	return batch, name, try, CheckName(name)
}

// A Token names an attempt: 128 random bits in lower-case hexadecimal. It is
// not secret: it names, it never authorises.
type Token string

// NewToken draws a token at random. Submissions and requests carry tokens too.
func NewToken() Token {
	var b [16]byte
	rand.Read(b[:])
	return Token(hex.EncodeToString(b[:]))
}

// Check reports why t is not a token.
func (t Token) Check() error {
	if len(t) != 32 || strings.Trim(string(t), "0123456789abcdef") != "" {
		return fmt.Errorf("%w %q: a token is 32 lower-case hexadecimal digits", ErrName, string(t))
	}
	return nil
}

// A Key is a token as bytes.
type Key [16]byte

// Key is the token as bytes, and false if it is no token.
func (t Token) Key() (k Key, ok bool) {
	if t.Check() != nil {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(t))
	return k, err == nil
}
