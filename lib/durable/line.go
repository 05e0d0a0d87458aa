package durable

import "os"

// AppendLine appends a line to a file that was opened for reading and appending, in one
// write. What an earlier writer left without its end, as on a disk that was full, gets one
// first, so that no other line is lost with it. It syncs nothing.
func AppendLine(f *os.File, line []byte) error {
	text := make([]byte, 0, len(line)+2)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			text = append(text, '\n')
		}
	}
	if err := Step("line.write"); err != nil {
		return err
	}
	_, err = f.Write(append(append(text, line...), '\n'))
	return err
}

// Overwrite makes text the content of a file that is open for writing. Most file systems need
// no room for it if the file has had as much before, which a disk that others fill may not have
// a moment later. Btrfs does: there, and wherever no room is, the file becomes empty. It syncs
// nothing.
func Overwrite(f *os.File, text []byte) error {
	n, err := f.WriteAt(text, 0)
	if NoRoom(err) {
		n, err = 0, nil
	}
	if err != nil {
		return err
	}
	return f.Truncate(int64(n))
}
