package check

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
)

// maxKey is the most that is read of a key.
const maxKey = 64 << 10

// Key is a Check of a file that holds a key: wrong returns why its content is none. A nil
// wrong reads nothing.
func Key(wrong func([]byte) error, cure string) func(context.Context, *Unit, string) error {
	if wrong == nil {
		return nil
	}
	return func(_ context.Context, u *Unit, name string) error {
		f, err := Open(filepath.Join(u.run.Dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			defer f.Close()
			var text []byte
			if text, err = io.ReadAll(io.LimitReader(f, maxKey)); err == nil {
				u.Count(int64(len(text)))
				if err := wrong(text); err != nil {
					u.Report(Damaged, name, "it is not a key: "+err.Error(), cure)
				}
				return nil
			}
		}
		if Broken(err) {
			u.Report(Damaged, name, "it cannot be read: "+Reason(err), cure)
			return nil
		}
		return err
	}
}

// PEM reports why text is not one block of PEM, as which ssh-keygen(1) writes keys.
func PEM(text []byte) error {
	if block, _ := pem.Decode(text); block == nil {
		return errors.New("it is not a whole block of PEM")
	}
	return nil
}
