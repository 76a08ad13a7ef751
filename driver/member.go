package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SetFresh is how long a backend may rely on an answer about its server's [Set]; see [Member].
const SetFresh = 10 * time.Second

// Set describes the nodes that form one backend. All clients of a node must agree on it: two
// majorities share a node only if both are majorities of the same nodes, and a node that forgets
// sits out the guard of the client that asks. The zero Set means none. Compare Sets by ==.
type Set struct {
	// Nodes is how many nodes there are.
	Nodes int
	// Quorum is how many of them make a majority.
	Quorum int
	// Guard is the restart quarantine and the longest TTL, to the millisecond; 0 means neither.
	Guard time.Duration
	// Name says which nodes these are: their addresses, or a name that the operator gives to these
	// servers and to no others. If it is empty, clients cannot tell a server from one that replaced
	// it. It has no '/'.
	Name string
	// Moving is empty unless the node is being moved out of this set, or into it. A moving node
	// takes part for nobody: no client has such a set. Each attempt at a move writes its own text
	// here, without '/', and so notices a later attempt.
	Moving string
	// From is the Text of the set that the node was in before, while other nodes may have to move
	// as well. No client has it.
	From string
}

// Plain returns the set without the traces of a move, as clients have it.
func (s Set) Plain() Set {
	s.Moving, s.From = "", ""
	return s
}

// Admits reports whether a server that belongs to s takes part for clients of want.
func (s Set) Admits(want Set) bool { return s.Moving == "" && s.Plain() == want }

// String returns the set as an operator would say it: "5 nodes, quorum 3, guard 1m0s", and then the
// name.
func (s Set) String() string {
	switch {
	case s == (Set{}):
		return "no set"
	case s.Moving != "" && s.From != "":
		return "none, as it is being moved into, or out of, " + s.Plain().String()
	case s.Moving != "":
		return "none, as it is being moved out of " + s.Plain().String()
	}
	text := fmt.Sprintf("%d nodes, quorum %d, guard %v", s.Nodes, s.Quorum, s.Guard)
	if s.Name != "" {
		text += ", set " + s.Name
	}
	return text
}

// Text returns the set in the form in which a server stores it, which [ParseSet] reads: nodes,
// quorum, guard in milliseconds, "=" and the name if there is one, "moving" and Moving if that is
// set, and "from" and From if that is set, with slashes between them. It is the same for equal
// sets, so a server can compare it byte by byte. The zero Set has the empty text.
func (s Set) Text() string {
	if s == (Set{}) {
		return ""
	}
	text := fmt.Sprintf("%d/%d/%d", s.Nodes, s.Quorum, s.Guard.Milliseconds())
	if s.Name != "" {
		text += "/=" + s.Name
	}
	if s.Moving != "" {
		text += "/moving/" + s.Moving
	}
	if s.From != "" {
		text += "/from/" + s.From
	}
	return text
}

// ErrNoSet says that what a server remembers of its [Set] is none: somebody has overwritten it. The
// server takes part for nobody until that is removed.
var ErrNoSet = errors.New("no set of nodes")

// ParseSet reads what [Set.Text] has written. Any other text gives an error with [ErrNoSet], which
// quotes it.
func ParseSet(text string) (s Set, err error) {
	if text == "" {
		return Set{}, nil
	}
	rest, from, _ := strings.Cut(text, "/from/")
	s.From = from
	rest, s.Moving, _ = strings.Cut(rest, "/moving/")
	rest, s.Name, _ = strings.Cut(rest, "/=")
	parts := strings.Split(rest, "/")
	var numbers [3]int64
	if len(parts) == len(numbers) {
		for i, part := range parts {
			numbers[i], _ = strconv.ParseInt(part, 10, 64) // what does not parse does not read back
		}
	}
	s.Nodes, s.Quorum = int(numbers[0]), int(numbers[1])
	s.Guard = time.Duration(numbers[2]) * time.Millisecond
	if s.Text() != text || strings.Contains(s.Name+s.Moving, "/") {
		return Set{}, fmt.Errorf("%w: %.80q", ErrNoSet, text)
	}
	return s, nil
}

// Member is a Backend whose server remembers which Set it belongs to, and takes part for no other
// one.
type Member interface {
	// Join puts all claims of this Backend value under set. Call it before the first claim. It asks
	// no server and does not fail. From then on the backend refuses Acquire and Renew, with a
	// [*SetError] in a permanent [*Error], unless the server belongs to set. A server that
	// remembers no set takes on the first one that it is asked for, in one step. Release is always
	// served. The zero Set switches this off.
	//
	// The backend asks the server with every request, or less often. Then it may send a request if
	// it asked for a confirmation at most [SetFresh] before, on the same connection to the same run
	// of the server. If the server would refuse the claim, its notice is not a Granted one; see
	// [Guarder].
	Join(set Set)

	// Belongs returns the set that the server remembers, the zero Set if none. An error follows the
	// rules of the package, and wraps [ErrNoSet] if the server remembers what is no set.
	Belongs(ctx context.Context) (Set, error)

	// Move replaces from by to on the server, in one step, if the server remembers from. It returns
	// what the server remembers afterwards. It changes no key, and not the set that Join has given
	// to a Backend value. The server remembers the set at least as long as its keys. An error
	// follows the rules of the package.
	Move(ctx context.Context, from, to Set) (Set, error)
}

// SetError says that a server belongs to another set of nodes than its client. errors.As finds it
// inside a permanent [*Error].
type SetError struct {
	Want Set // the client's
	Have Set // the server's
}

// Error names both sets.
func (e *SetError) Error() string {
	return fmt.Sprintf("the client is configured for %v, the server belongs to %v", e.Want, e.Have)
}
