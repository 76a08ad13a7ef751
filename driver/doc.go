// Package driver is the contract between the Holdfast kernel and a backend:
// the system that remembers who holds which key.
//
// Applications do not use this package. They open a backend and hand it to
// holdfast.New. This package is for those who write a backend.
//
// # Division of labour
//
// A backend makes single attempts. It never asks again for a claim, renews or waits by itself:
// waiting, renewal, local handoff and the rules of validity live in the kernel,
// once, for all backends. A backend answers three questions about a [Claim]:
// may I hold it ([Backend.Acquire]), do I still hold it ([Backend.Renew]), and
// please forget me ([Backend.Release]).
//
// # Outcomes
//
// What the backend knows is a [Result], never an error: [Held], [Busy] or [Lost]. An error says
// that the backend could not say. It is an [*Error] when the backend can tell more: that it was
// unavailable ([ErrUnavailable]), that the request may or may not have taken effect ([ErrUnknown]),
// or that the request is not allowed ([ErrInvalid]). The zero [State] is [Unknown], so a forgotten
// assignment cannot grant a lock.
//
// # Rules every backend keeps
//
// Package drivertest checks them. In short:
//
//   - At most one owner value holds a key; or, with [Claim.Shared], several that share it.
//   - Acquire with an owner value that holds the key, or waits for it, is
//     idempotent: it confirms the hold with a fresh TTL, or keeps the place in the
//     queue. It doubles as the waiter's heartbeat.
//   - Renew and Release compare the owner value. Renew never re-creates a key that
//     is gone, and never touches another owner's.
//   - Tokens are unique per key, but for claims that share it, and rise: a grant that starts
//     after another completed gets a larger token. See [Claim.Token] and [Claim.Block].
//   - Two calls for one key take effect in the order in which they were made, even if the first
//     returned early because its context ended. So a Release after an Acquire that was cut off
//     leaves nothing behind. Only a Renew may be overtaken: it extends a hold that is still
//     there, and ends none. And a Renew may overtake a Release, so nobody counts on its answer
//     while an earlier Release of the claim has none.
//   - Every method returns when its context ends, whatever the client library does.
//   - All methods are safe for concurrent use.
//
// # Capabilities
//
// What some backends cannot do is an interface of its own. Who needs it finds it by a type
// assertion on the Backend, as the kernel does with Notifier, Inspector, Limited and Sharer:
//
//   - [Notifier] tells waiters that their turn has come.
//   - [Inspector] lists keys, their holders and their waiters.
//   - [Checker] examines the installation.
//   - [Limited] takes some TTLs only, and says which.
//   - [Sharer] grants shared claims.
//   - [Guarder] sits out a quarantine after a restart.
//   - [Member] remembers which set of nodes its server belongs to.
//   - [Identifier] tells one server from another, and one run from the next.
//   - [Versioner] knows the version of its server.
//
// The last four are for a backend that is a node of a composition, as in package quorum. A missing
// capability is a missing method: no method answers with a value that means nothing.
//
// A backend that relies on something for a limited time reads [LeaseClock], which counts suspended
// time.
//
// # Room for what comes next
//
// Permits and sets of keys need nothing of a backend: to it, a slot of a semaphore is an exclusive
// key, and a set is several claims. Should a backend count permits, or take several keys in one
// step, that comes as new fields of Claim, whose zero value means what a claim means today, and as
// further capability interfaces. A backend that ignores such a field grants less than was asked, an
// exclusive hold, which is safe. Use keyed literals.
package driver
