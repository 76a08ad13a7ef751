package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	// ErrSameServer: two of the backends talk to one server, which would have two votes.
	ErrSameServer = errors.New("same server twice")

	// ErrTooLate: a majority granted the lock, but not within its validity (R18). It was given back.
	ErrTooLate = errors.New("majority reached after the validity had ended")

	// ErrNoMajorityToken: a majority granted the lock, but it was lost again on some nodes before they had
	// acknowledged the token. It was given back.
	ErrNoMajorityToken = errors.New("token not acknowledged by a majority")

	errClosed    = errors.New("quorum closed")
	errBacklog   = errors.New("not asked: too many calls wait for its answer")
	errNotYet    = errors.New("gave no answer yet")
	errLate      = errors.New("some of them after the node timeout, and it was given back")
	errNoReply   = errors.New("gave no answer")
	errOvertaken = errors.New("not asked: the claim was released or asked for again meanwhile")
	errResults   = errors.New("gave a wrong number of results")
)

// Error says why no majority of the nodes agreed, node by node. It is found by errors.As inside the
// *driver.Error that a method returns, which says whether the request may have taken effect.
//
// errors.Is and errors.As do not look into the nodes' errors: they contradict each other. An exception is
// *driver.QuarantineError, which is found if a majority would be there but for the nodes in quarantine; it
// then says for how long.
type Error struct {
	Need  int         // how many nodes make a majority
	Got   int         // how many did what was asked
	Nodes []NodeError // every node, in the order in which the backends were given

	cause error // why a majority was not enough, or nil
}

// NodeError is what one node had to say.
type NodeError struct {
	Node string // its name, see [WithNames]

	// State is what the node answered, and Unknown if it did not.
	State driver.State

	// Holder is who holds the key there, if State is Busy; empty if not known.
	Holder string

	// Err is why there is no answer; nil if there is one.
	Err error
}

// Error prints one line on the whole and one on each node.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes agreed, %d needed", e.Got, len(e.Nodes), e.Need)
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	if wait := e.quarantine(); wait > 0 {
		fmt.Fprintf(&b, ": too many in restart quarantine, for another %v", wait.Round(time.Millisecond))
	}
	for _, n := range e.Nodes {
		b.WriteString("\n  ")
		b.WriteString(n.Error())
	}
	return b.String()
}

// Error prints the node and its answer in one line.
func (n *NodeError) Error() string {
	what := n.State.String()
	switch {
	case n.Err != nil:
		// Many backends name the node themselves.
		what = strings.TrimPrefix(strings.ReplaceAll(n.Err.Error(), "\n", " "), n.Node+": ")
	case n.State == driver.Busy && n.Holder != "":
		what = "held by " + driver.ParseOwner(n.Holder).String()
	}
	return n.Node + ": " + what
}

// Unwrap returns the node's error.
func (n *NodeError) Unwrap() error { return n.Err }

// Is reports whether target is why a majority was not enough: ErrTooLate or ErrNoMajorityToken.
func (e *Error) Is(target error) bool { return e.cause != nil && errors.Is(e.cause, target) }

// As finds a *driver.QuarantineError, see [Error].
func (e *Error) As(target any) bool {
	t, ok := target.(**driver.QuarantineError)
	if !ok {
		return false
	}
	wait := e.quarantine()
	if wait > 0 {
		*t = &driver.QuarantineError{Remaining: wait}
	}
	return wait > 0
}

// quarantine returns how long it takes until a majority may vote, if quarantine alone prevents it, and else 0.
func (e *Error) quarantine() time.Duration {
	var waits []time.Duration
	for _, n := range e.Nodes {
		if wait := quarantineOf(n.Err); wait > 0 {
			waits = append(waits, wait)
		} else if n.Err == nil {
			waits = append(waits, 0)
		}
	}
	if len(waits) < e.Need {
		return 0 // not even the end of the quarantine will help
	}
	slices.Sort(waits)
	return waits[e.Need-1]
}

// quarantineOf returns what remains of a node's quarantine, if that is what err says, and else 0.
func quarantineOf(err error) time.Duration {
	var q *driver.QuarantineError
	if err == nil || !errors.As(err, &q) {
		return 0
	}
	return max(q.Remaining, 1)
}

// maybe reports whether a call that failed with err may have taken effect.
func maybe(err error) bool {
	var e *driver.Error
	return !errors.As(err, &e) || e.Maybe
}

// unanswered is the error of a caller whose context ended while it waited for the nodes.
func unanswered(err error) error { return &driver.Error{Maybe: true, Err: err} }

// refused is the error of a call that was not made.
func refused(err error, permanent bool) error { return &driver.Error{Permanent: permanent, Err: err} }
