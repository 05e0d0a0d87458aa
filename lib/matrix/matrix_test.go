package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

// open makes a client of the server, with a token.
func open(t *testing.T, url string) *Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, fmt.Sprintf(`{"access_token": "hidden", "homeserver_url": %q, "matrix_id": "@bot:b", "matrix_users": ["@*:b"]}`, url))
	c, err := Open(file, "", "@operator:c")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestParse(t *testing.T) {
	const good = `{"matrix_username": "bot", "matrix_password": "hidden", "homeserver_url": "https://matrix.example.org/", "matrix_id": "@bot:matrix.example.org"}`
	c, err := parse([]byte(good))
	if err != nil || c.URL != "https://matrix.example.org" || c.User != "bot" {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := parse([]byte(`{"access_token": "hidden", "homeserver_url": "http://127.0.0.1:8008", "matrix_id": "@bot:a"}`)); err != nil {
		t.Errorf("a token is enough: %v", err)
	}
	for text, want := range map[string]string{
		"":                                     "no object of JSON",
		"[]":                                   "no object of JSON",
		good + good:                            "no object of JSON",
		`{"matrix_password": ["hidden"]}`:      "no object of JSON",
		strings.Replace(good, "hidden", "", 1): "matrix_password are wanted",
		strings.Replace(good, "@bot:", "bot:", 1):                                              `matrix_id is bot:matrix.example.org, and has to be`,
		strings.Replace(good, "https:", "http:", 1):                                            "has to begin with https://",
		strings.Replace(good, "https://", "https://me@", 1):                                    "homeserver_url has to be as",
		strings.Replace(good, "https:", "ftp:", 1):                                             "has to begin with https://",
		`{"access_token": "hidden\n", "homeserver_url": "https://a", "matrix_id": "@bot:a"}`:   "characters that no token has",
		`{"access_token": "hidden", "homeserver_url": "` + "\x00" + `"}`:                       "no object",
		`{"access_token": "hidden", "homeserver_url": "https://a"}`:                            "matrix_id is",
		strings.Replace(good, `{`, `{"matrix_users": ["*"], `, 1):                              `matrix_users has to be a list of "@user:server"`,
		`{"access_token": "hidden", "homeserver_url": "http://10.0.0.1", "matrix_id": "@b:a"}`: "has to begin with https://",
	} {
		_, err := parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%.60q: %v; want %q", text, err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, `{"access_token": "x", "homeserver_url": "https://a", "matrix_id": "@bot:a"}`)
	for mode, want := range map[os.FileMode]error{0o600: nil, 0o640: nil, 0o644: ErrCredentials, 0o602: ErrCredentials} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, ""); !errors.Is(err, want) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if _, err := Open(filepath.Dir(path), ""); !errors.Is(err, ErrCredentials) {
		t.Errorf("a directory: %v", err)
	}
	write(t, path+"2", strings.Repeat(" ", maxFile+1))
	if _, err := Open(path+"2", ""); !errors.Is(err, ErrCredentials) {
		t.Errorf("a long file: %v", err)
	}
}

// What a server says that is no answer of Matrix is an error that says so.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status       int
		header, body string
		want         string
		after        time.Duration
	}{
		{200, "", "{}", "", 0},
		{500, "", "<html>", "the server says 500", 0},
		{302, "", "", "the server says 302", 0},
		{403, "", `{"errcode": "M_FORBIDDEN", "error": "no\nway"}`, `the server says 403 M_FORBIDDEN "no\nway"`, 0},
		{429, "", `{"retry_after_ms": 1500}`, "the server says 429", 1500 * time.Millisecond},
		{429, "7", `{}`, "the server says 429", 7 * time.Second},
		{429, "", `{"retry_after_ms": 1e300}`, "the server says 429", maxAfter},
		{429, "", `{"retry_after_ms": -5}`, "the server says 429", 0},
		{429, "-3", "", "the server says 429", 0},
		{503, "7", "<html>", "the server says 503", 7 * time.Second},
		{403, "7", "", "the server says 403", 0},
		{200, "", "[]", "the server answers with what is not of the Matrix API", 0},
		{200, "", "<html>", "the server answers with what is not of the Matrix API", 0},
		{200, "", strings.Repeat("x", maxAnswer+1), "the server answers with more than 1 MiB", 0},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("it has followed a redirection")
			}
			if r.Header.Get("Authorization") != "Bearer hidden" {
				t.Error("no token")
			}
			w.Header().Set("Location", "/elsewhere")
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		err := open(t, s.URL).call(context.Background(), "PUT", "rooms/x/send/m.room.message/1", map[string]string{}, &struct{}{})
		s.Close()
		text, after := "", time.Duration(0)
		var e *Error
		if err != nil {
			text = err.Error()
		}
		if errors.As(err, &e) {
			after = e.After
		}
		if text != c.want || after != c.after {
			t.Errorf("%d %.40q: %q after %v; want %q after %v", c.status, c.body, text, after, c.want, c.after)
		}
	}
}

