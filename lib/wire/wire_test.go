package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/node"
	"distribute/lib/suite"
)

// stream makes a Conn of what is written to it and what it reads.
type stream struct {
	io.Reader
	io.Writer
}

func (stream) Close() error { return nil }

func reading(s string) *Conn { return New(stream{strings.NewReader(s), io.Discard}) }

// examples are the messages shown in dwire(5).
func examples(t testing.TB) []string {
	page, err := os.ReadFile("../../man/dwire.5")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), ".Sh EXAMPLES\n")
	text = strings.ReplaceAll(text, "\\e\n", "")
	text = strings.ReplaceAll(text, `\e`, `\`)
	var msgs []string
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, "{") {
			msgs = append(msgs, strings.TrimSpace(l))
		}
	}
	return msgs
}

// Every example of the manual is read and written again to the letter, and
// every kind of message has one.
func TestExamples(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range examples(t) {
		m, err := reading(text + "\n").Recv()
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		seen[m.kind()] = true
		again, err := encode(nil, m)
		if err != nil || string(again) != text+"\n" {
			t.Errorf("written again, %v:\n%s%s", err, again, text)
		}
	}
	src, err := os.ReadFile("message.go")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(src)) {
		_, kind, _ := strings.Cut(l, `kind() string`)
		_, kind, ok := strings.Cut(kind, `return "`)
		if !ok {
			continue
		}
		kind, _, _ = strings.Cut(kind, `"`)
		if m := blank(kind); m == nil || m.kind() != kind {
			t.Errorf("no message is made for %q", kind)
		}
		if !seen[kind] {
			t.Errorf("the manual has no example of %q", kind)
		}
	}
}

// Every member of every message is in the manual, and so are the sums of transfers.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../man/dwire.5")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(page, func(r rune) bool { return strings.ContainsRune(" \n,;:()\"{}[]", r) }) {
		words[w] = true
	}
	src, err := os.ReadFile("message.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"answer": true}
	for _, verb := range strings.Fields("cancel retry hold release set lost drain resume remove accept delete claim") {
		known[verb] = true
	}
	for _, tag := range regexp.MustCompile(`json:"([a-z_]+)`).FindAllStringSubmatch(string(src), -1) {
		if known[tag[1]] = true; !words[tag[1]] {
			t.Errorf("the manual does not have the member %q", tag[1])
		}
	}
	for _, v := range []any{node.Offer{}, node.Pause{}, node.Give{}, job.Result{}} {
		for _, name := range suite.Members(v) {
			known[name] = true
		}
	}
	for _, display := range []string{".Ss Sessions", ".Ss Transfers", "The node sends:", "The head sends:", ".Ss A tool"} {
		for _, name := range suite.Column(t, "../../man/dwire.5", display, 2) {
			if !known[name] {
				t.Errorf("after %q the manual has the member %q, which no message has", display, name)
			}
		}
	}
	const id = "ana/cavity/re=100\n"
	sha, crc := fmt.Sprintf("%x", sha256.Sum256([]byte(id))), fmt.Sprintf("%08x", crc32.Checksum([]byte(id), castagnoli))
	if !strings.Contains(page, fmt.Sprintf(`"bytes":%d,"sum":"%s..."`, len(id), sha[:4])) {
		t.Errorf("the sum of the manual's example is %s", sha)
	}
	for _, of := range []string{OfManifest, OfTree, OfSaved, OfInputs, OfSpec, OfJob, OfJobs, OfBatch, OfRows, OfIDs, OfLog} {
		var out bytes.Buffer
		err := New(stream{nil, &out}).SendTransfer(&Send{X: 1, Of: of}, func(w io.Writer) error {
			_, err := io.WriteString(w, id)
			return err
		})
		want := sha
		if of == OfTree || of == OfInputs {
			want = crc
		}
		if err != nil || !strings.HasSuffix(out.String(), fmt.Sprintf(`"bytes":%d,"sum":"%s"}`+"\n", len(id), want)) {
			t.Errorf("of %s, %v: %s", of, err, out.String())
		}
	}
}

