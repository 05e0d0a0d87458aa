// Package matrix sends messages to people by a Matrix server, over its
// client-server API. What a server says is not trusted: it is bounded, checked and
// quoted. A message with the same id is one message, however often the same device
// sends it.
package matrix

import (
	"bytes"
	"cmp"
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

	"distribute/lib/timing"
	"distribute/lib/unit"
)

const (
	maxAnswer = 1 << 20     // bytes of an answer
	patience  = time.Minute // for an answer
	maxAfter  = time.Hour   // that a server may ask one to wait
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
func (e Error) Lasting() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusRequestTimeout && e.Status != http.StatusTooManyRequests
}

// A Client sends as one device. It is used by one goroutine.
type Client struct {
	path   string
	file   credentials // its content
	others []string    // whom it may invite besides those whom the file names
	device string
	token  string // of the file, or of a login
	http   http.Client

	direct      map[string][]string // rooms by user, as the server said last
	invitations map[string]string   // room by who has invited the account, at the time of asked
	asked       time.Time
}

// Open reads the file of credentials, and asks the server nothing yet. The server knows a
// message by the device and the id. Without a device each login is a new one, which Close
// ends. It invites others, besides the users whom the file names.
func Open(file, device string, others ...string) (*Client, error) {
	c := &Client{path: file, device: device, others: others, http: http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // nobody else gets the token
	}}
	return c, c.read()
}

// Close ends a session without a device.
func (c *Client) Close() {
	if c.device == "" && c.file.Token == "" && c.token != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.call(ctx, "POST", "logout", struct{}{}, nil) // if it fails, the account has one device more
	}
}

// ErrStranger is that a user is not one of those whom the file names, and has not invited
// the account.
var ErrStranger = errors.New("the user has not asked for messages")

// Send sends text to the user, in a room with him alone, as the message of that id. Users
// whom the file does not name have to invite the account first. Its error is
// [ErrCredentials], after which the file is read again, [ErrStranger], an [*Error], or of
// the network.
func (c *Client) Send(ctx context.Context, user, id, text string) (err error) {
	for range 2 { // again after a login: a token is taken for a while
		if c.token == "" {
			if err := c.login(ctx); err != nil {
				return err
			}
		}
		if err = c.send(ctx, user, id, text); !errors.Is(err, ErrCredentials) {
			return err
		}
		c.token = ""
	}
	return err
}

// send is Send with the token that there is.
func (c *Client) send(ctx context.Context, user, id, text string) error {
	room, err := c.room(ctx, user)
	if err != nil {
		return err
	}
	return c.call(ctx, "PUT", "rooms/"+url.PathEscape(room)+"/send/m.room.message/"+url.PathEscape(id), map[string]string{"msgtype": "m.text", "body": text}, nil)
}

// login takes a token of the file, or of the server for the password of the file.
func (c *Client) login(ctx context.Context) error {
	if err := c.read(); err != nil || c.token != "" {
		return err
	}
	ask := map[string]any{"type": "m.login.password", "password": c.file.Password, "initial_device_display_name": "dnotify",
		"identifier": map[string]string{"type": "m.id.user", "user": c.file.User}}
	if c.device != "" {
		ask["device_id"] = c.device
	}
	var got struct {
		Token string `json:"access_token"`
	}
	err := c.call(ctx, "POST", "login", ask, &got)
	if Answer(err).Lasting() {
		return c.refused(err)
	}
	if err == nil && got.Token == "" {
		err = errors.New("the server answers a login without a token")
	}
	c.token = got.Token
	return err
}

// refused is the error of a request that fails for nothing but who asks.
func (c *Client) refused(err error) error {
	return fmt.Errorf("%s: %w: %v", c.path, ErrCredentials, err)
}

// room is the last direct room with the user that can be joined and that he has not left,
// or else a new one, or for a user whom the file does not name, one to which he has invited
// the account.
func (c *Client) room(ctx context.Context, user string) (string, error) {
	if c.known() && c.invitations[user] == "" && len(c.direct[user]) == 0 && !c.invites(user) {
		return "", c.stranger(user)
	}
	account, rooms := "user/"+url.PathEscape(c.file.ID)+"/account_data/m.direct", map[string][]string{}
	err := c.call(ctx, "GET", account, nil, &rooms)
	switch e := Answer(err); {
	case e.Code == "M_NOT_FOUND":
	case e.Lasting():
		return "", c.refused(err)
	case err != nil:
		return "", err
	}
	c.direct = rooms
	for _, id := range slices.Backward(rooms[user]) {
		if in, err := c.join(ctx, id, user); in || err != nil {
			return id, err
		}
	}
	var id string
	invited := !c.invites(user)
	if invited {
		id, err = c.invitation(ctx, user)
	} else {
		id, err = c.newRoom(ctx, user)
	}
	switch {
	case err != nil:
		return "", err
	case id == "" || slices.Contains(rooms[user], id): // which was tried
		return "", c.stranger(user)
	}
	if rooms == nil { // it said null
		rooms = map[string][]string{}
	}
	rooms[user] = append(rooms[user], id)
	if err := c.call(ctx, "PUT", account, rooms, nil); err != nil {
		return "", err
	}
	if invited { // joined last: it is found again until it is noted
		if in, err := c.join(ctx, id, user); !in {
			return "", cmp.Or(err, c.stranger(user))
		}
	}
	return id, nil
}

