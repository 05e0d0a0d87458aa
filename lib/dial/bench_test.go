package dial

import (
	"io"
	"net"
	"testing"

	"distribute/lib/wire"
)

// BenchmarkStream carries transfers of 64 MiB over each kind of stream that
// crosses a network.
func BenchmarkStream(b *testing.B) {
	ours, mine := freshKey(), freshKey()
	for scheme, terms := range map[string]Terms{"tcp": {}, "tls": {Key: mine, HeadKey: ours.Fingerprint()}} {
		b.Run(scheme, func(b *testing.B) {
			l, err := Terms{Key: ours}.Listen(scheme + "://127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			done := make(chan error, 1)
			go func() { done <- drain(l) }()
			s, err := terms.Dial(b.Context(), scheme+"://"+l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			c := wire.New(s)
			frame := make([]byte, wire.MaxFrame)
			b.SetBytes(64 << 20)
			for b.Loop() {
				err := c.SendTransfer(&wire.Send{X: 1, Of: wire.OfTree}, func(w io.Writer) error {
					for range 64 << 20 / len(frame) {
						if _, err := w.Write(frame); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// drain takes one stream's transfers, and throws them away.
func drain(l net.Listener) error {
	s, err := l.Accept()
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := Proven(s); err != nil {
		return err
	}
	c := wire.New(s)
	for {
		send, err := wire.Expect[*wire.Send](c)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, c.RecvTransfer(send)); err != nil {
			return err
		}
	}
}

// BenchmarkHandshake makes streams over TLS, as a head does for each of its
// nodes when it was started anew.
func BenchmarkHandshake(b *testing.B) {
	ours, mine := freshKey(), freshKey()
	l, err := Terms{Key: ours}.Listen("tls://127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	terms := Terms{Key: mine, HeadKey: ours.Fingerprint()}
	done := make(chan error, 1)
	for b.Loop() {
		go func() { done <- drain(l) }()
		s, err := terms.Dial(b.Context(), "tls://"+l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
