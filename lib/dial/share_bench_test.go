package dial

import (
	"io"
	"net"
	"testing"

	"distribute/lib/wire"
)

// BenchmarkTransfer carries a transfer over a socket pair: bare, and as a part.
func BenchmarkTransfer(b *testing.B) {
	ends := func() (net.Conn, net.Conn) {
		near, theirs, err := pair()
		if err != nil {
			b.Fatal(err)
		}
		defer theirs.Close()
		far, err := net.FileConn(theirs)
		if err != nil {
			b.Fatal(err)
		}
		return near, far
	}
	carry := func(b *testing.B, from, to io.ReadWriteCloser) {
		frame := make([]byte, 256<<10)
		b.SetBytes(64 << 20)
		out, in := wire.New(from), wire.New(to)
		done := make(chan error)
		go func() {
			for {
				s, err := wire.Expect[*wire.Send](in)
				if err != nil {
					return
				}
				done <- wire.Drain(in.RecvTransfer(s))
			}
		}()
		for b.Loop() {
			err := out.SendTransfer(&wire.Send{Of: wire.OfTree}, func(w io.Writer) error {
				for range 256 {
					if _, err := w.Write(frame); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	}
	raw := func(b *testing.B, from, to io.ReadWriteCloser) {
		frame := make([]byte, 256<<10)
		b.SetBytes(64 << 20)
		go io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{to})
		for b.Loop() {
			for range 256 {
				if _, err := from.Write(frame); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		name string
		run  func(*testing.B, io.ReadWriteCloser, io.ReadWriteCloser)
	}{{"raw", raw}, {"transfer", carry}} {
		b.Run(c.name+"/bare", func(b *testing.B) {
			near, far := ends()
			defer near.Close()
			defer far.Close()
			c.run(b, near, far)
		})
		b.Run(c.name+"/part", func(b *testing.B) {
			a, z := ends()
			near, far := Share(wire.New(a), true), Share(wire.New(z), false)
			defer near.Close()
			defer far.Close()
			ours, err := near.Begin()
			if err != nil {
				b.Fatal(err)
			}
			ours.Write([]byte("!"))
			theirs, err := far.Accept()
			if err != nil {
				b.Fatal(err)
			}
			io.ReadFull(theirs, make([]byte, 1))
			c.run(b, ours, theirs)
		})
	}
}
