package job

import (
	"encoding/json"
	"strings"
	"testing"

	"distribute/lib/line"
)

func TestParseGPUs(t *testing.T) {
	for text, want := range map[string]GPUs{
		"0": 0, "1": 1000, "2": 2000, "1024": 1024000, "0.5": 500, "0.50": 500, "0.25": 250, "0.125": 125, "0.01": 10, "0.999": 999, "3.0": 3000, "00.1": 100,
	} {
		got, err := ParseGPUs(text)
		if err != nil || got != want || got.check() != nil {
			t.Errorf("%s is %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"1.5":    `"1.5" is neither whole GPUs nor a part of one: write 1 or 2, or a part below 1 as 0.5`,
		"7.25":   `"7.25" is neither whole GPUs nor a part of one: write 7 or 8, or a part below 1 as 0.5`,
		"0.009":  `"0.009" is less than 0.01, the least part of a GPU`,
		"0.3333": `"0.3333" is finer than GPUs are counted: write at most three digits behind the point, as 0.333`,
		"":       `"" is no amount of GPUs: write a whole number from 0 to 1024, or a part of one as 0.5`,
		"-1":     "is no amount of GPUs", ".5": "is no amount of GPUs", "1.": "is no amount of GPUs", "5e-1": "is no amount of GPUs", "+1": "is no amount of GPUs",
		"1/2": "is no amount of GPUs", "half": "is no amount of GPUs", "1025": "is no amount of GPUs", "99999999999999999999": "is no amount of GPUs", "NaN": "is no amount of GPUs",
		"0.1 ": "is no amount of GPUs", "1.2.3": "is no amount of GPUs",
	} {
		if got, err := ParseGPUs(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %d, %v; want %s", text, got, err, want)
		}
	}
	for _, g := range []GPUs{-1, 1, 9, 1001, 1500, 1024001, 1025000} {
		if g.check() == nil {
			t.Errorf("a job may ask for %s", g)
		}
	}
}

// What older programs wrote, whole numbers, is read as ever, and written as ever.
func TestGPUsJSON(t *testing.T) {
	for text, want := range map[string]GPUs{`{"gpus":2}`: 2000, `{"gpus":0.5}`: 500, `{"gpus":0.125}`: 125, `{"gpus":-1}`: -1000, `{}`: 0} {
		var r Resources
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.GPUs != want {
			t.Errorf("%s is %v, %v", text, r.GPUs, err)
		}
		if b, err := json.Marshal(r); err != nil || string(b) != text {
			t.Errorf("%s is written as %s, %v", text, b, err)
		}
	}
	for _, text := range []string{`{"gpus":"1"}`, `{"gpus":0.1234}`, `{"gpus":1e0}`, `{"gpus":9999999999}`, `{"gpus":[1]}`, `{"gpus":true}`} {
		var r Resources
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s is %v", text, r.GPUs)
		}
	}
}

// FuzzGPUs has the fast reader and that of JSON agree, and what is read be written as a
// number that is read the same.
func FuzzGPUs(f *testing.F) {
	for _, s := range []string{"0.5", "2", "-0.25", "1.5", "1e3", "0.1234", "10000000000", "01", "1000000000.999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var slow GPUs
		err := json.Unmarshal([]byte(text), &slow)
		var fast GPUs
		s := line.Scan{B: []byte(text)}
		if fast.ScanJSON(&s) && s.I == len(s.B) && (err != nil || fast != slow) {
			t.Fatalf("%q is %d, and %d by JSON (%v)", text, fast, slow, err)
		}
		if err != nil {
			return
		}
		var again GPUs
		if b, err := json.Marshal(slow); err != nil || json.Unmarshal(b, &again) != nil || again != slow {
			t.Fatalf("%q is written as %s, %v", text, b, err)
		}
		if asked, err := ParseGPUs(text); err == nil && (asked != slow || asked.check() != nil) {
			t.Fatalf("%q asks for %s, and is %s by JSON", text, asked, slow)
		}
	})
}

func TestGPUWords(t *testing.T) {
	for g, want := range map[GPUs]string{1000: "1 gpu", 2000: "2 gpus", 500: "0.5 of a gpu", 10: "0.01 of a gpu", 0: "0 gpus"} {
		if got := g.Words("gpu"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
