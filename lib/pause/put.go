package pause

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/durable"
)

// Put puts a pause of this process's user into a place. When it returns nil the
// pause is on the disk, and whoever watches the place knows of it. On a disk that
// takes no more bytes a full pause with an end is kept without any; what else p
// says is refused then with the error of the disk.
func Put(place string, p Pause) (Pause, error) {
	var draw [8]byte
	rand.Read(draw[:])
	p.UID, p.Place = os.Geteuid(), place
	p.ID = strconv.Itoa(p.UID) + "." + hex.EncodeToString(draw[:])
	b, err := p.Encode()
	if err != nil {
		return Pause{}, err
	}
	path := filepath.Join(place, p.ID)
	err = durable.WriteFile(path, b, 0o644)
	if durable.NoRoom(err) && p.Full() && !p.Out && !p.Until.IsZero() {
		// After a rename that was not synced it may be there.
		err = thin(path, p.Until)
		p.Boot, p.Deadline = "", 0
	}
	if err != nil {
		return Pause{}, errors.Join(err, gone(os.Remove(path)))
	}
	return p, nil
}

// PutFor puts the pause of one attempt into a place, unless it is there. The attempt
// is named by at least 16 hexadecimal digits. When it returns nil the pause is on the
// disk; with an error what was there before is there still.
func PutFor(place string, p Pause) error {
	b, err := p.Encode()
	if err != nil {
		return err
	}
	id := idFor(p.Attempt)
	if _, ok := ownerOf(id); !ok {
		return fmt.Errorf("%.100q names no attempt", p.Attempt)
	}
	path := filepath.Join(place, id)
	if !isFor(path, p.Attempt) {
		return durable.WriteFile(path, b, 0o644)
	}
	return errors.Join(durable.SyncFile(path), durable.SyncDir(place))
}

// isFor says whether a file of this process's user is the pause of an attempt.
func isFor(path, attempt string) bool {
	b, info, err := readSmallOf(path, maxFile)
	st, ok := sysOf(info, err)
	if !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	p, err := Decode(b)
	return err == nil && p.Attempt == attempt
}

// RemoveFor removes what PutFor has put, if it is there.
func RemoveFor(place, attempt string) error {
	p := Pause{ID: idFor(attempt), Place: place}
	if _, err := os.Lstat(filepath.Join(place, p.ID)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return Remove(p)
}

// idFor is the name of the file of an attempt's pause.
func idFor(attempt string) string {
	return strconv.Itoa(os.Geteuid()) + "." + attempt[:min(16, len(attempt))]
}

// thin makes a pause of a file without content.
func thin(path string, until time.Time) error {
	if err := durable.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	if err := os.Chtimes(path, until, until.Add(time.Second-1).Truncate(time.Second)); err != nil {
		return err
	}
	return durable.SyncFile(path)
}

// gone is err unless that says that there is nothing.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove ends a pause by removing its file, which its holder may, the owner of the
// place and root. It is durable when nil is returned.
func Remove(p Pause) error {
	if err := gone(os.Remove(filepath.Join(p.Place, p.ID))); err != nil {
		return err
	}
	return durable.SyncDir(p.Place)
}

// Cease writes into the file ended that the pauses of these ids count no longer,
// beside those that it names already and whose files are there. It is for whoever
// may not remove them.
func Cease(ended string, places []string, ids []string) error {
	over, err := readEnded(ended)
	if err != nil {
		return err
	}
	maps.DeleteFunc(over, func(id string, _ bool) bool {
		return !slices.ContainsFunc(places, func(place string) bool {
			_, ok := ownerOf(id)
			_, err := os.Lstat(filepath.Join(place, id))
			return ok && err == nil
		})
	})
	for _, id := range ids {
		over[id] = true
	}
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(over)) {
		b.WriteString(id + "\n")
	}
	return durable.WriteFile(ended, []byte(b.String()), 0o644)
}

// oldFrom is how long what nobody needs lies before Tidy removes it: one that is
// being made is not yet what it will be.
const oldFrom = time.Minute

// Tidy removes from the places what nobody needs and this process's user may
// remove: pauses that are over in s, and what one that was killed left unfinished.
func Tidy(s *State, places []string) {
	for _, p := range s.Over {
		if end, forever := p.End(s.At); !forever && s.At.Now.Sub(end) > oldFrom && !p.mayReturn(s.At) {
			os.Remove(filepath.Join(p.Place, p.ID))
		}
	}
	for _, place := range places {
		entries, _ := os.ReadDir(place)
		for _, e := range entries {
			if !durable.IsTemp(e.Name()) {
				continue
			}
			info, err := e.Info()
			if st, ok := sysOf(info, err); ok && int(st.Uid) == os.Geteuid() && s.At.Now.Sub(info.ModTime()) > oldFrom {
				os.Remove(filepath.Join(place, e.Name()))
			}
		}
	}
}

func sysOf(info fs.FileInfo, err error) (*syscall.Stat_t, bool) {
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}
