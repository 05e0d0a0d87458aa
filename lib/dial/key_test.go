package dial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/suite"
)

func TestKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := ReadKey(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is missing: %v", err)
	}
	k, err := NewKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ReadKey(path); err != nil || again.Fingerprint() != k.Fingerprint() || again.Fingerprint().Check() != nil {
		t.Errorf("%s is read as %s, %v", k.Fingerprint(), again.Fingerprint(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := NewKey(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	if s := fmt.Sprintf("%v %+v", k, Terms{Key: k}); !strings.HasPrefix(s, string(k.Fingerprint())) || strings.Count(s, string(k.Fingerprint())) != 2 {
		t.Errorf("it is printed as %s", s)
	}
	if f := (Key{}).Fingerprint(); f != "" {
		t.Errorf("no key has the fingerprint %q", f)
	}
}

// What is no key, or anybody's, is not used, and stays as it is.
func TestX97BadKey(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if _, err := NewKey(good); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		text string
		mode fs.FileMode
	}{
		"mode 0640":           {string(text), 0o640},
		"mode 0602":           {string(text), 0o602},
		"it is empty":         {"", 0o600},
		"is not one":          {"thesis", 0o600},
		"is not one \"PRIV":   {string(text) + string(text), 0o600},
		"holds no ed25519":    {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0o600},
		"more than 4096":      {strings.Repeat(" ", maxKeyFile) + string(text), 0o600},
		"in PEM: put it back": {strings.Replace(string(text), "PRIVATE", "PUBLIC", 2), 0o600},
	} {
		path := filepath.Join(dir, "key")
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKey(path); !errors.Is(err, ErrBadKey) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", want, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
			t.Errorf("%s: the file was changed: %v", want, err)
		}
		if _, err := NewKey(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: a new key is put there: %v", want, err)
		}
	}
}

// FuzzKey reads files with a key. One that is taken has a fingerprint.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
		"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		private, err := parseKey(data)
		if (err == nil) != (private != nil) {
			t.Fatalf("%v, %v", private, err)
		}
		if err == nil {
			if err := (Key{private}).Fingerprint().Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Others make such keys too.
func TestKeyOfOpenSSL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	out, err := exec.Command("openssl", "genpkey", "-algorithm", "ed25519", "-out", path).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		suite.Missing(t, "there is no openssl")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(path); err != nil {
		t.Error(err)
	}
}
