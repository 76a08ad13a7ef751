package driver

import (
	"strconv"
	"time"
)

// MaxKeyLen is the longest key in bytes that a backend accepts. Keys are arbitrary
// bytes; the empty key is refused by the kernel.
const MaxKeyLen = 1024

// MinTTL is the shortest TTL that the kernel lets through.
const MinTTL = 10 * time.Millisecond

// MaxTTL is the longest TTL that the kernel lets through: 366 days. A backend counts on it where it
// adds a TTL to a time.
const MaxTTL = 366 * 24 * time.Hour

// Token is a fencing token. Tokens of one key rise strictly from one
// acquisition to the next, on every backend, so the protected store can refuse a
// writer that was overtaken. Tokens of different keys are not comparable. They look like
// microseconds since 1970 and stay below 2^53, so they survive JSON.
type Token uint64

// String formats the token in decimal.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// Claim is what a backend is asked for: one hold of a key, from its first request to its
// release. The key and the owner value identify it; an owner value is never used again.
type Claim struct {
	_ struct{} // keyed literals only: fields will be added

	// Key names what is locked: 1 to MaxKeyLen arbitrary bytes.
	Key string

	// Owner is the owner value: unique over all clients and all claims, made
	// by [NewOwner], and readable by [ParseOwner] for the sake of whoever inspects
	// the backend.
	Owner string

	// TTL is the lease asked for, counted by the backend from when it applies
	// the request. From a millisecond to MaxTTL.
	TTL time.Duration

	// Token is, for Acquire and for Renew with a Block, the smallest token the caller wants:
	// its clock in microseconds, raised by every larger token it has seen. The backend grants
	// max(largest granted + 1, Token), so that tokens keep rising even when a
	// counter is lost. Release ignores it.
	Token Token

	// Block is how many consecutive tokens to reserve. Acquire reads 0 as 1. Renew
	// reads 0 as none: the hold keeps the tokens it has.
	Block uint64

	// Queue asks Acquire to wait in the backend's queue when the key is busy.
	Queue bool

	// Ticket orders the queue: smaller tickets are served first, and equal ones by owner value. It
	// lets a composition of backends have the same order on each. 0 means the order of arrival: the
	// ticket is the backend's clock then, see [Result.Clock], raised over the last one it gave.
	Ticket uint64

	// Shared asks for the key together with others that ask so, see [Sharer]. All calls about a
	// claim set it alike, but for one change: a Renew with Shared of a claim that holds the key
	// alone makes it one that shares, for good, and lets in the waiters that its turn lets in.
	// Release finds a claim by its owner value, whatever it says here: after such a Renew without
	// an answer nobody knows. No call makes a claim that shares hold the key alone: a Renew
	// without Shared, overtaken as it may be, extends it as it is, and an Acquire without Shared
	// finds it Busy.
	Shared bool
}

// State is what a backend knows about a claim after a call.
type State uint8

const (
	// Unknown is the zero State: nothing is known. It never means held.
	Unknown State = iota
	// Held: the claim holds the key. From Release: it held it until now.
	Held
	// Busy: another owner value holds the key, or waits for it and comes first. From Release: the
	// claim was queued until now.
	Busy
	// Lost: the claim neither holds the key nor waits for it.
	Lost
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Busy:
		return "busy"
	case Lost:
		return "lost"
	default:
		return "unknown"
	}
}

// Result is a backend's answer about one claim.
type Result struct {
	_ struct{} // keyed literals only: fields will be added

	State State

	// Token is, when Held by Acquire or by Renew with a Block, the first token of the block
	// granted, of which there are as many as were asked for. Asking again for a key that the claim
	// holds already may give a new block; both are the claim's.
	Token Token

	// Waiting says, when Held by Renew with a Block, that a live claim waits for the key: a
	// Release of this one, if it holds the key alone, would hand the key over. A backend without a
	// queue never says so. A Renew without a Block need not look, and nobody relies on its answer.
	Waiting bool

	// Holder is, when Busy, the owner value that holds the key; empty if not known. If several
	// share the key, it is the one whose lease ends last.
	Holder string

	// ExpiresIn is, when Busy, what remains of the holder's lease; 0 if not known.
	ExpiresIn time.Duration

	// Place is, when Busy and queued, the claim's place among the live waiters, 1 being
	// next; 0 if not queued or not known.
	Place int

	// Presence is, when Busy and queued, for how long the claim counts as present, from when this
	// request was applied. The waiter asks again three times in that span, or more often. A grant
	// by handoff is valid for what remains of it. 0 means that the claim was not queued: the waiter
	// has to come back by itself. While a claim waits, its presence may get shorter once, as when a
	// setting is changed, and not longer again.
	Presence time.Duration

	// Clock is, when Busy and queued, what the backend's clock showed when it applied the request,
	// in microseconds since 1970. The backend takes tickets from the same clock, see
	// [Claim.Ticket]. 0 if not known.
	Clock uint64

	// Err is, when Unknown in a batch, the reason. It follows the rules for errors of the package.
	Err error
}
