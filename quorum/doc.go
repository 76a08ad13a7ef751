// Package quorum makes one lock backend of N independent ones: Redlock, over anything that implements
// driver.Backend. It knows nothing of Redis.
//
//	backend, err := quorum.New([]driver.Backend{a, b, c, d, e})
//	locker, err := holdfast.New(backend)
//
// A claim is held when a majority of the nodes, N/2 + 1, holds it. All nodes are asked at once, each with a short
// time to answer, and the result is known as soon as enough have answered: any minority may be down, hung, slow or
// wrong about the time, and acquiring, renewing and releasing keep their speed.
//
// # How many nodes
//
// Three tolerate the failure of one, five of two. An even number is allowed and buys nothing: four
// need three for a majority, so they tolerate one failure as three do, and have one node more that can fail.
// One or two nodes tolerate none. Nodes have to be independent: no replication between them, no common host, one
// failure, one node. They may be of different kinds.
//
// # Fencing tokens
//
// Tokens rise from one acquisition of a key to the next, without any clock, as long as no node loses what it has
// stored. Each node grants a token larger than all it has granted. The largest of a majority is the
// acquisition's, and nodes that granted a smaller one have to acknowledge it before the acquisition is complete, which they
// do only while the key is still the acquisition's own. So two acquisitions that complete share a
// node that acknowledged both, and the one that held the key there later has the larger token. While the nodes agree,
// which is the rule, one round trip does it all; [Counts.SecondRounds] counts the exceptions. A model of
// it, in Promela, is in the directory spec.
//
// # Nodes that forget
//
// A node that restarts without its data has forgotten whom it granted a lease. With a guard (see [WithGuard]) it
// takes no part until every such lease has ended. While it is on, exclusion needs no persistence, and where
// nodes have lost their tokens too, tokens still rise if the clients' clocks agree within the guard, less one TTL.
// While a majority of nodes sits out its quarantine nothing can be locked (R33), and a set of nodes that were all just
// started begins with it.
//
// A renewal sets the claim again on nodes that have lost it, so a lock outlives the loss of one node after the
// other, as long as there is a renewal in between.
//
// # Waiting
//
// A waiter queues on all nodes under one ticket, its clock when it began to wait, so that they have the waiters in the same
// order, and a release hands over to the same one on most of them, in one round trip. Waiters whose clocks are behind by some
// time go ahead of others by as much, and no more.
//
// # Caveats
//
// Exclusion rests on time: the clocks of all machines have to run at the same rate within the drift allowance, and a
// node whose clock is set forward gives leases away early (R39). One such node, or one that forgets
// without a quarantine, is enough to give a lock to two holders if the others that they asked are down (K1, R29). Fencing
// tokens do not depend on it: have the protected store check them.
//
// When the network parts a holder from the majority, nobody gets the key for up to its TTL (R27), and a network that
// does so over and over can keep everybody from it (R28).
//
// What a client that dies leaves on the nodes ends with its TTL.
package quorum
