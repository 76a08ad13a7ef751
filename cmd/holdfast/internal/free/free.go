// Package free takes a lock away from the one acquisition that an operator has named, and from no
// other.
package free

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/look"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum"
	"github.com/holdfast-go/holdfast/redishold/protocol"
)

// Lock is a lock of which an acquisition is to be freed.
type Lock struct {
	View    *look.View     // its Patience bounds each call
	Backend driver.Backend // the one that View looks at
	Name    string         // without the prefix of the view
	Which   look.Acquisition
}

// NotHeldError says that the acquisition does not hold the key, or not any more.
type NotHeldError struct {
	Key   look.Key // as it is now
	Which look.Acquisition
}

// Error says who holds the key.
func (e *NotHeldError) Error() string {
	return fmt.Sprintf("%v is not held by %v: %s; nothing was freed", e.Key.Name, e.Which,
		e.Key.Held())
}

// NotKnownError says that it cannot be told which acquisition is meant.
type NotKnownError struct {
	Name look.Name
	Err  error
}

// Error says why.
func (e *NotKnownError) Error() string { return fmt.Sprintf("%v: %v", e.Name, e.Err) }

// Unwrap returns the reason.
func (e *NotKnownError) Unwrap() error { return e.Err }

// MaybeError says that the lock may or may not have been freed, because there was no answer.
type MaybeError struct{ Err error }

// Error says what there was in place of an answer.
func (e *MaybeError) Error() string {
	return fmt.Sprintf("the lock may have been freed or not: %v", e.Err)
}

// Unwrap returns what there was.
func (e *MaybeError) Unwrap() error { return e.Err }

// ErrRedisson is the error for a lock of Redisson, which is a hash and not what a release removes.
var ErrRedisson = errors.New("a lock of Redisson is removed with the tools of the server; " +
	"nothing was freed")

// ErrUnnamed is the error for what has no value that could name it.
var ErrUnnamed = errors.New("what has an empty value, or a very long one, is removed with the " +
	"tools of the server; nothing was freed")

// OtherTypeError says that the key is of another type than locks are.
type OtherTypeError struct {
	Name look.Name
	Type string // what the server says of it
}

// Error says what the key is.
func (e *OtherTypeError) Error() string {
	return fmt.Sprintf("%v: nothing was freed: %s", e.Name, e.Type)
}

// otherType returns what a server of Redis, or one of several, says of a key that is no lock.
func otherType(err error) (text string, ok bool) {
	all := []error{err}
	for _, node := range nodesOf(err) {
		all = append(all, node.Err)
	}
	for _, err := range all {
		var said protocol.ServerError
		if protocol.IsServerError(err, otherTypeCode) && errors.As(err, &said) {
			return strings.TrimPrefix(string(said), otherTypeCode+" "), true
		}
	}
	return "", false
}

// nodesOf returns what each of several servers has answered; none if the error is of one server.
func nodesOf(err error) []quorum.NodeError {
	if set := (*quorum.Error)(nil); errors.As(err, &set) {
		return set.Nodes
	}
	return nil
}

// without reports whether a release that has failed has surely freed nothing. A set never says so
// itself, because it makes releases again that a server did not confirm.
func without(failure error) bool {
	nodes := nodesOf(failure)
	if nodes == nil {
		return !errors.Is(failure, driver.ErrUnknown)
	}
	return !slices.ContainsFunc(nodes, func(n quorum.NodeError) bool {
		return n.State == driver.Held || errors.Is(n.Err, driver.ErrUnknown)
	})
}

// otherTypeCode is how such an error of Redis begins.
const otherTypeCode = "WRONGTYPE"

// Holder looks at the lock, and returns the holder that is the acquisition. It changes nothing. It
// fails with a *NotHeldError, a *NotKnownError, an *OtherTypeError, ErrRedisson, ErrUnnamed, or the
// error of the backend.
func (l Lock) Holder(ctx context.Context) (look.Key, look.Party, error) {
	key, err := l.View.Inspect(ctx, l.Name)
	if text, other := otherType(err); other {
		return key, look.Party{}, &OtherTypeError{key.Name, text}
	}
	if err != nil {
		return key, look.Party{}, fmt.Errorf("nothing was freed: %w", err)
	}
	holder, holds, err := l.Which.Among(key)
	switch {
	case err != nil && all(key.Holders, func(p look.Party) bool { return p.Count > 0 }):
		return key, look.Party{}, fmt.Errorf("%v: %w", key.Name, ErrRedisson)
	case err != nil && all(key.Holders, func(p look.Party) bool { return p.Value == "" || p.Cut }):
		return key, look.Party{}, fmt.Errorf("%v: %w", key.Name, ErrUnnamed)
	case err != nil:
		return key, look.Party{}, &NotKnownError{key.Name, err}
	case !holds:
		return key, look.Party{}, &NotHeldError{key, l.Which}
	case holder.Count > 0:
		return key, look.Party{}, fmt.Errorf("%v: %w", key.Name, ErrRedisson)
	}
	return key, holder, nil
}

// all reports whether all parties are so.
func all(parties []look.Party, so func(look.Party) bool) bool {
	return !slices.ContainsFunc(parties, func(p look.Party) bool { return !so(p) })
}

// Free frees the key if the holder still holds it, both as Holder has returned them. If that is
// answered it looks at the key once more; unseen is why it could not. Free fails with a
// *NotHeldError, an *OtherTypeError, a *MaybeError, or the error of the backend. Nothing was freed
// then, except perhaps with a *MaybeError.
func (l Lock) Free(ctx context.Context, key look.Key, holder look.Party) (now look.Key, unseen,
	err error) {
	result, err := look.Bounded(ctx, l.View.Patience,
		func(ctx context.Context) (driver.Result, error) {
			return l.Backend.Release(ctx, driver.Claim{Key: key.Full, Owner: holder.Value, TTL: ttl,
				Shared: key.Shared})
		})
	if err == nil { // a server that does not answer would only cost the same time again
		now, unseen = l.View.Inspect(ctx, l.Name)
	}
	text, other := otherType(err)
	switch {
	case other && without(err):
		err = &OtherTypeError{key.Name, text}
	case errors.Is(err, driver.ErrUnknown) || isSilent(err):
		err = &MaybeError{err}
	case err != nil:
		err = fmt.Errorf("nothing was freed: %w", err)
	case result.State != driver.Held:
		err = &NotHeldError{now, l.Which}
	}
	return now, unseen, err
}

// ttl is a TTL for a claim that is released, where none matters.
const ttl = time.Minute

// isSilent reports whether the backend has not answered in time.
func isSilent(err error) bool {
	var silent *look.SilentError
	return errors.As(err, &silent)
}