// A value that is sent as it stands has the same bytes in the message.
func TestRaw(t *testing.T) {
	raw := line.Raw(`[["a&b<c>.csv"]]`)
	b, err := encode(nil, &Ended{List: raw})
	if err != nil || !bytes.Contains(b, raw) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestT82Malformed(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"m":"ping","n":1,"n":2}`, "twice"},
		{`{"m":"ping","N":1}`, "lower case"},
		{`{"m":"ping","n":"1"}`, "ping message"},
		{`{"m":"ping","n":1.5}`, "ping message"},
		{`{"m":"ping","n":NaN}`, "not JSON"},
		{`{"m":7}`, "no kind"},
		{`{"m":null}`, "unknown message"},
		{`{"n":1}`, "unknown message"},
		{`{"M":"ping","n":1}`, "lower case"},
		{`{"m":"PING","n":1}`, "unknown message"},
		{`{"m":"ping","n":true}`, "ping message"},
		{`{"m":"ping","n":[1]}`, "ping message"},
		{`{"m":"ping","n":-1}`, "ping message"},
		{`{"m":"ping","n":18446744073709551616}`, "ping message"},
		{`{"m":"ping","n":1e3}`, "ping message"},
		{`{"m":"ping","n":Infinity}`, "not JSON"},
		{`{"m":"ping","n":01}`, "not JSON"},
		{`{"m":"ping","n":1,}`, "not JSON"},
		{`{"m":"ping","n":1}{"m":"ping","n":2}`, "not JSON"},
		{`{"m":"hello","proto":[1,"1"],"role":"node"}`, "hello message"},
		{`{"m":"keep","attempt":7}`, "keep message"},
		{`{"m":"keep","attempt":9007199254740993}`, "keep message"},
		{`{"m":"grant","want":{"ranges":[[0]]}}`, ""},
		{`{"m":"grant","want":{"ranges":{"0":1}}}`, "grant message"},
		{`{"m":"fetch","sums":[1]}`, "fetch message"},
		{`{"m":"ended","exit":"0"}`, "ended message"},
		{`{"m":"ended","exit":1.5}`, "ended message"},
		{`{"m":"ended","exit":99999999999999999999}`, "ended message"},
		{`{"m":"end","x":1,"bytes":9223372036854775808}`, "end message"},
		{`{"m":"start","work":{"name":"j","NAME":"k"}}`, "lower case"},
		{`{"m":"start","work":{"name":"j","name":"k"}}`, "twice"},
		{`{"\u006d":"ping","n":1}`, "lower case"},
		{"{\"m\":\"ping\",\"n\":1,\"x\":\"\x00\"}", "not JSON"},
		{"{\"m\":\"ping\",\"n\":1,\"\xc3\":1}", "UTF-8"},
		{`{"m":"ping","x":"\udc00\ud800"}`, "surrogate"},
		{"\ufeff" + `{"m":"ping","n":1}`, "not JSON"},
		{`{"m":"ping","n":1}` + "\r\x00", "not JSON"},
		{``, "not JSON"},
		{`["m"]`, "not a JSON object"},
		{"{\"m\":\"\xff\"}", "UTF-8"},
		{`{"m":"ping","x":"\ud800"}`, "surrogate"},
		{`{"m":"data","x":1,"n":-1}`, "a frame of -1 bytes"},
		{`{"m":"data","x":1,"n":1073741824}`, "a frame of"},
		{`{"m":"data","x":1,"n":10}`, "cut"},
		{strings.Repeat("x", MaxLine+1), "too long"},
	} {
		_, err := reading(tt.text + "\n").Recv()
		if tt.want == "" && err == nil {
			continue // what is short is filled with zeros, and what is checked is what it says
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// Lines that are deeper or have more members than any that we write.
func TestT82Deep(t *testing.T) {
	deep := func(n int) string {
		return `{"m":"ping","x":` + strings.Repeat(`[`, n) + strings.Repeat(`]`, n) + `}`
	}
	wide := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"m":"ping"`)
		for i := range n - 1 {
			fmt.Fprintf(&b, `,"x%d":0`, i)
		}
		return b.String() + "}"
	}
	for _, tt := range []struct{ text, want string }{
		{deep(line.MaxDepth), ""}, {deep(line.MaxDepth + 1), "16 deep, which is the limit"}, {deep(100_000), "not JSON"},
		{wide(line.MaxKeys), ""}, {wide(line.MaxKeys + 1), "128 members, which is the limit"}, {wide(50_000), "128 members, which is the limit"},
	} {
		_, err := reading(tt.text + "\n").Recv()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%.60s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// Ids are text: what is no token, whatever JSON it is, names nothing.
func TestT83Ids(t *testing.T) {
	for _, id := range []string{"", "9007199254740993", "1e5", "NaN", "00112233445566778899AABBCCDDEEFF", "00112233445566778899aabbccddeef",
		"00112233445566778899aabbccddeeff0", "../../../../../../../../../../x/", "00112233445566778899aabbccddeef\x00", "٠٠112233445566778899aabbccddee"} {
		if err := job.Token(id).Check(); err == nil {
			t.Errorf("%q is taken for a token", id)
		}
	}
	text := `{"m":"keep","attempt":"a\u0000b"}`
	k, err := Expect[*Keep](reading(text + "\n"))
	if err != nil || k.Attempt.Check() == nil {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestT84LastLineWithoutNewline(t *testing.T) {
	if m, err := reading(`{"m":"ping","n":1}`).Recv(); !errors.Is(err, line.ErrPartial) {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestUnknownGoesOn(t *testing.T) {
	c := reading("{\"m\":\"later\",\"z\":1}\n{\"m\":\"ping\",\"n\":3,\"later\":true}\n")
	if _, err := c.Recv(); !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	if p, err := Expect[*Ping](c); err != nil || p.N != 3 {
		t.Fatal(p, err)
	}
}

// To want all and to want none are not the same: a transfer that was cut after
// its last entry wants nothing more.
func TestWantNothing(t *testing.T) {
	for _, ranges := range [][][2]int{nil, {}, {{1, 2}}} {
		var out bytes.Buffer
		if err := New(stream{nil, &out}).Send(&Grant{Want: Want{Ranges: ranges}}); err != nil {
			t.Fatal(err)
		}
		g, err := Expect[*Grant](reading(out.String()))
		if err != nil || (g.Want.Ranges == nil) != (ranges == nil) || len(g.Want.Ranges) != len(ranges) {
			t.Errorf("%v arrives as %v, %v", ranges, g, err)
		}
	}
}

func sent(t *testing.T, payload []byte) []byte {
	var out bytes.Buffer
	c := New(stream{nil, &out})
	err := c.SendTransfer(&Send{X: 5, Of: OfTree}, func(w io.Writer) error {
		_, err := w.Write(payload)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func receive(r io.Reader) ([]byte, error) {
	c := New(stream{r, io.Discard})
	s, err := Expect[*Send](c)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(c.RecvTransfer(s))
}

// A transfer that is split anywhere arrives; one that is cut anywhere, or has a
// bit flipped, is never taken for whole (T81, D88, D89).
func TestT81Transfer(t *testing.T) {
	payload := make([]byte, 600_000)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	for _, n := range []int{0, 1, 4096, MaxFrame, MaxFrame + 1, len(payload)} {
		b := sent(t, payload[:n])
		got, err := receive(iotest.HalfReader(bytes.NewReader(b)))
		if err != nil || !bytes.Equal(got, payload[:n]) {
			t.Fatalf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
	b := sent(t, payload[:3000])
	for cut := range len(b) {
		if _, err := receive(bytes.NewReader(b[:cut])); err == nil {
			t.Fatalf("cut after %d of %d bytes and taken for whole", cut, len(b))
		}
		flipped := bytes.Clone(b)
		flipped[cut] ^= 4
		if got, err := receive(bytes.NewReader(flipped)); err == nil && !bytes.Equal(got, payload[:3000]) {
			t.Fatalf("bit flipped in byte %d and taken for whole", cut)
		}
	}
	if got, err := receive(iotest.OneByteReader(bytes.NewReader(b))); err != nil || !bytes.Equal(got, payload[:3000]) {
		t.Fatalf("byte by byte: %v", err)
	}
}

// Who reads a stream without a limit of writes late gets all.
func TestNoWriteLimit(t *testing.T) {
	for _, limited := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer b.Close()
			c := New(a)
			if err := c.Send(); !limited && err == nil {
				c.NoWriteLimit()
			}
			sent := make(chan error)
			go func() { sent <- c.Send(&Ping{N: 1}) }()
			time.Sleep(2 * WriteWithin) // of the bubble's clock
			if !limited {
				if _, err := Expect[*Ping](New(b)); err != nil {
					t.Error(err)
				}
			}
			if err := <-sent; errors.Is(err, os.ErrDeadlineExceeded) != limited {
				t.Errorf("limited %v: %v", limited, err)
			}
		})
	}
}

// What is slow to come, as from a file that packs well, is not taken for a peer
// that has stopped; one that has is cut off.
func TestT79SlowSender(t *testing.T) {
	for _, pause := range []time.Duration{FrameWithin / 3, 2 * FrameWithin} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			const n = 20
			var sender sync.WaitGroup
			sender.Go(func() {
				New(a).SendTransfer(&Send{X: 1, Of: OfTree}, func(w io.Writer) error {
					for range n {
						if _, err := w.Write([]byte("x")); err != nil {
							return err
						}
						time.Sleep(pause) // of the bubble's clock
					}
					return nil
				})
			})
			c := New(b)
			c.LimitFrames(FrameWithin)
			s, err := Expect[*Send](c)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(c.RecvTransfer(s))
			if slow := pause < FrameWithin; slow && (err != nil || len(text) != n) || !slow && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a byte each %v: %d bytes, %v", pause, len(text), err)
			}
			b.Close()
			sender.Wait()
		})
	}
}

// The time of a frame is that of its sender, however it is read: who reads it
// slowly loses nothing.
func TestT79SlowFrame(t *testing.T) {
	for _, tt := range []struct {
		what        string
		send, taken time.Duration // for each byte of a frame
		cut         bool
	}{
		{"a sender that drips", FrameWithin / 3, 0, true},
		{"a receiver that takes its time", 0, 2 * FrameWithin, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			const content = "ten bytes."
			said := append([]string{fmt.Sprintf(`{"m":"data","x":1,"n":%d}`+"\n", len(content))}, strings.Split(content, "")...)
			said = append(said, fmt.Sprintf(`{"m":"end","x":1,"bytes":%d,"sum":"%08x"}`+"\n", len(content), crc32.Checksum([]byte(content), castagnoli)))
			var sender sync.WaitGroup
			sender.Go(func() {
				for _, some := range said {
					if _, err := io.WriteString(a, some); err != nil {
						return
					}
					time.Sleep(tt.send)
				}
			})
			c := New(b)
			c.LimitFrames(FrameWithin)
			r := c.RecvTransfer(&Send{X: 1, Of: OfTree})
			var err error
			n := 0
			for one := make([]byte, 1); err == nil; n++ {
				_, err = io.ReadFull(r, one)
				time.Sleep(tt.taken)
			}
			if tt.cut && (!errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, ErrCut)) || !tt.cut && err != io.EOF {
				t.Errorf("%s: %v after %d bytes", tt.what, err, n)
			}
			b.Close()
			sender.Wait()
		})
	}
}

func TestSenderGivesUp(t *testing.T) {
	var out bytes.Buffer
	boom := errors.New("the file \"x\" changed while it was read")
	err := New(stream{nil, &out}).SendTransfer(&Send{X: 1, Of: OfTree}, func(w io.Writer) error {
		io.WriteString(w, "some")
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if _, err := receive(&out); !errors.Is(err, ErrGaveUp) || !strings.Contains(err.Error(), "changed while") {
		t.Fatal(err)
	}
}

func TestTooLongToSend(t *testing.T) {
	c := New(stream{nil, io.Discard})
	if err := c.Send(&Error{Text: strings.Repeat("x", MaxLine)}); err == nil {
		t.Fatal("a message over the limit was sent")
	}
}

func TestT85Versions(t *testing.T) {
	for _, tt := range []struct {
		peer [2]int
		ok   bool
	}{{[2]int{1, 1}, true}, {[2]int{0, 3}, true}, {[2]int{2, 3}, false}, {[2]int{0, 0}, false}, {[2]int{3, 1}, false}} {
		if err := CheckProto(tt.peer); (err == nil) != tt.ok {
			t.Errorf("%v: %v", tt.peer, err)
		}
	}
}

func TestGreet(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		answer     []Message
	}{
		{"let in", "", []Message{&Hello{Proto: Proto, Role: RoleHead, Spool: "s"}}},
		{"refused", "not known here", []Message{&Error{Status: 77, Text: "not known here"}}},
		{"not a head", "not a head", []Message{&Hello{Proto: Proto, Role: RoleNode}}},
		{"too new", "upgrade", []Message{&Hello{Proto: [2]int{7, 9}, Role: RoleHead}}},
		{"silent", "without a word", nil},
	} {
		a, b := net.Pipe()
		go func() {
			head := New(b)
			defer head.Close()
			if h, err := Expect[*Hello](head); err == nil && h.Role == RoleTool {
				head.Send(tt.answer...)
			}
		}()
		h, err := Greet(New(a), Hello{Role: RoleTool})
		if tt.want == "" && (err != nil || h.Spool != "s") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, %v", tt.name, h, err)
		}
	}
}

func FuzzRecv(f *testing.F) {
	for _, text := range examples(f) {
		f.Add([]byte(text + "\n"))
	}
	f.Add(append([]byte(`{"m":"data","x":1,"n":3}`+"\n"), "abc{}\n"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(stream{bytes.NewReader(b), io.Discard})
		for {
			m, err := c.Recv()
			if errors.Is(err, ErrUnknown) {
				continue
			}
			if err != nil {
				return
			}
			if _, ok := m.(*Data); ok {
				continue
			}
			text, err := encode(nil, m)
			if err != nil {
				t.Fatalf("%#v was read and cannot be written: %v", m, err)
			}
			again, err := reading(string(text)).Recv()
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			x, _ := json.Marshal(m)
			y, _ := json.Marshal(again)
			if !bytes.Equal(x, y) {
				t.Fatalf("%s is read again as %s", x, y)
			}
		}
	})
}

func BenchmarkMessages(b *testing.B) {
	pr, pw := io.Pipe()
	in, out := New(stream{pr, nil}), New(stream{nil, pw})
	m := &Ended{Attempt: job.NewToken()}
	m.Runtime, m.Entries = 1.5, 3
	go func() {
		for range b.N {
			out.Send(m)
		}
	}()
	for b.Loop() {
		if _, err := in.Recv(); err != nil {
			b.Fatal(err)
		}
	}
}
