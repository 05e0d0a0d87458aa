package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// remembered is how long an answer of the system is believed: many jobs of one
// user begin together, and one who was let out is not to stay in for long.
const remembered = 5 * time.Second

// most is how many answers are remembered.
const most = 1024

// A Rule says as whom the jobs of a submitter run. Its methods may be called
// from several goroutines.
type Rule struct {
	One   string   // all as this account, whoever submits
	Users []string // without One: as the submitter, if he is one of these, or of a group of these that begins with @

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	account *Account
	err     error
	at      time.Time
}

// As is the account for the jobs of a submitter. The error says why there is
// none, in words that follow "does not run jobs of him: ".
func (r *Rule) As(ctx context.Context, submitter string) (*Account, error) {
	name := r.One
	if name == "" {
		name = submitter
	}
	r.mu.Lock()
	a, ok := r.known[name]
	r.mu.Unlock()
	if ok && time.Since(a.at) < remembered {
		return a.account, a.err
	}
	acc, err := r.find(ctx, name)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= most {
		r.known = map[string]answer{}
	}
	r.known[name] = answer{acc, err, time.Now()}
	return acc, err
}

func (r *Rule) find(ctx context.Context, name string) (*Account, error) {
	if name == "" {
		return nil, errors.New("the head does not say who has submitted it; it may be of an older version")
	}
	if r.One == "" && !slices.Contains(r.Users, name) && !slices.ContainsFunc(r.Users, isGroup) {
		return nil, errNotListed
	}
	a, err := Lookup(ctx, name)
	if err == nil {
		err = a.Person()
	}
	switch {
	case err != nil && r.One != "": // which is not the submitter
		return nil, fmt.Errorf("run_as in its node.yaml says %q: %w", name, err)
	case err != nil:
		return nil, err
	}
	if r.One != "" || slices.Contains(r.Users, name) {
		return a, nil
	}
	for _, u := range r.Users {
		group, is := strings.CutPrefix(u, "@")
		if !is {
			continue
		}
		gid, err := GroupID(ctx, group)
		if err == nil && slices.Contains(a.Groups, gid) {
			return a, nil
		}
		if err != nil && !errors.Is(err, ErrUnknown) {
			return nil, err
		}
	}
	return nil, errNotListed
}

var errNotListed = errors.New("not among the users in its node.yaml")

func isGroup(u string) bool { return strings.HasPrefix(u, "@") }

// String is the rule in a few words.
func (r *Rule) String() string {
	if r.One != "" {
		return r.One
	}
	return fmt.Sprintf("submitter (%s)", strings.Join(r.Users, ", "))
}
