// Package matrix sends messages to people by a Matrix server, over its
// client-server API. What a server says is not trusted: it is bounded, checked and
// quoted. A message with the same id is one message, however often the same device
// sends it.
package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/unit"
)

const (
	maxAnswer = 1 << 20     // bytes of an answer
	patience  = time.Minute // for an answer
	maxAfter  = time.Hour   // that a server may ask one to wait
	maxRooms  = 20          // with one user that are tried
)

// An Error is an answer of the server that is no success.
type Error struct {
	Status int
	Code   string        // as M_FORBIDDEN
	Text   string        // the server's own
	After  time.Duration // it asks to be asked no sooner
}

func (e *Error) Error() string {
	text := fmt.Sprintf("the server says %d", e.Status)
	for _, s := range []string{e.Code, e.Text} {
		if s != "" {
			text += " " + unit.Quote(s)
		}
	}
	return text
}

// Answer is what the server answers in an error, if it does.
func Answer(err error) (answer Error) {
	if e := (*Error)(nil); errors.As(err, &e) {
		answer = *e
	}
	return answer
}

// Lasting says that the same request has no better answer later.
func (e *Error) Lasting() bool {
	passing := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests}
	return e.Status >= 400 && e.Status < 500 && !slices.Contains(passing, e.Status)
}

// A Client sends as one device. It is used by one goroutine.
type Client struct {
	file   string // of the credentials
	device string
	c      credentials
	token  string
	http   *http.Client
}

// Open reads the file of credentials, and asks the server nothing yet. The server knows a
// message by the device and the id. Without a device each login is a new one, which Close
// ends.
func Open(file, device string) (*Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 64 << 10
	c, err := read(file)
	return &Client{file: file, device: device, c: c, token: c.Token, http: &http.Client{
		Transport: t, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // nobody else gets the token
	}}, err
}

// Close ends the connections, and a session without a device.
func (c *Client) Close() {
	if c.device == "" && c.token != "" && c.c.Token == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.once(ctx, "POST", "logout", struct{}{}, nil) // if it fails, the account has one device more
	}
	c.http.CloseIdleConnections()
}

// Send sends text to the user, in a room with him alone, as the message of that id. Its
// error is [ErrCredentials], after which the file is read again, an [*Error], or of the
// network.
func (c *Client) Send(ctx context.Context, user, id, text string) error {
	if c.token == "" {
		if err := c.login(ctx); err != nil {
			return err
		}
	}
	room, err := c.room(ctx, user)
	if err == nil {
		err = c.call(ctx, "PUT", room+"/send/m.room.message/"+url.PathEscape(id), map[string]string{"msgtype": "m.text", "body": text}, nil)
	}
	if errors.Is(err, ErrCredentials) {
		c.token = ""
	}
	return err
}

// room is the path of the last direct room with the user that can be joined and that he
// has not left, or else of a new one.
func (c *Client) room(ctx context.Context, user string) (string, error) {
	account, rooms := "user/"+url.PathEscape(c.c.ID)+"/account_data/m.direct", map[string][]string{}
	err := c.call(ctx, "GET", account, nil, &rooms)
	if err != nil && Answer(err).Code != "M_NOT_FOUND" {
		return "", c.refused(err)
	}
	known := rooms[user]
	for _, id := range slices.Backward(known[max(0, len(known)-maxRooms):]) {
		if in, err := c.join(ctx, id, user); in || err != nil {
			return "rooms/" + url.PathEscape(id), err
		}
	}
	var made struct {
		Room string `json:"room_id"`
	}
	err = c.call(ctx, "POST", "createRoom", map[string]any{"is_direct": true, "invite": []string{user}, "preset": "trusted_private_chat"}, &made)
	if err == nil && !isRoom(made.Room) {
		err = fmt.Errorf("the server has made a room that is none: %.99s", unit.Quote(made.Room))
	}
	if err != nil {
		return "", err
	}
	if rooms == nil { // it said null
		rooms = map[string][]string{}
	}
	rooms[user] = append(known, made.Room)
	return "rooms/" + url.PathEscape(made.Room), c.call(ctx, "PUT", account, rooms, nil)
}

