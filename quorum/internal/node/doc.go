// Package node is the lower layer of package quorum: one node. It makes the calls to a backend, in
// the order in which they were asked for, and each within its bound. It spares a node that is down,
// repeats releases that a node has not confirmed, and knows a node's state and identity.
//
// It knows nothing of rounds, majorities, validity, or tokens over several nodes. It reports to the
// claim's [Keeper], to the [Receiver] or [Renewer] of each call, and to the two functions in
// [Config].
package node
