package job

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the paths of inputs, in bytes.
const (
	maxPath = 1000
	maxPart = 255
)

// CheckPath reports why p cannot be the path of an [Input]: such a path is
// clean, relative, stays below the job's directory, is UTF-8 without control
// characters, and has at most 1000 bytes, 255 in each part. The error is the
// end of a sentence about p.
func CheckPath(p string) error {
	switch {
	case p == "" || p == ".":
		return errors.New("is empty")
	case len(p) > maxPath:
		return errors.New("is longer than 1000 bytes")
	case p[0] == '/':
		return errors.New("is absolute, and a path below the job's directory is wanted")
	case p == ".." || strings.HasPrefix(p, "../"):
		return errors.New("leaves the job's directory")
	case path.Clean(p) != p:
		return errors.New("is not in its shortest form")
	case !utf8.ValidString(p):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(p, unicode.IsControl):
		return errors.New("has control characters")
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > maxPart {
			return errors.New("has a part longer than 255 bytes")
		}
	}
	return nil
}

// CheckMount reports why s, which is as [path.Clean] leaves it, cannot be a
// directory of a container that is empty at each start.
func CheckMount(s string) error {
	if !strings.HasPrefix(s, "/") || s == "/" {
		return errors.New("must be an absolute path of a directory in the container")
	}
	if strings.ContainsAny(s, ":,") || CheckPath(s[1:]) != nil {
		return errors.New(`must not contain ":", "," or control characters`)
	}
	for _, own := range []string{"/input", "/distribute_save"} {
		switch {
		case s == own:
			return errors.New("is there without being asked for: remove it")
		case strings.HasPrefix(s, own+"/"):
			return fmt.Errorf("lies in %s, which every job has: name a directory outside", own)
		}
	}
	for _, sys := range []string{"/proc", "/sys", "/dev", "/.singularity.d"} {
		if s == sys || strings.HasPrefix(s, sys+"/") {
			return fmt.Errorf("lies in %s, which is the system's: name another directory", sys)
		}
	}
	return nil
}

// MaxMounts is how many directories of a container can be empty at each start.
const MaxMounts = 100

// CheckMounts reports the first of the mounts of a batch that cannot be one.
func CheckMounts(mounts []string) error {
	if len(mounts) > MaxMounts {
		return fmt.Errorf("%d mounts, and %d is the limit", len(mounts), MaxMounts)
	}
	for _, m := range mounts {
		err := CheckMount(m)
		if err == nil && path.Clean(m) != m {
			err = errors.New("is not as it has to be written")
		}
		if err != nil {
			return fmt.Errorf("mount %.200q %w", m, err)
		}
	}
	return nil
}
