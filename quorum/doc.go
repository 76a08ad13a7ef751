// Package quorum makes one lock backend of N independent ones: Redlock, over anything that
// implements driver.Backend. It knows nothing of Redis.
//
//	backend, err := quorum.New([]driver.Backend{a, b, c, d, e})
//	locker, err := holdfast.New(backend)
//
// A claim holds a key when it holds it on a majority of the nodes, N/2 + 1. All nodes are asked at
// once. Each has a short time to answer, and the result is known as soon as enough of them have
// answered. So any minority of nodes may be down, hung, slow or wrong about the time, and
// acquiring, renewing and releasing are as fast as before.
//
// There are two layers. A node, in internal/node, makes the calls to one backend: in order, within
// their time bounds, and again if a release was not confirmed. This package is the algorithm over
// the nodes: rounds, tokens, waiting, healing and checks.
//
// # How many nodes
//
// Three nodes tolerate the failure of one, and five tolerate the failure of two. An even number is
// allowed but does not help: a majority of four nodes is three, so four tolerate one failure as
// three do, and there is one node more that can fail. One or two nodes tolerate no failure. Nodes
// must be independent, so that one failure takes one node: they do not replicate each other and do
// not share a host. They may be backends of different kinds.
//
// Nodes on etcd and ZooKeeper are no driver.Guarder, driver.Member or driver.Identifier. They
// have to keep their data in a restart. Nothing notices that one of them is configured twice or was
// replaced, and only the other nodes refuse a client of another set. Each node has to answer within
// the node timeout ([WithNodeTimeout]), also where it waits for a disk.
//
// # Fencing tokens
//
// As long as no node loses its data, tokens rise from one acquisition of a key to the next, and
// that rests on no clock. Each node grants a token that is larger than all tokens it has granted.
// The token of the acquisition is the largest one of a majority. Nodes that granted a smaller token
// have to acknowledge the larger one before the acquisition is complete, and they do so only while
// the acquisition holds the key there. So for any two complete acquisitions there is a node that
// has acknowledged both tokens, and the acquisition that held the key there later has the larger
// one. Usually nodes agree at once, and one round trip is enough. [Counts.SecondRounds] counts the
// exceptions. Models of this in Promela are in the folder models.
//
// [Quorum.Adopt] does not copy tokens to new nodes. After a change of the set, tokens rise if every
// majority of the new set has a node that knew the last token, or if the clients' clocks agree.
//
// # Sharing
//
// Shared claims (driver.Claim.Shared) are granted if all nodes can share keys (driver.Sharer).
// Otherwise they fail with driver.ErrInvalid, and the error names a node that cannot. A reader
// holds a majority like any other claim. The majorities of a reader and a writer have a node in
// common. That node does not grant the key to both at the same time, and gives the later one the
// larger token. Two readers may have the same token.
//
// A renewal with Shared downgrades a claim, once a majority has confirmed it. Until then some nodes
// may have the claim exclusive and others shared. It excludes writers in both modes, but from the
// moment of the request its holder may not be alone any more. Each later renewal with Shared tells
// the nodes that have not heard of it.
//
// If a node has lost a reader, the reader is set there again, before the waiters of the node. A
// writer is set there again only if the key is free there at that moment: if many wait for the key,
// one of them may have it there at each renewal.
//
// A claim that got its majority while it waited at another node, and was downgraded since, may wait
// there as a writer for as long as it is held, and keep readers from that node.
//
// # Exclusion
//
// Two acquisitions of one key are never valid at the same time, unless both share it, if all of the
// following holds. The theorem in models/README.md assumes the same, and the numbers at the end of
// each item are its numbers.
//
//  1. One set. All clients have the same nodes, under whatever names, and the same guard. Nodes
//     that implement driver.Member refuse a client that has another number of nodes, another guard
//     or another name of the set ([WithSet]). So to replace a server, change that name and call
//     [Quorum.Adopt]. Or shut the old server down for good before an empty one starts under its
//     address. If the set has no name, nodes do not notice that a server was replaced. Only Adopt
//     changes a set. When the first client of a new set starts, fewer nodes than a majority have no
//     set yet, and servers that are left out are shut down. (1)
//  2. N nodes. No two of them are the same server. No server is a replica, and no replica takes the
//     place of a server. (1, 5)
//  3. One step. A node grants, renews and releases in one step, by comparing the owner value. It
//     carries out the calls of one client for one key in the order in which they were made. Only a
//     renewal may be overtaken, because it never sets a key. (8, 11)
//  4. Memory. A node remembers a grant until the lease has ended. Or, after it was restarted,
//     replaced or set back to older data, it takes no part for the guard, and every TTL is at most
//     the guard. If somebody deletes the data of a node that runs, that is not a restart. redishold
//     still notices it, because the server stores since when it has had its data. It does
//     not notice older data of the same run; see there. If the guard is switched off, or the
//     operator has exempted a node, the node must never forget: it stores every change on disk
//     before it answers, it evicts nothing, and nobody else deletes its keys. (2, 4, 5, 6, 7)
//  5. No vote from an old queue. A notice of a node counts only if the node would also have granted
//     the claim at that time, as driver.Guarder describes. (6)
//  6. Rates. Clocks of clients and nodes advance at rates that differ by at most the drift
//     allowance, and no node's clock is set forward. A client's clock counts the time in which it
//     was suspended. It does not matter what time the clocks show, and a clock may be set back. (3)
//  7. Validity. A holder stops working when its validity ends: the TTL less the drift allowance,
//     counted from just before the first request. Tokens protect against work that goes on. (9)
//
// The theorem also assumes something about notices and late answers (10 and 11). This package
// ensures it.
//
// Then exclusion follows. Any two majorities have a node in common, which granted the key to one of
// the two claims first. While that lease is valid by the holder's clock, it runs by the node's
// clock, and the node remembers it or takes no part. So the node grants the key to the other claim
// only after that, or after a release. Any message may be lost, late or repeated, and any process
// may be stopped at any time.
//
// If 1 to 6 do not hold on some nodes, exclusion still holds as long as any two majorities have
// another node in common. If they do not, only tokens protect the store.
//
// # Nodes that forget
//
// A node that restarts without its data, or with older data, has forgotten leases that it granted.
// With a guard (see [WithGuard]) the node is then in quarantine: it takes no part until every such
// lease has ended. This is so after every restart, because the present settings of a server say
// nothing about the run before. While the guard is on, exclusion does not need persistence. If
// nodes lose their tokens too, tokens still rise if the clients' clocks agree to within the guard
// less one TTL.
//
// While a majority of the nodes is in quarantine, nothing can be locked. So if all nodes have just
// started, or no client has asked them before, they grant nothing until the guard is over.
//
// If a renewal finds that a node has lost the claim, the claim is set there again, unless the key
// is taken there, and the node goes on above the tokens of the key. So a lock survives the loss of
// one node after the other, if each is back in service at a renewal before the next one is lost.
// For as long as the key is held like that, its tokens rise, whatever clocks show.
//
// A claim that shares the key does not know all of its tokens. So the other nodes are asked for a
// token above them before the claim is set again, and once more when a renewal has found it there,
// in the background. The node knows the last token for sure when enough of them have answered and
// it has acknowledged what they say. If too few of them answer, a later renewal asks again. Only
// clocks keep tokens above the last one if one of the few nodes that know it is lost before that,
// or once the key is free. Only clocks do so, too, for another reader that comes before that and
// gets its majority with that node and without those that know the last token. And the last token
// may be known to fewer nodes than a majority from the start, if its acquisition was not complete
// when a node lost its data that had granted it.
//
// No renewal finds a loss if the claim is on the node nevertheless. Without a guard, that is so if
// the node comes back with older data that has the claim, or if it loses its data before it carries
// out the acquisition of a claim that already holds a majority. Then only clocks keep tokens above
// those that the node has forgotten, if the others that know them are lost later.
//
// A node that loses its data also forgets its set, and joins the set of the first client that asks.
// So do not leave clients of an older set running.
//
// # Waiting
//
// A waiter queues on all nodes with the same ticket. So all nodes have the waiters in the same
// order, and a release hands the key over to the same waiter on most nodes, in one round trip. The
// ticket is the time at which the waiter began to wait, by the median of the clocks of a majority
// of nodes, or more. Nodes tell their clocks in their answers to waiters. A client's own clock does
// not matter.
//
// A ticket is early by the time that an answer takes to come back, and by a hundredth of the time
// since the last answer. If clients have heard from different nodes, their tickets differ by as
// much as the clocks of these nodes do. A waiter can overtake others by that much, and no more. The
// first waiter of a process has no ticket yet, so each node places it by its own clock. The answer
// tells a waiter its ticket (driver.Result.Clock), with which it asks for its old place after an
// outage.
//
// A grant to a waiter lasts for the presence on that node. A node whose presence is at most
// [DefaultNodeTimeout], and at most the node timeout, counts as a node without a queue, because
// with many waiters nobody would gather a majority in time. If fewer nodes than a majority have a
// queue, waiters ask again after random pauses, in no order.
//
// If fewer nodes than a majority tell their clocks (driver.Result.Clock), the ticket is the
// client's clock. Then a client whose clock is behind overtakes others by as much.
//
// # Caveats
//
// Exclusion rests on time (item 6 above), and a node whose clock is set forward ends leases early.
// Such a node, or a node that forgets without a quarantine, can give a lock to two holders if the
// other nodes that their majorities share are down. Fencing tokens do not depend on time, so have
// the protected store check them.
//
// If the network cuts a holder off from the majority, nobody gets the key for up to its TTL. If
// that happens again and again, nobody may ever get it.
//
// If a client dies, its leases on the nodes end with their TTL.
package quorum
