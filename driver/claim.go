package driver

import (
	"strconv"
	"time"
)

// MaxKeyLen is the length in bytes of the longest key that a backend accepts. Keys are arbitrary
// bytes. The kernel refuses the empty key.
const MaxKeyLen = 1024

// MinTTL is the shortest TTL that the kernel passes on.
const MinTTL = 10 * time.Millisecond

// MaxTTL is the longest TTL that the kernel passes on: 366 days. So a backend can add a TTL to a
// time without an overflow.
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

	// Owner is the owner value, which [NewOwner] makes. It is unique among all claims of all
	// clients. [ParseOwner] reads it, for people who inspect the backend.
	Owner string

	// TTL is the length of the lease, which the backend counts from when it applies the request. It
	// is between a millisecond and MaxTTL.
	TTL time.Duration

	// Token is the smallest token that the caller wants. Acquire reads it, and Renew with a Block.
	// It is the caller's clock in microseconds, or one more than the largest token that the caller
	// has seen, if that is larger. The backend grants max(largest granted + 1, Token), so tokens
	// keep rising even if a counter is lost.
	Token Token

	// Block is how many consecutive tokens to reserve. To Acquire, 0 means 1. To Renew, 0 means
	// none: the hold keeps the tokens that it has.
	Block uint64

	// Queue asks Acquire to put the claim into the backend's queue if the key is busy.
	Queue bool

	// Ticket orders the queue: smaller tickets are served first, and equal ones in the order of
	// their owner values. With it, the backends of a composition have the same order. 0 means the
	// order of arrival: the ticket is then the backend's clock (see [Result.Clock]), or more than
	// the last ticket that the backend gave, if that is larger.
	Ticket uint64

	// Shared asks for the key together with other shared claims (see [Sharer]). All calls about a
	// claim have the same value, with one exception: a Renew with Shared of an exclusive claim
	// makes it a shared one. That cannot be undone, and lets in shared waiters whose turn it is.
	//
	// If such a Renew has no answer, nobody knows whether the claim is shared. So Release finds a
	// claim by its owner value, whatever Shared is. No call makes a shared claim exclusive: a Renew
	// without Shared, which may have been overtaken, extends a shared claim as it is, and an
	// Acquire without Shared finds it Busy.
	Shared bool
}

// State is what a backend knows about a claim after a call.
type State uint8

const (
	// Unknown is the zero State: nothing is known. It never means held.
	Unknown State = iota
	// Held: the claim holds the key. From Release: it held it until now.
	Held
	// Busy: another owner value holds the key, or waits for it and is first. From Release: the
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

	// Token is the first token of the block that was granted, if State is Held by Acquire or by
	// Renew with a Block. The block has as many tokens as were asked for. If the claim already held
	// the key, the block may be a new one; both blocks are the claim's.
	Token Token

	// Waiting says, if State is Held by Renew with a Block, that a live claim waits for the key, so
	// that a Release of an exclusive claim would hand the key over. It is always false on a backend
	// without a queue. After a Renew without a Block it means nothing.
	Waiting bool

	// Holder is, if State is Busy, the owner value that holds the key; empty means not known. If
	// several share the key, it is the one whose lease ends last.
	Holder string

	// ExpiresIn is, if State is Busy, what remains of the holder's lease; 0 means not known.
	ExpiresIn time.Duration

	// Place is, if State is Busy and the claim is queued, its place among the live waiters, where 1
	// is next; 0 means not queued or not known.
	Place int

	// Presence is, if State is Busy and the claim is queued, how long the claim counts as present,
	// counted from when this request was applied. The waiter asks again at least three times in
	// that time. A grant by handoff is valid for what remains of it. 0 means that the claim was not
	// queued, so the waiter has to ask again by itself. While a claim waits, its presence may
	// become shorter once, for example because a setting was changed, and never longer.
	Presence time.Duration

	// Clock is, if State is Busy and the claim is queued, the backend's clock when it applied the
	// request, in microseconds since 1970; 0 means not known. The backend takes tickets from the
	// same clock (see [Claim.Ticket]).
	Clock uint64

	// Err is the reason if State is Unknown. It follows the rules of the package for errors.
	Err error
}
