package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"distribute/lib/wire"
)

func same(err error) error { return err }

func TestHeaders(t *testing.T) {
	var b strings.Builder
	o := &output{w: &b, header: true}
	for _, j := range [][2]string{{"n/b/1", "one\n"}, {"n/b/2", ""}, {"n/b/3", "three\n"}} {
		if _, err := o.copy(j[0], strings.NewReader(j[1]), same); err != nil {
			t.Fatal(err)
		}
	}
	// One that is followed goes on after another.
	if err := o.write("n/b/1", []byte("more\n")); err != nil {
		t.Fatal(err)
	}
	if err := o.write("n/b/1", []byte("and more\n")); err != nil {
		t.Fatal(err)
	}
	want := "==> n/b/1 <==\none\n\n==> n/b/2 <==\n\n==> n/b/3 <==\nthree\n\n==> n/b/1 <==\nmore\nand more\n"
	if b.String() != want {
		t.Errorf("got %q\nwant %q", b.String(), want)
	}
}

// To a terminal nothing comes that moves its cursor, wherever the pieces in
// which it arrives end; into a pipe everything comes as it is.
func TestTerminal(t *testing.T) {
	const printed = "50%\r100%\nü€😀\t\x1b[2J\x9b\u009b\a\xff end\u202e\n\xe2\x82"
	const shown = "50%\r100%\nü€😀\t\\x1b[2J\\x9b\\u009b\\a\\xff end\\u202e\n\\xe2\\x82"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(printed), "bytes": iotest.OneByteReader(strings.NewReader(printed)),
		"halves": iotest.HalfReader(strings.NewReader(printed)), "end with data": iotest.DataErrReader(strings.NewReader(printed)),
	} {
		var b strings.Builder
		if _, err := (&output{w: &b, quote: true}).copy("n/b/1", r, same); err != nil || b.String() != shown {
			t.Errorf("%s: %v, got %q\nwant %q", name, err, b.String(), shown)
		}
	}
	var b strings.Builder
	if _, err := (&output{w: &b}).copy("n/b/1", strings.NewReader(printed), same); err != nil || b.String() != printed {
		t.Errorf("into a pipe: %v, %q", err, b.String())
	}
}

// A log that its node stops sending does not keep the others from being shown.
func TestTheOthersAreShown(t *testing.T) {
	lost := errors.New("the head is lost")
	var shown []string
	err := each([]string{"n/b/1", "n/b/2", "n/b/3", "n/b/4"}, func(id string) error {
		shown = append(shown, id)
		switch id {
		case "n/b/1":
			return fmt.Errorf("the head: %w", wire.ErrGaveUp)
		case "n/b/3":
			return lost
		}
		return nil
	})
	if strings.Join(shown, " ") != "n/b/1 n/b/2 n/b/3" || !errors.Is(err, wire.ErrGaveUp) || !errors.Is(err, lost) {
		t.Errorf("shown are %q, %v", shown, err)
	}
}

func TestCut(t *testing.T) {
	lost := errors.New("lost")
	failed := func(error) error { return lost }
	var b strings.Builder
	r := io.MultiReader(strings.NewReader("some"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if n, err := (&output{w: &b}).copy("n/b/1", r, failed); err != lost || b.String() != "some" || n != 4 {
		t.Errorf("%v, %q, %d bytes", err, b.String(), n)
	}

	// On a terminal a character that is cut is left for when it is whole.
	o := &output{quote: true}
	b.Reset()
	o.w = &b
	n, err := o.copy("n/b/1", io.MultiReader(strings.NewReader("ü\xe2\x82"), iotest.ErrReader(io.ErrUnexpectedEOF)), failed)
	if err != lost || n != 2 {
		t.Errorf("%v, %d bytes", err, n)
	}
	if _, err := o.copy("n/b/1", strings.NewReader("\xe2\x82\xac"), failed); err != nil || b.String() != "ü€" {
		t.Errorf("%v, %q", err, b.String())
	}
}
