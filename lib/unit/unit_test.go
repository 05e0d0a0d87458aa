package unit

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64 // -1: refused
	}{
		{"0", 0}, {"123", 123}, {"123B", 123}, {"1K", 1024}, {"512K", 512 << 10}, {"2G", 2 << 30}, {"2g", 2 << 30},
		{"2GB", 2 << 30}, {"2GiB", 2 << 30}, {"2gib", 2 << 30}, {"2gb", 2 << 30}, {"1.5T", 3 << 39}, {"0.5K", 512},
		{"1.0000000000000000001K", 1024}, {"0.999999999999999P", 1125899906842622}, {"1P", 1 << 50},
		{"8191P", 8191 << 50}, {"8191.9P", 8191<<50 + 1013309916158361}, {"9223372036854775807", math.MaxInt64},
		{"8192P", -1}, {"9223372036854775808", -1}, {"99999999999999999999999", -1},
		{"", -1}, {"K", -1}, {"1.5", -1}, {"1.5B", -1}, {".5K", -1}, {"1.K", -1}, {"1..5K", -1}, {"-1", -1}, {"+1", -1}, {" 1", -1},
		{"1 K", -1}, {"1KK", -1}, {"1X", -1}, {"1iB", -1}, {"1e3", -1}, {"0x10", -1}, {"1K1", -1}, {"1\x00", -1}, {"١", -1}, {"1_000", -1},
		{"1Ki", -1},
	} {
		got, err := ParseBytes(c.in)
		if c.want < 0 {
			if err == nil || !strings.Contains(err.Error(), strconv.Quote(c.in)) {
				t.Errorf("ParseBytes(%q) = %d, %v; want an error that quotes it", c.in, got, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for _, c := range []struct {
		in   int64
		want string
	}{
		{0, "0"}, {1023, "1023"}, {1024, "1K"}, {1536, "1.5K"}, {22 << 10, "22K"}, {14 << 30, "14G"}, {3 << 29, "1.5G"},
		{10<<20 - 1, "10M"}, {1<<20 - 1, "1M"}, {1023 << 20, "1023M"}, {64 << 30, "64G"}, {1 << 50, "1P"},
		{math.MaxInt64, "8192P"}, {-1536, "-1.5K"}, {math.MinInt64, "-8192P"},
	} {
		if got := FormatBytes(c.in); got != c.want {
			t.Errorf("FormatBytes(%d) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		in   string
		want time.Duration // -1: refused
	}{
		{"0", 0}, {"90", 90 * time.Second}, {"1.5", 1500 * time.Millisecond}, {"90s", 90 * time.Second}, {"1h30m", 90 * time.Minute},
		{"1h02m", 62 * time.Minute}, {"2d", 2 * day}, {"3d4h", 76 * time.Hour}, {"1w", 7 * day}, {"1.5h", 90 * time.Minute}, {"500ms", 500 * time.Millisecond},
		{"1m500ms", 60500 * time.Millisecond}, {"00:30:00", 30 * time.Minute}, {"100:00:01", 100*time.Hour + time.Second},
		{"1-12:00:00", 36 * time.Hour}, {"106751d", 106751 * day},
		{"", -1}, {"s", -1}, {"h1", -1}, {"1h30", -1}, {"30m1h", -1}, {"1h1h", -1}, {"1y", -1}, {"1H", -1}, {"-1h", -1}, {"+1h", -1},
		{" 1h", -1}, {"1 h", -1}, {".5h", -1}, {"1.h", -1}, {"1..5h", -1}, {".", -1}, {"30:00", -1}, {"1:60:00", -1}, {"1:00:60", -1}, {"1:0:0", -1},
		{"::", -1}, {"1-24:00:00", -1}, {"-1-02:00:00", -1}, {"1-1:00:00", -1}, {"a:00:00", -1}, {"1.5:00:00", -1}, {"106752d", math.MaxInt64},
		{"106751d24h", math.MaxInt64}, {"9999999999999999999s", math.MaxInt64}, {"1:0x:00", -1}, {"1h\n", -1},
		{"99999w", math.MaxInt64}, {"1w9999999999d", math.MaxInt64}, {"99999wx", -1}, {"99999w1w", -1}, {"99999999-00:00:00", math.MaxInt64},
	} {
		got, err := ParseDuration(c.in)
		if c.want == math.MaxInt64 {
			if want := strconv.Quote(c.in) + " is longer than can be counted"; got != c.want || err == nil || err.Error() != want {
				t.Errorf("ParseDuration(%q) = %v, %v; want the greatest, and %s", c.in, got, err, want)
			}
			continue
		}
		if c.want < 0 {
			if err == nil || !strings.Contains(err.Error(), strconv.Quote(c.in)) {
				t.Errorf("ParseDuration(%q) = %v, %v; want an error that quotes it", c.in, got, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{0, "0s"}, {999 * time.Millisecond, "0s"}, {12 * time.Second, "12s"}, {59900 * time.Millisecond, "59s"}, {time.Minute, "1m"},
		{2 * time.Minute, "2m"}, {125 * time.Second, "2m05s"}, {12*time.Minute + 59*time.Second, "12m"}, {time.Hour, "1h"},
		{62 * time.Minute, "1h02m"}, {220 * time.Minute, "3h40m"}, {24 * time.Hour, "1d"}, {76 * time.Hour, "3d4h"},
		{72*time.Hour + 59*time.Minute, "3d"}, {-90 * time.Second, "-1m30s"}, {math.MinInt64, "-106751d23h"},
	} {
		if got := FormatDuration(c.in); got != c.want {
			t.Errorf("FormatDuration(%v) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a.csv", "a.csv"}, {"two words", "two words"}, {"Übung", "Übung"}, {`say "no"`, `say "no"`},
		{"", `""`}, {`"a"`, `"\"a\""`}, {`a\n`, `"a\\n"`}, {"a\nb", `"a\nb"`}, {"a\tb", `"a\tb"`}, {"\x1b[31m", `"\x1b[31m"`}, {"\xff", `"\xff"`},
		{"a\u202eb", `"a\u202eb"`}, {"a\u00a0b", `"a\u00a0b"`}, {"\u009b", `"\u009b"`},
	} {
		if got := Quote(c.in); got != c.want {
			t.Errorf("Quote(%q) = %s, want %s", c.in, got, c.want)
		}
	}
}

// What is read is never negative, and what it is written as reads back to
// within a twentieth, the most that one decimal can lose.
func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"0", "2G", "1.5T", "8191.9P", "1K1", "", "-1", "9223372036854775807", "1.0000000000000000001K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseBytes(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("ParseBytes(%q) = %d", s, n)
		}
		back, err := ParseBytes(FormatBytes(n))
		if n >= 8191<<50 {
			return // written as 8192P, which is one byte too many
		}
		if err != nil || math.Abs(float64(back-n)) > float64(n)/20 {
			t.Fatalf("%d is written %q and read back as %d, %v", n, FormatBytes(n), back, err)
		}
	})
}

// What is read is never negative, and what it is written as reads back to the
// same text and to no more.
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"0", "90", "1h30m", "2d", "00:30:00", "1-12:00:00", "1.5h", "1w2d3h4m5s6ms", "30:00", "", "-1h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("ParseDuration(%q) = %v", s, d)
		}
		text := FormatDuration(d)
		back, err := ParseDuration(text)
		if err != nil || back > d || FormatDuration(back) != text {
			t.Fatalf("%v is written %q and read back as %v, %v", d, text, back, err)
		}
	})
}
