// Package driver is the contract between the Holdfast kernel and a backend:
// the system that remembers who holds which key.
//
// Applications do not use this package. They open a backend and hand it to
// holdfast.New. This package is for those who write a backend.
//
// # Division of labour
//
// A backend makes single attempts. It does not repeat a request, renew or wait by itself: the
// kernel does all of that, once for all backends, and it applies the rules of validity and local
// handoff. A backend serves three requests about a [Claim]: to hold the key ([Backend.Acquire]), to
// go on holding it ([Backend.Renew]), and to stop holding or waiting ([Backend.Release]).
//
// # Outcomes
//
// An answer is a [Result] and never an error: [Held], [Busy] or [Lost]. An error means that there
// is no answer. It is an [*Error] if the backend knows more: that it was unavailable
// ([ErrUnavailable]), that the request may or may not have taken effect ([ErrUnknown]), or that the
// request is not allowed ([ErrInvalid]). The zero [State] is [Unknown], so a forgotten assignment
// cannot grant a lock.
//
// # Rules every backend keeps
//
// Package drivertest checks them. In short:
//
//   - At most one owner value holds a key, or several if all of their claims have [Claim.Shared].
//   - Acquire may be repeated. For an owner value that holds the key, it confirms that with a fresh
//     TTL. For one that waits, it keeps the place in the queue, and is the waiter's heartbeat.
//   - Renew and Release compare the owner value. Renew never sets a key that is gone, and never
//     changes a key that another owner value holds.
//   - Tokens of a key rise: a grant that starts after another one was completed has a larger token.
//     They are unique, except that claims that share the key may have the same one. See
//     [Claim.Token] and [Claim.Block].
//   - Two calls for one key take effect in the order in which they were made, even if the first one
//     returned early because its context ended. So a Release after an Acquire that was cut off
//     leaves nothing behind. Only a Renew may be overtaken, because it does no more than extend a
//     hold that exists. A Renew may also overtake a Release, so nobody relies on the answer to a
//     Renew while an earlier Release of the claim has no answer.
//   - Every method returns when its context ends, whatever the client library does.
//   - All methods are safe for concurrent use.
//
// # Capabilities
//
// Each thing that some backends cannot do has an interface of its own. A caller finds out by a type
// assertion on the Backend, as the kernel does with Notifier, Inspector, Limited and Sharer:
//
//   - [Notifier] tells waiters that their turn has come.
//   - [Inspector] lists keys, their holders and their waiters.
//   - [BatchInspector] describes many keys at a time.
//   - [Checker] examines the installation.
//   - [Limited] allows only some TTLs.
//   - [Sharer] grants shared claims.
//   - [Guarder] sits out a quarantine after a restart.
//   - [Member] remembers which set of nodes its server belongs to.
//   - [Identifier] tells one server from another, and one run from the next.
//   - [Versioner] knows the version of its server.
//
// The last four are for a backend that is a node of a composition, as in package quorum. A backend
// that lacks a capability lacks the method: no method returns a value that means "not supported".
//
// A backend that relies on something for a limited time measures the time by [LeaseClock], which
// counts the time in which the host was suspended.
//
// # Room for what comes next
//
// A backend needs to know nothing of permits and of sets of keys: to it, a slot of a semaphore is
// an exclusive key, and a set is several claims. If backends are to count permits one day, or to
// take several keys in one step, there will be new fields of Claim, whose zero values mean what a
// claim means today, and new capability interfaces. A backend that does not know such a field
// grants an exclusive hold, which is less than was asked, and safe. Use keyed literals.
package driver
