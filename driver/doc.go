// Package driver is the contract between the Holdfast kernel and a backend:
// the system that remembers who holds which key.
//
// Applications do not use this package. They open a backend and hand it to
// holdfast.New. This package is for those who write a backend.
//
// # Division of labour
//
// A backend makes single attempts. It never retries, renews or waits by itself:
// waiting, renewal, local handoff and the rules of validity live in the kernel,
// once, for all backends. A backend answers three questions about a [Claim]:
// may I hold it ([Backend.Acquire]), do I still hold it ([Backend.Renew]), and
// please forget me ([Backend.Release]).
//
// # Outcomes
//
// What the backend knows is a [Result], never an error: [Held], [Busy], [Lost] or
// [Yielded]. An error says that the backend could not say. It is an [*Error] when
// the backend can tell more: that it was unavailable ([ErrUnavailable]), or that
// the request may or may not have taken effect ([ErrUnknown]). The zero [State] is
// [Unknown], so a forgotten assignment can not grant a lock.
//
// # Rules every backend keeps
//
// Package drivertest checks them. In short:
//
//   - At most one owner value holds a key.
//   - Acquire with an owner value that holds the key, or waits for it, is
//     idempotent: it confirms the hold with a fresh TTL, or keeps the place in the
//     queue. It doubles as the waiter's heartbeat.
//   - Renew and Release compare the owner value. Renew never re-creates a key that
//     is gone, and never touches another owner's.
//   - Tokens are unique per key, and rise: a grant that starts after another
//     completed gets a larger token. See [Claim.Token] and [Claim.Block].
//   - Two calls for one key take effect in the order in which they were made, also
//     when the first returned early because its context ended. So a Release after an
//     Acquire that was cut off leaves nothing behind.
//   - Every method returns when its context ends, whatever the client library does.
//   - All methods are safe for concurrent use.
//
// # Capabilities
//
// What not every backend can do is an interface of its own, found by type
// assertion on the Backend: [Notifier], [Inspector], [Checker]. A capability
// that is absent is absent; none answers with a value that means nothing.
//
// # Room for what comes next
//
// Shared (read) claims, permits and several keys in one step will come as new fields of
// Claim whose zero value means what a claim means today, and as further capability
// interfaces. A backend that ignores such a field grants less than was asked, an
// exclusive hold, which is safe. Use keyed literals.
package driver
