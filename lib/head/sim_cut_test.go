package head

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// How much of what was not synced a power cut leaves.
const (
	cutAll    = iota // none of it
	cutNone          // all of it
	cutRandom        // some of it
)

// cut makes the directory that is found after a power cut.
func (d *simDisk) cut(to string, r *rand.Rand) *simDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	root, now := d.look()
	c := &cutting{d: d, root: root, now: now, r: r, how: []int{cutAll, cutAll, cutNone, cutRandom, cutRandom, cutRandom}[r.IntN(6)]}
	c.decide()
	c.build(root, to)
	next := newSimDisk(to)
	next.near, next.sleep, next.fail, next.lose = d.near, d.sleep, d.fail, d.lose
	return next
}

// A place is a name in a directory.
type place struct {
	dir  inode
	name string
}

// A cutting is one power cut: what was synced, what is there, and which of both
// each file is found at.
type cutting struct {
	d    *simDisk
	root inode
	now  map[inode]*image
	r    *rand.Rand
	how  int
	was  map[inode]place // where the disk has it
	is   map[inode]place // where it is
	late map[inode]bool  // it is found where it is, or gone if it is gone
}

// places says where each file is, in an order that the seed decides.
func places(all map[inode]*image) map[inode]place {
	at := map[inode]place{}
	for dir, im := range all {
		for name, child := range im.names {
			at[child] = place{dir, name}
		}
	}
	return at
}

func (c *cutting) decide() {
	c.is, c.was, c.late = places(c.now), map[inode]place{}, map[inode]bool{}
	for dir, im := range c.d.saved {
		for name, child := range im.names {
			at := place{dir, name}
			if c.is[child] == at || c.was[child] == (place{}) {
				c.was[child] = at // a name that it has still counts more than one that it had
			}
		}
	}
	keys := slices.Collect(maps.Keys(c.is))
	for key := range c.was {
		if _, there := c.is[key]; !there {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b inode) int { return int(a.ino) - int(b.ino) })
	for _, key := range keys {
		c.late[key] = c.how == cutNone || c.how == cutRandom && c.r.IntN(2) == 0
		if _, there := c.is[key]; there && c.was[key] == (place{}) && c.d.known[key] {
			c.late[key] = true // it was renamed, and its old directory synced since
		}
	}
	for again := true; again; {
		again = false
		set := func(key inode, late bool) {
			if c.late[key] != late {
				c.late[key], again = late, true
			}
		}
		for _, key := range keys {
			is, there := c.is[key]
			was, old := c.was[key]
			if there && c.late[key] && c.was[is.dir] == (place{}) && c.is[is.dir] != (place{}) {
				set(is.dir, true) // its directory was made before it came there
			}
			if old && !c.late[key] && is != was {
				if c.gone(was.dir) {
					set(key, true)
				} else if _, there := c.is[was.dir]; !there && was.dir != c.root {
					set(was.dir, false) // its directory was removed after it had gone
				}
			}
			if !there && old && c.late[key] && c.d.saved[was.dir].kinds[was.name].IsRegular() {
				if in := c.now[was.dir]; in != nil {
					if other, taken := in.names[was.name]; taken && !c.late[other] && in.kinds[was.name].IsRegular() {
						set(key, false) // what replaced it in one step did not come
					}
				}
			}
			if there && old && is != was && !c.late[key] {
				if in := c.now[was.dir]; in != nil {
					if other, taken := in.names[was.name]; taken && other != key && c.late[other] {
						set(key, true) // what took its name came after it had gone
					}
				}
			}
		}
	}
}

// gone says that a directory was removed, and that this is on the disk: so is
// all that had left it before.
func (c *cutting) gone(dir inode) bool {
	if _, there := c.is[dir]; there || dir == c.root {
		return false
	}
	was, old := c.was[dir]
	return !old || c.gone(was.dir)
}

// names is what a directory has in it after the cut.
func (c *cutting) names(key inode) map[string]inode {
	found := map[string]inode{}
	old, now := c.d.saved[key], c.now[key]
	if old != nil {
		for name, child := range old.names {
			at := place{key, name}
			if c.is[child] == at || c.was[child] == at && !c.late[child] {
				found[name] = child
			}
		}
	}
	if now != nil {
		for name, child := range now.names {
			if c.was[child] == (place{key, name}) || c.late[child] {
				found[name] = child
			}
		}
	}
	return found
}

func (c *cutting) build(key inode, path string) {
	now, old := c.now[key], c.d.saved[key]
	im := now
	if im == nil {
		im = old
	}
	if im == nil {
		im = &image{mode: 0o600} // its name was synced, and nothing of it ever, and it is gone
		if at, ok := c.was[key]; ok {
			im.mode = c.d.saved[at.dir].kinds[at.name]
		}
	}
	if !im.mode.IsDir() {
		found := *im
		if im.mode.IsRegular() {
			found.data = c.content(old, now)
		}
		put(path, &found)
		return
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		panic(err)
	}
	dir, short, err := within(path)
	if err != nil {
		panic(err)
	}
	defer dir.Close()
	names := c.names(key)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c.build(names[name], filepath.Join(short, name))
	}
	os.Chmod(path, im.mode.Perm())
}

// content is what a file has in it after the cut.
func (c *cutting) content(old, now *image) []byte {
	var was []byte
	if old != nil {
		was = old.data
	}
	if now == nil || c.how == cutAll {
		return was
	}
	is := now.data
	if bytes.Equal(is, was) || c.how == cutNone {
		return is
	}
	if bytes.HasPrefix(was, is) { // cut
		return [][]byte{was, is}[c.r.IntN(2)]
	}
	if same := common(is, was); same >= 512 && same < len(was) { // its end was written over, in place
		return [][]byte{was, is, is[:same+c.r.IntN(len(is)-same+1)], append(slices.Clone(is[:same]), make([]byte, len(is)-same)...)}[c.r.IntN(4)]
	}
	if !bytes.HasPrefix(is, was) { // written anew
		return [][]byte{was, is, nil, is[:c.r.IntN(len(is)+1)]}[c.r.IntN(4)]
	}
	part := is[:len(was)+c.r.IntN(len(is)-len(was)+1)]
	switch c.r.IntN(3) {
	case 0:
		return was
	case 1: // the length came home, the bytes did not
		return append(slices.Clone(part), make([]byte, len(is)-len(part))...)
	}
	return part
}

// common is how many bytes two texts begin with that are the same.
func common(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