func isRoom(s string) bool { return strings.HasPrefix(s, "!") && len(s) <= 255 && plain(s) }

// join joins a room, as often as one likes, and says whether the user is in it, or
// invited.
func (c *Client) join(ctx context.Context, room, user string) (bool, error) {
	if !isRoom(room) {
		return false, nil
	}
	var member struct {
		Membership string `json:"membership"`
	}
	room = "rooms/" + url.PathEscape(room)
	err := c.call(ctx, "POST", room+"/join", struct{}{}, nil)
	if err == nil {
		err = c.call(ctx, "GET", room+"/state/m.room.member/"+url.PathEscape(user), nil, &member)
	}
	if e := Answer(err); e.Lasting() {
		return false, nil
	}
	return member.Membership == "join" || member.Membership == "invite", err
}

// refused is the error of a request that fails for nothing but who asks.
func (c *Client) refused(err error) error {
	if e := Answer(err); e.Lasting() || e.Status == http.StatusUnauthorized {
		return fmt.Errorf("%s: %w: %v", c.file, ErrCredentials, err)
	}
	return err
}

// login takes a token of the file, or of the server for the password of the file.
func (c *Client) login(ctx context.Context) (err error) {
	if c.c, err = read(c.file); err != nil {
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	if c.token = c.c.Token; c.token != "" {
		return nil
	}
	ask := map[string]any{"type": "m.login.password", "password": c.c.Password, "initial_device_display_name": "dnotify",
		"identifier": map[string]string{"type": "m.id.user", "user": c.c.User}}
	if c.device != "" {
		ask["device_id"] = c.device
	}
	var got struct {
		Token string `json:"access_token"`
	}
	if err = c.once(ctx, "POST", "login", ask, &got); err != nil {
		return c.refused(err)
	}
	if got.Token == "" || !plain(got.Token) {
		return errors.New("the server answers a login without a token")
	}
	c.token = got.Token
	return nil
}

// call is once, and again after a login if the server takes the token no more.
func (c *Client) call(ctx context.Context, method, what string, body, into any) error {
	err := c.once(ctx, method, what, body, into)
	if Answer(err).Status != http.StatusUnauthorized {
		return err
	}
	if err := c.login(ctx); err != nil {
		return err
	}
	return c.once(ctx, method, what, body, into)
}

// once asks the server one thing.
func (c *Client) once(ctx context.Context, method, what string, body, into any) error {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body) // of texts, which all have a form in JSON
	}
	r, err := http.NewRequestWithContext(ctx, method, c.c.URL+"/_matrix/client/v3/"+what, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err // without the address, which has what is sent
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxAnswer:
		return errors.New("the server answers with more than 1 MiB")
	case answer.StatusCode != http.StatusOK:
		return failure(answer, b)
	case into != nil && json.Unmarshal(b, into) != nil:
		return errors.New("the server answers with what is not of the Matrix API")
	}
	return nil
}

// failure is an answer that is no success.
func failure(answer *http.Response, b []byte) error {
	var said struct {
		Code  string  `json:"errcode"`
		Text  string  `json:"error"`
		After float64 `json:"retry_after_ms"`
	}
	_ = json.Unmarshal(b, &said) // what is not understood says nothing
	if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && said.After == 0 {
		said.After = 1000 * float64(s)
	}
	e := &Error{Status: answer.StatusCode, Code: fmt.Sprintf("%.100s", said.Code), Text: fmt.Sprintf("%.200s", said.Text)}
	if said.After > 0 && !e.Lasting() { // and not what is no number
		e.After = time.Duration(min(said.After, float64(maxAfter/time.Millisecond))) * time.Millisecond
	}
	return e
}
