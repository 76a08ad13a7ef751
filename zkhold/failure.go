package zkhold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	errClosed  = errors.New("zkhold: backend closed")
	errSession = errors.New("zkhold: the session is another one by now")
	errUnsure  = errors.New("zkhold: after a silence of the servers it is not sure yet how long " +
		"the session lives")
	errFull    = errors.New("zkhold: the node of the slot is full")
	errCrowded = errors.New("zkhold: others were faster each time")
)

func isOneOf(err error, answers []error) bool {
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// conflict reports whether somebody has changed what a transaction relied on.
func conflict(err error) bool {
	return isOneOf(err, []error{zk.ErrBadVersion, zk.ErrNoNode, zk.ErrNodeExists})
}

// unhelpful are refusals that last until somebody changes something.
var unhelpful = []error{zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrBadArguments,
	zk.ErrNoChildrenForEphemerals}

// refused reports whether nothing is written after that answer, now or later.
func refused(err error) bool { return errors.Is(err, zk.ErrNoServer) || isOneOf(err, unhelpful) }

// writeFailed returns the error of a request that writes.
func writeFailed(err error) error {
	return &driver.Error{Maybe: !refused(err), Permanent: isOneOf(err, unhelpful), Err: err}
}

// readFailed returns the error of a request that leaves nothing to undo.
func readFailed(err error) error {
	return &driver.Error{Permanent: isOneOf(err, unhelpful), Err: err}
}

func closedError() error { return &driver.Error{Err: errClosed} }

func invalid(format string, args ...any) error {
	return &driver.Error{Invalid: true, Err: fmt.Errorf("zkhold: "+format, args...)}
}

// cutOff is the error of a call whose context has ended.
func cutOff(begun bool, err error) error { return &driver.Error{Maybe: begun, Err: err} }