// A room that the server names and that is none is not asked for. One of those that are
// known is taken if it can be joined and the user is in it; or else one is made, and noted
// beside the others.
func TestRooms(t *testing.T) {
	made, noted := "!new:b", ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := 200, "{}"
		switch p := r.URL.Path; {
		case strings.HasSuffix(p, "m.direct") && r.Method == "GET":
			text = `{"@ana:b": ["!kicked:b", "!left:b", "no room", "../../x"], "@bo:b": ["!there:b", "!left:b"]}`
		case strings.HasSuffix(p, "m.direct"):
			b, _ := io.ReadAll(r.Body)
			noted = string(b)
		case strings.HasSuffix(p, "!kicked:b/join"):
			status, text = 403, `{"errcode": "M_FORBIDDEN"}`
		case strings.HasSuffix(p, "!there:b/join"), strings.HasSuffix(p, "!left:b/join"):
		case strings.Contains(p, "!there:b/state"):
			text = `{"membership": "join"}`
		case strings.Contains(p, "!left:b/state"):
			text = `{"membership": "leave"}`
		case strings.Contains(p, "/rooms/"):
			t.Errorf("asked for %s", p)
		case strings.HasSuffix(p, "createRoom"):
			text = fmt.Sprintf(`{"room_id": %q}`, made)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	c := open(t, s.URL)
	if room, err := c.room(context.Background(), "@bo:b"); room != "!there:b" || err != nil || noted != "" {
		t.Errorf("%q, %v, and noted %s", room, err, noted)
	}
	room, err := c.room(context.Background(), "@ana:b")
	if want := `{"@ana:b":["!kicked:b","!left:b","no room","../../x","!new:b"],"@bo:b":["!there:b","!left:b"]}`; room != "!new:b" || err != nil || noted != want {
		t.Errorf("%q, %v, and noted %s", room, err, noted)
	}
	made = "../x"
	if _, err := c.room(context.Background(), "@ana:b"); err == nil {
		t.Error("a room that is none")
	}
}

// Whom the file does not name, and Open does not, gets a room only by his own invitation:
// one that another has sent for him, that is to another, or that is no invitation, is none.
// A room to which he was once invited is not taken while he is not in it.
func TestStrangers(t *testing.T) {
	invite, asked, noted := `{"type": "m.room.member", "state_key": "@bot:b", "sender": "@eve:c", "content": {"membership": "invite"}}`, 0, ""
	made, in := 0, "join"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := "{}"
		switch p := r.URL.Path; {
		case strings.HasSuffix(p, "m.direct") && r.Method == "GET":
			text = `{"@eve:c": ["!invited:b"]}`
		case strings.HasSuffix(p, "m.direct"):
			b, _ := io.ReadAll(r.Body)
			noted = string(b)
		case strings.HasSuffix(p, "sync"):
			asked++
			text = fmt.Sprintf(`{"rooms": {"invite": {"../x": {"invite_state": {"events": [%[1]s]}}, "!hers:c": {"invite_state": {"events": [{}, %[1]s]}}}}}`, invite)
		case strings.Contains(p, "!invited:b/state"):
			text = `{"membership": "invite"}`
		case strings.Contains(p, "!hers:c/state"):
			text = fmt.Sprintf(`{"membership": %q}`, in)
		case strings.HasSuffix(p, "createRoom"):
			made++
			text = `{"room_id": "!new:b"}`
		}
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	right := invite
	other := strings.Replace(right, "@eve:c", "@mallory:d", 1)
	for _, both := range []string{right + ", " + other, other + ", " + right} { // the first part is of the server of who invites
		invite = both
		if room, err := open(t, s.URL).room(context.Background(), "@eve:c"); room != "" || !errors.Is(err, ErrStranger) || noted != "" {
			t.Errorf("invited by %s: %q, %v, and noted %s", invite, room, err, noted)
		}
	}
	for _, wrong := range [][2]string{{"@eve:c", "@eva:c"}, {"@bot:b", "@eve:c"}, {`"invite"}`, `"join"}`}, {"m.room.member", "m.room.name"}} {
		invite = strings.Replace(right, wrong[0], wrong[1], 1)
		if room, err := open(t, s.URL).room(context.Background(), "@eve:c"); room != "" || !errors.Is(err, ErrStranger) || noted != "" {
			t.Errorf("invited by %s: %q, %v, and noted %s", invite, room, err, noted)
		}
	}
	invite = right
	c := open(t, s.URL)
	asked = 0
	for range 3 {
		if _, err := c.room(context.Background(), "@ivo:c"); !errors.Is(err, ErrStranger) {
			t.Errorf("of ivo: %v", err)
		}
	}
	in = "invite"
	if room, err := c.room(context.Background(), "@eve:c"); room != "" || !errors.Is(err, ErrStranger) {
		t.Errorf("in a room in which she is not: %q, %v", room, err)
	}
	in, noted = "join", ""
	room, err := c.room(context.Background(), "@eve:c")
	if want := `{"@eve:c":["!invited:b","!hers:c"]}`; room != "!hers:c" || err != nil || noted != want || asked != 1 {
		t.Errorf("%q, %v, and noted %s, asked %d times", room, err, noted, asked)
	}
	if room, err := c.room(context.Background(), "@operator:c"); room != "!new:b" || err != nil || made != 1 {
		t.Errorf("of the operator: %q, %v; made %d", room, err, made)
	}
	write(t, c.path, fmt.Sprintf(`{"access_token": "hidden", "homeserver_url": %q, "matrix_id": "@bot:b", "matrix_users": ["@ivo:c"]}`, s.URL))
	if room, err := c.room(context.Background(), "@ivo:c"); room != "!new:b" || err != nil {
		t.Errorf("of ivo, whom the file names now: %q, %v", room, err)
	}
}

// Invitations by strangers, of which anybody sends as many as he likes, keep no message from
// those whom the file names. However many strangers there are, the server is asked little.
func TestManyStrangers(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		text := "{}"
		switch p := r.URL.Path; {
		case strings.HasSuffix(p, "sync") && asked > 100:
			text = strings.Repeat(" ", maxAnswer+1)
		case strings.HasSuffix(p, "createRoom"):
			text = `{"room_id": "!new:b"}`
		}
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	c := open(t, s.URL)
	for i := range 50 {
		if _, err := c.room(context.Background(), fmt.Sprintf("@u%d:c", i)); !errors.Is(err, ErrStranger) {
			t.Errorf("of a stranger: %v", err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	asked = 100
	if room, err := open(t, s.URL).room(context.Background(), "@ana:b"); room != "!new:b" || err != nil {
		t.Errorf("of ana, whom the file names: %q, %v", room, err)
	}
}

// Who is not let in is told by ErrCredentials, also by a server that refuses the account;
// then the file is read again, and the same message goes as the same transaction of the
// same device.
func TestRefused(t *testing.T) {
	var sent []string
	file := filepath.Join(t.TempDir(), "file")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := 200, "{}"
		b, _ := io.ReadAll(r.Body)
		switch p := r.URL.Path; {
		case strings.HasSuffix(p, "login") && strings.Contains(string(b), "right"):
			text = `{"access_token": "t"}`
			if !strings.Contains(string(b), `"device_id":"desk"`) {
				t.Errorf("login %s", b)
			}
		case strings.HasSuffix(p, "login"):
			status, text = 403, `{"errcode": "M_FORBIDDEN", "error": "no\u001b[31m"}`
		case strings.Contains(p, "@other:b"):
			status = 403
		case strings.HasSuffix(p, "createRoom"):
			text = `{"room_id": "!a:b"}`
		case strings.Contains(p, "/send/"):
			sent = append(sent, p)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	const text = `{"matrix_username": "bot", "matrix_password": %q, "homeserver_url": %q, "matrix_id": %q, "matrix_users": ["@ana:b"]}`
	write(t, file, fmt.Sprintf(text, "wrong", s.URL, "@bot:b"))
	c, err := Open(file, "desk")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Send(context.Background(), "@ana:b", "1", "x")
	if !errors.Is(err, ErrCredentials) || strings.ContainsAny(err.Error(), "\x1b") {
		t.Errorf("a wrong password: %q", err)
	}
	write(t, file, fmt.Sprintf(text, "right", s.URL, "@other:b"))
	if err := c.Send(context.Background(), "@ana:b", "1", "x"); !errors.Is(err, ErrCredentials) {
		t.Errorf("another account: %v", err)
	}
	write(t, file, fmt.Sprintf(text, "right", s.URL, "@bot:b"))
	for range 2 {
		if err := c.Send(context.Background(), "@ana:b", "1", "x"); err != nil {
			t.Error(err)
		}
	}
	if len(sent) != 2 || sent[0] != sent[1] || !strings.HasSuffix(sent[0], "/rooms/!a:b/send/m.room.message/1") {
		t.Errorf("%q", sent)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"access_token": "x", "homeserver_url": "https://a", "matrix_id": "@bot:a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parse(b)
		if err == nil && (!plain(c.Token) || c.Token == "" && c.Password == "" || !job.IsMatrixUser(c.ID)) {
			t.Errorf("%+v", c)
		}
	})
}
