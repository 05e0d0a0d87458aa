package batchfile

import (
	"errors"
	"path"
	"path/filepath"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// A want is one entry of a batch that names a file, or with many a directory
// or a glob.
type want struct {
	at    conf.Place
	path  string // as it is written
	alias string // clean, or ""
	into  string // directory in the job's directory: "input" or ""
	many  bool
	fill  bool // each job gets its own, made of the file
	keep  bool // lies at its own path if that stays inside, as -i of dsubmit has it
}

// glob says that the path is a pattern, unless a file has just that name.
func (w *want) glob() bool { return w.many && !w.fill && strings.ContainsAny(w.path, "*?[") }

// key is the same for wants that come to the same.
func (w *want) key() string {
	own := "\x00"
	if w.keep {
		own = "\x00="
	}
	return w.into + own + w.path + "\x00" + w.alias + "\x00"
}

// source is the path in its shortest form.
func (w *want) source() string { return filepath.Clean(w.path) }

// place is where in the job's directory the file lies; of a directory or a
// glob where what is in it lies.
func (w *want) place() string {
	if w.keep {
		return keepPlace(w.path)
	}
	name := w.alias
	if name == "" {
		name = path.Base(w.source())
	}
	return path.Join(w.into, name)
}

// keepPlace is a path as it lies in the job's directory: at itself if it stays
// inside, else below input/.
func keepPlace(p string) string {
	p = path.Clean(p)
	if job.CheckPath(p) == nil {
		return p
	}
	return path.Join("input", path.Base(p))
}

// check reports why the file cannot lie where it would.
func (w *want) check() error {
	if len(w.path) > 4000 {
		return errors.New("a path has at most 4000 bytes")
	}
	if strings.Contains(w.path, "**") && w.glob() {
		return errors.New(msg.Quote(w.path) + `: "**" is not supported: name the directory to take the whole tree`)
	}
	if w.glob() {
		return nil
	}
	base := path.Base(w.source())
	nameless := base == ".." || base == "." || base == "/"
	if w.keep && nameless {
		return errors.New(msg.Quote(w.path) + " is the whole directory: name what is wanted in it")
	}
	if w.alias == "" && nameless {
		return errors.New(msg.Quote(w.path) + " has no name to lie under: give it an alias")
	}
	place := w.place()
	if err := job.CheckPath(place); err != nil {
		return errors.New(msg.Quote(place) + " " + err.Error())
	}
	top, _, _ := strings.Cut(place, "/")
	if w.into == "" && !w.keep && (top == "input" || top == "initial_files" || top == "distribute_save") {
		return errors.New(msg.Quote(top) + " is a directory of the job's own: give the file another alias")
	}
	return nil
}

// places is a list of wanted files that lie at different places, beside those
// of the batch if the list is a job's. Where globs and directories put files is
// known only when they are looked at.
type places struct {
	list  []want
	index map[string]int // of a long list
	outer *places
}

// indexed makes places of a list that has been checked.
func indexed(list []want) *places {
	p := &places{list: list, index: make(map[string]int, len(list))}
	for i := range list {
		if !list[i].glob() {
			p.index[list[i].place()] = i
		}
	}
	return p
}

func (p *places) find(place string) *want {
	if p.index != nil {
		if i, ok := p.index[place]; ok {
			return &p.list[i]
		}
	} else {
		for i := range p.list {
			if !p.list[i].glob() && p.list[i].place() == place {
				return &p.list[i]
			}
		}
	}
	if p.outer != nil {
		return p.outer.find(place)
	}
	return nil
}

// add takes w into the list. If another file has its place that one is
// returned instead; the same file at the same place is not taken twice.
func (p *places) add(w want) (old *want) {
	if !w.glob() {
		place := w.place()
		if old := p.find(place); old != nil {
			if old.source() == w.source() {
				return nil
			}
			return old
		}
		if p.index != nil {
			p.index[place] = len(p.list)
		}
	}
	p.list = append(p.list, w)
	if len(p.list) == 16 {
		p.index = indexed(p.list).index
	}
	return nil
}
