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
