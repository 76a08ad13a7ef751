package driver

import "context"

// Backend grants, renews and releases claims. See the package documentation for
// the rules that hold for all methods.
//
// A call never outlives its context by more than scheduling delay: it returns the
// context's error, wrapped in an [*Error] that says [ErrUnknown] when the request
// may have been sent. The context ends the call, not its effect.
type Backend interface {
	// Acquire asks once for the claim.
	//
	// It returns Held with a token when the key was free or the claim's own, and Busy
	// when another owner value holds it. With claim.Queue set, and if the backend keeps
	// a queue, a busy claim is left in it: it is granted without being asked again, when
	// its turn comes, for as long as it is present (see [Result.Presence]).
	//
	// Without claim.Queue a busy claim leaves no trace. A key that is free but has
	// live waiters belongs to the first of them; the call hands it over and reports
	// Busy, unless the claim is that first waiter.
	Acquire(ctx context.Context, claim Claim) (Result, error)

	// Renew extends every claim that still holds its key to the full TTL from now. The
	// results are in the order of the claims, one each: Held, Lost when the claim no
	// longer holds its key, or Unknown with [Result.Err] when this claim's outcome is not known.
	// With a Block, Held also tells whether somebody waits, see [Result.Waiting]. One bad claim
	// never spoils another's result.
	//
	// An error is that of all claims; the results are nil then.
	Renew(ctx context.Context, claims []Claim) ([]Result, error)

	// Release ends a hold, or leaves the queue, whichever the claim is in. If others
	// wait, the key passes to the first live one in the same step. It returns Held
	// when the claim held the key until now (and does no longer), Busy when it was
	// queued (and is no longer), and Lost when the backend knew nothing of it.
	// Releasing twice is safe, and so is releasing what was never acquired.
	Release(ctx context.Context, claim Claim) (Result, error)

	// Close gives up the backend's connections and goroutines. Keys that are still
	// held run into their TTL, or end with their client. Calls after Close fail with
	// ErrUnavailable. Closing twice is safe.
	Close() error
}

// Notifier is a Backend that tells waiters that their turn has come, instead of
// being asked.
type Notifier interface {
	// Notify calls f with every notice for claims that this Backend value has
	// queued, until stop is called. A backend may also call f with notices that concern
	// other Lockers' claims; f ignores an owner value that it does not know.
	//
	// f does not block and does not call the Backend. Notices are hints that may be lost, late or
	// repeated: a waiter that is granted its claim also learns it from its next heartbeat. After
	// stop has returned, f is not called again. Calling stop twice is safe.
	Notify(f func(Notice)) (stop func())
}

// NoticeKind says what a Notice is about.
type NoticeKind uint8

const (
	// Granted: the queued claim with this owner value holds the key now, with
	// Notice.Token. Its lease is what remains of its presence (see [Result.Presence]). A waiter
	// that asks again and is told Busy only after its presence may have ended takes no notice
	// for that owner value any more: it may be of a grant that is over. It asks with a new one.
	Granted NoticeKind = iota + 1

	// Freed: the key may be free, so asking now is worthwhile. An empty Owner addresses everybody
	// who waits for the key, another one only that waiter.
	Freed
)

// Notice is what a Notifier pushes.
type Notice struct {
	Kind  NoticeKind
	Key   string // the full key, as in Claim.Key
	Owner string // the owner value that is addressed; see the kinds
	Token Token  // Granted: first token of the block
	Block uint64 // Granted: how many tokens, 0 means 1
}
