package testscripts

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

// A matrixServer is as much of a Matrix server as a sender needs.
type matrixServer struct {
	mode   string // the file that says how to answer
	invite string // the file that says who has invited the bot

	mu     sync.Mutex // guards those below
	direct json.RawMessage
	rooms  map[string]string // the user who is in it, besides the bot
	sent   map[string]string // events by room and transaction
	logins int
}

// mainMatrix is the command "matrix FILE", see README.md.
func mainMatrix() {
	if len(os.Args) != 2 {
		misuse("matrix FILE")
	}
	file := os.Args[1]
	s := &matrixServer{mode: file + ".mode", invite: file + ".invite", rooms: map[string]string{}, sent: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("matrix: %v", err)
	}
	text := fmt.Sprintf(`{"matrix_username": "bot", "matrix_password": "secret", "homeserver_url": "http://%s", "matrix_id": "@bot:lab", "matrix_users": ["@*:lab"]}`, l.Addr())
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		fail("matrix: %v", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		fail("matrix: %v", err)
	}
	mux := http.NewServeMux()
	const v3 = "/_matrix/client/v3"
	mux.HandleFunc("POST "+v3+"/login", s.login)
	mux.HandleFunc("GET "+v3+"/user/{user}/account_data/m.direct", s.getDirect)
	mux.HandleFunc("PUT "+v3+"/user/{user}/account_data/m.direct", s.putDirect)
	mux.HandleFunc("POST "+v3+"/createRoom", s.createRoom)
	mux.HandleFunc("GET "+v3+"/sync", s.sync)
	mux.HandleFunc("POST "+v3+"/rooms/{room}/join", s.join)
	mux.HandleFunc("GET "+v3+"/rooms/{room}/state/m.room.member/{user}", s.member)
	mux.HandleFunc("PUT "+v3+"/rooms/{room}/send/m.room.message/{transaction}", s.send)
	fail("matrix: %v", http.Serve(l, s.asMode(mux)))
}

// asMode answers as the file says, and otherwise as a server.
func (s *matrixServer) asMode(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		mode, _ := os.ReadFile(s.mode)
		switch m := strings.TrimSpace(string(mode)); m {
		case "":
			if !strings.HasSuffix(r.URL.Path, "/login") && r.Header.Get("Authorization") != fmt.Sprintf("Bearer token%d", s.logins) {
				answer(w, 401, `{"errcode": "M_UNKNOWN_TOKEN", "error": "no such token"}`)
				return
			}
			next.ServeHTTP(w, r)
		case "429":
			fmt.Println("asked too often")
			answer(w, 429, `{"errcode": "M_LIMIT_EXCEEDED", "error": "too many", "retry_after_ms": 10}`)
		case "401":
			fmt.Println("refused")
			answer(w, 401, `{"errcode": "M_UNKNOWN_TOKEN", "error": "no\nsuch token"}`)
		case "long":
			fmt.Println("said much")
			answer(w, 200, `{"x": "`+strings.Repeat("x", 2<<20)+`"}`)
		default:
			fmt.Println("down")
			answer(w, 500, "<html>")
		}
	})
}

func answer(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

func (s *matrixServer) login(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Password   string            `json:"password"`
		Identifier map[string]string `json:"identifier"`
		Device     string            `json:"device_id"`
	}
	err := json.NewDecoder(r.Body).Decode(&asked)
	if err != nil || asked.Password != "secret" || asked.Identifier["user"] != "bot" {
		answer(w, 403, `{"errcode": "M_FORBIDDEN", "error": "Invalid password"}`)
		return
	}
	s.logins++
	fmt.Printf("login %t\n", asked.Device != "")
	answer(w, 200, fmt.Sprintf(`{"access_token": "token%d", "user_id": "@bot:lab"}`, s.logins))
}

func (s *matrixServer) getDirect(w http.ResponseWriter, _ *http.Request) {
	if s.direct == nil {
		answer(w, 404, `{"errcode": "M_NOT_FOUND"}`)
		return
	}
	answer(w, 200, string(s.direct))
}

func (s *matrixServer) putDirect(w http.ResponseWriter, r *http.Request) {
	if err := json.NewDecoder(r.Body).Decode(&s.direct); err != nil {
		answer(w, 400, `{"errcode": "M_NOT_JSON"}`)
		return
	}
	answer(w, 200, "{}")
}

func (s *matrixServer) createRoom(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Invite []string `json:"invite"`
	}
	err := json.NewDecoder(r.Body).Decode(&asked)
	if err != nil || len(asked.Invite) != 1 || strings.HasPrefix(asked.Invite[0], "@nobody:") {
		answer(w, 403, `{"errcode": "M_FORBIDDEN", "error": "no such user"}`)
		return
	}
	room := fmt.Sprintf("!room%d:lab", len(s.rooms)+1)
	s.rooms[room] = asked.Invite[0]
	fmt.Println("room", room, "with", asked.Invite[0])
	answer(w, 200, fmt.Sprintf(`{"room_id": %q}`, room))
}

// sync names a room of the user in the file, to which he has invited the bot.
func (s *matrixServer) sync(w http.ResponseWriter, _ *http.Request) {
	text, _ := os.ReadFile(s.invite)
	user := strings.TrimSpace(string(text))
	if user == "" {
		answer(w, 200, "{}")
		return
	}
	s.rooms["!his:lab"] = user
	answer(w, 200, fmt.Sprintf(`{"rooms": {"invite": {"!his:lab": {"invite_state": {"events": [
		{"type": "m.room.member", "state_key": "@bot:lab", "sender": %q, "content": {"membership": "invite"}}]}}}}}`, user))
}

func (s *matrixServer) join(w http.ResponseWriter, r *http.Request) {
	if s.rooms[r.PathValue("room")] == "" {
		answer(w, 404, `{"errcode": "M_NOT_FOUND"}`)
		return
	}
	answer(w, 200, fmt.Sprintf(`{"room_id": %q}`, r.PathValue("room")))
}

func (s *matrixServer) member(w http.ResponseWriter, r *http.Request) {
	if s.rooms[r.PathValue("room")] != r.PathValue("user") {
		answer(w, 404, `{"errcode": "M_NOT_FOUND"}`)
		return
	}
	in := "invite"
	if r.PathValue("room") == "!his:lab" {
		in = "join"
	}
	answer(w, 200, fmt.Sprintf(`{"membership": %q}`, in))
}

func (s *matrixServer) send(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Body string `json:"body"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		answer(w, 400, `{"errcode": "M_NOT_JSON"}`)
		return
	}
	key := r.PathValue("room") + " " + r.PathValue("transaction")
	if s.sent[key] == "" {
		s.sent[key] = fmt.Sprintf("$%d", len(s.sent))
		fmt.Printf("message in %s: %q\n", r.PathValue("room"), asked.Body)
	} else {
		fmt.Println("the same message in", r.PathValue("room"))
	}
	answer(w, 200, fmt.Sprintf(`{"event_id": %q}`, s.sent[key]))
}
