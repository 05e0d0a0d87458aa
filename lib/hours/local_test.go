package hours

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A machine without the file of its time zone has UTC, as localtime(5) says.
func TestLocalWithoutFile(t *testing.T) {
	t.Setenv("TZ", "") // is set back at the end
	os.Unsetenv("TZ")
	defer func(file string, zone *time.Location) { Localtime, time.Local = file, zone }(Localtime, time.Local)
	Localtime, time.Local = filepath.Join(t.TempDir(), "localtime"), time.FixedZone("XST", 3600)
	if _, offset := Local(time.Now()).Zone(); offset != 0 {
		t.Errorf("it is %d seconds off UTC", offset)
	}
	if err := os.WriteFile(Localtime, []byte("no zone"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, offset := Local(time.Now()).Zone(); offset != 3600 {
		t.Errorf("with a file that is no zone it is %d seconds off UTC", offset)
	}
}
