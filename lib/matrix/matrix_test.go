package matrix

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

func TestParse(t *testing.T) {
	const good = `{"matrix_username": "bot", "matrix_password": "hidden", "homeserver_url": "https://matrix.example.org/", "matrix_id": "@bot:matrix.example.org"}`
	c, err := Parse([]byte(good))
	if err != nil || c.URL != "https://matrix.example.org" || c.User != "bot" {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := Parse([]byte(`{"access_token": "hidden", "homeserver_url": "http://127.0.0.1:8008"}`)); err != nil {
		t.Errorf("a token is enough: %v", err)
	}
	for text, want := range map[string]string{
		"":                                     "no object of JSON",
		"[]":                                   "no object of JSON",
		`{"a": 1}`:                             `it has "a", which means nothing here`,
		good + good:                            "something follows",
		strings.Replace(good, "hidden", "", 1): "matrix_password are wanted",
		strings.Replace(good, "@bot:", "bot:", 1):                         `matrix_id is bot:matrix.example.org, and has to be`,
		strings.Replace(good, "https:", "http:", 1):                       "has to begin with https://",
		strings.Replace(good, "https://", "https://me@", 1):               "homeserver_url has to be as",
		strings.Replace(good, "https:", "ftp:", 1):                        "has to begin with https://",
		`{"access_token": "hidden\n", "homeserver_url": "https://a"}`:     "characters that no token has",
		`{"access_token": "hidden", "homeserver_url": "` + "\x00" + `"}`:  "no object",
		`{"matrix_username": "` + strings.Repeat("x", maxFile) + `", "`:   "longer than 64 KiB",
		`{"access_token": "hidden", "homeserver_url": "http://10.0.0.1"}`: "has to begin with https://",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%.60q: %v; want %q", text, err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(`{"access_token": "x", "homeserver_url": "https://a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]error{0o600: nil, 0o640: nil, 0o644: ErrCredentials, 0o602: ErrCredentials} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); !errors.Is(err, want) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if _, err := Read(filepath.Dir(path)); !errors.Is(err, ErrCredentials) {
		t.Errorf("a directory: %v", err)
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
		err := New(&Credentials{URL: s.URL, Token: "hidden"}, "").Send(context.Background(), "!a:b", "1", "x", "x")
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

// A room that the server names and that is none is not asked for.
func TestRooms(t *testing.T) {
	made := "!new:b"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := "{}"
		switch {
		case strings.HasSuffix(r.URL.Path, "m.direct") && r.Method == "GET":
			text = `{"@ana:b": ["!left:b", "no room", "../../x"], "@bo:b": ["!there:b", "!left:b"]}`
		case strings.Contains(r.URL.Path, "!there:b/state"):
			text = `{"membership": "join"}`
		case strings.Contains(r.URL.Path, "!left:b/state"):
			text = `{"membership": "leave"}`
		case strings.Contains(r.URL.Path, "/rooms/"):
			t.Errorf("asked for %s", r.URL.Path)
		case strings.HasSuffix(r.URL.Path, "createRoom"):
			text = `{"room_id": "` + made + `"}`
		}
		_, _ = w.Write([]byte(text))
	}))
	defer s.Close()
	c := New(&Credentials{URL: s.URL, Token: "hidden", ID: "@bot:b"}, "")
	for user, want := range map[string]string{"@ana:b": "!new:b", "@bo:b": "!there:b"} {
		if room, err := c.Room(context.Background(), user); room != want || err != nil {
			t.Errorf("%s: %q, %v", user, room, err)
		}
	}
	made = "../x"
	if _, err := c.Room(context.Background(), "@ana:b"); err == nil {
		t.Error("a room that is none")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"access_token": "x", "homeserver_url": "https://a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err == nil && (!plain(c.Token) || c.Token == "" && c.Password == "" || c.ID != "" && !job.IsMatrixUser(c.ID)) {
			t.Errorf("%+v", c)
		}
	})
}