// stranger says that a user has to invite the account first.
func (c *Client) stranger(user string) error {
	return fmt.Errorf("%w: let %s invite %s to a chat once, or add him to matrix_users in %s", ErrStranger, unit.Quote(user), unit.Quote(c.file.ID), c.path)
}

// newRoom makes a room and invites the user.
func (c *Client) newRoom(ctx context.Context, user string) (string, error) {
	var made struct {
		Room string `json:"room_id"`
	}
	err := c.call(ctx, "POST", "createRoom", map[string]any{"is_direct": true, "invite": []string{user}, "preset": "trusted_private_chat"}, &made)
	if err == nil && !isRoom(made.Room) {
		err = fmt.Errorf("the server has made a room that is none: %.99s", unit.Quote(made.Room))
	}
	return made.Room, err
}

// invites says whether the user may be invited unasked. The file may have changed since it
// was read.
func (c *Client) invites(user string) bool {
	if slices.Contains(c.others, user) || c.file.invites(user) {
		return true
	}
	now := Client{path: c.path}
	if now.read() == nil {
		c.file.Users = now.file.Users
	}
	return c.file.invites(user)
}

// known reports whether the server has told of invitations within a minute.
func (c *Client) known() bool {
	return c.invitations != nil && time.Since(c.asked) < timing.Wait(time.Minute)
}

// invitation is a room to which the user himself has invited the account, or empty. The
// server is asked once a minute, for all users. Where it names several who have, it has
// all but one from the server of who has invited it: then nobody has.
func (c *Client) invitation(ctx context.Context, user string) (string, error) {
	if c.known() {
		return c.invitations[user], nil
	}
	var sync struct {
		Rooms struct {
			Invite map[string]struct {
				State struct {
					Events []struct {
						Type    string `json:"type"`
						Key     string `json:"state_key"`
						Sender  string `json:"sender"`
						Content struct {
							Membership string `json:"membership"`
						} `json:"content"`
					} `json:"events"`
				} `json:"invite_state"`
			} `json:"invite"`
		} `json:"rooms"`
	}
	if err := c.call(ctx, "GET", "sync?timeout=0&filter="+url.QueryEscape(invitesOnly), nil, &sync); err != nil {
		return "", err
	}
	c.invitations, c.asked = map[string]string{}, time.Now()
	for id, room := range sync.Rooms.Invite {
		var by []string
		for _, e := range room.State.Events {
			if e.Type == "m.room.member" && e.Key == c.file.ID && e.Content.Membership == "invite" {
				by = append(by, e.Sender)
			}
		}
		if by = slices.Compact(by); len(by) == 1 && isRoom(id) {
			c.invitations[by[0]] = id
		}
	}
	return c.invitations[user], nil
}

// invitesOnly is a filter of the Matrix API that leaves out what is in rooms.
const invitesOnly = `{"presence":{"types":[]},"account_data":{"types":[]},` +
	`"room":{"timeline":{"types":[]},"state":{"types":[]},"ephemeral":{"types":[]},"account_data":{"types":[]}}}`

func isRoom(s string) bool { return strings.HasPrefix(s, "!") && plain(s) }

// join joins a room, as often as one likes, and says whether the user is in it, or
// invited and one of those who may be.
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
	if Answer(err).Lasting() {
		return false, nil
	}
	return member.Membership == "join" || member.Membership == "invite" && c.invites(user), err
}

// call asks the server one thing. Where it does not take the token the error is
// [ErrCredentials].
func (c *Client) call(ctx context.Context, method, what string, body, into any) error {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body) // of texts, which all have a form in JSON
	}
	r, err := http.NewRequestWithContext(ctx, method, c.file.URL+"/_matrix/client/v3/"+what, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return errors.Unwrap(err) // without the address, which has what is sent
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxAnswer:
		return errors.New("the server answers with more than 1 MiB")
	case answer.StatusCode == http.StatusUnauthorized:
		return c.refused(failure(answer, b))
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
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	e := &Error{Status: answer.StatusCode, Code: fmt.Sprintf("%.100s", said.Code), Text: fmt.Sprintf("%.200s", said.Text)}
	if after := max(said.After, 1000*float64(seconds)); after > 0 && !e.Lasting() {
		e.After = time.Duration(min(after, float64(maxAfter/time.Millisecond))) * time.Millisecond
	}
	return e
}
