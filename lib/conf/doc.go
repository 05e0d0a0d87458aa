// Package conf reads the YAML files that people write: batch files, node
// files, the settings of a head. It is the only door to the YAML library.
//
// A file is parsed once into a tree of [Node]s, which the reader of a format
// walks with typed getters. A getter never fails: what is wrong is noted in the
// [Doc] with its place, and [Doc.Err] returns all mistakes of the file at once,
// in the order of the file, each as
//
//	jobs.yaml:12:5: unknown key "capabilites" (did you mean "capabilities"?)
//
// so that a person mends a file in one go. Lines and columns count from 1, and
// columns count characters.
//
// A format is read like this:
//
//	doc, err := conf.Parse("node.yaml", data)
//	if err != nil {
//		return nil, err
//	}
//	m := doc.Root().Map(conf.Keys{Known: []string{"name", "cpus", "slots"}})
//	name, at := m.Need("name").Text(), m.Get("name").Place()
//	if err := job.CheckName(name); err != nil {
//		doc.Errorf(at, "%v", err)
//	}
//	cpus := m.Get("cpus").Int(1, 1<<20)
//	for _, n := range m.Get("slots").List("") {
//		…
//	}
//	return x, doc.Err()
//
// The rules that hold for every format:
//
//   - A file is UTF-8 text of at most [MaxSize] bytes, with LF or CRLF, with or
//     without a byte order mark, and holds one document. Nesting is at most
//     [MaxDepth] deep.
//   - A scalar stays the text that stands in the file: 00:30:00, 0100 and 1.0
//     are not turned into numbers, and quotes make no difference but that "~" and
//     "null" in quotes are text.
//   - null, ~ and nothing at all are the same as leaving the key out.
//   - A key that is not known, or stands twice in one mapping, is a mistake.
//   - Anchors, aliases and merge keys (<<) work; aliases that make a document
//     more than [MaxAliased] values longer, or contain themselves, are refused.
//   - Tags of YAML's own types are allowed and mean nothing; others are refused.
package conf
