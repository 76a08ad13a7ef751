package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorum/internal/node"
)

var (
	// ErrSameServer: two of the backends talk to the same server, which would then have two votes.
	ErrSameServer = node.ErrSameServer

	// ErrTooLate: a majority granted the claim, but not within its validity. The claim was given
	// back. If it queues, it was not: then the error also is ErrUnknown, and the caller asks again
	// or releases the claim.
	ErrTooLate = errors.New("majority reached after the validity had ended")

	// ErrNoMajorityToken: a majority granted the claim, but some nodes lost it before they
	// acknowledged the token. The error also is ErrUnknown. The claim was given back unless it
	// queues.
	ErrNoMajorityToken = errors.New("token not acknowledged by a majority")

	errClosed = errors.New("quorum closed")
	errNotYet = errors.New("gave no answer yet")
	errLate   = errors.New("some of them after the node timeout, and it was given back")
)

// Error says why no majority of the nodes agreed, node by node. It is inside the *driver.Error that
// a method returns, which says whether the request may have taken effect.
//
// Error does not wrap the errors of the nodes, because they may contradict each other. There are
// two exceptions. errors.As finds a *driver.QuarantineError if only quarantine prevents a majority;
// it says for how long. It finds a *driver.SetError if there is no majority without nodes that
// belong to another set.
type Error struct {
	Need  int         // how many nodes make a majority
	Got   int         // how many nodes did what was asked
	Nodes []NodeError // every node, in the order in which the backends were given

	cause error // why a majority was not enough, or nil
}

// NodeError is the answer of one node, or its failure.
type NodeError struct {
	Node string // its name, see [WithNames]

	// State is what the node answered; Unknown if it did not answer.
	State driver.State

	// Holder is who holds the key there, if State is Busy; empty if not known.
	Holder string

	// Err is why there is no answer; nil if there is one.
	Err error

	asked question
}

// question is what a node was asked to do.
type question uint8

const (
	toGrant question = iota
	toRelease
	toRenew
)

// said is the text for an answer, by the question.
var said = [...]map[driver.State]string{
	toGrant: {driver.Held: "granted to us", driver.Busy: "held by another",
		driver.Lost: "not ours any more"},
	toRelease: {driver.Held: "released by us", driver.Busy: "left its queue",
		driver.Lost: "was not ours"},
	toRenew: {driver.Held: "renewed by us", driver.Lost: "not ours any more"},
}

// Error prints the summary and then what each node answered, in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes agreed, %d needed", e.Got, len(e.Nodes), e.Need)
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	if wait := e.quarantine(); wait > 0 {
		fmt.Fprintf(&b, ": too many in restart quarantine, for another %v",
			wait.Round(time.Millisecond))
	}
	if s := e.disagreement(); s != nil {
		fmt.Fprintf(&b, ": too many belong to another set: %v", s)
	}
	before := ": "
	for _, n := range e.Nodes {
		b.WriteString(before)
		b.WriteString(n.Error())
		before = "; "
	}
	return b.String()
}

// Error prints the node and its answer in one line.
func (n *NodeError) Error() string {
	what := cmp.Or(said[n.asked][n.State], n.State.String())
	switch {
	case disagreement(n.Err) != nil:
		what = "belongs to " + disagreement(n.Err).Have.String()
	case n.Err != nil:
		// Many backends name the node themselves.
		what = strings.TrimPrefix(strings.ReplaceAll(n.Err.Error(), "\n", " "), n.Node+": ")
	case n.asked == toGrant && n.State == driver.Busy && n.Holder != "":
		what = "held by " + driver.ParseOwner(n.Holder).String()
	}
	return n.Node + ": " + what
}

// Unwrap returns the node's error.
func (n *NodeError) Unwrap() error { return n.Err }

// Is reports whether target is the reason why a majority was not enough: ErrTooLate or
// ErrNoMajorityToken.
func (e *Error) Is(target error) bool { return e.cause != nil && errors.Is(e.cause, target) }

// As finds a *driver.QuarantineError or a *driver.SetError, see [Error].
func (e *Error) As(target any) bool {
	switch t := target.(type) {
	case **driver.QuarantineError:
		if wait := e.quarantine(); wait > 0 {
			*t = &driver.QuarantineError{Remaining: wait}
			return true
		}
	case **driver.SetError:
		if s := e.disagreement(); s != nil {
			*t = s
			return true
		}
	}
	return false
}

// disagreement returns the SetError of the first node that belongs to another set, or nil if the
// other nodes make a majority.
func (e *Error) disagreement() (first *driver.SetError) {
	agreeing := 0
	for _, n := range e.Nodes {
		switch s := disagreement(n.Err); {
		case s == nil:
			agreeing++
		case first == nil:
			first = s
		}
	}
	if agreeing >= e.Need {
		return nil
	}
	return first
}

// quarantine returns the time until a majority may vote, or 0 if something else than quarantine
// prevents it.
func (e *Error) quarantine() time.Duration {
	var waits []time.Duration
	for _, n := range e.Nodes {
		if wait := node.Quarantine(n.Err); wait > 0 {
			waits = append(waits, wait)
		} else if n.Err == nil {
			waits = append(waits, 0)
		}
	}
	if len(waits) < e.Need {
		return 0 // the end of the quarantine would not help
	}
	slices.Sort(waits)
	return waits[e.Need-1]
}

// unanswered returns the error for a caller whose context ended while it waited for the nodes.
func unanswered(err error) error { return &driver.Error{Maybe: true, Err: err} }

// forbidden returns the error for a claim that is not allowed.
func forbidden(err error) error { return &driver.Error{Invalid: true, Err: err} }
