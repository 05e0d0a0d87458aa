package pack

import (
	"fmt"
	"strings"
)

// maxFollow is how many links Linux follows on one path.
const maxFollow = 40

// checkTarget checks the target of the link at path by its letters: relative,
// and never above the root.
func checkTarget(path, target string, lim Limits) error {
	switch {
	case target == "":
		return fmt.Errorf("%w: a link to nothing", ErrFormat)
	case len(target) > lim.PathBytes:
		return fmt.Errorf("%w: a target of %d bytes (at most %d)", ErrLimit, len(target), lim.PathBytes)
	case target[0] == '/':
		return fmt.Errorf("%w: a link to the absolute path %q", ErrFormat, target)
	}
	if why := badText(target); why != "" {
		return fmt.Errorf("%w: in the target %q: %s", ErrFormat, target, why)
	}
	depth := strings.Count(path, "/")
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return fmt.Errorf("%w: a link out of the tree, to %q", ErrFormat, target)
			}
		default:
			if depth++; depth > lim.Depth {
				return fmt.Errorf("%w: a target more than %d names deep", ErrLimit, lim.Depth)
			}
		}
	}
	return nil
}

// checkLinks checks that no link of m leads out of the tree when the links on
// its way are followed, as checkTarget cannot know: after "a" to ".", the
// target "a/.." is outside.
func checkLinks(m Manifest) error {
	for i, out := range escapes(m) {
		if out {
			return fmt.Errorf("%w: %q: a link out of the tree, to %q", ErrFormat, m[i].Path, m[i].Link)
		}
	}
	return nil
}

// escapes returns which links of m lead out of the tree. It is nil for a tree
// without links.
func escapes(m Manifest) map[int]bool {
	var r *resolver
	for i := range m {
		if m[i].Type == Link {
			if r == nil {
				r = &resolver{m: m, link: make(map[string]int), seen: make(map[int]ending)}
			}
			r.link[m[i].Path] = i
		}
	}
	if r == nil {
		return nil
	}
	out := make(map[int]bool)
	for i := range m {
		if m[i].Type == Link && r.resolve(i, 0).how == outside {
			out[i] = true
		}
	}
	return out
}

// resolver follows the links of a manifest, each once.
type resolver struct {
	m    Manifest
	link map[string]int // path of a link to its index
	seen map[int]ending // what resolve has found
}

// ending is where a link leads.
type ending struct {
	how  int
	path string // when inside; "" is the root
}

const (
	following = iota // it is being followed: coming back to it is a loop
	inside
	outside
	nowhere // through a loop, or too many links: the kernel refuses to follow it
)

func (r *resolver) resolve(i, depth int) ending {
	if end, ok := r.seen[i]; ok {
		if end.how == following {
			return ending{how: nowhere}
		}
		return end
	}
	if depth > maxFollow {
		return ending{how: nowhere}
	}
	r.seen[i] = ending{how: following}
	end := r.walk(dirOf(r.m[i].Path), r.m[i].Link, depth)
	if end.how == nowhere {
		delete(r.seen, i) // from another start it may be within the number
		if depth == 0 {
			r.seen[i] = end
		}
		return end
	}
	r.seen[i] = end
	return end
}

// walk goes from the directory at along target, name by name. Names that are
// no links are taken to be directories.
func (r *resolver) walk(at, target string, depth int) ending {
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return ending{how: outside}
			}
			at = dirOf(at)
			continue
		}
		if at != "" {
			name = at + "/" + name
		}
		at = name
		if i, ok := r.link[at]; ok {
			end := r.resolve(i, depth+1)
			if end.how != inside {
				return end
			}
			at = end.path
		}
	}
	return ending{how: inside, path: at}
}
