package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	// ErrSameServer: two nodes are one server.
	ErrSameServer = errors.New("same server twice")

	// ErrNoReply: a node gave no answer in its time.
	ErrNoReply = errors.New("gave no answer")

	// ErrOvertaken: the claim is not what it was when the call was asked for.
	ErrOvertaken = errors.New("not asked: the claim was released or asked for again meanwhile")

	errAnonymous = errors.New("does not say which server it is")
	errBacklog   = errors.New("not asked: too many calls wait for its answer")
	errResults   = errors.New("gave a wrong number of results")
)

// Refused returns the error of a call that was not made.
func Refused(err error, permanent bool) error {
	return &driver.Error{Permanent: permanent, Err: err}
}

// Slow returns the error of a call without an answer within its bound.
func Slow(bound time.Duration) error { return &driver.Error{Maybe: true, Err: slow(bound)} }

func slow(bound time.Duration) error {
	if bound >= 10*time.Millisecond {
		bound = bound.Round(time.Millisecond) // the bound of a batch is longer by some microseconds
	}
	return fmt.Errorf("%w within %v", ErrNoReply, bound)
}

// Maybe reports whether a call that failed with err may have taken effect.
func Maybe(err error) bool {
	var e *driver.Error
	return !errors.As(err, &e) || e.Maybe
}

// Quarantine returns what remains of a node's quarantine, if err says so, else 0.
func Quarantine(err error) time.Duration {
	var q *driver.QuarantineError
	if err == nil || !errors.As(err, &q) {
		return 0
	}
	return max(q.Remaining, 1)
}

// explain returns err. If err says that the call's context ended, explain returns ErrNoReply with
// the bound instead, or Config.Closed if the group was cancelled.
func (g *Group) explain(ctx context.Context, err error, bound time.Duration) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return &driver.Error{Maybe: Maybe(err), Err: g.config.Closed}
	}
	return &driver.Error{Maybe: Maybe(err), Err: slow(bound)}
}
