// Package pack turns a directory tree into a manifest and a zstd tar stream,
// and back into a tree, without trusting either.
//
// [Scan] reads a tree into a [Manifest]: the list of its directories, files and
// links with the size, mode, time and SHA-256 of each file. The manifest
// travels first ([Manifest.Encode], [DecodeManifest]). The other side says what
// it wants of it ([Want], all of it or what [Verify] finds missing), [Send]
// writes just that as one tar, mostly in zstd, and [Receive] takes it apart
// into a [Sink]; a [Tree] is the Sink that makes directories, files and links
// below an [os.Root].
//
// The sender, the manifest and the stream are all taken to be hostile. The
// manifest says everything there is to know about the tree, and the tar is a
// function of the manifest and of nothing else: Receive computes each header
// that has to come and compares bytes, so it has no tar reader that could be
// deceived. Memory is bounded by [Limits] and by the constants of this package,
// not by what is received, and nothing is written that the manifest does not
// declare.
//
// # The manifest
//
// A manifest is lines of JSON, one for each entry and one that ends it, each
// ended by a newline. The form is exact: these members, in this order, without
// blanks, so that a tree has one manifest and a manifest one SHA-256. A reader
// refuses every other form. An example, whole:
//
//	{"path":"empty","type":"d","mode":"0755","time":"2026-11-20T05:16:07Z"}
//	{"path":"out","type":"d","mode":"0750","time":"2026-11-20T05:16:08.25Z"}
//	{"path":"out/x.csv","type":"f","size":12,"mode":"0644","time":"2026-11-20T05:16:08.123456789Z","sha256":"2e648751535d60fb4eb9ba7c687ed563dd2d400d8b4db60f2dfd09771292874f"}
//	{"path":"x.csv","type":"l","link":"out/x.csv"}
//	{"end":4,"sha256":"efd6e918fe69b5bb3501ec10b36140b2f4f60cb63c9ba54c1108c6aae8d2feca"}
//
// The members are
//
//	path    the place below the root of the tree: names separated by one slash,
//	        none of them empty, "." or "..", valid UTF-8 without control
//	        characters (U+0000 to U+001F, U+007F to U+009F); of at most 255
//	        bytes each
//	type    f for a file, d for a directory, l for a symbolic link
//	size    of a file, in bytes, a decimal number
//	mode    of a file or a directory, the nine permission bits as four octal
//	        digits; set-id and sticky bits are never kept
//	time    of a file or a directory, when its content last changed, in UTC as
//	        in RFC 3339, with as many digits of the second's fraction as it needs
//	        and at most nine; from 1970-01-01T00:00:00Z to the end of 2241
//	sha256  of a file's content, 64 hexadecimal digits in lower case
//	link    of a symbolic link, what it points at, as it stands in the link:
//	        relative, and inside the tree both by its letters and when the links
//	        of the manifest on its way are followed; it may point at nothing
//
// In strings the quotation mark and the backslash are written with a backslash
// before them, and everything else as it is.
//
// The entries stand in the order of their paths, compared name by name, and
// names byte by byte; so a directory comes directly before what is in it. The
// parent of each entry is an entry, a directory. No path comes twice.
//
// The last line has the number of entries and the SHA-256 of the bytes of all
// the lines before it, newlines included. Nothing follows it. The hash that
// stands for a manifest elsewhere is another: that of all its bytes, the last
// line too ([Manifest.Sum]).
//
// # The stream
//
// The stream is one tar, as it is or in zstd, without a dictionary and with a window of
// at most 8 MiB; a tar never begins as zstd does. In
// the tar are the wanted entries in the manifest's order. Each has a ustar
// header with uid, gid and names of owners empty or 0, the time in whole seconds
// (rounded down), directories with a slash at the end of their name and links with
// mode 0777. A pax header goes before it only if it must,
// with the records linkpath, path and size in this order: linkpath and path if
// they are longer than 100 bytes or not plain ASCII, size if it is 8 GiB or
// more; the ustar header then has the first 100 bytes of the name, or size 0.
// The name of a pax header is "././@PaxHeader". Where the first wanted entry
// goes on from a byte, the tar has the rest of the file and the size of the
// rest. Two blocks of zeros end the tar, and nothing follows them.
package pack
