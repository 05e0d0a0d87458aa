package pull

import (
	"os"
	"path"
	"strings"
	"syscall"

	"distribute/lib/pack"
)

// Tidy removes the parts of files that earlier pulls have left, when all of the result is
// here. A part that another process writes stays, and so does a file of the result that
// only has such a name.
func (p *Place) Tidy(m pack.Manifest) {
	if p.dir == nil {
		return
	}
	p.tidy(".", m)
	for i := range m {
		if m[i].Type == pack.Dir {
			p.tidy(m[i].Path, m)
		}
	}
}

// tidy tidies one directory. It ignores errors: a part that stays costs room only.
func (p *Place) tidy(dir string, m pack.Manifest) {
	d, err := p.dir.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(-1)
	d.Close()
	for _, name := range names {
		at := path.Join(dir, name)
		if !isPart(name) {
			continue
		}
		if _, ok := m.Find(at); ok {
			continue
		}
		f, err := p.dir.OpenFile(at, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if _, ok := alone(f, p.dir, at, false); ok {
			_ = p.dir.Remove(at)
		}
		f.Close()
	}
}

// isPart reports whether name has the form of a hidden file's.
func isPart(name string) bool {
	digits, ok := strings.CutPrefix(name, partPrefix)
	return ok && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}
