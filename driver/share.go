package driver

// Sharer is a Backend that grants shared claims (see [Claim.Shared]). A key is held by one
// exclusive claim or by any number of shared claims, and never by both. A backend that is no Sharer
// treats every claim as exclusive, which is safe, and the kernel sends it no shared claims.
//
// Both kinds wait in one queue, so that neither starves:
//
//   - A shared claim is granted at once if the key is free and nobody waits, or if the key is
//     shared and no live waiter comes before the claim. A waiter does not come before it if the
//     claim queues with an earlier ticket. A claim that already shares the key goes on sharing it.
//   - When the last claim that held the key has ended, the key passes to the first live waiter. If
//     that is a shared claim, all shared claims behind it get the key in the same step, up to the
//     first live exclusive one. Each gets tokens of its own, and a notice.
//   - When waiters leave the queue of a shared key, by a Release or because their presence has
//     ended, shared claims that are then first get the key too. A backend without a queue has no
//     such order.
//
// Each shared claim has its own lease. The key stays shared until the last of these leases has
// ended, and a lease that has ended makes nobody wait. Two shared claims may get the same token, as
// they may over a quorum. An exclusive claim has a token of its own, larger than that of every
// shared claim that was complete when the exclusive one was asked for. The same holds for a shared
// claim after an exclusive one.
type Sharer interface {
	// Shares reports whether the backend grants shared claims. It asks no server, and its answer
	// never changes.
	Shares() bool
}
