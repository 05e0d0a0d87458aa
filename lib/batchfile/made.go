package batchfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// Limits of files that are templates, in bytes.
const (
	maxTemplate = 1 << 20   // of one
	maxMade     = 256 << 20 // of all that is made of them
)

// suffix is what the name of a template ends in.
const suffix = ".in"

// fileOf is a template of a file.
type fileOf struct {
	path, place string
	text        string
	segs        []segment
	mode        uint32
}

// at is where in the file a byte of its text is, with a colon and a blank.
func (f *fileOf) at(offset int) string {
	before := f.text[:offset]
	line, begin := strings.Count(before, "\n"), strings.LastIndexByte(before, '\n')+1
	return conf.Place{File: f.path, Line: line + 1, Col: utf8.RuneCountInString(before[begin:]) + 1}.String() + ": "
}

// made is a file that was made for a job.
type made struct {
	path, place string // of the template; in the job's directory
	data        string
	mode        uint32
}

// template reads a file of which each job gets its own.
func (b *templating) template(name string) {
	at := conf.Place{File: "-T"}
	place, ok := strings.CutSuffix(path.Clean(name), suffix)
	if err := job.CheckPath(place); !ok || err != nil || strings.HasSuffix(place, "/") {
		b.errs.Errorf(at, "%s is no name of a template: that is a relative path below this directory and ends in %s", msg.Quote(name), suffix)
		return
	}
	for _, f := range b.files {
		if f.place == place {
			b.errs.Errorf(at, "%s is there twice", msg.Quote(name))
			return
		}
	}
	file, err := readTemplate(b.t.Dir, name)
	if err != nil {
		b.errs.Errorf(at, "%w", err)
		return
	}
	file.place = place
	b.files = append(b.files, *file)
}

// readTemplate reads a template, of which the path is relative to dir.
func readTemplate(dir, name string) (*fileOf, error) {
	where := locate(dir, name)
	f, _, err := job.OpenSource(where)
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return nil, cannot(name, where, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTemplate+1))
	switch {
	case err != nil:
		return nil, cannot(name, name, err)
	case len(text) > maxTemplate:
		return nil, fmt.Errorf("%s has more than %d bytes, which is the limit of a template", msg.Quote(name), maxTemplate)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("%s is not UTF-8 text", msg.Quote(name))
	}
	file := &fileOf{path: name, text: string(text), mode: 0o644}
	if st, err := f.Stat(); err != nil {
		return nil, cannot(name, name, err)
	} else if st.Mode()&0o111 != 0 {
		file.mode = 0o755
	}
	file.segs, _ = segments(file.text)
	return file, nil
}

// sizes bounds what is made of templates: equal files count once.
type sizes struct {
	bytes int
	sums  map[[32]byte]bool
}

// add counts a file, and says whether that is still within the limit.
func (s *sizes) add(data string) bool {
	if sum := sha256.Sum256([]byte(data)); !s.sums[sum] {
		if s.sums == nil {
			s.sums = map[[32]byte]bool{}
		}
		s.sums[sum] = true
		s.bytes += len(data)
	}
	return s.bytes <= maxMade
}

// errMade is what is wrong beyond that limit.
var errMade = fmt.Errorf("the files that are made of templates have more than %d bytes together, which is the limit: put what all jobs share into a file of its own", maxMade)

// made fills templates of files for a line.
func (b *templating) made(l *given, files []fileOf) (list []made) {
	for _, f := range files {
		before := b.errs.Any()
		data := b.fillAt(l, f.segs, f.at, l.inFile)
		switch ok := b.size.add(data); {
		case ok:
			list = append(list, made{f.path, f.place, data, f.mode})
		case !before:
			b.errs.Errorf(l.at, "%w (-i)", errMade)
		}
	}
	return list
}

// made claims the places of the files that were made for a job.
func (c *collector) made(i int, own *claims) (list []placed) {
	if c.f.jobMade == nil {
		return nil
	}
	for _, m := range c.f.jobMade[i] {
		sum := sha256.Sum256([]byte(m.data))
		key := hex.EncodeToString(sum[:])
		p := placed{m.place, c.index["\x00"+key]}
		if _, ok := c.index["\x00"+key]; !ok {
			p.src = int32(len(c.sources))
			c.index["\x00"+key] = p.src
			c.sources = append(c.sources, source{Source: job.Source{Path: m.path, Size: int64(len(m.data)), Sum: key, Data: &m.data}, at: c.f.jobAt[i], mode: m.mode})
		}
		if !own.free(m.place) {
			c.errs.Errorf(c.f.jobAt[i], "what is made of %s would lie at %s, where another file lies, or needs a directory", msg.Quote(m.path), msg.Quote(m.place))
			continue
		}
		own.take(p)
		list = append(list, p)
		if word := c.f.filledWord(i, m.place); word != "" && own.free(word) {
			p.place = word
			own.take(p)
			list = append(list, p)
		}
	}
	return list
}

// filledWord is the place of a file that is made for a job, as input/case, where a word of
// its command says only case; "" if none does.
func (f *File) filledWord(i int, place string) string {
	name, in := strings.CutPrefix(place, "input/")
	if !in || f.Spec.Kind != job.Command {
		return ""
	}
	for _, w := range f.Jobs[i].Run {
		if path.Clean(w) == name {
			return name
		}
	}
	return ""
}

// fills says that a file of that name is made for a job.
func (f *File) fills(i int, name string) bool {
	return f.jobMade != nil && slices.ContainsFunc(f.jobMade[i], func(m made) bool { return m.place == "input/"+name })
}

// makes says that a file is made of a template at that place, for some job.
func (f *File) makes(place string) bool {
	if f.madeAt == nil {
		f.madeAt = map[string]bool{}
		for _, list := range f.jobMade {
			for i := range list {
				f.madeAt[list[i].place] = true
			}
		}
	}
	return f.madeAt[place]
}
