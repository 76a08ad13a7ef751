// Package quorum makes one lock backend of N independent ones: Redlock, over anything that
// implements driver.Backend. It knows nothing of Redis.
//
//	backend, err := quorum.New([]driver.Backend{a, b, c, d, e})
//	locker, err := holdfast.New(backend)
//
// A claim is held when a majority of the nodes, N/2 + 1, holds it. All nodes are asked at once,
// each with a short time to answer, and the result is known as soon as enough have answered: any
// minority may be down, hung, slow or wrong about the time, and acquiring, renewing and releasing
// keep their speed.
//
// It has two layers. A node, in internal/node, makes the calls to one backend: in order, within
// their bounds, and again where a release was not confirmed. This package is the algorithm over
// nodes: rounds, tokens, waiting, healing and checks.
//
// # How many nodes
//
// Three tolerate the failure of one, five of two. An even number is allowed and buys nothing: four
// need three for a majority, so they tolerate one failure as three do, and have one node more that
// can fail. One or two nodes tolerate none. Nodes have to be independent: no replication between
// them and no common host, so that one failure takes one node. They may be of different kinds.
//
// # Fencing tokens
//
// Tokens rise from one acquisition of a key to the next, without any clock, as long as no node
// loses what it has stored. Each node grants a token larger than all it has granted. The
// acquisition's token is the largest of a majority. Nodes that granted a smaller one have to
// acknowledge it before the acquisition is complete, and do so only while the key is still the
// acquisition's own. So two acquisitions that complete share a node that acknowledged both, and the
// one that held the key there later has the larger token. Nodes agree as a rule, and then one round
// trip is enough; [Counts.SecondRounds] counts the exceptions. Models of it, in Promela, are in the
// directory spec. [Quorum.Adopt] carries no tokens over to nodes that are new: after a change of
// the set, tokens rise if a majority of the new one had a node that knew the last, or if the
// clients' clocks agree.
//
// # Sharing
//
// Shared claims (driver.Claim.Shared) are granted if all nodes are a driver.Sharer; else they fail
// with driver.ErrInvalid, and the error names a node that is not. A reader holds a majority like
// any other claim, each node in its own mode. A reader and a writer that both have a majority have
// a node in common, and there they exclude each other, and the later one gets the larger token. Two
// readers have a majority each, and may have the same token.
//
// A claim is downgraded, by a renewal with Shared, when a majority has confirmed it. Until then
// nodes may have it in either mode: it excludes writers in both, but its holder may not be alone
// any more from when it has asked. Each later renewal with Shared tells the nodes that have not
// heard of it.
//
// A reader is put back as a reader on nodes that have lost it, before those who wait.
//
// # Exclusion
//
// No two acquisitions of one key are valid at one time, unless both share it, if all of this is so.
// The theorem in spec/README.md assumes the same; the numbers at the end of each item are those of
// the theorem.
//
//  1. One set. All clients have the same nodes, by whatever names, and the same guard. Nodes that
//     implement driver.Member refuse clients that differ in the number of nodes, in the guard, or
//     in the name of the set ([WithSet]): to replace a server, change that name and call
//     [Quorum.Adopt]; or shut the old server down for good before the new one starts, empty, under
//     its address. Without a name the nodes cannot tell these apart. Only Adopt changes the set.
//     When the first client of a set starts, less than a majority of its nodes is new to it, and
//     servers that are left out are shut down. (1)
//  2. N nodes. No two of them are one server. A server speaks for itself: it is no replica, and no
//     replica takes its place. (1, 5)
//  3. One step. A node grants, renews and releases in one step, by comparing the owner value, and
//     takes calls of one client for one key in the order in which they were made, but that a
//     renewal may be overtaken: it never sets a key. (8, 11)
//  4. Memory. From a grant until its lease has ended a node knows of it. Or it takes no part, for
//     the guard after it was restarted, replaced or set back to older data, and every TTL is at
//     most the guard. A node whose data somebody deletes while it runs has not restarted. redishold
//     notices that as well, as the server stores since when it has had its data; but older data of
//     the same run it does not notice, see there. With the guard switched off, or for a node that
//     its operator has exempted, the node must never forget: every change is on its disk before it
//     is answered, nothing is evicted, and nobody else deletes keys. (2, 4, 5, 6, 7)
//  5. No vote from an old queue. A node's notice counts only if the node would also have granted
//     then, as driver.Guarder says. (6)
//  6. Rates. Clocks of clients and nodes advance at rates that differ by at most the drift
//     allowance, and no node's clock is set forward. A client's clock counts the time in which it
//     was suspended. What the clocks show does not matter, and a clock may be set back. (3)
//  7. Validity. A holder stops when its validity ends: the TTL less the drift allowance, from
//     before the first request. Against work that goes on there are tokens. (9)
//
// Beyond that the theorem assumes something of notices and of late answers (10 and 11). This
// package itself sees to that.
//
// Then any two majorities have a node in common. It granted the key to one of the two claims first.
// While that lease runs by the node's clock, and so while it is valid by the holder's, the node
// knows of it or takes no part. It grants the key to the other claim only afterwards, or after a
// release. Any message may be lost, late or repeated, and any process may be stopped at any time.
//
// If 1 to 6 fail on some nodes, and any two majorities still share another node, exclusion holds.
// If not, only tokens protect the store.
//
// # Nodes that forget
//
// A node that restarts without its data, or with older data, has forgotten leases that it granted.
// With a guard (see [WithGuard]) it takes no part until every such lease has ended. Every restart
// counts: a server's settings now tell nothing about the run before. While the guard is on,
// exclusion needs no persistence, and where nodes have lost their tokens too, tokens still rise if
// the clients' clocks agree within the guard, less one TTL. While a majority of nodes is in
// quarantine nothing can be locked. So a set of nodes that were all just started, or that no client
// has asked before, grants nothing until the guard is over.
//
// A renewal sets the claim again, with its token, on nodes that have lost it. So a lock outlives
// the loss of one node after the other, if a renewal in between finds the node in service and the
// key free there.
//
// A node that forgets its data also forgets its set, and takes on that of the first client that
// asks. So leave no clients of an older set running.
//
// # Waiting
//
// A waiter queues on all nodes under one ticket. So all nodes have the waiters in the same order,
// and a release hands over to the same one on most of them, in one round trip. The ticket is the
// time when the waiter began to wait, by the median of the clocks of at least a majority of nodes,
// which tell it in their answers to waiters. A client's own clock has no part in it, so a wrong one
// costs its waiters nothing. A ticket is early by the time that an answer takes to come back, and
// by a hundredth of the time since the nodes were last heard. Clients that heard different nodes
// differ by what the clocks of these differ. A waiter can go ahead of others by that much, and no
// more. The first waiter of a process has no ticket yet: each node places it by its own clock.
//
// A grant to a waiter lasts for the presence on that node. A node whose presence is no longer than
// the node timeout, or than [DefaultNodeTimeout], counts as a node without a queue: with many
// waiters there, nobody would gather a majority in time. If no majority of nodes has a queue,
// waiters ask again after random pauses, in no order.
//
// With nodes that do not tell their clocks (driver.Result.Clock) the ticket is the client's clock,
// and one that is behind by some time goes ahead of others by as much.
//
// # Caveats
//
// Exclusion rests on time (item 6 above): a node whose clock is set forward ends leases early. One
// such node, or one that forgets without a quarantine, can give a lock to two holders if the other
// nodes that they share are down. Fencing tokens do not depend on time: have the protected store
// check them.
//
// When the network cuts a holder off from the majority, nobody gets the key for up to its TTL. A
// network that does so again and again can keep everybody from it.
//
// A dead client's leases on the nodes end with their TTL.
package quorum
