package account

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
)

// A directory service as getent shows it: bo is in the group by its line, ana by
// her account, gone is a member without an account.
const service = `#!/bin/sh
case "$1 $2" in
"passwd ana") echo 'ana:x:1001:50:Ana:/home/ana:/bin/sh';;
"passwd bo") echo 'bo:x:1002:60::/home/bo:/bin/sh';;
"passwd down") exit 1;;
"passwd ") echo 'ana:x:1001:50:Ana:/home/ana:/bin/sh'; echo 'bo:x:1002:60::/home/bo:/bin/sh'; echo garbage;;
"group lab") echo 'lab:x:50:bo,gone';;
*) exit 2;;
esac
`

func TestUIDs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/getent", []byte(service), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	tests := []struct {
		names []string
		uids  []int
		wrong string
	}{
		{nil, nil, ""},
		{[]string{"ana"}, []int{1001}, ""},
		{[]string{"@lab", "bo"}, []int{1001, 1002}, ""},
		{[]string{"nobody-here", "ana"}, []int{1001}, `"nobody-here": there is no such account`},
		{[]string{"@none"}, nil, `"@none": there is no such account`},
		{[]string{"down"}, nil, `"down": getent passwd`},
		{[]string{"-x", "@", "@a b"}, nil, "is no user's name"},
	}
	for _, tt := range tests {
		uids, err := UIDs(context.Background(), tt.names)
		if !slices.Equal(uids, tt.uids) || (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%q: %v, %v", tt.names, uids, err)
		}
	}
}
