package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/job"
	"distribute/lib/unit"
)

const (
	maxAnswer = 1 << 20     // bytes of an answer
	patience  = time.Minute // for an answer
	maxAfter  = time.Hour   // that a server may ask one to wait
	maxRooms  = 20          // with one user that are looked at
	path      = "/_matrix/client/v3/"
	direct    = "account_data/m.direct"
)

// ErrRefused is that the server does not take the credentials: it will not before
// they are others.
var ErrRefused = errors.New("the server refuses the credentials")

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

// Lasting says that the same request has no better answer later.
func (e *Error) Lasting() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// A Client is a device of the sender's. It is used by one goroutine.
type Client struct {
	c      Credentials
	device string
	token  string
	me     string
	http   *http.Client
}

// New makes a client, which asks nothing yet. The device is who sends it, again
// after a crash: the server knows by it, and by the transaction, that a message has
// been sent. None is a new one, to be ended by Close.
func New(c *Credentials, device string) *Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 64 << 10
	return &Client{c: *c, device: device, token: c.Token, me: c.ID, http: &http.Client{
		Transport: t, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // nobody else gets the token
	}}
}

// Close ends the connections, and the session if that was of no device.
func (c *Client) Close(ctx context.Context) {
	if c.device == "" && c.c.Token == "" && c.token != "" {
		_ = c.once(ctx, "POST", "logout", struct{}{}, nil) // the server forgets it, or has one more
	}
	c.http.CloseIdleConnections()
}

// Send sends text to a user's room, and html as what of it is shown, as the
// transaction. An error is [ErrRefused], an [*Error], or of the network.
func (c *Client) Send(ctx context.Context, room, transaction, text, html string) error {
	body := map[string]string{"msgtype": "m.text", "body": text, "format": "org.matrix.custom.html", "formatted_body": html}
	return c.call(ctx, "PUT", "rooms/"+url.PathEscape(room)+"/send/m.room.message/"+url.PathEscape(transaction), body, nil)
}

// Room is a room with the user alone: one that was made for that before and that he
// is in, or is invited to, or a new one.
func (c *Client) Room(ctx context.Context, user string) (string, error) {
	if err := c.begin(ctx); err != nil {
		return "", err
	}
	rooms := map[string][]string{}
	account := "user/" + url.PathEscape(c.me) + "/" + direct
	err := c.call(ctx, "GET", account, nil, &rooms)
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		err, rooms = nil, map[string][]string{}
	}
	if err != nil {
		return "", err
	}
	for i, room := range slices.Backward(rooms[user]) {
		if len(rooms[user])-i > maxRooms {
			break
		}
		in, err := c.In(ctx, room, user)
		if err != nil {
			return "", err
		}
		if in {
			return room, nil
		}
	}
	var made struct {
		Room string `json:"room_id"`
	}
	err = c.call(ctx, "POST", "createRoom", map[string]any{"is_direct": true, "invite": []string{user}, "preset": "trusted_private_chat"}, &made)
	if err != nil {
		return "", err
	}
	if !isRoom(made.Room) {
		return "", fmt.Errorf("the server has made a room that is none: %.99s", unit.Quote(made.Room))
	}
	rooms = maps.Clone(rooms)
	rooms[user] = append(slices.Clone(rooms[user]), made.Room)
	return made.Room, c.call(ctx, "PUT", account, rooms, nil)
}

func isRoom(s string) bool { return strings.HasPrefix(s, "!") && len(s) <= 255 && plain(s) }

// In says whether the user is in the room, or is invited, and one is oneself.
func (c *Client) In(ctx context.Context, room, user string) (bool, error) {
	if !isRoom(room) {
		return false, nil
	}
	var member struct {
		Membership string `json:"membership"`
	}
	err := c.call(ctx, "GET", "rooms/"+url.PathEscape(room)+"/state/m.room.member/"+url.PathEscape(user), nil, &member)
	var e *Error
	if errors.As(err, &e) && e.Lasting() {
		return false, nil
	}
	return member.Membership == "join" || member.Membership == "invite", err
}

// begin makes sure that there is a token, and whose it is.
func (c *Client) begin(ctx context.Context) error {
	if c.token == "" {
		if err := c.login(ctx); err != nil {
			return err
		}
	}
	if c.me != "" {
		return nil
	}
	var who struct {
		ID string `json:"user_id"`
	}
	if err := c.call(ctx, "GET", "account/whoami", nil, &who); err != nil {
		return err
	}
	if !job.IsMatrixUser(who.ID) {
		return fmt.Errorf("the server calls its user %.99s, which is none", unit.Quote(who.ID))
	}
	c.me = who.ID
	return nil
}

func (c *Client) login(ctx context.Context) error {
	ask := map[string]any{"type": "m.login.password", "password": c.c.Password, "initial_device_display_name": "dnotify",
		"identifier": map[string]string{"type": "m.id.user", "user": c.c.User}}
	if c.device != "" {
		ask["device_id"] = c.device
	}
	var got struct {
		Token string `json:"access_token"`
		ID    string `json:"user_id"`
	}
	c.token = ""
	err := c.once(ctx, "POST", "login", ask, &got)
	var e *Error
	switch {
	case errors.As(err, &e) && (e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized || e.Status == http.StatusBadRequest):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		return err
	case got.Token == "" || !plain(got.Token) || !job.IsMatrixUser(got.ID):
		return errors.New("the server answers a login with what is none")
	}
	c.token, c.me = got.Token, got.ID
	return nil
}

// call is once, and again after a login if the token is not taken.
func (c *Client) call(ctx context.Context, method, what string, body, into any) error {
	if c.token == "" {
		if err := c.login(ctx); err != nil {
			return err
		}
	}
	err := c.once(ctx, method, what, body, into)
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusUnauthorized {
		return err
	}
	if c.c.Token != "" {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := c.login(ctx); err != nil {
		return err
	}
	return c.once(ctx, method, what, body, into)
}

// once asks the server one thing.
func (c *Client) once(ctx context.Context, method, what string, body, into any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.c.URL+path+what, in)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return bare(err)
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
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return errors.New("the server answers with what is not of the Matrix API")
	}
	return nil
}

// bare is the error without the address, which has what is sent.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// failure is an answer that is no success.
func failure(answer *http.Response, b []byte) error {
	var said struct {
		Code  string  `json:"errcode"`
		Text  string  `json:"error"`
		After float64 `json:"retry_after_ms"`
	}
	_ = json.Unmarshal(b, &said) // what is not understood says nothing
	e := &Error{Status: answer.StatusCode, Code: fmt.Sprintf("%.100s", said.Code), Text: fmt.Sprintf("%.200s", said.Text)}
	if e.Status != http.StatusTooManyRequests {
		return e
	}
	ms := said.After
	if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && ms == 0 {
		ms = 1000 * float64(s)
	}
	if ms > 0 { // and not what is no number
		e.After = time.Duration(min(ms, float64(maxAfter/time.Millisecond))) * time.Millisecond
	}
	return e
}
