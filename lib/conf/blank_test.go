package conf

import "testing"

func TestBlank(t *testing.T) {
	for text, want := range map[string]bool{"": true, "\n # x\n\t\n#y": true, "a: 1": false, "# x\n---\n": false} {
		if got := Blank([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
