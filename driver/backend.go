package driver

import "context"

// Backend grants, renews and releases claims. See the package documentation for
// the rules that hold for all methods.
//
// A call returns as soon as its context ends. If the request may have been sent by then, it returns
// the context's error wrapped in an [*Error] that says [ErrUnknown]. The context ends the call, but
// not the effect of the request.
type Backend interface {
	// Acquire asks once for the claim.
	//
	// It returns Held with a token if the key was free or the claim already held it, and Busy if
	// another owner value holds it. If claim.Queue is set, and the backend keeps a queue, a busy
	// claim stays in the queue. When its turn comes, it is granted without being asked again, if it
	// still counts as present (see [Result.Presence]).
	//
	// Without claim.Queue a busy claim leaves nothing behind. A key that is free but has live
	// waiters belongs to the first of them: the call hands the key over and returns Busy, unless
	// the claim is that waiter.
	Acquire(ctx context.Context, claim Claim) (Result, error)

	// Renew extends every claim that still holds its key to the full TTL from now. The
	// results are in the order of the claims, one each: Held, Lost when the claim no
	// longer holds its key, or Unknown with [Result.Err] when this claim's outcome is not known.
	// With a Block, Held also tells whether somebody waits, see [Result.Waiting]. One bad claim
	// never spoils another's result.
	//
	// An error applies to all claims; the results are then nil.
	Renew(ctx context.Context, claims []Claim) ([]Result, error)

	// Release ends the claim: it frees the key if the claim holds it, and takes the claim out of
	// the queue if it waits. If others wait for a key that becomes free, the key passes to the
	// first live one in the same step. Release returns Held if the claim has held the key until
	// now, Busy if it was queued, and Lost if the backend did not know it. Releasing a claim twice,
	// or one that was never acquired, does no harm.
	Release(ctx context.Context, claim Claim) (Result, error)

	// Close ends the backend's connections and goroutines. Keys that are still held become free
	// when their TTL ends, or with the client on some backends. Calls after Close fail with
	// ErrUnavailable. Closing twice does no harm.
	Close() error
}

// Notifier is a Backend that tells waiters when their turn has come, so that they need not ask
// again and again.
type Notifier interface {
	// Notify calls f with every notice for claims that this Backend value has
	// queued, until stop is called. A backend may also call f with notices that concern
	// other Lockers' claims; f ignores an owner value that it does not know.
	//
	// f does not block and does not call the Backend. Notices may be lost, late or repeated: a
	// waiter whose claim was granted also learns it from its next heartbeat. After stop has
	// returned, f is not called again. Calling stop twice does no harm.
	Notify(f func(Notice)) (stop func())
}

// NoticeKind says what a Notice is about.
type NoticeKind uint8

const (
	// Granted: the queued claim with this owner value holds the key now, with Notice.Token. Its
	// lease is what remains of its presence (see [Result.Presence]). If a waiter is answered Busy
	// at a time when its presence may have ended, it ignores later notices for its owner value,
	// because they may be about a grant that is over. It asks again with a new owner value. So does
	// a waiter that is answered Busy with a presence, after an answer without one.
	Granted NoticeKind = iota + 1

	// Freed: the key may be free, so asking now is worthwhile. If Owner is empty, the notice is for
	// everybody who waits for the key, and otherwise only for that waiter.
	Freed
)

// Notice is what a Notifier pushes.
type Notice struct {
	Kind  NoticeKind
	Key   string // the full key, as in Claim.Key
	Owner string // the owner value that the notice is for; see the kinds
	Token Token  // Granted: first token of the block
	Block uint64 // Granted: how many tokens, 0 means 1
}
