// Package redismodel is a Redis server in process, for simulations in fake time. It runs the real
// scripts of redishold/protocol, and a [Client] of it has a real [protocol.Backend]. The Backend's
// requests travel over a simulated connection that delays, hangs and breaks as it is told.
//
//	server := redismodel.New(redismodel.Options{})
//	client := server.Client(redismodel.Link{Request: func() time.Duration { return rand.N(time.Millisecond) }})
//	backend := client.Backend()
//
// # What is modelled
//
// Of the server these are modelled: the commands that the protocol uses and those of a foreign
// client of the same keys, Lua with its conversions of numbers and replies, expiry to the
// millisecond on a wall clock of its own, INFO and CONFIG GET, subscriptions, refused commands,
// being a replica, and restarts on any data. Commands take effect one at a time and scripts in one
// step, but a pipeline is no step: see [Link.Gap] and [Options.Between].
//
// The connection behaves like the one connection that redishold has to each server. Commands take
// effect in the order in which they were sent, even if their callers have left. A connection that
// breaks loses what it carries, or only the replies. It is given up after five seconds without an
// answer. The next one is greeted anew: it looks at the server's run and settings, has its
// predecessor closed by the server, loads the scripts, and subscribes.
//
// A [Library] stands for a client of the application, as goredishold has one: each request has a
// connection of its own, and arrives after later ones if the library has given it up.
//
// What is not modelled: clusters and Sentinels. A command that the model does not know is answered
// with an error, as an old server would, never ignored.
//
// # Known differences
//
//   - If ".." makes a large integer part of a string, the Lua of the model writes it in full, while
//     Lua 5.1 keeps 14 digits. The scripts use string.format for such integers, and the
//     differential test would show a script that does not.
//   - An error inside a script comes without the name of the script and the line, which the
//     protocol removes.
//   - SCAN gives all keys at once. Keys expire when somebody looks, as on a server without its
//     background cycle.
//
// # Time and determinism
//
// All time is that of package time, so in a bubble of testing/synctest it is the bubble's. The
// model's only goroutines are the one that makes a connection and those of timers. None is left
// when the Backends are closed. When each request arrives at a moment of its own, a history depends
// on nothing but the delays. Requests that arrive at the same moment take effect in an order that
// the scheduler decides.
package redismodel
