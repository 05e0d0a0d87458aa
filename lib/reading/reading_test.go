package reading

import (
	"strings"
	"testing"
)

// read reads a value of a text, which comes in parts.
func read(t *testing.T, what, text string) string {
	t.Helper()
	r, err := Parse("v=file:" + what)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return ""
	}
	parser := r.NewParser()
	for i := 0; i < len(text); i += 7 {
		parser.Write([]byte(text[i:min(i+7, len(text))]))
	}
	s, err := parser.Value()
	if err != nil {
		return "file " + err.Error()
	}
	return s
}

func TestValues(t *testing.T) {
	const doc = `{"energy": -1.250e-3, "name": "a\tb\u0007 ", "ok": true, "nothing": null, "big": 123456789012345678901234567890,
"runs": [{"err": 0.1}, {"err": [1, "x<y"]}], "max error": 2, "nan": NaN, "list": [-Infinity, "NaN\"", 3], "a-b": 1, "e": ""}`
	const printed = "step 1 error = 0.5\r\nstep 2 error = 0.25\nother\nstep 3 error = 1e-9"
	const csv = "n,drag,\"name, long\"\n# a comment\n64,1.5,\"x, y\"\n128,-2e3,z\n256,nan,\n"
	for _, c := range []struct{ what, text, want string }{
		{".energy", doc, "-1.250e-3"},
		{".name", doc, "a b"},
		{".ok", doc, "true"},
		{".big", doc, "123456789012345678901234567890"},
		{".nothing", doc, "file has null at .nothing: it is not there"},
		{".runs[0].err", doc, "0.1"},
		{".runs[-1].err", doc, `[1,"x<y"]`},
		{".runs.[1].err[1]", doc, "x<y"},
		{".runs[2]", doc, "file has no .runs[2]: it is not there"},
		{".runs[0].none.more", doc, "file has no .runs[0].none: it is not there"},
		{`.["max error"]`, doc, "2"},
		{`["max error"]`, "n\n1\n", `file has no column "[\"max error\"]", but n: it is not there`},
		{".a-b", doc, "1"},
		{".nan", doc, "NaN"},
		{".list", doc, `["-Infinity","NaN\"",3]`},
		{".list[1]", doc, `NaN"`},
		{".e", doc, "file has nothing there: it is not there"},
		{".error", `{"energy": 0.5, "error": nan, "limit": -inf}`, "NaN"},
		{".limit", `{"energy": 0.5, "error": nan, "limit": -inf}`, "-Infinity"},
		{".energy", `{"energy": 0.5, "error": nan, "limit": -inf}`, "0.5"},
		{".", `["nan, \" inf", -nan, NAN, nan(0x8000), -nan(ind), 1.#QNAN, -1.#IND, -1.#INF000, inf, +Inf, +Infinity, 1.5, null]`,
			`["nan, \" inf","NaN","NaN","NaN","NaN","NaN","NaN","-Infinity","Infinity","Infinity","Infinity",1.5,null]`},
		{".x", `{"x": nano}`, "file is not JSON: invalid character 'a' in literal null (expecting 'u')"},
		{".", "7\n8 ", "8"},
		{".x", "{\"x\":1}\n{\"x\":2}\n", "2"},
		{".x", "", "file is empty"},
		{".x", "{\"x\":", "file is not JSON: unexpected EOF"},
		{".x", "3", "file has no .x: it is not there"},
		{".[0]", "[\"" + strings.Repeat("x", MaxValue+1) + "\"]", "file has a value of more than 4096 bytes there"},
		{".x", "[" + strings.Repeat(" ", MaxJSON) + "]", "file has more than 67108864 bytes, which is the limit for JSON"},

		{`/error = (\S+)/`, printed, "1e-9"},
		{`/error = (\S+)/1`, printed, "0.5"},
		{`/error = (\S+)/-2`, printed, "0.25"},
		{`/error = (\S+)/4`, printed, `file has 3 lines that /error = (\S+)/ fits: it is not there`},
		{`/error = (\S+)/-4`, printed, `file has 3 lines that /error = (\S+)/ fits: it is not there`},
		{`/error: (\S+)/`, printed, `file has no line that /error: (\S+)/ fits: it is not there`},
		{`/st.p [0-9]/`, printed, "step 3"},
		{`/^(x)?other/`, printed, "file has nothing there: it is not there"},
		{`/a/b/`, "x a/b y", "a/b"},
		{`/loss=(\S+)/`, "\rloss=3.5\rloss=2.25\rloss=1.125\n", "1.125"},
		{`/loss=(\S+)/2`, "\rloss=3.5\rloss=2.25\rloss=1.125\r\nend\r\n", "2.25"},
		{`/loss=(\S+)/`, strings.Repeat("loss=1\r", MaxLine/7) + "loss=2", "2"},
		{`/^.*$/-3`, "a\r\n\r\nb\r\n", "a"},
		{`/x (.*)/`, "x \xff\x1b\u202ey", "\ufffd  y"},
		{`/loss=(\S+)/`, "\x1b[1mloss\x1b[0m=\x1b[38;5;2m0.5000\x1b[0m\n", "0.5000"},
		{`/at (\S+)/`, "at \x1b]8;;http://x\x1b\\3\x1b]8;;\x1b\\ \x1b]0;title\a\n", "3"},
		{`/x=(.*)/`, "x=0.5\x1b(B\x1b[m\n", "0.5"},
		{`/x=(\S+)/`, "\x1b7x=0.5\x1b8\x1b=\n", "0.5"},
		{`/x=(\S+)/`, "x=0.5\x1b[ \n", "0.5 ["},
		{"2[max]", "\x1b[1mn v\x1b[0m\n1 \x1b[32m5\x1b[0m\n", "5"},
		{`/x/`, strings.Repeat("y", MaxLine) + "x", `file has no line that /x/ fits: it is not there`},
		{`/x/`, strings.Repeat("y", MaxLine) + "x\nax", `x`},

		{"drag", csv, "nan"},
		{"drag[0]", csv, "1.5"},
		{"drag[-2]", csv, "-2e3"},
		{"drag[max]", csv, "1.5"},
		{"drag[min]", csv, "-2e3"},
		{"name, long[0]", csv, "x, y"},
		{"name, long", csv, "file has nothing there: it is not there"},
		{"2[1]", csv, "-2e3"},
		{"drag[3]", csv, "file has 3 rows: it is not there"},
		{"lift", csv, `file has no column "lift", but n, drag, name, long: it is not there`},
		{"name, long[max]", csv, `file has "x, y" in line 3, column "name, long", which is no number: write it as 1234.5 or 1.2345e3`},
		{"a[max]", "a,b\n,1\nnan,2\n", `file has no number in the column "a": it is not there`},
		{"p[max]", "p\n900\n\"1,234\"\n", `file has "1,234" in line 3, column "p", which is no number: write it as 1234.5 or 1.2345e3`},
		{"p[min]", "p;q\n0,5;1\n0,25;2\n", `file has 0,5 in line 2, column "p", with a decimal comma: write it with a point`},
		{"2", "64;0,25\n128;0,5\n", `file has 0,25 in line 1, column "2", with a decimal comma: write it with a point`},
		{"1[max]", "64;0,25\n128;0,5\n", "128"},
		{"1", "1.234,5;2\n2.345,5;3\n", `file has 1.234,5 in line 1, column "1", with a decimal comma: write it with a point`},
		{"2", "Zeit;Druck, Pa\n1;2,5\n2;3,5\n", `file has 1;2,5 in line 2, with a decimal comma: write it with a point`},
		{"2", "n;m,err\n1,5\n2,7\n", "7"},
		{"err", "# n err\n64 2,5e-1\n", `file has 2,5e-1 in line 2, column "err", with a decimal comma: write it with a point`},
		{"2", "run 1,5\nrun 2,25\n", "25"},
		{"2", "1 ,2 ,3\n4 ,5 ,6\n", "5"},
		{"2", "a;b,0.5\n1;2,0.25\n", "0.25"},
		{"p[min]", "# p q\n 0.1 1\n ***** 2\n", `file has "*****" in line 3, column "p", which is no number: write it as 1234.5 or 1.2345e3`},
		{"p[min]", "p q\n 0.15-101 1\n 0.2 2\n", "0.15-101"},
		{"p[max]", "p q\n -.15+101 1\n 1.2D+99 2\n 0.9+100 3\n", "0.9+100"},
		{"p[max]", "p q\n -nan 1\n 2 2\n -nan(ind) 3\n 1.#QNAN 4\n", "2"},
		{"p[min]", "p q\n -1.#INF 1\n 2 2\n", "-1.#INF"},
		{"p[max]", "p q\n 2024-101 1\n", `file has "2024-101" in line 2, column "p", which is no number: write it as 1234.5 or 1.2345e3`},
		{"2[0]", "2024-01-01,5\n2024-01-02,7\n", "5"},
		{"2[max]", "12:00:09 9\n12:00:10 7\n", "9"},
		{"2[max]", "run9;9\nrun10;7\n", "9"},
		{"2[max]", "co2,2019\nn2o,1\n", "1"},
		{"1[max]", "2019 of\n3 x1\n", "3"},
		{"2[0]", "10:00 ok\n11:30 bad\n", "ok"},
		{"2[0]", "run1 ok\nrun2 5\n", "ok"},
		{"3", "n,drag\n1,2\n", `file has no column "3", but n, drag: it is not there`},
		{"2[0]", "at state\n10:00 ok\n11:30 bad\n", "ok"},
		{"2", "2024-01-01,5\n", "file has 0 rows: it is not there"},
		{"drag", "n,drag\n", "file has 0 rows: it is not there"},
		{"drag", "", "file is empty"},
		{"drag", "n,drag\n1\n", "file is no table: line 2 has 1 cell, and the first has 2"},
		{"drag", "n,drag\n1,\"x\ny\n", `file has a line, number 2, that is no row of a table: extraneous or missing " in quoted-field`},
		{"drag", "drag\tdrag\n1\t2\n", `file has two columns "drag"`},
		{"err", "# by solver 3\n# t   err\n 0  1.0D+03\n 1\t2.5D-1\n", "2.5D-1"},
		{"err", "# by solver 3\n# t   err\n 0  1.0D+03\n 1  2.5D-1\n", "2.5D-1"},
		{"err[max]", "# t   err\n 0  1.0D+03\n 1  2.5D-1\n#end", "1.0D+03"},
		{"initial[max]", "# Time solver initial\n0.1 PCG 9e-1\n0.2 PCG 1e-2\n", "9e-1"},
		{"3[0]", "# Time solver initial\n0.1 PCG 9e-1\n0.2 PCG 1e-2\n", "9e-1"},
		{"n[0]", "# norms of the error\nn,l1,l2,inf\n64,1,2,3\n", "64"},
		{"inf[0]", "# norms of the error\nn l1 l2 inf\n64 1 2 3\n", "3"},
		{"2[0]", "# data of 2010\ncountry,2010,2011\nDE,5,6\n", "5"},
		{"solver", "# Time solver initial\n0.1 PCG 9e-1\n0.2 GAMG 1e-2\n", "GAMG"},
		{"initial[max]", "# made by hand\ntime solver initial\n0.1 PCG 9e-1\n", "9e-1"},
		{"2[max]", "case_a,0.9\ncase_b,0.5\n", "0.9"},
		{"2", "energy -1.5\n", "-1.5"},
		{"2[max]", "case_a,9e-5\ncase_b,5e-5\n", "9e-5"},
		{"2[max]", "case_a 9D+05\ncase_b 5D+05\n", "9D+05"},
		{"2[0]", "n,1e-3,1e-4\n64,5,7\n", "5"},
		{"1e-4", "lr,1e-3,1e-4\nadam,5,7\n", "7"},
		{"2[0]", "n l1 l2 inf\na 1 2 3\n", "1"},
		{"2[0]", "# name status\nrun1 ok\nrun2 fail\n", "ok"},
		{"status[0]", "# name status\nrun1 ok\nrun2 fail\n", "ok"},
		{"2[0]", "# made by hand\ntime solver initial\n0.1 PCG 9e-1\n", "PCG"},
		{"solver", "# made by hand\ntime solver initial\nx PCG 9e-1\n", "PCG"},
		{"3[max]", "# made by hand\ntime solver initial\nx PCG 9e-1\n", "9e-1"},
		{"2", "# name status\nrun1 ok\n", "ok"},
		{"2[0]", "# name, status\nname,status\nrun1,ok\n", "ok"},
		{"0.2[0]", "n,0.1,0.2\n64,5,7\n", "7"},
		{"2[0]", ",0,1\na,5,7\n", "5"},
		{"2[0]", "n,0.1,0.2\n64,5,7\n", "5"},
		{"1[max]", "r 0.1 0.5\n0 1 2\n1 2 3\n", "1"},
		{"2[min]", ",0.1,0.2\na,5,7\n", "5"},
		{"2[min]", "case_a,0.9\n,0.5\n", "0.5"},
		{"3[0]", "1,N/A,0.9\n2,0.5,0.8\n", "0.9"},
		{"1", "case_a,0.9", "case_a"},
		{"1[max]", "case_a,0.9", `file has "case_a" in line 1, column "1", which is no number: write it as 1234.5 or 1.2345e3`},
		{"2", "0 1\n1 4\n", "4"},
		{"3", "0 1\n1 4\n", `file has no column "3", but 2 columns: it is not there`},
		{"b", "\ufeffa;b\r\n1;2\r\n", "2"},
		{"b", "a;b\r1;2\r", "2"},
		{"b", "a;b\n\x1b[1m1;" + strings.Repeat("2", MaxLine-5), "file has a line, number 2, of more than 1048576 bytes"},
		{"b", "a;b\n1;" + strings.Repeat("2", MaxLine), "file has a line, number 2, of more than 1048576 bytes"},
	} {
		if got := read(t, c.what, c.text); got != c.want {
			t.Errorf("%s of %.60q:\n got %s\nwant %s", c.what, c.text, got, c.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for operand, want := range map[string]string{
		"2x=a:.b":        `"2x" cannot name a parameter: a letter or _ comes first, then letters, digits, _ . and -, at most 100`,
		"e=summary.json": `e: "summary.json" says not what is to be read of which file: write FILE:.MEMBER, FILE:/EXPRESSION/ or FILE:COLUMN`,
		"e=:.x":          `e: ":.x" says not what is to be read of which file: write FILE:.MEMBER, FILE:/EXPRESSION/ or FILE:COLUMN`,
		"e=a:":           `e: "a:" says not what is to be read of which file: write FILE:.MEMBER, FILE:/EXPRESSION/ or FILE:COLUMN`,
		"e=a:.x..y":      `e: ".x..y" is no path in JSON at "..y": write .member, ["member"] or [index]`,
		"e=a:.x[y]":      `e: ".x[y]" is no path in JSON at "[y]": write .member, ["member"] or [index]`,
		`e=a:.["\x"]`:    `e: "\\x" is no text of JSON`,
		"e=a:/x":         `e: "/x" has no second /, which ends an expression`,
		"e=a://":         `e: the expression is empty`,
		"e=a:/(/":        "e: \"(\" is no expression: error parsing regexp: missing closing ): `(`",
		"e=a:/x/0":       `e: "0" behind the expression is no number that says which line, from 1, or from -1 to -10000`,
		"e=a:/x/-10001":  `e: "-10001" behind the expression is no number that says which line, from 1, or from -1 to -10000`,
		"e=a:x[-10001]":  `e: row -10001: no more than 10000 from the end can be asked for`,
		"e=out_{n.csv:x": `e: "out_{n.csv": a parameter stands in braces, as {n}`,
		"e=out_{}.csv:x": `e: "out_{}.csv": a parameter stands in braces, as {n}`,
	} {
		_, err := Parse(operand)
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", operand, err, want)
		}
	}
}

func TestFile(t *testing.T) {
	param := func(name string) (string, bool) { return "7", name == "n" }
	for operand, want := range map[string]string{
		"e=_output.txt:/x:.y/": "j_output.txt",
		"e=a:b/{n}_{job}{n}:3": "a:b/7_j7",
		"e=sub/_output.txt:.x": "sub/_output.txt",
		"e={m}.csv:x":          `it has no parameter "m", which the name of the file has`,
	} {
		r, err := Parse(operand)
		if err != nil {
			t.Errorf("%s: %v", operand, err)
			continue
		}
		got, err := r.File("j", param)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", operand, got, want)
		}
	}
}

// Whatever a file has in it, a value is one line of text.
func FuzzReading(f *testing.F) {
	for _, what := range []string{".a[0].b", `.["a"]`, "/x(.*)/-2", "/(?i)y/1", "col", "2[max]", "1[-3]", "a[0]"} {
		f.Add(what, []byte("{\"a\":[{\"b\":NaN}]}\nx 1\ncol,2\n\"3\",4\n"))
		f.Add(what, []byte("# a col\n1 2\n3 4\n"))
	}
	f.Fuzz(func(t *testing.T, what string, text []byte) {
		r, err := Parse("v=f:" + what)
		if err != nil {
			return
		}
		whole, parts := r.NewParser(), r.NewParser()
		whole.Write(text)
		for i := range text {
			parts.Write(text[i : i+1])
		}
		a, err := whole.Value()
		b, perr := parts.Value()
		if a != b || (err == nil) != (perr == nil) {
			t.Fatalf("%q, %v and in parts %q, %v", a, err, b, perr)
		}
		if err == nil && (a == "" || len(a) > 3*MaxValue || strings.ContainsAny(a, "\t\n\r\x00\x1b")) {
			t.Fatalf("a value is %q", a)
		}
	})
}
