package driver

// Sharer is a Backend that grants shared claims (see [Claim.Shared]): a key is held by one claim
// that is not shared, or by any number of shared ones, never by both. A backend without it takes
// every claim for an exclusive one, which is safe, and the kernel sends it no shared ones.
//
// Both kinds wait in one queue, so that neither starves:
//
//   - A shared claim is granted at once if the key is free and nobody waits, or if the key is
//     shared and no live waiter comes before it: none at all, or only ones with later tickets than
//     the one that it queues with. A claim that shares the key already goes on to.
//   - When the last claim that held the key has gone, the key passes to the first live waiter. If
//     that is a shared claim, all shared ones that follow it are let in as well, up to the first
//     live one that is not shared, in the same step. Each gets its own tokens, and a notice.
//   - The same when waiters in front go, by a Release or as their presence ends: shared claims that
//     are then first in the queue of a key that is shared are let in. A backend without a queue has
//     no such order.
//
// Each shared claim has its own lease. Two shared claims may get the same token, as over a quorum.
// A claim granted alone gets a token of its own, and a larger one than every shared claim whose
// acquisition was complete when it was asked for, and the other way round. The key stays shared for
// as long as the longest lease among those that share it; a lease that has ended keeps nobody
// waiting.
type Sharer interface {
	// Shares reports whether shared claims are granted side by side. It asks no server, and its
	// answer does not change.
	Shares() bool
}
